//! An opened data file: its footer, looked through before anything relies on it.
//!
//! Place in the flow: a mutation opens each file that may hold what it looks for, asks [`SpliceFile::matching`] where it is, and
//! splices. Invariant: what the footer says of row groups and chunks lies within the file and fits together, so that nothing
//! below counts with numbers that cannot be.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use alluvium_core::Result;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::Type as PhysicalType;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::reader::ChunkReader;
use parquet::schema::types::SchemaDescriptor;
use tokio::sync::OnceCell;

use super::guard::guarded;
use super::source::{Source, WHOLE_FILE_BYTES};
use super::thrift::is_plausible;
use crate::log::{ChangedFile, DeltaLog};
use crate::rows::{damaged, unreadable};

/// Decoded columns of a file are kept up to this size.
const DECODED_BYTES: usize = 8 << 20;
/// The most rows of a file. Deletion vectors and bitmaps of positions go further; no writer does.
const MAX_ROWS: u64 = 1 << 36;

/// A live data file, opened: its footer is read, and all of it if it is small. Holds those bytes until dropped.
#[derive(Debug)]
pub struct SpliceFile {
    pub(super) source: Source,
    pub(super) metadata: Arc<ParquetMetaData>,
    /// Rows that a deletion vector marks, ascending.
    pub(super) gone: Vec<u64>,
    rows: u64,
    indexed: OnceCell<Arc<ParquetMetaData>>,
    native: OnceLock<ArrowReaderMetadata>,
    decoded: Mutex<Decoded>,
}

/// The arrays with one more, unless that is too much to keep.
pub(super) fn with_array(mut arrays: Vec<ArrayRef>, array: &ArrayRef) -> Option<Vec<ArrayRef>> {
    arrays.push(array.clone());
    (memory_bytes(&arrays) <= DECODED_BYTES).then_some(arrays)
}

fn memory_bytes(arrays: &[ArrayRef]) -> usize {
    arrays.iter().map(|array| array.get_array_memory_size()).sum()
}

/// Columns of row groups that were decoded to look for values, for the splice that is likely to follow.
#[derive(Debug, Default)]
struct Decoded {
    bytes: usize,
    /// By row group and top-level column.
    columns: HashMap<(usize, usize), Vec<ArrayRef>>,
}

impl SpliceFile {
    /// Opens a file of any writer. Rows that its deletion vector marks are as if they were not there: nothing matches in them, and
    /// a splice leaves them out.
    ///
    /// # Errors
    /// [`Kind::NotFound`](alluvium_core::Kind::NotFound) if it is no longer kept, [`Kind::Corrupt`](alluvium_core::Kind::Corrupt) if
    /// it is no Parquet, [`Kind::Unavailable`](alluvium_core::Kind::Unavailable) if the store failed.
    pub async fn open(log: &DeltaLog, file: &ChangedFile) -> Result<Self> {
        Self::open_holding(log, file, WHOLE_FILE_BYTES).await
    }

    /// The same, with files of at most `whole_file_bytes` read whole.
    pub(super) async fn open_holding(log: &DeltaLog, file: &ChangedFile, whole_file_bytes: u64) -> Result<Self> {
        let source = Source::open(log, file, whole_file_bytes).await?;
        let (footer_start, footer) = source.footer().await?;
        let metadata = guarded(file, async { parse(&footer).map_err(|e| unreadable(file, e)) }).await?;
        let metadata = checked(metadata, footer_start).ok_or_else(|| damaged(file).hint("its footer does not fit together"))?;
        let mut gone = match &file.deleted {
            Some(deleted) => log.positions(deleted).await?,
            None => Vec::new(),
        };
        let rows = metadata.file_metadata().num_rows().unsigned_abs();
        gone.retain(|position| *position < rows);
        Ok(Self {
            source,
            metadata: Arc::new(metadata),
            gone,
            rows,
            indexed: OnceCell::new(),
            native: OnceLock::new(),
            decoded: Mutex::default(),
        })
    }

    /// Keeps what was decoded of a column, unless it is too much.
    pub(super) fn keep_decoded(&self, group: usize, root: usize, arrays: Vec<ArrayRef>) {
        let bytes = memory_bytes(&arrays);
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if decoded.bytes + bytes <= DECODED_BYTES {
            decoded.bytes += bytes;
            decoded.columns.insert((group, root), arrays);
        }
    }

    /// What was kept of a column, if it is of that type.
    pub(super) fn decoded(&self, group: usize, root: usize, data_type: &DataType) -> Option<Vec<ArrayRef>> {
        let decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        let arrays = decoded.columns.get(&(group, root))?;
        arrays.iter().all(|array| array.data_type() == data_type).then(|| arrays.clone())
    }

    /// What was kept of a column; it is kept no longer.
    pub(super) fn take_decoded(&self, group: usize, root: usize) -> Option<Vec<ArrayRef>> {
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        let arrays = decoded.columns.remove(&(group, root))?;
        decoded.bytes -= memory_bytes(&arrays);
        Some(arrays)
    }

