//! The Arrow form of declared types, named as Delta readers expect.

use std::sync::Arc;

use alluvium_core::{DataType, Dataset};
pub(super) use alluvium_lake::arrow_type;
use arrow::datatypes::{DataType as ArrowType, Field, FieldRef, Fields, Schema, SchemaRef};

/// The field of an array's items.
pub(crate) fn element_field(element: &DataType) -> FieldRef {
    Arc::new(Field::new("element", arrow_type(element), true))
}

/// The field of a map's entries.
pub(crate) fn entries_field(key: &DataType, value: &DataType) -> FieldRef {
    Arc::new(Field::new("key_value", ArrowType::Struct(entry_fields(key, value)), false))
}

/// The two fields of a map's entries.
pub(crate) fn entry_fields(key: &DataType, value: &DataType) -> Fields {
    Fields::from(vec![Field::new("key", arrow_type(key), false), Field::new("value", arrow_type(value), true)])
}

/// The schema of [`super::Decoded::rows`]: the declared columns in their order, then `event_date` (the UTC date of the event
/// time), `_offset` (the record's number in its file) and `_rescued`.
#[must_use]
pub fn decoded_schema(dataset: &Dataset) -> SchemaRef {
    let declared = dataset.fields.iter().map(|f| Field::new(&f.name, arrow_type(&f.data_type), f.nullable));
    let ours = [
        Field::new("event_date", ArrowType::Date32, false),
        Field::new("_offset", ArrowType::Int64, false),
        Field::new("_rescued", ArrowType::Utf8, true),
    ];
    Arc::new(Schema::new(declared.chain(ours).collect::<Vec<_>>()))
}
