//! Reads one source file from a cursor on and cuts it into chunks of whole records.
//!
//! Place in the flow: runs on the one thread that reads; what takes time is left to the decoders. Invariants: chunks follow each
//! other without a gap, and reading on from any cursor gives exactly the records behind it (`position_never_goes_back`); memory
//! follows the size of a chunk or of the longest record, never that of the file.

mod avro;
mod batches;
pub(super) mod csv;
mod input;
mod lines;
mod parquet;

use std::sync::Arc;

use alluvium_core::{FileCursor, FileFormat};
use arrow::array::RecordBatch;
use bytes::Bytes;

use avro::AvroBlocks;
use batches::Batches;
use csv::CsvRecords;
use input::{Content as FileContent, ReadFault};
pub use input::{FileFault, Input};
use lines::{JsonLines, Lines};
use parquet::ParquetRows;

use super::kafka::Messages;

/// The longest text record that is taken in, in bytes and with its line's end. A longer one is refused, and only its first bytes
/// are kept.
pub const MAX_RECORD_BYTES: usize = 64 << 20;

/// Whole records of one file, to be decoded on any thread.
pub struct Chunk {
    first: u64,
    records: u64,
    pub(super) content: Content,
}

/// What a chunk holds.
pub(super) enum Content {
    /// Lines of JSON; the last may lack its end.
    JsonLines(Bytes),
    /// Records under a header; the last may lack its line's end.
    Csv { header: Arc<csv::Header>, bytes: Bytes },
    /// One record that is too long to be held, and how long it is.
    TooLong { beginning: Bytes, length: u64 },
    /// Records in columns.
    Batch(Batch),
    /// Messages of one Kafka partition.
    Messages(Messages),
}

/// Records in columns.
pub(super) struct Batch {
    pub rows: RecordBatch,
    /// Rows, in order, of which the named column holds a time finer than its array can tell.
    pub too_fine: Vec<(usize, String)>,
}

impl Chunk {
    const fn new(first: u64, records: u64, content: Content) -> Self {
        Self { first, records, content }
    }

    /// Messages of one Kafka partition.
    pub(crate) fn of_messages(messages: Messages) -> Self {
        Self { first: messages.first_offset(), records: messages.len() as u64, content: Content::Messages(messages) }
    }

    /// The number of its first record in the file.
    #[must_use]
    pub const fn first_record(&self) -> u64 {
        self.first
    }

    /// How many records it holds at most: blank lines of JSON are counted here, but are no records.
    #[must_use]
    pub const fn max_records(&self) -> u64 {
        self.records
    }

    /// The size of its content in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.content {
            Content::JsonLines(bytes) | Content::Csv { bytes, .. } | Content::TooLong { beginning: bytes, .. } => {
                bytes.len() as u64
            }
            Content::Batch(batch) => batch.rows.get_array_memory_size() as u64,
            Content::Messages(messages) => messages.memory_bytes(),
        }
    }
}

/// One file that is being read.
pub struct Splitter {
    format: Format,
}

enum Format {
    Json(Lines<JsonLines>),
    Csv(Lines<CsvRecords>),
    Parquet(Box<Batches<ParquetRows>>),
    Avro(Box<Batches<AvroBlocks>>),
}

impl Splitter {
    /// Opens a file to read it from `from` on. The ending of `name` says how it is compressed.
    ///
    /// # Errors
    /// The content is broken at its beginning, or the store fails.
    pub fn open(input: Input, name: &str, format: FileFormat, from: FileCursor) -> Result<Self, FileFault> {
        Self::open_format(input, name, format, from).map_err(|fault| fault.at(from.record))
    }

    /// Whether cursors in the file of that name count the bytes it is stored as, and not those of what was compressed.
    #[must_use]
    pub fn counts_stored_bytes(name: &str) -> bool {
        !FileContent::is_compressed(name)
    }

    fn open_format(input: Input, name: &str, format: FileFormat, from: FileCursor) -> Result<Self, ReadFault> {
        let format = match format {
            FileFormat::Json => Format::Json(lines::open_json(FileContent::open(input, name)?, from)?),
            FileFormat::Csv => Format::Csv(csv::open(FileContent::open(input, name)?, from)?),
            FileFormat::Parquet => Format::Parquet(Box::new(Batches::new(ParquetRows::open(input, name, from.record)?, from))),
            FileFormat::Avro => {
                let blocks = AvroBlocks::open(FileContent::open(input, name)?, from.record)?;
                Format::Avro(Box::new(Batches::new(blocks, from)))
            }
        };
        Ok(Self { format })
    }

    /// The next chunk: at most `max_records` records, and about `max_bytes` bytes of content unless one record is longer.
    /// `None` at the end of the file.
    ///
    /// # Errors
    /// The content is broken here (all records before were given; nothing more will be), or the store fails.
    pub fn next_chunk(&mut self, max_records: u64, max_bytes: u64) -> Result<Option<Chunk>, FileFault> {
        match &mut self.format {
            Format::Json(lines) => lines.next_chunk(max_records, max_bytes),
            Format::Csv(lines) => lines.next_chunk(max_records, max_bytes),
            Format::Parquet(rows) => rows.next_chunk(max_records, max_bytes),
            Format::Avro(blocks) => blocks.next_chunk(max_records, max_bytes),
        }
    }

    /// What a record of the file needs beside its own bytes to be decoded again: the header line of CSV.
    #[must_use]
    pub fn context(&self) -> Option<&str> {
        match &self.format {
            Format::Csv(lines) => Some(&lines.framing.header.line),
            Format::Json(_) | Format::Parquet(_) | Format::Avro(_) => None,
        }
    }

    /// Where the last chunk ended: from here on a later batch reads the rest.
    #[must_use]
    pub const fn cursor(&self) -> FileCursor {
        match &self.format {
            Format::Json(lines) => lines.cursor,
            Format::Csv(lines) => lines.cursor,
            Format::Parquet(rows) => rows.cursor,
            Format::Avro(blocks) => blocks.cursor,
        }
    }
}
