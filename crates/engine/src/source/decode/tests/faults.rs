//! Files that break, stores that fail, records that are too much.

use std::fs;
use std::io::{self, Read, Write as _};

use alluvium_core::{FileCursor, FileFormat};
use bytes::Bytes;

use super::{dataset, decode, record, shared_data};
use crate::source::decode::Decoder;
use crate::source::split::{FileFault, Input, MAX_RECORD_BYTES, Splitter};

fn lines(count: usize) -> String {
    // Numbers that do not compress well, so that half of a compressed file holds many.
    (1..=count as u64).map(|i| record(&format!(r#""x":{}"#, i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1)) + "\n").collect()
}

#[test]
fn of_a_file_cut_off_or_broken_the_records_before_stay() {
    let dataset = dataset(&[("x", "long")]);
    let text = lines(20_000);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    let gzip = encoder.finish().unwrap();
    let zstandard = zstd::encode_all(text.as_bytes(), 1).unwrap();
    for (name, bytes) in [("a.json.gz", gzip), ("a.json.zst", zstandard)] {
        let cut = decode(&dataset, FileFormat::Json, name, bytes[..bytes.len() / 2].to_vec());
        let (at, reason) = cut.fault.clone().unwrap();
        assert_eq!(reason, "the compressed file is cut off");
        assert_eq!((cut.rows.num_rows() as u64, cut.refused.len()), (at, 0), "{name}");
        assert!((1000..20_000).contains(&at), "{name}: {at}");
        let whole = decode(&dataset, FileFormat::Json, name, bytes.clone());
        assert_eq!((whole.rows.num_rows(), whole.fault), (20_000, None));
        assert_eq!(whole.rows.slice(0, cut.rows.num_rows()), cut.rows);

        let mut broken = bytes.clone();
        let middle = broken.len() / 2;
        broken[middle..middle + 64].fill(0xff);
        let broken = decode(&dataset, FileFormat::Json, name, broken);
        let (at, _) = broken.fault.clone().unwrap();
        assert!(at < 20_000 && broken.rows.num_rows() + broken.refused.len() == usize::try_from(at).unwrap());
    }
    for name in ["a.json.gz", "a.json.zst", "a.csv.gz", "a.parquet.gz", "a.avro.zst"] {
        let format = if name.contains("json") {
            FileFormat::Json
        } else if name.contains("csv") {
            FileFormat::Csv
        } else if name.contains("avro") {
            FileFormat::Avro
        } else {
            FileFormat::Parquet
        };
        let outcome = decode(&dataset, format, name, b"this is not compressed at all".to_vec());
        assert_eq!(outcome.fault.map(|f| f.0), Some(0), "{name}");
    }
}

/// The whole lines that another reader gets out of a compressed file up to its fault.
fn whole_lines_before_the_fault(name: &str, bytes: &[u8]) -> u64 {
    let mut reader: Box<dyn Read + '_> = match name {
        "gz" => Box::new(flate2::read::GzDecoder::new(bytes)),
        _ => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
    };
    let mut text = Vec::new();
    let mut byte = [0];
    // A byte at a time: what comes before an error is not lost with it.
    while let Ok(1) = reader.read(&mut byte) {
        text.push(byte[0]);
    }
    text.iter().filter(|b| **b == b'\n').count() as u64
}

#[test]
fn of_a_compressed_text_file_every_whole_record_before_the_fault_stays() {
    let dataset = dataset(&[("x", "long")]);
    let json = lines(20_000);
    let csv: String = "org,at,x\n".to_owned()
        + &(1..=20_000_u64).map(|i| format!("o,2026-01-01,{}\n", i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1)).collect::<String>();
    for (format, text, headers) in [(FileFormat::Json, json, 0), (FileFormat::Csv, csv, 1)] {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        let gzip = encoder.finish().unwrap();
        let zstandard = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for (ending, bytes) in [("gz", gzip), ("zst", zstandard)] {
            for tenths in [3, 5, 9] {
                let cut = &bytes[..bytes.len() * tenths / 10];
                let outcome = decode(&dataset, format, &format!("a.{ending}"), cut.to_vec());
                let (at, _) = outcome.fault.clone().unwrap();
                assert_eq!(at, whole_lines_before_the_fault(ending, cut) - headers, "{format:?} {ending} {tenths}");
                assert_eq!((outcome.rows.num_rows() as u64, outcome.refused.len()), (at, 0), "{format:?} {ending} {tenths}");
                assert!(at > 1000, "{format:?} {ending} {tenths}: {at}");
            }
        }
    }
}

/// Gives its bytes and then fails.
struct Failing(io::Cursor<Vec<u8>>);

impl Read for Failing {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self.0.read(to)? {
            0 => Err(io::Error::other("the network is gone")),
            read => Ok(read),
        }
    }
}

#[test]
fn a_store_that_fails_is_not_the_files_fault() {
    let text = lines(100).into_bytes();
    let zstandard = zstd::encode_all(text.as_slice(), 1).unwrap();
    for (name, bytes) in [("a.json", text), ("a.json.zst", zstandard[..zstandard.len() / 2].to_vec())] {
        let input = Input::Stream(Box::new(Failing(io::Cursor::new(bytes))));
        let read = || -> Result<(), FileFault> {
            let mut splitter = Splitter::open(input, name, FileFormat::Json, FileCursor::default())?;
            while splitter.next_chunk(10, 1000)?.is_some() {}
            Ok(())
        };
        let fault = read().unwrap_err();
        assert!(matches!(&fault, FileFault::Io(e) if e.to_string() == "the network is gone"), "{fault:?}");
    }
}

#[test]
fn a_record_that_is_too_long_is_refused_and_the_next_is_read() {
    let dataset = dataset(&[("x", "long")]);
    let decoder = Decoder::new(&dataset);
    let good = record(r#""x":1"#);
    let (json, csv) = ((FileFormat::Json, "", good.as_str()), (FileFormat::Csv, "org,at,x\n", "o,2026-01-01,1"));
    // With small chunks the record never stands whole in memory, with large ones it does.
    for ((format, header, good), max_bytes) in [(json, 1 << 20), (json, 1 << 30), (csv, 1 << 20), (csv, 1 << 30)] {
        // A quoted field in which a line feed is data.
        let long = format!("{good}\n\"{}\n\"\n{good}\n", "y".repeat(MAX_RECORD_BYTES + 5));
        let long = if format == FileFormat::Json { long.replace("\n\"\n", "\"\n") } else { long };
        let length = long.len() - 2 * (good.len() + 1);
        let text = Bytes::from(format!("{header}{long}"));
        let mut splitter = Splitter::open(Input::Bytes(text), "a", format, FileCursor::default()).ok().unwrap();
        let (mut rows, mut refused) = (0, Vec::new());
        while let Some(chunk) = splitter.next_chunk(1000, max_bytes).ok().unwrap() {
            let decoded = decoder.decode(chunk);
            rows += decoded.rows.num_rows();
            refused.extend(decoded.refused);
        }
        assert_eq!((rows, refused.len(), refused[0].record), (2, 1, 1), "{format:?}");
        assert_eq!(refused[0].raw.len(), MAX_RECORD_BYTES);
        let reason =
            format!("the record has {length} bytes with its line's end, more than 67108864; only the first of them are kept");
        assert_eq!(refused[0].reason, reason);
    }
}

#[test]
fn all_of_wikiticker_is_taken() {
    let Some(folder) = shared_data("wikiticker") else { return };
    let mut dataset =
        dataset(&[("user", "string"), ("delta", "long"), ("isRobot", "boolean"), ("metroCode", "integer"), ("page", "string")]);
    super::from(&mut dataset, "org", "channel");
    super::from(&mut dataset, "at", "time");
    let bytes = fs::read(folder.join("wikiticker.ndjson.gz")).unwrap();
    let outcome = decode(&dataset, FileFormat::Json, "wikiticker.ndjson.gz", bytes);
    assert_eq!(outcome.fault, None);
    assert_eq!(outcome.refusals(), []);
    assert_eq!(outcome.rows.num_rows(), 39_244);
    let channels: std::collections::BTreeSet<_> = outcome.column("org").into_iter().collect();
    assert_eq!(channels.len(), 51);
}
