//! Sorted files: immutable files of many (key, value) entries that are looked up within little memory.
//!
//! Place in the flow: the folded ledger and the indexes of requests are kept in them; `alluvium-engine` makes keys and values and
//! decides which files there are. The bytes are described in `docs/formats/sorted-file.md`.
//!
//! Invariants: entries are in the order of their keys, those of one key in the order in which they were written; what an open file holds
//! in memory is its index and its filter (about 1.7 bytes an entry of some 40 bytes), and what a look-up, a scan or a merge holds beside it
//! is bounded, whatever the file's size; bytes that are not as they were written are [`alluvium_core::Kind::Corrupt`]. Deliberately not
//! here: what keys and values mean, which files there are, and their names.

use std::cmp::Ordering;

mod block;
mod file;
mod filter;
mod format;
mod merge;
mod plan;
mod scan;
mod spool;
#[cfg(test)]
mod tests;
mod writer;

pub use file::SortedFile;
pub use filter::KeyHash;
pub use format::SORTED_FORMAT;
pub use merge::{MergeMode, merge_sorted};
pub use scan::SortedScan;
pub use writer::{SortedSize, SortedWriter};

/// A key: 24 bytes that only the caller understands. Keys order as their bytes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SortedKey(pub [u8; SortedKey::BYTES]);

impl Ord for SortedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        // Word by word, as the call that compares bytes costs more than most comparisons of keys.
        let words = |key: &Self| {
            let (words, _) = key.0.as_chunks::<8>();
            [0, 1, 2].map(|at| u64::from_be_bytes(words[at]))
        };
        words(self).cmp(&words(other))
    }
}

impl PartialOrd for SortedKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl SortedKey {
    /// How long a key is.
    pub const BYTES: usize = 24;
    /// The least of all keys.
    pub(crate) const LEAST: Self = Self([0; Self::BYTES]);
}

/// The longest value.
pub const MAX_SORTED_VALUE_BYTES: usize = 64 << 20;
/// A block is closed as soon as its entries have so many bytes.
const BLOCK_BYTES: usize = 16 << 10;
/// The longest note of the caller.
const MAX_META_BYTES: usize = 64 << 10;
