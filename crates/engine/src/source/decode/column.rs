//! Growing columns: cells in, Arrow arrays out.

use std::sync::Arc;

use alluvium_core::DataType;
use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int8Builder,
    Int16Builder, Int32Builder, Int64Builder, ListArray, MapArray, NullBufferBuilder, StringBuilder, StructArray,
    TimestampMicrosecondBuilder,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType as ArrowType, FieldRef, Fields};

use super::cell::{Cell, Slots};
use super::convert::Scalar;
use super::schema;

/// A column, or a part of one, of a declared type.
#[derive(Debug)]
pub(crate) enum Column {
    String(StringBuilder),
    Long(Int64Builder),
    Integer(Int32Builder),
    Short(Int16Builder),
    Byte(Int8Builder),
    Double(Float64Builder),
    Float(Float32Builder),
    Boolean(BooleanBuilder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Binary(BinaryBuilder),
    Decimal(Decimal128Builder),
    Struct { fields: Fields, columns: Vec<Column>, valid: NullBufferBuilder, rows: usize },
    Array { field: FieldRef, items: Box<Column>, lengths: Vec<usize>, valid: NullBufferBuilder },
    Map { field: FieldRef, fields: Fields, entries: Box<[Column; 2]>, lengths: Vec<usize>, valid: NullBufferBuilder },
}

impl Column {
    /// An empty column with room for `rows`.
    pub(crate) fn new(data_type: &DataType, rows: usize) -> Self {
        match data_type {
            DataType::String => Self::String(StringBuilder::with_capacity(rows, rows * 16)),
            DataType::Long => Self::Long(Int64Builder::with_capacity(rows)),
            DataType::Integer => Self::Integer(Int32Builder::with_capacity(rows)),
            DataType::Short => Self::Short(Int16Builder::with_capacity(rows)),
            DataType::Byte => Self::Byte(Int8Builder::with_capacity(rows)),
            DataType::Double => Self::Double(Float64Builder::with_capacity(rows)),
            DataType::Float => Self::Float(Float32Builder::with_capacity(rows)),
            DataType::Boolean => Self::Boolean(BooleanBuilder::with_capacity(rows)),
            DataType::Date => Self::Date(Date32Builder::with_capacity(rows)),
            DataType::Timestamp => Self::Timestamp(TimestampMicrosecondBuilder::with_capacity(rows).with_timezone("UTC")),
            DataType::Binary => Self::Binary(BinaryBuilder::with_capacity(rows, rows * 16)),
            DataType::Decimal { .. } => {
                Self::Decimal(Decimal128Builder::with_capacity(rows).with_data_type(schema::arrow_type(data_type)))
            }
            DataType::Struct(fields) => Self::Struct {
                fields: match schema::arrow_type(data_type) {
                    ArrowType::Struct(fields) => fields,
                    _ => Fields::empty(),
                },
                columns: fields.iter().map(|f| Self::new(&f.data_type, rows)).collect(),
                valid: NullBufferBuilder::new(rows),
                rows: 0,
            },
            DataType::Array(element) => Self::Array {
                field: schema::element_field(element),
                items: Box::new(Self::new(element, rows)),
                lengths: Vec::with_capacity(rows),
                valid: NullBufferBuilder::new(rows),
            },
            DataType::Map(key, value) => Self::Map {
                field: schema::entries_field(key, value),
                fields: schema::entry_fields(key, value),
                entries: Box::new([Self::new(key, rows), Self::new(value, rows)]),
                lengths: Vec::with_capacity(rows),
                valid: NullBufferBuilder::new(rows),
            },
        }
    }

