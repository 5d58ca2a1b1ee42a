//! Files by other writers through the splice writer, read back by those writers; and the data files of other projects' test tables.

use std::path::{Path as FsPath, PathBuf};
use std::process::Command;
use std::sync::Arc;

use alluvium_core::{AddedFile, Column, DataType, Durability, TableSpec};
use alluvium_lake::{
    ColumnEdit, Commit, DeltaLog, Edits, LedgerRule, Published, PutNew, SpliceFile, SpliceSettings, Spliced, SplicedFile, Store,
    arrow_schema,
};
use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::compute::{cast, concat_batches, interleave};
use arrow::datatypes::{DataType as ArrowType, Field, SchemaRef};
use bytes::Bytes;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;

use crate::common::{LIFE, key};

/// All bytes of a file.
fn bytes_of(file: &SplicedFile) -> Bytes {
    file.pieces.read().unwrap().into()
}

/// The table whose files `splice_files.py` and `splice_spark.py` make.
fn spec() -> TableSpec {
    let columns = [
        ("id", "string"),
        ("n", "long"),
        ("x", "double"),
        ("flag", "boolean"),
        ("day", "date"),
        ("at", "timestamp"),
        ("price", "decimal(10,2)"),
        ("raw", "binary"),
        ("tags", "array<string>"),
        ("place", "struct<city: string, zip: long>"),
        ("counts", "map<string, long>"),
        ("_original", "string"),
    ];
    table(columns.iter().map(|(name, data_type)| ((*name).to_owned(), data_type.parse().unwrap())).collect())
}

fn table(columns: Vec<(String, DataType)>) -> TableSpec {
    let columns = columns.into_iter().map(|(name, data_type)| Column { name, data_type, nullable: true });
    TableSpec { columns: columns.collect(), ..TableSpec::notifications() }
}

/// A table at `table` below `dir`, of the files that are there.
async fn adopt(dir: &FsPath, table: &str, spec: &TableSpec) -> DeltaLog {
    let store = Store::open(&dir.display().to_string(), dir, Durability::Process).unwrap();
    let log = DeltaLog::new(&store, Path::from(table));
    log.ensure(spec, &LIFE, "app", 0).await.unwrap();
    let mut adds = Vec::new();
    for found in store.list(&Path::from(table), None).await.unwrap() {
        let path = found.path.as_ref().strip_prefix(&format!("{table}/")).unwrap().to_owned();
        if path.ends_with(".parquet") {
            let stats = "{}".to_owned();
            adds.push(AddedFile { path, partition_values: Vec::new(), size: found.size, rows: 0, modified_ms: 0, stats });
        }
    }
    let commit = Commit {
        marks: &std::collections::BTreeMap::new(),
        changes: &[],
        rewrites: None,
        ledger: LedgerRule::None,
        app_id: "app",
        incarnation: &LIFE,
        key: key(1),
        adds: &adds,
        removes: &[],
        decides: true,
        resumed: false,
        now_ms: 0,
    };
    let Published::Committed { .. } = log.publish(&commit).await.unwrap() else { panic!("nobody else publishes") };
    log
}

/// The edits that the scripts know of.
fn scripted(rows: u64, less: bool) -> Edits {
    let every = |step: u64, rest: u64| (0..rows).filter(move |i| i % step == rest).collect::<Vec<u64>>();
    let (ids, numbers) = (every(5, 1), every(7, 2));
    let text = |make: &dyn Fn(&u64) -> String| -> ArrayRef { Arc::new(StringArray::from_iter_values(ids.iter().map(make))) };
    let edit = |column: &str, rows: &[u64], values| ColumnEdit { column: column.to_owned(), rows: rows.to_vec(), values };
    let negative: Int64Array = numbers.iter().map(|i| (i % 14 != 2).then(|| -i.cast_signed())).collect();
    Edits {
        deleted: if less { every(11, 3) } else { Vec::new() },
        columns: vec![
            edit("id", &ids, text(&|i| format!("new-{i}"))),
            edit("n", &numbers, Arc::new(negative)),
            edit("_original", &ids, text(&|i| format!("{{\"i\":{i}}}"))),
        ],
    }
}

