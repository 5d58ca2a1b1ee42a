//! What a dataset is declared to be, after the project file was read and found right.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::chain::Job;
use crate::retention::Retention;
use crate::types::DataType;

/// The name of a dataset; also the name of its data table. Checked when the project is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DatasetName(pub String);

impl fmt::Display for DatasetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One kind of activity: where it comes from and what its table looks like.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Its name.
    pub name: DatasetName,
    /// Where its records come from.
    pub source: Source,
    /// The field that addresses a record; does not deduplicate.
    pub key: Option<String>,
    /// The field that holds the organisation; of type `string` or an integer type.
    pub org: String,
    /// The field that holds the time of the event; of type `timestamp` or `date`.
    pub event_time: String,
    /// The declared columns, in the order of the table.
    pub fields: Vec<Field>,
    /// The fields that hold ids which requests may change or erase.
    pub identities: Vec<Identity>,
    /// How long rows are kept.
    pub retention: Retention,
    /// How the table's files are laid out.
    pub layout: Layout,
    /// Whether commits also carry Delta's own change data feed.
    pub change_data_feed: bool,
    /// When a batch ends.
    pub batch: BatchLimits,
}

impl Dataset {
    /// The name under which requests are taken in; no dataset can have it.
    pub const REQUESTS: &'static str = "requests";

    /// Whether this is not activity, but the requests to change it.
    #[must_use]
    pub fn is_requests(&self) -> bool {
        self.name.0 == Self::REQUESTS
    }

    /// The job that takes the dataset's source in.
    #[must_use]
    pub fn intake_job(&self) -> Job {
        if self.is_requests() { Job::Mutate } else { Job::Ingest }
    }

    /// What a field takes from the Kafka message around the value, if it does.
    #[must_use]
    pub fn message_part(&self, field: &Field) -> Option<MessagePart> {
        if matches!(self.source, Source::Kafka(_)) { MessagePart::of(&field.from) } else { None }
    }

    /// The declared field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }

    /// The fields whose values requests address rows by, and by which the indexes of its files answer: the identities and the key.
    #[must_use]
    pub fn indexed_fields(&self) -> Vec<String> {
        let mut fields: Vec<String> = self.identities.iter().map(|identity| identity.field.clone()).collect();
        fields.extend(self.key.iter().filter(|key| !fields.contains(key)).cloned().collect::<Vec<_>>());
        fields
    }
}

/// What is declared about requests to change or erase rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Requests {
    /// How they are taken in; a dataset's source like any other. Without one they come by `alluvium request submit` alone.
    pub intake: Dataset,
    /// Whether the project file names a source.
    pub has_source: bool,
    /// How many batches try a request whose row was not seen.
    pub max_attempts: u64,
}

impl Requests {
    const MAX_ATTEMPTS: u64 = 10;
    /// The most requests that a batch takes in.
    pub const MAX_BATCH_REQUESTS: u64 = 250_000;
    const MAX_BATCH_BYTES: u64 = 64 << 20;

    /// Requests of that source (a directory or a topic, if there is one).
    #[must_use]
    pub fn new(source: Option<Source>, max_attempts: Option<u64>) -> Self {
        let has_source = source.is_some();
        let nowhere = FileSource { path: String::new(), format: FileFormat::Json, after: TakenPolicy::Keep, ordered: false };
        let source = match source.unwrap_or(Source::Files(nowhere)) {
            // One chain takes all requests in: its batches are the ledger's positions.
            Source::Kafka(kafka) => Source::Kafka(KafkaSource { shards: Some(1), ..kafka }),
            files => files,
        };
        let intake = Dataset {
            name: DatasetName(Dataset::REQUESTS.to_owned()),
            source,
            key: None,
            org: "org_id".to_owned(),
            event_time: "execution_time".to_owned(),
            fields: Vec::new(),
            identities: Vec::new(),
            retention: Retention::default(),
            layout: Layout { partition_by: Vec::new(), cluster_by: Vec::new(), target_file_bytes: 64 << 20 },
            change_data_feed: false,
            batch: BatchLimits {
                max_rows: Self::MAX_BATCH_REQUESTS,
                max_bytes: Self::MAX_BATCH_BYTES,
                max_delay: Duration::from_secs(1),
            },
        };
        Self { intake, has_source, max_attempts: max_attempts.unwrap_or(Self::MAX_ATTEMPTS) }
    }
}

/// A declared column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The column's name.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// Whether a record without a value is taken in.
    pub nullable: bool,
    /// Where the value stands in the input: the keys from the outside in; never empty. CSV looks for a header equal to the
    /// keys joined by dots.
    pub from: Vec<String>,
    /// The unit of integers given for a `timestamp`; without it integers do not fit.
    pub unit: Option<TimeUnit>,
}

