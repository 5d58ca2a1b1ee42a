//! Sections some of whose features are not built yet: the shapes and values of all keys are checked.

use schemars::JsonSchema;
use serde::Deserialize;

use super::RawKafka;
use crate::dataset::FileFormat;
use crate::project::at::At;
use crate::project::text::{AfterText, DurationOrForever, DurationOrUnknown, DurationText, KeyText};

/// Requests to change or erase rows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Requests")]
pub(in crate::project) struct RawRequests {
    /// Where requests come from: `files` or `kafka`. Without it they come by `alluvium request submit` alone.
    pub source: Option<At<RawRequestSource>>,
    /// How many batches try a request whose row was not seen before its state becomes `unmatched`; 10 if absent.
    #[schemars(range(min = 1))]
    pub max_attempts: Option<At<u64>>,
}

/// Where requests come from: one of the two.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RequestSource")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(in crate::project) struct RawRequestSource {
    /// A directory of files with one JSON object a line.
    pub files: Option<RawRequestFiles>,
    /// A Kafka topic.
    pub kafka: Option<At<RawKafka>>,
}

/// A directory of files that hold requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RequestFiles")]
pub(in crate::project) struct RawRequestFiles {
    /// The directory: absolute, or relative to the project file.
    pub path: At<String>,
    /// What the files hold: `json`.
    pub format: Option<At<FileFormat>>,
    /// What becomes of a file whose requests were taken in: `keep` (default), `move:DIR` or `delete`.
    pub after: Option<At<AfterText>>,
    /// A promise that names of new files sort after those of all files taken before.
    #[serde(default)]
    pub ordered: bool,
}

/// How erasures for privacy are carried out.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Erase")]
pub(in crate::project) struct RawErase {
    /// How long after an erasure its bytes are purged; 0s if absent.
    pub purge_after: Option<DurationText>,
    /// How long a purge waits for consumers that have not read the change; 24h if absent.
    pub wait_for_consumers: Option<DurationText>,
    /// When an erasure that is not verified is overdue; 25d if absent.
    pub deadline: Option<At<DurationText>>,
    /// How long an erased id is remembered (hashed) so that it stays out: `forever` (default) or a duration.
    pub remember: Option<At<DurationOrForever>>,
    /// Where the key of those hashes is kept: `lake` (default), beside the tables, for trying out; `env:NAME`; or `file:PATH`. It is 64
    /// hexadecimal digits.
    pub key: Option<KeyText>,
    /// How long the store keeps deleted versions of objects: `unknown` (default) or a duration.
    pub store_keeps: Option<At<DurationOrUnknown>>,
    /// How long receipts are kept; 1095d if absent.
    pub keep_receipts: Option<At<DurationText>>,
}

/// How tables are kept in shape.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Maintenance")]
pub(in crate::project) struct RawMaintenance {
    /// How long a file that is no longer part of a table is kept for readers; 7d if absent.
    pub vacuum_after: Option<DurationText>,
    /// How long versions of a table can be read; 30d if absent.
    pub log_retention: Option<At<DurationText>>,
    /// Whether `run all` also rewrites files into a better layout; `auto` if absent.
    pub optimize: Option<At<RawOptimize>>,
}

/// Whether files are rewritten into a better layout.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Optimize")]
pub(in crate::project) enum RawOptimize {
    /// Where it pays.
    Auto,
    /// Never by itself.
    Off,
}

/// How work is shared among processes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Leases")]
pub(in crate::project) struct RawLeases {
    /// How long a process that died keeps others waiting; 10s if absent.
    pub ttl: Option<DurationText>,
}
