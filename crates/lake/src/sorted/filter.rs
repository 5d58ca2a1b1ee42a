//! The filter over a file's keys: a key that it does not know is not there, and costs no block.
//!
//! Split-block Bloom filters (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters; the form that Parquet uses
//! too): a key sets eight bits within 32 bytes, one in each word. With 12 bits a key about 0.5 % of the keys that are not there are
//! taken for known. The filter is in pieces, each for a range of keys, so that building it takes the hashes of one piece only.

use std::ops::Range;

use alluvium_core::{Error, Result};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::SortedKey;
use super::format::{self, corrupt};
use crate::binary::FromFront;

/// So many bits a key has.
const BITS_A_KEY: usize = 12;
/// So many keys are in one piece, but for the last.
const KEYS_A_PIECE: usize = 1 << 16;
/// What the directory says of a piece: its first key and how many groups of words it has.
const PIECE_BYTES: usize = SortedKey::BYTES + 4;
/// The groups are checked in parts of so many bytes: a few of them can be read alone.
const PART_BYTES: usize = 32 * GROUP_BYTES;
/// Odd numbers that choose the bit of each word, those of Parquet.
const SALTS: [u32; 8] = [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// A key's hash, by which filters know it.
#[derive(Debug, Clone, Copy)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Of a key.
    #[must_use]
    pub fn of(key: &SortedKey) -> Self {
        Self(xxh3_64(&key.0))
    }
}

/// The words that one key's bits are in.
type Group = [u32; 8];
/// The same as stored: each word's greatest byte first.
const GROUP_BYTES: usize = size_of::<Group>();

fn bits(hash: u64) -> Group {
    SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

/// Which of `groups` groups a hash is in: by its upper half, as the lower one chooses the bits.
fn group_of(hash: u64, groups: usize) -> usize {
    (((hash >> 32) * groups as u64) >> 32) as usize
}

/// A filter that grows as keys come, in order.
#[derive(Debug, Default)]
pub(super) struct FilterBuilder {
    pieces: Vec<Piece>,
    words: Vec<Group>,
    first: Option<SortedKey>,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// Adds a key; no key is to be added twice.
    pub(super) fn add(&mut self, key: SortedKey) {
        self.first.get_or_insert(key);
        self.hashes.push(KeyHash::of(&key).0);
        if self.hashes.len() == KEYS_A_PIECE {
            self.close_piece();
        }
    }

    fn close_piece(&mut self) {
        let Some(first) = self.first.take() else { return };
        let groups = (self.hashes.len() * BITS_A_KEY).div_ceil(GROUP_BYTES * 8);
        let start = self.words.len();
        self.words.resize(start + groups, [0; 8]);
        for hash in self.hashes.drain(..) {
            let group = &mut self.words[start + group_of(hash, groups)];
            for (word, bit) in group.iter_mut().zip(bits(hash)) {
                *word |= bit;
            }
        }
        self.pieces.push(Piece { first, start, groups });
    }

    /// The filter over all keys.
    pub(super) fn finish(mut self) -> KeyFilter {
        self.close_piece();
        let groups: Vec<u8> = self.words.iter().flatten().flat_map(|word| word.to_be_bytes()).collect();
        let parts = groups.chunks(PART_BYTES).map(xxh3_64).collect();
        KeyFilter { directory: Directory { pieces: self.pieces, parts }, groups: groups.into() }
    }
}

/// Whether all bits of a key are set in its group, as that is stored.
fn has_bits(group: &[u8], hash: u64) -> bool {
    let (words, _) = group.as_chunks::<4>();
    words.iter().zip(bits(hash)).fold(true, |all, (word, bit)| all & (u32::from_be_bytes(*word) & bit != 0))
}

#[derive(Debug)]
struct Piece {
    first: SortedKey,
    start: usize,
    groups: usize,
}

/// What tells where in a filter's groups a key is, and whether they are as they were written.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pieces: Vec<Piece>,
    /// xxh3-64 of each part of the groups.
    parts: Vec<u64>,
}