/// Splices each file of `dir/files` into `dir/files/out`; the names of those that were encoded whole.
async fn splice_all(dir: &FsPath, spec: &TableSpec) -> (usize, Vec<String>) {
    let log = adopt(dir, "files", spec).await;
    let settings = SpliceSettings::new(spec, &arrow_schema(spec));
    let out = dir.join("files/out");
    std::fs::create_dir(&out).unwrap();
    let (mut fell_back, files) = (Vec::new(), log.standing_files(1).await.unwrap());
    for entry in &files {
        let file = SpliceFile::open(&log, entry).await.unwrap();
        let found = file.matching("id", &|id: &str| id == "id-21").await.unwrap();
        // By hand: i % 97 == 21, but for those that are null.
        let expected: Vec<u64> = (21..file.rows()).step_by(97).filter(|i| i % 13 != 0).collect();
        if !entry.name.contains("sorted") {
            assert_eq!(found, expected, "{}", entry.name);
        }
        let edits = scripted(file.rows(), entry.name.contains("less"));
        let spliced = file.splice(&edits, &settings, None).await.unwrap();
        let [made] = spliced.files.as_slice() else { panic!("{} became {} files", entry.name, spliced.files.len()) };
        std::fs::write(out.join(&entry.name), bytes_of(made)).unwrap();
        if spliced.fell_back {
            fell_back.push(entry.name.clone());
        }
    }
    (files.len(), fell_back)
}

fn script(name: &str) -> PathBuf {
    FsPath::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/python").join(name)
}

