//! The values of some rows.
//!
//! Place in the flow: a mutation reads what it must know of the rows it found: their ids, times and organisation, and whole rows
//! where they move to another partition. Only the columns asked for are decoded, and with indexes of pages only the pages needed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader, UInt64Array};
use arrow::compute::{concat_batches, interleave, take_record_batch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;

use super::change::within;
use super::file::{SpliceFile, chunk_range, reader_metadata};
use super::guard::guarded;
use super::matching::BATCH_ROWS;
use super::pages::{dictionary_bytes, is_data_page, readable};
use super::source::Fetched;
use crate::rows::{Shape, damaged, unreadable};

impl SpliceFile {
    /// The values of `columns`, top-level columns in the table's types, in the rows at `positions`, which ascend; in their order. A
    /// column that the file lacks has the value that the log says for all its rows, or null. All of it is in memory at once.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if the file cannot be read, [`Kind::Unsupported`] if a column has a type whose values do not become the
    /// table's unchanged, [`Kind::NotFound`] and [`Kind::Unavailable`] as [`SpliceFile::open`]; [`Kind::Internal`] if the positions
    /// do not ascend or are not the file's.
    pub async fn rows_at(&self, columns: &SchemaRef, positions: &[u64]) -> Result<RecordBatch> {
        if !positions.is_sorted_by(|a, b| a < b) || positions.last().is_some_and(|last| *last >= self.rows()) {
            let file = &self.file().path;
            return Err(Error::new(
                Kind::Internal,
                format!("reading rows of {file}: the positions do not ascend or are not its own"),
            ));
        }
        guarded(self.file(), self.read_at(columns, positions)).await
    }

    async fn read_at(&self, columns: &SchemaRef, positions: &[u64]) -> Result<RecordBatch> {
        let metadata = self.indexed().await?;
        let reader = reader_metadata(metadata.clone()).map_err(|e| unreadable(self.file(), e))?;
        let shape = Shape::new(self.file(), reader.schema(), columns)?;
        let mut batches = Vec::new();
        for (group, (rows, _)) in self.groups().enumerate() {
            let hits = &positions[within(positions, &rows)];
            if hits.is_empty() {
                continue;
            }
            // What was decoded to find the rows is not decoded again.
            let known = |root: &usize| {
                let arrays = self.decoded(group, *root, reader.schema().field(*root).data_type())?;
                Some((*root, taken(&arrays, hits.iter().map(|position| position - rows.start))?))
            };
            let mut columns: BTreeMap<usize, ArrayRef> = shape.roots.iter().filter_map(known).collect();
            let roots: Vec<usize> = shape.roots.iter().copied().filter(|root| !columns.contains_key(root)).collect();
            if !roots.is_empty() {
                let read = self.read_group(&reader, group, rows, &roots, hits).await?;
                columns.extend(roots.into_iter().zip(read.columns().iter().cloned()));
            }
            let fields: Vec<Field> = columns.keys().map(|r| reader.schema().field(*r).clone().with_nullable(true)).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(hits.len()));
            let batch =
                RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns.into_values().collect(), &options)
                    .map_err(|_| damaged(self.file()).hint("it has not as many rows as its footer says"))?;
            batches.push(shape.bring(&batch)?);
        }
        let batch = concat_batches(shape.schema(), &batches)
            .map_err(|e| Error::new(Kind::Internal, "putting rows together").source(e))?;
        if batch.num_rows() != positions.len() {
            return Err(damaged(self.file()).hint("it has not as many rows as its footer says"));
        }
        Ok(batch)
    }

    /// Columns of a row group, in the rows at `hits`.
    async fn read_group(
        &self,
        reader: &ArrowReaderMetadata,
        group: usize,
        rows: Range<u64>,
        roots: &[usize],
        hits: &[u64],
    ) -> Result<RecordBatch> {
        let metadata = reader.metadata();
        let mask = ProjectionMask::roots(self.schema(), roots.iter().copied());
        let total = usize::try_from(rows.end - rows.start).unwrap_or(usize::MAX);
        let local = hits.iter().map(|p| usize::try_from(p - rows.start).unwrap_or(usize::MAX)).map(|i| i..i + 1);
        let selection = RowSelection::from_consecutive_ranges(local, total);
        let wanted = (0..self.schema().num_columns()).filter(|leaf| mask.leaf_included(*leaf));
        // Over damaged levels of a list Parquet's reader skips without an end, so lists are read from the first row on.
        let repeated = wanted.clone().any(|leaf| self.schema().column(leaf).max_rep_level() > 0);
        let selection =
            if repeated { RowSelection::from_consecutive_ranges(std::iter::once(0..total), total) } else { selection };
        let ranges: Vec<Range<u64>> = wanted.clone().flat_map(|leaf| needed(metadata, group, leaf, &selection)).collect();
        let bytes = self.source.fetch(&ranges).await?;
        for leaf in wanted {
            if !is_sound(&bytes, metadata, group, leaf, &selection) {
                return Err(damaged(self.file()).hint("a column does not have the pages that the footer says"));
            }
        }
        let read = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, reader.clone())
            .with_row_groups(vec![group])
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            // Otherwise pages between those that are needed would be decoded.
            .with_row_selection_policy(RowSelectionPolicy::Selectors)
            .with_row_selection(selection)
            .build()
            .map_err(|e| unreadable(self.file(), e))?;
        let schema = read.schema();
        let mut first = rows.start;
        let mut batches = Vec::new();
        for batch in read {
            let batch = batch.map_err(|e| unreadable(self.file(), e.into()))?;
            if !repeated {
                batches.push(batch);
                continue;
            }
            let of_batch = first..first + batch.num_rows() as u64;
            let wanted: UInt64Array = hits[within(hits, &of_batch)].iter().map(|p| p - of_batch.start).collect();
            first = of_batch.end;
            let taken = take_record_batch(&batch, &wanted);
            batches.push(taken.map_err(|e| Error::new(Kind::Internal, "taking rows").source(e))?);
        }
        concat_batches(&schema, &batches).map_err(|e| Error::new(Kind::Internal, "putting rows together").source(e))
    }
}

