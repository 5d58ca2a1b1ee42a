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
