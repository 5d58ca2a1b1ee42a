//! Cuts text content into chunks of whole records.

use std::io;

use alluvium_core::FileCursor;
use bytes::{Buf, Bytes};

use super::input::{Blocks, Content as FileContent, FileFault, ReadFault};
use super::{Chunk, Content, MAX_RECORD_BYTES};

/// Least and most that is read at once.
const READ_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=8 << 20;
/// The most that a chunk may be asked to hold: offsets of Arrow's text columns have 31 bits.
const MAX_CHUNK_BYTES: u64 = 256 << 20;

/// Records of one text file, one after another.
pub(super) struct Lines<F> {
    pub(super) blocks: Blocks,
    pub(super) cursor: FileCursor,
    pub(super) framing: F,
}

/// How records stand in text.
pub(super) trait Framing {
    /// Finds whole records at the front of `bytes`: at most `max_records`, and none that ends beyond `max_bytes` but the first.
    /// `ended`: no byte will follow, so that the last record may lack its line's end.
    fn take(&self, bytes: &[u8], max_records: u64, max_bytes: usize, ended: bool) -> Taken;

    /// Goes through the rest of a record that is too long to be held; gives where it ends, if it does.
    fn pass(&self, state: &mut PassState, bytes: &[u8]) -> Option<usize>;

    /// The chunk's content.
    fn content(&self, bytes: Bytes) -> Content;
}

/// Whole records at the front of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) records: u64,
    pub(super) bytes: usize,
}

/// Where in a record that is passed over we are.
#[derive(Debug, Default)]
pub(super) struct PassState {
    /// Between quotes.
    pub(super) quoted: bool,
    /// Something of a field was seen.
    pub(super) in_field: bool,
    /// Of the field, only quoted text was seen.
    pub(super) was_quoted: bool,
}

impl<F: Framing> Lines<F> {
    pub(super) fn next_chunk(&mut self, max_records: u64, max_bytes: u64) -> Result<Option<Chunk>, FileFault> {
        let max_records = max_records.max(1);
        let max_bytes = max_bytes.clamp(1, MAX_CHUNK_BYTES);
        let read_bytes = usize::try_from(max_bytes.clamp(*READ_BYTES.start(), *READ_BYTES.end())).unwrap_or(usize::MAX);
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        loop {
            let Blocks { block, ended, fault, .. } = &mut self.blocks;
            let full = *ended || block.len() >= max_bytes;
            let taken = if full {
                self.framing.take(block, max_records, max_bytes, *ended && fault.is_none())
            } else {
                Taken { records: 0, bytes: 0 }
            };
            if taken.bytes > 0 {
                let bytes = block.split_to(taken.bytes);
                let first = self.cursor.record;
                self.cursor.record += taken.records;
                self.cursor.byte += taken.bytes as u64;
                return Ok(Some(Chunk::new(first, taken.records, self.framing.content(bytes))));
            }
            if *ended {
                block.clear();
                return match fault.take() {
                    Some(reason) => Err(FileFault::Content { record: self.cursor.record, reason }),
                    None => Ok(None),
                };
            }
            if block.len() > MAX_RECORD_BYTES {
                return self.too_long(read_bytes).map(Some).map_err(FileFault::Io);
            }
            self.blocks.read_more(read_bytes).map_err(FileFault::Io)?;
        }
    }

    /// Passes over a record that is longer than [`MAX_RECORD_BYTES`]; its beginning is kept.
    fn too_long(&mut self, read_bytes: usize) -> io::Result<Chunk> {
        let beginning = self.blocks.block.slice(..MAX_RECORD_BYTES);
        let mut state = PassState::default();
        let mut length = 0_u64;
        loop {
            let block = &mut self.blocks.block;
            if let Some(end) = self.framing.pass(&mut state, block) {
                block.advance(end);
                length += end as u64;
                break;
            }
            length += block.len() as u64;
            block.clear();
            if self.blocks.ended {
                break;
            }
            self.blocks.read_more(read_bytes)?;
        }
        let first = self.cursor.record;
        self.cursor.record += 1;
        self.cursor.byte += length;
        Ok(Chunk::new(first, 1, Content::TooLong { beginning, length }))
    }
}

/// One record a line.
pub(super) struct JsonLines;

impl Framing for JsonLines {
    fn take(&self, bytes: &[u8], max_records: u64, max_bytes: usize, ended: bool) -> Taken {
        let window = &bytes[..bytes.len().min(max_bytes)];
        let newlines = memchr::memchr_iter(b'\n', window).count() as u64;
        if newlines > max_records {
            let nth = usize::try_from(max_records - 1).unwrap_or(usize::MAX);
            let end = memchr::memchr_iter(b'\n', window).nth(nth).map_or(0, |at| at + 1);
            return Taken { records: max_records, bytes: end };
        }
        let whole = memchr::memrchr(b'\n', window).map_or(0, |at| at + 1);
        if ended && window.len() == bytes.len() && whole < bytes.len() && newlines < max_records {
            return Taken { records: newlines + 1, bytes: bytes.len() };
        }
        if whole > 0 {
            return Taken { records: newlines, bytes: whole };
        }
        match memchr::memchr(b'\n', bytes) {
            Some(at) => Taken { records: 1, bytes: at + 1 },
            None if ended && !bytes.is_empty() => Taken { records: 1, bytes: bytes.len() },
            None => Taken { records: 0, bytes: 0 },
        }
    }

    fn pass(&self, _: &mut PassState, bytes: &[u8]) -> Option<usize> {
        memchr::memchr(b'\n', bytes).map(|at| at + 1)
    }

    fn content(&self, bytes: Bytes) -> Content {
        Content::JsonLines(bytes)
    }
}

/// Opens a file of JSON lines.
pub(super) fn open_json(content: FileContent, from: FileCursor) -> Result<Lines<JsonLines>, ReadFault> {
    let mut blocks = Blocks::new(content);
    let mut cursor = from;
    if from.byte == 0 {
        cursor.byte = blocks.pass_bom().map_err(ReadFault::Io)?;
    } else {
        blocks.skip(from.byte)?;
    }
    Ok(Lines { blocks, cursor, framing: JsonLines })
}
