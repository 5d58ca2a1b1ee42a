//! Delta's text form of partition values.

use alluvium_core::{Error, Kind, Result};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use chrono::{DateTime, NaiveDate};

/// The text of `column[row]`, or `None` for null.
///
/// # Errors
/// [`Kind::Internal`] for types that no partition column may have.
pub(crate) fn partition_value(column: &dyn Array, row: usize) -> Result<Option<String>> {
    if column.is_null(row) {
        return Ok(None);
    }
    Ok(Some(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int16 => column.as_primitive::<Int16Type>().value(row).to_string(),
        DataType::Int8 => column.as_primitive::<Int8Type>().value(row).to_string(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Date32 => date_text(column.as_primitive::<Date32Type>().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            timestamp_text(column.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        DataType::Decimal128(..) => column.as_primitive::<Decimal128Type>().value_as_string(row),
        other => return Err(Error::new(Kind::Internal, format!("a partition column of type {other}"))),
    }))
}

fn date_text(days: i32) -> String {
    NaiveDate::from_epoch_days(days).map_or_else(|| days.to_string(), |d| d.to_string())
}

fn timestamp_text(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).map_or_else(|| micros.to_string(), |t| t.format("%Y-%m-%d %H:%M:%S%.6f").to_string())
}
