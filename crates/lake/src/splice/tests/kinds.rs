//! Files of particular kinds, each with what must become of it worked out by hand.

use std::collections::HashMap;
use std::sync::Arc;

use alluvium_core::{Column, DataType, TableSpec};
use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Float64Array, Int32Array, Int64Array, LargeStringArray, ListArray, RecordBatch,
    StringArray, TimestampMicrosecondArray, TimestampMillisecondArray,
};
use arrow::datatypes::{Field, Int32Type, Int64Type, Schema, SchemaRef, TimestampMicrosecondType};
use bytes::Bytes;
use deltalake_core::kernel::{DeletionVectorDescriptor, StorageType};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Type;
use parquet::data_type::{ByteArray, ByteArrayType, Int96, Int96Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};

use super::super::{ColumnEdit, Edits, SpliceSettings, Spliced, Wanted};
use super::support::{Held, bytes_of, chunks, footer, open, open_as, parquet, settings};
use crate::log::DeletedRows;
use crate::schema::arrow_schema;

/// A table of these columns, each of which may be null.
fn table(columns: &[(&str, &str)]) -> TableSpec {
    let column = |(name, data_type): &(&str, &str)| Column {
        name: (*name).to_owned(),
        data_type: data_type.parse::<DataType>().unwrap(),
        nullable: true,
    };
    TableSpec { columns: columns.iter().map(column).collect(), ..TableSpec::notifications() }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap()
}

fn plain(columns: Vec<(&str, ArrayRef)>) -> Bytes {
    parquet(&batch(columns), WriterProperties::default())
}

fn text(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(values.iter().copied().collect::<StringArray>())
}

fn edit(column: &str, rows: &[u64], values: ArrayRef) -> Edits {
    Edits { deleted: Vec::new(), columns: vec![ColumnEdit { column: column.to_owned(), rows: rows.to_vec(), values }] }
}

async fn spliced(file: &Bytes, edits: &Edits, spec: &TableSpec) -> Spliced {
    open(file).await.unwrap().splice(edits, &settings(spec), None).await.unwrap()
}

/// A column of what a file became, as Parquet's reader gives it.
fn column(spliced: &Spliced, name: &str) -> ArrayRef {
    let [file] = spliced.files.as_slice() else { panic!("{} files", spliced.files.len()) };
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(bytes_of(file)).unwrap().build().unwrap();
    reader.next().unwrap().unwrap().column_by_name(name).unwrap().clone()
}

fn physical(spliced: &Spliced, name: &str) -> Type {
    let metadata = footer(&bytes_of(&spliced.files[0]));
    let columns = metadata.file_metadata().schema_descr().columns();
    columns.iter().find(|c| c.name() == name).unwrap().physical_type()
}

#[tokio::test]
async fn a_narrower_type_stays_where_the_new_value_fits_it_and_else_the_file_takes_the_tables_types() {
    let spec = table(&[("id", "long"), ("at", "timestamp"), ("other", "long")]);
    let file = plain(vec![
        ("id", Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]))),
        ("at", Arc::new(TimestampMillisecondArray::from(vec![1, 2, 3]).with_timezone("UTC"))),
        ("other", Arc::new(Int32Array::from(vec![7, 8, 9]))),
    ]);
    let fits = spliced(&file, &edit("id", &[1, 2], Arc::new(Int64Array::from(vec![Some(-5), None]))), &spec).await;
    assert_eq!((fits.fell_back, physical(&fits, "id")), (false, Type::INT32));
    assert_eq!(column(&fits, "id").as_primitive::<Int32Type>().iter().collect::<Vec<_>>(), [Some(1), Some(-5), None]);
    let wide = spliced(&file, &edit("id", &[1], Arc::new(Int64Array::from(vec![1 << 40]))), &spec).await;
    assert_eq!((wide.fell_back, physical(&wide, "id"), wide.bytes_copied), (true, Type::INT64, 0));
    assert_eq!(column(&wide, "id").as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(1), Some(1 << 40), Some(3)]);
    assert_eq!(column(&wide, "other").as_primitive::<Int64Type>().values(), &[7, 8, 9]);
    // Whole milliseconds fit, finer times do not.
    let time = |micros: i64| -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC")) };
    let whole = spliced(&file, &edit("at", &[0], time(5000)), &spec).await;
    assert_eq!((whole.fell_back, whole.bytes_copied > 0), (false, true));
    let finer = spliced(&file, &edit("at", &[0], time(5001)), &spec).await;
    assert!(finer.fell_back);
    assert_eq!(column(&finer, "at").as_primitive::<TimestampMicrosecondType>().values(), &[5001, 2000, 3000]);
}

