//! Reads Parquet files row group by row group.
//!
//! A fault loses no row before it: a batch that cannot be read whole is read again in ever smaller ones. INT96 times are read
//! twice: in microseconds, which reach all dates, and in nanoseconds, which tell whether anything was cut off. Columns of UUIDs
//! are marked, as they are read as bare bytes.

use std::fs::File;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType, TimestampNanosecondType,
};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{LogicalType, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::Batch;
use super::batches::{MAX_BATCH_ROWS, ReadBatches};
use super::input::{Content, Input, ReadFault};
use crate::source::RangedFile;
use crate::source::decode::{EXTENSION_NAME, UUID_EXTENSION};

/// The most that is taken at once of a file that is read in ranges.
const READ_BYTES: usize = 64 << 10;

/// The rows of a Parquet file.
pub(super) struct ParquetRows {
    store: Stored,
    /// Read as the file says, but INT96 in microseconds.
    metadata: ArrowReaderMetadata,
    /// For the columns of INT96: read in nanoseconds.
    nanos: Option<(ArrowReaderMetadata, ProjectionMask)>,
    /// The schema of batches in which the columns of UUIDs are marked as such, if there are any.
    marked: Option<SchemaRef>,
    group: usize,
    /// Rows of the group that were given, now or before.
    offset: usize,
    /// The most rows of a batch; less than it could be behind a fault.
    most_rows: usize,
    open: Option<OpenGroup>,
}

struct OpenGroup {
    batch_rows: usize,
    rows: ParquetRecordBatchReader,
    /// The INT96 columns in microseconds and in nanoseconds.
    times: Option<[ParquetRecordBatchReader; 2]>,
    marked: Option<SchemaRef>,
}

impl ParquetRows {
    pub(super) fn open(input: Input, name: &str, from_record: u64) -> Result<Self, ReadFault> {
        let store = Stored::new(input, name)?;
        let (metadata, nanos) = store.guard(|| store.metadata())?;
        let marked = marked(&metadata);
        let mut rows = Self { store, metadata, nanos, marked, group: 0, offset: 0, most_rows: usize::MAX, open: None };
        let mut left = from_record;
        while left > 0 {
            let Some(group) = rows.group_rows() else {
                return Err(ReadFault::Content("the file has fewer records than were read of it before".to_owned()));
            };
            if left < group {
                rows.offset = usize::try_from(left).unwrap_or(usize::MAX);
                break;
            }
            left -= group;
            rows.group += 1;
        }
        Ok(rows)
    }

    fn group_rows(&self) -> Option<u64> {
        let groups = self.metadata.metadata().row_groups();
        groups.get(self.group).map(|g| u64::try_from(g.num_rows()).unwrap_or(0))
    }

    fn open_group(&self, batch_rows: usize) -> Result<OpenGroup, ParquetError> {
        let builder = |metadata: &ArrowReaderMetadata| {
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.store.clone(), metadata.clone())
                .with_row_groups(vec![self.group])
                .with_offset(self.offset)
                .with_batch_size(batch_rows)
        };
        let times = match &self.nanos {
            Some((nanos, mask)) => Some([
                builder(&self.metadata).with_projection(mask.clone()).build()?,
                builder(nanos).with_projection(mask.clone()).build()?,
            ]),
            None => None,
        };
        Ok(OpenGroup { batch_rows, rows: builder(&self.metadata).build()?, times, marked: self.marked.clone() })
    }
}

impl ReadBatches for ParquetRows {
    fn next_batch(&mut self, rows: u64) -> Result<Option<Batch>, ReadFault> {
        loop {
            if self.group_rows().is_none() {
                return Ok(None);
            }
            let mut open = match self.open.take() {
                Some(open) => open,
                None => {
                    let rows = usize::try_from(rows.min(MAX_BATCH_ROWS)).unwrap_or(1).min(self.most_rows).max(1);
                    self.store.guard(|| self.open_group(rows))?
                }
            };
            match self.store.guard(|| open.next()) {
                Ok(Some(batch)) => {
                    self.offset += batch.rows.num_rows();
                    self.open = Some(open);
                    return Ok(Some(batch));
                }
                Ok(None) => {
                    self.group += 1;
                    self.offset = 0;
                }
                // Of a batch with a fault in it the reader gives nothing: the rows before the fault are in one half of it.
                Err(ReadFault::Content(_)) if open.batch_rows > 1 => self.most_rows = open.batch_rows / 2,
                Err(fault) => return Err(fault),
            }
        }
    }

    fn row_bytes(&self) -> u64 {
        let group = self.metadata.metadata().row_groups().get(self.group);
        group.map_or(1, |g| u64::try_from(g.total_byte_size() / g.num_rows().max(1)).unwrap_or(1))
    }
}

