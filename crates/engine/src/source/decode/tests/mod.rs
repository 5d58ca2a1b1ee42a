//! Whole files in, rows and refusals out.
#![allow(clippy::unwrap_used)]

mod columnar;
mod csv;
mod cuts;
mod faults;
mod guide;
mod hostile;
mod json;
mod oracle;
mod whole;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use alluvium_core::{BatchLimits, Dataset, DatasetName, Field, FileCursor, FileFormat, KafkaSource, Layout, Source, TimeUnit};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::TimestampMicrosecondType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;

use super::{Decoder, Refused, decoded_schema};
use crate::source::split::{FileFault, Input, Splitter};

/// A dataset with `org: string`, `at: timestamp` and the given columns (`name`, `type`).
fn dataset(columns: &[(&str, &str)]) -> Dataset {
    let ours = [("org", "string"), ("at", "timestamp")];
    let fields = ours.iter().chain(columns).map(|(name, data_type)| field(name, data_type)).collect();
    Dataset {
        name: DatasetName("d".into()),
        source: Source::Kafka(KafkaSource::new("unused")),
        key: None,
        org: "org".into(),
        event_time: "at".into(),
        fields,
        identities: Vec::new(),
        layout: Layout { partition_by: Vec::new(), cluster_by: Vec::new(), target_file_bytes: 1 },
        retention: alluvium_core::Retention::default(),
        change_data_feed: false,
        batch: BatchLimits { max_rows: 1, max_bytes: 1, max_delay: Duration::ZERO },
    }
}

fn field(name: &str, data_type: &str) -> Field {
    Field { name: name.into(), data_type: data_type.parse().unwrap(), nullable: true, from: vec![name.into()], unit: None }
}

/// Reads the column from another place.
fn from(dataset: &mut Dataset, column: &str, path: &str) {
    let field = dataset.fields.iter_mut().find(|f| f.name == column).unwrap();
    field.from = path.split('.').map(Into::into).collect();
}

fn unit(dataset: &mut Dataset, column: &str, unit: TimeUnit) {
    dataset.fields.iter_mut().find(|f| f.name == column).unwrap().unit = Some(unit);
}

/// What came of a file.
#[derive(Debug)]
struct Outcome {
    rows: RecordBatch,
    refused: Vec<Refused>,
    fault: Option<(u64, String)>,
}

impl Outcome {
    /// Each row's columns as text, null as `null`.
    fn texts(&self) -> Vec<Vec<String>> {
        let options = FormatOptions::new().with_null("null");
        // Arrow prints times of named zones only with a table of zones.
        let in_offset = |column: &ArrayRef| match column.as_primitive_opt::<TimestampMicrosecondType>() {
            Some(times) => Arc::new(times.clone().with_timezone("+00:00")) as ArrayRef,
            None => Arc::clone(column),
        };
        let columns: Vec<_> = self.rows.columns().iter().map(in_offset).collect();
        let formatters: Vec<_> = columns.iter().map(|c| ArrayFormatter::try_new(c.as_ref(), &options).unwrap()).collect();
        (0..self.rows.num_rows()).map(|row| formatters.iter().map(|f| f.value(row).to_string()).collect()).collect()
    }

    /// One column as text.
    fn column(&self, name: &str) -> Vec<String> {
        let at = self.rows.schema().index_of(name).unwrap();
        self.texts().into_iter().map(|row| row[at].clone()).collect()
    }

    fn array<A: Array + Clone + 'static>(&self, name: &str) -> A {
        self.rows.column_by_name(name).unwrap().as_any().downcast_ref::<A>().unwrap().clone()
    }

    fn refusals(&self) -> Vec<(u64, Option<&str>, &str)> {
        self.refused.iter().map(|r| (r.record, r.field.as_deref(), r.reason.as_str())).collect()
    }
}

fn decode(dataset: &Dataset, format: FileFormat, name: &str, bytes: impl Into<Bytes>) -> Outcome {
    decode_cut(dataset, format, name, bytes.into(), 1000, 1 << 20, 0)
}

/// Decodes with a limit of records and bytes a chunk, opening the file anew after every `reopen_after` chunks (0: never).
fn decode_cut(
    dataset: &Dataset,
    format: FileFormat,
    name: &str,
    bytes: Bytes,
    max_records: u64,
    max_bytes: u64,
    reopen_after: usize,
) -> Outcome {
    let decoder = Decoder::new(dataset);
    let mut outcome = Outcome { rows: RecordBatch::new_empty(decoded_schema(dataset)), refused: Vec::new(), fault: None };
    let mut batches = Vec::new();
    let mut cursor = FileCursor::default();
    let fault = 'file: loop {
        let mut splitter = match Splitter::open(Input::Bytes(bytes.clone()), name, format, cursor) {
            Ok(splitter) => splitter,
            Err(fault) => break Some(fault),
        };
        let mut chunks = 0;
        loop {
            let chunk = match splitter.next_chunk(max_records, max_bytes) {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break 'file None,
                Err(fault) => break 'file Some(fault),
            };
            assert!(chunk.max_records() <= max_records);
            assert_eq!(chunk.first_record(), cursor.record);
            cursor = splitter.cursor();
            let decoded = decoder.decode(chunk);
            assert_eq!(decoded.records, decoded.rows.num_rows() as u64 + decoded.refused.len() as u64);
            batches.push(decoded.rows);
            outcome.refused.extend(decoded.refused);
            chunks += 1;
            if chunks == reopen_after {
                continue 'file;
            }
        }
    };
    outcome.fault = fault.map(|fault| match fault {
        FileFault::Content { record, reason } => (record, reason),
        FileFault::Io(error) => panic!("the store did not fail, but: {error}"),
    });
    outcome.rows = concat_batches(&decoded_schema(dataset), &batches).unwrap();
    outcome
}

/// One JSON record with `org`, `at` and these members.
fn record(members: &str) -> String {
    format!(r#"{{"org":"o","at":"2026-01-02T03:04:05Z",{members}}}"#)
}

/// A folder of the shared test data, if it is there.
fn shared_data(folder: &str) -> Option<PathBuf> {
    let base = std::env::var_os("ALLUVIUM_TEST_DATA")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let path = base.join(folder);
    if path.is_dir() {
        Some(path)
    } else {
        println!("skipped: {} is not there", path.display());
        None
    }
}
