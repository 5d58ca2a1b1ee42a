//! One partition's rows as Parquet, its columns encoded on all cores.

use alluvium_core::{DataType, Error, Kind, Result, TableSpec};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::interleave;
use arrow::datatypes::{DataType as ArrowType, FieldRef, Float32Type, Float64Type, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rayon::prelude::*;

use super::group::{Run, expand};
use crate::file_index::FileIds;
use crate::schema::arrow_schema;

/// The most rows gathered from the input at a time, for one column.
const GATHER_ROWS: usize = 65_536;
/// The most bytes of them, going by the average row: offsets into text have 31 bits.
const GATHER_BYTES: usize = 256 << 20;
/// The most rows of a row group.
pub(crate) const MAX_ROW_GROUP_ROWS: usize = 1 << 20;
/// The fewest rows of a row group that is not a file's last.
const MIN_ROW_GROUP_ROWS: usize = 1024;

/// The column that holds what the source gave where requests changed it.
const ORIGINALS: &str = "_original";

/// Runs shorter than this on average are gathered row by row instead of being written one by one.
const LONG_RUN: usize = 64;

/// Which rows of some batches make up a partition, in which order.
#[derive(Debug)]
pub(super) enum Order {
    /// Adjacent rows.
    Runs(Vec<Run>),
    /// Single rows, as (batch, row).
    Rows(Vec<(usize, usize)>),
}

/// Some rows of an [`Order`].
enum Piece<'a> {
    Runs(Vec<Run>),
    Rows(&'a [(usize, usize)]),
}

impl Order {
    /// Long runs stay; others become single rows.
    fn settled(self) -> Self {
        match self {
            Self::Runs(runs) if runs.iter().map(|r| r.rows).sum::<usize>() < LONG_RUN * runs.len() => Self::Rows(expand(&runs)),
            order => order,
        }
    }

    /// Pieces of at most `rows` rows.
    fn pieces(&self, rows: usize) -> Vec<Piece<'_>> {
        let runs = match self {
            Self::Rows(all) => return all.chunks(rows).map(Piece::Rows).collect(),
            Self::Runs(runs) => runs,
        };
        let (mut pieces, mut piece, mut left) = (Vec::new(), Vec::new(), rows);
        for run in runs {
            let mut run = *run;
            while run.rows > left {
                piece.push(Run { rows: left, ..run });
                run = Run { start: run.start + left, rows: run.rows - left, ..run };
                pieces.push(Piece::Runs(std::mem::take(&mut piece)));
                left = rows;
            }
            left -= run.rows;
            piece.push(run);
        }
        pieces.push(Piece::Runs(piece));
        pieces
    }
}

impl Piece<'_> {
    fn rows(&self) -> usize {
        match self {
            Self::Runs(runs) => runs.iter().map(|r| r.rows).sum(),
            Self::Rows(rows) => rows.len(),
        }
    }
}

/// How rows of a table become files: schema without partition columns, writer properties.
#[derive(Debug)]
pub(crate) struct Encoder {
    schema: SchemaRef,
    properties: WriterProperties,
    target_file_bytes: usize,
    /// The fields whose ids are gathered.
    indexed: Vec<String>,
}

/// A finished file.
#[derive(Debug)]
pub(super) struct EncodedFile {
    pub(super) bytes: Bytes,
    pub(super) rows: u64,
    pub(super) metadata: ParquetMetaData,
    /// Top-level float columns that hold a NaN: their minimum and maximum say nothing.
    pub(super) with_nan: Vec<String>,
    /// The ids in the indexed fields, current and original.
    pub(super) ids: FileIds,
}

impl Encoder {
    /// An encoder that gathers the ids of the fields `indexed`, which hold text or integers.
    pub(crate) fn new(spec: &TableSpec, indexed: Vec<String>) -> Self {
        Self::of_schema(spec, arrow_schema(spec), indexed)
    }