/// A file with a 96-bit timestamp, of which writers of old make many: noon of some days, as Julian days.
fn int96(days: &[u32]) -> Bytes {
    let schema = Arc::new(parse_message_type("message m { optional int96 at; required binary id (UTF8); }").unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut at = group.next_column().unwrap().unwrap();
    let noon: u64 = 12 * 3600 * 1_000_000_000;
    let value = |day: &u32| {
        let mut value = Int96::new();
        value.set_data(noon as u32, (noon >> 32) as u32, *day);
        value
    };
    let values: Vec<Int96> = days.iter().map(value).collect();
    at.typed::<Int96Type>().write_batch(&values, Some(&vec![1; days.len()]), None).unwrap();
    at.close().unwrap();
    let mut id = group.next_column().unwrap().unwrap();
    let ids: Vec<ByteArray> = (0..days.len()).map(|i| ByteArray::from(format!("id{i}").into_bytes())).collect();
    id.typed::<ByteArrayType>().write_batch(&ids, None, None).unwrap();
    id.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap().into()
}

#[tokio::test]
async fn timestamps_of_96_bits_come_through_byte_for_byte_and_those_far_from_now_keep_their_day() {
    let spec = table(&[("id", "string"), ("at", "timestamp")]);
    // 2440588 is 1970-01-01. 5373484 is 9999-12-31, which nanoseconds of 64 bits cannot hold; 1721426 is 0001-01-01.
    let file = int96(&[2_440_588, 5_373_484, 1_721_426]);
    let ids = edit("id", &[1], text(&[Some("other")]));
    let copied = spliced(&file, &ids, &spec).await;
    assert!(!copied.fell_back);
    assert_eq!(chunks(&bytes_of(&copied.files[0]))[0]["at"], chunks(&file)[0]["at"]);
    assert_eq!(column(&copied, "id").as_string::<i32>().iter().collect::<Vec<_>>(), [Some("id0"), Some("other"), Some("id2")]);
    // By hand: days from 1970 times microseconds of a day, and half a day.
    let noon = |day: i64| (day - 2_440_588) * 86_400_000_000 + 43_200_000_000;
    let opened = open(&file).await.unwrap();
    let read = opened.rows_at(&arrow_schema(&spec), &[1, 2]).await.unwrap();
    let read = read.column_by_name("at").unwrap().clone();
    assert_eq!(read.as_primitive::<TimestampMicrosecondType>().values(), &[noon(5_373_484), noon(1_721_426)]);
    // A row that goes takes the row group with it, and its timestamps cannot be written as they were.
    let less = spliced(&file, &Edits { deleted: vec![0], ..Edits::default() }, &spec).await;
    assert_eq!((less.fell_back, physical(&less, "at")), (true, Type::INT64));
    assert_eq!(column(&less, "at").as_primitive::<TimestampMicrosecondType>().values(), &[noon(5_373_484), noon(1_721_426)]);
    let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![noon(2_440_589)]).with_timezone("UTC"));
    let changed = spliced(&file, &edit("at", &[1], time), &spec).await;
    assert!(changed.fell_back);
    assert_eq!(
        column(&changed, "at").as_primitive::<TimestampMicrosecondType>().values(),
        &[noon(2_440_588), noon(2_440_589), noon(1_721_426)]
    );
}

