//! What a commit changed that removes some files and adds others, found by comparing their rows as multisets.
//!
//! Three passes: rows on both sides cancel out by a 128-bit hash of the whole row; then those left over are picked from the removed
//! and from the added files. What is left over is paired by identity (`_source`, `_offset`): a pair is an update, the others are
//! deletes and inserts. Invariant: the hashes and the rows left over stay below the budget, or the commit is refused.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use alluvium_core::{Error, Kind, Result};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{cast, concat_batches, filter_record_batch, interleave_record_batch};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use futures::TryStreamExt;
use xxhash_rust::xxh3::xxh3_128;

use super::plan::Part;
use super::stream::{Output, Source};
use super::tell::{ChangeType, CommitTold, internal};

/// Bytes that a row's hash and its count take in the map, spare room included.
const BYTES_A_HASH: u64 = 64;
/// Rows told at a time.
const ROWS_A_BATCH: usize = 4096;

/// The order and the kind of the rows left over: which side (0 removed, 1 added), which row, what happened to it.
type Order = Vec<(usize, usize, ChangeType)>;

/// Tells the difference.
pub(super) async fn compare(source: &Source, gone: &[Part], came: &[Part], commit: CommitTold, out: &Output) -> Result<()> {
    check_size(source, gone.iter().chain(came), commit)?;
    let mut counts = Counts::new(&source.schema)?;
    for part in gone {
        let mut rows = source.rows(part).await?;
        while let Some(batch) = rows.try_next().await? {
            counts.add(&batch, 1)?;
            refuse_beyond(source, counts.bytes(), commit)?;
        }
    }
    for part in came {
        let mut rows = source.rows(part).await?;
        while let Some(batch) = rows.try_next().await? {
            counts.add(&batch, -1)?;
            refuse_beyond(source, counts.bytes(), commit)?;
        }
    }
    let mut held = counts.bytes();
    let before = left_over(source, gone, &mut counts, 1, &mut held, commit).await?;
    let after = left_over(source, came, &mut counts, -1, &mut held, commit).await?;
    drop(counts);
    let order = pair(&before, &after)?;
    for some in order.chunks(ROWS_A_BATCH) {
        let places: Vec<(usize, usize)> = some.iter().map(|(side, row, _)| (*side, *row)).collect();
        let rows = interleave_record_batch(&[&before, &after], &places).map_err(internal)?;
        let changes: Vec<ChangeType> = some.iter().map(|(_, _, change)| *change).collect();
        out.send(source.telling.mixed(&rows, &changes, commit)?).await?;
    }
    Ok(())
}

/// Refuses, before anything is read, what cannot fit by what the log says.
pub(super) fn check_size<'a>(source: &Source, parts: impl Iterator<Item = &'a Part>, commit: CommitTold) -> Result<()> {
    let most = parts.filter_map(|part| part.row_count).max().unwrap_or(0);
    refuse_beyond(source, most.saturating_mul(BYTES_A_HASH), commit)
}

pub(super) fn refuse_beyond(source: &Source, bytes: u64, commit: CommitTold) -> Result<()> {
    if bytes <= source.budget_bytes {
        return Ok(());
    }
    Err(Error::new(
        Kind::Unsupported,
        format!(
            "changes of table {}: version {} was rewritten by another program without a change data feed, and comparing its rows \
             takes more than the {} MiB that it may",
            source.table,
            commit.version,
            source.budget_bytes >> 20
        ),
    )
    .hint("give it more with --memory, or begin with the table as it stands: --snapshot"))
}

/// How often each row is in the removed files more than in the added ones.
struct Counts {
    converter: RowConverter,
    of: HashMap<u128, i64>,
}

impl Counts {
    fn new(schema: &SchemaRef) -> Result<Self> {
        let fields: Vec<SortField> = schema.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
        if !RowConverter::supports_fields(&fields) {
            return Err(Error::new(Kind::Unsupported, "changes: rows with such columns cannot be compared")
                .hint("begin with the table as it stands: --snapshot"));
        }
        Ok(Self { converter: RowConverter::new(fields).map_err(internal)?, of: HashMap::new() })
    }

    fn hashes(&mut self, rows: &RecordBatch) -> Result<Vec<u128>> {
        let rows = self.converter.convert_columns(rows.columns()).map_err(internal)?;
        Ok(rows.iter().map(|row| xxh3_128(row.as_ref())).collect())
    }

