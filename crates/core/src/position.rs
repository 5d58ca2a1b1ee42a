//! Positions in a source, and the ranges `(from, to]` that batches take.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// What a batch takes from its source. Fixed by the first record of the batch for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Range {
    /// Pieces of files, in the order they are read.
    Files(Vec<FileRange>),
    /// Whole files of the table `dead_letters`, to be tried again.
    DeadLetters {
        /// The version they were live at.
        version: u64,
        /// Their paths in the table, as stored.
        files: Vec<String>,
    },
}

/// A piece of one source file. Only the last piece of a batch may end before its file does; the next batch of the chain then
/// begins with the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRange {
    /// The file's name relative to the source's directory, with `/` between parts.
    pub path: String,
    /// The file's size in bytes when it was taken.
    pub size: u64,
    /// What the file was when it was taken.
    pub stamp: FileStamp,
    /// Where the piece begins; nothing before it belongs to it.
    pub from: FileCursor,
    /// Where the piece ends; `None`: at the end of the file.
    pub to: Option<FileCursor>,
}

/// A place between two records of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct FileCursor {
    /// How many records stand before this place (for line formats blank lines count: the number is the next line's, from 0;
    /// a CSV header does not count).
    pub record: u64,
    /// How many bytes of decompressed content stand before it; 0 for Parquet and Avro.
    pub byte: u64,
}

/// A 64-bit digest of what tells one state of a file from another: its size and time of modification, or its ETag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileStamp(pub u64);

impl FileStamp {
    /// The stamp of a file of `size` bytes whose version the store names `version` (an ETag, or a time of modification).
    #[must_use]
    pub fn new(size: u64, version: &str) -> Self {
        Self(xxh3_64(format!("{size} {version}").as_bytes()))
    }
}
