//! Random tables, files and edits: what comes out is the naive rewrite, and what was not touched is the same bytes.

use alluvium_core::TableSpec;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use proptest::prelude::*;
use serde_json::Value;

use super::super::{ColumnEdit, Edits, SpliceFile, Spliced};
use super::support::{
    Dice, Held, bytes_of, chunks, footer, naive, open, open_as, parquet, read, read_all, rows, settings, spec, values,
};
use crate::schema::arrow_schema;

/// How a random file is written.
#[derive(Debug, Clone)]
struct Make {
    seed: u64,
    rows: usize,
    group_rows: usize,
    page_rows: usize,
    compression: Compression,
    version_2: bool,
    dictionary: bool,
    dictionary_bytes: usize,
    statistics: EnabledStatistics,
    delta: bool,
    arrow_schema: bool,
    held: Held,
}

fn make() -> impl Strategy<Value = Make> {
    let compression = prop_oneof![
        Just(Compression::UNCOMPRESSED),
        Just(Compression::SNAPPY),
        Just(Compression::ZSTD(ZstdLevel::default())),
        Just(Compression::GZIP(GzipLevel::default())),
        Just(Compression::BROTLI(BrotliLevel::default())),
        Just(Compression::LZ4),
        Just(Compression::LZ4_RAW),
    ];
    let statistics = prop_oneof![Just(EnabledStatistics::None), Just(EnabledStatistics::Chunk), Just(EnabledStatistics::Page)];
    let size = (any::<u64>(), 1..300_usize, 1..120_usize, 1..60_usize, 1..400_usize);
    let held = prop_oneof![Just(Held::Whole), (8..5008_u64).prop_map(Held::End), (8..5008_u64).prop_map(Held::OnDisk)];
    (size, compression, any::<(bool, bool, bool, bool)>(), statistics, held).prop_map(
        |(
            (seed, rows, group_rows, page_rows, dictionary_bytes),
            compression,
            (version_2, dictionary, delta, arrow),
            statistics,
            held,
        )| Make {
            seed,
            rows,
            group_rows,
            page_rows,
            compression,
            version_2,
            dictionary,
            dictionary_bytes,
            statistics,
            delta,
            arrow_schema: arrow,
            held,
        },
    )
}

impl Make {
    fn properties(&self) -> WriterProperties {
        let version = if self.version_2 { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 };
        let mut properties = WriterProperties::builder()
            .set_compression(self.compression)
            .set_writer_version(version)
            .set_dictionary_enabled(self.dictionary)
            .set_dictionary_page_size_limit(self.dictionary_bytes)
            .set_statistics_enabled(self.statistics)
            .set_max_row_group_row_count(Some(self.group_rows))
            .set_data_page_row_count_limit(self.page_rows)
            .set_write_batch_size(self.page_rows);
        if self.delta {
            for (column, encoding) in [
                ("id", Encoding::DELTA_BYTE_ARRAY),
                ("org", Encoding::DELTA_LENGTH_BYTE_ARRAY),
                ("number", Encoding::DELTA_BINARY_PACKED),
                ("ratio", Encoding::BYTE_STREAM_SPLIT),
                ("flag", Encoding::RLE),
            ] {
                let path = ColumnPath::from(column);
                properties = properties.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, encoding);
            }
        }
        properties.build()
    }
}

/// Random edits: of no rows, of a few, or of many, and now and then of all of a row group.
fn edits(spec: &TableSpec, rows: usize, group_rows: usize, dice: &mut Dice) -> Edits {
    let schema = arrow_schema(spec);
    let rare = [3, 20, 1000][dice.below(3) as usize];
    let mut deleted: Vec<u64> = match dice.below(3) {
        0 => Vec::new(),
        _ => (0..rows as u64).filter(|_| dice.one_in(rare * 2)).collect(),
    };
    if dice.one_in(3) {
        let group = dice.below(rows.div_ceil(group_rows) as u64) * group_rows as u64;
        deleted.extend(group..(group + group_rows as u64).min(rows as u64));
        deleted.sort_unstable();
        deleted.dedup();
    }
    let mut columns = Vec::new();
    for field in schema.fields() {
        if dice.one_in(4) {
            let positions: Vec<u64> = (0..rows as u64).filter(|_| dice.one_in(rare)).collect();
            let values = values(field, positions.len(), dice);
            columns.push(ColumnEdit { column: field.name().clone(), rows: positions, values });
        }
    }
    Edits { deleted, columns }
}

