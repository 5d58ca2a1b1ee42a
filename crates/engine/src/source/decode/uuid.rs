//! UUIDs of Parquet, which are read as sixteen bytes.
//!
//! Invariant: where a text is wanted, and where nobody declared the column, they are spelled as everybody spells them; a column
//! declared as `binary` gets the bytes.

use std::sync::Arc;

use alluvium_core::DataType;
use arrow::array::{ArrayRef, AsArray, FixedSizeBinaryArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType as ArrowType, Field, FieldRef, Schema};
use uuid::Uuid;

use super::plan::Plan;

/// The name, as Arrow's canonical extension type, of the mark on a column of UUIDs.
pub(crate) const UUID_EXTENSION: &str = "arrow.uuid";
/// The key in a field's metadata that such marks have in Arrow.
pub(crate) const EXTENSION_NAME: &str = "ARROW:extension:name";

/// The batch with its UUIDs as text where that is wanted.
pub(crate) fn spelled(plan: &Plan, batch: &RecordBatch) -> RecordBatch {
    let schema = batch.schema_ref();
    if !schema.fields().iter().any(|field| is_uuid(field)) {
        return batch.clone();
    }
    let column = |(field, array): (&FieldRef, &ArrayRef)| -> (FieldRef, ArrayRef) {
        if is_uuid(field) && !is_wanted_as_bytes(plan, field.name()) {
            let field = Field::new(field.name(), ArrowType::Utf8, field.is_nullable());
            (Arc::new(field), Arc::new(text(array.as_fixed_size_binary())))
        } else {
            (Arc::clone(field), Arc::clone(array))
        }
    };
    let (fields, columns): (Vec<_>, Vec<_>) = schema.fields().iter().zip(batch.columns()).map(column).unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns of as many rows, each of its field's type")
}

fn is_uuid(field: &Field) -> bool {
    field.data_type() == &ArrowType::FixedSizeBinary(16)
        && field.metadata().get(EXTENSION_NAME).is_some_and(|name| name == UUID_EXTENSION)
}

fn is_wanted_as_bytes(plan: &Plan, name: &str) -> bool {
    let entry = plan.nodes[0].entry(name).map(|at| &plan.nodes[0].entries[at]);
    entry.is_some_and(|e| e.columns.iter().any(|&at| plan.columns[at].data_type == DataType::Binary))
}

fn text(bytes: &FixedSizeBinaryArray) -> StringArray {
    bytes.iter().map(|value| value.and_then(|v| Uuid::from_slice(v).ok()).map(|uuid| uuid.hyphenated().to_string())).collect()
}
