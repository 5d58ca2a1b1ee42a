//! How large row groups are, in the file and as columns in memory, by what a file's footer says.

use parquet::arrow::ProjectionMask;
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

/// What a row may take of which nobody knows: values of a dictionary, of whose sizes older writers say nothing.
const UNKNOWN_ROW_BYTES: u64 = 4096;
/// Where a text of a column begins, in its column.
const OFFSET_BYTES: u64 = 4;
/// The least that a decimal takes in a column.
const DECIMAL_BYTES: u64 = 16;

fn read<'a>(group: &'a RowGroupMetaData, mask: &ProjectionMask) -> impl Iterator<Item = &'a ColumnChunkMetaData> {
    group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf)).map(|(_, chunk)| chunk)
}

/// The bytes that the largest row group takes in the file, of the columns that are read.
pub(super) fn largest_stored_bytes(file: &ParquetMetaData, mask: &ProjectionMask) -> u64 {
    let stored = |group| read(group, mask).map(|chunk| chunk.compressed_size().unsigned_abs()).sum();
    file.row_groups().iter().map(stored).max().unwrap_or(0)
}

/// How many rows make a batch of about `bytes`, of the row group whose rows are the widest on average; one at least.
pub(super) fn rows_within(file: &ParquetMetaData, mask: &ProjectionMask, bytes: u64) -> u64 {
    let rows_of = |group| {
        let rows = RowGroupMetaData::num_rows(group).unsigned_abs();
        let decoded: u64 = read(group, mask).map(|chunk| decoded_bytes(chunk).unwrap_or(0)).sum();
        let unknown = read(group, mask).any(|chunk| decoded_bytes(chunk).is_none());
        let decoded = decoded.saturating_add(if unknown { rows.saturating_mul(UNKNOWN_ROW_BYTES) } else { 0 });
        bytes.saturating_mul(rows) / decoded.max(1)
    };
    file.row_groups().iter().map(rows_of).min().unwrap_or(0).max(1)
}

/// What a chunk takes as a column, if that can be told.
fn decoded_bytes(chunk: &ColumnChunkMetaData) -> Option<u64> {
    let values = chunk.num_values().unsigned_abs();
    let width = match chunk.column_type() {
        Type::BOOLEAN => 1,
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE | Type::INT96 => 8,
        Type::FIXED_LEN_BYTE_ARRAY => u64::from(chunk.column_descr().type_length().unsigned_abs()).max(DECIMAL_BYTES),
        Type::BYTE_ARRAY => {
            let has_dictionary = chunk.dictionary_page_offset().is_some();
            let texts = match chunk.unencoded_byte_array_data_bytes() {
                Some(bytes) => bytes.unsigned_abs(),
                None if has_dictionary => return None,
                None => chunk.uncompressed_size().unsigned_abs(),
            };
            return Some(texts.saturating_add(values.saturating_mul(OFFSET_BYTES)));
        }
    };
    Some(values.saturating_mul(width))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ArrowReaderMetadata;
    use parquet::file::properties::WriterProperties;

    use super::*;

    /// 1000 rows of a number, and of one of ten texts of 4000 bytes each, which a dictionary makes small; a row group each.
    fn file(texts: [&str; 2]) -> ArrowReaderMetadata {
        let mut bytes = Vec::new();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1000)).build();
        let batch = |unit: &str| {
            let n: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
            let text: ArrayRef =
                Arc::new(StringArray::from_iter_values((0..1000).map(|i| format!("{}", i % 10).repeat(unit.len()))));
            RecordBatch::try_from_iter([("n", n), ("text", text)]).unwrap()
        };
        let mut writer = ArrowWriter::try_new(&mut bytes, batch("").schema(), Some(properties)).unwrap();
        for unit in texts {
            writer.write(&batch(unit)).unwrap();
        }
        writer.close().unwrap();
        ArrowReaderMetadata::load(&Bytes::from(bytes), Default::default()).unwrap()
    }

    #[test]
    fn a_batch_is_as_large_as_its_values_and_not_as_their_dictionary() {
        let wide = "x".repeat(4000);
        let file = file([&wide, "x"]);
        let all = ProjectionMask::all();
        // A row: 4000 bytes of text and the 4 of its begin, 8 of the number.
        assert_eq!(rows_within(file.metadata(), &all, 4012 * 100), 100);
        assert_eq!(rows_within(file.metadata(), &all, 1), 1);
        let numbers = ProjectionMask::leaves(file.parquet_schema(), [0]);
        assert_eq!(rows_within(file.metadata(), &numbers, 800), 100);
    }

    #[test]
    fn values_of_a_dictionary_whose_sizes_nobody_told_are_taken_for_wide() {
        let metadata = file(["x", "x"]).metadata().as_ref().clone();
        let mut untold = metadata.into_builder();
        for group in untold.take_row_groups() {
            let chunks = group
                .columns()
                .iter()
                .map(|chunk| chunk.clone().into_builder().set_unencoded_byte_array_data_bytes(None).build().unwrap());
            let chunks = chunks.collect();
            untold = untold.add_row_group(group.clone().into_builder().set_column_metadata(chunks).build().unwrap());
        }
        // 4096 bytes and the 8 of the number.
        assert_eq!(rows_within(&untold.build(), &ProjectionMask::all(), 4104 * 7), 7);
    }

    #[test]
    fn of_stored_bytes_those_of_the_columns_read_count() {
        let file = file(["x", &"x".repeat(4000)]);
        let chunk = |group: usize, leaf: usize| file.metadata().row_group(group).column(leaf).compressed_size().unsigned_abs();
        assert_eq!(largest_stored_bytes(file.metadata(), &ProjectionMask::all()), chunk(1, 0) + chunk(1, 1));
        let texts = ProjectionMask::leaves(file.parquet_schema(), [1]);
        assert_eq!(largest_stored_bytes(file.metadata(), &texts), chunk(1, 1));
    }
}
