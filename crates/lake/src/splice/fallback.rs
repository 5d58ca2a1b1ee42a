//! A file that cannot be spliced: all its rows are read and encoded in the table's types.
//!
//! Place in the flow: [`SpliceFile::splice`] ends here where a file's types or pages do not let it do better. One row group's
//! bytes and the encoded pages of one are in memory beside the file that is being made.

use std::ops::Range;
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use arrow::array::ArrayRef;
use arrow::compute::CastOptions;
use arrow::datatypes::{Field, Schema, SchemaRef};
use bytes::Bytes;
use datafusion::common::nested_struct::cast_column;
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;
use parquet::file::writer::SerializedFileWriter;

use super::change::{NewValues, changed};
use super::file::{SpliceFile, chunk_range, reader_metadata};
use super::matching::{BATCH_ROWS, batch_rows, row_bytes};
use super::pages::readable;
use super::plan::Sound;
use super::statistics::Kept;
use super::{SpliceSettings, Spliced, SplicedFile};
use crate::rows::{Shape, damaged, unreadable};
use crate::stage::MAX_ROW_GROUP_ROWS;

/// A row group is closed when its pages come to so many bytes.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// The file with `edits`, in the table's types.
pub(super) async fn rewrite(file: &SpliceFile, edits: &Sound<'_>, settings: &SpliceSettings) -> Result<Spliced> {
    // A file's own columns tell what may be null in it.
    let fields: Vec<Field> = settings.schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    let without_partitions = |f: &Field| file.has_column(f.name()) || !file.file().partition_values.contains_key(f.name());
    let schema: SchemaRef = Arc::new(Schema::new(fields.into_iter().filter(without_partitions).collect::<Vec<_>>()));
    let reader = reader_metadata(file.metadata.clone()).map_err(|e| unreadable(file.file(), e))?;
    let shape = Shape::new(file.file(), reader.schema(), &schema).map_err(told)?;
    let mask = ProjectionMask::roots(file.schema(), shape.roots.iter().copied());
    let mut out = Out {
        settings,
        schema: schema.clone(),
        edits,
        open: None,
        kept: Kept::new(settings, None),
        files: Vec::new(),
        encoded: 0,
    };
    for (group, (rows, of_group)) in file.groups().enumerate() {
        let wanted = (0..of_group.num_columns()).filter(|leaf| mask.leaf_included(*leaf)).map(|leaf| of_group.column(leaf));
        let ranges: Vec<Range<u64>> = wanted.clone().map(chunk_range).collect();
        let batch_rows = batch_rows(row_bytes(wanted.clone(), rows.end - rows.start));
        let bytes = file.source.fetch(&ranges).await?;
        let sound = wanted.clone().all(|chunk| {
            let range = chunk_range(chunk);
            let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            bytes.get_bytes(range.start, length).is_ok_and(|bytes| readable(&bytes, chunk).is_some())
        });
        if !sound {
            return Err(damaged(file.file()).hint("a column does not have the pages that the footer says"));
        }
        let batches = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, reader.clone())
            .with_row_groups(vec![group])
            .with_projection(mask.clone())
            .with_batch_size(batch_rows)
            .build()
            .map_err(|e| unreadable(file.file(), e))?;
        let mut first = rows.start;
        for batch in batches {
            let batch = batch.map_err(|e| unreadable(file.file(), e.into()))?;
            let of_batch = first..first + batch.num_rows() as u64;
            first = of_batch.end;
            out.write(shape.bring(&batch).map_err(told)?.columns(), of_batch)?;
        }
        if first != rows.end {
            return Err(damaged(file.file()).hint("it has not as many rows as its footer says"));
        }
    }
    out.close()?;
    Ok(Spliced { files: out.files, bytes_copied: 0, bytes_encoded: out.encoded, fell_back: true })
}

fn told(error: Error) -> Error {
    Error::new(error.kind(), "rewriting a data file in the table's types").source(error)
}

/// The files that are being made.
struct Out<'a> {
    settings: &'a SpliceSettings,
    schema: SchemaRef,
    edits: &'a Sound<'a>,
    open: Option<OpenFile>,
    kept: Kept,
    files: Vec<SplicedFile>,
    encoded: u64,
}