    /// Its rows, those that a deletion vector marks included: positions are below this.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// The positions of rows that a deletion vector marks, ascending.
    #[must_use]
    pub fn deleted_rows(&self) -> &[u64] {
        &self.gone
    }

    /// The bytes read from the store so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.source.bytes_read()
    }

    /// The file as the log names it.
    #[must_use]
    pub const fn file(&self) -> &ChangedFile {
        self.source.file()
    }

    /// Whether the file has a column of that name; where it has none, the log may have a value for all rows.
    #[must_use]
    pub fn has_column(&self, name: &str) -> bool {
        root_index(self.schema(), name).is_some()
    }

    /// The names of its columns.
    pub fn column_names(&self) -> impl Iterator<Item = &str> {
        self.schema().root_schema().get_fields().iter().map(|field| field.name())
    }

    pub(super) fn schema(&self) -> &SchemaDescriptor {
        self.metadata.file_metadata().schema_descr()
    }

    /// The row groups, with the position of the first row of each.
    pub(super) fn groups(&self) -> impl Iterator<Item = (Range<u64>, &RowGroupMetaData)> {
        self.metadata.row_groups().iter().scan(0, |first, group| {
            let rows = *first..*first + group.num_rows().unsigned_abs();
            *first = rows.end;
            Some((rows, group))
        })
    }

    /// How the file is read in the types that Parquet itself has, whatever its writer had in mind.
    pub(super) fn native(&self) -> Result<&ArrowReaderMetadata> {
        if let Some(native) = self.native.get() {
            return Ok(native);
        }
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let native = ArrowReaderMetadata::try_new(self.metadata.clone(), options).map_err(|e| unreadable(self.file(), e))?;
        Ok(self.native.get_or_init(|| native))
    }

    /// The footer with the indexes of pages, if all columns have one that can be relied upon.
    pub(super) async fn indexed(&self) -> Result<&Arc<ParquetMetaData>> {
        self.indexed.get_or_try_init(|| self.read_index()).await
    }

    async fn read_index(&self) -> Result<Arc<ParquetMetaData>> {
        let chunks = || self.metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
        let range = |offset: Option<i64>, length: Option<i32>| {
            let (offset, length) = (u64::try_from(offset?).ok()?, u64::try_from(length?).ok()?);
            offset.checked_add(length).map(|end| offset..end)
        };
        let offsets = chunks().map(|c| range(c.offset_index_offset(), c.offset_index_length()));
        let columns = chunks().filter_map(|c| range(c.column_index_offset(), c.column_index_length()));
        let Some(mut ranges) = offsets.collect::<Option<Vec<_>>>() else { return Ok(self.metadata.clone()) };
        ranges.extend(columns);
        // One request for all, as the reader makes one of them.
        let (start, end) = ranges.iter().fold((u64::MAX, 0), |(s, e), r| (s.min(r.start), e.max(r.end)));
        let Ok(fetched) = self.source.fetch(std::slice::from_ref(&(start..end.max(start)))).await else {
            return Ok(self.metadata.clone());
        };
        let plausible = |r: &Range<u64>| {
            let length = usize::try_from(r.end - r.start).unwrap_or(usize::MAX);
            fetched.get_bytes(r.start, length).is_ok_and(|bytes| is_plausible(&bytes))
        };
        if ranges.is_empty() || !ranges.iter().all(plausible) {
            return Ok(self.metadata.clone());
        }
        let read = guarded(self.file(), async {
            let metadata = self.metadata.as_ref().clone();
            let mut reader = ParquetMetaDataReader::new_with_metadata(metadata).with_page_index_policy(PageIndexPolicy::Optional);
            reader.read_page_indexes(&fetched).and_then(|()| reader.finish()).map_err(|e| unreadable(self.file(), e))
        });
        // Without its indexes a file is read all the same.
        Ok(read.await.ok().filter(index_fits).map_or_else(|| self.metadata.clone(), Arc::new))
    }
}

/// How a file is read in the types that its writer had in mind. Timestamps of 96 bits are read as microseconds: as nanoseconds those
/// far from now would become others.
pub(crate) fn reader_metadata(metadata: Arc<ParquetMetaData>) -> Result<ArrowReaderMetadata, ParquetError> {
    let read = ArrowReaderMetadata::try_new(metadata.clone(), ArrowReaderOptions::new())?;
    let schema = metadata.file_metadata().schema_descr();
    let leaves = schema.columns().iter().enumerate();
    let wide: HashSet<usize> = leaves
        .filter(|(_, leaf)| leaf.physical_type() == PhysicalType::INT96 && leaf.path().parts().len() == 1)
        .map(|(i, _)| schema.get_column_root_idx(i))
        .collect();
    if wide.is_empty() {
        return Ok(read);
    }
    let micros = |(i, field): (usize, &Arc<Field>)| match field.data_type() {
        DataType::Timestamp(_, _) if wide.contains(&i) => {
            field.as_ref().clone().with_data_type(DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))
        }
        _ => field.as_ref().clone(),
    };
    let fields: Vec<Field> = read.schema().fields().iter().enumerate().map(micros).collect();
    let schema: SchemaRef = Arc::new(Schema::new_with_metadata(fields, read.schema().metadata().clone()));
    ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new().with_schema(schema))
}