/// The unit of a time given as an integer since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub enum TimeUnit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
}

/// A field that holds ids, and what an erasure of such an id does to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The field.
    pub field: String,
    /// What an erasure does.
    pub on_erase: OnErase,
}

/// What an erasure of an id does to the rows that hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnErase {
    /// The row goes.
    Delete,
    /// The id and these fields become null; the row stays.
    Clear(Vec<String>),
}

/// Where records come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A directory of files.
    Files(FileSource),
    /// A Kafka topic.
    Kafka(KafkaSource),
}

/// A Kafka topic, whose positions we keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaSource {
    /// The topic as the project file spells it, before the namespace decorates it.
    pub topic: String,
    /// Where a namespace that has read nothing of the topic begins.
    pub start: KafkaStart,
    /// What becomes of records without a value.
    pub tombstones: Tombstones,
    /// How many chains share the partitions; `None`: as many as suit the topic when it is first read.
    pub shards: Option<u32>,
}

impl KafkaSource {
    /// The most shards a topic can be read in.
    pub const MAX_SHARDS: u32 = 256;

    /// The source of a topic with nothing said about it.
    #[must_use]
    pub fn new(topic: impl Into<String>) -> Self {
        Self { topic: topic.into(), start: KafkaStart::Earliest, tombstones: Tombstones::Skip, shards: None }
    }
}

/// What a field of a Kafka dataset takes from the message around the value: `from: kafka.key` and the like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessagePart {
    /// `kafka.key`: the key.
    Key,
    /// `kafka.timestamp`: when the record was made, or came to the broker.
    Timestamp,
    /// `kafka.topic`: the topic as the cluster knows it.
    Topic,
    /// `kafka.partition`: the partition's number.
    Partition,
    /// `kafka.offset`: the record's offset.
    Offset,
    /// `kafka.headers.NAME`: the last header of that name, which may hold dots.
    Header(String),
}

impl MessagePart {
    /// The part that a path names, in a dataset that reads Kafka.
    #[must_use]
    pub fn of(from: &[String]) -> Option<Self> {
        let (first, rest) = from.split_first()?;
        if first != "kafka" {
            return None;
        }
        match rest.first().map(String::as_str) {
            Some("key") if rest.len() == 1 => Some(Self::Key),
            Some("timestamp") if rest.len() == 1 => Some(Self::Timestamp),
            Some("topic") if rest.len() == 1 => Some(Self::Topic),
            Some("partition") if rest.len() == 1 => Some(Self::Partition),
            Some("offset") if rest.len() == 1 => Some(Self::Offset),
            Some("headers") if rest.len() > 1 => Some(Self::Header(rest[1..].join("."))),
            _ => None,
        }
    }
}

/// Where reading a topic begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KafkaStart {
    /// At the oldest record that is there.
    Earliest,
    /// Behind the newest that is there.
    Latest,
    /// At the first record whose timestamp is not before this, in milliseconds since 1970.
    At(i64),
}

/// What becomes of a Kafka record without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tombstones {
    /// It is passed over, and counted.
    #[default]
    Skip,
    /// It goes to the dead letters.
    DeadLetter,
    /// It deletes the record of its key; not built yet.
    Delete,
}

/// A directory of files, each taken in once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSource {
    /// The directory: an absolute path, or relative to the project file's directory.
    pub path: String,
    /// What the files hold.
    pub format: FileFormat,
    /// What becomes of a file whose rows have landed.
    pub after: TakenPolicy,
    /// A promise that new files' names sort after all taken ones.
    pub ordered: bool,
}

/// How a file's bytes become records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileFormat {
    /// One JSON object a line.
    Json,
    /// Comma-separated values with a header line.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// Apache Avro object container files.
    Avro,
}

/// What becomes of a source file whose rows have landed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenPolicy {
    /// It stays.
    Keep,
    /// It is moved to this directory, under the same relative name.
    Move(String),
    /// It is deleted.
    Delete,
}

/// How a table's files are laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The columns files are partitioned by; each of a simple type.
    pub partition_by: Vec<String>,
    /// The columns rows are ordered by within a file.
    pub cluster_by: Vec<String>,
    /// The size at which a file is closed and the next begun, in bytes of Parquet.
    pub target_file_bytes: u64,
}

/// A batch ends at the first of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Input records, refused ones included.
    pub max_rows: u64,
    /// Bytes of input after decompression.
    pub max_bytes: u64,
    /// How long a batch waits for more input; only when following.
    pub max_delay: Duration,
}

/// What a finished write has survived on a local disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A power cut.
    #[default]
    Disk,
    /// The death of the process.
    Process,
}
