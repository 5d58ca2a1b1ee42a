//! A sorted file of which only the footer was read, and look-ups in it that keep nothing of its filter and index.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use xxhash_rust::xxh3::Xxh3;

use super::SortedKey;
use super::file::{Inner, SortedFile};
use super::filter::{Directory, KeyFilter, PassingFilter};
use super::format::{BlockPlace, Footer, PLACE_BYTES, Tail, corrupt, decode_place, not_an_index};
use super::plan::{FETCH_BYTES, NeededBlocks};
use crate::binary::FromFront;
use crate::blocking::in_place;
use crate::store::{Store, io_error};

/// So much of a file's end is read at first; that of a small file is all that is needed of it.
const END_BYTES: u64 = 64 << 10;
/// Pieces of a file's end that are on their way at a time, while one passes by.
const PIECES_AHEAD: usize = 2;
/// A piece that is read from a local disk: as much as stays in a core's cache.
const BYTES_FROM_DISK: u64 = 128 << 10;
/// Places of blocks that are decoded at a time.
const PLACES_AT_ONCE: usize = 1 << 10;

/// A sorted file that is there. Knows its footer; what else a look-up needs it reads each time. For few look-ups of few keys each: many
/// are quicker in an open [`SortedFile`]. Cheap to clone.
#[derive(Clone)]
pub struct ShutSortedFile {
    store: Store,
    path: Path,
    footer: Footer,
    /// The whole tail, if the end that was read has all of it.
    tail: Option<Bytes>,
}

impl fmt::Debug for ShutSortedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutSortedFile").field("path", &self.path).field("entries", &self.entries()).finish_non_exhaustive()
    }
}

impl ShutSortedFile {
    /// The file at `path`; `None` if there is none.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if its footer is damaged, [`Kind::Unsupported`] if a newer program wrote it, [`Kind::Unavailable`] if the store
    /// failed.
    pub async fn find(store: &Store, path: &Path) -> Result<Option<Self>> {
        let Some((size, end)) = store.end_of(path, END_BYTES).await? else { return Ok(None) };
        let footer = Footer::decode(&end, size, path.as_ref())?;
        let end_offset = size - end.len() as u64;
        let within = footer.tail_offset().checked_sub(end_offset).and_then(|within| usize::try_from(within).ok());
        let tail = within.map(|within| end.slice(within.min(end.len())..));
        Ok(Some(Self { store: store.clone(), path: path.clone(), footer, tail }))
    }

    /// The same as of a larger file.
    #[cfg(test)]
    pub(super) fn without_end(self) -> Self {
        Self { tail: None, ..self }
    }

    /// How many entries there are.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.footer.entries
    }

    /// The file, open; `None` if it is gone.
    ///
    /// # Errors
    /// As [`SortedFile::open`].
    pub async fn open(&self) -> Result<Option<SortedFile>> {
        let Self { store, path, footer, tail } = self;
        let tail = match tail {
            Some(tail) => Some(tail.clone()),
            None => store.range_of(path, footer.tail_offset()..footer.end_offset()).await?,
        };
        let Some(tail) = tail else { return Ok(None) };
        let tail = footer.decode_tail(&tail, path.as_ref())?;
        Ok(Some(SortedFile { inner: Arc::new(Inner { store: store.clone(), path: path.clone(), tail }) }))
    }

    /// As [`SortedFile::get_many`]. Filter and index pass by in pieces of 1 MiB.
    ///
    /// # Errors
    /// As [`SortedFile::get_many`]; [`Kind::Corrupt`] also if filter or index is damaged.
    pub async fn get_many(&self, keys: &[SortedKey], visit: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        if self.tail.is_some() {
            let open = self.open().await?.ok_or_else(|| Inner::gone(&self.path))?;
            return open.get_many(keys, visit).await;
        }
        if !keys.is_sorted() {
            return Err(Inner::out_of_order(&self.path));
        }
        let (found, blocks) = match self.store.file(&self.path) {
            // There is nothing to wait for, and no other thread to be asked for each piece.
            Some(file) => in_place(|| self.needed(Passing::on_disk(self, &file), keys).now_or_never())
                .ok_or_else(|| Error::new(Kind::Internal, format!("{} was waited for", self.path)))??,
            None => self.needed(Passing::new(self), keys).await?,
        };
        let Footer { entries, keys: different, last, .. } = self.footer;
        let tail = Tail { filter: KeyFilter::default(), blocks, meta: String::new(), entries, keys: different, last };
        let inner = Inner { store: self.store.clone(), path: self.path.clone(), tail };
        inner.look_up(NeededBlocks::among(&inner.tail.blocks, last, &found), keys, visit).await
    }

    /// Those of the keys that may be there, and the blocks that they may be in.
    async fn needed(&self, mut passing: Passing<'_>, keys: &[SortedKey]) -> Result<(Vec<SortedKey>, Vec<BlockPlace>)> {
        let (footer, path) = (&self.footer, self.path.as_ref());
        let not_a_filter = || corrupt(path, "its filter is not as filters are");
        let count = FromFront(&passing.exactly(footer.filter_bytes.min(4)).await?).u32().ok_or_else(not_a_filter)? as usize;
        let directory_bytes =
            Directory::bytes(count).filter(|bytes| *bytes <= footer.filter_bytes - 4).ok_or_else(not_a_filter)?;
        let stored = passing.exactly(directory_bytes).await?;
        let groups_bytes = footer.filter_bytes - 4 - directory_bytes;
        let directory = Directory::decode(&mut FromFront(&stored), count)
            .filter(|directory| directory.groups_bytes() == Some(groups_bytes))
            .ok_or_else(not_a_filter)?;
        let (mut filter, mut left) = (PassingFilter::new(&directory, keys), groups_bytes);
        while left > 0 {
            let bytes = passing.some(left).await?;
            filter.pass(&bytes);
            left -= bytes.len();
        }
        let found = filter.finish();
        let mut places = PassingPlaces::new(&found);
        let mut left = footer.index_bytes;
        while left > 0 {
            let stored = passing.exactly(left.min(PLACES_AT_ONCE * PLACE_BYTES)).await?;
            left -= stored.len();
            places.pass(&stored).ok_or_else(|| not_an_index(path))?;
        }
        let blocks = places.finish(footer).ok_or_else(|| not_an_index(path))?;
        let _note = passing.exactly(footer.meta_bytes).await?;
        passing.finish()?;
        Ok((found, blocks))
    }
}