    /// The same, for rows of another schema than the declared one.
    pub(super) fn of_schema(spec: &TableSpec, schema: SchemaRef, indexed: Vec<String>) -> Self {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("alluvium ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_write_batch_size(8192);
        for column in &spec.columns {
            // Values that hardly repeat gain nothing from a dictionary, and cost one to build.
            let path = ColumnPath::from(column.name.as_str());
            if column.data_type == DataType::Timestamp || column.name == "_offset" {
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            } else if spec.fixed_properties.get("key") == Some(&column.name) {
                properties = properties.set_column_dictionary_enabled(path, false);
            }
        }
        Self {
            schema,
            properties: properties.build(),
            target_file_bytes: usize::try_from(spec.target_file_bytes).unwrap_or(usize::MAX),
            indexed,
        }
    }

    /// How columns are encoded.
    pub(crate) const fn properties(&self) -> &WriterProperties {
        &self.properties
    }

    /// Where the ids of a column are gathered; `None` if it holds none.
    fn ids_of(&self, column: &str) -> Option<FileIds> {
        let holds_ids = column == ORIGINALS || self.indexed.iter().any(|field| field == column);
        (holds_ids && !self.indexed.is_empty()).then(|| FileIds::new(&self.indexed))
    }

    /// Encodes the rows of `batches` that `order` names, handing over each file as it is closed. A file is closed when it has come
    /// near its target size.
    pub(super) fn encode(
        &self,
        batches: &[RecordBatch],
        order: Order,
        row_bytes: usize,
        columns_in_parallel: bool,
        mut closed: impl FnMut(EncodedFile) -> Result<()>,
    ) -> Result<()> {
        let row_group_rows =
            (self.target_file_bytes.saturating_mul(2) / row_bytes.max(1)).clamp(MIN_ROW_GROUP_ROWS, MAX_ROW_GROUP_ROWS);
        let gather_rows = (GATHER_BYTES / row_bytes.max(1)).clamp(1, GATHER_ROWS);
        let columns: Vec<Vec<&dyn Array>> = self
            .schema
            .fields()
            .iter()
            .map(|f| {
                batches
                    .iter()
                    .map(|b| b.column_by_name(f.name()).map(AsRef::as_ref))
                    .collect::<Option<Vec<_>>>()
                    .ok_or_else(|| Error::new(Kind::Internal, format!("staged rows lack the column {}", f.name())))
            })
            .collect::<Result<_>>()?;
        let order = order.settled();
        let mut pieces = order.pieces(row_group_rows).into_iter().filter(|p| p.rows() > 0).peekable();
        while pieces.peek().is_some() {
            let mut file = OpenFile::new(self)?;
            while let Some(piece) = pieces.next() {
                file.row_group(&columns, &piece, gather_rows, columns_in_parallel)?;
                let bytes = file.writer.bytes_written();
                let next = pieces.peek().map_or(0, |p| bytes / file.groups * p.rows() / row_group_rows);
                if bytes + next > self.target_file_bytes {
                    break;
                }
            }
            closed(file.close()?)?;
        }
        Ok(())
    }
}

struct OpenFile<'a> {
    encoder: &'a Encoder,
    writer: SerializedFileWriter<Vec<u8>>,
    factory: ArrowRowGroupWriterFactory,
    groups: usize,
    rows: u64,
    with_nan: Vec<String>,
    ids: FileIds,
}

impl<'a> OpenFile<'a> {
    fn new(encoder: &'a Encoder) -> Result<Self> {
        let options = ArrowWriterOptions::new().with_properties(encoder.properties.clone()).with_skip_arrow_metadata(true);
        let (writer, factory) = ArrowWriter::try_new_with_options(Vec::new(), encoder.schema.clone(), options)
            .and_then(ArrowWriter::into_serialized_writer)
            .map_err(internal)?;
        let ids = FileIds::new(&encoder.indexed);
        Ok(Self { encoder, writer, factory, groups: 0, rows: 0, with_nan: Vec::new(), ids })
    }

