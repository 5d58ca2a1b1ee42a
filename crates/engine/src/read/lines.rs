//! Rows as lines of JSON, fast: what kind a column is, is found out once a batch and not once a value.
//!
//! The texts are those of `push_json`, which also writes all kinds that are not here.

use std::fmt::Write as _;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Date32Type, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType};

use crate::source::{push_json, push_json_string, push_time};

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
const NANOS_PER_DAY: i128 = 86_400_000_000_000;

/// Appends each row as a line with one object.
pub(super) fn push_lines(text: &mut String, rows: &RecordBatch) {
    let schema = rows.schema();
    let mut columns: Vec<Column<'_>> =
        schema.fields().iter().zip(rows.columns()).enumerate().map(|(at, (f, c))| Column::new(at, f.name(), c)).collect();
    for row in 0..rows.num_rows() {
        text.push('{');
        for column in &mut columns {
            column.push(text, row);
        }
        text.push_str("}\n");
    }
}

/// A column with its name, comma and colon.
struct Column<'a> {
    lead: String,
    nullable: bool,
    whole: &'a dyn Array,
    values: Values<'a>,
}

enum Values<'a> {
    Text(&'a StringArray),
    Long(&'a Int64Array),
    Integer(&'a Int32Array),
    Double(&'a Float64Array),
    Boolean(&'a BooleanArray),
    Date(&'a Date32Array, Day),
    Time(&'a TimestampMicrosecondArray, Day),
    Struct(Vec<Column<'a>>),
    Other,
}

impl<'a> Column<'a> {
    fn new(at: usize, name: &str, array: &'a ArrayRef) -> Self {
        let mut lead = if at > 0 { ",".to_owned() } else { String::new() };
        push_json_string(&mut lead, name);
        lead.push(':');
        let values = match array.data_type() {
            DataType::Utf8 => Values::Text(array.as_string()),
            DataType::Int64 => Values::Long(array.as_primitive::<Int64Type>()),
            DataType::Int32 => Values::Integer(array.as_primitive::<Int32Type>()),
            DataType::Float64 => Values::Double(array.as_primitive::<Float64Type>()),
            DataType::Boolean => Values::Boolean(array.as_boolean()),
            DataType::Date32 => Values::Date(array.as_primitive::<Date32Type>(), Day::default()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Values::Time(array.as_primitive::<TimestampMicrosecondType>(), Day::default())
            }
            DataType::Struct(_) => Values::Struct(Self::of_struct(array.as_struct())),
            _ => Values::Other,
        };
        Self { lead, nullable: array.is_nullable(), whole: array.as_ref(), values }
    }

    fn of_struct(array: &'a StructArray) -> Vec<Self> {
        array.fields().iter().zip(array.columns()).enumerate().map(|(at, (f, c))| Self::new(at, f.name(), c)).collect()
    }

    fn push(&mut self, to: &mut String, row: usize) {
        to.push_str(&self.lead);
        if self.nullable && self.whole.is_null(row) {
            to.push_str("null");
            return;
        }
        match &mut self.values {
            Values::Text(array) => push_text(to, array.value(row)),
            Values::Long(array) => write!(to, "{}", array.value(row)).unwrap_or_default(),
            Values::Integer(array) => write!(to, "{}", array.value(row)).unwrap_or_default(),
            Values::Double(array) if array.value(row).is_finite() => write!(to, "{:?}", array.value(row)).unwrap_or_default(),
            Values::Boolean(array) => to.push_str(if array.value(row) { "true" } else { "false" }),
            Values::Date(array, day) => {
                to.push('"');
                to.push_str(day.text(array.value(row).into()));
                to.push('"');
            }
            Values::Time(array, day) => push_micros(to, array.value(row), day),
            Values::Struct(columns) => {
                to.push('{');
                for column in columns {
                    column.push(to, row);
                }
                to.push('}');
            }
            Values::Double(_) | Values::Other => push_json(to, self.whole, row),
        }
    }
}

/// The text of the day that was written last: times of one column are often of one day.
#[derive(Default)]
struct Day {
    days: Option<i64>,
    text: String,
}

impl Day {
    fn text(&mut self, days: i64) -> &str {
        if self.days != Some(days) {
            self.text.clear();
            push_time(&mut self.text, i128::from(days) * NANOS_PER_DAY, true);
            self.days = Some(days);
        }
        &self.text
    }
}

fn push_micros(to: &mut String, micros: i64, day: &mut Day) {
    let (seconds, fraction) = (micros.div_euclid(MICROS_PER_SECOND), micros.rem_euclid(MICROS_PER_SECOND));
    let (days, of_day) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
    to.push('"');
    to.push_str(day.text(days));
    to.push('T');
    push_two(to, of_day / 3600);
    to.push(':');
    push_two(to, of_day / 60 % 60);
    to.push(':');
    push_two(to, of_day % 60);
    if fraction > 0 {
        to.push('.');
        let (mut left, mut unit) = (fraction, MICROS_PER_SECOND / 10);
        while left > 0 {
            to.push(digit(left / unit));
            left %= unit;
            unit /= 10;
        }
    }
    to.push_str("Z\"");
}

fn push_two(to: &mut String, number: i64) {
    to.push(digit(number / 10));
    to.push(digit(number % 10));
}

fn digit(number: i64) -> char {
    char::from(b'0' + u8::try_from(number).unwrap_or_default())
}

/// Most texts need no escapes: a look at their bytes tells.
fn push_text(to: &mut String, value: &str) {
    if value.bytes().any(|b| b < b' ' || b == b'"' || b == b'\\') {
        push_json_string(to, value);
        return;
    }
    to.push('"');
    to.push_str(value);
    to.push('"');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow::array::{BinaryArray, Decimal128Array};
    use arrow::datatypes::{Field, Fields, Schema};
    use proptest::prelude::*;

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        let fields: Vec<Field> = columns.iter().map(|(name, c)| Field::new(*name, c.data_type().clone(), true)).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, c)| c).collect()).unwrap()
    }

    fn lines(rows: &RecordBatch) -> String {
        let mut text = String::new();
        push_lines(&mut text, rows);
        text
    }

    #[test]
    fn values_of_every_kind_by_hand() {
        let score: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.5), Some(f64::NAN)]));
        let inner = StructArray::new(Fields::from(vec![Field::new("a\"b", DataType::Float64, true)]), vec![score], None);
        let rows = batch(vec![
            ("t", Arc::new(StringArray::from(vec![Some("a\n\"é"), None]))),
            ("l", Arc::new(Int64Array::from(vec![i64::MIN, 7]))),
            ("i", Arc::new(Int32Array::from(vec![-1, 0]))),
            ("b", Arc::new(BooleanArray::from(vec![true, false]))),
            ("d", Arc::new(Date32Array::from(vec![-1, 20_000]))),
            ("at", Arc::new(TimestampMicrosecondArray::from(vec![-1, 1_767_323_045_050_000]).with_timezone("UTC"))),
            ("s", Arc::new(inner)),
            ("p", Arc::new(Decimal128Array::from(vec![1250, -5]).with_precision_and_scale(10, 2).unwrap())),
            ("r", Arc::new(BinaryArray::from(vec![&b"hi"[..], b""]))),
        ]);
        assert_eq!(
            lines(&rows),
            concat!(
                r#"{"t":"a\u000a\"é","l":-9223372036854775808,"i":-1,"b":true,"d":"1969-12-31","at":"1969-12-31T23:59:59.999999Z","s":{"a\"b":0.5},"p":"12.50","r":"aGk="}"#,
                "\n",
                r#"{"t":null,"l":7,"i":0,"b":false,"d":"2024-10-04","at":"2026-01-02T03:04:05.05Z","s":{"a\"b":"NaN"},"p":"-0.05","r":""}"#,
                "\n"
            )
        );
        assert_eq!(lines(&rows.slice(1, 1)).lines().count(), 1);
    }

    proptest! {
        #[test]
        fn texts_are_those_of_single_values(
            texts in proptest::collection::vec(proptest::option::of(".{0,12}"), 4),
            times in proptest::collection::vec(proptest::option::of(-400_000_000_000_000_000_i64..400_000_000_000_000_000), 4),
            days in proptest::collection::vec(proptest::option::of(any::<i32>()), 4),
            floats in proptest::collection::vec(proptest::option::of(any::<f64>()), 4),
        ) {
            let rows = batch(vec![
                ("t", Arc::new(StringArray::from(texts))),
                ("at", Arc::new(TimestampMicrosecondArray::from(times))),
                ("d", Arc::new(Date32Array::from(days))),
                ("f", Arc::new(Float64Array::from(floats))),
            ]);
            let mut slow = String::new();
            for row in 0..rows.num_rows() {
                for (at, (name, column)) in ["t", "at", "d", "f"].iter().zip(rows.columns()).enumerate() {
                    slow.push_str(&format!("{}\"{name}\":", if at > 0 { "," } else { "{" }));
                    push_json(&mut slow, column, row);
                }
                slow.push_str("}\n");
            }
            prop_assert_eq!(lines(&rows), slow);
        }
    }
}
