//! Positions in a source, and the ranges `(from, to]` that batches take.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::chain::LedgerPosition;
use crate::retention::RetentionBounds;

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
    /// Records of some partitions of a Kafka topic.
    Kafka(KafkaRange),
    /// The batches of requests behind one position of the ledger, up to another; none, where only requests are tried again of which
    /// no row was seen.
    Ledger {
        /// Where the table is.
        from: LedgerPosition,
        /// Where it goes.
        to: LedgerPosition,
    },
    /// The rows of a table that are past their retention at one moment.
    Retention(RetentionBounds),
}

/// What a batch takes from its shard of a Kafka topic. Its newest record alone tells where a chain reads on: it names every
/// partition of the shard, also those of which the batch takes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaRange {
    /// The topic as the cluster knows it, the namespace's prefix included.
    pub topic: String,
    /// The topic's id, where the client can find it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<String>,
    /// The partitions, ascending.
    pub partitions: Vec<PartitionRange>,
    /// All losses that the user accepted in this chain so far, in the order they were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<OffsetLoss>,
}

/// What a batch takes from one partition: the records from the place `from` up to the place `to`. Offsets between them that hold no
/// record (control records, aborted ones, compacted ones) are normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRange {
    /// The partition.
    pub partition: i32,
    /// Where it begins: the offset of the first record that can belong to it.
    pub from: Offset,
    /// Where it ends: the offset of the first record that does not.
    pub to: Offset,
    /// The last record taken from the partition, in this batch or before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastTaken>,
}

/// What the last record taken from a partition was. A topic that was made anew has another one there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTaken {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp in milliseconds since 1970; -1 if it had none.
    pub timestamp_ms: i64,
    /// The bytes of its value; 0 for a tombstone.
    pub value_bytes: u64,
}

/// A place in a partition: before the record of that offset, behind all lower ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub i64);

impl Offset {
    /// The place behind the record of this offset.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Offsets of a partition that were not read and cannot be read any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetLoss {
    /// The partition.
    pub partition: i32,
    /// Where the loss begins: the place up to which all was taken.
    pub from: Offset,
    /// Where it ends, and reading goes on; `None` when there is no telling how far the lost partition went.
    pub to: Option<Offset>,
    /// How they were lost.
    pub how: LossKind,
}

/// How offsets were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// The cluster deleted the records before they were read.
    Expired,
    /// The topic was deleted and made again, or cut: what stands at these offsets now is something else.
    MadeAnew,
    /// The partition is no longer there.
    Shrunk,
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
