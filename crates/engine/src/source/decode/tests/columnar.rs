//! Parquet and Avro files, written by the libraries' own writers.

use std::fs::File;
use std::sync::Arc;

use alluvium_core::{Dataset, FileCursor, FileFormat};
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int32Array,
    Int64Array, LargeStringArray, ListArray, MapArray, MapBuilder, RecordBatch, StringArray, StringBuilder, StringViewArray,
    StructArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int8Type, Int32Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::{Compression, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int64Type, Int96, Int96Type};
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::{Outcome, dataset, decode, decode_cut, from};
use crate::source::split::{Input, Splitter};

const AT: i64 = 1_767_323_045_000_000;

/// A batch with `org` and `at` and these columns.
fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let rows = columns[0].1.len();
    let ours: [(&str, ArrayRef); 2] = [
        ("org", Arc::new(StringArray::from(vec!["o"; rows]))),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![AT; rows]).with_timezone("UTC"))),
    ];
    RecordBatch::try_from_iter_with_nullable(ours.into_iter().chain(columns).map(|(n, a)| (n, a, true))).unwrap()
}

fn parquet(batch: &RecordBatch, group_rows: usize) -> Vec<u8> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn avro(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = arrow_avro::writer::AvroWriter::new(Vec::new(), Schema::clone(&batch.schema())).unwrap();
    for row in 0..batch.num_rows() {
        // A block a row.
        writer.write(&batch.slice(row, 1)).unwrap();
    }
    writer.finish().unwrap();
    writer.into_inner()
}

/// The column `x` of this type for an Arrow array, or why rows are refused.
fn values(data_type: &str, array: impl arrow::array::Array + 'static) -> Vec<String> {
    let outcome =
        decode(&dataset(&[("x", data_type)]), FileFormat::Parquet, "a.parquet", parquet(&batch(vec![("x", Arc::new(array))]), 2));
    in_order(&outcome)
}

fn in_order(outcome: &Outcome) -> Vec<String> {
    assert_eq!(outcome.fault, None);
    let rows = outcome.column("_offset").into_iter().map(|o| o.parse::<u64>().unwrap()).zip(outcome.column("x"));
    let refused = outcome.refused.iter().map(|r| (r.record, r.reason.split(": ").last().unwrap().to_owned()));
    let mut all: Vec<_> = rows.chain(refused).collect();
    all.sort();
    all.into_iter().map(|(_, text)| text).collect()
}

const OUT: &str = "the number is out of range";

#[test]
fn numbers_of_any_arrow_type_follow_the_rules_of_texts() {
    assert_eq!(values("long", UInt64Array::from(vec![Some(7), None, Some(u64::MAX)])), ["7", "null", OUT]);
    assert_eq!(values("long", Int32Array::from(vec![i32::MIN])), ["-2147483648"]);
    assert_eq!(values("integer", Int64Array::from(vec![5, 1 << 40])), ["5", OUT]);
    assert_eq!(values("double", Int64Array::from(vec![5])), ["5.0"]);
    assert_eq!(values("string", Int64Array::from(vec![-5])), ["-5"]);
    assert_eq!(values("boolean", Int64Array::from(vec![1])), ["a number is given"]);
    assert_eq!(
        values("long", Float64Array::from(vec![3.0, 3.5, 9_007_199_254_740_993.0, 9.3e18, f64::NAN])),
        ["3", "the number is not whole", "9007199254740992", OUT, "the text is not exactly a number"]
    );
    assert_eq!(values("double", Float64Array::from(vec![f64::NAN, f64::NEG_INFINITY, 0.1])), ["NaN", "-inf", "0.1"]);
    assert_eq!(values("float", Float64Array::from(vec![0.5, 0.1])), ["0.5", OUT]);
    assert_eq!(values("decimal(5,2)", Float32Array::from(vec![0.1, 1.125])), ["0.10", "the number has digits beyond the scale"]);
    let decimals = || Decimal128Array::from(vec![12_300, 12_345]).with_precision_and_scale(10, 3).unwrap();
    assert_eq!(values("decimal(10,2)", decimals()), ["12.30", "the number has digits beyond the scale"]);
    assert_eq!(values("string", decimals()), ["12.300", "12.345"]);
    assert_eq!(values("string", BooleanArray::from(vec![true])), ["true"]);
}

