//! Looking at data files: some at a time, as many as there is memory for.

use std::sync::Arc;

use alluvium_core::{Dataset, Error, Kind, Result};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::engine::Engine;

/// Files that are looked at at the same time, at most.
pub(crate) const FILES_AT_ONCE: usize = 6;

/// Bounds what files that are looked at, and those in their places that are on their way to the store, take of memory.
#[derive(Clone)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    all: u32,
    /// What a file takes of which the log does not say how large it is.
    file_bytes: u64,
}

impl Room {
    /// The bytes of a permit.
    const UNIT: u64 = 1 << 20;

    pub(crate) fn new(engine: &Engine, dataset: &Dataset) -> Self {
        let all = u32::try_from(engine.bytes_of_files_at_once() / Self::UNIT).unwrap_or(u32::MAX).clamp(1, 1 << 20);
        let file_bytes = dataset.layout.target_file_bytes;
        Self { free: Arc::new(Semaphore::new(all as usize)), all, file_bytes }
    }

    /// Looks at files of so many bytes, as far as the log says how many. With each comes its room, to be held as long as what was found is.
    pub(crate) fn looked<'f, T, F, I>(self, files: I) -> BoxStream<'f, Result<(T, OwnedSemaphorePermit)>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
        I: Iterator<Item = (Option<u64>, F)> + Send + 'f,
    {
        let looks = files.map(move |(bytes, look)| {
            let room = self.clone();
            async move {
                let held = room.of(bytes.unwrap_or(room.file_bytes)).await?;
                let looked =
                    tokio::spawn(look).await.map_err(|e| Error::new(Kind::Internal, "looking at a data file").source(e))?;
                looked.map(|looked| (looked, held))
            }
        });
        stream::iter(looks).buffer_unordered(FILES_AT_ONCE).boxed()
    }

    /// Room for a file of that size, once there is some; a file for which there never is enough has all of it.
    async fn of(&self, size: u64) -> Result<OwnedSemaphorePermit> {
        // Beside the new file, one column or two are decoded.
        let wanted = u32::try_from((size + size / 2) / Self::UNIT).unwrap_or(u32::MAX).clamp(1, self.all);
        let room = self.free.clone().acquire_many_owned(wanted).await;
        room.map_err(|e| Error::new(Kind::Internal, "waiting for memory").source(e))
    }
}