/// The place of a top-level column.
pub(super) fn root_index(schema: &SchemaDescriptor, name: &str) -> Option<usize> {
    schema.root_schema().get_fields().iter().position(|f| f.name() == name)
}

/// The leaves of each top-level column.
pub(super) fn leaves_of_roots(schema: &SchemaDescriptor) -> Vec<Range<usize>> {
    let mut leaves = vec![0..0; schema.root_schema().get_fields().len()];
    for leaf in 0..schema.num_columns() {
        let of_root: &mut Range<usize> = &mut leaves[schema.get_column_root_idx(leaf)];
        *of_root = if of_root.start == of_root.end { leaf..leaf + 1 } else { of_root.start..leaf + 1 };
    }
    leaves
}

/// Where a chunk's bytes are. Of a footer that was checked.
pub(super) fn chunk_range(chunk: &ColumnChunkMetaData) -> Range<u64> {
    let (start, length) = chunk.byte_range();
    start..start + length
}

fn parse(footer: &[u8]) -> Result<ParquetMetaData, ParquetError> {
    if !is_plausible(footer) {
        return Err(ParquetError::General("the footer is cut or is none".to_owned()));
    }
    // What each page is encoded in is kept as it is, to be carried over.
    let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
    ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options))
}

/// The footer, with slips that are harmless mended; `None` if what it says cannot be.
fn checked(metadata: ParquetMetaData, footer_start: u64) -> Option<ParquetMetaData> {
    let columns = metadata.file_metadata().schema_descr().num_columns();
    let mut rows = 0_u64;
    let mut slips = false;
    for group in metadata.row_groups() {
        let of_group = u64::try_from(group.num_rows()).ok()?;
        rows = rows.checked_add(of_group)?;
        if group.num_columns() != columns {
            return None;
        }
        for chunk in group.columns() {
            slips |= !fits(chunk, of_group, footer_start)?;
        }
    }
    if rows > MAX_ROWS || u64::try_from(metadata.file_metadata().num_rows()).ok()? != rows {
        return None;
    }
    if !slips {
        return Some(metadata);
    }
    let mut builder = metadata.into_builder();
    let groups = builder.take_row_groups().into_iter().map(mended).collect::<Option<_>>()?;
    Some(builder.set_row_groups(groups).build())
}

/// Whether a chunk is as it should be, or has a slip; `None` if it cannot be.
fn fits(chunk: &ColumnChunkMetaData, rows: u64, footer_start: u64) -> Option<bool> {
    let data = u64::try_from(chunk.data_page_offset()).ok()?;
    let dictionary = chunk.dictionary_page_offset().and_then(|d| u64::try_from(d).ok()).filter(|d| *d > 0 && *d < data);
    let end = dictionary.unwrap_or(data).checked_add(u64::try_from(chunk.compressed_size()).ok()?)?;
    let descriptor = chunk.column_descr();
    let values = u64::try_from(chunk.num_values()).ok()?;
    let counts = descriptor.max_rep_level() > 0 || values == rows;
    let elsewhere = chunk.file_path().is_some_and(|p| !p.is_empty());
    if end > footer_start || !counts || elsewhere || chunk.uncompressed_size() < 0 {
        return None;
    }
    Some(dictionary.is_some() == chunk.dictionary_page_offset().is_some())
}

/// A row group without offsets of dictionaries that are not there: some writers say 0, or the place of the data.
fn mended(group: RowGroupMetaData) -> Option<RowGroupMetaData> {
    let mut builder = group.into_builder();
    let mend = |chunk: ColumnChunkMetaData| match chunk.dictionary_page_offset() {
        Some(d) if d <= 0 || d >= chunk.data_page_offset() => chunk.into_builder().set_dictionary_page_offset(None).build().ok(),
        _ => Some(chunk),
    };
    let chunks = builder.take_columns().into_iter().map(mend).collect::<Option<_>>()?;
    builder.set_column_metadata(chunks).build().ok()
}

/// Whether the indexes of pages lie within their chunks and ascend.
fn index_fits(metadata: &ParquetMetaData) -> bool {
    let Some(index) = metadata.offset_index() else { return false };
    index.len() == metadata.num_row_groups()
        && index.iter().zip(metadata.row_groups()).all(|(of_group, group)| {
            of_group.len() == group.num_columns()
                && of_group.iter().zip(group.columns()).all(|(of_chunk, chunk)| {
                    let within = chunk_range(chunk);
                    let mut end = within.start;
                    let mut row = -1;
                    of_chunk.page_locations().iter().all(|page| {
                        let Ok(start) = u64::try_from(page.offset) else { return false };
                        let Ok(bytes) = u64::try_from(page.compressed_page_size) else { return false };
                        let first = row < 0 && page.first_row_index == 0;
                        let ascends = start >= end && (first || (row >= 0 && page.first_row_index > row));
                        end = start.saturating_add(bytes);
                        row = page.first_row_index;
                        ascends && end <= within.end && row < group.num_rows()
                    }) && (row >= 0 || group.num_rows() == 0)
                })
        })
}
