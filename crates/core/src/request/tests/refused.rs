//! What is refused, under which key and with which words.

use super::{read, with};
use crate::request::{MAX_ID_BYTES, MAX_REQUEST_BYTES, MAX_REQUEST_ID_BYTES, MAX_REQUEST_ORG_BYTES, MAX_SUBJECTS};

fn refusal(json: &str) -> (String, String) {
    let refusal = read(json).unwrap_err();
    assert!(refusal.reason.starts_with(|c: char| c.is_lowercase()), "{refusal:?}");
    (refusal.field, refusal.reason)
}

/// Each text is refused under the key, with a reason that holds the words.
fn refused(cases: &[(&str, &str, &str)]) {
    for (json, field, words) in cases {
        let (at, reason) = refusal(json);
        assert_eq!(at, *field, "{json}: {reason}");
        assert!(reason.contains(words), "{json}: {reason}");
    }
}

/// The same, of members behind the ones that all requests have.
fn refused_with(cases: &[(&str, &str, &str)]) {
    for (members, field, words) in cases {
        refused(&[(&with(members), field, words)]);
    }
}

#[test]
fn what_is_no_object_of_known_keys_each_once_is_refused() {
    refused(&[
        ("", "", "not JSON"),
        ("{", "", "not JSON"),
        ("{} {}", "", "not JSON"),
        (r#"{"request_id":"\ud800"}"#, "request_id", "not a string"),
        ("[]", "", "not an object"),
        ("null", "", "not an object"),
        (r#"{"op":"convert","op":"delete"}"#, "", "twice"),
        (r#"{"op":"convert","\u006fp":"delete"}"#, "", "twice"),
        (&format!(r#"{{"x":"{}"}}"#, "y".repeat(MAX_REQUEST_BYTES)), "", "more than 1048576 bytes"),
    ]);
    refused_with(&[
        (r#""op":"delete","scope":"org","frm":"x""#, "frm", "no such key"),
        // What may be an id in a key's place is not shown.
        (r#""op":"delete","scope":"org","jane@example.org":1"#, "", "no such key"),
        (r#""op":"delete","scope":"org","id":"x""#, "id", "does not belong to a delete of an organisation"),
        (r#""op":"convert","field":"lead","from":"a","to":"b","scope":"org""#, "scope", "does not belong to a convert"),
        (
            r#""op":"update","field":"lead","id":"a","set":{"name":1},"until":"2026-01-01""#,
            "until",
            "does not belong to an update",
        ),
    ]);
}

#[test]
fn a_missing_empty_or_overlong_part_is_refused() {
    let long = |bytes: usize| "x".repeat(bytes + 1);
    refused(&[
        (r#"{"org_id":"o"}"#, "request_id", "missing"),
        (r#"{"request_id":"","org_id":"o"}"#, "request_id", "empty"),
        (r#"{"request_id":["a"],"org_id":"o"}"#, "request_id", "not a string"),
        (r#"{"request_id":"a\u0007","org_id":"o"}"#, "request_id", "control character"),
        (&format!(r#"{{"request_id":"{}","org_id":"o"}}"#, long(MAX_REQUEST_ID_BYTES)), "request_id", "more than 256 bytes"),
        (r#"{"request_id":"r"}"#, "org_id", "missing"),
        (r#"{"request_id":"r","org_id":null}"#, "org_id", "missing"),
        (r#"{"request_id":"r","org_id":""}"#, "org_id", "empty"),
        (&format!(r#"{{"request_id":"r","org_id":"{}"}}"#, long(MAX_REQUEST_ORG_BYTES)), "org_id", "more than 1024 bytes"),
        (r#"{"request_id":"r","org_id":"o","op":"delete","scope":"org"}"#, "execution_time", "missing"),
    ]);
    refused_with(&[
        (r#""field":"lead""#, "op", "missing"),
        (r#""op":"convert","from":"a","to":"b""#, "field", "missing"),
        (r#""op":"convert","field":"lead","to":"b""#, "from", "missing"),
        (r#""op":"convert","field":"lead","from":"a","to":"""#, "to", "empty"),
        (r#""op":"convert","field":"lead","from":"a","to":{"x":"b"}"#, "to", "not a string"),
        (&format!(r#""op":"convert","field":"lead","from":"a","to":"{}""#, long(MAX_ID_BYTES)), "to", "more than 8192 bytes"),
        (r#""op":"delete""#, "scope", "missing"),
        (r#""op":"delete","scope":"subject""#, "field", "missing"),
        (r#""op":"delete","scope":"record""#, "id", "missing"),
        (r#""op":"delete","scope":"before""#, "before", "missing"),
        (r#""op":"update","field":"lead","id":"a""#, "set", "missing"),
        (r#""op":"update","field":"lead","id":"a","set":{}"#, "set", "empty"),
    ]);
}

#[test]
fn unknown_words_and_bad_times_are_refused() {
    refused_with(&[
        (r#""op":"Convert""#, "op", "none of convert, delete and update"),
        (r#""op":7"#, "op", "not a string"),
        (r#""op":"delete","scope":"all""#, "scope", "none of subject, org, record and before"),
        (r#""op":"delete","scope":"before","before":"soon""#, "before", "not a time"),
        (r#""op":"delete","scope":"before","before":20250101"#, "before", "not a string"),
        (r#""op":"delete","scope":"org","until":"2026-02-30""#, "until", "not a time"),
        (r#""op":"delete","scope":"org","privacy":"yes""#, "privacy", "neither true nor false"),
        (r#""op":"delete","scope":"org","follow":true"#, "follow", "not built yet"),
        (r#""op":"delete","scope":"org","redact":["x"]"#, "redact", "not built yet"),
    ]);
    for time in ["yesterday", "2026-01-02T03:04:60Z", "2026-01-02T03:04:05.0000001Z", "0000-01-01", "2026-1-2"] {
        let json = format!(r#"{{"request_id":"r","org_id":"o","op":"delete","scope":"org","execution_time":"{time}"}}"#);
        refused(&[(json.as_str(), "execution_time", "execution_time is not a time: ")]);
    }
}

#[test]
fn what_no_declaration_has_is_refused() {
    refused_with(&[
        (r#""dataset":"cal","op":"delete","scope":"org""#, "dataset", "no dataset of that name"),
        (r#""op":"convert","field":"led","from":"a","to":"b""#, "field", "no dataset it is about has the field"),
        (
            r#""dataset":"call","op":"convert","field":"other_id","from":"a","to":"b""#,
            "field",
            "no dataset it is about has the field",
        ),
        (r#""op":"convert","field":"name","from":"a","to":"b""#, "field", "not declared as an identity"),
        (r#""dataset":"page","op":"delete","scope":"record","id":"e1""#, "scope", "no dataset it is about has a key"),
        (
            r#""op":"delete","scope":"subject","subjects":[{"field":"lead","id":"a"},{"field":"size","id":"b"}]"#,
            "subjects",
            "not declared",
        ),
        (r#""op":"update","field":"lead","id":"a","set":{"nam":1}"#, "set", "a column that no dataset it is about has"),
        (r#""op":"update","field":"lead","id":"a","set":{"event_date":"2026-01-01"}"#, "set", "a column that no dataset"),
        (r#""dataset":"call","op":"update","field":"lead","id":"a","set":{"other":1}"#, "set", "a column that no dataset"),
        (r#""op":"update","field":"cadence","id":"a","set":{"other":1}"#, "set", "a column that no dataset"),
    ]);
}

#[test]
fn ids_that_fit_no_column_are_refused() {
    refused_with(&[
        (r#""op":"convert","field":"account","from":"x","to":"1""#, "from", "from does not fit the type long or short"),
        (r#""op":"convert","field":"account","from":"1","to":"1.5""#, "to", "does not fit"),
        (r#""op":"convert","field":"account","from":"+1","to":"2""#, "from", "does not fit"),
        (r#""op":"convert","field":"account","from":"01","to":"2""#, "from", "does not fit"),
        (r#""op":"convert","field":"account","from":"1.","to":"2""#, "from", "does not fit"),
        (r#""dataset":"page","op":"convert","field":"account","from":"32768","to":"2""#, "from", "does not fit the type short"),
        (r#""op":"delete","scope":"subject","field":"account","id":"9223372036854775808""#, "id", "does not fit"),
        (r#""op":"convert","field":"lead","from":"a","to":"a""#, "to", "the same id"),
        (r#""op":"convert","field":"account","from":"7","to":7.0"#, "to", "the same id"),
    ]);
    let org = r#"{"request_id":"r","org_id":"x","dataset":"page","op":"delete","scope":"org","execution_time":"2026-01-01"}"#;
    refused(&[(org, "org_id", "does not fit the type integer")]);
}

#[test]
fn what_an_update_may_not_set_is_refused() {
    for (column, part) in [
        ("org_id", "the organisation"),
        ("org", "the organisation"),
        ("at", "the event time"),
        ("call_id", "the key"),
        ("account", "an identity"),
        ("lead", "an identity"),
        ("cadence", "an identity"),
    ] {
        let members = format!(r#""op":"update","field":"lead","id":"a","set":{{"name":"x","{column}":"y"}}"#);
        refused_with(&[(&members, &format!("set.{column}"), part)]);
    }
    refused_with(&[
        (r#""op":"update","field":"lead","id":"a","set":{"note":null}"#, "set.note", "nullable: false"),
        // A string in one dataset, a long in the other: it must fit both.
        (
            r#""op":"update","field":"lead","id":"a","set":{"size":"big"}"#,
            "set.size",
            "the type long: the text is not exactly a number",
        ),
        (r#""op":"update","field":"lead","id":"a","set":{"name":{"a":1,"a":2}}"#, "set", "a key that stands in it twice"),
        (r#""op":"update","field":"lead","id":"a","set":{"name":1,"name":2}"#, "set", "a column stands in set twice"),
        (r#""op":"update","field":"lead","id":"a","set":["name"]"#, "set", "not an object"),
        (
            &format!(r#""op":"update","field":"lead","id":"a","set":{{"name":{}{}}}"#, "[".repeat(65), "]".repeat(65)),
            "set",
            "too deep",
        ),
    ]);
    assert!(read(&with(r#""dataset":"page","op":"update","field":"lead","id":"a","set":{"size":"big"}"#)).is_ok());
}

#[test]
fn subjects_that_are_no_list_of_field_and_id_are_refused() {
    let many = vec![r#"{"field":"lead","id":"a"}"#; MAX_SUBJECTS + 1].join(",");
    refused_with(&[
        (r#""op":"delete","scope":"subject","subjects":[]"#, "subjects", "empty"),
        (r#""op":"delete","scope":"subject","subjects":{}"#, "subjects", "not an array"),
        (r#""op":"delete","scope":"subject","subjects":["a"]"#, "subjects", "not an object"),
        (r#""op":"delete","scope":"subject","subjects":[{"field":"lead"}]"#, "subjects", "id is missing"),
        (r#""op":"delete","scope":"subject","subjects":[{"field":"lead","id":"a","x":1}]"#, "subjects", "more than field and id"),
        (r#""op":"delete","scope":"subject","subjects":[{"field":"lead","id":"a"}],"id":"b""#, "subjects", "beside field or id"),
        (&format!(r#""op":"delete","scope":"subject","subjects":[{many}]"#), "subjects", "more than 1000 entries"),
    ]);
}

#[test]
fn no_reason_quotes_an_id_or_a_value() {
    let secret = "jane-at-example";
    for members in [
        format!(r#""op":"convert","field":"account","from":"{secret}","to":"1""#),
        format!(r#""op":"convert","field":"{secret}","from":"a","to":"b""#),
        format!(r#""op":"{secret}""#),
        format!(r#""op":"delete","scope":"{secret}""#),
        format!(r#""dataset":"{secret}","op":"delete","scope":"org""#),
        format!(r#""op":"delete","scope":"org","{secret}":1"#),
        format!(r#""op":"delete","scope":"org","until":"{secret}""#),
        format!(r#""op":"update","field":"lead","id":"a","set":{{"size":"{secret}"}}"#),
        format!(r#""op":"update","field":"lead","id":"a","set":{{"{secret}":1}}"#),
    ] {
        let (field, reason) = refusal(&with(&members));
        assert!(!field.contains(secret) && !reason.contains(secret), "{field}: {reason}");
    }
}
