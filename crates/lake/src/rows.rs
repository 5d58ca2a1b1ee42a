//! The rows of single data files, in a table's columns, a batch at a time.
//!
//! Place in the flow: `changes` reads the files of a version through this. Files are those of any writer: a column that a file lacks
//! is its partition's value, or null; types are brought to the table's where that changes no value. Invariant: beside a file's footer, one row group's
//! bytes and one batch are in memory at a time.

use std::error::Error as StdError;
use std::ops::Range;
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::CastOptions;
use arrow::datatypes::{Field, Schema, SchemaRef};
use bytes::Bytes;
use datafusion::common::ScalarValue;
use datafusion::common::nested_struct::cast_column;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::blocking::blocking;
use crate::log::{ChangedFile, DeletedRows, DeltaLog};
use crate::widen::{Widening, widening};

/// The most rows of a batch.
const MAX_BATCH_ROWS: u64 = 8192;
/// So much of a file's end is read at once, in the hope that the footer is in it.
const FOOTER_HINT_BYTES: usize = 64 << 10;

/// Which rows of a file are read, by their position in it.
#[derive(Debug, Clone, PartialEq)]
pub enum Rows {
    /// All but those that the log says are deleted.
    Live,
    /// Those among `of` that are not among `without`: what became deleted, or was restored, between two versions.
    Marked {
        /// Positions to read.
        of: DeletedRows,
        /// Positions to leave out all the same.
        without: Option<DeletedRows>,
    },
}

/// How two deletion vectors of one file differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarksDiffer {
    /// Rows that the later one alone marks.
    pub gone: u64,
    /// Rows that the earlier one alone marks.
    pub came: u64,
}

/// Rows as they are read.
pub type RowStream = BoxStream<'static, Result<RecordBatch>>;

impl DeltaLog {
    /// The rows of a file in the columns of `schema`, in their order, in batches of about `batch_bytes`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the file is no longer kept, [`Kind::Corrupt`] if it or its deletion vector cannot be read.
    pub async fn read_rows(&self, file: &ChangedFile, rows: &Rows, schema: &SchemaRef, batch_bytes: u64) -> Result<RowStream> {
        let (of, without) = match rows {
            Rows::Live => (None, file.deleted.as_ref()),
            Rows::Marked { of, without } => (Some(self.positions(of).await?), without.as_ref()),
        };
        let without = match without {
            Some(deleted) => self.positions(deleted).await?,
            None => Vec::new(),
        };
        let mut reader = FileReader::new(self.store().object_store(), file).await.map_err(|e| unreadable(file, e))?;
        let metadata =
            ArrowReaderMetadata::load_async(&mut reader, ArrowReaderOptions::new()).await.map_err(|e| unreadable(file, e))?;
        let total = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
        let bytes: u64 = metadata.metadata().row_groups().iter().map(|g| g.total_byte_size().unsigned_abs()).sum();
        let batch_rows = (batch_bytes.saturating_mul(total) / bytes.max(1)).clamp(1, MAX_BATCH_ROWS);
        let wanted = Wanted::new(file, metadata.schema(), schema)?;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), wanted.roots.iter().copied());
        let mut builder = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, metadata)
            .with_batch_size(usize::try_from(batch_rows).unwrap_or(1))
            .with_projection(mask);
        if of.is_some() || !without.is_empty() {
            let ranges = kept_ranges(of.as_deref(), &without, total);
            let total = usize::try_from(total).unwrap_or(usize::MAX);
            builder = builder.with_row_selection(RowSelection::from_consecutive_ranges(ranges.into_iter(), total));
        }
        let stream = builder.build().map_err(|e| unreadable(file, e))?;
        let file = file.clone();
        Ok(stream.map_err(move |e| unreadable(&file, e)).and_then(move |batch| std::future::ready(wanted.shape(&batch))).boxed())
    }

    /// How the deletion vector `is` differs from `was`, which its file had before.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if one of them is no longer kept.
    pub async fn marks_differ(&self, was: &DeletedRows, is: &DeletedRows) -> Result<MarksDiffer> {
        let (was, is) = (self.positions(was).await?, self.positions(is).await?);
        let without = |of: &[u64], others: &[u64]| of.iter().filter(|p| others.binary_search(p).is_err()).count() as u64;
        Ok(MarksDiffer { gone: without(&is, &was), came: without(&was, &is) })
    }

    /// The positions that a deletion vector holds, ascending.
    async fn positions(&self, deleted: &DeletedRows) -> Result<Vec<u64>> {
        let (engine, url, vector) = (self.engine(), self.url(), deleted.0.clone());
        blocking("reading a deletion vector", move || Ok(vector.row_indexes(engine.storage_handler(), &url))).await?.map_err(
            |e| match self.kernel_error(e) {
                e if e.kind() == Kind::Corrupt => {
                    Error::new(Kind::NotFound, format!("table {}: a deletion vector is no longer kept, or damaged", self.root()))
                        .source(e)
                }
                e => e,
            },
        )
    }
}

