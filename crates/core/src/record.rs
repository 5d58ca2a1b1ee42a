//! The batch record: what one attempt at a batch intends, written once before anything is published.
//!
//! The stored form is described in `docs/formats/batch-record.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::chain::{Attempt, BatchKey, BatchNumber, ChainId, LedgerPosition, LedgerShape};
use crate::position::Range;

/// The version of the stored form that this program writes and the newest it reads.
pub const RECORD_FORMAT: u32 = 1;

/// One attempt at one batch, as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchRecord {
    /// [`RECORD_FORMAT`].
    pub format: u32,
    /// The chain.
    #[serde(flatten)]
    pub chain: ChainId,
    /// The batch.
    pub batch: BatchNumber,
    /// The attempt.
    pub attempt: Attempt,
    /// What the attempt intends, or that it will never be.
    pub body: RecordBody,
}

impl BatchRecord {
    /// The batch and attempt.
    #[must_use]
    pub const fn key(&self) -> BatchKey {
        BatchKey { batch: self.batch, attempt: self.attempt }
    }
}

/// What stands at a record's key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordBody {
    /// Written by vacuum where no record stood: this attempt will never be published, its files may go.
    Void,
    /// The attempt's intent.
    Intent(Box<Recorded>),
}

/// All that publishing the batch needs; nothing is read from the source again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// What was read.
    pub range: Range,
    /// The files of the deciding table.
    pub data: TableFiles,
    /// The files of `dead_letters`.
    pub dead_letters: TableFiles,
    /// The files of `retries`.
    #[serde(default, skip_serializing_if = "TableFiles::is_empty")]
    pub retries: TableFiles,
    /// The files of what is remembered of requests that changed rows: `_alluvium/outcomes`.
    #[serde(default, skip_serializing_if = "TableFiles::is_empty")]
    pub outcomes: TableFiles,
    /// What the ledger was when the rows were resolved: the data table must be at this position to take them.
    #[serde(default, skip_serializing_if = "LedgerPosition::is_beginning")]
    pub ledger: LedgerPosition,
    /// The declaration that they were resolved for; `None`: no request had been taken in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<LedgerShape>,
    /// What a batch does to rows that stand in the table already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutation: Option<Mutation>,
    /// What a batch does to them that leaves the table at its position of the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<TableRewrite>,
    /// What notifications will tell, by organisation and event date.
    pub counts: Vec<DatePartitionCount>,
    /// Input records that were passed over on purpose.
    pub skipped: u64,
    /// When the attempt was staged, in microseconds since 1970; the `_ingested_at` of its rows.
    pub staged_at_micros: i64,
}

/// The files an attempt adds to one table and removes from it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TableFiles {
    /// Files to add.
    pub adds: Vec<AddedFile>,
    /// Files to remove, by their path as stored; the commit is refused if one of them is no longer live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removes: Vec<String>,
    /// Of removed files that another program had marked rows in: the log's deletion vector. A remove without it would remove another
    /// file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub marks: BTreeMap<String, serde_json::Value>,
    /// Files of the table's change data feed, if it has one: rows before and after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<AddedFile>,
}

/// How a batch moves a data table from one position of the ledger to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutation {
    /// The position that the table has afterwards.
    pub to: LedgerPosition,
    /// What the table was when its files were looked through.
    pub planned_on: PlannedOn,
    /// Files of other writers that were looked through and stay, by their paths as stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<String>,
    /// The name of the file that says which rows of which files changed, if any did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrites: Option<String>,
    /// Every request of the batches up to this one has a state in the dataset afterwards.
    pub told: LedgerPosition,
    /// What it took.
    pub work: RewriteWork,
}

/// How a batch takes rows out of files, or files out of a table, at whatever position of the ledger the table is: each row that stays is
/// what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRewrite {
    /// The name of the file that says which rows of which files went, if not only whole files did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrites: Option<String>,
    /// What it took.
    pub work: RewriteWork,
}