    fn add(&mut self, rows: &RecordBatch, by: i64) -> Result<()> {
        for hash in self.hashes(rows)? {
            match self.of.entry(hash) {
                Entry::Occupied(mut there) => {
                    *there.get_mut() += by;
                    if *there.get() == 0 {
                        there.remove();
                    }
                }
                Entry::Vacant(free) => {
                    free.insert(by);
                }
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        (self.of.len() as u64).saturating_mul(BYTES_A_HASH)
    }

    /// The rows that are left over on the side of `sign`; each is taken once.
    fn pick(&mut self, rows: &RecordBatch, sign: i64) -> Result<RecordBatch> {
        let mut mask = Vec::with_capacity(rows.num_rows());
        for hash in self.hashes(rows)? {
            let left = self.of.get_mut(&hash).filter(|count| **count * sign > 0);
            mask.push(left.is_some());
            if let Some(count) = left {
                *count -= sign;
            }
        }
        filter_record_batch(rows, &BooleanArray::from(mask)).map_err(internal)
    }
}

async fn left_over(
    source: &Source,
    parts: &[Part],
    counts: &mut Counts,
    sign: i64,
    held: &mut u64,
    commit: CommitTold,
) -> Result<RecordBatch> {
    let mut picked = Vec::new();
    for part in parts {
        let mut rows = source.rows(part).await?;
        while let Some(batch) = rows.try_next().await? {
            let some = counts.pick(&batch, sign)?;
            // Twice: the picked rows, and all of them in one piece.
            *held += 2 * some.get_array_memory_size() as u64;
            refuse_beyond(source, *held, commit)?;
            if some.num_rows() > 0 {
                picked.push(some);
            }
        }
    }
    let schema = picked.first().map_or_else(|| source.schema.clone(), RecordBatch::schema);
    concat_batches(&schema, &picked).map_err(internal)
}

/// Pairs rows of one identity: updates in the order of the removed rows, then deletes, then inserts.
fn pair(before: &RecordBatch, after: &RecordBatch) -> Result<Order> {
    let (was, is) = (Identities::of(before)?, Identities::of(after)?);
    let mut waiting: HashMap<(&str, i64), Vec<usize>> = HashMap::new();
    for row in (0..after.num_rows()).rev() {
        if let Some(identity) = is.get(row) {
            waiting.entry(identity).or_default().push(row);
        }
    }
    let (mut updates, mut deletes) = (Vec::new(), Vec::new());
    let mut paired = vec![false; after.num_rows()];
    for row in 0..before.num_rows() {
        match was.get(row).and_then(|identity| waiting.get_mut(&identity)).and_then(Vec::pop) {
            Some(now) => {
                paired[now] = true;
                updates.extend([(0, row, ChangeType::UpdatePreimage), (1, now, ChangeType::UpdatePostimage)]);
            }
            None => deletes.push((0, row, ChangeType::Delete)),
        }
    }
    let inserts = (0..after.num_rows()).filter(|row| !paired[*row]).map(|row| (1, row, ChangeType::Insert));
    Ok(updates.into_iter().chain(deletes).chain(inserts).collect())
}

/// Where rows came from, which no rewrite changes.
pub(super) struct Identities {
    source: Option<ArrayRef>,
    offset: Option<ArrayRef>,
}

impl Identities {
    pub(super) fn of(rows: &RecordBatch) -> Result<Self> {
        let column = |name: &str, data_type: DataType| -> Result<Option<ArrayRef>> {
            rows.column_by_name(name).map(|c| cast(c, &data_type).map_err(internal)).transpose()
        };
        Ok(Self { source: column("_source", DataType::Utf8)?, offset: column("_offset", DataType::Int64)? })
    }

    /// The identity of a row; rows that another program inserted have none.
    pub(super) fn get(&self, row: usize) -> Option<(&str, i64)> {
        let (source, offset) = (self.source.as_ref()?, self.offset.as_ref()?);
        let known = source.is_valid(row) && offset.is_valid(row);
        known.then(|| (source.as_string::<i32>().value(row), offset.as_primitive::<Int64Type>().value(row)))
    }
}

/// Rows of `columns`, by hand: for tests.
#[cfg(test)]
pub(super) fn batch_of(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<arrow::datatypes::Field> =
        columns.iter().map(|(name, c)| arrow::datatypes::Field::new(*name, c.data_type().clone(), true)).collect();
    let schema = std::sync::Arc::new(arrow::datatypes::Schema::new(fields));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, c)| c).collect()).expect("columns of one length")
}
