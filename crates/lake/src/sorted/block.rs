//! Blocks: some entries one after the other, compressed together.

use alluvium_core::{Error, Kind, Result};
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use xxhash_rust::xxh3::xxh3_64;

use super::format::{BlockPlace, corrupt};
use super::{BLOCK_BYTES, MAX_SORTED_VALUE_BYTES, SortedKey};

/// What stands before a value: the key and the value's length.
const ENTRY_HEAD_BYTES: usize = SortedKey::BYTES + 4;
/// The most bytes a block has uncompressed.
pub(super) const MAX_BLOCK_BYTES: usize = BLOCK_BYTES + ENTRY_HEAD_BYTES + MAX_SORTED_VALUE_BYTES;

/// Appends an entry to an open block.
pub(super) fn append(block: &mut Vec<u8>, key: SortedKey, value: &[u8]) -> Result<()> {
    let too_long = || Error::new(Kind::Internal, format!("a sorted file was given a value of {} bytes", value.len()));
    let length = u32::try_from(value.len()).ok().filter(|_| value.len() <= MAX_SORTED_VALUE_BYTES).ok_or_else(too_long)?;
    block.extend_from_slice(&key.0);
    block.extend_from_slice(&length.to_be_bytes());
    block.extend_from_slice(value);
    Ok(())
}

/// The entry that begins at `at`, and where the next one does; `None` if the bytes are no entries.
pub(super) fn entry(block: &[u8], at: usize) -> Option<(SortedKey, &[u8], usize)> {
    let (key, rest) = block.get(at..)?.split_first_chunk::<{ SortedKey::BYTES }>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let value = rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some((SortedKey(*key), value, at + ENTRY_HEAD_BYTES + value.len()))
}

/// Makes the stored form of blocks: LZ4, as most of an entry are hashes, which nothing shortens, and blocks are read often.
#[derive(Default)]
pub(super) struct Packer {
    packed: Vec<u8>,
}

impl Packer {
    /// The stored form of `block`, which is the block itself where it does not get shorter, and its checksum.
    pub(super) fn pack<'a>(&'a mut self, block: &'a [u8]) -> Result<(&'a [u8], u64)> {
        let most = get_maximum_output_size(block.len());
        if self.packed.len() < most {
            self.packed.resize(most, 0);
        }
        let length = compress_into(block, &mut self.packed)
            .map_err(|e| Error::new(Kind::Internal, "compressing a block of a sorted file").source(e))?;
        let stored = if length < block.len() { &self.packed[..length] } else { block };
        Ok((stored, xxh3_64(stored)))
    }
}

/// Reads the stored form of blocks.
#[derive(Default)]
pub(super) struct Unpacker {
    /// The block that was unpacked last, at its beginning.
    buffer: Vec<u8>,
    length: usize,
}

impl Unpacker {
    /// The block whose stored form is `stored`.
    pub(super) fn unpack(&mut self, stored: &[u8], place: &BlockPlace, path: &str) -> Result<&[u8]> {
        if xxh3_64(stored) != place.checksum {
            return Err(corrupt(path, "the checksum of a block is wrong"));
        }
        self.length = place.block_bytes as usize;
        if self.buffer.len() < self.length {
            self.buffer.resize(self.length, 0);
        }
        let block = &mut self.buffer[..self.length];
        if stored.len() == block.len() {
            block.copy_from_slice(stored);
        } else if !decompress_into(stored, block).is_ok_and(|length| length == block.len()) {
            return Err(corrupt(path, "a block cannot be decompressed"));
        }
        Ok(self.block())
    }

    /// The block that was unpacked last.
    pub(super) fn block(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}