/// The live files of a table's version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedOn {
    /// The version.
    pub version: u64,
    /// A digest of the paths of its live files: another version with the same live files will do as well.
    pub live_files: String,
}

/// What rewriting files took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RewriteWork {
    /// Rows of which a value changed.
    pub updated: u64,
    /// Rows that went.
    pub deleted: u64,
    /// Data files opened.
    pub files_opened: u64,
    /// Data files replaced.
    pub files_rewritten: u64,
    /// Bytes of column chunks copied as they were.
    pub bytes_copied: u64,
    /// Bytes of column chunks encoded anew.
    pub bytes_encoded: u64,
}

impl RewriteWork {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl TableFiles {
    /// Whether nothing is added and nothing removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.adds.is_empty() && self.removes.is_empty()
    }

    /// Rows in all files together.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.adds.iter().map(|a| a.rows).sum()
    }
}

/// A staged file, with what its `add` action in the Delta log will say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AddedFile {
    /// Path relative to the table, as stored (not percent-encoded).
    pub path: String,
    /// Partition columns and their values in Delta's string form, in the table's order; null is null.
    pub partition_values: Vec<(String, Option<String>)>,
    /// Size in bytes.
    pub size: u64,
    /// Rows.
    pub rows: u64,
    /// When the file was staged, in milliseconds since 1970.
    pub modified_ms: i64,
    /// Delta's statistics, as the JSON text that the log will hold.
    pub stats: String,
}

/// Rows of one organisation on one event date that a batch changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatePartitionCount {
    /// The organisation, as text.
    pub org: String,
    /// Days since 1970-01-01.
    pub event_date: i32,
    /// Rows that came.
    pub inserted: u64,
    /// Rows of which a value changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub updated: u64,
    /// Rows that went.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deleted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// That a batch is finished: every table that follows has it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneMark {
    /// [`RECORD_FORMAT`].
    pub format: u32,
    /// The batch.
    pub batch: BatchNumber,
    /// The attempt that the deciding table carries.
    pub attempt: Attempt,
    /// The version of the deciding table that carries it.
    pub table_version: u64,
    /// What the batch did.
    pub outcome: BatchOutcome,
    /// When the deciding table was committed to, in milliseconds since 1970.
    pub committed_at_ms: i64,
}

/// What a batch did, in rows and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BatchOutcome {
    /// Rows inserted.
    pub inserted: u64,
    /// Records refused.
    pub dead_letters: u64,
    /// Records passed over on purpose.
    pub skipped: u64,
    /// Files added to the data table.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was done to rows that stood in the table.
    #[serde(default, skip_serializing_if = "RewriteWork::is_nothing")]
    pub work: RewriteWork,
}

impl std::ops::AddAssign for BatchOutcome {
    fn add_assign(&mut self, one: Self) {
        self.inserted += one.inserted;
        self.dead_letters += one.dead_letters;
        self.skipped += one.skipped;
        self.files += one.files;
        self.bytes += one.bytes;
        self.work.updated += one.work.updated;
        self.work.deleted += one.work.deleted;
        self.work.files_opened += one.work.files_opened;
        self.work.files_rewritten += one.work.files_rewritten;
        self.work.bytes_copied += one.work.bytes_copied;
        self.work.bytes_encoded += one.work.bytes_encoded;
    }
}

impl Recorded {
    /// The name of the file that says which rows of which files changed or went, if there is one.
    #[must_use]
    pub fn rewrites(&self) -> Option<&str> {
        let of_mutation = self.mutation.as_ref().and_then(|mutation| mutation.rewrites.as_deref());
        of_mutation.or_else(|| self.rewrite.as_ref()?.rewrites.as_deref())
    }

