//! A record batch of Parquet or Avro into rows and refusals, by the rules of texts.
//!
//! A value whose Arrow type is the declared one, or a plain number or text of it, is taken as it is; any other is spelled and
//! read as a text would be. Batches in which no value needs a look by itself do not come here: see [`super::whole`].

use std::fmt::Write as _;
use std::ops::Range;

use alluvium_core::{DataType, StructField, TimeFault, TimeUnit};
use arrow::array::{Array, AsArray, MapArray, RecordBatch, StructArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType as ArrowType, Int8Type, Int16Type, Int32Type, Int64Type};

use super::cell::{Cell, Slots};
use super::convert::{Kind, Scalar, Unfit};
use super::plan::Plan;
use super::render;
use super::rescue::{Path, Step, push_json_text};
use super::rows::{Refusal, Rows, unfit_refusal};
use super::time::{self, MICROS_PER_DAY};

/// Decodes all rows of a batch; `first` is the number of the first. `too_fine` names rows, in order, whose time in the named
/// column is finer than the array can tell.
pub(crate) fn batch(plan: &Plan, first: u64, batch: &RecordBatch, too_fine: &[(usize, String)], rows: &mut Rows<'_>) {
    let record = StructArray::from(batch.clone());
    let undeclared = has_undeclared(plan, 0, &record);
    let mut slots = Slots::new(plan.cells);
    let mut too_fine = too_fine.iter().peekable();
    for row in 0..batch.num_rows() {
        slots.clear();
        fill(plan, 0, &record, row, &mut slots);
        if undeclared {
            rescue(plan, 0, &record, row, &mut Vec::new(), &mut slots);
        }
        let mut refusal = None;
        while let Some((_, column)) = too_fine.next_if(|(at, _)| *at == row) {
            refusal = refusal.or_else(|| finer(plan, column));
        }
        let outcome = match refusal {
            Some(refusal) => Err(refusal),
            None => rows.append(first + row as u64, &slots),
        };
        if let Err(refusal) = outcome {
            let mut raw = String::new();
            render::push_json(&mut raw, &record, row);
            rows.refuse(first + row as u64, raw.as_bytes(), refusal);
        }
    }
}

/// The refusal of a row whose column of the file holds a time finer than microseconds.
fn finer(plan: &Plan, column: &str) -> Option<Refusal> {
    let declared = plan.columns.iter().find(|c| c.from[0] == column);
    Some(match declared {
        Some(declared) => unfit_refusal(declared, Unfit::Time(TimeFault::TooFine)),
        None => (format!("the undeclared column {column:?} holds a time finer than microseconds"), None),
    })
}

/// Reads a row's declared values, from the object that is `node` on.
fn fill<'a>(plan: &Plan, node: usize, object: &'a StructArray, row: usize, slots: &mut Slots<'a>) {
    for (name, column) in object.column_names().into_iter().zip(object.columns()) {
        let Some(entry) = plan.nodes[node].entry(name) else { continue };
        let entry = &plan.nodes[node].entries[entry];
        for &at in &entry.columns {
            let column_plan = &plan.columns[at];
            let path = Path { parent: None, step: Step::Column(&column_plan.from) };
            slots.cells[at] = cell(&column_plan.data_type, column_plan.unit, &path, column, row, slots);
        }
        if let (Some(inner), Some(object)) = (entry.node, column.as_struct_opt())
            && object.is_valid(row)
        {
            fill(plan, inner, object, row, slots);
        }
    }
}

/// Whether the object has fields that no column takes.
fn has_undeclared(plan: &Plan, node: usize, object: &StructArray) -> bool {
    object.column_names().into_iter().zip(object.columns()).any(|(name, column)| {
        let Some(entry) = plan.nodes[node].entry(name) else { return true };
        let entry = &plan.nodes[node].entries[entry];
        match (entry.node, column.as_struct_opt()) {
            _ if !entry.columns.is_empty() => false,
            (Some(inner), Some(object)) => has_undeclared(plan, inner, object),
            _ => true,
        }
    })
}

/// Keeps what no column takes. A null is no value: columnar files have one wherever there is none.
fn rescue(plan: &Plan, node: usize, object: &StructArray, row: usize, way: &mut Vec<String>, slots: &mut Slots<'_>) {
    for (name, column) in object.column_names().into_iter().zip(object.columns()) {
        let entry = plan.nodes[node].entry(name).map(|e| &plan.nodes[node].entries[e]);
        if column.is_null(row) || entry.is_some_and(|e| !e.columns.is_empty()) {
            continue;
        }
        let mut key = String::new();
        push_json_text(&mut key, name);
        match (entry.and_then(|e| e.node), column.as_struct_opt()) {
            (Some(inner), Some(object)) => {
                way.push(key);
                rescue(plan, inner, object, row, way, slots);
                slots.rescued.leave(way.len());
                way.pop();
            }
            _ => {
                let mut value = String::new();
                render::push_json(&mut value, column, row);
                let way: Vec<&str> = way.iter().map(String::as_str).collect();
                slots.rescued.member(&way, &key, &value);
            }
        }
    }
}

