//! Reads Avro object container files block by block.
//!
//! The framing is read here: Arrow's reader takes a file that ends within a block for complete, and loses the rows that it has
//! already decoded when it meets a fault. Each block is given to it as a small file of its own, behind the file's header; a batch
//! with a fault in it is decoded again in ever smaller ones, so that no row before the fault is lost.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow_avro::reader::{Reader, ReaderBuilder};
use bytes::Bytes;

use super::Batch;
use super::batches::{MAX_BATCH_ROWS, ReadBatches};
use super::input::{Blocks, Content, ReadFault};

/// The largest header or block that is taken in, in bytes as stored.
const MAX_BLOCK_BYTES: usize = 256 << 20;
const READ_BYTES: usize = 1 << 20;
const SYNC_BYTES: usize = 16;

/// The blocks of an Avro file.
pub(super) struct AvroBlocks {
    blocks: Blocks,
    header: Vec<u8>,
    open: Option<OpenBlock>,
    /// Rows that were taken before.
    skip: u64,
    row_bytes: u64,
}

struct OpenBlock {
    /// The block behind the file's header.
    file: Bytes,
    reader: Reader<io::Cursor<Bytes>>,
    batch_rows: usize,
    records: u64,
    /// Records that the reader still has.
    left: u64,
}

/// Something of the file's framing was read: a value and how many bytes it has; `None`: the bytes end before it does.
type Framed<T> = Result<Option<(T, usize)>, String>;

impl AvroBlocks {
    pub(super) fn open(content: Content, from_record: u64) -> Result<Self, ReadFault> {
        let mut blocks = Blocks::new(content);
        let ((), length) = read(&mut blocks, header)?.ok_or_else(|| ReadFault::Content("the Avro file is empty".to_owned()))?;
        let header = blocks.block.split_to(length).to_vec();
        Ok(Self { blocks, header, open: None, skip: from_record, row_bytes: 64 })
    }

    fn next_rows(&mut self, rows: u64) -> Result<Option<RecordBatch>, ReadFault> {
        loop {
            if let Some(open) = &mut self.open {
                match guard(|| open.reader.next().transpose()) {
                    Ok(Some(batch)) => {
                        open.left = open.left.checked_sub(batch.num_rows() as u64).ok_or_else(wrong_count)?;
                        return Ok(Some(batch));
                    }
                    Ok(None) if open.left > 0 => return Err(wrong_count()),
                    Ok(None) => self.open = None,
                    // Of a batch with a fault in it the reader gives nothing: the rows before the fault are in one half of it.
                    Err(ReadFault::Content(_)) if open.batch_rows > 1 => {
                        self.skip += open.records - open.left;
                        *open = OpenBlock::new(open.file.clone(), open.records, open.batch_rows / 2)?;
                        continue;
                    }
                    Err(fault) => return Err(fault),
                }
            }
            let Some((block, length)) = read(&mut self.blocks, block)? else {
                return if self.skip == 0 {
                    Ok(None)
                } else {
                    Err(ReadFault::Content("the file has fewer records than were read of it before".to_owned()))
                };
            };
            let bytes = self.blocks.block.split_to(length);
            if bytes[length - SYNC_BYTES..] != self.header[self.header.len() - SYNC_BYTES..] {
                return Err(ReadFault::Content("the Avro file is broken: a block has a wrong sync marker".to_owned()));
            }
            if block.records <= self.skip {
                self.skip -= block.records;
                continue;
            }
            self.row_bytes = bytes.len() as u64 / block.records;
            let mut file = Vec::with_capacity(self.header.len() + bytes.len());
            file.extend_from_slice(&self.header);
            file.extend_from_slice(&bytes);
            let batch_rows = usize::try_from(rows.min(MAX_BATCH_ROWS)).unwrap_or(1);
            self.open = Some(OpenBlock::new(Bytes::from(file), block.records, batch_rows.max(1))?);
        }
    }
}

impl OpenBlock {
    fn new(file: Bytes, records: u64, batch_rows: usize) -> Result<Self, ReadFault> {
        let content = io::Cursor::new(file.clone());
        let reader = guard(|| ReaderBuilder::new().with_batch_size(batch_rows).build(content))?;
        Ok(Self { file, reader, batch_rows, records, left: records })
    }
}

