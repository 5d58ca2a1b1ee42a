//! What is taken, and as what.

use std::collections::{BTreeMap, BTreeSet};

use super::{read, with};
use crate::dataset::DatasetName;
use crate::request::{Delete, Id, JsonText, Op, OrderKey, Request, Scope, Subject};

/// 2026-01-02T03:04:05Z.
const TIME: i64 = 1_767_323_045_000_000;

fn op(members: &str) -> Op {
    read(&with(members)).unwrap().op
}

fn delete(scope: Scope, privacy: bool) -> Op {
    Op::Delete(Delete { scope, until: None, privacy })
}

fn subject(field: &str, id: &str) -> Subject {
    Subject { field: field.to_owned(), id: Id::new(id) }
}

#[test]
fn a_convert_is_read_whole() {
    let json = with(r#""dataset":"call","op":"convert","field":"lead","from":"00Q1","to":"0031""#);
    let want = Request {
        id: "r1".to_owned(),
        org: "17".to_owned(),
        dataset: Some(DatasetName("call".to_owned())),
        execution_time: TIME,
        op: Op::Convert { field: "lead".to_owned(), from: Id::new("00Q1"), to: Id::new("0031") },
    };
    assert_eq!(read(&json).unwrap(), want);
}

#[test]
fn deletes_of_each_scope_are_read_with_their_privacy() {
    let one = BTreeSet::from([subject("lead", "a")]);
    assert_eq!(op(r#""op":"delete","scope":"subject","field":"lead","id":"a""#), delete(Scope::Subject(one.clone()), true));
    assert_eq!(
        op(r#""op":"delete","scope":"subject","subjects":[{"id":"a","field":"lead"}]"#),
        delete(Scope::Subject(one), true)
    );
    let two = BTreeSet::from([subject("lead", "a"), subject("cadence", "c")]);
    let json = r#""op":"delete","scope":"subject","subjects":[{"field":"lead","id":"a"},{"field":"cadence","id":"c"},{"field":"lead","id":"a"}]"#;
    assert_eq!(op(json), delete(Scope::Subject(two), true));
    assert_eq!(op(r#""op":"delete","scope":"org""#), delete(Scope::Org, true));
    assert_eq!(op(r#""op":"delete","scope":"record","id":"e1""#), delete(Scope::Record(Id::new("e1")), false));
    let before = Scope::Before(1_735_689_600_000_000); // 2025-01-01
    assert_eq!(op(r#""op":"delete","scope":"before","before":"2025-01-01""#), delete(before.clone(), false));
    assert_eq!(op(r#""op":"delete","scope":"before","before":"2025-01-01T01:00:00+01:00","privacy":true"#), delete(before, true));
    let until = Op::Delete(Delete { scope: Scope::Org, until: Some(TIME + 1), privacy: false });
    let json = r#""op":"delete","scope":"org","until":"2026-01-02 03:04:05.000001","privacy":false,"follow":false,"redact":null"#;
    assert_eq!(op(json), until);
}

#[test]
fn a_delete_reaches_up_to_the_earlier_of_its_bounds() {
    let last = |json: &str| read(&with(json)).unwrap().last_event_time();
    assert_eq!(last(r#""op":"delete","scope":"org""#), Some(TIME));
    assert_eq!(last(r#""op":"delete","scope":"org","until":"1970-01-01""#), Some(0));
    assert_eq!(last(r#""op":"delete","scope":"before","before":"1970-01-01""#), Some(-1));
    assert_eq!(last(r#""op":"delete","scope":"before","before":"9999-01-01""#), Some(TIME));
    assert_eq!(last(r#""op":"update","field":"lead","id":"a","set":{"name":1}"#), Some(TIME));
    assert_eq!(last(r#""op":"convert","field":"lead","from":"a","to":"b""#), None);
}

#[test]
fn values_of_an_update_keep_their_digits_and_lose_their_spelling() {
    let json = r#""op":"update","field":"lead","id":"a","set":{"name": {"b" : 1.50, "a":["\u0041\/", 12345678901234567890123] }, "size":null}"#;
    let set = BTreeMap::from([
        ("name".to_owned(), JsonText::read(r#"{"a":["A/",12345678901234567890123],"b":1.50}"#).unwrap()),
        ("size".to_owned(), JsonText::null()),
    ]);
    let Op::Update { set: read, .. } = op(json) else { panic!("not an update") };
    assert_eq!(read["name"].as_str(), r#"{"a":["A/",12345678901234567890123],"b":1.50}"#);
    assert_eq!(read, set);
}

#[test]
fn ids_given_as_numbers_are_taken_as_written_and_integers_in_one_spelling() {
    let from_to = |json: &str| match op(json) {
        Op::Convert { from, to, .. } => (from.as_str().to_owned(), to.as_str().to_owned()),
        other => panic!("{other:?}"),
    };
    // A text column: as written.
    assert_eq!(from_to(r#""op":"convert","field":"lead","from":7,"to":7.0"#), ("7".to_owned(), "7.0".to_owned()));
    // Integers in both datasets; only the long of one holds 40000.
    assert_eq!(from_to(r#""op":"convert","field":"account","from":"-0","to":"40000.00""#), ("0".to_owned(), "40000".to_owned()));
}

#[test]
fn an_organisation_is_put_into_digits_only_where_all_its_columns_are_integers() {
    let org = |org: &str, dataset: &str| {
        let json = format!(
            r#"{{"request_id":"r","org_id":{org},"dataset":{dataset},"op":"delete","scope":"org","execution_time":"2026-01-01"}}"#
        );
        read(&json).unwrap().org
    };
    assert_eq!(org(r#""17.0""#, r#""page""#), "17");
    assert_eq!(org("17.0", "null"), "17.0");
    assert_eq!(org(r#""0x""#, r#""call""#), "0x");
}

#[test]
fn requests_are_ordered_by_time_and_then_by_the_bytes_of_their_ids() {
    let key = |execution_time, request_id| OrderKey { execution_time, request_id };
    let mut keys = [key(2, "a"), key(1, "b"), key(1, "B"), key(1, "ä"), key(1, "b1")];
    keys.sort();
    assert_eq!(keys, [key(1, "B"), key(1, "b"), key(1, "b1"), key(1, "ä"), key(2, "a")]);
}

#[test]
fn ids_and_values_do_not_show_in_debug_output() {
    let request = read(&with(r#""op":"update","field":"lead","id":"jane@example.org","set":{"name":"Jane"}"#)).unwrap();
    let shown = format!("{request:?}");
    assert!(!shown.contains("jane") && !shown.contains("Jane"), "{shown}");
    assert!(shown.contains("id#") && shown.contains("json#"), "{shown}");
}
