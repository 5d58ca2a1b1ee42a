//! The stored form against its golden files.

use crate::error::Kind;
use crate::request::{REQUEST_FORMAT, Request};

const GOLDEN: &str = include_str!("../../../tests/golden/request-v1.jsonl");
/// Computed by request-v1.py.
const DIGESTS: &str = include_str!("../../../tests/golden/request-v1.digests");

#[test]
fn the_golden_requests_read_and_write_as_they_are() {
    let lines: Vec<&str> = GOLDEN.lines().collect();
    assert_eq!(lines.len(), 7);
    for (line, digest) in lines.into_iter().zip(DIGESTS.lines()) {
        let request = Request::from_json(line).unwrap();
        assert_eq!(request.to_json(), line);
        let hex: String = request.digest().0.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, digest);
    }
}

#[test]
fn another_spelling_of_the_same_request_has_the_same_digest() {
    let plain = GOLDEN.lines().nth(1).unwrap();
    let other = r#" {"format":1, "subjects":null, "op":"delete","scope":"subject","id":"00\u00331","field":"lead_id","org_id":"00D1",
        "execution_time":"2026-01-02 04:04:05.000001+01:00", "request_id":"r2" }"#;
    let (plain, other) = (Request::from_json(plain).unwrap(), Request::from_json(other).unwrap());
    assert_eq!(plain.digest(), other.digest());
    let later = Request { execution_time: plain.execution_time + 1, ..plain.clone() };
    assert_ne!(plain.digest(), later.digest());
}

#[test]
fn a_newer_format_and_damage_are_told_apart() {
    let kind = |text: &str| Request::from_json(text).unwrap_err().kind();
    let first = GOLDEN.lines().next().unwrap();
    assert_eq!(kind(&first.replace("\"format\":1", &format!("\"format\":{}", REQUEST_FORMAT + 1))), Kind::Unsupported);
    for damaged in [
        &first.replace("\"format\":1,", ""),
        &first.replace("\"format\":1", "\"format\":0"),
        &first[1..],
        &first.replace("lead_id", "\\x"),
    ] {
        assert_eq!(kind(damaged), Kind::Corrupt);
    }
}

#[test]
fn the_bytes_of_a_request_read_back_and_no_others_do() {
    for line in GOLDEN.lines() {
        let request = Request::from_json(line).unwrap();
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        assert_eq!(Request::decode(&bytes).unwrap(), request, "{line}");
        for cut in 0..bytes.len() {
            assert_eq!(Request::decode(&bytes[..cut]).unwrap_err().kind(), Kind::Corrupt);
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(Request::decode(&longer).unwrap_err().kind(), Kind::Corrupt);
        // One spelling: whatever reads writes the same again.
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                if let Ok(read) = Request::decode(&other) {
                    let mut again = Vec::new();
                    read.encode(&mut again);
                    assert_eq!(again, other);
                }
            }
        }
    }
}

#[test]
fn the_bytes_of_a_request_are_as_the_format_says() {
    let line = r#"{"format":1,"request_id":"r1","org_id":"o","execution_time":"1970-01-01T00:00:00.000001Z","op":"convert","field":"f","from":"a","to":"b"}"#;
    let mut bytes = Vec::new();
    Request::from_json(line).unwrap().encode(&mut bytes);
    assert_eq!(bytes, *b"\x00\x00\x02r1\x01o\x02\x01f\x01a\x01b");
}
