//! A file of an object store, read in bounded ranges: from its beginning to its end with some ranges on their way ahead, or here and
//! there, as Parquet is read.
//!
//! Every range must be of the content that was opened: an object that is replaced meanwhile is an error, never a mixture. Blocks its
//! thread: to be used from one that may.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use alluvium_core::{Error, Kind};
use alluvium_lake::store_error;
use bytes::{Buf, Bytes};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// What is read when a file is opened: small files need no second request.
pub(super) const FIRST_BYTES: u64 = 1 << 20;
/// What is read at once of a file that is read from its beginning to its end.
const RANGE_BYTES: u64 = 4 << 20;
/// Ranges that are on their way while one is worked on.
const RANGES_AHEAD: usize = 2;
/// What is kept of a file that is read here and there.
const WINDOWS_BYTES: u64 = 16 << 20;
/// The least that is read at once of such a file.
const MIN_WINDOW_BYTES: u64 = 64 << 10;
/// A read this near to the end takes all of the end: a Parquet file's description is there.
const TAIL_BYTES: u64 = 256 << 10;

/// An opened file of an object store.
pub struct RangedFile {
    source: Source,
    first: Bytes,
    windows: Mutex<Windows>,
}

#[derive(Clone)]
struct Source {
    store: Arc<dyn ObjectStore>,
    key: Path,
    size: u64,
    e_tag: Option<String>,
    runtime: Handle,
}

struct Windows {
    /// The last used comes last.
    kept: VecDeque<(u64, Bytes)>,
    window_bytes: u64,
}

impl fmt::Debug for RangedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangedFile").field("key", &self.source.key).field("size", &self.source.size).finish_non_exhaustive()
    }
}

impl RangedFile {
    /// The object of `meta`, whose first bytes are known.
    pub(super) fn new(store: Arc<dyn ObjectStore>, meta: ObjectMeta, first: Bytes) -> Self {
        let source = Source { store, key: meta.location, size: meta.size, e_tag: meta.e_tag, runtime: Handle::current() };
        Self { source, first, windows: Mutex::new(Windows { kept: VecDeque::new(), window_bytes: RANGE_BYTES }) }
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.source.size
    }

    /// Says that the file will be read in so many places at a time.
    pub fn expect_readers(&self, readers: usize) {
        let readers = u64::try_from(readers).unwrap_or(u64::MAX).max(1);
        self.windows().window_bytes = (WINDOWS_BYTES / readers).clamp(MIN_WINDOW_BYTES, RANGE_BYTES);
    }

    /// The bytes from `at` on, `length` of them or as many as there are.
    ///
    /// # Errors
    /// The store failed, or the object is not the one that was opened.
    pub fn read_at(&self, at: u64, length: usize) -> io::Result<Bytes> {
        let size = self.source.size;
        let wanted = at.min(size)..at.saturating_add(length as u64).min(size);
        if wanted.is_empty() {
            return Ok(Bytes::new());
        }
        if let Some(bytes) = slice(0, &self.first, &wanted) {
            return Ok(bytes);
        }
        let window_bytes = {
            let mut windows = self.windows();
            if let Some(bytes) = windows.get(&wanted) {
                return Ok(bytes);
            }
            windows.window_bytes
        };
        let start = if size - wanted.start < TAIL_BYTES { size.saturating_sub(TAIL_BYTES) } else { wanted.start };
        let end = wanted.end.max(start.saturating_add(window_bytes)).min(size);
        let bytes = self.source.runtime.block_on(self.source.clone().fetch(start..end))?;
        let found = slice(start, &bytes, &wanted).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        self.windows().keep(start, bytes);
        Ok(found)
    }

    fn windows(&self) -> std::sync::MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Windows {
    fn get(&mut self, wanted: &Range<u64>) -> Option<Bytes> {
        let at = self.kept.iter().position(|(start, bytes)| slice(*start, bytes, wanted).is_some())?;
        let (start, bytes) = self.kept.remove(at)?;
        let found = slice(start, &bytes, wanted);
        self.kept.push_back((start, bytes));
        found
    }

    fn keep(&mut self, start: u64, bytes: Bytes) {
        self.kept.push_back((start, bytes));
        let mut held: u64 = self.kept.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        while held > WINDOWS_BYTES
            && let Some((_, oldest)) = self.kept.pop_front()
        {
            held -= oldest.len() as u64;
        }
    }
}

/// The part of `bytes`, which begin at `start`, that is wanted; `None` if some of it is missing.
fn slice(start: u64, bytes: &Bytes, wanted: &Range<u64>) -> Option<Bytes> {
    let from = usize::try_from(wanted.start.checked_sub(start)?).ok()?;
    let to = usize::try_from(wanted.end.checked_sub(start)?).ok()?;
    (to <= bytes.len()).then(|| bytes.slice(from..to))
}

impl Source {
    async fn fetch(self, range: Range<u64>) -> io::Result<Bytes> {
        let length = range.end - range.start;
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let failed = |e| io::Error::other(store_error(e, "reading", self.key.as_ref()));
        let got = self.store.get_opts(&self.key, options).await.map_err(failed)?;
        if got.meta.size != self.size || got.meta.e_tag != self.e_tag {
            let changed = Error::new(Kind::Conflict, format!("{} was replaced while it was being read", self.key));
            return Err(io::Error::other(changed.hint("write files under new names")));
        }
        let bytes = got.bytes().await.map_err(failed)?;
        if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Reads a file from its beginning to its end.
pub struct RangedReader {
    file: RangedFile,
    /// The next byte to be given.
    at: u64,
    block: Bytes,
    /// What comes after the block.
    ahead: VecDeque<JoinHandle<io::Result<Bytes>>>,
    ahead_to: u64,
}

impl RangedReader {
    /// At the file's first byte.
    #[must_use]
    pub fn new(file: RangedFile) -> Self {
        let (block, ahead_to) = (file.first.clone(), file.first.len() as u64);
        Self { file, at: 0, block, ahead: VecDeque::new(), ahead_to }
    }

    /// Passes over so many bytes without reading them; whether there are as many.
    pub fn skip(&mut self, bytes: u64) -> bool {
        self.at = self.at.saturating_add(bytes);
        if bytes <= self.block.len() as u64 {
            self.block.advance(usize::try_from(bytes).unwrap_or(usize::MAX));
        } else {
            self.abandon();
            self.block = Bytes::new();
            self.ahead_to = self.at;
        }
        self.at <= self.file.size()
    }

    fn abandon(&mut self) {
        self.ahead.drain(..).for_each(|range| range.abort());
    }

    fn look_ahead(&mut self) {
        while self.ahead.len() < RANGES_AHEAD && self.ahead_to < self.file.size() {
            let range = self.ahead_to..self.file.size().min(self.ahead_to + RANGE_BYTES);
            self.ahead_to = range.end;
            let source = &self.file.source;
            self.ahead.push_back(source.runtime.spawn(source.clone().fetch(range)));
        }
    }
}

impl Read for RangedReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.block.is_empty() && !to.is_empty() {
            self.look_ahead();
            let Some(next) = self.ahead.pop_front() else { return Ok(0) };
            self.block = self.file.source.runtime.block_on(next).map_err(io::Error::other)??;
            self.look_ahead();
        }
        let count = self.block.len().min(to.len());
        to[..count].copy_from_slice(&self.block[..count]);
        self.block.advance(count);
        self.at += count as u64;
        Ok(count)
    }
}

impl Drop for RangedReader {
    fn drop(&mut self) {
        self.abandon();
    }
}
