//! Reads all entries of a sorted file in order.

use alluvium_core::Result;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};

use super::SortedKey;
use super::block::{self, Unpacker};
use super::file::SortedFile;
use super::format::corrupt;
use super::plan::{Fetch, Fetches};

/// Fetches that a scan has on their way, or ready, at a time.
const FETCHES_AHEAD: usize = 2;

/// A scan of a sorted file. Holds three fetches of about 1 MiB and one block at the most.
pub struct SortedScan {
    file: SortedFile,
    fetched: BoxStream<'static, Result<(Fetch, Bytes)>>,
    /// What was fetched last, and how many of its blocks were read.
    current: Option<(Fetch, Bytes)>,
    read: usize,
    unpacker: Unpacker,
    /// Where the entry after the current one begins in the block.
    next: usize,
    key: SortedKey,
    value: std::ops::Range<usize>,
}

impl SortedScan {
    /// From the block with this number on.
    pub(super) fn new(file: SortedFile, first_block: usize) -> Self {
        let all = file.clone();
        let mut at = first_block;
        let fetches = std::iter::from_fn(move || {
            let places = &all.inner.tail.blocks;
            let fetch = Fetches { places, blocks: (at..places.len()).peekable() }.next()?;
            at += fetch.blocks.len();
            Some((all.clone(), fetch))
        });
        let fetched = stream::iter(fetches)
            .map(|(file, fetch)| async move { file.inner.fetch(fetch.bytes.clone()).await.map(|bytes| (fetch, bytes)) })
            .buffered(FETCHES_AHEAD)
            .boxed();
        Self { file, fetched, current: None, read: 0, unpacker: Unpacker::default(), next: 0, key: SortedKey::LEAST, value: 0..0 }
    }

    /// Moves on to the next entry; at first to the first one. False at the end.
    ///
    /// # Errors
    /// As [`SortedFile::get_many`].
    ///
    /// # Cancel safety
    /// Cancelled, it may be called again.
    pub async fn advance(&mut self) -> Result<bool> {
        while self.next >= self.unpacker.block().len() {
            if !self.next_block().await? {
                return Ok(false);
            }
        }
        let (key, value, next) = block::entry(self.unpacker.block(), self.next)
            .ok_or_else(|| corrupt(self.file.inner.path.as_ref(), "a block holds no entries"))?;
        self.value = next - value.len()..next;
        (self.key, self.next) = (key, next);
        Ok(true)
    }

    async fn next_block(&mut self) -> Result<bool> {
        while self.current.as_ref().is_none_or(|(fetch, _)| self.read == fetch.blocks.len()) {
            match self.fetched.next().await.transpose()? {
                Some(fetched) => (self.current, self.read) = (Some(fetched), 0),
                None => return Ok(false),
            }
        }
        if let Some((fetch, bytes)) = &self.current
            && let Some(number) = fetch.blocks.get(self.read)
        {
            self.file.inner.unpack(&mut self.unpacker, fetch, bytes, *number)?;
        }
        self.next = 0;
        self.read += 1;
        Ok(true)
    }

    /// The key of the current entry.
    #[must_use]
    pub const fn key(&self) -> SortedKey {
        self.key
    }

    /// The value of the current entry.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.unpacker.block().get(self.value.clone()).unwrap_or_default()
    }
}
