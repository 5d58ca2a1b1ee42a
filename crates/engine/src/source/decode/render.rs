//! Values of Arrow arrays as texts: as JSON for `_rescued` and `raw`, and plain for conversion by the rules of texts.
//!
//! Numbers and booleans are JSON numbers and booleans; decimals, times and bytes (in base64) are strings, as is a float that is
//! no number. Every text tells its value exactly.

use std::fmt::Write as _;
use std::ops::Range;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::rescue::push_json_string;
use super::time::{self, MICROS_PER_DAY};

/// Appends the value of `array` at `row` as JSON.
pub(crate) fn push_json(to: &mut String, array: &dyn Array, row: usize) {
    if array.is_null(row) {
        to.push_str("null");
        return;
    }
    match array.data_type() {
        DataType::Null => to.push_str("null"),
        DataType::Dictionary(..) | DataType::Union(..) => match inner(array, row) {
            Some((values, row)) => push_json(to, values, row),
            None => to.push_str("null"),
        },
        DataType::Struct(fields) => {
            to.push('{');
            let mut first = true;
            for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                if !std::mem::take(&mut first) {
                    to.push(',');
                }
                push_json_string(to, field.name());
                to.push(':');
                push_json(to, column, row);
            }
            to.push('}');
        }
        DataType::Map(..) => {
            let map = array.as_map();
            to.push('{');
            for (written, entry) in range(map.value_offsets(), row).enumerate() {
                if written > 0 {
                    to.push(',');
                }
                let mut key = String::new();
                push_plain(&mut key, map.keys(), entry);
                push_json_string(to, &key);
                to.push(':');
                push_json(to, map.values(), entry);
            }
            to.push('}');
        }
        _ => {
            if let Some((items, range)) = items(array, row) {
                to.push('[');
                for (written, item) in range.enumerate() {
                    if written > 0 {
                        to.push(',');
                    }
                    push_json(to, items, item);
                }
                to.push(']');
            } else if is_json_as_it_is(array, row) {
                push_plain(to, array, row);
            } else {
                let mut text = String::new();
                push_plain(&mut text, array, row);
                push_json_string(to, &text);
            }
        }
    }
}

/// Where a dictionary's or union's value stands.
pub(crate) fn inner(array: &dyn Array, row: usize) -> Option<(&dyn Array, usize)> {
    match array.data_type() {
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            Some((dictionary.values().as_ref(), index(dictionary.keys(), row)?))
        }
        DataType::Union(..) => {
            let union = array.as_union();
            Some((union.child(union.type_id(row)).as_ref(), union.value_offset(row)))
        }
        _ => None,
    }
}

/// A dictionary's key.
fn index(keys: &dyn Array, row: usize) -> Option<usize> {
    fn of<T: ArrowPrimitiveType<Native: TryInto<usize>>>(keys: &dyn Array, row: usize) -> Option<usize> {
        keys.as_primitive::<T>().value(row).try_into().ok()
    }
    match keys.data_type() {
        DataType::Int8 => of::<Int8Type>(keys, row),
        DataType::Int16 => of::<Int16Type>(keys, row),
        DataType::Int32 => of::<Int32Type>(keys, row),
        DataType::Int64 => of::<Int64Type>(keys, row),
        DataType::UInt8 => of::<UInt8Type>(keys, row),
        DataType::UInt16 => of::<UInt16Type>(keys, row),
        DataType::UInt32 => of::<UInt32Type>(keys, row),
        DataType::UInt64 => of::<UInt64Type>(keys, row),
        _ => None,
    }
}

/// Where the items of a list stand.
pub(crate) fn items(array: &dyn Array, row: usize) -> Option<(&dyn Array, Range<usize>)> {
    Some(match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            (list.values().as_ref(), range(list.value_offsets(), row))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            (list.values().as_ref(), range(list.value_offsets(), row))
        }
        DataType::FixedSizeList(_, size) => {
            let list = array.as_fixed_size_list();
            let start = place(list.value_offset(row));
            (list.values().as_ref(), start..start + place(*size))
        }
        _ => return None,
    })
}

