//! What a commit changed whose writer recorded it in Delta's change data feed.
//!
//! Writers put a preimage right before its postimage as a rule, and then rows are told as they stand. A first pass over three columns
//! finds out; where it is not so, the rows of the commit are paired by identity, in memory, or refused beyond the budget.

use std::collections::HashMap;
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use alluvium_lake::{CHANGE_TYPE, ChangedFile, Rows};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches, interleave_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::TryStreamExt;

use super::compare::{Identities, refuse_beyond};
use super::stream::{Output, Source};
use super::tell::{ChangeType, CommitTold, internal};

/// Rows told at a time, when they are told in another order than they stand.
const ROWS_A_BATCH: usize = 4096;

/// Tells what the files hold.
pub(super) async fn tell_recorded(source: &Source, files: &[ChangedFile], commit: CommitTold, out: &Output) -> Result<()> {
    let paired = stand_paired(source, files).await?;
    let schema = with_change_type(&source.schema);
    let (mut held, mut all) = (0, Vec::new());
    for file in files {
        let mut rows = source.file_rows(file, &Rows::Live, &schema).await?;
        while let Some(batch) = rows.try_next().await? {
            if paired {
                let changes = change_types(&batch, source, commit)?;
                out.send(source.telling.mixed(&without_change_type(&batch)?, &changes, commit)?).await?;
                continue;
            }
            held += 2 * batch.get_array_memory_size() as u64;
            refuse_beyond(source, held, commit)?;
            all.push(batch);
        }
    }
    let Some(first) = all.first() else { return Ok(()) };
    let all = concat_batches(&first.schema(), &all).map_err(internal)?;
    let changes = change_types(&all, source, commit)?;
    let order = pair(&all, &changes)?;
    let rows = without_change_type(&all)?;
    for some in order.chunks(ROWS_A_BATCH) {
        let places: Vec<(usize, usize)> = some.iter().map(|row| (0, *row)).collect();
        let told = interleave_record_batch(&[&rows], &places).map_err(internal)?;
        let kinds: Vec<ChangeType> = some.iter().map(|row| changes[*row]).collect();
        out.send(source.telling.mixed(&told, &kinds, commit)?).await?;
    }
    Ok(())
}

/// Whether each preimage is right before its postimage already.
async fn stand_paired(source: &Source, files: &[ChangedFile]) -> Result<bool> {
    let names = ["_source", "_offset", CHANGE_TYPE];
    let whole = with_change_type(&source.schema);
    let fields: Vec<Arc<Field>> = whole.fields().iter().filter(|f| names.contains(&f.name().as_str())).cloned().collect();
    let few: SchemaRef = Arc::new(Schema::new(fields));
    // The identity of the preimage that waits for its postimage; within it: whether it has one.
    let mut waiting: Option<Option<(String, i64)>> = None;
    for file in files {
        let mut rows = source.file_rows(file, &Rows::Live, &few).await?;
        while let Some(batch) = rows.try_next().await? {
            let identities = Identities::of(&batch)?;
            let types = cast(column(&batch)?, &DataType::Utf8).map_err(internal)?;
            let types = types.as_string::<i32>();
            for row in 0..batch.num_rows() {
                let identity = identities.get(row).map(|(text, offset)| (text.to_owned(), offset));
                let is = if types.is_valid(row) { types.value(row) } else { "" };
                let post = is == ChangeType::UpdatePostimage.name();
                match waiting.take() {
                    Some(before) if !post || before != identity => return Ok(false),
                    None if post => return Ok(false),
                    _ => {}
                }
                if is == ChangeType::UpdatePreimage.name() {
                    waiting = Some(identity);
                }
            }
        }
    }
    Ok(waiting.is_none())
}

/// All rows, each preimage with its postimage behind it where it stands. Those without an identity are paired as they come.
fn pair(rows: &RecordBatch, changes: &[ChangeType]) -> Result<Vec<usize>> {
    let identities = Identities::of(rows)?;
    let mut postimages: HashMap<Option<(&str, i64)>, Vec<usize>> = HashMap::new();
    for row in (0..rows.num_rows()).rev().filter(|row| changes[*row] == ChangeType::UpdatePostimage) {
        postimages.entry(identities.get(row)).or_default().push(row);
    }
    let mut order = Vec::with_capacity(rows.num_rows());
    for (row, change) in changes.iter().enumerate() {
        match change {
            ChangeType::UpdatePostimage => {}
            ChangeType::UpdatePreimage => {
                order.push(row);
                order.extend(postimages.get_mut(&identities.get(row)).and_then(Vec::pop));
            }
            ChangeType::Insert | ChangeType::Delete => order.push(row),
        }
    }
    // Postimages of nothing come last: nothing is left out.
    let mut left: Vec<usize> = postimages.into_values().flatten().collect();
    left.sort_unstable();
    order.extend(left);
    Ok(order)
}

fn with_change_type(schema: &SchemaRef) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, true)));
    Arc::new(Schema::new(fields))
}

fn without_change_type(rows: &RecordBatch) -> Result<RecordBatch> {
    let kept: Vec<usize> = (0..rows.num_columns()).filter(|at| rows.schema().field(*at).name() != CHANGE_TYPE).collect();
    rows.project(&kept).map_err(internal)
}

fn column(rows: &RecordBatch) -> Result<&Arc<dyn Array>> {
    rows.column_by_name(CHANGE_TYPE).ok_or_else(|| Error::new(Kind::Internal, "telling changes: no column says what happened"))
}

fn change_types(rows: &RecordBatch, source: &Source, commit: CommitTold) -> Result<Vec<ChangeType>> {
    let types = cast(column(rows)?, &DataType::Utf8).map_err(internal)?;
    let known =
        [ChangeType::Insert, ChangeType::UpdatePreimage, ChangeType::UpdatePostimage, ChangeType::Delete].map(|c| (c.name(), c));
    let of = |text: Option<&str>| {
        let found = known.iter().find(|(name, _)| Some(*name) == text);
        found.map(|(_, change)| *change).ok_or_else(|| {
            Error::new(
                Kind::Corrupt,
                format!(
                    "changes of table {}: a change file of version {} says of a row what is no change",
                    source.table, commit.version
                ),
            )
            .hint("another program wrote it; begin with the table as it stands: --snapshot")
        })
    };
    types.as_string::<i32>().iter().map(of).collect()
}