struct OpenFile {
    writer: SerializedFileWriter<Vec<u8>>,
    factory: ArrowRowGroupWriterFactory,
    /// The row group that is being made, and its rows.
    columns: Vec<ArrowColumnWriter>,
    rows: usize,
}

impl Out<'_> {
    /// Adds the rows at `positions`, with what changes of them.
    fn write(&mut self, columns: &[ArrayRef], positions: Range<u64>) -> Result<()> {
        let mut made = Vec::with_capacity(columns.len());
        for (field, column) in self.schema.fields().iter().zip(columns) {
            let edit = self.edits.columns.iter().find(|e| e.column == *field.name());
            let values = edit.map(|e| cast_to(&e.values, field)).transpose()?;
            let new = edit.zip(values.as_ref()).map(|(e, values)| NewValues { rows: &e.rows, values });
            let column = changed(column, positions.clone(), &self.edits.deleted, new)
                .map_err(|e| Error::new(Kind::Internal, "putting rows together").source(e))?;
            self.kept.encoded(field.name(), &column);
            made.push(column);
        }
        let rows = made.first().map_or(0, |column| column.len());
        if rows == 0 {
            return Ok(());
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin().map_err(internal)?,
        };
        let mut writers = open.columns.iter_mut();
        for (field, column) in self.schema.fields().iter().zip(&made) {
            for leaf in compute_leaves(field, column).map_err(internal)? {
                let writer = writers.next().ok_or_else(|| Error::new(Kind::Internal, "encoding Parquet: too many leaves"))?;
                writer.write(&leaf).map_err(internal)?;
            }
        }
        open.rows += rows;
        let pages: usize = open.columns.iter().map(ArrowColumnWriter::get_estimated_total_bytes).sum();
        let target = usize::try_from(self.settings.target_file_bytes).unwrap_or(usize::MAX);
        if open.rows + BATCH_ROWS > MAX_ROW_GROUP_ROWS || pages >= ROW_GROUP_BYTES.min(target) {
            self.close_group(&mut open).map_err(internal)?;
        }
        let full = open.writer.bytes_written() > target;
        self.open = Some(open);
        if full { self.close() } else { Ok(()) }
    }

    fn begin(&self) -> Result<OpenFile, ParquetError> {
        let properties = self.settings.encoder.properties().clone();
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let (writer, factory) =
            ArrowWriter::try_new_with_options(Vec::new(), self.schema.clone(), options)?.into_serialized_writer()?;
        let columns = factory.create_column_writers(0)?;
        Ok(OpenFile { writer, factory, columns, rows: 0 })
    }

    fn close_group(&mut self, open: &mut OpenFile) -> Result<(), ParquetError> {
        if open.rows == 0 {
            return Ok(());
        }
        let mut group = open.writer.next_row_group()?;
        for column in open.columns.drain(..) {
            let chunk = column.close()?;
            self.encoded += chunk.close().metadata.compressed_size().unsigned_abs();
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
        open.rows = 0;
        open.columns = open.factory.create_column_writers(open.writer.flushed_row_groups().len())?;
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        self.close_group(&mut open).map_err(internal)?;
        let metadata = open.writer.finish().map_err(internal)?;
        let bytes = Bytes::from(std::mem::take(open.writer.inner_mut()));
        let rows = metadata.file_metadata().num_rows().unsigned_abs();
        let stats = self.kept.statistics(self.settings, &metadata);
        self.files.push(SplicedFile { pieces: bytes.into(), rows, stats });
        Ok(())
    }
}

/// New values in the type of the field, which differs from theirs in the names of parts at most.
fn cast_to(values: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    if values.data_type() == field.data_type() {
        return Ok(values.clone());
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_column(values, field.data_type(), &strict).map_err(|_may_quote_a_value| {
        Error::new(Kind::Internal, format!("the new values of the column {} do not fit it", field.name()))
    })
}

fn internal(error: ParquetError) -> Error {
    Error::new(Kind::Internal, "encoding Parquet").source(error)
}
