//! What a rewrite tells of rows in the table's change data feed, if it has one.

use alluvium_core::{AddedFile, Result};
use alluvium_lake::{Stager, blocking};
use arrow::array::RecordBatch;

/// What is staged for the table's change data feed: rows of many files together.
pub(super) struct Feed {
    pub(super) stager: Stager,
    images: Vec<RecordBatch>,
    bytes: u64,
    /// Staged when there are so many.
    most_bytes: u64,
}

impl Feed {
    pub(super) fn new(stager: Stager, most_bytes: u64) -> Self {
        Self { stager, images: Vec::new(), bytes: 0, most_bytes }
    }

    pub(super) async fn with(mut self, images: Vec<RecordBatch>) -> Result<Self> {
        self.bytes += images.iter().map(|rows| rows.get_array_memory_size() as u64).sum::<u64>();
        self.images.extend(images);
        if self.bytes >= self.most_bytes { self.staged().await } else { Ok(self) }
    }

    async fn staged(mut self) -> Result<Self> {
        (self.bytes, self.images) = match std::mem::take(&mut self.images) {
            images if images.is_empty() => return Ok(self),
            images => {
                let stager = self.stager;
                self.stager = blocking("encoding changes", move || stager.stage(images).map(|()| stager)).await?;
                (0, Vec::new())
            }
        };
        Ok(self)
    }

    pub(super) async fn finish(self) -> Result<Vec<AddedFile>> {
        Ok(self.staged().await?.stager.finish().await?.0.adds)
    }
}