#[tokio::test]
async fn null_into_a_column_that_is_never_null_in_the_file_makes_the_file_anew() {
    let spec = table(&[("id", "string"), ("n", "long")]);
    let required = Arc::new(Schema::new(vec![Field::new("id", arrow::datatypes::DataType::Utf8, false)]));
    let ids = RecordBatch::try_new(required, vec![Arc::new(StringArray::from(vec!["a", "b"]))]).unwrap();
    let file = parquet(&ids, WriterProperties::default());
    let changed = spliced(&file, &edit("id", &[0], text(&[Some("c")])), &spec).await;
    assert!(!changed.fell_back);
    let nulled = spliced(&file, &edit("id", &[0], text(&[None])), &spec).await;
    assert!(nulled.fell_back);
    assert_eq!(column(&nulled, "id").as_string::<i32>().iter().collect::<Vec<_>>(), [None, Some("b")]);
}

#[tokio::test]
async fn a_column_the_file_lacks_is_added_null_elsewhere_and_what_the_writer_said_of_itself_stays_true() {
    let spec = table(&[("id", "string"), ("_original", "string")]);
    let dictionary: DictionaryArray<Int32Type> = vec!["a", "b", "a", "c"].into_iter().collect();
    let properties = WriterProperties::builder()
        .set_created_by("another writer 1.0".to_owned())
        .set_max_row_group_row_count(Some(2))
        .set_key_value_metadata(Some(vec![KeyValue::new("note".to_owned(), "kept".to_owned())]))
        .build();
    let file = parquet(&batch(vec![("id", Arc::new(dictionary))]), properties);
    let original = edit("_original", &[3], text(&[Some("{}")]));
    let added = spliced(&file, &original, &spec).await;
    assert!(!added.fell_back);
    let metadata = footer(&bytes_of(&added.files[0]));
    assert_eq!(metadata.file_metadata().created_by(), Some("another writer 1.0"));
    let said: HashMap<&str, Option<&str>> =
        metadata.file_metadata().key_value_metadata().unwrap().iter().map(|kv| (kv.key.as_str(), kv.value.as_deref())).collect();
    assert_eq!(said["note"], Some("kept"));
    // Arrow's schema has the new column, and still says that the other was a dictionary.
    let read = ParquetRecordBatchReaderBuilder::try_new(bytes_of(&added.files[0])).unwrap();
    let types: Vec<String> = read.schema().fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect();
    assert_eq!(types, ["id Dictionary(Int32, Utf8)", "_original Utf8"]);
    assert_eq!(column(&added, "_original").as_string::<i32>().iter().collect::<Vec<_>>(), [None, None, None, Some("{}")]);
    assert_eq!(chunks(&bytes_of(&added.files[0]))[0]["id"], chunks(&file)[0]["id"]);
    assert_eq!(added.bytes_copied, chunks(&file).iter().map(|g| g["id"].len() as u64).sum::<u64>());
}

#[tokio::test]
async fn large_text_and_dictionaries_change_without_becoming_another_type() {
    let spec = table(&[("a", "string"), ("b", "string")]);
    let dictionary: DictionaryArray<Int32Type> = vec![Some("x"), None, Some("y")].into_iter().collect();
    let file =
        plain(vec![("a", Arc::new(LargeStringArray::from(vec![Some("p"), Some("q"), None]))), ("b", Arc::new(dictionary))]);
    let mut edits = edit("a", &[2], text(&[Some("r")]));
    edits.columns.extend(edit("b", &[0, 1], text(&[None, Some("z")])).columns);
    let made = spliced(&file, &edits, &spec).await;
    assert!(!made.fell_back);
    assert_eq!(column(&made, "a").as_string::<i64>().iter().collect::<Vec<_>>(), [Some("p"), Some("q"), Some("r")]);
    let b = arrow::compute::cast(&column(&made, "b"), &arrow::datatypes::DataType::Utf8).unwrap();
    assert_eq!(b.as_string::<i32>().iter().collect::<Vec<_>>(), [None, Some("z"), Some("y")]);
}

