//! Tables of all types, files of them, and the naive rewrite.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use alluvium_core::{Column, DataType, Durability, TableSpec};
use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, ListArray,
    MapArray, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat_batches, interleave};
use arrow::datatypes::{DataType as ArrowType, Field, Fields, Schema, SchemaRef};
use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::ChunkReader;
use tempfile::TempDir;

use super::super::file::chunk_range;
use super::super::{Edits, SpliceFile, SpliceSettings, Spliced, SplicedFile};
use crate::log::{ChangedFile, DeltaLog};
use crate::schema::arrow_schema;
use crate::store::Store;

/// All bytes of a file.
pub(super) fn bytes_of(file: &SplicedFile) -> Bytes {
    file.pieces.read().unwrap().into()
}

/// Numbers that look random, the same from the same seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }

    pub(super) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// Column names and types of the table of these tests.
pub(super) const COLUMNS: [(&str, &str); 15] = [
    ("org", "string"),
    ("id", "string"),
    ("number", "long"),
    ("small", "integer"),
    ("ratio", "double"),
    ("flag", "boolean"),
    ("day", "date"),
    ("at", "timestamp"),
    ("price", "decimal(10,2)"),
    ("huge", "decimal(30,3)"),
    ("raw", "binary"),
    ("tags", "array<string>"),
    ("props", "map<string, long>"),
    ("nested", "struct<a: string, b: struct<c: double>>"),
    ("_original", "string"),
];

/// The table of these tests; `org` is never null.
pub(super) fn spec() -> TableSpec {
    let columns = COLUMNS.iter().map(|(name, data_type)| Column {
        name: (*name).to_owned(),
        data_type: data_type.parse::<DataType>().unwrap(),
        nullable: *name != "org",
    });
    TableSpec { columns: columns.collect(), target_file_bytes: 64 << 20, ..TableSpec::notifications() }
}

pub(super) fn settings(spec: &TableSpec) -> SpliceSettings {
    SpliceSettings::new(spec, &arrow_schema(spec))
}

/// Values of a column's type: some null, some alike.
pub(super) fn values(field: &Field, rows: usize, dice: &mut Dice) -> ArrayRef {
    let rare = field.name() == "_original";
    let mut null = |dice: &mut Dice| field.is_nullable() && if rare { !dice.one_in(10) } else { dice.one_in(6) };
    of_type(field.data_type(), rows, dice, &mut null)
}

