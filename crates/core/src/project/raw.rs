//! The project file as it is written: every key, with the text that `alluvium schema` shows for it.
//!
//! Only shapes are checked here; what must agree with something else is checked in [`super::check`].

mod later;

use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use self::later::{RawErase, RawLeases, RawMaintenance, RawRequestSource, RawRequests};
use super::at::{At, Entries, Setting, Short};
use super::text::{AfterText, DurationText, PathText, SizeText, TypeText};
use crate::dataset::{Durability, FileFormat, TimeUnit, Tombstones};

/// The project file of Alluvium, `alluvium.yaml`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Project")]
#[schemars(title = "alluvium.yaml")]
pub(super) struct RawProject {
    /// The name of the project: letters, digits, dots, underscores and dashes.
    #[schemars(required)]
    pub project: Option<At<String>>,
    /// The namespace used when neither `--namespace` nor `ALLUVIUM_NAMESPACE` names one; `default` if absent.
    pub namespace: Option<At<String>>,
    /// Namespaces this project will never use. Topics that begin with such a name and a dot can then be read in `default`.
    pub reserved_namespaces: Option<Vec<At<String>>>,
    /// Where tables are kept: a directory (absolute, or relative to this file) or an `s3://`, `gs://`, `abfss://` or `az://` URL.
    #[schemars(required)]
    pub storage: Option<At<String>>,
    /// What a finished write has survived on a local disk. `disk` (default): a power cut, at the price of syncs;
    /// `process`: the death of the process.
    pub durability: Option<Durability>,
    /// Settings of librdkafka, for every Kafka source. `${NAME}` is taken from the environment.
    pub kafka: Option<At<Entries<Setting>>>,
    /// The kinds of activity, by name; each becomes a table.
    #[schemars(required)]
    pub datasets: Option<At<Entries<RawDataset>>>,
    /// Where requests to change or erase rows come from.
    pub requests: Option<At<RawRequests>>,
    /// How erasures for privacy are carried out.
    pub erase: Option<At<RawErase>>,
    /// How tables are kept in shape.
    pub maintenance: Option<At<RawMaintenance>>,
    /// How work is shared among processes.
    pub leases: Option<At<RawLeases>>,
}

/// One kind of activity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Dataset")]
pub(super) struct RawDataset {
    /// Where records come from: `files` or `kafka`.
    pub source: At<RawSource>,
    /// The field that addresses a record in requests. It does not deduplicate.
    pub key: Option<At<String>>,
    /// The field that holds the organisation (the tenant) of a row; text or an integer.
    pub org: At<String>,
    /// The field that holds the time of the event; a timestamp or a date.
    pub event_time: At<String>,
    /// The columns, by name, in the order of the table: a type, or a mapping that says more.
    pub fields: At<Entries<At<Short<TypeText, RawField>>>>,
    /// The fields that hold ids which requests may change or erase.
    #[serde(default)]
    pub identities: Vec<At<Short<String, RawIdentity>>>,
    /// Names kept once in a table of their own instead of in every row, by entity.
    pub normalize: Option<At<Entries<RawEntity>>>,
    /// Rows whose event is older than this are dropped. Absent: rows are kept.
    pub retention: Option<At<DurationText>>,
    /// Retention of single organisations, by organisation.
    pub retention_by_org: Option<At<Entries<DurationText>>>,
    /// How the table's files are laid out.
    #[serde(default)]
    pub layout: RawLayout,
    /// Also write Delta's own change data feed. Costs decoding every column of rewritten files.
    #[schemars(extend("default" = false))]
    pub change_data_feed: Option<At<bool>>,
    /// When a batch ends: at the first of these.
    #[serde(default)]
    pub batch: RawBatch,
}

/// Where records come from: one of the two.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Source")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(super) struct RawSource {
    /// A directory of files, each taken in once, by its path, in the order of names.
    pub files: Option<RawFiles>,
    /// A Kafka topic.
    pub kafka: Option<At<RawKafka>>,
}

/// A directory of files.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Files")]
pub(super) struct RawFiles {
    /// The directory: absolute, or relative to the project file.
    pub path: At<String>,
    /// What the files hold; `.gz` and `.zst` files are read as they are.
    pub format: FileFormat,
    /// What becomes of a file whose rows have landed: `keep` (default), `move:DIR` or `delete`.
    pub after: Option<At<AfterText>>,
    /// A promise that names of new files sort after those of all files taken before. It has no effect on a local disk.
    #[serde(default)]
    pub ordered: bool,
}

/// A Kafka topic.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Kafka")]
pub(super) struct RawKafka {
    /// The topic; outside the namespace `default` the namespace and a dot are put before it.
    pub topic: At<String>,
    /// What a message holds: `json`.
    pub format: Option<At<FileFormat>>,
    /// Where a new namespace begins to read: `earliest` (default), `latest`, or a timestamp.
    pub start: Option<At<String>>,
    /// What becomes of records without a value: `skip` (default), `dead_letter`, or `delete` (not built yet).
    pub tombstones: Option<At<Tombstones>>,
    /// How many chains share the topic's partitions, so that as many processes can; fixed when the topic is first read. If absent,
    /// as many as there are partitions, 4 at most.
    #[schemars(range(min = 1, max = 256))]
    pub shards: Option<At<u64>>,
}

/// A column.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Field")]
pub(super) struct RawField {
    /// The type, as Delta spells it.
    #[serde(rename = "type")]
    pub data_type: At<TypeText>,
    /// Whether a record without a value is taken in; otherwise it goes to the dead letters.
    #[schemars(extend("default" = true))]
    pub nullable: Option<At<bool>>,
    /// Where the value stands in the input: keys with dots between them; the field's own name if absent.
    pub from: Option<PathText>,
    /// The unit of integers given for a timestamp; without it integers do not fit.
    pub unit: Option<At<TimeUnit>>,
}

/// A field that holds ids, and what erasing such an id does.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Identity")]
pub(super) struct RawIdentity {
    /// The field.
    pub field: At<String>,
    /// What an erasure does to a row that holds the id: `delete` (default) the row, or `clear` the id and the fields of `clear`.
    pub on_erase: Option<RawOnErase>,
    /// The fields that become null together with the id.
    pub clear: Option<At<Vec<At<String>>>>,
}

/// What erasing an id does to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "OnErase")]
pub(super) enum RawOnErase {
    /// The row goes.
    Delete,
    /// The id and the listed fields become null.
    Clear,
}

/// An entity whose names are kept once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Entity")]
pub(super) struct RawEntity {
    /// The field that holds the entity's id; it is an identity too.
    pub id: At<String>,
    /// The fields that hold its names.
    pub fields: At<Vec<At<String>>>,
}

/// How a table's files are laid out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Layout")]
pub(super) struct RawLayout {
    /// The columns files are partitioned by: fields of a simple type, or `event_date`. The organisation's field if absent.
    pub partition_by: Option<Vec<At<String>>>,
    /// The fields rows are ordered by within a file.
    #[serde(default)]
    pub cluster_by: Vec<At<String>>,
    /// The size at which a file is closed and the next begun; 64MiB if absent.
    pub target_file_size: Option<At<SizeText>>,
}

/// When a batch ends.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Batch")]
pub(super) struct RawBatch {
    /// Input records, refused ones included; 1000000 if absent.
    #[schemars(range(min = 1))]
    pub max_rows: Option<At<u64>>,
    /// Input after decompression; 256MiB if absent.
    pub max_bytes: Option<At<SizeText>>,
    /// How long a batch waits for more input, only with `--follow`; 1s if absent.
    pub max_delay: Option<DurationText>,
}
