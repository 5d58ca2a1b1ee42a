//! Cuts record batches of a columnar reader into chunks.

use alluvium_core::FileCursor;
use arrow::array::RecordBatch;

use super::input::{FileFault, ReadFault};
use super::{Batch, Chunk, Content};

/// The most rows that are decoded at once.
pub(super) const MAX_BATCH_ROWS: u64 = 8192;

/// Records of one columnar file, one after another.
pub(super) struct Batches<R> {
    reader: R,
    held: Option<Batch>,
    pub(super) cursor: FileCursor,
}

/// Reads a columnar file.
pub(super) trait ReadBatches {
    /// The next rows, at most about `rows`; `None` at the end of the file.
    fn next_batch(&mut self, rows: u64) -> Result<Option<Batch>, ReadFault>;

    /// How many bytes a row has, about.
    fn row_bytes(&self) -> u64;
}

impl<R: ReadBatches> Batches<R> {
    pub(super) const fn new(reader: R, cursor: FileCursor) -> Self {
        Self { reader, held: None, cursor }
    }

    pub(super) fn next_chunk(&mut self, max_records: u64, max_bytes: u64) -> Result<Option<Chunk>, FileFault> {
        let rows = (max_bytes / self.reader.row_bytes().max(1)).clamp(1, MAX_BATCH_ROWS).min(max_records.max(1));
        let batch = match self.held.take() {
            Some(batch) => batch,
            None => match self.reader.next_batch(rows).map_err(|fault| fault.at(self.cursor.record))? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let batch = if batch.rows.num_rows() > rows {
            let (front, back) = batch.split(rows);
            self.held = Some(back);
            front
        } else {
            batch
        };
        let records = batch.rows.num_rows() as u64;
        let first = self.cursor.record;
        self.cursor.record += records;
        Ok(Some(Chunk::new(first, records, Content::Batch(batch))))
    }
}

impl Batch {
    pub(super) const fn new(rows: RecordBatch) -> Self {
        Self { rows, too_fine: Vec::new() }
    }

    /// The first `rows` rows and the rest.
    pub(super) fn split(self, rows: usize) -> (Self, Self) {
        let length = self.rows.num_rows();
        let (front, back): (Vec<_>, Vec<_>) = self.too_fine.into_iter().partition(|(row, _)| *row < rows);
        let back = back.into_iter().map(|(row, column)| (row - rows, column)).collect();
        (
            Self { rows: self.rows.slice(0, rows), too_fine: front },
            Self { rows: self.rows.slice(rows, length - rows), too_fine: back },
        )
    }
}
