//! Large row groups, read a window of each column at a time.
//!
//! Place in the flow: Parquet's reader that waits takes its pages from here, on a thread where it may; windows are fetched on the
//! runtime beside it. Of each column the window that is read is held, and the next one is on its way, also the first of the next
//! row group. Invariant `bounded_memory`: together they take their part of the budget, but for pages that are larger than a window,
//! which are held whole.

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use bytes::{Bytes, BytesMut};
use object_store::ObjectStoreExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::file::DataFile;

/// Windows of a column: the one that is read, and the one on its way.
const WINDOWS_A_COLUMN: u64 = 2;
/// Less is not worth a request.
const MIN_WINDOW_BYTES: u64 = 16 << 10;

/// A file that is read in windows.
#[derive(Clone)]
pub(super) struct Windows(Arc<Inner>);

struct Inner {
    file: DataFile,
    runtime: Handle,
    /// By where they begin.
    chunks: Vec<Chunk>,
    columns: HashMap<usize, Mutex<Column>>,
    /// Row groups of which a byte was asked for: all below this one.
    begun: AtomicUsize,
    /// Why the store failed, which Parquet's errors do not carry.
    failed: Mutex<Option<object_store::Error>>,
}

/// The bytes of one column in one row group.
struct Chunk {
    range: Range<u64>,
    row_group: usize,
    leaf: usize,
    window_bytes: u64,
}

/// What is held of a column.
#[derive(Default)]
struct Column {
    at: u64,
    held: Bytes,
    next: Option<Fetch>,
}

/// Bytes on their way. Dropped, the request ends.
struct Fetch {
    at: u64,
    #[cfg(test)]
    bytes: u64,
    work: JoinSet<object_store::Result<Bytes>>,
}

impl Windows {
    /// Windows on the columns of `mask`, which hold about `bytes` together. To be made within a runtime, and read on a thread where
    /// waiting for it is allowed.
    ///
    /// # Errors
    /// For a footer that says what cannot be.
    pub(super) fn new(file: DataFile, metadata: &ParquetMetaData, mask: &ProjectionMask, bytes: u64) -> Result<Self> {
        let mut chunks = Vec::new();
        for (row_group, group) in metadata.row_groups().iter().enumerate() {
            let mut read = Vec::new();
            for (leaf, chunk) in group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf)) {
                let begin = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
                let (begin, length) = (u64::try_from(begin)?, u64::try_from(chunk.compressed_size())?);
                read.push((leaf, begin..begin.saturating_add(length)));
            }
            let stored: u64 = read.iter().map(|(_, range)| range.end - range.start).sum();
            chunks.extend(read.into_iter().map(|(leaf, range)| {
                let part = u128::from(range.end - range.start) * u128::from(bytes / WINDOWS_A_COLUMN) / u128::from(stored.max(1));
                let window_bytes = u64::try_from(part).unwrap_or(u64::MAX).max(MIN_WINDOW_BYTES);
                Chunk { range, row_group, leaf, window_bytes }
            }));
        }
        chunks.sort_by_key(|chunk| chunk.range.start);
        let columns = chunks.iter().map(|chunk| (chunk.leaf, Mutex::default())).collect();
        let inner =
            Inner { file, runtime: Handle::current(), chunks, columns, begun: AtomicUsize::new(0), failed: Mutex::default() };
        Ok(Self(Arc::new(inner)))
    }

    /// The next rows of a reader over these windows.
    ///
    /// # Errors
    /// What the store or Parquet says.
    pub(super) fn next_batch(&self, reader: &mut ParquetRecordBatchReader) -> Result<Option<RecordBatch>> {
        reader.next().transpose().map_err(|e| match locked(&self.0.failed).take() {
            Some(failed) => failed.into(),
            None => e.into(),
        })
    }
}

#[cfg(test)]
impl Windows {
    /// What is held, and on its way.
    pub(super) fn bytes(&self) -> u64 {
        let of = |column: &Mutex<Column>| {
            let column = locked(column);
            column.held.len() as u64 + column.next.as_ref().map_or(0, |next| next.bytes)
        };
        self.0.columns.values().map(of).sum()
    }
}

