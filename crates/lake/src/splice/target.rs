//! What a column to be encoded must be, so that the file's own schema can stay.
//!
//! Place in the flow: `plan` asks here for each column that changes, and for all columns of a row group that loses rows. A column
//! is encoded through the Arrow type that Parquet's own types mean; where that type would be written as anything else than what is
//! in the file (96-bit timestamps, decimals in bytes, lists of an older make), the file is not spliced.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::CastOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::nested_struct::cast_column;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use crate::widen::{Widening, widening};

/// A top-level column that is encoded.
pub(super) struct Target {
    /// The Arrow field that is written.
    pub(super) field: Field,
    factory: ArrowRowGroupWriterFactory,
}

impl Target {
    /// The column `root` of Parquet, written from arrays of `field`; `None` if that would make it another column.
    pub(super) fn new(root: &TypePtr, field: &Field, properties: &WriterProperties) -> Option<Self> {
        let alone = Arc::new(Type::group_type_builder("schema").with_fields(vec![root.clone()]).build().ok()?);
        let there = SchemaDescriptor::new(alone.clone());
        let schema: SchemaRef = Arc::new(Schema::new(vec![field.clone()]));
        let written = ArrowSchemaConverter::new().convert(&schema).ok()?;
        let same = there.num_columns() == written.num_columns()
            && there.columns().iter().zip(written.columns()).all(|(a, b)| {
                a.physical_type() == b.physical_type()
                    && (a.type_length() == b.type_length() || a.physical_type() != parquet::basic::Type::FIXED_LEN_BYTE_ARRAY)
                    && a.max_def_level() == b.max_def_level()
                    && a.max_rep_level() == b.max_rep_level()
            });
        if !same {
            return None;
        }
        // The factory takes schema and properties from a writer, which writes nothing.
        let writer = SerializedFileWriter::new(std::io::sink(), alone, Arc::new(properties.clone())).ok()?;
        Some(Self { field: field.clone(), factory: ArrowRowGroupWriterFactory::new(&writer, schema) })
    }

    /// A column that the file does not have, null wherever nothing else is said, and the type it has in Parquet.
    pub(super) fn added(field: &Field, properties: &WriterProperties) -> Option<(Self, TypePtr)> {
        let field = field.clone().with_nullable(true);
        let schema = Schema::new(vec![field.clone()]);
        let root = ArrowSchemaConverter::new().convert(&schema).ok()?.root_schema().get_fields().first()?.clone();
        Some((Self::new(&root, &field, properties)?, root))
    }

    /// Writers for the column's leaves.
    pub(super) fn writers(&self) -> Result<Vec<ArrowColumnWriter>, ParquetError> {
        self.factory.create_column_writers(0)
    }
}

/// New values, which have the table's type, in the type `to` of the file; `None` if they do not fit it unchanged.
pub(super) fn fitted(values: &ArrayRef, to: &Field) -> Option<ArrayRef> {
    if values.null_count() > 0 && !to.is_nullable() {
        return None;
    }
    if values.data_type() == to.data_type() {
        return Some(values.clone());
    }
    // What is in the file must be the same values in the table's type.
    if widening(to.data_type(), values.data_type()) == Widening::None {
        return None;
    }
    cast_there_and_back(values, to.data_type())
}

/// `values` as `to`, if they come back unchanged.
pub(super) fn cast_there_and_back(values: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let there = cast_column(values, to, &strict).ok()?;
    let back = cast_column(&there, values.data_type(), &strict).ok()?;
    (back.as_ref() == values.as_ref() && there.data_type() == to).then_some(there)
}

/// Ranges of at most `most` rows that make up `rows`.
pub(super) fn pieces(rows: Range<u64>, most: u64) -> impl Iterator<Item = Range<u64>> {
    let mut from = rows.start;
    std::iter::from_fn(move || {
        let piece = from..rows.end.min(from.saturating_add(most));
        from = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}
