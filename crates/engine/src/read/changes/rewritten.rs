//! What a commit of our own changed in a file that it rewrote: the rows at the positions it kept, from the old and the new files.
//!
//! Both are read in the order of rows, which a rewrite keeps, so nothing is compared and memory is bounded by the batches.

use std::collections::VecDeque;

use alluvium_core::{Error, Kind, Result};
use alluvium_lake::{ChangedFile, RowStream, Rows};
use arrow::array::RecordBatch;
use arrow::compute::{concat_batches, interleave_record_batch};
use futures::TryStreamExt;

use super::stream::{Output, Source};
use super::tell::{ChangeType, CommitTold, internal};

/// A file that was rewritten, and what stands in its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rewritten {
    pub(super) old: ChangedFile,
    pub(super) new: Vec<ChangedFile>,
    pub(super) updated: Vec<u64>,
    /// Where the updated rows stand in the new files, counted through.
    pub(super) now: Vec<u64>,
    pub(super) deleted: Vec<u64>,
}

/// Tells the rows that changed and went.
pub(super) async fn tell_rewritten(source: &Source, file: &Rewritten, commit: CommitTold, out: &Output) -> Result<()> {
    let mut all: Vec<(u64, bool)> =
        file.updated.iter().map(|p| (*p, true)).chain(file.deleted.iter().map(|p| (*p, false))).collect();
    all.sort_unstable();
    let positions = all.iter().map(|(position, _)| *position).collect();
    let mut before = source.file_rows(&file.old, &Rows::At(positions), &source.schema).await?;
    let mut after = After { source, files: per_file(file)?.into(), rows: None, held: VecDeque::new(), held_rows: 0 };
    let mut told = 0;
    while let Some(batch) = before.try_next().await? {
        let kinds = all.get(told..told + batch.num_rows()).ok_or_else(does_not_fit)?;
        told += batch.num_rows();
        let updated = kinds.iter().filter(|(_, updated)| *updated).count();
        let now = after.take(updated).await?;
        let (mut places, mut changes, mut next) = (Vec::new(), Vec::new(), 0);
        for (row, (_, updated)) in kinds.iter().enumerate() {
            places.push((0, row));
            if *updated {
                changes.push(ChangeType::UpdatePreimage);
                places.push((1, next));
                changes.push(ChangeType::UpdatePostimage);
                next += 1;
            } else {
                changes.push(ChangeType::Delete);
            }
        }
        let rows = interleave_record_batch(&[&batch, now.as_ref().unwrap_or(&batch)], &places).map_err(internal)?;
        out.send(source.telling.mixed(&rows, &changes, commit)?).await?;
    }
    if told == all.len() { Ok(()) } else { Err(does_not_fit()) }
}

/// The new files with the positions in each.
fn per_file(file: &Rewritten) -> Result<Vec<(ChangedFile, Vec<u64>)>> {
    let (mut first, mut now, mut all) = (0, file.now.as_slice(), Vec::new());
    for new in &file.new {
        let rows = new.rows.ok_or_else(does_not_fit)?;
        let (here, rest) = now.split_at(now.partition_point(|position| *position < first + rows));
        all.push((new.clone(), here.iter().map(|position| position - first).collect()));
        (first, now) = (first + rows, rest);
    }
    if now.is_empty() && file.now.len() == file.updated.len() { Ok(all) } else { Err(does_not_fit()) }
}

fn does_not_fit() -> Error {
    Error::new(Kind::Corrupt, "telling changes: the positions of changed rows do not fit the files")
        .hint("_alluvium/rewrites or a data file was changed by something else; begin with the table as it stands: --snapshot")
}

/// The updated rows as they are now.
struct After<'s> {
    source: &'s Source,
    files: VecDeque<(ChangedFile, Vec<u64>)>,
    rows: Option<RowStream>,
    held: VecDeque<RecordBatch>,
    held_rows: usize,
}

impl After<'_> {
    /// The next rows, exactly so many; `None` for none.
    async fn take(&mut self, rows: usize) -> Result<Option<RecordBatch>> {
        if rows == 0 {
            return Ok(None);
        }
        while self.held_rows < rows {
            let batch = self.next().await?.ok_or_else(does_not_fit)?;
            self.held_rows += batch.num_rows();
            self.held.push_back(batch);
        }
        let (mut some, mut missing) = (Vec::new(), rows);
        while missing > 0 {
            let Some(batch) = self.held.pop_front() else { return Err(does_not_fit()) };
            let taken = missing.min(batch.num_rows());
            if taken < batch.num_rows() {
                self.held.push_front(batch.slice(taken, batch.num_rows() - taken));
            }
            some.push(batch.slice(0, taken));
            missing -= taken;
        }
        self.held_rows -= rows;
        let Some(first) = some.first() else { return Err(does_not_fit()) };
        concat_batches(&first.schema(), &some).map_err(internal).map(Some)
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = &mut self.rows
                && let Some(batch) = rows.try_next().await?
            {
                return Ok(Some(batch));
            }
            let Some((file, positions)) = self.files.pop_front() else { return Ok(None) };
            self.rows = if positions.is_empty() {
                None
            } else {
                Some(self.source.file_rows(&file, &Rows::At(positions), &self.source.schema).await?)
            };
        }
    }
}
