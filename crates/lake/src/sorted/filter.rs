//! The filter over a file's keys: a key that it does not know is not there, and costs no block.
//!
//! Split-block Bloom filters (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters; the form that Parquet uses
//! too): a key sets eight bits within 32 bytes, one in each word. With 12 bits a key about 0.5 % of the keys that are not there are
//! taken for known. The filter is in pieces, each for a range of keys, so that building it takes the hashes of one piece only.

use alluvium_core::Result;
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
        KeyFilter { pieces: self.pieces, groups: groups.into() }
    }
}

/// Where the group of a key begins; `None` if the key is before all that were added.
fn group_at(pieces: &[Piece], key: &SortedKey, hash: u64) -> Option<usize> {
    let after = pieces.partition_point(|piece| piece.first <= *key);
    let piece = after.checked_sub(1).and_then(|i| pieces.get(i))?;
    Some((piece.start + group_of(hash, piece.groups)) * GROUP_BYTES)
}

/// Whether all bits of a key are set in its group, as that is stored.
fn has_bits(group: &[u8], hash: u64) -> bool {
    let (words, _) = group.as_chunks::<4>();
    words.iter().zip(bits(hash)).fold(true, |all, (word, bit)| all & (u32::from_be_bytes(*word) & bit != 0))
}

/// What stands before a filter's groups: which pieces there are.
#[derive(Debug)]
pub(super) struct Directory(Vec<Piece>);

impl Directory {
    /// How long its stored form is, for so many pieces, without the count before it.
    pub(super) const fn bytes(pieces: usize) -> Option<usize> {
        pieces.checked_mul(PIECE_BYTES)
    }

    pub(super) fn decode(bytes: &mut FromFront<'_>, count: usize) -> Option<Self> {
        let (mut pieces, mut start) = (Vec::with_capacity(count), 0_usize);
        for _ in 0..count {
            let (first, groups) = (format::key(bytes)?, bytes.u32()? as usize);
            if groups == 0 {
                return None;
            }
            pieces.push(Piece { first, start, groups });
            start += groups;
        }
        pieces.is_sorted_by(|a, b| a.first < b.first).then_some(Self(pieces))
    }

    /// How many bytes all groups have.
    pub(super) fn groups_bytes(&self) -> Option<usize> {
        self.0.last().map_or(Some(0), |last| (last.start + last.groups).checked_mul(GROUP_BYTES))
    }
}

/// Asks for some keys while the groups pass by.
#[derive(Debug)]
pub(super) struct PassingFilter {
    /// Where the group of a key begins, and the key; in the order of the groups.
    asked: Vec<(usize, SortedKey)>,
    next: usize,
    /// How many bytes of the groups have passed.
    passed: usize,
    /// What has passed of the group that is not whole yet.
    cut: Vec<u8>,
    found: Vec<SortedKey>,
}

impl PassingFilter {
    pub(super) fn new(directory: &Directory, keys: &[SortedKey]) -> Self {
        let place = |key: &SortedKey| group_at(&directory.0, key, KeyHash::of(key).0).map(|at| (at, *key));
        let mut asked: Vec<(usize, SortedKey)> = keys.iter().filter_map(place).collect();
        asked.sort_unstable();
        Self { asked, next: 0, passed: 0, cut: Vec::new(), found: Vec::new() }
    }

    /// The next bytes of the groups.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        if !self.cut.is_empty() {
            let (rest, after) = bytes.split_at(bytes.len().min(GROUP_BYTES - self.cut.len()));
            self.cut.extend_from_slice(rest);
            if self.cut.len() < GROUP_BYTES {
                return;
            }
            let group = std::mem::take(&mut self.cut);
            self.pass_groups(&group);
            bytes = after;
        }
        let (groups, cut) = bytes.split_at(bytes.len() - bytes.len() % GROUP_BYTES);
        self.pass_groups(groups);
        self.cut.extend_from_slice(cut);
    }

    fn pass_groups(&mut self, groups: &[u8]) {
        while let Some((at, key)) = self.asked.get(self.next)
            && let Some(group) = groups.get(at - self.passed..at - self.passed + GROUP_BYTES)
        {
            if has_bits(group, KeyHash::of(key).0) {
                self.found.push(*key);
            }
            self.next += 1;
        }
        self.passed += groups.len();
    }

    /// The keys that may be there, in order.
    pub(super) fn finish(mut self) -> Vec<SortedKey> {
        self.found.sort_unstable();
        self.found
    }
}

/// A filter over keys.
#[derive(Debug, Default)]
pub(super) struct KeyFilter {
    pieces: Vec<Piece>,
    /// As they are stored.
    groups: Bytes,
}

#[derive(Debug)]
struct Piece {
    first: SortedKey,
    start: usize,
    groups: usize,
}

impl KeyFilter {
    /// Whether the key may be among those that were added; false only if it is not.
    pub(super) fn may_contain(&self, key: &SortedKey, KeyHash(hash): KeyHash) -> bool {
        let Some(at) = group_at(&self.pieces, key, hash) else { return false };
        has_bits(&self.groups[at..at + GROUP_BYTES], hash)
    }

    /// The bytes of the stored form.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(4 + self.pieces.len() * PIECE_BYTES + self.groups.len());
        out.extend_from_slice(&(self.pieces.len() as u32).to_be_bytes());
        for piece in &self.pieces {
            out.extend_from_slice(&piece.first.0);
            out.extend_from_slice(&(piece.groups as u32).to_be_bytes());
        }
        out.extend_from_slice(&self.groups);
    }

    /// Reads the stored form, which is kept.
    pub(super) fn decode(stored: &Bytes, path: &str) -> Result<Self> {
        let wrong = || corrupt(path, "its filter is not as filters are");
        let mut bytes = FromFront(stored);
        let count = bytes.u32().ok_or_else(wrong)? as usize;
        if count > bytes.0.len() / PIECE_BYTES {
            return Err(wrong());
        }
        let directory =
            Directory::decode(&mut bytes, count).filter(|d| d.groups_bytes() == Some(bytes.0.len())).ok_or_else(wrong)?;
        let groups = stored.slice(stored.len() - bytes.0.len()..);
        Ok(Self { pieces: directory.0, groups })
    }

    /// The memory held, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.pieces.capacity() * size_of::<Piece>() + self.groups.len()
    }
}