impl Directory {
    /// The bytes of the stored form.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(4 + self.pieces.len() * PIECE_BYTES + self.parts.len() * 8);
        out.extend_from_slice(&(self.pieces.len() as u32).to_be_bytes());
        for piece in &self.pieces {
            out.extend_from_slice(&piece.first.0);
            out.extend_from_slice(&(piece.groups as u32).to_be_bytes());
        }
        out.extend(self.parts.iter().flat_map(|part| part.to_be_bytes()));
    }

    /// Reads the stored form, of groups of so many bytes.
    pub(super) fn decode(stored: &[u8], groups_bytes: usize, path: &str) -> Result<Self> {
        let decoded = Self::decode_all(stored).filter(|directory| directory.groups_bytes() == Some(groups_bytes));
        decoded.filter(|d| d.parts.len() == groups_bytes.div_ceil(PART_BYTES)).ok_or_else(|| wrong(path))
    }

    fn decode_all(stored: &[u8]) -> Option<Self> {
        let mut bytes = FromFront(stored);
        let count = bytes.u32()? as usize;
        if count > bytes.0.len() / PIECE_BYTES {
            return None;
        }
        let (mut pieces, mut start) = (Vec::with_capacity(count), 0_usize);
        for _ in 0..count {
            let (first, groups) = (format::key(&mut bytes)?, bytes.u32()? as usize);
            if groups == 0 {
                return None;
            }
            pieces.push(Piece { first, start, groups });
            start += groups;
        }
        let (parts, rest) = bytes.0.as_chunks::<8>();
        let in_order = pieces.is_sorted_by(|a, b| a.first < b.first) && rest.is_empty();
        in_order.then(|| Self { pieces, parts: parts.iter().map(|part| u64::from_be_bytes(*part)).collect() })
    }

    fn groups_bytes(&self) -> Option<usize> {
        self.pieces.last().map_or(Some(0), |last| (last.start + last.groups).checked_mul(GROUP_BYTES))
    }

    /// Where the group of a key begins; `None` if the key is before all that were added.
    fn group_at(&self, key: &SortedKey, hash: u64) -> Option<usize> {
        let after = self.pieces.partition_point(|piece| piece.first <= *key);
        let piece = after.checked_sub(1).and_then(|i| self.pieces.get(i))?;
        Some((piece.start + group_of(hash, piece.groups)) * GROUP_BYTES)
    }

    /// Which parts of the groups tell of some keys.
    pub(super) fn asked(&self, keys: &[SortedKey]) -> Asked {
        let place = |key: &SortedKey| self.group_at(key, KeyHash::of(key).0).map(|at| (at, *key));
        let mut keys: Vec<(usize, SortedKey)> = keys.iter().filter_map(place).collect();
        keys.sort_unstable();
        let mut parts: Vec<usize> = keys.iter().map(|(at, _)| at / PART_BYTES).collect();
        parts.dedup();
        Asked { keys, parts }
    }

    /// Whether a part of the groups is as it was written.
    fn is_whole(&self, part: usize, bytes: &[u8]) -> bool {
        self.parts.get(part) == Some(&xxh3_64(bytes))
    }

    fn memory_bytes(&self) -> usize {
        self.pieces.capacity() * size_of::<Piece>() + self.parts.capacity() * size_of::<u64>()
    }
}

/// Some keys, and the parts of a filter's groups that tell of them.
#[derive(Debug)]
pub(super) struct Asked {
    /// Where the group of a key begins, and the key; in the order of the groups.
    keys: Vec<(usize, SortedKey)>,
    parts: Vec<usize>,
}

impl Asked {
    /// Where the parts are within groups of so many bytes.
    pub(super) fn ranges(&self, groups_bytes: usize) -> impl Iterator<Item = Range<usize>> {
        self.parts.iter().map(move |part| part * PART_BYTES..groups_bytes.min((part + 1) * PART_BYTES))
    }

    /// The keys that may be there, in order, by the parts in theirs.
    pub(super) fn found(self, directory: &Directory, parts: &[Bytes], path: &str) -> Result<Vec<SortedKey>> {
        let is_whole = |(part, bytes): (&usize, &Bytes)| directory.is_whole(*part, bytes);
        if parts.len() != self.parts.len() || !self.parts.iter().zip(parts).all(is_whole) {
            return Err(corrupt(path, "the checksum of its filter is wrong"));
        }
        let (mut found, mut part) = (Vec::new(), 0);
        for (at, key) in self.keys {
            while self.parts[part] != at / PART_BYTES {
                part += 1;
            }
            let within = at % PART_BYTES;
            let group = parts[part].get(within..within + GROUP_BYTES).ok_or_else(|| wrong(path))?;
            if has_bits(group, KeyHash::of(&key).0) {
                found.push(key);
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// A filter over keys.
#[derive(Debug, Default)]
pub(super) struct KeyFilter {
    pub(super) directory: Directory,
    /// As they are stored.
    pub(super) groups: Bytes,
}

impl KeyFilter {
    /// Whether the key may be among those that were added; false only if it is not.
    pub(super) fn may_contain(&self, key: &SortedKey, KeyHash(hash): KeyHash) -> bool {
        self.directory.group_at(key, hash).is_some_and(|at| has_bits(&self.groups[at..at + GROUP_BYTES], hash))
    }

    /// Of the stored form, which is kept.
    pub(super) fn of(directory: Directory, groups: Bytes, path: &str) -> Result<Self> {
        if groups.chunks(PART_BYTES).enumerate().all(|(part, bytes)| directory.is_whole(part, bytes)) {
            return Ok(Self { directory, groups });
        }
        Err(corrupt(path, "the checksum of its filter is wrong"))
    }

    /// The memory held, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.directory.memory_bytes() + self.groups.len()
    }
}

fn wrong(path: &str) -> Error {
    corrupt(path, "its filter is not as filters are")
}
