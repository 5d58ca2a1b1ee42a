//! Reads one source file from a cursor on and cuts it into chunks of whole records.
//!
//! Place in the flow: runs on the one thread that reads; what takes time is left to the decoders. Invariants: chunks follow each
//! other without a gap, and reading on from any cursor gives exactly the records behind it (`position_never_goes_back`); memory
//! follows the size of a chunk or of the longest record, never that of the file.

mod input;
mod lines;

use alluvium_core::{FileCursor, FileFormat};
use bytes::Bytes;

use input::{Blocks, Content as FileContent};
pub use input::{FileFault, Input};
use lines::{JsonLines, Lines};

/// The longest text record that is taken in, in bytes. A longer one is refused, and only its first bytes are kept.
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
    /// One record that is too long to be held.
    TooLong { beginning: Bytes, reason: String },
}

impl Chunk {
    const fn new(first: u64, records: u64, content: Content) -> Self {
        Self { first, records, content }
    }

    /// The number of its first record in the file.
    #[must_use]
    pub const fn first_record(&self) -> u64 {
        self.first
    }

    /// How many records it holds at most: blank lines are counted here, but are no records.
    #[must_use]
    pub const fn max_records(&self) -> u64 {
        self.records
    }

    /// The size of its content in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.content {
            Content::JsonLines(bytes) | Content::TooLong { beginning: bytes, .. } => bytes.len() as u64,
        }
    }
}

/// One file that is being read.
pub struct Splitter {
    format: Format,
}

enum Format {
    Json(Lines<JsonLines>),
}

impl Splitter {
    /// Opens a file to read it from `from` on. The ending of `name` says how it is compressed.
    ///
    /// # Errors
    /// The content is broken at its beginning, or the store fails.
    pub fn open(input: Input, name: &str, format: FileFormat, from: FileCursor) -> Result<Self, FileFault> {
        let format = match format {
            FileFormat::Json => {
                let content = FileContent::open(input, name, from.byte).map_err(|fault| fault.at(from.record))?;
                let mut lines = Lines { blocks: Blocks::new(content), cursor: from, framing: JsonLines };
                if from.byte == 0 {
                    lines.pass_bom().map_err(FileFault::Io)?;
                }
                Format::Json(lines)
            }
            FileFormat::Csv | FileFormat::Parquet | FileFormat::Avro => {
                return Err(FileFault::Content { record: 0, reason: "not read yet".into() });
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
        }
    }

    /// Where the last chunk ended: from here on a later batch reads the rest.
    #[must_use]
    pub const fn cursor(&self) -> FileCursor {
        match &self.format {
            Format::Json(lines) => lines.cursor,
        }
    }
}
