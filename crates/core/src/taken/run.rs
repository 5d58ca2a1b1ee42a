//! A sorted run of entries: hash of a name and stamp, with an index by the hashes' first bits, merged in place.
//!
//! Hashes are uniform, so the index cuts a run into small pieces of like size; a crafted set of names only costs the search
//! its speed, as a piece is searched by halving.

use xxhash_rust::xxh3::xxh3_128;

use crate::position::FileStamp;

/// The xxh3 128-bit hash of a relative path, in two halves to keep an entry at 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct NameHash {
    pub(super) high: u64,
    pub(super) low: u64,
}

impl NameHash {
    pub(super) fn of(path: &str) -> Self {
        let hash = xxh3_128(path.as_bytes());
        Self { high: (hash >> 64) as u64, low: hash as u64 }
    }
}

/// One name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) hash: NameHash,
    pub(super) stamp: FileStamp,
}

impl Entry {
    const BLANK: Self = Self { hash: NameHash { high: 0, low: 0 }, stamp: FileStamp(0) };
}

const _: () = assert!(size_of::<Entry>() == 24);

/// Sorts by hash; of a name given twice, the later entry stands.
pub(super) fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|e| e.hash);
    entries.dedup_by(|later, kept| {
        let same = later.hash == kept.hash;
        if same {
            kept.stamp = later.stamp;
        }
        same
    });
    entries.shrink_to_fit();
    entries
}

/// Entries in the order of their hashes, none twice.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    entries: Vec<Entry>,
    /// Where each piece begins, and at last where the last one ends; empty for a single piece. A piece holds the entries whose
    /// hashes begin with the same bits.
    starts: Vec<u32>,
}

/// A piece has at least this many entries on average, and less than twice as many.
const PIECE_ENTRIES: usize = 8;
/// Runs from this length on are merged part by part, so that the one is given back while the other grows.
const LARGE_RUN: usize = 1 << 18;
const MERGE_PARTS: usize = 4;

impl Run {
    /// The entries must be sorted, none twice.
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        let bits = (entries.len() / PIECE_ENTRIES).max(1).ilog2();
        // So many entries that they have no 32-bit numbers stay in one piece.
        if bits == 0 || u32::try_from(entries.len()).is_err() {
            return Self { entries, starts: Vec::new() };
        }
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (at, entry) in entries.iter().enumerate() {
            let piece = (entry.hash.high >> (64 - bits)) as usize;
            if piece >= starts.len() {
                starts.resize(piece + 1, at as u32);
            }
        }
        starts.resize((1 << bits) + 1, entries.len() as u32);
        Self { entries, starts }
    }

    pub(super) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.starts.capacity() * size_of::<u32>()
    }

    /// Grows by one when the length grows fourfold.
    pub(super) fn tier(&self) -> u32 {
        self.entries.len().max(1).ilog2() / 2
    }

    pub(super) fn get(&self, hash: NameHash) -> Option<FileStamp> {
        self.find(hash).map(|at| self.entries[at].stamp)
    }

    /// Leaves each name that is in both only in one of the two, with the stamp it has in the sorted `newer`.
    pub(super) fn give_way_to(&mut self, newer: &mut Vec<Entry>) {
        if newer.len() <= self.len() {
            newer.retain(|entry| match self.find(entry.hash) {
                Some(at) => {
                    self.entries[at].stamp = entry.stamp;
                    false
                }
                None => true,
            });
            return;
        }
        let mut rest = newer.as_slice();
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(|entry| {
            rest = &rest[rest.iter().take_while(|new| new.hash < entry.hash).count()..];
            rest.first().is_none_or(|new| new.hash != entry.hash)
        });
        *self = Self::new(entries);
    }

    /// Both runs in one; they have no name in common.
    pub(super) fn merged(self, other: Self) -> Self {
        let (a, b) = (self.entries, other.entries);
        let (mut into, mut from) = if a.len() >= b.len() { (a, b) } else { (b, a) };
        let part = if from.len() < LARGE_RUN { from.len() } else { from.len().div_ceil(MERGE_PARTS) };
        into.reserve_exact(from.len());
        while !from.is_empty() {
            let cut = from.len() - part.min(from.len());
            merge_in(&mut into, &from[cut..]);
            from.truncate(cut);
            from.shrink_to_fit();
        }
        Self::new(into)
    }

    fn find(&self, hash: NameHash) -> Option<usize> {
        let (from, to) = if self.starts.is_empty() {
            (0, self.entries.len())
        } else {
            let bits = (self.starts.len() - 1).ilog2();
            let piece = (hash.high >> (64 - bits)) as usize;
            (self.starts[piece] as usize, self.starts[piece + 1] as usize)
        };
        self.entries[from..to].binary_search_by_key(&hash, |e| e.hash).ok().map(|at| from + at)
    }
}

/// Merges the sorted `part` into the sorted `into`, from the back.
fn merge_in(into: &mut Vec<Entry>, part: &[Entry]) {
    let mut unmoved = into.len();
    into.resize(unmoved + part.len(), Entry::BLANK);
    let mut free = into.len();
    for entry in part.iter().rev() {
        while unmoved > 0 && into[unmoved - 1].hash > entry.hash {
            unmoved -= 1;
            free -= 1;
            into[free] = into[unmoved];
        }
        free -= 1;
        into[free] = *entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(hashes: impl IntoIterator<Item = (u64, u64)>) -> Run {
        let entry = |(high, low)| Entry { hash: NameHash { high, low }, stamp: FileStamp(low) };
        Run::new(sorted(hashes.into_iter().map(entry).collect()))
    }

    #[test]
    fn hashes_at_both_ends_and_in_crowds_are_found_and_others_are_not() {
        // Nothing like uniform: nearly all hashes share their upper half, and most pieces are empty.
        let crowd = (0..5000u64).map(|i| (7, i * 2));
        let run = run_of(crowd.chain([(0, 0), (0, 1), (u64::MAX, 0), (u64::MAX, u64::MAX), (1 << 63, 5)]));
        assert_eq!(run.len(), 5005);
        for entry in run.clone().into_entries() {
            assert_eq!(run.get(entry.hash), Some(entry.stamp));
        }
        for (high, low) in [(7, 1), (7, 9999), (7, 10_000), (6, 0), (8, 0), (0, 2), (u64::MAX, 1), (1 << 63, 4)] {
            assert_eq!(run.get(NameHash { high, low }), None);
        }
        assert_eq!(Run::default().get(NameHash::default()), None);
    }

    #[test]
    fn large_runs_merge_part_by_part_into_the_same_order() {
        let spread = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let count = LARGE_RUN as u64 + 1001;
        let both = run_of((0..2 * count + 5).map(|i| (spread(i), i)));
        let even = run_of((0..2 * count + 5).step_by(2).map(|i| (spread(i), i)));
        let odd = run_of((0..2 * count + 5).skip(1).step_by(2).map(|i| (spread(i), i)));
        let merged = odd.merged(even);
        assert!(merged.entries == both.entries && merged.starts == both.starts);
        assert!(merged.memory_bytes() * 2 <= 49 * both.len() + 100, "{} bytes", merged.memory_bytes());
    }
}