/// A data file in the store.
struct FileReader {
    store: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
}

impl FileReader {
    async fn new(store: Arc<dyn ObjectStore>, file: &ChangedFile) -> Result<Self, ParquetError> {
        let size = match file.size {
            Some(size) => size,
            None => store.head(&file.path).await?.size,
        };
        Ok(Self { store, path: file.path.clone(), size })
    }
}

impl AsyncFileReader for FileReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move { Ok(self.store.get_range(&self.path, range).await?) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move { Ok(self.store.get_ranges(&self.path, &ranges).await?) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move {
            let footer = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER_HINT_BYTES));
            let size = self.size;
            Ok(Arc::new(footer.load_and_finish(self, size).await?))
        }
        .boxed()
    }
}

/// The runs of positions below `total` that are in `of` (all, without it) and not in `without`; both ascend.
fn kept_ranges(of: Option<&[u64]>, without: &[u64], total: u64) -> Vec<Range<usize>> {
    let index = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
    let mut ranges: Vec<Range<usize>> = Vec::new();
    match of {
        None => {
            let mut from = 0;
            for gone in without.iter().copied().take_while(|p| *p < total).chain([total]) {
                if gone > from {
                    ranges.push(index(from)..index(gone));
                }
                from = gone + 1;
            }
        }
        Some(of) => {
            let kept = of.iter().copied().filter(|p| *p < total && without.binary_search(p).is_err());
            for position in kept.map(index) {
                match ranges.last_mut() {
                    Some(last) if last.end == position => last.end = position + 1,
                    _ => ranges.push(position..position + 1),
                }
            }
        }
    }
    ranges
}

/// How a file's columns become the table's.
struct Wanted {
    schema: SchemaRef,
    /// The file's columns that are read, ascending.
    roots: Vec<usize>,
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

impl Wanted {
    fn new(file: &ChangedFile, there: &SchemaRef, schema: &SchemaRef) -> Result<Self> {
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

    fn shape(&self, batch: &RecordBatch) -> Result<RecordBatch> {
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

fn damaged(file: &ChangedFile) -> Error {
    Error::new(Kind::Corrupt, format!("the data file {} is damaged", file.path))
}

/// Our error for Parquet's; a file that is gone is another matter than one that is damaged.
fn unreadable(file: &ChangedFile, error: ParquetError) -> Error {
    let mut below: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(e) = below {
        match e.downcast_ref::<object_store::Error>() {
            Some(object_store::Error::NotFound { .. }) => {
                return Error::new(Kind::NotFound, format!("the data file {} is no longer kept", file.path));
            }
            Some(_) => return Error::new(Kind::Unavailable, format!("reading {}", file.path)).source(error),
            None => below = e.source(),
        }
    }
    damaged(file).hint("restore it from a backup of the storage").source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_rows_are_all_without_the_deleted_or_the_marked_without_the_others() {
        for (of, without, total, kept) in [
            (None, &[][..], 5, vec![(0, 5)]),
            (None, &[0, 2, 3, 9], 5, vec![(1, 2), (4, 5)]),
            (None, &[4], 5, vec![(0, 4)]),
            (None, &[0, 1], 2, vec![]),
            (Some(&[1, 2, 4, 7][..]), &[2], 5, vec![(1, 2), (4, 5)]),
            (Some(&[1, 2, 3]), &[], 5, vec![(1, 4)]),
            (Some(&[1]), &[1], 5, vec![]),
        ] {
            let ranges: Vec<(usize, usize)> = kept_ranges(of, without, total).iter().map(|r| (r.start, r.end)).collect();
            assert_eq!(ranges, kept, "{of:?} without {without:?} of {total}");
        }
    }
}
