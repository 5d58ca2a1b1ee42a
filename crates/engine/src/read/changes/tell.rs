//! Puts rows into the shape in which changes are told.

use std::sync::Arc;

use alluvium_core::{DatasetName, Error, Kind, ReadKind, Result};
use alluvium_lake::CHANGE_TYPE;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

const COMMIT_VERSION: &str = "_commit_version";
const COMMIT_TIMESTAMP: &str = "_commit_timestamp";

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ChangeType {
    Insert,
    UpdatePreimage,
    UpdatePostimage,
    Delete,
}

impl ChangeType {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::UpdatePreimage => "update_preimage",
            Self::UpdatePostimage => "update_postimage",
            Self::Delete => "delete",
        }
    }
}

/// The commit that is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommitTold {
    pub(super) version: u64,
    pub(super) committed_at_ms: i64,
}

/// How rows are told to a reader.
#[derive(Debug, Clone)]
pub(super) enum Telling {
    /// Every change, with what happened and by which commit.
    Rows {
        /// The told columns.
        schema: SchemaRef,
    },
    /// Notifications of one dataset: its inserts alone, as they stand.
    Partitions {
        /// The told columns.
        schema: SchemaRef,
        dataset: DatasetName,
    },
}

impl Telling {
    /// For a reader of `kind`, of a table with these columns.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the table has a column with one of our names.
    pub(super) fn new(kind: ReadKind, table: &SchemaRef, dataset: &DatasetName) -> Result<Self> {
        let mut fields: Vec<Field> = table.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
        if kind == ReadKind::Partitions {
            return Ok(Self::Partitions { schema: Arc::new(Schema::new(fields)), dataset: dataset.clone() });
        }
        let ours = [CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP];
        if let Some(taken) = fields.iter().find(|f| ours.contains(&f.name().as_str())) {
            return Err(Error::new(
                Kind::Unsupported,
                format!("changes of dataset {dataset}: its table has a column {} of its own", taken.name()),
            )
            .hint("another program added it; drop it"));
        }
        fields.extend([
            Field::new(CHANGE_TYPE, DataType::Utf8, false),
            Field::new(COMMIT_VERSION, DataType::Int64, false),
            Field::new(COMMIT_TIMESTAMP, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
        ]);
        Ok(Self::Rows { schema: Arc::new(Schema::new(fields)) })
    }

    pub(super) fn schema(&self) -> SchemaRef {
        match self {
            Self::Rows { schema } | Self::Partitions { schema, .. } => schema.clone(),
        }
    }

    /// Rows of one kind of change.
    pub(super) fn all(&self, rows: &RecordBatch, change: ChangeType, commit: CommitTold) -> Result<RecordBatch> {
        match self {
            Self::Partitions { .. } if change != ChangeType::Insert => Ok(RecordBatch::new_empty(self.schema())),
            Self::Partitions { schema, dataset } => of_dataset(rows, schema, dataset),
            Self::Rows { .. } => {
                let types = StringArray::from_iter_values(std::iter::repeat_n(change.name(), rows.num_rows()));
                self.with_types(rows, Arc::new(types), commit)
            }
        }
    }

    /// Rows of several kinds of change, in their order.
    pub(super) fn mixed(&self, rows: &RecordBatch, changes: &[ChangeType], commit: CommitTold) -> Result<RecordBatch> {
        match self {
            Self::Partitions { schema, dataset } => {
                let inserts: BooleanArray = changes.iter().map(|c| Some(*c == ChangeType::Insert)).collect();
                of_dataset(&filter_record_batch(rows, &inserts).map_err(internal)?, schema, dataset)
            }
            Self::Rows { .. } => {
                let types = StringArray::from_iter_values(changes.iter().map(|c| c.name()));
                self.with_types(rows, Arc::new(types), commit)
            }
        }
    }

    fn with_types(&self, rows: &RecordBatch, types: ArrayRef, commit: CommitTold) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let mut columns = rows.columns().to_vec();
        columns.push(types);
        columns.push(Arc::new(Int64Array::from(vec![commit.version.cast_signed(); count])));
        let at = commit.committed_at_ms.saturating_mul(1000);
        columns.push(Arc::new(TimestampMicrosecondArray::from(vec![at; count]).with_timezone("UTC")));
        RecordBatch::try_new(self.schema(), columns).map_err(internal)
    }
}

/// The notifications of a dataset among rows of `notifications`.
fn of_dataset(rows: &RecordBatch, schema: &SchemaRef, dataset: &DatasetName) -> Result<RecordBatch> {
    let named = rows.column_by_name("table_name").ok_or_else(|| {
        Error::new(Kind::Corrupt, "notifications has no column table_name").hint("another program changed the table")
    })?;
    let named = cast(named, &DataType::Utf8).map_err(internal)?;
    let names = named.as_string::<i32>();
    let ours: BooleanArray = (0..names.len()).map(|i| Some(names.is_valid(i) && names.value(i) == dataset.0)).collect();
    let rows = RecordBatch::try_new(schema.clone(), rows.columns().to_vec()).map_err(internal)?;
    filter_record_batch(&rows, &ours).map_err(internal)
}

pub(super) fn internal(error: arrow::error::ArrowError) -> Error {
    // The message may quote a value.
    let _not_shown = error;
    Error::new(Kind::Internal, "telling changes: columns do not fit together").hint("please report it")
}