/// The value of `array` at `row` as a declared type.
fn cell<'a>(
    data_type: &DataType,
    unit: Option<TimeUnit>,
    path: &Path<'_>,
    array: &'a dyn Array,
    row: usize,
    slots: &mut Slots<'a>,
) -> Cell<'a> {
    if array.is_null(row) || array.data_type() == &ArrowType::Null {
        return Cell::Null;
    }
    if let Some((values, row)) = render::inner(array, row) {
        return cell(data_type, unit, path, values, row, slots);
    }
    if let Some(text) = render::text(array, row) {
        return slots.simple(data_type, unit, Kind::String, text);
    }
    if let Some(bytes) = render::bytes(array, row) {
        return binary(data_type, bytes, slots);
    }
    if let Some(instant) = render::instant(array, row) {
        return time_cell(data_type, instant, array, row, slots);
    }
    if let Some(items) = render::items(array, row) {
        return list(data_type, unit, path, items, slots);
    }
    match (array.data_type(), data_type) {
        (ArrowType::Int64, DataType::Long) => Cell::Scalar(Scalar::Integer(value::<Int64Type>(array, row))),
        (ArrowType::Int32, DataType::Long | DataType::Integer) => integer(value::<Int32Type>(array, row)),
        (ArrowType::Int16, DataType::Long | DataType::Integer | DataType::Short) => integer(value::<Int16Type>(array, row)),
        (ArrowType::Int8, DataType::Long | DataType::Integer | DataType::Short | DataType::Byte) => {
            integer(value::<Int8Type>(array, row))
        }
        (ArrowType::Boolean, _) => {
            let text = if array.as_boolean().value(row) { "true" } else { "false" };
            slots.simple(data_type, unit, Kind::Boolean, text)
        }
        (ArrowType::Float64 | ArrowType::Float32 | ArrowType::Float16, _) => float(data_type, unit, array, row, slots),
        (ArrowType::Struct(_), _) => structure(data_type, unit, path, array.as_struct(), row, slots),
        (ArrowType::Map(..), _) => map(data_type, unit, path, array.as_map(), row, slots),
        (other, _) if other.is_integer() || other.is_decimal() => {
            let start = slots.unescaped.len();
            render::push_plain(&mut slots.unescaped, array, row);
            slots.simple_unescaped(data_type, unit, Kind::Number, start)
        }
        (_, DataType::String) => spelled(array, row, slots),
        _ => Cell::Unfit(Unfit::Given("a value of another kind")),
    }
}

fn value<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

fn integer<'a>(value: impl Into<i64>) -> Cell<'a> {
    Cell::Scalar(Scalar::Integer(value.into()))
}

fn spelled<'a>(array: &dyn Array, row: usize, slots: &mut Slots<'a>) -> Cell<'a> {
    let start = slots.unescaped.len();
    render::push_plain(&mut slots.unescaped, array, row);
    Cell::Unescaped { start, end: slots.unescaped.len() }
}

fn binary<'a>(data_type: &DataType, bytes: &'a [u8], slots: &mut Slots<'a>) -> Cell<'a> {
    match data_type {
        DataType::Binary => {
            let start = slots.bytes.len();
            slots.bytes.extend_from_slice(bytes);
            Cell::Bytes { start, end: slots.bytes.len() }
        }
        DataType::String => std::str::from_utf8(bytes).map_or(Cell::Unfit(Unfit::NotUtf8), Cell::Text),
        _ => Cell::Unfit(Unfit::Given("binary")),
    }
}

/// A float goes to a float type when the type has exactly this value, to others by its shortest text.
fn float<'a>(data_type: &DataType, unit: Option<TimeUnit>, array: &dyn Array, row: usize, slots: &mut Slots<'a>) -> Cell<'a> {
    let value = render::float(array, row).unwrap_or(f64::NAN);
    match data_type {
        DataType::Double => Cell::Scalar(Scalar::Double(value)),
        DataType::Float if f64::from(value as f32) == value || value.is_nan() => Cell::Scalar(Scalar::Double(value)),
        DataType::Float => Cell::Unfit(Unfit::OutOfRange),
        DataType::String => spelled(array, row, slots),
        _ if !value.is_finite() => Cell::Unfit(Unfit::NotANumber),
        DataType::Long | DataType::Integer | DataType::Short | DataType::Byte | DataType::Timestamp => {
            // The whole number itself: a shortest text may stand for its neighbours too.
            let start = slots.unescaped.len();
            if value.fract() != 0.0 {
                return Cell::Unfit(Unfit::NotWhole);
            }
            if value.abs() >= 1e19 {
                return Cell::Unfit(Unfit::OutOfRange);
            }
            write!(slots.unescaped, "{}", value as i128).unwrap_or_default();
            slots.simple_unescaped(data_type, unit, Kind::Number, start)
        }
        _ => {
            let start = slots.unescaped.len();
            render::push_plain(&mut slots.unescaped, array, row);
            slots.simple_unescaped(data_type, unit, Kind::Number, start)
        }
    }
}

