//! Which blocks a look-up needs, and which bytes to fetch for them.
//!
//! Pure and lazy: a fetch is planned when it is asked for, so a look-up of any number of keys holds a few fetches only.

use std::iter::Peekable;
use std::ops::Range;

use super::SortedKey;
use super::filter::{KeyFilter, KeyHash};
use super::format::{BlockPlace, Tail};

/// Blocks this far apart are fetched with what lies between them.
const GAP_BYTES: u64 = 32 << 10;
/// A fetch of several blocks is no longer than this.
pub(super) const FETCH_BYTES: u64 = 1 << 20;

/// Bytes to fetch at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) bytes: Range<u64>,
    /// The blocks wanted of it, ascending.
    pub(super) blocks: Vec<usize>,
}

/// The fetches for `blocks`, which ascend.
pub(super) struct Fetches<'a, I: Iterator<Item = usize>> {
    pub(super) places: &'a [BlockPlace],
    pub(super) blocks: Peekable<I>,
}

impl<I: Iterator<Item = usize>> Iterator for Fetches<'_, I> {
    type Item = Fetch;

    fn next(&mut self) -> Option<Fetch> {
        let first = self.blocks.next()?;
        let place = self.places.get(first)?;
        let mut fetch = Fetch { bytes: place.offset..place.end(), blocks: vec![first] };
        while let Some(place) = self.blocks.peek().and_then(|next| self.places.get(*next)) {
            if place.offset - fetch.bytes.end > GAP_BYTES || place.end() - fetch.bytes.start > FETCH_BYTES {
                break;
            }
            fetch.bytes.end = place.end();
            fetch.blocks.extend(self.blocks.next());
        }
        Some(fetch)
    }
}

/// The blocks that may hold one of some keys, ascending, none twice.
pub(super) struct NeededBlocks<'a> {
    places: &'a [BlockPlace],
    last: SortedKey,
    /// What tells that a key is not there; without it all may be.
    filter: Option<&'a KeyFilter>,
    keys: &'a [SortedKey],
    /// The first block that was not given yet.
    next: usize,
    /// The last block that the key before the rest may be in.
    through: Option<usize>,
}

impl<'a> NeededBlocks<'a> {
    /// Of `keys`, which ascend.
    pub(super) fn new(tail: &'a Tail, keys: &'a [SortedKey]) -> Self {
        Self { places: &tail.blocks, last: tail.last, filter: Some(&tail.filter), keys, next: 0, through: None }
    }

    /// Of `keys`, which ascend and may be there, among the blocks that they may be in.
    pub(super) fn among(places: &'a [BlockPlace], last: SortedKey, keys: &'a [SortedKey]) -> Self {
        Self { places, last, filter: None, keys, next: 0, through: None }
    }
}

impl Iterator for NeededBlocks<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let blocks = self.places;
        loop {
            if self.through.is_some_and(|through| self.next <= through) {
                self.next += 1;
                return Some(self.next - 1);
            }
            let (key, rest) = self.keys.split_first()?;
            self.keys = rest;
            if *key > self.last {
                self.keys = &[];
                return None;
            }
            if self.filter.is_some_and(|filter| !filter.may_contain(key, KeyHash::of(key))) {
                continue;
            }
            // The block before the first one that begins with the key or above it may end with the key.
            let from = blocks.get(self.next..)?.partition_point(|place| place.first < *key) + self.next;
            let from = from.saturating_sub(1).max(self.next);
            let after = blocks.get(from..)?.iter().take_while(|place| place.first <= *key).count() + from;
            if let Some(through) = after.checked_sub(1).filter(|through| *through >= from) {
                (self.next, self.through) = (from, Some(through));
            }
        }
    }
}
