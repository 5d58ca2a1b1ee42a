//! Columns taken whole are the columns that rows one by one become.

use std::sync::Arc;

use alluvium_core::Dataset;
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray, UInt16Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType as ArrowType, Field, Fields};
use proptest::prelude::*;

use super::dataset;
use crate::source::decode::plan::Plan;
use crate::source::decode::rows::Rows;
use crate::source::decode::{columnar, decoded_schema, whole};

/// One row's values, each perhaps null.
type Values = (Option<u8>, Option<i64>, Option<u8>, Option<i16>, Option<i32>, Option<f32>, Option<i64>, (Option<()>, Option<u8>));

/// What makes a good row a bad one.
type Change = fn(&mut Values);

fn declared() -> Dataset {
    let mut dataset = dataset(&[
        ("text", "string"),
        ("number", "long"),
        ("day", "date"),
        ("real", "double"),
        ("money", "decimal(10,2)"),
        ("yes", "boolean"),
        ("raw", "binary"),
        ("part", "struct<a: string, b: long, c: double>"),
    ]);
    dataset.layout.partition_by = vec!["text".to_owned()];
    dataset
}

fn text(of: u8) -> String {
    ["", "o", "\u{20000}", "3"][usize::from(of % 4)].to_owned()
}

/// A batch of these rows; the bits of `forms` choose among the types that a file may have for a column.
fn batch_of(rows: &[Values], forms: u16) -> RecordBatch {
    let form = |bit: u16| forms & (1 << bit) != 0;
    let texts = |get: fn(&Values) -> Option<u8>| StringArray::from_iter(rows.iter().map(|row| get(row).map(text)));
    let orgs: ArrayRef = Arc::new(texts(|r| r.0));
    let orgs = if form(0) { cast(&orgs, &ArrowType::LargeUtf8).unwrap() } else { orgs };
    let times = TimestampMicrosecondArray::from_iter(rows.iter().map(|r| r.1));
    let times: ArrayRef = Arc::new(if form(1) { times.with_timezone("+02:00") } else { times });
    let text: ArrayRef = Arc::new(texts(|r| r.2));
    let dictionary = ArrowType::Dictionary(Box::new(ArrowType::Int32), Box::new(ArrowType::Utf8));
    let text = if form(2) { cast(&text, &dictionary).unwrap() } else { text };
    let numbers = rows.iter().map(|r| r.3);
    let number: ArrayRef = match (form(3), form(4)) {
        (true, true) => Arc::new(Int16Array::from_iter(numbers)),
        (true, false) => Arc::new(Int64Array::from_iter(numbers.map(|n| n.map(i64::from)))),
        // Read as a text would be; what is negative becomes null, to have a number.
        (false, true) => Arc::new(UInt16Array::from_iter(numbers.map(|n| n.and_then(|n| u16::try_from(n).ok())))),
        (false, false) => Arc::new(Int32Array::from_iter(numbers.map(|n| n.map(i32::from)))),
    };
    let reals = rows.iter().map(|r| r.5);
    let real: ArrayRef = if form(5) {
        Arc::new(Float64Array::from_iter(reals.map(|f| f.map(f64::from))))
    } else {
        Arc::new(Float32Array::from_iter(reals))
    };
    let money = Decimal128Array::from_iter(rows.iter().map(|r| r.6.map(i128::from)));
    let money = money.with_precision_and_scale(10, if form(6) { 2 } else { 1 }).unwrap();
    let yes = BooleanArray::from_iter(rows.iter().map(|r| r.3.map(|n| n % 2 == 0)));
    let raw = BinaryArray::from_iter(rows.iter().map(|r| r.6.map(i64::to_le_bytes)));
    // Below a null struct there are values all the same.
    let a: ArrayRef = Arc::new(texts(|r| r.7.1));
    let b: ArrayRef = Arc::new(Int64Array::from_iter(rows.iter().map(|r| r.6)));
    let mut parts = vec![(Field::new("b", ArrowType::Int64, true), b), (Field::new("a", ArrowType::Utf8, true), a)];
    if form(7) {
        parts.push((Field::new("more", ArrowType::Utf8, true), Arc::new(texts(|r| r.7.1))));
    }
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = parts.into_iter().unzip();
    let nulls = NullBuffer::from_iter(rows.iter().map(|r| r.7.0.is_some()));
    let part = StructArray::try_new_with_length(Fields::from(fields), arrays, Some(nulls), rows.len()).unwrap();
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("org", orgs),
        ("at", times),
        ("text", text),
        ("number", number),
        ("day", Arc::new(Date32Array::from_iter(rows.iter().map(|r| r.4)))),
        ("real", real),
        ("money", Arc::new(money)),
        ("yes", Arc::new(yes)),
        ("part", Arc::new(part)),
    ];
    if form(8) {
        columns.push(("raw", Arc::new(raw)));
    }
    if form(9) {
        columns.push(("undeclared", Arc::new(texts(|r| r.7.1))));
    }
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