impl OpenGroup {
    fn next(&mut self) -> Result<Option<Batch>, ParquetError> {
        let Some(rows) = self.rows.next() else { return Ok(None) };
        let rows = match &self.marked {
            Some(marked) => rows?.with_schema(Arc::clone(marked))?,
            None => rows?,
        };
        let mut batch = Batch::new(rows);
        if let Some([micros, nanos]) = &mut self.times {
            let (Some(micros), Some(nanos)) = (micros.next(), nanos.next()) else {
                return Err(ParquetError::General("columns of different lengths".to_owned()));
            };
            batch.too_fine = too_fine(&micros?, &nanos?)?;
        }
        Ok(Some(batch))
    }
}

/// Where INT96 times lose something when read in microseconds.
fn too_fine(micros: &RecordBatch, nanos: &RecordBatch) -> Result<Vec<(usize, String)>, ParquetError> {
    let mut found = Vec::new();
    for (at, field) in micros.schema_ref().fields().iter().enumerate() {
        let (micros, nanos) = (micros.column(at).as_ref(), nanos.column(at).as_ref());
        if matches!(field.data_type(), DataType::Timestamp(..)) {
            found.extend(finer_rows(micros, nanos).map(|row| (row, field.name().clone())));
        } else {
            nested_times(micros, nanos)?;
        }
    }
    found.sort();
    Ok(found)
}

/// Rows whose nanoseconds are not their microseconds times 1000. Nanoseconds wrap around for far dates, and so does the product.
fn finer_rows<'a>(micros: &'a dyn Array, nanos: &'a dyn Array) -> impl Iterator<Item = usize> + 'a {
    let micros = micros.as_primitive_opt::<TimestampMicrosecondType>();
    let nanos = nanos.as_primitive_opt::<TimestampNanosecondType>();
    micros.zip(nanos).into_iter().flat_map(|(micros, nanos)| {
        (0..micros.len()).filter(move |&row| micros.is_valid(row) && micros.value(row).wrapping_mul(1000) != nanos.value(row))
    })
}

/// Times inside nested values: a finer one cannot be told by its row and is the file's fault.
fn nested_times(micros: &dyn Array, nanos: &dyn Array) -> Result<(), ParquetError> {
    if finer_rows(micros, nanos).next().is_some() {
        return Err(ParquetError::General("a time finer than microseconds inside a nested value".to_owned()));
    }
    let (micros, nanos) = (micros.to_data(), nanos.to_data());
    for (micros, nanos) in micros.child_data().iter().zip(nanos.child_data()) {
        nested_times(&arrow::array::make_array(micros.clone()), &arrow::array::make_array(nanos.clone()))?;
    }
    Ok(())
}

/// The file's bytes, and whether reading them has failed.
#[derive(Clone)]
struct Stored {
    bytes: StoredBytes,
    failed: Arc<AtomicBool>,
}

#[derive(Clone)]
enum StoredBytes {
    File(Arc<File>),
    Memory(Bytes),
    Ranged(Arc<RangedFile>),
}

impl Stored {
    /// Parquet is read from its end: what comes as a stream or compressed is written to an unnamed temporary file first.
    fn new(input: Input, name: &str) -> Result<Self, ReadFault> {
        let plain = !Content::is_compressed(name);
        let bytes = match input {
            Input::File(file) if plain => StoredBytes::File(Arc::new(file)),
            Input::Bytes(bytes) if plain => StoredBytes::Memory(bytes),
            Input::Ranged(file) if plain => StoredBytes::Ranged(Arc::new(file)),
            input => {
                let mut file = tempfile::tempfile().map_err(ReadFault::Io)?;
                Content::open(input, name)?.copy_to(&mut file)?;
                StoredBytes::File(Arc::new(file))
            }
        };
        Ok(Self { bytes, failed: Arc::default() })
    }