/// Asserts what must hold of whatever a file became.
fn assert_rewritten(source: &bytes::Bytes, spliced: &Spliced, edits: &Edits, schema: &SchemaRef) {
    let before = read(source, schema);
    let expected = naive(&before, edits);
    let after = read_all(spliced, schema);
    assert_eq!(after.num_rows(), expected.num_rows());
    for (field, (got, wanted)) in schema.fields().iter().zip(after.columns().iter().zip(expected.columns())) {
        assert_eq!(got, wanted, "column {}", field.name());
    }
    let counted = spliced.files.iter().map(|f| serde_json::from_str::<Value>(&f.stats).unwrap()["numRecords"].as_u64().unwrap());
    assert_eq!(counted.sum::<u64>(), expected.num_rows() as u64);
}

/// Asserts that chunks without a change are the same bytes, and that what was copied and encoded is told as it was.
fn assert_copied(source: &bytes::Bytes, spliced: &Spliced, edits: &Edits) {
    let old = chunks(source);
    let new: Vec<_> = spliced.files.iter().flat_map(|f| chunks(&bytes_of(f))).collect();
    let (mut first, mut at, mut copied, mut all) = (0_u64, 0, 0_u64, 0_u64);
    for (group, metadata) in old.iter().zip(footer(source).row_groups()) {
        let of_group = first..first + metadata.num_rows() as u64;
        first = of_group.end;
        let lost = edits.deleted.iter().filter(|p| of_group.contains(p)).count() as i64;
        if lost == metadata.num_rows() {
            continue;
        }
        for (leaf, bytes) in group {
            let root = leaf.split('.').next().unwrap();
            let touched = edits.columns.iter().any(|e| e.column == root && e.rows.iter().any(|p| of_group.contains(p)));
            if lost == 0 && !touched {
                assert_eq!(new[at][leaf], *bytes, "{leaf} of a row group without changes in it");
                copied += bytes.len() as u64;
            }
        }
        all += new[at].values().map(|b| b.len() as u64).sum::<u64>();
        at += 1;
    }
    assert_eq!(at, new.len());
    assert_eq!((spliced.bytes_copied, spliced.bytes_copied + spliced.bytes_encoded), (copied, all));
}

fn check(make: &Make) {
    let spec = spec();
    let schema = arrow_schema(&spec);
    let mut dice = Dice::new(make.seed);
    let there: RecordBatch = rows(&schema, make.rows, &mut dice);
    let source = if make.arrow_schema {
        parquet(&there, make.properties())
    } else {
        // As most writers do: without what Arrow had in mind, and without columns that came later.
        let kept: Vec<usize> = (0..schema.fields().len()).filter(|i| schema.field(*i).name() != "_original").collect();
        parquet(&there.project(&kept).unwrap(), make.properties())
    };
    let edits = edits(&spec, make.rows, make.group_rows, &mut dice);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let file = open_as(&source, make.held, |_| {}).await.unwrap();
        assert_eq!(file.rows(), make.rows as u64);
        let spliced = file.splice(&edits, &settings(&spec), None).await.unwrap();
        assert_rewritten(&source, &spliced, &edits, &schema);
        assert!(!spliced.fell_back);
        assert_copied(&source, &spliced, &edits);
        // The new files are files like any other: nothing changes in them when nothing is to change.
        for made in &spliced.files {
            let file = open(&bytes_of(made)).await.unwrap();
            let again = file.splice(&Edits::default(), &settings(&spec), Some(&made.stats)).await.unwrap();
            assert_eq!((again.bytes_encoded, again.fell_back), (0, false));
            assert_eq!(chunks(&bytes_of(&again.files[0])), chunks(&bytes_of(made)));
            // Their indexes of pages, if they have any, lead to the right rows.
            assert_read_at(&open_as(&bytes_of(made), Held::End(8), |_| {}).await.unwrap(), &bytes_of(made), &mut dice).await;
            assert_eq!(footer_with_index(&bytes_of(made)), footer_with_index(&source));
        }
        // Rows are found by their values, and read where they are.
        for column in ["id", "number", "small", "flag", "day", "at", "price"] {
            let values = found_naively(&there, column);
            let Some((wanted, _)) = values.iter().find(|(_, at)| at.len() < 40) else { continue };
            let looked = |text: &str| text == wanted;
            assert_eq!(file.matching(column, &looked).await.unwrap(), values[wanted], "{column} = {wanted}");
        }
        assert_read_at(&file, &source, &mut dice).await;
    });
}

