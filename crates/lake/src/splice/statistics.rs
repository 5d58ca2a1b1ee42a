//! The statistics of files that were spliced.
//!
//! Place in the flow: `write` and `fallback` tell what they copied and encoded, and ask for the log's JSON when a file is closed.
//! Bounds come from the new footer, and only for columns whose type in the file orders as the table's does. Parquet's bounds of
//! floats leave NaN out, Delta's must not: those of copied chunks are taken over only where the log had bounds before.

use std::collections::BTreeSet;

use alluvium_core::{Column, DataType};
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType as ArrowType, Field, Schema};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::ColumnPath;
use serde_json::{Map, Value, json};

use super::SpliceSettings;
use super::file::{leaves_of_roots, root_index};
use crate::schema::arrow_type;
use crate::stage::{Found, column_statistics, has_nan, leaf_count};

/// What is known of the values that went into a file.
#[derive(Debug)]
pub(super) struct Kept {
    /// Columns whose old bounds may leave a NaN out.
    doubtful: BTreeSet<String>,
    /// Columns of the file without bounds.
    unbounded: BTreeSet<String>,
}

impl Kept {
    /// `stats` is the statistics of the old file.
    pub(super) fn new(settings: &SpliceSettings, stats: Option<&str>) -> Self {
        let old: Value = stats.and_then(|s| serde_json::from_str(s).ok()).unwrap_or(Value::Null);
        let doubtful =
            |column: &&Column| !floats_are_bounded(&column.data_type, old.get("minValues").and_then(|v| v.get(&column.name)));
        let doubtful = settings.spec.columns.iter().filter(doubtful).map(|c| c.name.clone()).collect();
        Self { doubtful, unbounded: BTreeSet::new() }
    }

    /// A chunk was copied.
    pub(super) fn copied(&mut self, path: &ColumnPath) {
        if let Some(root) = path.parts().first()
            && self.doubtful.contains(root)
        {
            self.unbounded.insert(root.clone());
        }
    }

    /// Values were encoded.
    pub(super) fn encoded(&mut self, column: &str, values: &ArrayRef) {
        if has_nan(values) {
            self.unbounded.insert(column.to_owned());
        }
    }

    /// The JSON text of the statistics of the file that was closed; then the next begins.
    pub(super) fn statistics(&mut self, settings: &SpliceSettings, metadata: &ParquetMetaData) -> String {
        let unbounded = std::mem::take(&mut self.unbounded);
        let schema = metadata.file_metadata().schema_descr();
        let native = parquet_to_arrow_schema(schema, None).unwrap_or_else(|_| Schema::empty());
        let leaves = leaves_of_roots(schema);
        let rows = metadata.file_metadata().num_rows();
        let (mut min, mut max, mut nulls) = (Map::new(), Map::new(), Map::new());
        for column in &settings.spec.columns {
            if settings.spec.without_statistics.contains(&column.name) || settings.spec.partition_by.contains(&column.name) {
                continue;
            }
            let found = match root_index(schema, &column.name).and_then(|root| Some((root, native.fields().get(root)?))) {
                None if column.data_type.is_primitive() => Found { nulls: Some(rows.into()), ..Found::default() },
                None => Found::default(),
                Some((_, field)) if !has_parts_of(field, &column.data_type) => Found::default(),
                Some((root, field)) => {
                    let bounded =
                        orders_as(field.data_type(), &arrow_type(&column.data_type)) && !unbounded.contains(&column.name);
                    column_statistics(&column.data_type, metadata, &mut leaves[root].start.clone(), bounded)
                }
            };
            for (values, value) in [(&mut min, found.min), (&mut max, found.max), (&mut nulls, found.nulls)] {
                if let Some(value) = value {
                    values.insert(column.name.clone(), value);
                }
            }
        }
        json!({ "numRecords": rows, "minValues": min, "maxValues": max, "nullCount": nulls }).to_string()
    }
}

/// Whether each float in a column has a bound in `old`.
fn floats_are_bounded(data_type: &DataType, old: Option<&Value>) -> bool {
    match data_type {
        DataType::Float | DataType::Double => old.is_some_and(Value::is_number),
        DataType::Struct(fields) => fields.iter().all(|f| floats_are_bounded(&f.data_type, old.and_then(|v| v.get(&f.name)))),
        _ => true,
    }
}

/// Whether a file's column has the leaves of the table's, in its order.
fn has_parts_of(field: &Field, data_type: &DataType) -> bool {
    let names_agree = match (field.data_type(), data_type) {
        (ArrowType::Struct(there), DataType::Struct(parts)) => {
            there.len() == parts.len()
                && there.iter().zip(parts).all(|(f, p)| *f.name() == p.name && has_parts_of(f, &p.data_type))
        }
        (ArrowType::Struct(_), _) | (_, DataType::Struct(_)) => false,
        _ => true,
    };
    names_agree && leaf_count(field.data_type()) == leaf_count(&arrow_type(data_type))
}

/// Whether bounds in the file's type are bounds in the table's, read as numbers.
fn orders_as(native: &ArrowType, table: &ArrowType) -> bool {
    use ArrowType as T;
    match (native, table) {
        (T::Timestamp(there, _), T::Timestamp(here, _)) => there == here,
        (T::Struct(there), T::Struct(here)) => {
            there.len() == here.len() && there.iter().zip(here).all(|(a, b)| orders_as(a.data_type(), b.data_type()))
        }
        // Whole numbers with a sign, which the footer holds as they are.
        (T::Int8 | T::Int16 | T::Int32 | T::Int64, T::Int8 | T::Int16 | T::Int32 | T::Int64) => true,
        // Nothing is said of what is in lists and maps.
        (T::List(_), T::List(_)) | (T::Map(..), T::Map(..)) => true,
        _ => native == table,
    }
}
