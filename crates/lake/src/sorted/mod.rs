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
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::file_index::Mixed;

mod block;
mod file;
mod filter;
mod format;
mod merge;
mod plan;
mod scan;
mod shut;
mod spool;
#[cfg(test)]
mod tests;
mod writer;

pub use file::SortedFile;
pub use filter::KeyHash;
pub use format::SORTED_FORMAT;
pub use merge::{MergeMode, merge_sorted};
pub use scan::SortedScan;
pub use shut::ShutSortedFile;
pub use writer::{SortedSize, SortedWriter};

/// A key: 24 bytes that only the caller understands. Keys order as their bytes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortedKey(pub [u8; SortedKey::BYTES]);

/// What is known by key. Keys are digests, and need no mixing.
pub type KeyMap<V> = HashMap<SortedKey, V, BuildHasherDefault<Mixed>>;
/// Some keys.
pub type KeySet = HashSet<SortedKey, BuildHasherDefault<Mixed>>;

impl Hash for SortedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.words().into_iter().fold(0, |all, word| all ^ word));
    }
}

impl Ord for SortedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        // Word by word, as the call that compares bytes costs more than most comparisons of keys.
        self.words().cmp(&other.words())
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
    /// Its words, which order as the key does.
    const fn words(&self) -> [u64; 3] {
        let (words, _) = self.0.as_chunks::<8>();
        [u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1]), u64::from_be_bytes(words[2])]
    }

    /// The least of all keys.
    pub(crate) const LEAST: Self = Self([0; Self::BYTES]);
}

/// The longest value.
pub const MAX_SORTED_VALUE_BYTES: usize = 64 << 20;
/// A block is closed as soon as its entries have so many bytes.
const BLOCK_BYTES: usize = 16 << 10;
/// The longest note of the caller.
const MAX_META_BYTES: usize = 64 << 10;
