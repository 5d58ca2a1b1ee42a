//! A sorted run of entries: hash of a name and stamp, searched by interpolation, merged in place.
//!
//! Hashes are uniform, so a name's place can be guessed from its hash; a crafted set of names only costs the search its
//! speed, as it falls back to doubling steps.

use std::cmp::Ordering;

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

/// Entries in the order of their hashes, none twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Run(Vec<Entry>);

/// Guesses before a search takes doubling steps; three bring 10 million names down to a few places.
const GUESSES: usize = 3;
/// The first of the doubling steps.
const FIRST_STEP: usize = 8;
/// Runs from this length on are merged piece by piece, so that the one is given back while the other grows.
const LARGE_RUN: usize = 1 << 18;
const MERGE_PIECES: usize = 4;

impl Run {
    /// Sorts; of a name given twice, the later entry stands.
    pub(super) fn from_unsorted(mut entries: Vec<Entry>) -> Self {
        entries.sort_by_key(|e| e.hash);
        entries.dedup_by(|later, kept| {
            let same = later.hash == kept.hash;
            if same {
                kept.stamp = later.stamp;
            }
            same
        });
        entries.shrink_to_fit();
        Self(entries)
    }

    /// `None` if the entries are not in strictly rising order.
    pub(super) fn from_sorted(entries: Vec<Entry>) -> Option<Self> {
        entries.is_sorted_by(|a, b| a.hash < b.hash).then_some(Self(entries))
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Entry>()
    }

    /// Grows by one when the length grows fourfold.
    pub(super) fn tier(&self) -> u32 {
        self.0.len().max(1).ilog2() / 2
    }

    pub(super) fn get(&self, hash: NameHash) -> Option<FileStamp> {
        find(&self.0, hash).map(|at| self.0[at].stamp)
    }

    /// Leaves each name that both hold in only one of the two, with the stamp it has in `newer`.
    pub(super) fn give_way_to(&mut self, newer: &mut Self) {
        let older = &mut self.0;
        if newer.0.len() <= older.len() {
            newer.0.retain(|entry| match find(older, entry.hash) {
                Some(at) => {
                    older[at].stamp = entry.stamp;
                    false
                }
                None => true,
            });
        } else {
            older.retain(|entry| find(&newer.0, entry.hash).is_none());
        }
    }

    /// Both runs in one; they have no name in common.
    pub(super) fn merged(self, other: Self) -> Self {
        let (mut into, mut from) = if self.len() >= other.len() { (self.0, other.0) } else { (other.0, self.0) };
        let piece = if from.len() < LARGE_RUN { from.len() } else { from.len().div_ceil(MERGE_PIECES) };
        into.reserve_exact(from.len());
        while !from.is_empty() {
            let cut = from.len() - piece.min(from.len());
            merge_in(&mut into, &from[cut..]);
            from.truncate(cut);
            from.shrink_to_fit();
        }
        Self(into)
    }
}

/// Merges the sorted `piece` into the sorted `into`, from the back.
fn merge_in(into: &mut Vec<Entry>, piece: &[Entry]) {
    let mut unmoved = into.len();
    into.resize(unmoved + piece.len(), Entry::BLANK);
    let mut free = into.len();
    for entry in piece.iter().rev() {
        while unmoved > 0 && into[unmoved - 1].hash > entry.hash {
            unmoved -= 1;
            free -= 1;
            into[free] = into[unmoved];
        }
        free -= 1;
        into[free] = *entry;
    }
}

/// Where `hash` stands in sorted entries: a few guesses by proportion, then doubling steps from the last guess, then halving.
fn find(entries: &[Entry], hash: NameHash) -> Option<usize> {
    // The place is in `low..high`, where the hashes' upper halves lie between `low_key` and `high_key`.
    let (mut low, mut high) = (0, entries.len());
    let (mut low_key, mut high_key) = (0u64, u64::MAX);
    let mut rising = true;
    for _ in 0..GUESSES {
        if high - low <= FIRST_STEP {
            break;
        }
        let share = (hash.high - low_key) as f64 / ((high_key - low_key) as f64 + 1.0);
        let guess = (low + (share * (high - low) as f64) as usize).min(high - 1);
        match entries[guess].hash.cmp(&hash) {
            Ordering::Equal => return Some(guess),
            Ordering::Less => (low, low_key, rising) = (guess + 1, entries[guess].hash.high, true),
            Ordering::Greater => (high, high_key, rising) = (guess, entries[guess].hash.high, false),
        }
    }
    let mut step = FIRST_STEP;
    while high - low > step {
        let probe = if rising { low + step } else { high - 1 - step };
        match (entries[probe].hash.cmp(&hash), rising) {
            (Ordering::Equal, _) => return Some(probe),
            (Ordering::Less, true) => low = probe + 1,
            (Ordering::Greater, false) => high = probe,
            (Ordering::Greater, true) => {
                high = probe;
                break;
            }
            (Ordering::Less, false) => {
                low = probe + 1;
                break;
            }
        }
        step *= 2;
    }
    entries[low..high].binary_search_by_key(&hash, |e| e.hash).ok().map(|at| low + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(hashes: impl IntoIterator<Item = (u64, u64)>) -> Run {
        let entry = |(high, low)| Entry { hash: NameHash { high, low }, stamp: FileStamp(low) };
        Run::from_unsorted(hashes.into_iter().map(entry).collect())
    }

    #[test]
    fn hashes_at_both_ends_and_in_crowds_are_found_and_others_are_not() {
        // Nothing like uniform: the guesses are all wrong, and thousands of hashes share their upper half.
        let crowd = (0..5000u64).map(|i| (7, i * 2));
        let run = run_of(crowd.chain([(0, 0), (0, 1), (u64::MAX, 0), (u64::MAX, u64::MAX), (1 << 63, 5)]));
        assert_eq!(run.len(), 5005);
        for entry in run.entries() {
            assert_eq!(run.get(entry.hash), Some(entry.stamp));
        }
        for (high, low) in [(7, 1), (7, 9999), (7, 10_000), (6, 0), (8, 0), (0, 2), (u64::MAX, 1), (1 << 63, 4)] {
            assert_eq!(run.get(NameHash { high, low }), None);
        }
        assert_eq!(Run::default().get(NameHash::default()), None);
    }

    #[test]
    fn large_runs_merge_piece_by_piece_into_the_same_order() {
        let spread = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let count = LARGE_RUN as u64 + 1001;
        let both = run_of((0..2 * count + 5).map(|i| (spread(i), i)));
        let even = run_of((0..2 * count + 5).step_by(2).map(|i| (spread(i), i)));
        let odd = run_of((0..2 * count + 5).skip(1).step_by(2).map(|i| (spread(i), i)));
        let merged = odd.merged(even);
        assert!(merged == both);
        assert_eq!(merged.memory_bytes(), 24 * both.len());
    }
}