fn time_cell<'a>(
    data_type: &DataType,
    (nanos, is_date): (i128, bool),
    array: &dyn Array,
    row: usize,
    slots: &mut Slots<'a>,
) -> Cell<'a> {
    if !matches!(data_type, DataType::Timestamp | DataType::Date | DataType::String) {
        return Cell::Unfit(Unfit::Given(if is_date { "a date" } else { "a time" }));
    }
    if nanos % 1000 != 0 && data_type == &DataType::Timestamp {
        return Cell::Unfit(Unfit::Time(TimeFault::TooFine));
    }
    let micros = match i64::try_from(nanos.div_euclid(1000))
        .map_err(|_| Unfit::Time(TimeFault::YearOutOfRange))
        .and_then(time::in_range)
    {
        Ok(micros) => micros,
        Err(unfit) => return Cell::Unfit(unfit),
    };
    match data_type {
        DataType::Timestamp => integer(micros),
        DataType::Date if is_date && nanos % (i128::from(MICROS_PER_DAY) * 1000) == 0 => integer(time::day_of(micros)),
        DataType::String => spelled(array, row, slots),
        _ => Cell::Unfit(Unfit::Given("a time")),
    }
}

fn structure<'a>(
    data_type: &DataType,
    unit: Option<TimeUnit>,
    path: &Path<'_>,
    array: &'a StructArray,
    row: usize,
    slots: &mut Slots<'a>,
) -> Cell<'a> {
    let DataType::Struct(fields) = data_type else { return Cell::Unfit(Unfit::Given("a struct")) };
    let pending = slots.pending.len();
    slots.pending.resize(pending + fields.len(), Cell::Missing);
    let mut unfit = None;
    for (name, column) in array.column_names().into_iter().zip(array.columns()) {
        match fields.iter().position(|f: &StructField| f.name == name) {
            Some(at) => {
                let path = Path { parent: Some(path), step: Step::Name(name) };
                let part = cell(&fields[at].data_type, unit, &path, column, row, slots);
                unfit = unfit.or(part.unfit());
                slots.pending[pending + at] = part;
            }
            None if column.is_valid(row) => {
                let (mut key, mut value) = (String::new(), String::new());
                push_json_text(&mut key, name);
                render::push_json(&mut value, column, row);
                slots.rescued.dotted(path, &key, &value);
            }
            None => {}
        }
    }
    let (start, _) = slots.settle(pending);
    unfit.map_or(Cell::Struct { start }, Cell::Unfit)
}

fn list<'a>(
    data_type: &DataType,
    unit: Option<TimeUnit>,
    path: &Path<'_>,
    (items, range): (&'a dyn Array, Range<usize>),
    slots: &mut Slots<'a>,
) -> Cell<'a> {
    let DataType::Array(element) = data_type else { return Cell::Unfit(Unfit::Given("a list")) };
    let pending = slots.pending.len();
    let mut unfit = None;
    for (at, item) in range.enumerate() {
        let path = Path { parent: Some(path), step: Step::Item(at) };
        let part = cell(element, unit, &path, items, item, slots);
        unfit = unfit.or(part.unfit());
        slots.pending.push(part);
    }
    let (start, end) = slots.settle(pending);
    unfit.map_or(Cell::Array { start, end }, Cell::Unfit)
}

fn map<'a>(
    data_type: &DataType,
    unit: Option<TimeUnit>,
    path: &Path<'_>,
    array: &'a MapArray,
    row: usize,
    slots: &mut Slots<'a>,
) -> Cell<'a> {
    let DataType::Map(key_type, value_type) = data_type else { return Cell::Unfit(Unfit::Given("a map")) };
    let pending = slots.pending.len();
    let mut unfit = None;
    for entry in render::range(array.value_offsets(), row) {
        let mut name = String::new();
        render::push_plain(&mut name, array.keys(), entry);
        let path = Path { parent: Some(path), step: Step::Name(&name) };
        let key = cell(key_type, unit, &path, array.keys(), entry, slots);
        let value = cell(value_type, unit, &path, array.values(), entry, slots);
        unfit = unfit.or(key.is_absent().then_some(Unfit::NullKey)).or(key.unfit()).or(value.unfit());
        slots.pending.extend([key, value]);
    }
    if slots.has_key_twice(pending) {
        unfit = unfit.or(Some(Unfit::KeyTwice));
    }
    let (start, end) = slots.settle(pending);
    unfit.map_or(Cell::Map { start, end }, Cell::Unfit)
}