/// Reads some rows of a file, and all of it, and compares.
async fn assert_read_at(file: &SpliceFile, bytes: &bytes::Bytes, dice: &mut Dice) {
    let schema = arrow_schema(&spec());
    let positions: Vec<u64> = (0..file.rows()).filter(|_| dice.one_in(9)).collect();
    let read_at = file.rows_at(&schema, &positions).await.unwrap();
    let indices = arrow::array::UInt64Array::from(positions);
    for (i, column) in read(bytes, &schema).columns().iter().enumerate() {
        let expected = arrow::compute::take(column, &indices, None).unwrap();
        assert_eq!(read_at.column(i), &expected, "{}", schema.field(i).name());
    }
}

/// Whether all columns of a file have an index of their pages, or none has.
fn footer_with_index(bytes: &bytes::Bytes) -> bool {
    let metadata = footer(bytes);
    let chunks = metadata.row_groups().iter().flat_map(|g| g.columns());
    let with: Vec<bool> = chunks.map(|c| c.offset_index_offset().is_some()).collect();
    assert!(with.iter().all(|w| *w == with[0]), "{with:?}");
    with[0]
}

/// Where each value of a column is, by Arrow's own text of it where that is Delta's, too.
fn found_naively(rows: &RecordBatch, column: &str) -> std::collections::BTreeMap<String, Vec<u64>> {
    let column = rows.column_by_name(column).unwrap();
    let texts = match column.data_type() {
        arrow::datatypes::DataType::Timestamp(..) => {
            use arrow::array::AsArray;
            let times = column.as_primitive::<arrow::datatypes::TimestampMicrosecondType>();
            let text = |t: i64| chrono::DateTime::from_timestamp_micros(t).unwrap().format("%Y-%m-%d %H:%M:%S%.6f").to_string();
            let texts: arrow::array::StringArray = times.iter().map(|t| t.map(text)).collect();
            std::sync::Arc::new(texts) as arrow::array::ArrayRef
        }
        _ => arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8).unwrap(),
    };
    let mut found = std::collections::BTreeMap::<String, Vec<u64>>::new();
    for (row, text) in arrow::array::AsArray::as_string::<i32>(&texts).iter().enumerate() {
        if let Some(text) = text {
            found.entry(text.to_owned()).or_default().push(row as u64);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_a_random_file_becomes_is_the_naive_rewrite_and_the_rest_is_the_same_bytes(make in make()) {
        check(&make);
    }
}

#[test]
fn every_codec_page_version_and_encoding_is_spliced() {
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ];
    for (i, compression) in compressions.into_iter().enumerate() {
        for version_2 in [false, true] {
            // Dictionaries, dictionaries that overflow into plain pages, plain pages, and the encodings by differences.
            for (dictionary, dictionary_bytes, delta) in
                [(true, 1 << 20, false), (true, 60, false), (false, 1, false), (false, 1, true)]
            {
                check(&Make {
                    seed: i as u64,
                    rows: 60,
                    group_rows: 25,
                    page_rows: 10,
                    compression,
                    version_2,
                    dictionary,
                    dictionary_bytes,
                    statistics: EnabledStatistics::Page,
                    delta,
                    arrow_schema: true,
                    held: if version_2 { Held::OnDisk(8) } else { Held::Whole },
                });
            }
        }
    }
}
