//! Taken files against a plain map, segments against their golden file.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::chain::BatchNumber;
use crate::error::Kind;

/// Made by `tests/golden/taken-segment-v1.py`, which shares no code with this crate.
const GOLDEN: &[u8] = include_bytes!("../../tests/golden/taken-segment-v1.taken");
const GOLDEN_NAMES: [(&str, u64); 5] =
    [("2026/01/02/a.json.gz", 1), ("a b.json", 0x0102_0304_0506_0708), ("ünïcode/100%.csv", u64::MAX), ("x#1.json", 0), ("", 42)];

fn span(from: u64, to: u64) -> BatchSpan {
    BatchSpan::new(BatchNumber(from), BatchNumber(to)).unwrap()
}

fn taken(names: &[(&str, u64)]) -> TakenFiles {
    let mut taken = TakenFiles::new();
    taken.insert_batch(names.iter().map(|(path, stamp)| (*path, FileStamp(*stamp))));
    taken
}

#[test]
fn the_golden_segment_reads_and_is_written_byte_for_byte() {
    let segment = decode_segment(GOLDEN).unwrap();
    assert_eq!((segment.span(), segment.names()), (span(16, 48), 5));
    assert_eq!(names_in_segment_of(GOLDEN.len() as u64), Some(5));
    let mut read = TakenFiles::new();
    read.absorb(segment);
    for (path, stamp) in GOLDEN_NAMES {
        assert_eq!(read.get(path), Some(FileStamp(stamp)), "{path:?}");
    }
    assert_eq!(read.get("a"), None);
    assert_eq!(encode_segment(&taken(&GOLDEN_NAMES).into_segment(span(16, 48))), GOLDEN);
}

#[test]
fn a_segment_with_any_bit_flipped_or_any_byte_missing_is_refused() {
    for at in 0..GOLDEN.len() * 8 {
        let mut bytes = GOLDEN.to_vec();
        bytes[at / 8] ^= 1 << (at % 8);
        let kind = decode_segment(&bytes).unwrap_err().kind();
        // A flip in the format's number makes it another format.
        let expected = if (64..96).contains(&at) && at != 88 { Kind::Unsupported } else { Kind::Corrupt };
        assert_eq!(kind, expected, "bit {at}");
    }
    for length in 0..GOLDEN.len() {
        assert_eq!(decode_segment(&GOLDEN[..length]).unwrap_err().kind(), Kind::Corrupt, "{length} bytes");
    }
    let longer = [GOLDEN, &[0]].concat();
    assert_eq!(decode_segment(&longer).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn a_segment_of_a_newer_format_is_unsupported_whatever_follows() {
    let mut bytes = GOLDEN.to_vec();
    bytes[11] = 2;
    bytes.truncate(50);
    let error = decode_segment(&bytes).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.message().contains("format 2"), "{error}");
}

#[test]
fn an_empty_segment_reads_back() {
    let bytes = encode_segment(&TakenFiles::new().into_segment(span(0, 16)));
    assert_eq!(bytes.len(), 44);
    let segment = decode_segment(&bytes).unwrap();
    assert_eq!((segment.span(), segment.names()), (span(0, 16), 0));
    let mut taken = TakenFiles::new();
    taken.absorb(segment);
    assert!(taken.is_empty());
}

#[test]
fn a_million_names_in_batches_keep_to_24_bytes_and_a_half_each() {
    let mut taken = TakenFiles::new();
    for batch in 0..1000 {
        taken.insert_batch((0..1000).map(|i| (format!("{batch}/{i}.json"), FileStamp(batch * 1000 + i))));
    }
    assert_eq!(taken.len(), 1_000_000);
    assert!(taken.memory_bytes() < 24_500_000 + 1000, "{}", taken.memory_bytes());
    for i in (0..1_000_000).step_by(997) {
        assert_eq!(taken.get(&format!("{}/{}.json", i / 1000, i % 1000)), Some(FileStamp(i)));
        assert_eq!(taken.get(&format!("{}/{}.csv", i / 1000, i % 1000)), None);
    }
}

proptest! {
    #[test]
    fn any_batches_and_segments_answer_as_a_map_does(
        batches in proptest::collection::vec((any::<bool>(), proptest::collection::vec((0u16..600, any::<u64>()), 0..200)), 0..20),
    ) {
        let mut oracle: HashMap<String, FileStamp> = HashMap::new();
        let mut files = TakenFiles::new();
        for (number, (stored, batch)) in batches.into_iter().enumerate() {
            let batch: Vec<(String, FileStamp)> = batch.into_iter().map(|(n, s)| (format!("d/{n}"), FileStamp(s))).collect();
            oracle.extend(batch.iter().cloned());
            if stored {
                let mut part = TakenFiles::new();
                part.insert_batch(batch);
                let bytes = encode_segment(&part.into_segment(span(number as u64, number as u64 + 1)));
                files.absorb(decode_segment(&bytes).unwrap());
            } else {
                files.insert_batch(batch);
            }
        }
        prop_assert_eq!(files.len(), oracle.len());
        for n in 0..600 {
            let path = format!("d/{n}");
            prop_assert_eq!(files.get(&path), oracle.get(&path).copied());
        }
        let mut whole = TakenFiles::new();
        whole.absorb(decode_segment(&encode_segment(&files.into_segment(span(0, 20)))).unwrap());
        prop_assert_eq!(whole.len(), oracle.len());
        for (path, stamp) in &oracle {
            prop_assert_eq!(whole.get(path), Some(*stamp));
        }
    }
}