    /// What publishing this does.
    #[must_use]
    pub fn outcome(&self) -> BatchOutcome {
        let bytes = self.data.adds.iter().map(|a| a.size).sum();
        let of_rewrite = self.rewrite.as_ref().map(|rewrite| rewrite.work);
        let rewritten = self.mutation.as_ref().map(|mutation| mutation.work).or(of_rewrite);
        BatchOutcome {
            inserted: if rewritten.is_some() { 0 } else { self.data.rows() },
            dead_letters: self.dead_letters.rows(),
            skipped: self.skipped,
            files: self.data.adds.len() as u64,
            bytes,
            work: rewritten.unwrap_or(RewriteWork { bytes_encoded: bytes, ..RewriteWork::default() }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::chain::{Incarnation, Job, Shard};
    use crate::dataset::DatasetName;
    use crate::position::{
        FileCursor, FileRange, FileStamp, KafkaRange, LastTaken, LossKind, Offset, OffsetLoss, PartitionRange,
    };
    use crate::retention::Retention;

    fn chain(shard: Shard) -> ChainId {
        let incarnation = Incarnation("0123456789abcdef0123456789abcdef".to_owned());
        ChainId { incarnation, job: Job::Ingest, dataset: DatasetName("edit".to_owned()), shard }
    }

    fn reads_and_writes<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(golden: &str, value: &T) {
        assert_eq!(&serde_json::from_str::<T>(golden).unwrap(), value);
        assert_eq!(serde_json::to_value(value).unwrap(), serde_json::from_str::<Value>(golden).unwrap());
    }

    #[test]
    fn the_golden_record_reads_and_writes_as_it_is() {
        let (first, second) = (FileCursor { record: 10, byte: 2048 }, FileCursor { record: 3, byte: 66 });
        let files = vec![
            FileRange {
                path: "2026/a.json.gz".to_owned(),
                size: 1234,
                stamp: FileStamp(0x0123_4567_89ab_cdef),
                from: first,
                to: None,
            },
            FileRange {
                path: "2026/b.json".to_owned(),
                size: 99,
                stamp: FileStamp(1),
                from: FileCursor::default(),
                to: Some(second),
            },
        ];
        let org = "#en/50% \"x\"".to_owned();
        let added = AddedFile {
            path: "part-ingest-edit-0-00000000000000000007-0001-0123456789abcdef0123456789abcdef-f00d-00000.parquet".to_owned(),
            partition_values: vec![("channel".to_owned(), Some(org.clone())), ("country".to_owned(), None)],
            size: 4096,
            rows: 12,
            modified_ms: 1_795_965_978_528,
            stats: "{\"numRecords\":12}".to_owned(),
        };
        let recorded = Recorded {
            range: Range::Files(files),
            data: TableFiles { adds: vec![added], ..TableFiles::default() },
            dead_letters: TableFiles { removes: vec!["part-old.parquet".to_owned()], ..TableFiles::default() },
            retries: TableFiles::default(),
            outcomes: TableFiles::default(),
            ledger: LedgerPosition::BEGINNING,
            shape: None,
            mutation: None,
            rewrite: None,
            counts: vec![DatePartitionCount { org, event_date: 20_000, inserted: 12, updated: 0, deleted: 0 }],
            skipped: 2,
            staged_at_micros: 1_795_965_978_528_001,
        };
        let record = BatchRecord {
            format: RECORD_FORMAT,
            chain: chain(Shard::WHOLE),
            batch: BatchNumber(7),
            attempt: Attempt(1),
            body: RecordBody::Intent(Box::new(recorded)),
        };
        reads_and_writes(include_str!("../tests/golden/batch-record-v1.json"), &record);
    }

    #[test]
    fn the_golden_record_of_a_topic_reads_and_writes_as_it_is() {
        let last = LastTaken { offset: Offset(41), timestamp_ms: 1_795_965_978_528, value_bytes: 312 };
        let partition = |partition, from, to, last| PartitionRange { partition, from: Offset(from), to: Offset(to), last };
        let loss = |partition, from, to, how| OffsetLoss { partition, from: Offset(from), to, how };
        let range = KafkaRange {
            topic: "dev.engagements".to_owned(),
            topic_id: Some("bXktdG9waWMtaWQ".to_owned()),
            partitions: vec![partition(1, 17, 43, Some(last)), partition(5, 0, 0, None)],
            losses: vec![
                loss(1, 3, Some(Offset(17)), LossKind::Expired),
                loss(5, 9, None, LossKind::MadeAnew),
                loss(9, 2, None, LossKind::Shrunk),
            ],
        };
        let recorded = Recorded {
            range: Range::Kafka(range),
            data: TableFiles::default(),
            dead_letters: TableFiles::default(),
            retries: TableFiles::default(),
            outcomes: TableFiles::default(),
            ledger: LedgerPosition::BEGINNING,
            shape: None,
            mutation: None,
            rewrite: None,
            counts: Vec::new(),
            skipped: 24,
            staged_at_micros: 1_795_965_978_528_001,
        };
        let record = BatchRecord {
            format: RECORD_FORMAT,
            chain: chain(Shard(1)),
            batch: BatchNumber(2),
            attempt: Attempt::FIRST,
            body: RecordBody::Intent(Box::new(recorded)),
        };
        reads_and_writes(include_str!("../tests/golden/batch-record-kafka-v1.json"), &record);
    }

    #[test]
    fn the_golden_record_of_a_retention_reads_and_writes_as_it_is() {
        let kept = Retention { others: Some(Duration::from_hours(24)), by_org: [("A".to_owned(), Duration::ZERO)].into() };
        let work = RewriteWork { deleted: 3, files_opened: 1, files_rewritten: 2, bytes_copied: 10, ..RewriteWork::default() };
        let recorded = Recorded {
            range: Range::Retention(kept.bounds(1_795_965_978_528_001)),
            data: TableFiles { removes: vec!["part-old.parquet".to_owned()], ..TableFiles::default() },
            dead_letters: TableFiles::default(),
            retries: TableFiles::default(),
            outcomes: TableFiles::default(),
            ledger: LedgerPosition(4),
            shape: None,
            mutation: None,
            rewrite: Some(TableRewrite { rewrites: Some("rewrites-of-it".to_owned()), work }),
            counts: vec![DatePartitionCount { org: "A".to_owned(), event_date: 20_000, inserted: 0, updated: 0, deleted: 3 }],
            skipped: 0,
            staged_at_micros: 1_795_965_978_528_001,
        };
        let record = BatchRecord {
            format: RECORD_FORMAT,
            chain: ChainId { job: Job::Retain, ..chain(Shard::WHOLE) },
            batch: BatchNumber(2),
            attempt: Attempt::FIRST,
            body: RecordBody::Intent(Box::new(recorded)),
        };
        reads_and_writes(include_str!("../tests/golden/batch-record-retain-v1.json"), &record);
    }

    #[test]
    fn the_golden_void_reads_and_writes_as_it_is() {
        let record = BatchRecord {
            format: RECORD_FORMAT,
            chain: chain(Shard::REPLAY),
            batch: BatchNumber::FIRST,
            attempt: Attempt::FIRST,
            body: RecordBody::Void,
        };
        reads_and_writes(include_str!("../tests/golden/batch-record-void-v1.json"), &record);
    }

    #[test]
    fn the_golden_done_mark_reads_and_writes_as_it_is() {
        let outcome =
            BatchOutcome { inserted: 12, dead_letters: 1, skipped: 2, files: 1, bytes: 4096, work: RewriteWork::default() };
        let mark = DoneMark {
            format: RECORD_FORMAT,
            batch: BatchNumber(7),
            attempt: Attempt(1),
            table_version: 42,
            outcome,
            committed_at_ms: 1_795_965_978_528,
        };
        reads_and_writes(include_str!("../tests/golden/done-mark-v1.json"), &mark);
    }
}