    fn metadata(&self) -> Result<(ArrowReaderMetadata, Option<(ArrowReaderMetadata, ProjectionMask)>), ParquetError> {
        let metadata = ArrowReaderMetadata::load(self, ArrowReaderOptions::new())?;
        let descriptor = metadata.metadata().file_metadata().schema_descr();
        let int96: Vec<usize> =
            (0..descriptor.num_columns()).filter(|&i| descriptor.column(i).physical_type() == PhysicalType::INT96).collect();
        for (at, field) in metadata.schema().fields().iter().enumerate() {
            if metadata.schema().fields()[..at].iter().any(|f| f.name() == field.name()) {
                return Err(ParquetError::General(format!("two columns are named {:?}", field.name())));
            }
        }
        if let StoredBytes::Ranged(file) = &self.bytes {
            file.expect_readers(descriptor.num_columns() + 2 * int96.len());
        }
        if int96.is_empty() {
            return Ok((metadata, None));
        }
        let mask = ProjectionMask::leaves(descriptor, int96.iter().copied());
        let mut leaves = (0..descriptor.num_columns()).map(|i| int96.contains(&i));
        let micros: SchemaRef =
            Arc::new(Schema::new(metadata.schema().fields().iter().map(|f| in_micros(f, &mut leaves)).collect::<Vec<_>>()));
        let whole = ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), ArrowReaderOptions::new().with_schema(micros))?;
        Ok((whole, Some((metadata, mask))))
    }

    /// Runs a step of the Parquet reader; tells faults of the store from faults of the content, and a panic is one of the latter.
    fn guard<T>(&self, step: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ReadFault> {
        let outcome = catch_unwind(AssertUnwindSafe(step));
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) if self.failed.load(Ordering::Relaxed) => Err(ReadFault::Io(io::Error::other(error))),
            Ok(Err(error)) => Err(ReadFault::Content(format!("the Parquet file is broken: {error}"))),
            Err(_) => Err(ReadFault::Content("the Parquet file is broken: its reader stopped".to_owned())),
        }
    }

    fn note<T>(&self, outcome: Result<T, ParquetError>) -> Result<T, ParquetError> {
        if let Err(ParquetError::External(error)) = &outcome
            && error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() != io::ErrorKind::UnexpectedEof)
        {
            self.failed.store(true, Ordering::Relaxed);
        }
        outcome
    }
}

/// The schema with a mark on each column that the file says holds UUIDs; `None` if none does.
fn marked(metadata: &ArrowReaderMetadata) -> Option<SchemaRef> {
    let descriptor = metadata.metadata().file_metadata().schema_descr();
    let is_uuid = |name: &str| {
        let column = descriptor.root_schema().get_fields().iter().find(|f| f.name() == name);
        column.is_some_and(|c| c.get_basic_info().logical_type_ref() == Some(&LogicalType::Uuid))
    };
    let mut found = false;
    let mark = |field: &FieldRef| {
        if !is_uuid(field.name()) {
            return Arc::clone(field);
        }
        found = true;
        let mut marks = field.metadata().clone();
        marks.insert(EXTENSION_NAME.to_owned(), UUID_EXTENSION.to_owned());
        Arc::new(Field::clone(field).with_metadata(marks))
    };
    let fields: Vec<FieldRef> = metadata.schema().fields().iter().map(mark).collect();
    found.then(|| Arc::new(Schema::new_with_metadata(fields, metadata.schema().metadata().clone())))
}

/// The field with its INT96 leaves in microseconds; `leaves` tells which leaves of the schema, in order, are of INT96.
fn in_micros(field: &FieldRef, leaves: &mut impl Iterator<Item = bool>) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|f| in_micros(f, leaves)).collect()),
        DataType::List(item) => DataType::List(in_micros(item, leaves)),
        DataType::LargeList(item) => DataType::LargeList(in_micros(item, leaves)),
        DataType::Map(entries, sorted) => DataType::Map(in_micros(entries, leaves), *sorted),
        other => match (leaves.next(), other) {
            (Some(true), DataType::Timestamp(_, zone)) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            _ => other.clone(),
        },
    };
    Arc::new(Field::clone(field).with_data_type(data_type))
}

impl Length for Stored {
    fn len(&self) -> u64 {
        match &self.bytes {
            StoredBytes::File(file) => Length::len(file.as_ref()),
            StoredBytes::Memory(bytes) => bytes.len() as u64,
            StoredBytes::Ranged(file) => file.size(),
        }
    }
}

impl ChunkReader for Stored {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        match &self.bytes {
            StoredBytes::File(file) => {
                let reader = self.note(file.get_read(start))?;
                Ok(Box::new(super::input::Store { inner: reader, failed: Arc::clone(&self.failed) }))
            }
            StoredBytes::Memory(bytes) => Ok(Box::new(bytes.get_read(start)?)),
            StoredBytes::Ranged(file) => {
                let inner = ReadFrom { file: Arc::clone(file), at: start };
                Ok(Box::new(super::input::Store { inner, failed: Arc::clone(&self.failed) }))
            }
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        match &self.bytes {
            StoredBytes::File(file) => self.note(file.get_bytes(start, length)),
            StoredBytes::Memory(bytes) => bytes.get_bytes(start, length),
            StoredBytes::Ranged(file) => {
                let bytes = self.note(file.read_at(start, length).map_err(ParquetError::from))?;
                if bytes.len() == length {
                    return Ok(bytes);
                }
                Err(ParquetError::EOF(format!("{length} bytes are to stand at {start}, {} do", bytes.len())))
            }
        }
    }
}

/// A file of an object store from one place on.
struct ReadFrom {
    file: Arc<RangedFile>,
    at: u64,
}

impl Read for ReadFrom {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read_at(self.at, to.len().min(READ_BYTES))?;
        to[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}
