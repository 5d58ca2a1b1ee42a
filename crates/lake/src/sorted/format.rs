//! The end of a sorted file: filter, index, the caller's note, footer. Described in `docs/formats/sorted-file.md`.

use alluvium_core::{Error, Result};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::block::MAX_BLOCK_BYTES;
use super::filter::{Directory, KeyFilter};
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
const PLACE_BYTES: usize = SortedKey::BYTES + 16;
/// Four lengths, two counts, the last key, the checksum of all that stands before the footer's own, that one, format and magic.
pub(super) const FOOTER_BYTES: usize = 6 * 8 + SortedKey::BYTES + 8 + 8 + LASTING_BYTES;

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

/// The stored form of a tail, which follows the groups of its filter.
pub(super) fn encode_tail(tail: &Tail) -> Vec<u8> {
    let mut out = Vec::new();
    tail.filter.directory.encode(&mut out);
    let directory_bytes = out.len();
    out.reserve_exact(tail.blocks.len() * PLACE_BYTES + tail.meta.len() + FOOTER_BYTES);
    for place in &tail.blocks {
        out.extend_from_slice(&place.first.0);
        out.extend_from_slice(&place.stored_bytes.to_be_bytes());
        out.extend_from_slice(&place.block_bytes.to_be_bytes());
        out.extend_from_slice(&place.checksum.to_be_bytes());
    }
    let index_bytes = out.len() - directory_bytes;
    out.extend_from_slice(tail.meta.as_bytes());
    let sections = xxh3_64(&out);
    let footer = out.len();
    let lengths = [tail.filter.groups.len(), directory_bytes, index_bytes, tail.meta.len()].map(|length| length as u64);
    for number in lengths.into_iter().chain([tail.entries, tail.keys]) {
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
    /// Of the filter.
    pub(super) groups_bytes: usize,
    directory_bytes: usize,
    index_bytes: usize,
    meta_bytes: usize,
    pub(super) entries: u64,
    pub(super) keys: u64,
    pub(super) last: SortedKey,
    /// xxh3-64 of directory, index and note.
    sections: u64,
    /// How many bytes of the file are blocks.
    body_bytes: u64,
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
        let (groups_bytes, directory_bytes, index_bytes, meta_bytes) = (number()?, number()?, number()?, number()?);
        let (entries, keys) = (number()?, number()?);
        let (last, sections) = (key(&mut bytes).ok_or_else(wrong)?, bytes.u64().ok_or_else(wrong)?);
        let lengths = [groups_bytes, directory_bytes, index_bytes, meta_bytes];
        let tail_bytes = lengths.iter().try_fold(FOOTER_BYTES as u64, |sum, length| sum.checked_add(*length));
        let body_bytes = tail_bytes.and_then(|tail| size.checked_sub(tail)).ok_or_else(wrong)?;
        let length = |bytes: u64| usize::try_from(bytes).map_err(|_| wrong());
        Ok(Self {
            groups_bytes: length(groups_bytes)?,
            directory_bytes: length(directory_bytes)?,
            index_bytes: length(index_bytes)?,
            meta_bytes: length(meta_bytes).ok().filter(|bytes| *bytes <= MAX_META_BYTES).ok_or_else(wrong)?,
            entries,
            keys,
            last,
            sections,
            body_bytes,
        })
    }

    /// Where what an open file keeps in memory begins: the groups of its filter.
    pub(super) const fn groups_offset(&self) -> u64 {
        self.body_bytes
    }

    /// Where what follows the groups begins.
    pub(super) const fn tail_offset(&self) -> u64 {
        self.body_bytes + self.groups_bytes as u64
    }

    /// Where the file ends.
    pub(super) const fn end_offset(&self) -> u64 {
        self.tail_offset() + (self.directory_bytes + self.index_bytes + self.meta_bytes + FOOTER_BYTES) as u64
    }

    /// Directory, index and note, out of what follows the groups.
    fn sections<'t>(&self, tail: &'t [u8], path: &str) -> Result<(&'t [u8], &'t [u8], &'t [u8])> {
        let sections = tail.len().checked_sub(FOOTER_BYTES).and_then(|length| tail.get(..length));
        let sections = sections.ok_or_else(|| not_an_index(path))?;
        if xxh3_64(sections) != self.sections {
            return Err(corrupt(path, "the checksum of its index is wrong"));
        }
        let split = sections.split_at_checked(self.directory_bytes).and_then(|(directory, rest)| {
            let (index, meta) = rest.split_at_checked(self.index_bytes)?;
            (meta.len() == self.meta_bytes).then_some((directory, index, meta))
        });
        split.ok_or_else(|| not_an_index(path))
    }

    /// Reads what stands from the groups to the end.
    pub(super) fn decode_tail(&self, stored: &Bytes, path: &str) -> Result<Tail> {
        if stored.len() < self.groups_bytes {
            return Err(not_an_index(path));
        }
        let (groups, tail) = (stored.slice(..self.groups_bytes), stored.slice(self.groups_bytes..));
        let (directory, index, meta) = self.sections(&tail, path)?;
        let directory = Directory::decode(directory, self.groups_bytes, path)?;
        Ok(Tail {
            filter: KeyFilter::of(directory, groups, path)?,
            blocks: self.decode_index(index, |_, _| true).ok_or_else(|| not_an_index(path))?,
            meta: String::from_utf8(meta.to_vec()).map_err(|_| not_an_index(path))?,
            entries: self.entries,
            keys: self.keys,
            last: self.last,
        })
    }

    /// Reads the directory of the filter, and what the index is, out of what follows the groups.
    pub(super) fn decode_directory<'t>(&self, tail: &'t [u8], path: &str) -> Result<(Directory, &'t [u8])> {
        let (directory, index, _) = self.sections(tail, path)?;
        Ok((Directory::decode(directory, self.groups_bytes, path)?, index))
    }

    /// The blocks that are kept: of each it is told which one it is, and the first key of the next.
    pub(super) fn decode_index(
        &self,
        index: &[u8],
        mut keep: impl FnMut(&BlockPlace, Option<SortedKey>) -> bool,
    ) -> Option<Vec<BlockPlace>> {
        let (mut bytes, mut kept, mut last) = (FromFront(index), Vec::new(), None::<BlockPlace>);
        while !bytes.0.is_empty() {
            let place = decode_place(&mut bytes, last.as_ref().map_or(0, BlockPlace::end))?;
            if let Some(before) = last.replace(place) {
                if before.first > place.first {
                    return None;
                }
                kept.extend(Some(before).filter(|before| keep(before, Some(place.first))));
            }
        }
        kept.extend(last.filter(|last| keep(last, None)));
        let ends = last.as_ref().map_or(0, BlockPlace::end) == self.body_bytes;
        (ends && last.is_none_or(|last| last.first <= self.last)).then_some(kept)
    }
}

/// What the index says of the block at `offset`.
fn decode_place(bytes: &mut FromFront<'_>, offset: u64) -> Option<BlockPlace> {
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