impl Inner {
    /// Bytes from `at` on, `least` of them or more.
    fn from(&self, at: u64, least: u64) -> Result<Bytes> {
        let after = self.chunks.partition_point(|chunk| chunk.range.start <= at);
        let found = after.checked_sub(1).and_then(|before| self.chunks.get(before));
        let found = found.filter(|chunk| at.saturating_add(least) <= chunk.range.end);
        let Some((chunk, column)) = found.and_then(|chunk| Some((chunk, self.columns.get(&chunk.leaf)?))) else {
            return Err(ParquetError::EOF(format!("{least} bytes at {at} are of no column")));
        };
        self.begin(chunk.row_group);
        let mut column = locked(column);
        if let Some(held) = column.held(at, least) {
            return Ok(held);
        }
        let kept = column.held(at, 1).unwrap_or_default();
        let from = at + kept.len() as u64;
        column.held = Bytes::new();
        let fetched = match column.next.take().filter(|next| next.at == from) {
            Some(next) => self.wait(next)?,
            None => Bytes::new(),
        };
        let there = from + fetched.len() as u64;
        let mut parts = vec![kept, fetched];
        if at + least > there {
            let end = (at + least).max(there + chunk.window_bytes).min(chunk.range.end);
            parts.push(self.wait(self.fetch(there..end))?);
        }
        column.at = at;
        column.held = joined(parts);
        let end = at + column.held.len() as u64;
        if end < chunk.range.end {
            column.next = Some(self.fetch(end..(end + chunk.window_bytes).min(chunk.range.end)));
        }
        column.held(at, least).ok_or_else(|| ParquetError::EOF(format!("the file ends before {}", at + least)))
    }

    /// Sends for the first windows of a row group, if that was not done.
    fn begin(&self, row_group: usize) {
        if self.begun.fetch_max(row_group + 1, Ordering::SeqCst) > row_group {
            return;
        }
        for chunk in self.chunks.iter().filter(|chunk| chunk.row_group == row_group) {
            let Some(mut column) = self.columns.get(&chunk.leaf).map(locked) else { continue };
            if column.next.is_none() {
                let end = (chunk.range.start + chunk.window_bytes).min(chunk.range.end);
                column.next = Some(self.fetch(chunk.range.start..end));
            }
        }
    }

    fn fetch(&self, range: Range<u64>) -> Fetch {
        let (at, file) = (range.start, self.file.clone());
        #[cfg(test)]
        let bytes = range.end - range.start;
        let mut work = JoinSet::new();
        work.spawn_on(async move { file.store.get_range(&file.path, range).await }, &self.runtime);
        Fetch {
            at,
            #[cfg(test)]
            bytes,
            work,
        }
    }

    fn wait(&self, mut fetch: Fetch) -> Result<Bytes> {
        let cut_short = || ParquetError::General("reading a window broke off".to_owned());
        match self.runtime.block_on(fetch.work.join_next()) {
            Some(Ok(Ok(bytes))) => Ok(bytes),
            Some(Ok(Err(e))) => {
                *locked(&self.failed) = Some(e);
                Err(cut_short())
            }
            Some(Err(_)) | None => Err(cut_short()),
        }
    }
}

impl Column {
    /// What is held from `at` on, if it is `least` bytes or more.
    fn held(&self, at: u64, least: u64) -> Option<Bytes> {
        let skipped = usize::try_from(at.checked_sub(self.at)?).ok()?;
        let rest = self.held.len().checked_sub(skipped)?;
        (rest as u64 >= least).then(|| self.held.slice(skipped..))
    }
}

/// One piece of several; without a copy where only one holds anything.
fn joined(parts: Vec<Bytes>) -> Bytes {
    let mut parts: Vec<Bytes> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if parts.len() <= 1 {
        return parts.pop().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all.freeze()
}

/// A panic leaves nothing half done here.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Length for Windows {
    fn len(&self) -> u64 {
        self.0.file.size
    }
}

impl ChunkReader for Windows {
    type T = WindowRead;

    fn get_read(&self, start: u64) -> Result<WindowRead> {
        Ok(WindowRead { of: self.clone(), at: start, some: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        Ok(self.0.from(start, length as u64)?.slice(..length))
    }
}

/// A column's bytes from some place on.
pub(super) struct WindowRead {
    of: Windows,
    at: u64,
    some: Bytes,
}

impl Read for WindowRead {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.some.is_empty() {
            self.some = self.of.0.from(self.at, 1).map_err(io::Error::other)?;
        }
        let taken = self.some.split_to(to.len().min(self.some.len()));
        to[..taken.len()].copy_from_slice(&taken);
        self.at += taken.len() as u64;
        Ok(taken.len())
    }
}