#[tokio::test]
async fn lists_of_an_older_make_are_copied_and_make_the_file_anew_when_their_row_group_loses_rows() {
    let spec = table(&[("id", "string"), ("tags", "array<string>")]);
    let schema = "message m { required binary id (UTF8); optional group tags (LIST) { repeated binary array (UTF8); } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts = |all: &[&str]| all.iter().map(|t| ByteArray::from(*t)).collect::<Vec<_>>();
    let mut id = group.next_column().unwrap().unwrap();
    id.typed::<ByteArrayType>().write_batch(&texts(&["a", "b", "c"]), None, None).unwrap();
    id.close().unwrap();
    // ["p", "q"], null, [].
    let mut tags = group.next_column().unwrap().unwrap();
    tags.typed::<ByteArrayType>().write_batch(&texts(&["p", "q"]), Some(&[2, 2, 0, 1]), Some(&[0, 1, 0, 0])).unwrap();
    tags.close().unwrap();
    group.close().unwrap();
    let file: Bytes = writer.into_inner().unwrap().into();
    let tags = |made: &Spliced| {
        let lists = column(made, "tags");
        let lists: &ListArray = lists.as_list();
        let of = |i: usize| {
            let values = lists.value(i);
            lists.is_valid(i).then(|| values.as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>())
        };
        (0..lists.len()).map(of).collect::<Vec<_>>()
    };
    let pq = Some(vec!["p".to_owned(), "q".to_owned()]);
    let changed = spliced(&file, &edit("id", &[0], text(&[Some("z")])), &spec).await;
    assert!(!changed.fell_back);
    assert_eq!(tags(&changed), [pq.clone(), None, Some(vec![])]);
    let less = spliced(&file, &Edits { deleted: vec![1], ..Edits::default() }, &spec).await;
    assert_eq!(tags(&less), [pq, Some(vec![])]);
}

#[tokio::test]
async fn what_the_log_knows_of_a_file_stands_in_for_its_columns_and_its_marked_rows_are_gone() {
    let spec = table(&[("id", "string"), ("day", "date"), ("later", "long")]);
    let ids: Vec<String> = (0..40).map(|i| format!("id{}", i % 4)).collect();
    let file = plain(vec![("id", Arc::new(StringArray::from(ids)))]);
    let opened = open_as(&file, Held::Whole, |entry| {
        entry.partition_values = Arc::new(HashMap::from([("day".to_owned(), Some("1970-01-03".to_owned()))]));
        // The example of Delta's protocol: rows 3, 4, 7, 11, 18 and 29.
        let vector = DeletionVectorDescriptor {
            storage_type: StorageType::Inline,
            path_or_inline_dv: "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L".to_owned(),
            offset: None,
            size_in_bytes: 44,
            cardinality: 6,
        };
        entry.deleted = Some(DeletedRows(vector.try_into().unwrap()));
    })
    .await
    .unwrap();
    assert_eq!(opened.deleted_rows(), [3, 4, 7, 11, 18, 29]);
    assert_eq!(opened.matching("id", &|id: &str| id == "id3").await.unwrap(), [15, 19, 23, 27, 31, 35, 39]);
    assert!(opened.matching("later", &|_: &str| true).await.unwrap().is_empty());
    let read = opened.rows_at(&arrow_schema(&spec), &[0, 39]).await.unwrap();
    assert_eq!(read.column(1).as_primitive::<arrow::datatypes::Date32Type>().values(), &[2, 2]);
    assert_eq!(read.column(2).null_count(), 2);
    // Of a marked row nothing is taken, and all marked rows go.
    let edits = edit("id", &[3, 5], text(&[Some("never"), Some("new")]));
    let made = opened.splice(&edits, &settings(&spec), None).await.unwrap();
    assert_eq!(made.files[0].rows, 34);
    let ids = column(&made, "id");
    let ids: Vec<&str> = ids.as_string::<i32>().iter().flatten().collect();
    assert_eq!((&ids[..5], ids.contains(&"never")), (&["id0", "id1", "id2", "new", "id2"][..], false));
    // The partition column stays where it was: in the log.
    assert_eq!(footer(&bytes_of(&made.files[0])).file_metadata().schema_descr().num_columns(), 1);
}

