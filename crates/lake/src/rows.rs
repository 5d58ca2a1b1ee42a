//! The rows of single data files, in a table's columns, a batch at a time.
//!
//! Place in the flow: `changes` reads the files of a version through this. Files are those of any writer: a column that a file lacks
//! is its partition's value, or null; types are brought to the table's where that changes no value. Invariant
//! `bounded_memory`: beside a file's footer and the pages that are being decoded, a [`ReadBudget`] is held.

use std::error::Error as StdError;
use std::ops::Range;

use alluvium_core::{Error, Kind, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parquet::arrow::arrow_reader::{ArrowReaderBuilder, ArrowReaderMetadata, ParquetRecordBatchReaderBuilder, RowSelection};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::ParquetError;

pub(crate) use self::columns::Shape;
use self::file::DataFile;
use self::sizes::{largest_stored_bytes, rows_within};
use self::windows::Windows;
use crate::blocking::blocking;
use crate::log::{ChangedFile, DeletedRows, DeltaLog};
use crate::splice::reader_metadata;

mod columns;
mod file;
mod sizes;
#[cfg(test)]
mod tests;
mod windows;

/// The most rows of a batch.
const MAX_BATCH_ROWS: u64 = 8192;

/// Which rows of a file are read, by their position in it.
#[derive(Debug, Clone, PartialEq)]
pub enum Rows {
    /// All but those that the log says are deleted.
    Live,
    /// Those at these positions, which ascend.
    At(Vec<u64>),
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

/// What the reading of one file may hold, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadBudget {
    /// The size of a batch, about.
    pub batch_bytes: u64,
    /// Bytes of the file that are held before they are decoded: a whole row group, if it fits, or windows on its columns.
    pub stored_bytes: u64,
}

/// Rows as they are read.
pub type RowStream = BoxStream<'static, Result<RecordBatch>>;

impl DeltaLog {
    /// The rows of a file in the columns of `schema`, in their order.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the file is no longer kept, [`Kind::Corrupt`] if it or its deletion vector cannot be read.
    pub async fn read_rows(&self, file: &ChangedFile, rows: &Rows, schema: &SchemaRef, budget: ReadBudget) -> Result<RowStream> {
        let (of, without) = match rows {
            Rows::Live => (None, file.deleted.as_ref()),
            Rows::At(positions) => (Some(positions.clone()), None),
            Rows::Marked { of, without } => (Some(self.positions(of).await?), without.as_ref()),
        };
        let without = match without {
            Some(deleted) => self.positions(deleted).await?,
            None => Vec::new(),
        };
        let mut data = DataFile::new(self.store().object_store(), file).await.map_err(|e| unreadable(file, e))?;
        let footer = data.get_metadata(None).await.map_err(|e| unreadable(file, e))?;
        let metadata = reader_metadata(footer).map_err(|e| unreadable(file, e))?;
        let total = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
        let shape = Shape::new(file, metadata.schema(), schema)?;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), shape.roots.iter().copied());
        let batch_rows = rows_within(metadata.metadata(), &mask, budget.batch_bytes).min(MAX_BATCH_ROWS);
        let selection = (of.is_some() || !without.is_empty()).then(|| {
            let ranges = kept_ranges(of.as_deref(), &without, total);
            RowSelection::from_consecutive_ranges(ranges.into_iter(), usize::try_from(total).unwrap_or(usize::MAX))
        });
        let is_large = largest_stored_bytes(metadata.metadata(), &mask) > budget.stored_bytes;
        let plan = Plan { batch_rows: usize::try_from(batch_rows).unwrap_or(1), mask, selection };
        let stream = if is_large {
            in_windows(data, metadata, plan, budget.stored_bytes).map_err(|e| unreadable(file, e))?
        } else {
            let whole = plan.of(ParquetRecordBatchStreamBuilder::new_with_metadata(data, metadata));
            whole.build().map_err(|e| unreadable(file, e))?.map_err(Fault::File).boxed()
        };
        let file = file.clone();
        let failed = move |fault| match fault {
            Fault::File(e) => unreadable(&file, e),
            Fault::Ours(e) => e,
        };
        Ok(stream.map_err(failed).and_then(move |batch| std::future::ready(shape.bring(&batch))).boxed())
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
    pub(crate) async fn positions(&self, deleted: &DeletedRows) -> Result<Vec<u64>> {
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

/// What is read of a file.
struct Plan {
    batch_rows: usize,
    mask: ProjectionMask,
    selection: Option<RowSelection>,
}

impl Plan {
    fn of<T>(self, builder: ArrowReaderBuilder<T>) -> ArrowReaderBuilder<T> {
        let builder = builder.with_batch_size(self.batch_rows).with_projection(self.mask);
        match self.selection {
            Some(selection) => builder.with_row_selection(selection),
            None => builder,
        }
    }
}

/// Why there are no more rows.
enum Fault {
    File(ParquetError),
    Ours(Error),
}

/// Rows of row groups that are too large to be held.
fn in_windows(
    data: DataFile,
    metadata: ArrowReaderMetadata,
    plan: Plan,
    bytes: u64,
) -> Result<BoxStream<'static, Result<RecordBatch, Fault>>, ParquetError> {
    let windows = Windows::new(data, metadata.metadata(), &plan.mask, bytes)?;
    let reader = plan.of(ParquetRecordBatchReaderBuilder::new_with_metadata(windows.clone(), metadata)).build()?;
    let batches = futures::stream::try_unfold((windows, reader), |(windows, mut reader)| async {
        let read = blocking("reading a data file", move || Ok((windows.next_batch(&mut reader), windows, reader)));
        let (batch, windows, reader) = read.await.map_err(Fault::Ours)?;
        Ok(batch.map_err(Fault::File)?.map(|batch| (batch, (windows, reader))))
    });
    Ok(batches.boxed())
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

pub(crate) fn damaged(file: &ChangedFile) -> Error {
    Error::new(Kind::Corrupt, format!("the data file {} is damaged", file.path))
}

/// Our error for Parquet's; a file that is gone is another matter than one that is damaged.
pub(crate) fn unreadable(file: &ChangedFile, error: ParquetError) -> Error {
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