fn of_type(data_type: &ArrowType, rows: usize, dice: &mut Dice, null: &mut dyn FnMut(&mut Dice) -> bool) -> ArrayRef {
    let text = |dice: &mut Dice| match dice.below(4) {
        0 => String::new(),
        1 => format!("ä{}", dice.below(1 << 40)),
        _ => format!("v{}", dice.below(7)),
    };
    macro_rules! make {
        ($array:ty, $value:expr) => {{
            let made: Vec<Option<_>> = (0..rows).map(|_| if null(dice) { None } else { Some($value) }).collect();
            <$array>::from_iter(made)
        }};
    }
    match data_type {
        ArrowType::Utf8 => Arc::new(make!(StringArray, text(dice))),
        ArrowType::Binary => Arc::new(make!(BinaryArray, (0..dice.below(5)).map(|b| (b * 51) as u8).collect::<Vec<u8>>())),
        ArrowType::Int64 => Arc::new(make!(Int64Array, dice.below(40).cast_signed() - 20)),
        ArrowType::Int32 => Arc::new(make!(Int32Array, (dice.below(1 << 31) as i32) - 5)),
        ArrowType::Boolean => Arc::new(make!(BooleanArray, dice.one_in(2))),
        ArrowType::Date32 => Arc::new(make!(Date32Array, dice.below(30_000) as i32 - 10_000)),
        ArrowType::Float64 => Arc::new(make!(
            Float64Array,
            match dice.below(20) {
                0 => f64::NAN,
                1 => -0.0,
                n => n as f64 / 3.0,
            }
        )),
        ArrowType::Timestamp(..) => {
            let made = make!(TimestampMicrosecondArray, dice.below(1 << 50).cast_signed() / 1000 * 1000);
            Arc::new(made.with_timezone("UTC"))
        }
        ArrowType::Decimal128(p, s) => {
            let made = make!(Decimal128Array, i128::from(dice.below(1 << 30).cast_signed() - (1 << 20)));
            Arc::new(made.with_precision_and_scale(*p, *s).unwrap())
        }
        ArrowType::Struct(fields) => {
            let nulls: NullBuffer = (0..rows).map(|_| !null(dice)).collect();
            let parts = fields.iter().map(|f| of_type(f.data_type(), rows, dice, null)).collect();
            Arc::new(StructArray::new(fields.clone(), parts, Some(nulls)))
        }
        ArrowType::List(element) => {
            let (offsets, nulls) = lengths(rows, dice, null);
            let inner = of_type(element.data_type(), *offsets.last().unwrap() as usize, dice, null);
            Arc::new(ListArray::new(element.clone(), offsets, inner, Some(nulls)))
        }
        ArrowType::Map(entries, _) => {
            let (offsets, nulls) = lengths(rows, dice, null);
            let inner = *offsets.last().unwrap() as usize;
            let ArrowType::Struct(parts) = entries.data_type() else { unreachable!("a map has entries") };
            let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..inner).map(|i| format!("k{i}"))));
            let entry = StructArray::new(parts.clone(), vec![keys, of_type(parts[1].data_type(), inner, dice, null)], None);
            Arc::new(MapArray::new(entries.clone(), offsets, entry, Some(nulls), false))
        }
        other => unreachable!("{other} is not a type of the table"),
    }
}

fn lengths(rows: usize, dice: &mut Dice, null: &mut dyn FnMut(&mut Dice) -> bool) -> (OffsetBuffer<i32>, NullBuffer) {
    let nulls: Vec<bool> = (0..rows).map(|_| !null(dice)).collect();
    let lengths: Vec<usize> = nulls.iter().map(|there| if *there { dice.below(4) as usize } else { 0 }).collect();
    (OffsetBuffer::from_lengths(lengths), NullBuffer::from(nulls))
}

/// Rows of the table.
pub(super) fn rows(schema: &SchemaRef, count: usize, dice: &mut Dice) -> RecordBatch {
    let columns = schema.fields().iter().map(|f| values(f, count, dice)).collect();
    RecordBatch::try_new(schema.clone(), columns).unwrap()
}

/// A file of `rows`, as they are.
pub(super) fn parquet(rows: &RecordBatch, properties: WriterProperties) -> Bytes {
    let mut made = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut made, rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
    made.into()
}

/// How a file is opened.
#[derive(Debug, Clone, Copy)]
pub(super) enum Held {
    /// All of it is in memory.
    Whole,
    /// So many bytes of its end; the rest is read when it is needed.
    End(u64),
    /// So many bytes of its end; what is copied is copied on the disk.
    OnDisk(u64),
}

/// An opened file, and where it is.
#[derive(Debug)]
pub(super) struct Opened {
    file: SpliceFile,
    _directory: Option<TempDir>,
}

impl Deref for Opened {
    type Target = SpliceFile;

    fn deref(&self) -> &SpliceFile {
        &self.file
    }
}

/// The file, opened from a store that holds nothing else.
pub(super) async fn open(bytes: &Bytes) -> alluvium_core::Result<Opened> {
    open_as(bytes, Held::Whole, |_| {}).await
}

