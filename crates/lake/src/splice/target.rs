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
use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type, TypePtr};

use crate::widen::{Widening, widening};

/// A top-level column that is encoded.
pub(super) struct Target {
    /// The Arrow field that is written.
    pub(super) field: Field,
    factory: ArrowRowGroupWriterFactory,
    /// The same without a dictionary.
    plain: ArrowRowGroupWriterFactory,
}

impl Target {
    /// The column `root` of Parquet, written from arrays of `field`; `None` if that would make it another column.
    pub(super) fn new(root: &TypePtr, field: &Field, properties: &WriterProperties) -> Option<Self> {
        let alone = Arc::new(Type::group_type_builder("schema").with_fields(vec![root.clone()]).build().ok()?);
        let there = SchemaDescriptor::new(alone.clone());
        let schema: SchemaRef = Arc::new(Schema::new(vec![field.clone()]));
        let written = ArrowSchemaConverter::new().convert(&schema).ok()?;
        let same = there.num_columns() == written.num_columns()
            && there.columns().iter().zip(written.columns()).all(|(there, written)| {
                there.max_def_level() == written.max_def_level()
                    && there.max_rep_level() == written.max_rep_level()
                    && writes_as(there, written)
            });
        if !same {
            return None;
        }
        let factory = |properties: WriterProperties| {
            // The factory takes schema and properties from a writer, which writes nothing.
            let writer = SerializedFileWriter::new(std::io::sink(), alone.clone(), Arc::new(properties)).ok()?;
            Some(ArrowRowGroupWriterFactory::new(&writer, schema.clone()))
        };
        let plain = properties.clone().into_builder().set_dictionary_enabled(false).build();
        Some(Self { field: field.clone(), factory: factory(properties.clone())?, plain: factory(plain)? })
    }

    /// A column that the file does not have, null wherever nothing else is said, and the type it has in Parquet.
    pub(super) fn added(field: &Field, properties: &WriterProperties) -> Option<(Self, TypePtr)> {
        let field = field.clone().with_nullable(true);
        let schema = Schema::new(vec![field.clone()]);
        let root = ArrowSchemaConverter::new().convert(&schema).ok()?.root_schema().get_fields().first()?.clone();
        Some((Self::new(&root, &field, properties)?, root))
    }

    /// Writers for the column's leaves.
    pub(super) fn writers(&self, dictionary: bool) -> Result<Vec<ArrowColumnWriter>, ParquetError> {
        let factory = if dictionary { &self.factory } else { &self.plain };
        factory.create_column_writers(0)
    }
}

/// Whether values that would become the leaf `written` in a file of their own can be written as the leaf `there`.
fn writes_as(there: &ColumnDescriptor, written: &ColumnDescriptor) -> bool {
    let decimal =
        matches!(there.logical_type_ref(), Some(LogicalType::Decimal(_))) || there.converted_type() == ConvertedType::DECIMAL;
    match there.physical_type() {
        PhysicalType::INT32 | PhysicalType::INT64 if decimal => true,
        PhysicalType::FIXED_LEN_BYTE_ARRAY if decimal => there.type_length() == decimal_bytes(there.type_precision()),
        PhysicalType::FIXED_LEN_BYTE_ARRAY => {
            written.physical_type() == there.physical_type() && written.type_length() == there.type_length()
        }
        other => written.physical_type() == other,
    }
}

/// The fewest bytes that hold all numbers of so many decimal digits; 0 for more than an `i128` has.
fn decimal_bytes(precision: i32) -> i32 {
    let Some(largest) = u32::try_from(precision).ok().and_then(|p| 10_i128.checked_pow(p)) else { return 0 };
    (1..=16).find(|bytes| (i128::MAX >> (128 - 8 * bytes)) >= largest - 1).unwrap_or(0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_takes_the_bytes_that_parquet_says() {
        // From the format's table of precisions: 1 byte to 2 digits, 4 to 9, 5 to 11, 8 to 18, 9 to 21, 16 to 38.
        for (bytes, digits) in [(1, 1..=2), (4, 7..=9), (5, 10..=11), (8, 17..=18), (9, 19..=21), (16, 37..=38)] {
            for digits in digits {
                assert_eq!(decimal_bytes(digits), bytes, "{digits} digits");
            }
        }
        assert_eq!(decimal_bytes(39), 0);
    }
}