/// What stands between a file's blocks and its footer, piece by piece.
struct Passing<'a> {
    file: &'a ShutSortedFile,
    pieces: BoxStream<'a, Result<Option<Bytes>>>,
    /// What has not passed of the last piece.
    rest: Bytes,
    hash: Xxh3,
}

impl<'a> Passing<'a> {
    fn new(file: &'a ShutSortedFile) -> Self {
        let (from, to) = (file.footer.tail_offset(), file.footer.sections_end());
        let starts = (from..to).step_by(FETCH_BYTES as usize);
        let pieces = starts.map(move |start| file.store.range_of(&file.path, start..to.min(start + FETCH_BYTES)));
        Self { file, pieces: stream::iter(pieces).buffered(PIECES_AHEAD).boxed(), rest: Bytes::new(), hash: Xxh3::new() }
    }

    /// The same of a file of a local disk, read when it is asked for.
    fn on_disk(file: &'a ShutSortedFile, disk_file: &'a File) -> Self {
        let (from, to) = (file.footer.tail_offset(), file.footer.sections_end());
        let read = move |start: u64| {
            let length = (to - start).min(BYTES_FROM_DISK);
            let mut bytes = Vec::with_capacity(length as usize);
            let (mut at, place) = (disk_file, SeekFrom::Start(start));
            let read = at.seek(place).and_then(|_| at.take(length).read_to_end(&mut bytes));
            read.map(|_| Some(bytes.into())).map_err(|e| io_error(e, "reading", file.path.as_ref()))
        };
        let pieces = (from..to).step_by(BYTES_FROM_DISK as usize).map(read);
        Self { file, pieces: stream::iter(pieces).boxed(), rest: Bytes::new(), hash: Xxh3::new() }
    }

    /// The next bytes: so many at most, and one at least.
    async fn some(&mut self, most: usize) -> Result<Bytes> {
        while self.rest.is_empty() {
            let piece = self.pieces.next().await.transpose()?;
            let cut_short = || corrupt(self.file.path.as_ref(), "it is shorter than its footer says");
            let piece = piece.ok_or_else(cut_short)?.ok_or_else(|| Inner::gone(&self.file.path))?;
            self.rest = Some(piece).filter(|piece| !piece.is_empty()).ok_or_else(cut_short)?;
            self.hash.update(&self.rest);
        }
        Ok(self.rest.split_to(most.min(self.rest.len())))
    }

    /// The next bytes, so many.
    async fn exactly(&mut self, length: usize) -> Result<Bytes> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        let first = self.some(length).await?;
        if first.len() == length {
            return Ok(first);
        }
        let mut bytes = first.to_vec();
        while bytes.len() < length {
            bytes.extend_from_slice(&self.some(length - bytes.len()).await?);
        }
        Ok(bytes.into())
    }

    /// Looks whether all was as it was written.
    fn finish(self) -> Result<()> {
        if self.rest.is_empty() && self.hash.digest() == self.file.footer.sections {
            return Ok(());
        }
        Err(corrupt(self.file.path.as_ref(), "the checksum of its index is wrong"))
    }
}

/// Keeps the blocks that some keys, in their order, may be in.
struct PassingPlaces<'a> {
    keys: &'a [SortedKey],
    /// The block that passed last: where it ends, the next tells.
    last: Option<BlockPlace>,
    kept: Vec<BlockPlace>,
}

impl<'a> PassingPlaces<'a> {
    const fn new(keys: &'a [SortedKey]) -> Self {
        Self { keys, last: None, kept: Vec::new() }
    }

    /// Places as they are stored; `None` if they are none.
    fn pass(&mut self, stored: &[u8]) -> Option<()> {
        let mut bytes = FromFront(stored);
        while !bytes.0.is_empty() {
            let place = decode_place(&mut bytes, self.last.as_ref().map_or(0, BlockPlace::end))?;
            if let Some(before) = self.last.replace(place) {
                if before.first > place.first {
                    return None;
                }
                self.keep(before, Some(place.first));
            }
        }
        Some(())
    }

    /// Keeps a block, whose last key is not behind `next`, if any of the keys may be in it.
    fn keep(&mut self, block: BlockPlace, next: Option<SortedKey>) {
        let before = self.keys.iter().take_while(|key| **key < block.first).count();
        self.keys = &self.keys[before..];
        if self.keys.first().is_some_and(|key| next.is_none_or(|next| *key <= next)) {
            self.kept.push(block);
        }
    }

    fn finish(mut self, footer: &Footer) -> Option<Vec<BlockPlace>> {
        if let Some(last) = self.last {
            self.keep(last, None);
        }
        let ends = self.last.as_ref().map_or(0, BlockPlace::end) == footer.body_bytes;
        (ends && self.last.is_none_or(|last| last.first <= footer.last)).then_some(self.kept)
    }
}
