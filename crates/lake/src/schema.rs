//! Column types in Arrow's and in Delta's spelling.

use std::sync::Arc;

use alluvium_core::{Column, DataType, TableSpec};
use arrow::datatypes::{DataType as ArrowType, Field, Schema, SchemaRef, TimeUnit};
use serde_json::{Value, json};

/// The Arrow type of a column type. Timestamps are microseconds in UTC.
#[must_use]
pub fn arrow_type(data_type: &DataType) -> ArrowType {
    match data_type {
        DataType::String => ArrowType::Utf8,
        DataType::Long => ArrowType::Int64,
        DataType::Integer => ArrowType::Int32,
        DataType::Short => ArrowType::Int16,
        DataType::Byte => ArrowType::Int8,
        DataType::Double => ArrowType::Float64,
        DataType::Float => ArrowType::Float32,
        DataType::Boolean => ArrowType::Boolean,
        DataType::Date => ArrowType::Date32,
        DataType::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Binary => ArrowType::Binary,
        DataType::Decimal { precision, scale } => ArrowType::Decimal128(*precision, scale.cast_signed()),
        DataType::Struct(fields) => {
            ArrowType::Struct(fields.iter().map(|f| Field::new(&f.name, arrow_type(&f.data_type), true)).collect())
        }
        DataType::Array(element) => ArrowType::List(Arc::new(Field::new("element", arrow_type(element), true))),
        DataType::Map(key, value) => {
            let entries = vec![Field::new("key", arrow_type(key), false), Field::new("value", arrow_type(value), true)];
            ArrowType::Map(Arc::new(Field::new("key_value", ArrowType::Struct(entries.into()), false)), false)
        }
    }
}

/// The Arrow schema of a table, partition columns included.
#[must_use]
pub fn arrow_schema(spec: &TableSpec) -> SchemaRef {
    Arc::new(Schema::new(
        spec.columns.iter().map(|c| Field::new(&c.name, arrow_type(&c.data_type), c.nullable)).collect::<Vec<_>>(),
    ))
}

/// Delta's JSON of a column.
pub(crate) fn delta_field(column: &Column) -> Value {
    json!({ "name": column.name, "type": delta_type(&column.data_type), "nullable": column.nullable, "metadata": {} })
}

/// Delta's JSON of a type.
pub(crate) fn delta_type(data_type: &DataType) -> Value {
    match data_type {
        DataType::Struct(fields) => json!({
            "type": "struct",
            "fields": fields
                .iter()
                .map(|f| json!({ "name": f.name, "type": delta_type(&f.data_type), "nullable": true, "metadata": {} }))
                .collect::<Vec<_>>(),
        }),
        DataType::Array(element) => json!({ "type": "array", "elementType": delta_type(element), "containsNull": true }),
        DataType::Map(key, value) => json!({
            "type": "map", "keyType": delta_type(key), "valueType": delta_type(value), "valueContainsNull": true,
        }),
        simple => Value::String(simple.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_spells_nested_types_as_its_protocol_says() {
        let nested: DataType = "map<string, array<struct<a: decimal(10,2)>>>".parse().expect("a type of the contract");
        assert_eq!(
            delta_type(&nested),
            json!({
                "type": "map", "keyType": "string", "valueContainsNull": true,
                "valueType": {
                    "type": "array", "containsNull": true,
                    "elementType": {
                        "type": "struct",
                        "fields": [{ "name": "a", "type": "decimal(10,2)", "nullable": true, "metadata": {} }],
                    },
                },
            })
        );
    }
}
