//! The columns of one data file, brought into those of its table.
//!
//! Place in the flow: batches of a file pass through here as they are read. Files are those of any writer: a column that a file lacks
//! is its partition's value, or null; types are brought to the table's where that changes no value, and refused elsewhere.

use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::CastOptions;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::nested_struct::cast_column;
use object_store::path::Path;

use super::damaged;
use crate::log::ChangedFile;
use crate::widen::{Widening, widening};

/// How a file's columns become the table's.
pub(crate) struct Shape {
    schema: SchemaRef,
    /// The file's columns that are read, ascending.
    pub(crate) roots: Vec<usize>,
    columns: Vec<Fill>,
    file: Path,
}

enum Fill {
    /// The column at this place of what is read, which becomes the table's type so.
    File(usize, Widening),
    /// The same value in every row.
    Constant(ScalarValue),
    /// Nothing is there.
    Null,
}

impl Shape {
    pub(crate) fn new(file: &ChangedFile, there: &SchemaRef, schema: &SchemaRef) -> Result<Self> {
        let mut roots: Vec<usize> = schema.fields().iter().filter_map(|f| there.index_of(f.name()).ok()).collect();
        roots.sort_unstable();
        let column = |field: &Arc<Field>| -> Result<Fill> {
            if let Ok(index) = there.index_of(field.name())
                && let Ok(at) = roots.binary_search(&index)
            {
                return match widening(there.field(index).data_type(), field.data_type()) {
                    Widening::None => Err(does_not_fit(&file.path, field.name())),
                    widening => Ok(Fill::File(at, widening)),
                };
            }
            match file.partition_values.get(field.name()) {
                // Delta spells null as nothing, in columns of text too.
                Some(Some(text)) if !text.is_empty() => {
                    let value = ScalarValue::try_from_string(text.clone(), field.data_type());
                    value.map(Fill::Constant).map_err(|_| {
                        damaged(file).hint(format!("the log's value of the partition column {} is not of its type", field.name()))
                    })
                }
                _ => Ok(Fill::Null),
            }
        };
        let columns = schema.fields().iter().map(column).collect::<Result<_>>()?;
        // What a file may hold null in is its writer's business; readers of changes are told the truth.
        let fields: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
        Ok(Self { schema: Arc::new(Schema::new(fields)), roots, columns, file: file.path.clone() })
    }

    /// The columns that batches are brought into; each may be null.
    pub(crate) const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The batch, which has the columns at `roots`, in the table's.
    pub(crate) fn bring(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let column = |(from, field): (&Fill, &Arc<Field>)| -> Result<ArrayRef> {
            // Messages of casts may quote a value.
            let refused = |_not_shown| does_not_fit(&self.file, field.name());
            match from {
                Fill::File(at, _) if batch.column(*at).data_type() == field.data_type() => Ok(batch.column(*at).clone()),
                Fill::File(at, widening) => {
                    let before = batch.column(*at);
                    let cast = cast_column(before, field.data_type(), &strict).map_err(refused)?;
                    let lost = *widening != Widening::Exact
                        && cast_column(&cast, before.data_type(), &strict).map_err(refused)?.as_ref() != before.as_ref();
                    if lost { Err(does_not_fit(&self.file, field.name())) } else { Ok(cast) }
                }
                Fill::Constant(value) => value.to_array_of_size(rows).map_err(refused),
                Fill::Null => Ok(new_null_array(field.data_type(), rows)),
            }
        };
        let columns = self.columns.iter().zip(self.schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|e| Error::new(Kind::Internal, "bringing rows into a table's columns").source(e))
    }
}

fn does_not_fit(file: &Path, column: &str) -> Error {
    Error::new(
        Kind::Unsupported,
        format!(
            "reading changes: the data file {file} has a column {column} of a type that does not become the table's unchanged"
        ),
    )
    .hint("the table had other types once, or another program wrote the file; begin with the table as it stands: --snapshot")
}
