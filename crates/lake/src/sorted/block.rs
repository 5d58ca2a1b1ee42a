//! Blocks: some entries one after the other, compressed together.

use alluvium_core::{Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;
use zstd::bulk::{Compressor, Decompressor};

use super::format::{BlockPlace, corrupt};
use super::{BLOCK_BYTES, MAX_SORTED_VALUE_BYTES, SortedKey};

/// Higher levels take several times as long and gain little: most of an entry are hashes.
const COMPRESSION_LEVEL: i32 = 1;
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

/// Makes the stored form of blocks.
pub(super) struct Packer {
    compressor: Compressor<'static>,
    packed: Vec<u8>,
}

impl Packer {
    pub(super) fn new() -> Result<Self> {
        let compressor = Compressor::new(COMPRESSION_LEVEL).map_err(|e| internal("compressing", e))?;
        Ok(Self { compressor, packed: Vec::new() })
    }

    /// The stored form of `block`, which is the block itself where it does not get shorter, and its checksum.
    pub(super) fn pack<'a>(&'a mut self, block: &'a [u8]) -> Result<(&'a [u8], u64)> {
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(block.len()));
        self.compressor.compress_to_buffer(block, &mut self.packed).map_err(|e| internal("compressing", e))?;
        let stored = if self.packed.len() < block.len() { self.packed.as_slice() } else { block };
        Ok((stored, xxh3_64(stored)))
    }
}

/// Reads the stored form of blocks.
pub(super) struct Unpacker {
    decompressor: Decompressor<'static>,
    block: Vec<u8>,
}

impl Unpacker {
    pub(super) fn new() -> Result<Self> {
        let decompressor = Decompressor::new().map_err(|e| internal("decompressing", e))?;
        Ok(Self { decompressor, block: Vec::new() })
    }

    /// The block whose stored form is `stored`.
    pub(super) fn unpack(&mut self, stored: &[u8], place: &BlockPlace, path: &str) -> Result<&[u8]> {
        if xxh3_64(stored) != place.checksum {
            return Err(corrupt(path, "the checksum of a block is wrong"));
        }
        let length = place.block_bytes as usize;
        self.block.clear();
        if stored.len() == length {
            self.block.extend_from_slice(stored);
            return Ok(&self.block);
        }
        self.block.reserve(length);
        let unpacked = self.decompressor.decompress_to_buffer(stored, &mut self.block);
        if unpacked.is_err() || self.block.len() != length {
            return Err(corrupt(path, "a block cannot be decompressed"));
        }
        Ok(&self.block)
    }

    /// The block that was unpacked last.
    pub(super) fn block(&self) -> &[u8] {
        &self.block
    }
}

fn internal(doing: &str, error: std::io::Error) -> Error {
    Error::new(Kind::Internal, format!("{doing} a block of a sorted file")).source(error)
}