/// The part of a list's or map's children that belongs to `row`.
pub(crate) fn range<O: Copy + TryInto<usize>>(offsets: &[O], row: usize) -> Range<usize> {
    place(offsets[row])..place(offsets[row + 1])
}

fn place<O: TryInto<usize>>(offset: O) -> usize {
    offset.try_into().unwrap_or(0)
}

/// A date's or timestamp's nanoseconds since 1970, and whether it is a date.
pub(crate) fn instant(array: &dyn Array, row: usize) -> Option<(i128, bool)> {
    fn of<T: ArrowPrimitiveType<Native: Into<i128>>>(array: &dyn Array, row: usize) -> i128 {
        array.as_primitive::<T>().value(row).into()
    }
    Some(match array.data_type() {
        DataType::Date32 => (of::<Date32Type>(array, row) * i128::from(MICROS_PER_DAY) * 1000, true),
        DataType::Date64 => (of::<Date64Type>(array, row) * 1_000_000, true),
        DataType::Timestamp(TimeUnit::Second, _) => (of::<TimestampSecondType>(array, row) * 1_000_000_000, false),
        DataType::Timestamp(TimeUnit::Millisecond, _) => (of::<TimestampMillisecondType>(array, row) * 1_000_000, false),
        DataType::Timestamp(TimeUnit::Microsecond, _) => (of::<TimestampMicrosecondType>(array, row) * 1_000, false),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => (of::<TimestampNanosecondType>(array, row), false),
        _ => return None,
    })
}

/// The bytes of a binary value.
pub(crate) fn bytes(array: &dyn Array, row: usize) -> Option<&[u8]> {
    Some(match array.data_type() {
        DataType::Binary => array.as_binary::<i32>().value(row),
        DataType::LargeBinary => array.as_binary::<i64>().value(row),
        DataType::BinaryView => array.as_binary_view().value(row),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(row),
        _ => return None,
    })
}

/// The text of a string value.
pub(crate) fn text(array: &dyn Array, row: usize) -> Option<&str> {
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row),
        DataType::Utf8View => array.as_string_view().value(row),
        _ => return None,
    })
}

/// A float's value; all narrower floats fit.
pub(crate) fn float(array: &dyn Array, row: usize) -> Option<f64> {
    Some(match array.data_type() {
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row),
        DataType::Float32 => array.as_primitive::<Float32Type>().value(row).into(),
        DataType::Float16 => array.as_primitive::<Float16Type>().value(row).into(),
        _ => return None,
    })
}

fn is_json_as_it_is(array: &dyn Array, row: usize) -> bool {
    array.data_type().is_integer() || array.data_type() == &DataType::Boolean || float(array, row).is_some_and(f64::is_finite)
}

/// Appends a simple value, not null, as text: numbers in JSON's grammar, times as RFC 3339, bytes in base64.
pub(crate) fn push_plain(to: &mut String, array: &dyn Array, row: usize) {
    if let Some((values, row)) = inner(array, row) {
        push_plain(to, values, row);
    } else if let Some(text) = text(array, row) {
        to.push_str(text);
    } else if let Some(bytes) = bytes(array, row) {
        STANDARD.encode_string(bytes, to);
    } else if let Some((nanos, is_date)) = instant(array, row) {
        time::push(to, nanos, is_date);
    } else if array.data_type() == &DataType::Float32 {
        // The shortest text of the narrower type; `{:?}` is JSON's grammar for all but NaN and the infinities.
        write!(to, "{:?}", array.as_primitive::<Float32Type>().value(row)).unwrap_or_default();
    } else if let Some(value) = float(array, row) {
        write!(to, "{value:?}").unwrap_or_default();
    } else {
        match ArrayFormatter::try_new(array, &FormatOptions::new()) {
            Ok(formatter) => write!(to, "{}", formatter.value(row)).unwrap_or_default(),
            Err(_) => write!(to, "a value of {}", array.data_type()).unwrap_or_default(),
        }
    }
}