#[tokio::test]
async fn a_file_that_passes_its_target_becomes_several_in_order() {
    let spec = TableSpec { target_file_bytes: 3000, ..table(&[("n", "long"), ("id", "string")]) };
    let numbers: Vec<i64> = (0..1000).collect();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100)).build();
    let ids = StringArray::from_iter_values(numbers.iter().map(|n| format!("id{n}")));
    let file = parquet(&batch(vec![("n", Arc::new(Int64Array::from(numbers.clone()))), ("id", Arc::new(ids))]), properties);
    let edits = edit("id", &[5, 999], text(&[Some("a"), Some("b")]));
    let made = spliced(&file, &edits, &spec).await;
    assert!(!made.fell_back);
    assert!(made.files.len() > 2, "{} files", made.files.len());
    let mut all = Vec::new();
    for made in &made.files {
        let stats: Value = serde_json::from_str(&made.stats).unwrap();
        assert_eq!(stats["minValues"]["n"], all.len() as i64);
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes_of(made)).unwrap().build().unwrap();
        for batch in reader {
            all.extend_from_slice(batch.unwrap().column(0).as_primitive::<Int64Type>().values());
        }
        assert_eq!(stats["maxValues"]["n"], all.len() as i64 - 1);
    }
    assert_eq!(all, numbers);
}

#[tokio::test]
async fn a_file_that_loses_all_rows_is_no_file() {
    let spec = table(&[("id", "string")]);
    let file = plain(vec![("id", text(&[Some("a"), None]))]);
    let made = spliced(&file, &Edits { deleted: vec![0, 1], ..Edits::default() }, &spec).await;
    assert_eq!((made.files.len(), made.bytes_copied, made.bytes_encoded), (0, 0, 0));
}

fn stats(made: &Spliced) -> Value {
    serde_json::from_str(&made.files[0].stats).unwrap()
}

#[tokio::test]
async fn statistics_bound_what_is_there_and_no_float_that_may_be_none() {
    let mut spec = table(&[("id", "string"), ("n", "long"), ("x", "double"), ("at", "timestamp"), ("gone", "string")]);
    spec.without_statistics = vec!["id".to_owned()];
    let file = plain(vec![
        ("id", text(&[Some("a"), Some("b"), None])),
        ("n", Arc::new(Int32Array::from(vec![Some(4), None, Some(-2)]))),
        ("x", Arc::new(Float64Array::from(vec![1.5, 2.5, -1.0]))),
        ("at", Arc::new(TimestampMillisecondArray::from(vec![0, 1, 2]).with_timezone("UTC"))),
    ]);
    let ids = edit("id", &[0], text(&[Some("c")]));
    let opened = open(&file).await.unwrap();
    let before = r#"{"numRecords":3,"minValues":{"x":-1.0},"maxValues":{"x":2.5}}"#;
    let with = stats(&opened.splice(&ids, &settings(&spec), Some(before)).await.unwrap());
    // Milliseconds in the file are not read as the table's microseconds.
    let nulls = json!({ "n": 1, "x": 0, "at": 0, "gone": 3 });
    assert_eq!(
        with,
        json!({ "numRecords": 3, "minValues": { "n": -2, "x": -1.0 }, "maxValues": { "n": 4, "x": 2.5 }, "nullCount": nulls })
    );
    // The old statistics had no bounds for the float: a NaN may hide behind those of the footer.
    let without = stats(&opened.splice(&ids, &settings(&spec), None).await.unwrap());
    assert_eq!((&without["minValues"], &without["maxValues"]), (&json!({ "n": -2 }), &json!({ "n": 4 })));
    // A new NaN takes the bounds away; where all of the column is encoded, it is seen that there is none.
    let float = |x: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![x])) };
    let nan = stats(&opened.splice(&edit("x", &[1], float(f64::NAN)), &settings(&spec), Some(before)).await.unwrap());
    assert_eq!(nan["maxValues"], json!({ "n": 4 }));
    let all = stats(&opened.splice(&edit("x", &[1], float(9.0)), &settings(&spec), None).await.unwrap());
    assert_eq!(all["maxValues"], json!({ "n": 4, "x": 9.0 }));
}