/// The same, as a log entry that `entry` changes names it.
pub(super) async fn open_as(bytes: &Bytes, held: Held, entry: impl FnOnce(&mut ChangedFile)) -> alluvium_core::Result<Opened> {
    let (store, directory, whole_file_bytes) = match held {
        Held::Whole => (Store::over(Arc::new(InMemory::new())), None, u64::MAX),
        Held::End(bytes) => (Store::over(Arc::new(InMemory::new())), None, bytes),
        Held::OnDisk(bytes) => {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            (Store::open(path.to_str().unwrap(), path, Durability::Process).unwrap(), Some(directory), bytes)
        }
    };
    let _new = store.put_new(&Path::from("t/a.parquet"), bytes.clone()).await.unwrap();
    let log = DeltaLog::new(&store, Path::from("t"));
    let mut file = ChangedFile {
        name: "a.parquet".to_owned(),
        path: Path::from("t/a.parquet"),
        size: Some(bytes.len() as u64),
        rows: None,
        modified_ms: 0,
        partition_values: Arc::new(HashMap::new()),
        deleted: None,
    };
    entry(&mut file);
    let file = SpliceFile::open_holding(&log, &file, whole_file_bytes).await?;
    Ok(Opened { file, _directory: directory })
}

/// All rows of a file in the columns of `schema`, by Parquet's own reader: what is missing is null.
pub(super) fn read(bytes: &Bytes, schema: &SchemaRef) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap().build().unwrap();
    let nullable: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    let schema = Arc::new(Schema::new(nullable));
    let batches: Vec<RecordBatch> = reader
        .map(|batch| {
            let batch = batch.unwrap();
            let column = |f: &Arc<Field>| match batch.column_by_name(f.name()) {
                Some(column) => cast(column, f.data_type()).unwrap(),
                None => arrow::array::new_null_array(f.data_type(), batch.num_rows()),
            };
            RecordBatch::try_new(schema.clone(), schema.fields().iter().map(column).collect()).unwrap()
        })
        .collect();
    concat_batches(&schema, &batches).unwrap()
}

/// What `rows` become with `edits`, row by row.
pub(super) fn naive(rows: &RecordBatch, edits: &Edits) -> RecordBatch {
    let kept: Vec<usize> = (0..rows.num_rows()).filter(|row| !edits.deleted.contains(&(*row as u64))).collect();
    let schema = rows.schema();
    let columns = schema.fields().iter().zip(rows.columns()).map(|(field, old)| {
        let edit = edits.columns.iter().find(|e| e.column == *field.name());
        let mut sources: Vec<&dyn Array> = vec![old.as_ref()];
        sources.extend(edit.map(|e| e.values.as_ref()));
        let at = |row: &usize| match edit.and_then(|e| e.rows.iter().position(|r| *r == *row as u64)) {
            Some(new) => (1, new),
            None => (0, *row),
        };
        interleave(&sources, &kept.iter().map(at).collect::<Vec<_>>()).unwrap()
    });
    RecordBatch::try_new(schema.clone(), columns.collect()).unwrap()
}

/// All rows of what a file became.
pub(super) fn read_all(spliced: &Spliced, schema: &SchemaRef) -> RecordBatch {
    let batches: Vec<RecordBatch> = spliced.files.iter().map(|f| read(&bytes_of(f), schema)).collect();
    for (file, batch) in spliced.files.iter().zip(&batches) {
        assert_eq!(file.rows, batch.num_rows() as u64);
    }
    let nullable: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    concat_batches(&Arc::new(Schema::new(Fields::from(nullable))), &batches).unwrap()
}

/// The footer of a file.
pub(super) fn footer(bytes: &Bytes) -> Arc<ParquetMetaData> {
    ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap().metadata().clone()
}

/// The bytes of each chunk: by row group, then by the path of the leaf.
pub(super) fn chunks(bytes: &Bytes) -> Vec<HashMap<String, Bytes>> {
    let metadata = footer(bytes);
    let of_chunk = |chunk: &parquet::file::metadata::ColumnChunkMetaData| {
        let range = chunk_range(chunk);
        (chunk.column_path().string(), bytes.get_bytes(range.start, (range.end - range.start) as usize).unwrap())
    };
    metadata.row_groups().iter().map(|g| g.columns().iter().map(of_chunk).collect()).collect()
}