#[test]
fn texts_and_bytes() {
    for (data_type, expected) in [("string", ["12", "x"]), ("long", ["12", "the text is not exactly a number"])] {
        assert_eq!(values(data_type, StringArray::from(vec!["12", "x"])), expected);
        assert_eq!(values(data_type, LargeStringArray::from(vec!["12", "x"])), expected);
        assert_eq!(values(data_type, StringViewArray::from(vec!["12", "x"])), expected);
        assert_eq!(values(data_type, ["12", "x"].into_iter().collect::<DictionaryArray<Int8Type>>()), expected);
    }
    assert_eq!(values("binary", BinaryArray::from(vec![b"\x00\xff".as_slice()])), ["00ff"]);
    assert_eq!(values("string", BinaryArray::from(vec!["ä".as_bytes(), b"\xff"])), ["ä", "the bytes are not UTF-8"]);
}

#[test]
fn times_of_any_unit_are_exact_or_refused() {
    assert_eq!(
        values("timestamp", TimestampNanosecondArray::from(vec![1_000, 1_001, -1_000])),
        ["1970-01-01T00:00:00.000001Z", "the time is finer than microseconds", "1969-12-31T23:59:59.999999Z"]
    );
    assert_eq!(
        values("timestamp", TimestampMillisecondArray::from(vec![1, i64::MAX])),
        ["1970-01-01T00:00:00.001Z", "the year is not in 0001 to 9999"]
    );
    assert_eq!(values("timestamp", Date32Array::from(vec![1])), ["1970-01-02T00:00:00Z"]);
    assert_eq!(values("date", Date32Array::from(vec![-719_162, -719_163])), ["0001-01-01", "the year is not in 0001 to 9999"]);
    assert_eq!(values("date", TimestampMillisecondArray::from(vec![0])), ["a time is given"]);
    assert_eq!(values("string", TimestampNanosecondArray::from(vec![1_500_000_000])), ["1970-01-01T00:00:01.5Z"]);
    assert_eq!(values("long", Date32Array::from(vec![1])), ["a date is given"]);
}