#[tokio::test]
async fn columns_that_are_not_declared_any_more_are_kept_when_a_file_is_made_anew() {
    let spec = table(&[("id", "long")]);
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("id", arrow::datatypes::DataType::Int64, true),
        Field::new("undeclared", arrow::datatypes::DataType::Utf8, true),
    ]));
    let file = plain(vec![("id", Arc::new(Int32Array::from(vec![1, 2]))), ("undeclared", text(&[Some("x"), Some("y")]))]);
    let opened = open(&file).await.unwrap();
    let edits = edit("id", &[0], Arc::new(Int64Array::from(vec![1 << 40])));
    let made = opened.splice(&edits, &SpliceSettings::new(&spec, &schema), None).await.unwrap();
    assert!(made.fell_back);
    assert_eq!(column(&made, "undeclared").as_string::<i32>().iter().collect::<Vec<_>>(), [Some("x"), Some("y")]);
}

/// One value, and how often it was asked for another.
struct Counting<'a>(&'a str, std::sync::atomic::AtomicUsize);

impl Wanted for Counting<'_> {
    fn has(&self, value: &str) -> bool {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        value == self.0
    }

    fn may_lie_within(&self, least: &str, greatest: &str) -> bool {
        least <= self.0 && self.0 <= greatest
    }
}

#[tokio::test]
async fn a_miss_costs_the_dictionary_and_outside_the_bounds_not_even_that() {
    let ids: Vec<String> = (0..20_000).map(|i| format!("id{:05}", (i * 7) % 500 * 2)).collect();
    let body: Vec<String> = (0..20_000).map(|i| format!("{:x}", i * 2_654_435_761_u64)).collect();
    let file = plain(vec![("id", Arc::new(StringArray::from(ids.clone()))), ("body", Arc::new(StringArray::from(body)))]);
    let asked = |wanted: &'static str| {
        let file = file.clone();
        async move {
            let opened = open_as(&file, Held::End(4000), |_| {}).await.unwrap();
            let (wanted, footer) = (Counting(wanted, std::sync::atomic::AtomicUsize::new(0)), opened.bytes_read());
            let found = opened.matching("id", &wanted).await.unwrap();
            (found, wanted.1.into_inner(), opened.bytes_read() - footer)
        }
    };
    assert_eq!(asked("je").await, (vec![], 0, 0));
    // 500 different ids; the dictionary has a little more than their bytes before compression.
    let (found, times, bytes) = asked("id00001").await;
    assert_eq!((found, times), (vec![], 500));
    assert!(bytes > 0 && bytes < 500 * 11 + 100, "{bytes}");
    let (found, ..) = asked("id00002").await;
    let expected: Vec<u64> = ids.iter().zip(0..).filter(|(id, _)| *id == "id00002").map(|(_, i)| i).collect();
    assert_eq!((found.len(), found), (40, expected));
}

#[tokio::test]
async fn a_row_costs_the_pages_it_is_in() {
    let spec = table(&[("n", "long"), ("body", "string")]);
    let body: Vec<String> = (0..50_000).map(|i| format!("{:x}", i * 2_654_435_761_u64)).collect();
    let numbers = Int64Array::from_iter_values(0..50_000);
    let rows = batch(vec![("n", Arc::new(numbers)), ("body", Arc::new(StringArray::from(body)))]);
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(1000)
        .set_write_batch_size(1000)
        .build();
    let file = parquet(&rows, properties);
    let opened = open_as(&file, Held::End(30_000), |_| {}).await.unwrap();
    let before = opened.bytes_read();
    let read = opened.rows_at(&arrow_schema(&spec), &[17_000, 17_001]).await.unwrap();
    assert_eq!(read.column(0).as_primitive::<Int64Type>().values(), &[17_000, 17_001]);
    // Two of a hundred pages, and the index.
    let cost = opened.bytes_read() - before;
    assert!(cost * 10 < file.len() as u64, "{cost} of {} bytes", file.len());
}

#[test]
fn all_that_waits_can_be_spawned() {
    fn spawnable<T: Send>(_: T) {}
    async fn all(file: &super::super::SpliceFile, settings: &SpliceSettings, wanted: &dyn Wanted) -> alluvium_core::Result<()> {
        file.matching("id", wanted).await?;
        file.rows_at(&Arc::new(Schema::empty()), &[]).await?;
        let _ = file.splice(&Edits::default(), settings, None).await?;
        Ok(())
    }
    fn of(file: &super::super::SpliceFile, settings: &SpliceSettings) {
        spawnable(all(file, settings, &|_: &str| true));
    }
    let _ = of;
}