fn run(command: &mut Command) -> String {
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_by_pyarrow_and_duckdb_become_what_both_see_as_the_naive_rewrite() {
    let Some(python) = std::env::var_os("ALLUVIUM_TEST_PYTHON") else {
        eprintln!("skipped: files by pyarrow and DuckDB, because ALLUVIUM_TEST_PYTHON is not set (.ci/run sets it)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let made = run(Command::new(&python).arg(script("splice_files.py")).arg("make").arg(&files));
    let (count, fell_back) = splice_all(dir.path(), &spec()).await;
    assert_eq!(count, made.lines().count());
    // Rows cannot go from among timestamps of 96 bits without these being written as others.
    assert_eq!(fell_back, ["pyarrow-96-bits-less.parquet"]);
    let told = run(Command::new(&python).arg(script("splice_files.py")).arg("check").arg(&files));
    assert_eq!(told, format!("{count} files, 0 differences\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_by_spark_become_what_spark_sees_as_the_naive_rewrite() {
    let found = std::env::var_os("ALLUVIUM_TEST_SPARK_PYTHON").zip(std::env::var_os("ALLUVIUM_TEST_SPARK_JARS"));
    let Some((python, jars)) = found else {
        eprintln!(
            "skipped: files by Spark, because ALLUVIUM_TEST_SPARK_PYTHON and ALLUVIUM_TEST_SPARK_JARS are not set (.ci/run sets them)"
        );
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let spark = |verb: &str| run(Command::new(&python).arg(script("splice_spark.py")).arg(&jars).arg(verb).arg(&files));
    let made = spark("make");
    let mut columns: Vec<(String, DataType)> = spec().columns.into_iter().map(|c| (c.name, c.data_type)).collect();
    columns.push(("i".to_owned(), DataType::Long));
    let (count, fell_back) = splice_all(dir.path(), &table(columns)).await;
    assert_eq!(count, made.lines().count());
    assert_eq!(fell_back, ["96-bits-less.parquet"]);
    let told = spark("check");
    assert!(told.ends_with(&format!("{count} files, 0 differences\n")), "{told}");
}

/// The type of ours that is Arrow's, if there is one.
fn ours(arrow: &ArrowType) -> Option<DataType> {
    let text = match arrow {
        ArrowType::Utf8 => "string".to_owned(),
        ArrowType::Int64 => "long".to_owned(),
        ArrowType::Int32 => "integer".to_owned(),
        ArrowType::Int16 => "short".to_owned(),
        ArrowType::Int8 => "byte".to_owned(),
        ArrowType::Float64 => "double".to_owned(),
        ArrowType::Float32 => "float".to_owned(),
        ArrowType::Boolean => "boolean".to_owned(),
        ArrowType::Date32 => "date".to_owned(),
        ArrowType::Binary => "binary".to_owned(),
        ArrowType::Decimal128(p, s) => format!("decimal({p},{s})"),
        _ => return None,
    };
    text.parse().ok()
}

/// All rows of files in those of a table's columns that they have, by Parquet's own reader.
fn read(files: &[&Bytes], schema: &SchemaRef) -> Option<RecordBatch> {
    let mut batches: Vec<RecordBatch> = Vec::new();
    for file in files {
        let reader = ParquetRecordBatchReaderBuilder::try_new((*file).clone()).unwrap().build().unwrap();
        for batch in reader {
            let batch = batch.unwrap();
            let column = |f: &Arc<Field>| {
                let column = batch.column_by_name(f.name())?;
                let column = cast(column, f.data_type()).unwrap_or_else(|_| column.clone());
                Some((f.name().clone(), column, true))
            };
            let columns = schema.fields().iter().filter_map(column);
            batches.push(RecordBatch::try_from_iter_with_nullable(columns).ok()?);
        }
    }
    concat_batches(&batches.first()?.schema(), &batches).ok()
}

/// Takes a row away and changes another in each file of a table; how many files were spliced, how many of
/// them encoded whole, and how many values compared.
async fn splice_table(directory: &FsPath) -> Option<(usize, usize, usize)> {
    let (parent, name) = (directory.parent()?, directory.file_name()?.to_str()?);
    let store = Store::open_to_read(&parent.display().to_string(), parent, Durability::Process).ok()?;
    let log = DeltaLog::new(&store, Path::from(name));
    let standing = log.standing().await.ok()??;
    let columns = standing.schema.fields().iter().filter_map(|f| Some((f.name().clone(), ours(f.data_type())?)));
    let mut spec = table(columns.collect());
    spec.partition_by = standing.partition_columns.clone();
    let settings = SpliceSettings::new(&spec, &standing.schema);
    let (mut count, mut fell_back, mut values) = (0, 0, 0);
    for entry in log.standing_files(standing.version).await.ok()? {
        let Ok(file) = SpliceFile::open(&log, &entry).await else { continue };
        let at = format!("{name}/{}", entry.name);
        let changed = spec.columns.iter().find(|c| {
            c.data_type == DataType::String && !spec.partition_by.contains(&c.name) && file.has_column(&c.name) && file.rows() > 1
        });
        let new: ArrayRef = Arc::new(StringArray::from(vec!["changed"]));
        let edit = |c: &Column| ColumnEdit { column: c.name.clone(), rows: vec![file.rows() - 1], values: new.clone() };
        let edits = Edits { deleted: vec![0], columns: changed.map(edit).into_iter().collect() };
        let edits = if file.rows() == 0 { Edits::default() } else { edits };
        let spliced: Spliced = match file.splice(&edits, &settings, None).await {
            Ok(spliced) => spliced,
            Err(e) => panic!("{at}: {}", e.chain_text()),
        };
        let source =
            store.get(&Path::from(name).parts().chain(Path::parse(&entry.name).unwrap().parts()).collect()).await.unwrap()?;
        let before = read(&[&source], &standing.schema);
        let made: Vec<Bytes> = spliced.files.iter().map(bytes_of).collect();
        let after = read(&made.iter().collect::<Vec<_>>(), &standing.schema);
        let gone = |row: &u64| edits.deleted.contains(row) || file.deleted_rows().contains(row);
        let kept: Vec<u64> = (0..file.rows()).filter(|row| !gone(row)).collect();
        if let (Some(before), Some(after)) = (before, after) {
            for (field, new) in after.schema().fields().iter().zip(after.columns()) {
                let Some(old) = before.column_by_name(field.name()) else {
                    assert_eq!(new.null_count(), kept.len(), "{at}: {} was not there", field.name());
                    continue;
                };
                let edit = edits.columns.iter().find(|e| e.column == *field.name());
                let row = |r: &u64| if edit.is_some_and(|e| e.rows[0] == *r) { (1, 0) } else { (0, *r as usize) };
                let mut sources: Vec<&dyn Array> = vec![old.as_ref()];
                sources.extend(edit.map(|e| e.values.as_ref()));
                let expected = interleave(&sources, &kept.iter().map(row).collect::<Vec<_>>()).unwrap();
                assert_eq!(&expected, new, "{at}: {}", field.name());
            }
            assert!(after.num_columns() >= before.num_columns(), "{at}");
            values += after.num_columns() * after.num_rows();
        }
        assert_eq!(spliced.files.iter().map(|f| f.rows).sum::<u64>(), kept.len() as u64, "{at}");
        count += 1;
        fell_back += usize::from(spliced.fell_back);
    }
    Some((count, fell_back, values))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_other_projects_test_tables_become_the_naive_rewrite() {
    let Some(data) = std::env::var_os("ALLUVIUM_TEST_DATA").map(PathBuf::from) else {
        eprintln!("skipped: test tables of other projects, because ALLUVIUM_TEST_DATA is not set");
        return;
    };
    let (mut tables, mut files, mut fell_back, mut values) = (0, 0, 0, 0);
    for of in ["delta-rs-tables", "delta-kernel-rs-tables/data", "delta-kernel-rs-tables/golden_data"] {
        let Ok(entries) = std::fs::read_dir(data.join(of)) else { continue };
        for entry in entries {
            let directory = entry.unwrap().path();
            // A table is here, or one below.
            let below = std::fs::read_dir(&directory).into_iter().flatten().map(|e| e.unwrap().path());
            for table in below.chain([directory.clone()]).filter(|d| d.join("_delta_log").is_dir()) {
                if let Some((count, of_them, compared)) = splice_table(&table).await {
                    (tables, files, fell_back, values) = (tables + 1, files + count, fell_back + of_them, values + compared);
                }
            }
        }
    }
    eprintln!("{files} files of {tables} tables, {fell_back} of them encoded whole; {values} values compared");
    assert!(files > 50 && values > 1000, "{files} files of {tables} tables, {values} values");
}

/// A file that is not read whole: 60,000 rows in three row groups, of which the second changes.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_copied_on_the_disk_is_what_would_be_copied_through_memory() {
    let spec = table(vec![("id".to_owned(), DataType::String), ("body".to_owned(), DataType::String)]);
    let schema = arrow_schema(&spec);
    let rows = 60_000_u64;
    let ids = StringArray::from_iter_values((0..rows).map(|i| format!("id-{i}")));
    let bodies = StringArray::from_iter_values((0..rows).map(|i| format!("{:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(ids) as ArrayRef, Arc::new(bodies)]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(20_000)).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema.clone(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    assert!(bytes.len() > 1 << 20, "{} bytes are read whole", bytes.len());

    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("t")).unwrap();
    std::fs::write(dir.path().join("t/a.parquet"), &bytes).unwrap();
    let log = adopt(dir.path(), "t", &spec).await;
    let entry = log.standing_files(1).await.unwrap().remove(0);
    let memory = Store::over(Arc::new(object_store::memory::InMemory::new()));
    assert_eq!(memory.put_new(&Path::from("t/a.parquet"), bytes.clone().into()).await.unwrap(), PutNew::Created);

    let new: ArrayRef = Arc::new(StringArray::from(vec!["new", "newer"]));
    let edits = Edits {
        deleted: Vec::new(),
        columns: vec![ColumnEdit { column: "id".to_owned(), rows: vec![20_001, 39_999], values: new }],
    };
    let settings = SpliceSettings::new(&spec, &schema);
    let mut made = Vec::new();
    for log in [log.clone(), DeltaLog::new(&memory, Path::from("t"))] {
        let file = SpliceFile::open(&log, &entry).await.unwrap();
        let mut spliced = file.splice(&edits, &settings, None).await.unwrap();
        assert!(!spliced.fell_back);
        made.push((spliced.files.remove(0).pieces, file.bytes_read()));
    }
    let ((on_disk, read), (in_memory, _)) = (made.remove(0), made.remove(0));
    assert!(read * 3 < bytes.len() as u64, "{read} of {} bytes were read", bytes.len());
    let wanted = Bytes::from(in_memory.read().unwrap());
    assert_eq!(on_disk.len(), wanted.len() as u64);

    // Copied by the kernel; read and put where something stands between the disk and who puts; and in another store.
    let disk = Store::open(&dir.path().display().to_string(), dir.path(), Durability::Disk).unwrap();
    let stores = [("t/new.parquet", disk.clone()), ("t/layered.parquet", disk.layered(|below| below)), ("t/b.parquet", memory)];
    for (name, store) in stores {
        let path = Path::from(name);
        assert_eq!(store.stage_own(&path, on_disk.clone()).await.unwrap(), PutNew::Created, "{name}");
        assert_eq!(store.get(&path).await.unwrap().unwrap(), wanted, "{name}");
    }
    assert_eq!(disk.stage_own(&Path::from("t/a.parquet"), on_disk).await.unwrap(), PutNew::Exists);
    assert_eq!(std::fs::read(dir.path().join("t/a.parquet")).unwrap(), bytes, "what stands there stays");
}
