//! The end of a sorted file: filter, index, the caller's note, footer. Described in `docs/formats/sorted-file.md`.

use alluvium_core::{Error, Result};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::block::MAX_BLOCK_BYTES;
use super::filter::KeyFilter;
use super::{MAX_META_BYTES, SortedKey};
use crate::binary::{Form, FromFront, LASTING_BYTES};

/// The version of the stored form that this program writes and the newest it reads.
pub const SORTED_FORMAT: u32 = 1;

const FORM: Form = Form {
    what: "sorted file",
    magic: *b"ALVSORTD",
    newest: SORTED_FORMAT,
    hint: "it is made from the tables beside it: while those are there, it may be moved away",
};
/// What the index says of a block.
pub(super) const PLACE_BYTES: usize = SortedKey::BYTES + 16;
/// Three lengths, two counts, the last key, the checksum of all that stands before the footer's own, that one, format and magic.
pub(super) const FOOTER_BYTES: usize = 5 * 8 + SortedKey::BYTES + 8 + 8 + LASTING_BYTES;

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockPlace {
    /// The key of its first entry.
    pub(super) first: SortedKey,
    /// Where its stored form begins.
    pub(super) offset: u64,
    /// The length of that.
    pub(super) stored_bytes: u32,
    /// Its length uncompressed.
    pub(super) block_bytes: u32,
    /// xxh3-64 of the stored form.
    pub(super) checksum: u64,
}

impl BlockPlace {
    /// Where its stored form ends.
    pub(super) const fn end(&self) -> u64 {
        self.offset + self.stored_bytes as u64
    }
}

/// What an open file keeps in memory.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) filter: KeyFilter,
    pub(super) blocks: Vec<BlockPlace>,
    pub(super) meta: String,
    pub(super) entries: u64,
    pub(super) keys: u64,
    pub(super) last: SortedKey,
}

/// The stored form of a tail.
pub(super) fn encode_tail(tail: &Tail) -> Vec<u8> {
    let mut out = Vec::new();
    tail.filter.encode(&mut out);
    let filter_bytes = out.len();
    out.reserve_exact(tail.blocks.len() * PLACE_BYTES + tail.meta.len() + FOOTER_BYTES);
    for place in &tail.blocks {
        out.extend_from_slice(&place.first.0);
        out.extend_from_slice(&place.stored_bytes.to_be_bytes());
        out.extend_from_slice(&place.block_bytes.to_be_bytes());
        out.extend_from_slice(&place.checksum.to_be_bytes());
    }
    let index_bytes = out.len() - filter_bytes;
    out.extend_from_slice(tail.meta.as_bytes());
    let sections = xxh3_64(&out);
    let footer = out.len();
    for number in [filter_bytes as u64, index_bytes as u64, tail.meta.len() as u64, tail.entries, tail.keys] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(&tail.last.0);
    out.extend_from_slice(&sections.to_be_bytes());
    let own = xxh3_64(&out[footer..]);
    out.extend_from_slice(&own.to_be_bytes());
    out.extend_from_slice(&FORM.lasting());
    out
}

/// The last bytes of a file.
#[derive(Debug, Clone)]
pub(super) struct Footer {
    pub(super) filter_bytes: usize,
    pub(super) index_bytes: usize,
    pub(super) meta_bytes: usize,
    pub(super) entries: u64,
    pub(super) keys: u64,
    pub(super) last: SortedKey,
    /// xxh3-64 of filter, index and note.
    pub(super) sections: u64,
    /// How many bytes of the file are blocks.
    pub(super) body_bytes: u64,
}