fn values() -> impl Strategy<Value = Values> {
    // Mostly what fits, so that whole batches do.
    let text = || prop_oneof![9 => Just(Some(1_u8)), 6 => Just(Some(2)), 1 => any::<Option<u8>>()];
    let micros = prop_oneof![9 => (0..1_i64 << 52).prop_map(Some), 1 => any::<Option<i64>>()];
    let days = prop_oneof![9 => (-700_000..2_900_000).prop_map(Some), 5 => Just(None), 1 => any::<Option<i32>>()];
    let money = prop_oneof![9 => (-9_999_999_999..=9_999_999_999_i64).prop_map(Some), 5 => Just(None), 1 => any::<Option<i64>>()];
    let part = (any::<Option<()>>(), any::<Option<u8>>());
    (text(), micros, text(), any::<Option<i16>>(), days, any::<Option<f32>>(), money, part)
}

proptest! {
    #[test]
    fn a_batch_taken_whole_is_what_its_rows_become_one_by_one(
        rows in prop::collection::vec(values(), 0..6),
        forms in any::<u16>(),
        skip in 0_usize..2,
    ) {
        let (dataset, batch) = (declared(), batch_of(&rows, forms));
        let batch = batch.slice(skip.min(rows.len()), rows.len() - skip.min(rows.len()));
        let (plan, schema) = (Plan::new(&dataset), decoded_schema(&dataset));
        let mut expected = Rows::new(&plan, batch.num_rows());
        columnar::batch(&plan, 7, &batch, &[], &mut expected);
        let expected = expected.finish(&schema);
        if let Some(whole) = whole::batch(&plan, &schema, 7, &batch) {
            prop_assert_eq!(&expected.refused, &Vec::new());
            prop_assert_eq!(whole, expected.rows);
        }
    }
}

#[test]
fn batches_of_the_declared_or_narrower_types_are_taken_whole_and_others_are_not() {
    let dataset = declared();
    let (plan, schema) = (Plan::new(&dataset), decoded_schema(&dataset));
    let taken = |rows: &[Values], forms| whole::batch(&plan, &schema, 0, &batch_of(rows, forms)).is_some();
    let good: Values = (Some(1), Some(0), Some(1), Some(-1), None, Some(0.5), Some(1), (None, Some(1)));
    let decimal = 1 << 6;
    for forms in [decimal, decimal | 0b1_0000_0111, decimal | 0b11_1000, decimal | 0b1000] {
        assert!(taken(&[good, good], forms), "{forms:b}");
    }
    // A decimal of another scale, an unsigned number, a field and a column that are not declared.
    for forms in [0, decimal | 0b1_0000, decimal | 1 << 7, decimal | 1 << 9] {
        assert!(!taken(&[good, good], forms), "{forms:b}");
    }
    let bad: [(&str, Change); 7] = [
        ("no organisation", |row| row.0 = None),
        ("an empty organisation", |row| row.0 = Some(0)),
        ("no event time", |row| row.1 = None),
        ("an event time beyond the year 9999", |row| row.1 = Some(253_402_300_800_000_000)),
        ("an empty text to partition by", |row| row.2 = Some(0)),
        ("a day before the year 1", |row| row.4 = Some(-719_163)),
        ("a decimal of more digits than its type", |row| row.6 = Some(10_000_000_000)),
    ];
    for (what, change) in bad {
        let mut row = good;
        change(&mut row);
        assert!(!taken(&[good, row], decimal), "{what}");
    }
}
