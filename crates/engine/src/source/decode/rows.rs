//! Records into rows or refusals: the last step of decoding a text.

use std::sync::Arc;

use alluvium_core::Field;
use arrow::array::{ArrayRef, Date32Builder, Int64Builder, RecordBatch, StringBuilder};
use arrow::datatypes::SchemaRef;

use super::cell::{Cell, Slots};
use super::column::Column;
use super::convert::{Scalar, Unfit};
use super::plan::Plan;
use super::time;
use super::{Decoded, Refused};
use crate::source::split::MAX_RECORD_BYTES;

/// The rows and refusals of one chunk while they grow.
pub(crate) struct Rows<'p> {
    plan: &'p Plan,
    columns: Vec<Column>,
    event_date: Date32Builder,
    offset: Int64Builder,
    rescued: StringBuilder,
    refused: Vec<Refused>,
    rows: u64,
}

/// Why a record is refused, and the field that is to blame if one is.
pub(crate) type Refusal = (String, Option<String>);

impl<'p> Rows<'p> {
    pub(crate) fn new(plan: &'p Plan, capacity: usize) -> Self {
        Self {
            plan,
            columns: plan.columns.iter().map(|c| Column::new(&c.data_type, capacity)).collect(),
            event_date: Date32Builder::with_capacity(capacity),
            offset: Int64Builder::with_capacity(capacity),
            rescued: StringBuilder::with_capacity(capacity, 0),
            refused: Vec::new(),
            rows: 0,
        }
    }

    /// Appends a record that was read into `slots`, unless a value does not fit or is missing.
    #[inline]
    pub(crate) fn append(&mut self, record: u64, slots: &Slots<'_>) -> Result<(), Refusal> {
        for (at, cell) in slots.cells[..self.columns.len()].iter().enumerate() {
            match cell {
                Cell::Unfit(unfit) => return Err(unfit_refusal(&self.plan.columns[at], *unfit)),
                absent if absent.is_absent() && self.plan.required(at) => return Err(absent_refusal(self.plan, at)),
                _ => {}
            }
        }
        if slots.text(&slots.cells[self.plan.org]) == Some("") {
            return Err(empty_org_refusal(self.plan));
        }
        if let Some(column) = self.plan.partitions.iter().find(|c| slots.text(&slots.cells[**c]) == Some("")) {
            let reason = "the text is empty, and a Delta table cannot be partitioned by an empty text";
            return Err((reason.to_owned(), Some(self.plan.columns[*column].name.clone())));
        }
        let Cell::Scalar(Scalar::Integer(time)) = slots.cells[self.plan.event_time] else {
            return Err(absent_refusal(self.plan, self.plan.event_time));
        };
        let day = if self.plan.event_time_is_date() { i32::try_from(time).unwrap_or(i32::MAX) } else { time::day_of(time) };

        for (column, cell) in self.columns.iter_mut().zip(&slots.cells) {
            column.append(cell, slots);
        }
        self.event_date.append_value(day);
        self.offset.append_value(offset(record));
        if slots.rescued.is_empty() {
            self.rescued.append_null();
        } else {
            self.rescued.append_value(slots.rescued.parts().concat());
        }
        self.rows += 1;
        Ok(())
    }

    /// Keeps a record that is no row.
    pub(crate) fn refuse(&mut self, record: u64, raw: &[u8], (reason, field): Refusal) {
        self.refused.push(Refused { record, raw: raw.to_vec(), reason, field, context: None });
    }

    /// As [`Self::refuse`], with what the record needs to be decoded again.
    pub(crate) fn refuse_with(&mut self, record: u64, raw: &[u8], (reason, field): Refusal, context: Option<String>) {
        self.refused.push(Refused { record, raw: raw.to_vec(), reason, field, context });
    }

    /// Keeps the beginning of a record of `length` bytes, more than are taken.
    pub(crate) fn refuse_too_long(&mut self, record: u64, beginning: &[u8], length: u64) {
        let reason = format!(
            "the record has {length} bytes with its line's end, more than {MAX_RECORD_BYTES}; only the first of them are kept"
        );
        self.refuse(record, &beginning[..MAX_RECORD_BYTES], (reason, None));
    }

    pub(crate) fn finish(mut self, schema: &SchemaRef) -> Decoded {
        let mut arrays: Vec<ArrayRef> = self.columns.into_iter().map(Column::finish).collect();
        arrays.push(Arc::new(self.event_date.finish()));
        arrays.push(Arc::new(self.offset.finish()));
        arrays.push(Arc::new(self.rescued.finish()));
        let rows =
            RecordBatch::try_new(Arc::clone(schema), arrays).expect("the columns are made from what the schema is made from");
        let records = self.rows + self.refused.len() as u64;
        Decoded { rows, refused: self.refused, records }
    }
}

/// A record's number as `_offset` holds it.
pub(crate) fn offset(record: u64) -> i64 {
    i64::try_from(record).unwrap_or(i64::MAX)
}

pub(crate) fn unfit_refusal(column: &Field, unfit: Unfit) -> Refusal {
    (format!("the value does not fit {}: {unfit}", column.data_type), Some(column.name.clone()))
}

pub(crate) fn absent_refusal(plan: &Plan, column: usize) -> Refusal {
    let reason = if column == plan.org {
        "the organisation is missing or null"
    } else if column == plan.event_time {
        "the event time is missing or null"
    } else {
        "the value is missing or null, and the field is not nullable"
    };
    (reason.to_owned(), Some(plan.columns[column].name.clone()))
}

pub(crate) fn empty_org_refusal(plan: &Plan) -> Refusal {
    ("the organisation is empty".to_owned(), Some(plan.columns[plan.org].name.clone()))
}