    /// Appends a cell of the column's type. A cell without a value (or, which no caller does, of another type) becomes null.
    #[inline]
    pub(crate) fn append(&mut self, cell: &Cell<'_>, slots: &Slots<'_>) {
        match (self, cell) {
            (Self::String(to), cell) => to.append_option(slots.text(cell)),
            (Self::Timestamp(to), Cell::Scalar(Scalar::Integer(v))) => to.append_value(*v),
            (Self::Long(to), Cell::Scalar(Scalar::Integer(v))) => to.append_value(*v),
            (Self::Integer(to), Cell::Scalar(Scalar::Integer(v))) => to.append_option(i32::try_from(*v).ok()),
            (Self::Short(to), Cell::Scalar(Scalar::Integer(v))) => to.append_option(i16::try_from(*v).ok()),
            (Self::Byte(to), Cell::Scalar(Scalar::Integer(v))) => to.append_option(i8::try_from(*v).ok()),
            (Self::Date(to), Cell::Scalar(Scalar::Integer(v))) => to.append_option(i32::try_from(*v).ok()),
            (Self::Double(to), Cell::Scalar(Scalar::Double(v))) => to.append_value(*v),
            // A float's cell holds its value widened, which the cast takes back exactly.
            (Self::Float(to), Cell::Scalar(Scalar::Double(v))) => to.append_value(*v as f32),
            (Self::Boolean(to), Cell::Scalar(Scalar::Boolean(v))) => to.append_value(*v),
            (Self::Decimal(to), Cell::Scalar(Scalar::Decimal(v))) => to.append_value(*v),
            (Self::Binary(to), Cell::Bytes { start, end }) => to.append_value(&slots.bytes[*start..*end]),
            (Self::Struct { columns, valid, rows, .. }, cell) => {
                *rows += 1;
                let start = match cell {
                    Cell::Struct { start } => Some(*start),
                    _ => None,
                };
                valid.append(start.is_some());
                for (i, column) in columns.iter_mut().enumerate() {
                    column.append(start.map_or(&Cell::Null, |start| &slots.nested[start + i]), slots);
                }
            }
            (Self::Array { items, lengths, valid, .. }, Cell::Array { start, end }) => {
                for item in &slots.nested[*start..*end] {
                    items.append(item, slots);
                }
                lengths.push(end - start);
                valid.append_non_null();
            }
            (Self::Map { entries, lengths, valid, .. }, Cell::Map { start, end }) => {
                let [keys, values] = entries.as_mut();
                for entry in slots.nested[*start..*end].chunks_exact(2) {
                    keys.append(&entry[0], slots);
                    values.append(&entry[1], slots);
                }
                lengths.push((end - start) / 2);
                valid.append_non_null();
            }
            (other, _) => other.append_null(),
        }
    }

    fn append_null(&mut self) {
        match self {
            Self::Long(to) => to.append_null(),
            Self::Integer(to) => to.append_null(),
            Self::Short(to) => to.append_null(),
            Self::Byte(to) => to.append_null(),
            Self::Double(to) => to.append_null(),
            Self::Float(to) => to.append_null(),
            Self::Boolean(to) => to.append_null(),
            Self::Date(to) => to.append_null(),
            Self::Timestamp(to) => to.append_null(),
            Self::Binary(to) => to.append_null(),
            Self::Decimal(to) => to.append_null(),
            Self::Array { lengths, valid, .. } | Self::Map { lengths, valid, .. } => {
                lengths.push(0);
                valid.append_null();
            }
            Self::String(to) => to.append_null(),
            Self::Struct { columns, valid, rows, .. } => {
                *rows += 1;
                valid.append_null();
                columns.iter_mut().for_each(Self::append_null);
            }
        }
    }

    /// The array of all that was appended.
    pub(crate) fn finish(self) -> ArrayRef {
        match self {
            Self::String(mut from) => Arc::new(from.finish()),
            Self::Long(mut from) => Arc::new(from.finish()),
            Self::Integer(mut from) => Arc::new(from.finish()),
            Self::Short(mut from) => Arc::new(from.finish()),
            Self::Byte(mut from) => Arc::new(from.finish()),
            Self::Double(mut from) => Arc::new(from.finish()),
            Self::Float(mut from) => Arc::new(from.finish()),
            Self::Boolean(mut from) => Arc::new(from.finish()),
            Self::Date(mut from) => Arc::new(from.finish()),
            Self::Timestamp(mut from) => Arc::new(from.finish()),
            Self::Binary(mut from) => Arc::new(from.finish()),
            Self::Decimal(mut from) => Arc::new(from.finish()),
            Self::Struct { fields, columns, mut valid, rows } => {
                let columns = columns.into_iter().map(Self::finish).collect();
                let array = StructArray::try_new_with_length(fields, columns, valid.finish(), rows);
                Arc::new(array.expect("every append adds one to each column"))
            }
            Self::Array { field, items, lengths, mut valid } => {
                let offsets = OffsetBuffer::from_lengths(lengths);
                let array = ListArray::try_new(field, offsets, items.finish(), valid.finish());
                Arc::new(array.expect("the lengths are those of the items appended"))
            }
            Self::Map { field, fields, entries, lengths, mut valid } => {
                let offsets = OffsetBuffer::from_lengths(lengths);
                let [keys, values] = *entries;
                let entries = StructArray::try_new(fields, vec![keys.finish(), values.finish()], None);
                let entries = entries.expect("keys are never null and as many as values");
                let array = MapArray::try_new(field, offsets, entries, valid.finish(), false);
                Arc::new(array.expect("the lengths are those of the entries appended"))
            }
        }
    }
}
