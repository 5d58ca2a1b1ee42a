//! Files that are damaged, or no files at all: an error, or what a reader would read; never a panic, and no endless memory or time.

use std::time::{Duration, Instant};

use alluvium_core::Kind;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parquet::basic::Compression;
use parquet::file::properties::{WriterProperties, WriterVersion};
use proptest::prelude::*;

use super::super::{ColumnEdit, Edits};
use super::support::{Dice, Held, bytes_of, footer, open, open_as, parquet, rows, settings, spec, values};
use crate::schema::arrow_schema;

/// Far more than any of these files takes, and far less than one that never ends.
const PATIENCE: Duration = Duration::from_secs(60);

fn source(schema: &SchemaRef, compression: Compression, version: WriterVersion) -> Bytes {
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_writer_version(version)
        .set_max_row_group_row_count(Some(40))
        .set_data_page_row_count_limit(16)
        .set_write_batch_size(16);
    parquet(&rows(schema, 90, &mut Dice::new(7)), properties.build())
}

/// Takes a file through everything, and says how far it came: the same, whether it is in memory or copied on the disk.
fn exercise(bytes: &Bytes) -> Result<(), Kind> {
    let outcome = exercise_as(bytes, Held::Whole);
    assert_eq!(exercise_as(bytes, Held::OnDisk(8)), outcome);
    outcome
}

fn exercise_as(bytes: &Bytes, held: Held) -> Result<(), Kind> {
    let spec = spec();
    let schema = arrow_schema(&spec);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let began = Instant::now();
        let file = open_as(bytes, held, |_| {}).await.map_err(|e| e.kind())?;
        let mut outcome = Ok(());
        let mut note = |kind: Kind| {
            assert!(matches!(kind, Kind::Corrupt | Kind::Unsupported), "{kind:?}");
            outcome = Err(kind);
        };
        for column in ["id", "number", "at", "tags"] {
            if let Err(e) = file.matching(column, &|text: &str| text.ends_with('3')).await {
                note(e.kind());
            }
        }
        let end = file.rows().min(90);
        let positions: Vec<u64> = (0..end).step_by(7).collect();
        if let Err(e) = file.rows_at(&schema, &positions).await {
            note(e.kind());
        }
        let mut dice = Dice::new(3);
        let field = schema.field_with_name("id").unwrap();
        let edit =
            ColumnEdit { column: "id".to_owned(), values: values(field, positions.len(), &mut dice), rows: positions.clone() };
        for edits in [
            Edits { deleted: Vec::new(), columns: vec![edit] },
            Edits { deleted: positions.first().into_iter().chain(positions.get(3)).copied().collect(), columns: Vec::new() },
        ] {
            match file.splice(&edits, &settings(&spec), None).await {
                // What was made can be opened again.
                Ok(spliced) => {
                    for made in spliced.files {
                        open(&bytes_of(&made)).await.unwrap();
                    }
                }
                Err(e) => note(e.kind()),
            }
        }
        assert!(began.elapsed() < PATIENCE, "it took {:?}", began.elapsed());
        outcome
    })
}

#[test]
fn a_whole_file_passes_so_that_what_fails_below_fails_for_its_damage() {
    let schema = arrow_schema(&spec());
    let bytes = source(&schema, Compression::SNAPPY, WriterVersion::PARQUET_1_0);
    // Only the nested column cannot be looked through.
    assert_eq!(exercise(&bytes), Err(Kind::Unsupported));
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let schema = arrow_schema(&spec());
    let bytes = source(&schema, Compression::SNAPPY, WriterVersion::PARQUET_1_0);
    for cut in (0..bytes.len()).step_by(97).chain(0..20).chain(bytes.len() - 200..bytes.len()) {
        assert_eq!(exercise(&bytes.slice(..cut)), Err(Kind::Corrupt), "cut at {cut}");
        // The end without the beginning: the footer is whole, what it speaks of is not there.
        if cut > 0 {
            exercise(&bytes.slice(cut..)).expect_err("its beginning is not there");
        }
    }
}

#[test]
fn the_header_of_a_page_with_any_bit_flipped_is_read_or_an_error() {
    let schema = arrow_schema(&spec());
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let bytes = source(&schema, Compression::SNAPPY, version);
        let metadata = footer(&bytes);
        // A column of text and one of lists, whose levels a reader counts through page by page.
        for leaf in ["id", "tags.list.element"] {
            let group = metadata.row_group(0).columns();
            let chunk = group.iter().find(|c| c.column_path().string() == leaf).unwrap();
            let start = usize::try_from(chunk.data_page_offset()).unwrap();
            for at in start..start + 24 {
                for bit in 0..8 {
                    let mut bytes = bytes.to_vec();
                    bytes[at] ^= 1 << bit;
                    let _ = exercise(&bytes.into());
                }
            }
        }
    }
}

fn make() -> impl Strategy<Value = (Compression, WriterVersion)> {
    let compression = prop_oneof![
        Just(Compression::UNCOMPRESSED),
        Just(Compression::SNAPPY),
        Just(Compression::ZSTD(parquet::basic::ZstdLevel::default())),
        Just(Compression::GZIP(parquet::basic::GzipLevel::default())),
        Just(Compression::LZ4_RAW),
        Just(Compression::LZ4),
        Just(Compression::BROTLI(parquet::basic::BrotliLevel::default())),
    ];
    (compression, prop_oneof![Just(WriterVersion::PARQUET_1_0), Just(WriterVersion::PARQUET_2_0)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn a_file_with_flipped_bits_is_read_or_an_error(
        (compression, version) in make(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..4),
        near_the_end in any::<bool>(),
    ) {
        let schema = arrow_schema(&spec());
        let mut bytes = source(&schema, compression, version).to_vec();
        // Half of them in the footer and the indexes, which are most of such a small file's structure.
        let footer = bytes.len() - 4000;
        for (at, bit) in flips {
            let at = if near_the_end { footer + at.index(bytes.len() - footer) } else { at.index(bytes.len()) };
            bytes[at] ^= 1 << bit;
        }
        let _ = exercise(&bytes.into());
    }

    #[test]
    fn bytes_that_are_no_file_are_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..2000), framed in any::<bool>()) {
        if framed {
            let footer = u32::try_from(bytes.len()).unwrap();
            bytes.extend(footer.to_le_bytes());
            bytes.extend(b"PAR1");
        }
        prop_assert!(exercise(&bytes.into()).is_err());
    }
}
