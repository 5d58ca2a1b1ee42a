//! Batches of Parquet and Avro that become rows column by column.
//!
//! Most files have the declared types, or narrower ones. Then no value needs to be looked at by itself: columns are taken as they
//! are or widened by Arrow. Invariant: what comes out is what [`super::columnar`] makes of the same batch, row by row; wherever
//! that might be anything else (a value that does not fit, something to rescue, a type that is read as a text would be), the
//! answer is `None`, and the batch goes there.

use std::sync::Arc;

use alluvium_core::{DataType, StructField};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StructArray, make_array, new_null_array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, max, min};
use arrow::datatypes::{
    DataType as ArrowType, Date32Type, Decimal128Type, Fields, SchemaRef, TimeUnit, TimestampMicrosecondType,
};

use super::plan::Plan;
use super::rows::offset;
use super::schema::arrow_type;
use super::time;

/// All rows of a batch, of which none is refused; `first` is the number of the first.
pub(crate) fn batch(plan: &Plan, schema: &SchemaRef, first: u64, batch: &RecordBatch) -> Option<RecordBatch> {
    let rows = batch.num_rows();
    let mut columns: Vec<Option<ArrayRef>> = vec![None; plan.columns.len()];
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let Some(entry) = plan.nodes[0].entry(field.name()) else {
            if array.null_count() == rows {
                continue;
            }
            return None;
        };
        let entry = &plan.nodes[0].entries[entry];
        if entry.node.is_some() {
            return None;
        }
        for &at in &entry.columns {
            let declared = as_declared(&plan.columns[at].data_type, array)?;
            if columns[at].replace(declared).is_some() {
                return None;
            }
        }
    }
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for (at, (column, declared)) in columns.into_iter().zip(&plan.columns).enumerate() {
        let array = column.unwrap_or_else(|| new_null_array(&arrow_type(&declared.data_type), rows));
        if plan.required(at) && array.null_count() > 0 {
            return None;
        }
        if (at == plan.org || plan.partitions.contains(&at)) && has_empty_text(&array) {
            return None;
        }
        arrays.push(array);
    }
    let times = &arrays[plan.event_time];
    let days = if plan.event_time_is_date() {
        Arc::clone(times)
    } else {
        Arc::new(times.as_primitive_opt::<TimestampMicrosecondType>()?.unary::<_, Date32Type>(time::day_of))
    };
    arrays.push(days);
    arrays.push(Arc::new(Int64Array::from_iter_values((first..first + rows as u64).map(offset))));
    arrays.push(new_null_array(&ArrowType::Utf8, rows));
    RecordBatch::try_new(Arc::clone(schema), arrays).ok()
}

fn has_empty_text(array: &ArrayRef) -> bool {
    array.as_string_opt::<i32>().is_some_and(|texts| texts.iter().any(|text| text == Some("")))
}

/// A column of the file as the declared type, if each of its values is one of that type.
fn as_declared(data_type: &DataType, array: &ArrayRef) -> Option<ArrayRef> {
    use {ArrowType as A, DataType as D};
    let wanted = arrow_type(data_type);
    match (array.data_type(), data_type) {
        (A::Date32, D::Date) => {
            let days = array.as_primitive::<Date32Type>();
            all_are(min(days), max(days), time::day_in_range)?;
            Some(Arc::clone(array))
        }
        (A::Timestamp(TimeUnit::Microsecond, _), D::Timestamp) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>();
            all_are(min(micros), max(micros), time::in_range)?;
            // The zone of a file is how its times are shown; without one they are UTC.
            Some(Arc::new(micros.clone().with_timezone("UTC")))
        }
        (from, D::Decimal { precision, .. }) if *from == wanted => {
            array.as_primitive::<Decimal128Type>().validate_decimal_precision(*precision).ok()?;
            Some(Arc::clone(array))
        }
        (A::Struct(_), D::Struct(fields)) => structure(fields, wanted, array.as_struct()),
        (from, D::String | D::Binary | D::Boolean | D::Long | D::Integer | D::Short | D::Byte | D::Double | D::Float)
            if *from == wanted =>
        {
            Some(Arc::clone(array))
        }
        (A::Int32 | A::Int16 | A::Int8, D::Long)
        | (A::Int16 | A::Int8, D::Integer)
        | (A::Int8, D::Short)
        | (A::Float32, D::Double)
        | (A::LargeUtf8 | A::Utf8View, D::String)
        | (A::LargeBinary | A::BinaryView, D::Binary) => cast(array, &wanted).ok(),
        (A::Dictionary(_, values), D::String) if **values == A::Utf8 => cast(array, &wanted).ok(),
        _ => None,
    }
}

/// Whether the least and the greatest value, and so all, are what `fits` takes.
fn all_are<T, E>(least: Option<T>, greatest: Option<T>, fits: impl Fn(T) -> Result<T, E>) -> Option<()> {
    least.into_iter().chain(greatest).all(|value| fits(value).is_ok()).then_some(())
}

/// A struct of the declared fields, in their order. A null struct has no values below.
fn structure(declared: &[StructField], wanted: ArrowType, array: &StructArray) -> Option<ArrayRef> {
    let ArrowType::Struct(fields) = wanted else { return None };
    let mut columns: Vec<Option<ArrayRef>> = vec![None; declared.len()];
    for (name, column) in array.column_names().into_iter().zip(array.columns()) {
        match declared.iter().position(|f| f.name == name) {
            Some(at) => {
                let part = below(&as_declared(&declared[at].data_type, column)?, array.nulls())?;
                if columns[at].replace(part).is_some() {
                    return None;
                }
            }
            None if column.null_count() == array.len() => {}
            None => return None,
        }
    }
    finish(fields, columns, array)
}

fn finish(fields: Fields, columns: Vec<Option<ArrayRef>>, array: &StructArray) -> Option<ArrayRef> {
    let columns = columns.into_iter().zip(&fields);
    let columns = columns.map(|(c, f)| c.unwrap_or_else(|| new_null_array(f.data_type(), array.len()))).collect();
    let made = StructArray::try_new_with_length(fields, columns, array.nulls().cloned(), array.len()).ok()?;
    Some(Arc::new(made))
}

/// The array, null where what it is part of is null.
fn below(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Option<ArrayRef> {
    if nulls.is_none() {
        return Some(Arc::clone(array));
    }
    let nulls = NullBuffer::union(array.nulls(), nulls);
    Some(make_array(array.to_data().into_builder().nulls(nulls).build().ok()?))
}
