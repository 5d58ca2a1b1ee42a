//! What a batch tells downstream: rows of `notifications`, from the counts it made.

use std::sync::Arc;

use alluvium_core::{BatchKey, DatePartitionCount, Error, Job, Kind, Result, TableName, TableSpec};
use alluvium_lake::arrow_schema;
use arrow::array::{ArrayRef, Date32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array};
use arrow::datatypes::DataType;

/// Which commit is told of.
pub(super) struct Told<'a> {
    pub(super) table: &'a TableName,
    pub(super) version: u64,
    pub(super) committed_at_ms: i64,
    pub(super) app_name: &'a str,
    pub(super) job: Job,
    pub(super) key: BatchKey,
}

/// One row for each organisation and event date. The same record and commit always give the same rows.
pub(super) fn notification_rows(told: &Told<'_>, counts: &[DatePartitionCount]) -> Result<RecordBatch> {
    let rows = counts.len();
    let text = |value: &str| -> ArrayRef { Arc::new(StringArray::from(vec![value; rows])) };
    let number = |value: u64| -> ArrayRef { Arc::new(Int64Array::from(vec![value.cast_signed(); rows])) };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(counts.iter().map(|c| &c.org))),
        Arc::new(Date32Array::from_iter_values(counts.iter().map(|c| c.event_date))),
        text(told.table.as_str()),
        Arc::new(TimestampMicrosecondArray::from(vec![told.committed_at_ms * 1000; rows]).with_timezone("UTC")),
        text(told.app_name),
        text(told.job.name()),
        number(told.key.batch.0),
        number(told.version),
        Arc::new(Int64Array::from_iter_values(counts.iter().map(|c| c.inserted.cast_signed()))),
        Arc::new(Int64Array::from_iter_values(counts.iter().map(|c| c.updated.cast_signed()))),
        Arc::new(Int64Array::from_iter_values(counts.iter().map(|c| c.deleted.cast_signed()))),
        new_null_array(&DataType::Utf8, rows),
    ];
    RecordBatch::try_new(arrow_schema(&TableSpec::notifications()), columns)
        .map_err(|e| Error::new(Kind::Internal, "making notifications").source(e))
}
