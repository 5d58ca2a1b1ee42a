//! However a file is cut into chunks, and wherever reading it goes on, the rows are the same.

use alluvium_core::FileFormat;
use bytes::Bytes;
use proptest::prelude::*;

use super::{Outcome, dataset, decode_cut};
use std::io::Write as _;

fn same(a: &Outcome, b: &Outcome) {
    assert_eq!(a.rows, b.rows);
    assert_eq!(a.refused, b.refused);
    assert_eq!(a.fault, b.fault);
}

fn compressed(name: &str, bytes: &[u8]) -> Bytes {
    if name.ends_with(".gz") {
        // Two members, cut anywhere.
        let (front, back) = bytes.split_at(bytes.len() / 2);
        let member = |part: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap()
        };
        [member(front), member(back)].concat().into()
    } else if name.ends_with(".zst") {
        zstd::encode_all(bytes, 1).unwrap().into()
    } else {
        Bytes::copy_from_slice(bytes)
    }
}

fn json_lines() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        4 => "[a-zäß]{0,12}".prop_map(|x| super::record(&format!(r#""x":"{x}""#))),
        1 => Just(String::new()),
        1 => Just("  ".to_owned()),
        1 => "[\\[\\]{}\",a-z]{1,10}",
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n")];
    (any::<bool>(), proptest::collection::vec((line, end), 0..20), any::<bool>()).prop_map(|(bom, lines, last_end)| {
        let mut text = if bom { "\u{feff}".to_owned() } else { String::new() };
        text.extend(lines.iter().map(|(line, end)| format!("{line}{end}")));
        if last_end { text } else { text.trim_end_matches('\n').to_owned() }
    })
}

fn csv_text() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        3 => "[a-zä ]{0,6}",
        2 => "[a-z\",\n\r]{0,6}".prop_map(|x| format!("\"{}\"", x.replace('"', "\"\""))),
        1 => "[a-z\"\r]{0,4}",
    ];
    let record = prop_oneof![
        5 => field.clone().prop_map(|x| format!("o,2026-01-01,{x}")),
        1 => field.prop_map(|x| format!("o,{x}")),
        1 => Just(String::new()),
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n")];
    proptest::collection::vec((record, end), 0..20).prop_map(|records| {
        let mut text = "org,at,x\r\n".to_owned();
        text.extend(records.iter().map(|(record, end)| format!("{record}{end}")));
        text
    })
}

proptest! {
    #[test]
    fn json_lines_are_the_same_however_cut(
        text in json_lines(),
        max_records in 1_u64..6,
        max_bytes in prop_oneof![1_u64..200, Just(1 << 20)],
        reopen_after in 0_usize..4,
        name in prop_oneof![Just("a.json"), Just("a.json.gz"), Just("a.json.ZST")],
    ) {
        let dataset = dataset(&[("x", "string")]);
        let whole = decode_cut(&dataset, FileFormat::Json, "a", Bytes::from(text.clone()), u64::MAX, u64::MAX, 0);
        let bytes = compressed(&name.to_lowercase(), text.as_bytes());
        same(&whole, &decode_cut(&dataset, FileFormat::Json, name, bytes, max_records, max_bytes, reopen_after));
    }

    #[test]
    fn csv_is_the_same_however_cut(
        text in csv_text(),
        max_records in 1_u64..6,
        max_bytes in prop_oneof![1_u64..200, Just(1 << 20)],
        reopen_after in 0_usize..4,
        name in prop_oneof![Just("a.csv"), Just("a.csv.gz"), Just("a.csv.zst")],
    ) {
        let dataset = dataset(&[("x", "string")]);
        let whole = decode_cut(&dataset, FileFormat::Csv, "a", Bytes::from(text.clone()), u64::MAX, u64::MAX, 0);
        let bytes = compressed(name, text.as_bytes());
        same(&whole, &decode_cut(&dataset, FileFormat::Csv, name, bytes, max_records, max_bytes, reopen_after));
    }
}

#[test]
fn lines_longer_than_a_block_are_read_whole() {
    let dataset = dataset(&[("x", "string")]);
    let long = "y".repeat(300_000);
    let text = [super::record(r#""x":"a""#), super::record(&format!(r#""x":"{long}""#)), super::record(r#""x":"b""#)].join("\n");
    let outcome = decode_cut(&dataset, FileFormat::Json, "a", Bytes::from(text), 10, 100, 1);
    assert_eq!(outcome.column("x"), ["a", long.as_str(), "b"]);
}
