//! Rows of a data table as the source gave them: what a request may match.

use std::borrow::Cow;

use alluvium_core::{Dataset, Error, Kind, MICROS_PER_DAY, Result, day_of_micros};
use arrow::array::{Array, ArrayRef, AsArray, Date32Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, TimeUnit, TimestampMicrosecondType};

use super::original::{Original, id_of_json};

/// The column that holds what the source gave.
pub(crate) const ORIGINAL: &str = "_original";

/// The columns that tell which requests match a row.
pub(crate) fn deciding_columns(dataset: &Dataset) -> Vec<&str> {
    let mut names: Vec<&str> = vec![&dataset.org, &dataset.event_time, "event_date", ORIGINAL];
    for name in dataset.identities.iter().map(|i| i.field.as_str()).chain(dataset.key.as_deref()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Rows of a batch that has the [`deciding_columns`]; ids and keys that no request names may be left out.
pub(crate) struct SourceRows<'a> {
    pub(crate) batch: &'a RecordBatch,
    org: StringArray,
    times: Vec<i64>,
    ids: Vec<(&'a str, Option<StringArray>)>,
    key: Option<StringArray>,
    original: Option<StringArray>,
}

impl<'a> SourceRows<'a> {
    /// # Errors
    /// [`Kind::Internal`] if a column is missing or of another type than declared.
    pub(crate) fn new(batch: &'a RecordBatch, dataset: &'a Dataset) -> Result<Self> {
        let named = |name: &String| batch.column_by_name(name).map(texts).transpose();
        let ids = dataset.identities.iter().map(|i| Ok((i.field.as_str(), named(&i.field)?)));
        let original = column(batch, ORIGINAL)?;
        Ok(Self {
            batch,
            org: texts(column(batch, &dataset.org)?)?,
            times: event_times(column(batch, &dataset.event_time)?)?,
            ids: ids.collect::<Result<_>>()?,
            key: dataset.key.as_ref().map(named).transpose()?.flatten(),
            original: if original.null_count() == original.len() { None } else { Some(texts(original)?) },
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.batch.num_rows()
    }

    pub(crate) fn org(&self, row: usize) -> &str {
        self.org.value(row)
    }

    pub(crate) fn event_time_micros(&self, row: usize) -> i64 {
        self.times[row]
    }

    pub(crate) fn key(&self, row: usize) -> Option<&str> {
        self.key.as_ref().and_then(|key| value(key, row))
    }

    /// What the source gave of the columns that requests changed.
    pub(crate) fn original(&self, row: usize) -> Result<Original> {
        self.original_text(row).map_or_else(|| Ok(Original::default()), Original::parse)
    }

    pub(crate) fn original_text(&self, row: usize) -> Option<&str> {
        self.original.as_ref().and_then(|texts| value(texts, row))
    }

    /// The row's id in the identity of that place, as the source gave it.
    pub(crate) fn source_id<'s>(&'s self, identity: usize, row: usize, original: &Original) -> Option<Cow<'s, str>> {
        let (field, array) = self.ids.get(identity)?;
        match original.get(field) {
            Some(json) => id_of_json(json).map(Cow::Owned),
            None => array.as_ref().and_then(|array| value(array, row)).map(Cow::Borrowed),
        }
    }
}

/// The days that rows are counted under.
pub(crate) struct SourceDays<'b>(Option<&'b Date32Array>);

impl<'b> SourceDays<'b> {
    /// The column that tells them.
    pub(crate) const COLUMN: &'static str = "event_date";

    pub(crate) fn of(rows: &'b RecordBatch) -> Self {
        Self(rows.column_by_name(Self::COLUMN).and_then(|column| column.as_primitive_opt::<Date32Type>()))
    }

    /// That of a row; where another writer left it out, that of its event, in UTC.
    pub(crate) fn day(&self, row: usize, event_micros: i64) -> i32 {
        let told = self.0.filter(|days| days.is_valid(row));
        told.map_or_else(|| day_of_micros(event_micros), |days| days.value(row))
    }
}

fn value(array: &StringArray, row: usize) -> Option<&str> {
    array.is_valid(row).then(|| array.value(row))
}

pub(crate) fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::new(Kind::Internal, format!("resolving rows: the column {name} is missing")))
}

/// Ids in their canonical text: strings as they are, integers in digits.
pub(crate) fn texts(array: &ArrayRef) -> Result<StringArray> {
    if let Some(texts) = array.as_string_opt::<i32>() {
        return Ok(texts.clone());
    }
    let texts = cast(array, &DataType::Utf8).map_err(|e| Error::new(Kind::Internal, "reading ids as text").source(e))?;
    Ok(texts.as_string::<i32>().clone())
}

/// Event times in microseconds since 1970; a date is its first moment.
pub(crate) fn event_times(array: &ArrayRef) -> Result<Vec<i64>> {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(array.as_primitive::<TimestampMicrosecondType>().values().to_vec()),
        DataType::Date32 => {
            Ok(array.as_primitive::<Date32Type>().values().iter().map(|day| i64::from(*day) * MICROS_PER_DAY).collect())
        }
        other => Err(Error::new(Kind::Internal, format!("resolving rows: event times of type {other}"))),
    }
}
