//! Which types of a file's columns can be told as a table's types without a change of any value.
//!
//! Place in the flow: `rows` asks before it reads a file of another writer, which may be older than the table's types. Invariant: what
//! passes is exact by its types, or exact for the values at hand, which is looked at after the cast.

use arrow::datatypes::{DataType, Field, TimeUnit};

/// How values of one type become another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Widening {
    /// Every value has its like.
    Exact,
    /// Those that are cast there and back unchanged have.
    IfItComesBack,
    /// It is another type.
    None,
}

/// How values of type `from` become values of type `to`.
pub(crate) fn widening(from: &DataType, to: &DataType) -> Widening {
    use DataType as T;
    if from == to {
        return Widening::Exact;
    }
    match (from, to) {
        (T::Dictionary(_, value), _) => widening(value, to),
        (T::Struct(from), T::Struct(to)) => {
            let same = |field: &Field| from.iter().find(|f| f.name() == field.name());
            // A field that the file does not have yet is null.
            worst(to.iter().filter_map(|field| Some(widening(same(field)?.data_type(), field.data_type()))))
        }
        (T::List(from) | T::LargeList(from), T::List(to) | T::LargeList(to)) => widening(from.data_type(), to.data_type()),
        (T::Map(from, _), T::Map(to, _)) => match (from.data_type(), to.data_type()) {
            // Names of a map's parts differ from writer to writer.
            (T::Struct(from), T::Struct(to)) if from.len() == to.len() => {
                worst(from.iter().zip(to.iter()).map(|(from, to)| widening(from.data_type(), to.data_type())))
            }
            _ => Widening::None,
        },
        (T::Timestamp(from, _), T::Timestamp(to, _)) if rank(*from) <= rank(*to) => Widening::Exact,
        // As in the timestamps of 96 bits.
        (T::Timestamp(..), T::Timestamp(..)) => Widening::IfItComesBack,
        _ if widens(from, to) => Widening::Exact,
        _ => Widening::None,
    }
}

fn worst(of: impl Iterator<Item = Widening>) -> Widening {
    of.max().unwrap_or(Widening::Exact)
}

const fn rank(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

/// Whether each value of a flat type is one of the other.
fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    let text = |t: &DataType| matches!(t, T::Utf8 | T::LargeUtf8 | T::Utf8View);
    let bytes = |t: &DataType| matches!(t, T::Binary | T::LargeBinary | T::BinaryView);
    match (from, to) {
        (T::Null, _) => true,
        (T::FixedSizeBinary(_), to) => bytes(to),
        (T::Float16, T::Float32 | T::Float64) | (T::Float32, T::Float64) => true,
        (T::Decimal32(p, s) | T::Decimal64(p, s) | T::Decimal128(p, s), T::Decimal128(to_p, to_s)) => {
            to_s >= s && i16::from(*to_p) - i16::from(*to_s) >= i16::from(*p) - i16::from(*s)
        }
        (from, T::Decimal128(p, s)) => {
            whole_digits(from).is_some_and(|digits| *s >= 0 && i16::from(*p) - i16::from(*s) >= digits)
        }
        (T::Int8 | T::Int16 | T::Int32 | T::UInt8 | T::UInt16 | T::UInt32, T::Float64) => true,
        _ if text(from) => text(to),
        _ if bytes(from) => bytes(to),
        _ => match (whole_bits(from), whole_bits(to)) {
            (Some((from, true)), Some((to, true))) | (Some((from, false)), Some((to, false))) => from <= to,
            (Some((from, false)), Some((to, true))) => from < to,
            _ => false,
        },
    }
}

/// The bits of a whole number's type, and whether it has a sign.
const fn whole_bits(of: &DataType) -> Option<(u8, bool)> {
    match of {
        DataType::Int8 => Some((8, true)),
        DataType::Int16 => Some((16, true)),
        DataType::Int32 => Some((32, true)),
        DataType::Int64 => Some((64, true)),
        DataType::UInt8 => Some((8, false)),
        DataType::UInt16 => Some((16, false)),
        DataType::UInt32 => Some((32, false)),
        DataType::UInt64 => Some((64, false)),
        _ => None,
    }
}

/// The decimal digits of the largest value of a whole number's type.
const fn whole_digits(of: &DataType) -> Option<i16> {
    match whole_bits(of) {
        Some((8, _)) => Some(3),
        Some((16, _)) => Some(5),
        Some((32, _)) => Some(10),
        Some((64, true)) => Some(19),
        Some((64, false)) => Some(20),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_changes_no_value_widens_and_what_may_does_not() {
        use DataType as T;
        let exact = [
            (T::Int32, T::Int64),
            (T::UInt32, T::Int64),
            (T::Int32, T::Float64),
            (T::Float32, T::Float64),
            (T::Int32, T::Decimal128(12, 2)),
            (T::Decimal128(10, 2), T::Decimal128(12, 4)),
            (T::Utf8, T::LargeUtf8),
            (T::Timestamp(TimeUnit::Millisecond, None), T::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            (T::List(Arc::new(Field::new("a", T::Int8, true))), T::List(Arc::new(Field::new("b", T::Int16, true)))),
        ];
        for (from, to) in exact {
            assert_eq!(widening(&from, &to), Widening::Exact, "{from} to {to}");
        }
        let none = [
            (T::Int64, T::Int32),
            (T::Int64, T::Float64),
            (T::UInt64, T::Int64),
            (T::Float64, T::Float32),
            (T::Float64, T::Int64),
            (T::Int32, T::Decimal128(11, 2)),
            (T::Decimal128(10, 2), T::Decimal128(12, 1)),
            (T::Decimal128(10, 2), T::Decimal128(11, 4)),
            (T::Utf8, T::Int64),
            (T::Int64, T::Utf8),
            (T::Utf8, T::Timestamp(TimeUnit::Microsecond, None)),
            (T::Timestamp(TimeUnit::Microsecond, None), T::Date32),
            (T::List(Arc::new(Field::new("a", T::Int16, true))), T::List(Arc::new(Field::new("b", T::Int8, true)))),
        ];
        for (from, to) in none {
            assert_eq!(widening(&from, &to), Widening::None, "{from} to {to}");
        }
        let finer = (T::Timestamp(TimeUnit::Nanosecond, None), T::Timestamp(TimeUnit::Microsecond, None));
        assert_eq!(widening(&finer.0, &finer.1), Widening::IfItComesBack);
    }
}