impl Footer {
    /// Reads the footer of a file of `size` bytes, which `end` is the end of.
    pub(super) fn decode(end: &[u8], size: u64, path: &str) -> Result<Self> {
        let wrong = || corrupt(path, "its footer is not as footers are");
        FORM.check(end, path)?;
        let (_, footer) = end.split_last_chunk::<FOOTER_BYTES>().ok_or_else(|| corrupt(path, "it is too short"))?;
        let (content, own) = footer[..FOOTER_BYTES - LASTING_BYTES].split_at(FOOTER_BYTES - LASTING_BYTES - 8);
        if FromFront(own).u64() != Some(xxh3_64(content)) {
            return Err(corrupt(path, "the checksum of its footer is wrong"));
        }
        let mut bytes = FromFront(content);
        let mut number = || bytes.u64().ok_or_else(wrong);
        let (filter_bytes, index_bytes, meta_bytes, entries, keys) = (number()?, number()?, number()?, number()?, number()?);
        let (last, sections) = (key(&mut bytes).ok_or_else(wrong)?, bytes.u64().ok_or_else(wrong)?);
        let tail_bytes =
            [filter_bytes, index_bytes, meta_bytes].iter().try_fold(FOOTER_BYTES as u64, |sum, b| sum.checked_add(*b));
        let body_bytes = tail_bytes.and_then(|tail| size.checked_sub(tail)).ok_or_else(wrong)?;
        let length = |bytes: u64| usize::try_from(bytes).map_err(|_| wrong());
        Ok(Self {
            filter_bytes: length(filter_bytes)?,
            index_bytes: length(index_bytes)?,
            meta_bytes: length(meta_bytes).ok().filter(|bytes| *bytes <= MAX_META_BYTES).ok_or_else(wrong)?,
            entries,
            keys,
            last,
            sections,
            body_bytes,
        })
    }

    /// Where what an open file keeps in memory begins.
    pub(super) const fn tail_offset(&self) -> u64 {
        self.body_bytes
    }

    /// Where the footer begins, and what stands before it ends.
    pub(super) const fn sections_end(&self) -> u64 {
        self.body_bytes + (self.filter_bytes + self.index_bytes + self.meta_bytes) as u64
    }

    /// Where the file ends.
    pub(super) const fn end_offset(&self) -> u64 {
        self.sections_end() + FOOTER_BYTES as u64
    }

    /// Reads what stands from there to the end.
    pub(super) fn decode_tail(&self, tail: &Bytes, path: &str) -> Result<Tail> {
        let wrong = || not_an_index(path);
        let sections = tail.len().checked_sub(FOOTER_BYTES).and_then(|length| tail.get(..length)).ok_or_else(wrong)?;
        if xxh3_64(sections) != self.sections {
            return Err(corrupt(path, "the checksum of its index is wrong"));
        }
        let (filter, rest) = sections.split_at_checked(self.filter_bytes).ok_or_else(wrong)?;
        let (index, meta) =
            rest.split_at_checked(self.index_bytes).filter(|(_, m)| m.len() == self.meta_bytes).ok_or_else(wrong)?;
        let blocks = decode_index(index).ok_or_else(wrong)?;
        let in_order = blocks.is_sorted_by_key(|place| place.first) && blocks.last().is_none_or(|place| place.first <= self.last);
        if !in_order || blocks.last().map_or(0, BlockPlace::end) != self.body_bytes {
            return Err(wrong());
        }
        Ok(Tail {
            filter: KeyFilter::decode(&tail.slice_ref(filter), path)?,
            blocks,
            meta: String::from_utf8(meta.to_vec()).map_err(|_| wrong())?,
            entries: self.entries,
            keys: self.keys,
            last: self.last,
        })
    }
}

fn decode_index(index: &[u8]) -> Option<Vec<BlockPlace>> {
    let (mut bytes, mut blocks, mut offset) = (FromFront(index), Vec::with_capacity(index.len() / PLACE_BYTES), 0_u64);
    while !bytes.0.is_empty() {
        let place = decode_place(&mut bytes, offset)?;
        offset = place.end();
        blocks.push(place);
    }
    Some(blocks)
}

/// What the index says of the block at `offset`.
pub(super) fn decode_place(bytes: &mut FromFront<'_>, offset: u64) -> Option<BlockPlace> {
    let (first, stored_bytes, block_bytes, checksum) = (key(bytes)?, bytes.u32()?, bytes.u32()?, bytes.u64()?);
    let is_block = stored_bytes != 0 && stored_bytes <= block_bytes && block_bytes as usize <= MAX_BLOCK_BYTES;
    is_block.then_some(BlockPlace { first, offset, stored_bytes, block_bytes, checksum })
}

/// A key that is read from the front.
pub(super) fn key(bytes: &mut FromFront<'_>) -> Option<SortedKey> {
    bytes.take().map(|key| SortedKey(*key))
}

pub(super) fn not_an_index(path: &str) -> Error {
    corrupt(path, "its index is not as indexes are")
}

pub(super) fn corrupt(path: &str, why: &str) -> Error {
    FORM.corrupt(path, why)
}
