//! The bytes of a data file, read in few requests.
//!
//! Place in the flow: everything below `splice` that needs bytes asks [`Source::fetch`] for ranges, and hands what it gets to
//! Parquet's readers. Invariant: a small file is read whole, once; of others only what is asked for is in memory. What is copied on a
//! local disk is not asked for.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_core::{Error, Kind, Result};
use bytes::{Buf, Bytes};
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::errors::ParquetError;
use parquet::file::FOOTER_SIZE;
use parquet::file::metadata::FooterTail;
use parquet::file::reader::{ChunkReader, Length};

use crate::log::{ChangedFile, DeltaLog};
use crate::rows::{damaged, unreadable};

/// Files up to this size are read whole: one request costs more than the bytes that are not needed.
pub(super) const WHOLE_FILE_BYTES: u64 = 4 << 20;
/// The same on a local disk, where what is copied need not be read.
const WHOLE_FILE_BYTES_ON_DISK: u64 = 1 << 20;
/// So much of a larger file's end is read at once, in the hope that the footer and the page indexes are in it.
const TAIL_BYTES: u64 = 128 << 10;

/// A data file in the store, and what of it is in memory.
#[derive(Debug)]
pub(super) struct Source {
    store: Arc<dyn ObjectStore>,
    file: ChangedFile,
    size: u64,
    held: Fetched,
    /// Where parts of it can be copied from without being read: a file of a local disk of which not all is in memory.
    on_disk: Option<Arc<File>>,
    read: AtomicU64,
}

impl Source {
    /// Reads the file's end, or all of a file of at most `whole_file_bytes`.
    pub(super) async fn open(log: &DeltaLog, file: &ChangedFile, whole_file_bytes: u64) -> Result<Self> {
        let store = log.store().object_store();
        let whole_file_bytes =
            if log.store().is_local_disk() { whole_file_bytes.min(WHOLE_FILE_BYTES_ON_DISK) } else { whole_file_bytes };
        let unreadable = |e: object_store::Error| unreadable(file, e.into());
        let size_there = async || store.head(&file.path).await.map(|there| there.size).map_err(unreadable);
        let end_of = async |size: u64| {
            let start = if size <= whole_file_bytes { 0 } else { size - TAIL_BYTES.min(whole_file_bytes) };
            let range = start..size;
            let ranges = if size == 0 { &[] } else { std::slice::from_ref(&range) };
            store.get_ranges(&file.path, ranges).await.map(|mut read| (start, read.pop().unwrap_or_default()))
        };
        let size = match file.size {
            Some(size) => size,
            None => size_there().await?,
        };
        let (start, bytes) = match end_of(size).await {
            Ok(read) => read,
            // The log may be wrong about the size.
            Err(e) => match size_there().await? {
                there if there == size => return Err(unreadable(e)),
                there => end_of(there).await.map_err(unreadable)?,
            },
        };
        let (read, size) = (AtomicU64::new(bytes.len() as u64), start + bytes.len() as u64);
        let on_disk = if start > 0 { log.store().file(&file.path).map(Arc::new) } else { None };
        Ok(Self { store, file: file.clone(), size, held: Fetched { parts: vec![(start, bytes)], size }, on_disk, read })
    }

    /// What the file is called in errors.
    pub(super) const fn file(&self) -> &ChangedFile {
        &self.file
    }

    /// The file to copy parts of; `None` where they must be read.
    pub(super) const fn on_disk(&self) -> Option<&Arc<File>> {
        self.on_disk.as_ref()
    }

    /// The bytes read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The footer's bytes, and where they begin.
    pub(super) async fn footer(&self) -> Result<(u64, Bytes)> {
        let not_parquet = || damaged(&self.file).hint("it does not end as a Parquet file does");
        let tail = self.size.checked_sub(FOOTER_SIZE as u64).ok_or_else(not_parquet)?;
        let end = self.held.get_bytes(tail, FOOTER_SIZE).map_err(|e| unreadable(&self.file, e))?;
        let end: [u8; FOOTER_SIZE] = end.as_ref().try_into().map_err(|_| not_parquet())?;
        let end = FooterTail::try_new(&end).map_err(|e| not_parquet().source(e))?;
        if end.is_encrypted_footer() {
            return Err(Error::new(Kind::Unsupported, format!("the data file {} is encrypted", self.file.path)));
        }
        let start = tail.checked_sub(end.metadata_length() as u64).ok_or_else(not_parquet)?;
        let fetched = self.fetch(std::slice::from_ref(&(start..tail))).await?;
        Ok((start, fetched.get_bytes(start, end.metadata_length()).map_err(|e| unreadable(&self.file, e))?))
    }

    /// The bytes of `ranges`, near ones read together.
    pub(super) async fn fetch(&self, ranges: &[Range<u64>]) -> Result<Fetched> {
        if ranges.iter().all(|r| self.held.part(r.start, r.end.saturating_sub(r.start)).is_some()) {
            return Ok(self.held.clone());
        }
        if ranges.iter().any(|r| r.end > self.size) {
            return Err(damaged(&self.file).hint("it is shorter than its own footer or the log says"));
        }
        let mut ranges: Vec<Range<u64>> = ranges.iter().filter(|r| !r.is_empty()).cloned().collect();
        ranges.sort_unstable_by_key(|r| (r.start, r.end));
        ranges.dedup_by(|next, last| {
            let joined = next.start <= last.end;
            if joined {
                last.end = last.end.max(next.end);
            }
            joined
        });
        let fetched = self.store.get_ranges(&self.file.path, &ranges).await.map_err(|e| unreadable(&self.file, e.into()))?;
        self.read.fetch_add(fetched.iter().map(|f| f.len() as u64).sum(), Ordering::Relaxed);
        let parts = ranges.iter().map(|r| r.start).zip(fetched).collect();
        Ok(Fetched { parts, size: self.size })
    }
}

/// Parts of a file, as if they were all of it.
#[derive(Debug, Clone)]
pub(super) struct Fetched {
    /// Where each begins, and its bytes; ascending, apart.
    parts: Vec<(u64, Bytes)>,
    size: u64,
}

impl Fetched {
    /// The part that holds `length` bytes from `start`, from `start` on.
    fn part(&self, start: u64, length: u64) -> Option<Bytes> {
        let (from, bytes) = &self.parts[self.parts.partition_point(|(from, _)| *from <= start).checked_sub(1)?];
        let skip = usize::try_from(start - from).ok()?;
        let length = usize::try_from(length).ok()?;
        (bytes.len().checked_sub(skip)? >= length).then(|| bytes.slice(skip..))
    }
}

impl Length for Fetched {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Fetched {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.part(start, 0).map(Buf::reader).ok_or_else(|| missing(start))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.part(start, length as u64).map(|part| part.slice(..length)).ok_or_else(|| missing(start))
    }
}

fn missing(start: u64) -> ParquetError {
    ParquetError::EOF(format!("no bytes at {start}"))
}