    fn row_group(&mut self, columns: &[Vec<&dyn Array>], piece: &Piece<'_>, gather_rows: usize, parallel: bool) -> Result<()> {
        let mut writers = self.factory.create_column_writers(self.groups).map_err(internal)?.into_iter();
        let fields = self.encoder.schema.fields();
        let work: Vec<_> = fields
            .iter()
            .zip(columns)
            .map(|(field, arrays)| (field, arrays, writers.by_ref().take(leaf_count(field.data_type())).collect::<Vec<_>>()))
            .collect();
        let encode = |(field, arrays, leaves): (&FieldRef, &Vec<&dyn Array>, _)| {
            encode_column(field, arrays, piece, gather_rows, leaves, self.encoder.ids_of(field.name()))
        };
        let done: Vec<EncodedColumn> = if parallel {
            work.into_par_iter().with_max_len(1).map(encode).collect::<Result<_>>()?
        } else {
            work.into_iter().map(encode).collect::<Result<_>>()?
        };
        let bytes: u64 = done.iter().flat_map(|column| &column.chunks).map(|chunk| chunk.close().bytes_written).sum();
        self.writer.inner_mut().reserve(usize::try_from(bytes).unwrap_or(0));
        let mut group = self.writer.next_row_group().map_err(internal)?;
        for (field, EncodedColumn { chunks, nan, ids }) in fields.iter().zip(done) {
            if let Some(ids) = ids {
                self.ids.absorb(ids);
            }
            if nan && !self.with_nan.contains(field.name()) {
                self.with_nan.push(field.name().clone());
            }
            for chunk in chunks {
                chunk.append_to_row_group(&mut group).map_err(internal)?;
            }
        }
        group.close().map_err(internal)?;
        self.groups += 1;
        self.rows += piece.rows() as u64;
        Ok(())
    }

    fn close(mut self) -> Result<EncodedFile> {
        let metadata = self.writer.finish().map_err(internal)?;
        let bytes = Bytes::from(std::mem::take(self.writer.inner_mut()));
        Ok(EncodedFile { bytes, rows: self.rows, metadata, with_nan: self.with_nan, ids: self.ids })
    }
}

/// A column of a row group.
struct EncodedColumn {
    chunks: Vec<ArrowColumnChunk>,
    nan: bool,
    ids: Option<FileIds>,
}

fn encode_column(
    field: &arrow::datatypes::Field,
    arrays: &[&dyn Array],
    piece: &Piece<'_>,
    gather_rows: usize,
    mut leaves: Vec<ArrowColumnWriter>,
    mut ids: Option<FileIds>,
) -> Result<EncodedColumn> {
    let mut nan = false;
    let mut write = |values: ArrayRef| -> Result<()> {
        nan = nan || has_nan(&values);
        match &mut ids {
            Some(ids) if field.name() == ORIGINALS => ids.add_originals(&values)?,
            Some(ids) => ids.add_column(field.name(), &values)?,
            None => {}
        }
        for (leaf, writer) in compute_leaves(field, &values).map_err(internal)?.iter().zip(&mut leaves) {
            writer.write(leaf).map_err(internal)?;
        }
        Ok(())
    };
    match piece {
        Piece::Runs(runs) => {
            for run in runs {
                write(arrays[run.batch].slice(run.start, run.rows))?;
            }
        }
        Piece::Rows(rows) => {
            for some in rows.chunks(gather_rows) {
                write(interleave(arrays, some).map_err(|e| Error::new(Kind::Internal, "gathering rows").source(e))?)?;
            }
        }
    }
    let chunks = leaves.into_iter().map(ArrowColumnWriter::close).collect::<Result<_, _>>().map_err(internal)?;
    Ok(EncodedColumn { chunks, nan, ids })
}

/// Whether a float column, or one inside a struct, holds a NaN.
pub(crate) fn has_nan(array: &dyn Array) -> bool {
    match array.data_type() {
        ArrowType::Float64 => array.as_primitive::<Float64Type>().values().iter().any(|v| v.is_nan()),
        ArrowType::Float32 => array.as_primitive::<Float32Type>().values().iter().any(|v| v.is_nan()),
        ArrowType::Struct(_) => array.as_struct().columns().iter().any(|c| has_nan(c)),
        _ => false,
    }
}

/// Parquet leaves of a column.
pub(crate) fn leaf_count(data_type: &ArrowType) -> usize {
    match data_type {
        ArrowType::Struct(fields) => fields.iter().map(|f| leaf_count(f.data_type())).sum(),
        ArrowType::List(element) => leaf_count(element.data_type()),
        ArrowType::Map(entries, _) => leaf_count(entries.data_type()),
        _ => 1,
    }
}

fn internal(error: parquet::errors::ParquetError) -> Error {
    Error::new(Kind::Internal, "encoding Parquet").source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::arrow_type;

    #[test]
    fn leaves_are_counted_through_nested_types() {
        for (text, leaves) in
            [("long", 1), ("struct<a: long, b: struct<c: string, d: date>>", 3), ("map<string, array<long>>", 2)]
        {
            let data_type: DataType = text.parse().expect("a type");
            assert_eq!(leaf_count(&arrow_type(&data_type)), leaves, "{text}");
        }
    }
}
