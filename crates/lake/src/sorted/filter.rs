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
        let after = self.pieces.partition_point(|piece| piece.first <= *key);
        let Some(piece) = after.checked_sub(1).and_then(|i| self.pieces.get(i)) else { return false };
        let at = (piece.start + group_of(hash, piece.groups)) * GROUP_BYTES;
        let (words, _) = self.groups[at..at + GROUP_BYTES].as_chunks::<4>();
        words.iter().zip(bits(hash)).fold(true, |all, (word, bit)| all & (u32::from_be_bytes(*word) & bit != 0))
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
        let (mut pieces, mut start) = (Vec::with_capacity(count), 0_usize);
        for _ in 0..count {
            let (first, groups) = (format::key(&mut bytes).ok_or_else(wrong)?, bytes.u32().ok_or_else(wrong)? as usize);
            if groups == 0 {
                return Err(wrong());
            }
            pieces.push(Piece { first, start, groups });
            start += groups;
        }
        if !pieces.is_sorted_by(|a, b| a.first < b.first) || start.checked_mul(GROUP_BYTES) != Some(bytes.0.len()) {
            return Err(wrong());
        }
        let groups = stored.slice(stored.len() - bytes.0.len()..);
        Ok(Self { pieces, groups })
    }

    /// The memory held, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.pieces.capacity() * size_of::<Piece>() + self.groups.len()
    }
}
