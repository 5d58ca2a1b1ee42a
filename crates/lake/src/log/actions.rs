//! The lines of a commit: those we write, and the parts of those we read.

use std::collections::BTreeMap;

use alluvium_core::{AddedFile, Error, Kind, Result, TableSpec};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::schema::delta_field;

/// The parts of a commit that matter to us.
#[derive(Debug, Default)]
pub(super) struct CommitActions {
    pub(super) txns: Vec<Txn>,
    pub(super) metadata: Option<Metadata>,
    pub(super) protocol: Option<Protocol>,
    pub(super) timestamp_ms: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    txn: Option<Txn>,
    meta_data: Option<Metadata>,
    protocol: Option<Protocol>,
    commit_info: Option<CommitInfo>,
}

#[derive(Debug, Deserialize)]
struct CommitInfo {
    timestamp: Option<i64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Txn {
    pub(super) app_id: String,
    pub(super) version: i64,
}

/// Delta's `metaData` action, as far as we read it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) id: String,
    pub(super) schema_string: String,
    #[serde(default)]
    pub(super) partition_columns: Vec<String>,
    #[serde(default)]
    pub(super) created_time: Option<i64>,
    #[serde(default)]
    pub(super) configuration: BTreeMap<String, String>,
}

/// Delta's `protocol` action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub(super) min_reader_version: i32,
    pub(super) min_writer_version: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reader_features: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) writer_features: Option<Vec<String>>,
}

/// The feature of tables that have a change data feed.
const FEED: &str = "changeDataFeed";
/// The features that writer version 2 stands for.
const OF_VERSION_2: [&str; 2] = ["appendOnly", "invariants"];

impl Protocol {
    /// What a table of ours asks for, without and with a change data feed.
    pub(super) fn ours(feed: bool) -> Self {
        let plain = Self { min_reader_version: 1, min_writer_version: 2, reader_features: None, writer_features: None };
        if feed { plain.with_feed() } else { plain }
    }

    /// The same with a change data feed, and nothing that was not there beside it.
    pub(super) fn with_feed(mut self) -> Self {
        if self.min_writer_version < 7 {
            let implied = if self.min_writer_version < 2 { &OF_VERSION_2[..0] } else { &OF_VERSION_2[..] };
            self.writer_features = Some(implied.iter().map(|feature| (*feature).to_owned()).collect());
            self.min_writer_version = 7;
        }
        let features = self.writer_features.get_or_insert_default();
        if !features.iter().any(|feature| feature == FEED) {
            features.push(FEED.to_owned());
        }
        self
    }
}

/// Reads a commit's lines.
pub(super) fn parse_commit(table: &str, version: u64, bytes: &Bytes) -> Result<CommitActions> {
    let corrupt = |e: serde_json::Error| {
        Error::new(Kind::Corrupt, format!("reading version {version} of table {table}: the log entry is not what Delta writes"))
            .hint("restore that file of _delta_log from a backup")
            .source(e)
    };
    let mut actions = CommitActions::default();
    for line in bytes.split(|b| *b == b'\n').filter(|l| !l.iter().all(u8::is_ascii_whitespace)) {
        let line: Line = serde_json::from_slice(line).map_err(corrupt)?;
        actions.txns.extend(line.txn);
        actions.metadata = line.meta_data.or(actions.metadata);
        actions.protocol = line.protocol.or(actions.protocol);
        actions.timestamp_ms = line.commit_info.and_then(|c| c.timestamp).or(actions.timestamp_ms);
    }
    Ok(actions)
}

/// Collects the lines of a commit to write.
#[derive(Debug)]
pub(super) struct CommitText {
    lines: String,
}

impl CommitText {
    /// Begins with `commitInfo`. `commit_id` makes the bytes of this try unlike any other's. No predicate and no value of a row
    /// ever goes into `parameters`.
    pub(super) fn new(now_ms: i64, operation: &str, parameters: Value, blind_append: bool, commit_id: &str) -> Self {
        Self::rewriting(now_ms, operation, parameters, blind_append, commit_id, None)
    }

    /// The same, of a commit that names the file which says which rows it changes.
    pub(super) fn rewriting(
        now_ms: i64,
        operation: &str,
        parameters: Value,
        blind_append: bool,
        commit_id: &str,
        rewrites: Option<&str>,
    ) -> Self {
        let mut text = Self { lines: String::new() };
        let mut info = json!({
            "timestamp": now_ms,
            "operation": operation,
            "operationParameters": parameters,
            "isBlindAppend": blind_append,
            "engineInfo": concat!("alluvium/", env!("CARGO_PKG_VERSION")),
            "txnId": commit_id,
        });
        if let Some(name) = rewrites {
            info["alluvium"] = json!({ "rewrites": name });
        }
        text.push(&json!({ "commitInfo": info }));
        text
    }

    pub(super) fn txn(&mut self, app_id: &str, version: i64) {
        self.push(&json!({ "txn": { "appId": app_id, "version": version } }));
    }

    pub(super) fn add(&mut self, file: &AddedFile) {
        self.push(&json!({ "add": {
            "path": file.path,
            "partitionValues": partition_values(file),
            "size": file.size,
            "modificationTime": file.modified_ms,
            "dataChange": true,
            "stats": file.stats,
        }}));
    }

    pub(super) fn remove(&mut self, path: &str, vector: Option<&Value>, now_ms: i64) {
        let mut remove = json!({
            "path": path, "deletionTimestamp": now_ms, "dataChange": true, "extendedFileMetadata": false,
        });
        if let Some(vector) = vector {
            remove["deletionVector"] = vector.clone();
        }
        self.push(&json!({ "remove": remove }));
    }

    /// A file of the change data feed.
    pub(super) fn cdc(&mut self, file: &AddedFile) {
        self.push(&json!({ "cdc": {
            "path": file.path,
            "partitionValues": partition_values(file),
            "size": file.size,
            "dataChange": false,
        }}));
    }

    pub(super) fn protocol(&mut self, protocol: &Protocol) {
        self.push(&json!({ "protocol": protocol }));
    }

    pub(super) fn metadata(&mut self, metadata: &Metadata) {
        self.push(&json!({ "metaData": {
            "id": metadata.id,
            "format": { "provider": "parquet", "options": {} },
            "schemaString": metadata.schema_string,
            "partitionColumns": metadata.partition_columns,
            "configuration": metadata.configuration,
            "createdTime": metadata.created_time,
        }}));
    }

    fn push(&mut self, line: &Value) {
        self.lines.push_str(&line.to_string());
        self.lines.push('\n');
    }

    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from(self.lines)
    }
}

fn partition_values(file: &AddedFile) -> Map<String, Value> {
    let values = file.partition_values.iter();
    values.map(|(name, value)| (name.clone(), value.clone().map_or(Value::Null, Value::String))).collect()
}

/// Delta's `schemaString` for these columns.
pub(super) fn schema_string(spec: &TableSpec) -> String {
    json!({ "type": "struct", "fields": spec.columns.iter().map(delta_field).collect::<Vec<_>>() }).to_string()
}