/// A file of one INT96 column, `x`, beside `org` and `at`: (nanoseconds of the day, Julian day).
fn int96(times: &[(u64, u32)]) -> Vec<u8> {
    let leaf = |name: &str, physical| {
        Arc::new(Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED).build().unwrap())
    };
    let fields = vec![leaf("org", PhysicalType::BYTE_ARRAY), leaf("at", PhysicalType::INT96), leaf("x", PhysicalType::INT96)];
    let schema = Arc::new(Type::group_type_builder("schema").with_fields(fields).build().unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let int96 = |(nanos, day): &(u64, u32)| Int96::from(vec![*nanos as u32, (*nanos >> 32) as u32, *day]);
    let values: Vec<Int96> = times.iter().map(int96).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<parquet::data_type::ByteArrayType>().write_batch(&vec!["o".into(); times.len()], None, None).unwrap();
    column.close().unwrap();
    for values in [vec![int96(&(0, 2_440_588)); times.len()], values] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int96Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn int96_times_are_exact_at_any_date() {
    // Julian day 2,440,588 is 1970-01-01; 1,721,426 is 0001-01-01; nanoseconds in 64 bits reach 1677 to 2262.
    let file =
        int96(&[(1_000, 2_440_588), (1_001, 2_440_588), (1_000, 1_721_426), (1_001, 1_721_426), (0, 5_373_484), (0, 1_721_425)]);
    let outcome = decode(&dataset(&[("x", "timestamp")]), FileFormat::Parquet, "a", file);
    assert_eq!(
        in_order(&outcome),
        [
            "1970-01-01T00:00:00.000001Z",
            "the time is finer than microseconds",
            "0001-01-01T00:00:00.000001Z",
            "the time is finer than microseconds",
            "9999-12-31T00:00:00Z",
            "the year is not in 0001 to 9999",
        ]
    );
}

/// A file with `org`, `at` in microseconds, and `x`, which holds UUIDs.
fn uuids(values: &[[u8; 16]]) -> Vec<u8> {
    let schema = "message m { required binary org (STRING); required int64 at (TIMESTAMP(MICROS,true));
        required fixed_len_byte_array(16) x (UUID); }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&vec![ByteArray::from("o"); values.len()], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&vec![AT; values.len()], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<FixedLenByteArray> = values.iter().map(|v| ByteArray::from(v.to_vec()).into()).collect();
    column.typed::<FixedLenByteArrayType>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn uuids_are_spelled_as_text_and_given_as_bytes_to_binary() {
    // The second is text in UTF-8 too, and still a UUID.
    let ids = [*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff", *b"abcdefghijklmnop"];
    let read = |data_type| in_order(&decode(&dataset(&[("x", data_type)]), FileFormat::Parquet, "a", uuids(&ids)));
    assert_eq!(read("string"), ["00112233-4455-6677-8899-aabbccddeeff", "61626364-6566-6768-696a-6b6c6d6e6f70"]);
    let bytes = read("binary");
    assert!(bytes[1].contains("6162636465666768696a6b6c6d6e6f70"), "{bytes:?}");
}

fn nested() -> (Dataset, RecordBatch) {
    let mut dataset =
        dataset(&[("city", "string"), ("l", "array<long>"), ("m", "map<string, long>"), ("s", "struct<a: string>")]);
    from(&mut dataset, "city", "geo.city");
    let strings = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
    let geo = StructArray::from(vec![
        (field("city", DataType::Utf8), strings(vec![Some("Ulm"), None])),
        (field("zip", DataType::Utf8), strings(vec![Some("089\""), None])),
    ]);
    let s = StructArray::from(vec![
        (field("a", DataType::Utf8), strings(vec![Some("x"), None])),
        (field("b", DataType::Int32), Arc::new(Int32Array::from(vec![None, Some(5)])) as ArrayRef),
    ]);
    let mut maps = MapBuilder::new(None, StringBuilder::new(), arrow::array::Int64Builder::new());
    maps.keys().append_value("k");
    maps.values().append_value(1);
    maps.append(true).unwrap();
    maps.append(false).unwrap();
    let maps: MapArray = maps.finish();
    let l = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("geo", Arc::new(geo)),
        ("s", Arc::new(s)),
        ("m", Arc::new(maps)),
        ("l", Arc::new(l)),
        ("extra", Arc::new(Float64Array::from(vec![None, Some(1e300)]))),
    ];
    (dataset, batch(columns))
}

#[test]
fn nested_values_and_undeclared_columns() {
    let (dataset, batch) = nested();
    for (format, bytes) in [(FileFormat::Parquet, parquet(&batch, 1)), (FileFormat::Avro, avro(&batch))] {
        let outcome = decode(&dataset, format, "a", bytes);
        assert_eq!((outcome.refusals(), outcome.fault.clone()), (vec![], None));
        let texts: Vec<_> = outcome.texts().into_iter().map(|row| [row[2..6].join(" "), row[8].clone()].join(" ")).collect();
        assert_eq!(
            texts,
            [r#"Ulm [1, null] {k: 1} {a: x} {"geo":{"zip":"089\""}}"#, r#"null null null {a: null} {"extra":1e300,"s.b":5}"#,],
            "{format:?}"
        );
    }
}

#[test]
fn refused_rows_are_kept_as_json() {
    let (mut dataset, batch) = nested();
    dataset.fields[4].data_type = "map<string, boolean>".parse().unwrap();
    for (format, bytes) in [(FileFormat::Parquet, parquet(&batch, 10)), (FileFormat::Avro, avro(&batch))] {
        let outcome = decode(&dataset, format, "a", bytes);
        assert_eq!(outcome.refusals(), [(0, Some("m"), "the value does not fit map<string, boolean>: a number is given")]);
        let raw = std::str::from_utf8(&outcome.refused[0].raw).unwrap();
        assert_eq!(
            raw,
            r#"{"org":"o","at":"2026-01-02T03:04:05Z","geo":{"city":"Ulm","zip":"089\""},"s":{"a":"x","b":null},"m":{"k":1},"l":[1,null],"extra":null}"#
        );
        assert_eq!(outcome.column("_offset"), ["1"]);
    }
}

fn numbers(rows: i64) -> (Dataset, RecordBatch) {
    (dataset(&[("x", "long")]), batch(vec![("x", Arc::new(Int64Array::from_iter_values(0..rows)))]))
}

#[test]
fn columnar_files_are_the_same_however_cut() {
    let (dataset, batch) = numbers(100);
    let expected: Vec<String> = (0..100).map(|i| i.to_string()).collect();
    for (format, name, bytes) in [
        (FileFormat::Parquet, "a.parquet", parquet(&batch, 30)),
        (FileFormat::Parquet, "a.parquet.zst", zstd::encode_all(parquet(&batch, 30).as_slice(), 1).unwrap()),
        (FileFormat::Avro, "a.avro", avro(&batch)),
        (FileFormat::Avro, "a.avro.zst", zstd::encode_all(avro(&batch).as_slice(), 1).unwrap()),
    ] {
        for (max_records, max_bytes, reopen) in [(7, 1 << 20, 0), (7, 1 << 20, 1), (1000, 1 << 20, 1), (30, 50, 2), (1, 1, 1)] {
            let outcome = decode_cut(&dataset, format, name, bytes.clone().into(), max_records, max_bytes, reopen);
            assert_eq!(outcome.fault, None);
            assert_eq!(outcome.column("x"), expected, "{name} {max_records} {max_bytes} {reopen}");
            assert_eq!(outcome.column("_offset"), expected);
        }
    }
}

#[test]
fn files_cut_off_or_broken_are_at_fault_and_rows_before_stay() {
    let (dataset, batch) = numbers(100);
    let file = avro(&batch);
    for length in [0, 3, 100, file.len() - 300, file.len() - 1] {
        let outcome = decode(&dataset, FileFormat::Avro, "a.avro", file[..length].to_vec());
        let (at, _) = outcome.fault.clone().unwrap();
        assert_eq!(outcome.rows.num_rows() as u64, at, "{length}");
        assert_eq!(at > 0, length > 1000, "{length}: {at}");
    }
    let mut broken = file.clone();
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let outcome = decode(&dataset, FileFormat::Avro, "a.avro", broken);
    assert_eq!(outcome.fault, Some((99, "the Avro file is broken: a block has a wrong sync marker".to_owned())));

    let file = parquet(&batch, 30);
    for length in [0, 3, file.len() / 2, file.len() - 1] {
        let outcome = decode(&dataset, FileFormat::Parquet, "a.parquet", file[..length].to_vec());
        assert_eq!((outcome.fault.map(|f| f.0), outcome.rows.num_rows()), (Some(0), 0));
    }
    // The third of four row groups: its `x` values, 60 to 89, are overwritten.
    let needle: Vec<u8> = (60_i64..64).flat_map(i64::to_le_bytes).collect();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(30)).set_dictionary_enabled(false).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    let mut file = writer.into_inner().unwrap();
    let at = file.windows(needle.len()).position(|w| w == needle).unwrap();
    file[at - 40..at + 8].fill(0xff);
    let outcome = decode(&dataset, FileFormat::Parquet, "a.parquet", file);
    assert_eq!((outcome.fault.map(|f| f.0), outcome.rows.num_rows()), (Some(60), 60));
}

/// 10,000 rows with `x` and a text `s` of eleven bytes, `value-00000` and so on.
fn texts() -> (Dataset, RecordBatch) {
    let s = StringArray::from_iter_values((0..10_000).map(|i| format!("value-{i:05}")));
    let x = Int64Array::from_iter_values(0..10_000);
    (dataset(&[("x", "long"), ("s", "string")]), batch(vec![("x", Arc::new(x)), ("s", Arc::new(s))]))
}

/// Where the only `text` in `file` begins.
fn position(file: &[u8], text: &str) -> usize {
    let mut found = file.windows(text.len()).enumerate().filter(|(_, w)| *w == text.as_bytes()).map(|(at, _)| at);
    let at = found.next().unwrap();
    assert_eq!(found.next(), None, "{text} is there twice");
    at
}

/// Exactly the rows before `fault` arrive, however the file is cut into chunks and batches.
fn assert_rows_before(dataset: &Dataset, format: FileFormat, file: &[u8], fault: u64) {
    let expected: Vec<String> = (0..fault).map(|i| format!("value-{i:05}")).collect();
    for (max_records, reopen) in [(1 << 20, 0), (1 << 20, 1), (1000, 0), (999, 3), (7, 0)] {
        let outcome = decode_cut(dataset, format, "a", file.to_vec().into(), max_records, 1 << 30, reopen);
        assert_eq!(outcome.fault.as_ref().map(|f| f.0), Some(fault), "{format:?} {max_records} {reopen}: {:?}", outcome.fault);
        assert_eq!(outcome.refusals(), []);
        assert_eq!(outcome.column("s"), expected, "{format:?} {max_records} {reopen}");
    }
}

#[test]
fn of_a_parquet_file_with_a_damaged_page_exactly_the_rows_before_the_fault_stay() {
    let (dataset, batch) = texts();
    let file = |compression| {
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_compression(compression)
            .set_write_batch_size(100)
            .set_data_page_row_count_limit(1000)
            .build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    };
    // Values one behind the other, each after its length: that of row 5500 becomes longer than the page.
    let mut plain = file(Compression::UNCOMPRESSED);
    // Bounds in page headers and in the footer hold the first and the last value of a page, not this one.
    let at = position(&plain, "value-05500");
    plain[at - 4..at].fill(0x7f);
    assert_rows_before(&dataset, FileFormat::Parquet, &plain, 5500);

    // A compressed page can be read whole or not at all: the sixth begins with row 5000.
    let mut snappy = file(Compression::SNAPPY);
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let metadata = ArrowReaderMetadata::load(&bytes::Bytes::from(snappy.clone()), options).unwrap();
    let page = metadata.metadata().offset_index().unwrap()[0][3].page_locations()[5].clone();
    assert_eq!(page.first_row_index, 5000);
    let (start, length) = (usize::try_from(page.offset).unwrap(), usize::try_from(page.compressed_page_size).unwrap());
    snappy[start + length / 2..start + length].fill(0xff);
    assert_rows_before(&dataset, FileFormat::Parquet, &snappy, 5000);
}

#[test]
fn of_an_avro_block_with_a_damaged_record_exactly_the_records_before_it_stay() {
    let (dataset, batch) = texts();
    let mut writer = arrow_avro::writer::AvroWriter::new(Vec::new(), Schema::clone(&batch.schema())).unwrap();
    for first in [0, 4000] {
        writer.write(&batch.slice(first, 4000 + first / 2)).unwrap();
    }
    writer.finish().unwrap();
    let mut file = writer.into_inner();
    // A text follows its length, here 11 as a zig-zag number; now it is negative.
    let at = position(&file, "value-05500");
    assert_eq!(file[at - 1], 22);
    file[at - 1] = 1;
    assert_rows_before(&dataset, FileFormat::Avro, &file, 5500);
}

#[test]
fn two_columns_of_one_name_are_the_files_fault() {
    let schema = Schema::new(vec![Field::new("x", DataType::Int64, true), Field::new("x", DataType::Int64, true)]);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(&column), column]).unwrap();
    let outcome = decode(&dataset(&[("x", "long")]), FileFormat::Parquet, "a", parquet(&batch, 10));
    assert_eq!(outcome.fault, Some((0, "the Parquet file is broken: Parquet error: two columns are named \"x\"".to_owned())));
}

#[test]
fn parquet_is_read_from_a_file_and_a_stream() {
    let (_, batch) = numbers(10);
    let bytes = parquet(&batch, 30);
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let file: File = file;
    for input in [Input::File(file), Input::Stream(Box::new(std::io::Cursor::new(bytes)))] {
        let mut splitter = Splitter::open(input, "a", FileFormat::Parquet, FileCursor { record: 4, byte: 0 }).ok().unwrap();
        let chunk = splitter.next_chunk(100, 1 << 20).ok().flatten().unwrap();
        assert_eq!((chunk.first_record(), chunk.max_records()), (4, 6));
        assert_eq!(splitter.cursor().record, 10);
    }
}
