//! A sorted file of which only the footer was read, and look-ups in it that keep nothing of its filter and index.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use alluvium_core::Result;
use bytes::Bytes;
use object_store::path::Path;

use super::SortedKey;
use super::file::{Inner, SortedFile};
use super::filter::KeyFilter;
use super::format::{Footer, Tail, not_an_index};
use super::plan::NeededBlocks;
use crate::store::Store;

/// So much of a file's end is read at first; that of a small file is all that is needed of it.
const END_BYTES: u64 = 32 << 10;

/// A sorted file that is there. Knows its footer; what else a look-up needs it reads each time: of the filter only the parts that tell of
/// its keys. For few look-ups of few keys each: many are quicker in an open [`SortedFile`]. Cheap to clone.
#[derive(Clone)]
pub struct ShutSortedFile {
    store: Store,
    path: Path,
    footer: Footer,
    /// What stands from the groups of the filter to the end, if the end that was read has all of it.
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
    /// [`alluvium_core::Kind::Corrupt`] if its footer is damaged, [`alluvium_core::Kind::Unsupported`] if a newer program wrote it,
    /// [`alluvium_core::Kind::Unavailable`] if the store failed.
    pub async fn find(store: &Store, path: &Path) -> Result<Option<Self>> {
        let Some((size, end)) = store.end_of(path, END_BYTES).await? else { return Ok(None) };
        let footer = Footer::decode(&end, size, path.as_ref())?;
        let end_offset = size - end.len() as u64;
        let within = footer.groups_offset().checked_sub(end_offset).and_then(|within| usize::try_from(within).ok());
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
            None => store.range_of(path, footer.groups_offset()..footer.end_offset()).await?,
        };
        let Some(tail) = tail else { return Ok(None) };
        let tail = footer.decode_tail(&tail, path.as_ref())?;
        Ok(Some(SortedFile { inner: Arc::new(Inner { store: store.clone(), path: path.clone(), tail }) }))
    }

    /// As [`SortedFile::get_many`], of a few keys.
    ///
    /// # Errors
    /// As [`SortedFile::get_many`]; [`alluvium_core::Kind::Corrupt`] also if filter or index is damaged.
    pub async fn get_many(&self, keys: &[SortedKey], visit: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let Self { store, path, footer, tail } = self;
        let gone = || Inner::gone(path);
        if tail.is_some() {
            return self.open().await?.ok_or_else(gone)?.get_many(keys, visit).await;
        }
        if !keys.is_sorted() {
            return Err(Inner::out_of_order(path));
        }
        let tail = store.range_of(path, footer.tail_offset()..footer.end_offset()).await?.ok_or_else(gone)?;
        let (directory, index) = footer.decode_directory(&tail, path.as_ref())?;
        let asked = directory.asked(keys);
        let at = |range: Range<usize>| footer.groups_offset() + range.start as u64..footer.groups_offset() + range.end as u64;
        let ranges: Vec<Range<u64>> = asked.ranges(footer.groups_bytes).map(at).collect();
        let parts = store.ranges_of(path, &ranges).await?.ok_or_else(gone)?;
        let found = asked.found(&directory, &parts, path.as_ref())?;
        let mut rest = found.as_slice();
        let blocks = footer.decode_index(index, |block, next| {
            rest = &rest[rest.iter().take_while(|key| **key < block.first).count()..];
            rest.first().is_some_and(|key| next.is_none_or(|next| *key <= next))
        });
        let blocks = blocks.ok_or_else(|| not_an_index(path.as_ref()))?;
        let Footer { entries, keys: different, last, .. } = *footer;
        let tail = Tail { filter: KeyFilter::default(), blocks, meta: String::new(), entries, keys: different, last };
        let inner = Inner { store: store.clone(), path: path.clone(), tail };
        inner.look_up(NeededBlocks::among(&inner.tail.blocks, last, &found), keys, visit).await
    }
}
