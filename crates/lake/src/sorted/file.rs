//! A sorted file that is open to be read.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use object_store::path::Path;

use super::SortedKey;
use super::block::{self, Unpacker};
use super::filter::KeyHash;
use super::format::{BlockPlace, Tail, corrupt};
use super::plan::{Fetch, Fetches, NeededBlocks};
use super::scan::SortedScan;
use super::shut::ShutSortedFile;
use crate::store::Store;

/// Fetches of one look-up on their way at a time.
const FETCHES_IN_FLIGHT: usize = 8;

/// An open file: its index and filter are in memory, its entries are read as they are asked for. Cheap to clone.
#[derive(Clone)]
pub struct SortedFile {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) path: Path,
    pub(super) tail: Tail,
}

impl fmt::Debug for SortedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedFile").field("path", &self.inner.path).field("entries", &self.entries()).finish_non_exhaustive()
    }
}

impl SortedFile {
    /// Opens the file at `path`; `None` if there is none.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if it is damaged, [`Kind::Unsupported`] if a newer program wrote it, [`Kind::Unavailable`] if the store
    /// failed.
    pub async fn open(store: &Store, path: &Path) -> Result<Option<Self>> {
        match ShutSortedFile::find(store, path).await? {
            Some(shut) => shut.open().await,
            None => Ok(None),
        }
    }

    /// The note that was written with the file.
    #[must_use]
    pub fn meta(&self) -> &str {
        &self.inner.tail.meta
    }

    /// How many entries there are.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.inner.tail.entries
    }

    /// How many different keys there are.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.inner.tail.keys
    }

    /// The memory held by the open file, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let tail = &self.inner.tail;
        tail.filter.memory_bytes() + tail.blocks.capacity() * size_of::<BlockPlace>() + tail.meta.len()
    }

    /// Whether the file may have an entry of `key`, without reading anything: false only if it has none. Of the keys that are not
    /// there, about one in two hundred gets true.
    #[must_use]
    pub fn may_contain(&self, key: &SortedKey) -> bool {
        self.may_contain_hashed(key, KeyHash::of(key))
    }

    /// As [`Self::may_contain`], for who asks several files: with the key's hash.
    #[must_use]
    pub fn may_contain_hashed(&self, key: &SortedKey, hash: KeyHash) -> bool {
        self.inner.tail.filter.may_contain(key, hash)
    }

    /// Looks up `keys`, which ascend, in one pass: `visit` is told each value found with the position of its key in `keys`, keys in
    /// order and the values of one key in the order in which they were written.
    ///
    /// # Errors
    /// What `visit` returns; [`Kind::Internal`] if the keys do not ascend; [`Kind::Corrupt`] if a block is damaged;
    /// [`Kind::NotFound`] if the file has been deleted; [`Kind::Unavailable`] if the store failed.
    pub async fn get_many(&self, keys: &[SortedKey], visit: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        if !keys.is_sorted() {
            return Err(Inner::out_of_order(&self.inner.path));
        }
        self.inner.look_up(NeededBlocks::new(&self.inner.tail, keys), keys, visit).await
    }

    /// All entries, in order.
    #[must_use]
    pub fn scan(&self) -> SortedScan {
        SortedScan::new(self.clone(), 0)
    }

    /// All entries from a place on that is not behind the first entry of `from`, in order: a few entries of lesser keys come first.
    #[must_use]
    pub fn scan_from(&self, from: &SortedKey) -> SortedScan {
        let first_block = self.inner.tail.blocks.partition_point(|block| block.first < *from).saturating_sub(1);
        SortedScan::new(self.clone(), first_block)
    }
}

impl Inner {
    pub(super) fn gone(path: &Path) -> Error {
        Error::new(Kind::NotFound, format!("the sorted file {path} is gone"))
            .hint("another process replaced it with a newer one; run the command again")
    }

    pub(super) fn out_of_order(path: &Path) -> Error {
        Error::new(Kind::Internal, format!("keys looked up in {path} do not ascend"))
    }

    pub(super) async fn fetch(&self, bytes: Range<u64>) -> Result<Bytes> {
        self.store.range_of(&self.path, bytes).await?.ok_or_else(|| Self::gone(&self.path))
    }

    /// Tells `visit` what the blocks that are needed hold of `keys`, which ascend.
    pub(super) async fn look_up(
        &self,
        needed: NeededBlocks<'_>,
        keys: &[SortedKey],
        mut visit: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let fetches = Fetches { places: &self.tail.blocks, blocks: needed.peekable() };
        let mut fetched = stream::iter(fetches)
            .map(|fetch| async move { self.fetch(fetch.bytes.clone()).await.map(|bytes| (fetch, bytes)) })
            .buffered(FETCHES_IN_FLIGHT);
        let (mut unpacker, mut next_key) = (Unpacker::default(), 0);
        while let Some((fetch, bytes)) = fetched.next().await.transpose()? {
            for number in &fetch.blocks {
                let block = self.unpack(&mut unpacker, &fetch, &bytes, *number)?;
                next_key = self.join(block, keys, next_key, &mut visit)?;
            }
        }
        Ok(())
    }

    /// The block of that number, out of what was fetched.
    pub(super) fn unpack<'a>(&self, unpacker: &'a mut Unpacker, fetch: &Fetch, bytes: &[u8], number: usize) -> Result<&'a [u8]> {
        let path = self.path.as_ref();
        let cut_short = || corrupt(path, "it is shorter than its index says");
        let place = self.tail.blocks.get(number).ok_or_else(cut_short)?;
        let from =
            place.offset.checked_sub(fetch.bytes.start).and_then(|from| usize::try_from(from).ok()).ok_or_else(cut_short)?;
        let stored = bytes.get(from..).and_then(|rest| rest.get(..place.stored_bytes as usize)).ok_or_else(cut_short)?;
        unpacker.unpack(stored, place, path)
    }

    /// Tells `visit` what `block` holds of the keys from `next_key` on; returns the first key that a later block may hold.
    fn join(
        &self,
        block: &[u8],
        keys: &[SortedKey],
        mut next_key: usize,
        visit: &mut impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<usize> {
        let mut at = 0;
        while at < block.len() {
            let (key, value, next) =
                block::entry(block, at).ok_or_else(|| corrupt(self.path.as_ref(), "a block holds no entries"))?;
            at = next;
            while keys.get(next_key).is_some_and(|wanted| *wanted < key) {
                next_key += 1;
            }
            let mut same = next_key;
            match keys.get(next_key) {
                None => break,
                Some(wanted) if *wanted > key => continue,
                Some(_) => {}
            }
            while keys.get(same) == Some(&key) {
                visit(same, value)?;
                same += 1;
            }
        }
        Ok(next_key)
    }
}