impl ReadBatches for AvroBlocks {
    fn next_batch(&mut self, rows: u64) -> Result<Option<Batch>, ReadFault> {
        loop {
            let Some(batch) = self.next_rows(rows)? else { return Ok(None) };
            let length = batch.num_rows() as u64;
            if self.skip >= length {
                self.skip -= length;
                continue;
            }
            let skip = usize::try_from(std::mem::take(&mut self.skip)).unwrap_or(0);
            return Ok(Some(Batch::new(batch.slice(skip, batch.num_rows() - skip))));
        }
    }

    fn row_bytes(&self) -> u64 {
        self.row_bytes
    }
}

fn wrong_count() -> ReadFault {
    ReadFault::Content("the Avro file is broken: a block has another number of records than it says".to_owned())
}

/// Runs a step of the Avro reader; its faults are those of the content, and so is a panic.
fn guard<T>(step: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ReadFault> {
    match catch_unwind(AssertUnwindSafe(step)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(ReadFault::Content(format!("the Avro file is broken: {error}"))),
        Err(_) => Err(ReadFault::Content("the Avro file is broken: its reader stopped".to_owned())),
    }
}

/// Finds something at the front of the content, reading on until it is whole; `None` at the end of the file.
fn read<T>(blocks: &mut Blocks, find: impl Fn(&[u8]) -> Framed<T>) -> Result<Option<(T, usize)>, ReadFault> {
    loop {
        if !blocks.block.is_empty()
            && let Some(found) = find(&blocks.block).map_err(ReadFault::Content)?
        {
            return Ok(Some(found));
        }
        if blocks.ended {
            return match blocks.fault.take() {
                Some(reason) => Err(ReadFault::Content(reason)),
                None if blocks.block.is_empty() => Ok(None),
                None => Err(ReadFault::Content("the Avro file is cut off".to_owned())),
            };
        }
        if blocks.block.len() > MAX_BLOCK_BYTES {
            return Err(ReadFault::Content(format!("the Avro file has a block of more than {MAX_BLOCK_BYTES} bytes")));
        }
        blocks.read_more(READ_BYTES).map_err(ReadFault::Io)?;
    }
}

/// A block's head.
struct BlockHead {
    records: u64,
}

/// A whole block: its number of records, its size, its bytes, a sync marker.
fn block(bytes: &[u8]) -> Framed<BlockHead> {
    let Some((records, a)) = long(bytes)? else { return Ok(None) };
    let Some((size, b)) = long(&bytes[a..])? else { return Ok(None) };
    let broken = || "the Avro file is broken: a block has a negative size".to_owned();
    let (records, size) = (u64::try_from(records).map_err(|_| broken())?, usize::try_from(size).map_err(|_| broken())?);
    let length = size.saturating_add(a + b + SYNC_BYTES);
    Ok((bytes.len() >= length).then_some((BlockHead { records }, length)))
}

/// The header: a magic number, a map from text to bytes, a sync marker.
fn header(bytes: &[u8]) -> Framed<()> {
    const MAGIC: &[u8] = b"Obj\x01";
    if !bytes.starts_with(&MAGIC[..MAGIC.len().min(bytes.len())]) {
        return Err("not an Avro object container file".to_owned());
    }
    let mut at = MAGIC.len();
    loop {
        let Some((count, length)) = long(bytes.get(at..).unwrap_or_default())? else { return Ok(None) };
        at += length;
        if count == 0 {
            at += SYNC_BYTES;
            return Ok((bytes.len() >= at).then_some(((), at)));
        }
        if count < 0 {
            // A negative count is followed by the size of the entries.
            let Some((_, length)) = long(bytes.get(at..).unwrap_or_default())? else { return Ok(None) };
            at += length;
        }
        for _ in 0..count.unsigned_abs().saturating_mul(2) {
            let Some((size, length)) = long(bytes.get(at..).unwrap_or_default())? else { return Ok(None) };
            let size = usize::try_from(size).map_err(|_| "the Avro file is broken: its header has a negative size".to_owned())?;
            at = at.saturating_add(length).saturating_add(size);
        }
    }
}

/// A zig-zag number of variable length.
fn long(bytes: &[u8]) -> Framed<i64> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some(((value >> 1).cast_signed() ^ -(value & 1).cast_signed(), at + 1)));
        }
    }
    if bytes.len() < 10 { Ok(None) } else { Err("the Avro file is broken: a number without an end".to_owned()) }
}
