//! What each table of a namespace looks like: columns, partitioning and what is remembered about it in its own properties.

use std::collections::BTreeMap;

use crate::dataset::Dataset;
use crate::names::TableName;
use crate::types::DataType;

/// The columns we add to each data table, after the declared ones.
pub const ADDED_COLUMNS: [&str; 6] = ["event_date", "_source", "_offset", "_ingested_at", "_rescued", "_original"];

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// Whether it may be null.
    pub nullable: bool,
}

impl Column {
    fn new(name: &str, data_type: DataType, nullable: bool) -> Self {
        Self { name: name.to_owned(), data_type, nullable }
    }
}

/// What a table must look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    /// Its name.
    pub name: TableName,
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// The columns it is partitioned by.
    pub partition_by: Vec<String>,
    /// Columns without statistics in the log, because their values are ids of people.
    pub without_statistics: Vec<String>,
    /// The columns rows are ordered by within a file.
    pub cluster_by: Vec<String>,
    /// The size at which a file is closed and the next begun, in bytes.
    pub target_file_bytes: u64,
    /// Whether the table has Delta's change data feed.
    pub change_data_feed: bool,
    /// What we keep in the table's properties, without the prefix `alluvium.`; a change of any of them is refused.
    pub fixed_properties: BTreeMap<String, String>,
}

impl TableSpec {
    /// The table whose log decides the batches of a dataset's chains: its data table, or `requests`.
    #[must_use]
    pub fn deciding(dataset: &Dataset) -> Self {
        if dataset.is_requests() { Self::requests() } else { Self::data(dataset) }
    }

    /// The data table of a dataset.
    #[must_use]
    pub fn data(dataset: &Dataset) -> Self {
        let mut columns: Vec<Column> = dataset
            .fields
            .iter()
            .map(|f| Column { name: f.name.clone(), data_type: f.data_type.clone(), nullable: f.nullable })
            .collect();
        columns.extend([
            Column::new("event_date", DataType::Date, true),
            Column::new("_source", DataType::String, true),
            Column::new("_offset", DataType::Long, true),
            Column::new("_ingested_at", DataType::Timestamp, true),
            Column::new("_rescued", DataType::String, true),
            Column::new("_original", DataType::String, true),
        ]);
        let mut fixed_properties = BTreeMap::from([
            ("kind".to_owned(), "data".to_owned()),
            ("org".to_owned(), dataset.org.clone()),
            ("event_time".to_owned(), dataset.event_time.clone()),
        ]);
        if let Some(key) = &dataset.key {
            fixed_properties.insert("key".to_owned(), key.clone());
        }
        let mut without_statistics: Vec<String> = dataset
            .identities
            .iter()
            .map(|i| i.field.clone())
            .filter(|f| !dataset.layout.cluster_by.contains(f) && !dataset.layout.partition_by.contains(f))
            .collect();
        without_statistics.push("_original".to_owned());
        Self {
            name: TableName::from(&dataset.name),
            columns,
            partition_by: dataset.layout.partition_by.clone(),
            without_statistics,
            cluster_by: dataset.layout.cluster_by.clone(),
            target_file_bytes: dataset.layout.target_file_bytes,
            change_data_feed: dataset.change_data_feed,
            fixed_properties,
        }
    }

    /// `notifications`: one row per batch, table, organisation and event date.
    #[must_use]
    pub fn notifications() -> Self {
        Self::fixed(
            TableName::NOTIFICATIONS,
            &[
                ("org_id", DataType::String),
                ("event_date", DataType::Date),
                ("table_name", DataType::String),
                ("modified_time", DataType::Timestamp),
                ("app_name", DataType::String),
                ("job", DataType::String),
                ("batch_id", DataType::Long),
                ("table_version", DataType::Long),
                ("inserted", DataType::Long),
                ("updated", DataType::Long),
                ("deleted", DataType::Long),
                ("metadata", DataType::String),
            ],
        )
    }

    /// `requests`: every accepted request. `id` holds what the request is about: the id it converts from, or the key of a record.
    #[must_use]
    pub fn requests() -> Self {
        let mut spec = Self::fixed(
            TableName::REQUESTS,
            &[
                ("request_id", DataType::String),
                ("org_id", DataType::String),
                ("op", DataType::String),
                ("scope", DataType::String),
                ("dataset", DataType::String),
                ("field", DataType::String),
                ("id", DataType::String),
                ("to", DataType::String),
                ("before", DataType::String),
                ("set", DataType::String),
                ("execution_time", DataType::Timestamp),
                ("request", DataType::String),
                ("digest", DataType::String),
                ("batch_id", DataType::Long),
                ("accepted_at", DataType::Timestamp),
                ("_source", DataType::String),
                ("_offset", DataType::Long),
            ],
        );
        spec.without_statistics = ["id", "to", "set", "request", "digest"].map(str::to_owned).to_vec();
        spec
    }

    /// `retries`: a row for each attempt at a request of which no row was seen, and each change of its state; the newest counts.
    #[must_use]
    pub fn retries() -> Self {
        Self::fixed(
            TableName::RETRIES,
            &[
                ("request_id", DataType::String),
                ("org_id", DataType::String),
                ("dataset", DataType::String),
                ("attempts", DataType::Long),
                ("next_attempt", DataType::Timestamp),
                ("state", DataType::String),
                ("job", DataType::String),
                ("batch_id", DataType::Long),
                ("changed_at", DataType::Timestamp),
            ],
        )
    }

    /// `_alluvium/outcomes`: how many rows of a dataset a request changed in a batch; one row for each request that did.
    #[must_use]
    pub fn outcomes() -> Self {
        Self::fixed(
            TableName::OUTCOMES,
            &[
                ("request_id", DataType::String),
                ("org_id", DataType::String),
                ("dataset", DataType::String),
                ("job", DataType::String),
                ("batch_id", DataType::Long),
                ("rows", DataType::Long),
                ("changed_at", DataType::Timestamp),
            ],
        )
    }

    /// `dead_letters`: refused records, whole.
    #[must_use]
    pub fn dead_letters() -> Self {
        let mut spec = Self::fixed(
            TableName::DEAD_LETTERS,
            &[
                ("dataset", DataType::String),
                ("source", DataType::String),
                ("position", DataType::Long),
                ("raw", DataType::Binary),
                ("context", DataType::String),
                ("reason", DataType::String),
                ("field", DataType::String),
                ("batch_id", DataType::Long),
                ("failed_at", DataType::Timestamp),
            ],
        );
        spec.without_statistics = vec!["context".to_owned(), "reason".to_owned()];
        spec
    }

    fn fixed(name: TableName, columns: &[(&str, DataType)]) -> Self {
        let kind = name.to_string();
        Self {
            name,
            columns: columns.iter().map(|(name, data_type)| Column::new(name, data_type.clone(), true)).collect(),
            partition_by: Vec::new(),
            without_statistics: Vec::new(),
            cluster_by: Vec::new(),
            target_file_bytes: 64 << 20,
            change_data_feed: false,
            fixed_properties: BTreeMap::from([("kind".to_owned(), kind)]),
        }
    }

    /// The column of that name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.name == name)
    }
}