/// The values at `rows`, which ascend, of arrays that follow one another; `None` if there are not so many.
fn taken(arrays: &[ArrayRef], rows: impl Iterator<Item = u64>) -> Option<ArrayRef> {
    let (mut at, mut first) = (0, 0);
    let place = |row: u64| {
        let row = usize::try_from(row).ok()?;
        while row - first >= arrays.get(at)?.len() {
            first += arrays[at].len();
            at += 1;
        }
        Some((at, row - first))
    };
    let places: Vec<(usize, usize)> = rows.map(place).collect::<Option<_>>()?;
    interleave(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>(), &places).ok()
}

/// Whether the pages that are read for `selection` are what the footer says: all of the chunk's, if they are there.
fn is_sound(bytes: &Fetched, metadata: &ParquetMetaData, group: usize, leaf: usize, selection: &RowSelection) -> bool {
    let chunk = metadata.row_group(group).column(leaf);
    let part = |range: &Range<u64>| bytes.get_bytes(range.start, usize::try_from(range.end - range.start).ok()?).ok();
    let whole = chunk_range(chunk);
    if let Some(bytes) = part(&whole) {
        return readable(&bytes, chunk).is_some();
    }
    needed(metadata, group, leaf, selection).iter().all(|range| {
        let Some(bytes) = part(range) else { return false };
        if range.start == whole.start && dictionary_bytes(&bytes, chunk) == Some(bytes.len()) {
            return true;
        }
        is_data_page(&bytes, chunk)
    })
}

/// The bytes of a chunk that are read for `selection`.
fn needed(metadata: &ParquetMetaData, group: usize, leaf: usize, selection: &RowSelection) -> Vec<Range<u64>> {
    let chunk = chunk_range(metadata.row_group(group).column(leaf));
    let Some(index) = metadata.offset_index() else { return vec![chunk] };
    let locations = index[group][leaf].page_locations();
    let mut ranges = selection.scan_ranges(locations);
    let first = locations.first().and_then(|page| u64::try_from(page.offset).ok()).unwrap_or(chunk.start);
    if first > chunk.start {
        ranges.push(chunk.start..first);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn rows_are_taken_across_arrays_nulls_too_and_not_beyond_them() {
        let numbers = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
        let arrays = [numbers(vec![Some(10), None, Some(12)]), numbers(vec![]), numbers(vec![Some(13), Some(14)])];
        let at = |rows: &[u64]| -> Option<Vec<Option<i64>>> {
            taken(&arrays, rows.iter().copied()).map(|array| array.as_primitive::<Int64Type>().iter().collect())
        };
        assert_eq!(at(&[0, 1, 2, 3, 4]), Some(vec![Some(10), None, Some(12), Some(13), Some(14)]));
        assert_eq!(at(&[2, 4]), Some(vec![Some(12), Some(14)]));
        assert_eq!(at(&[3]), Some(vec![Some(13)]));
        assert_eq!(at(&[4, 5]), None);
    }
}
