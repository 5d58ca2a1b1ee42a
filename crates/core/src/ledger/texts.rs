//! Texts of one organisation, each kept once and known by a number.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A map whose keys are hashes already.
type ByHash = HashMap<u64, u32, BuildHasherDefault<AsItIs>>;

#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Tagged texts: one arena, and about 40 bytes each besides.
#[derive(Default)]
pub(super) struct Texts {
    arena: String,
    entries: Vec<Entry>,
    by_hash: ByHash,
}

struct Entry {
    end: usize,
    tag: u16,
    /// The entry before this one with the same hash; itself if there is none.
    before: u32,
}

impl Texts {
    /// The number of the text with this tag; texts are numbered from 0 in the order in which they came first.
    pub(super) fn intern(&mut self, tag: u16, text: &str) -> u32 {
        let hash = xxh3_64_with_seed(text.as_bytes(), tag.into());
        if let Some(known) = self.lookup(hash, tag, text) {
            return known;
        }
        let new = u32::try_from(self.entries.len()).expect("4 billion texts do not fit in memory");
        self.arena.push_str(text);
        let before = self.by_hash.insert(hash, new).unwrap_or(new);
        self.entries.push(Entry { end: self.arena.len(), tag, before });
        new
    }

    /// The number of a text that is known already.
    pub(super) fn find(&self, tag: u16, text: &str) -> Option<u32> {
        self.lookup(xxh3_64_with_seed(text.as_bytes(), tag.into()), tag, text)
    }

    fn lookup(&self, hash: u64, tag: u16, text: &str) -> Option<u32> {
        let mut at = self.by_hash.get(&hash).copied();
        while let Some(known) = at {
            if self.tag(known) == tag && self.get(known) == text {
                return Some(known);
            }
            let before = self.entries[known as usize].before;
            at = (before != known).then_some(before);
        }
        None
    }

    pub(super) fn get(&self, number: u32) -> &str {
        let at = number as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].end);
        &self.arena[start..self.entries[at].end]
    }

    pub(super) fn tag(&self, number: u32) -> u16 {
        self.entries[number as usize].tag
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
