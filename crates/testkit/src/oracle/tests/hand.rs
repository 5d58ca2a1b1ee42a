//! Chains worked out by hand: oracle and fold must both say what stands here, in every order of arrival, each request in a batch
//! of its own, all in one, and every cut between.

use alluvium_core::{BatchNumber, Fates};

use super::{END, datasets, ledger, request, resolved, row};
use crate::oracle::{Accepted, OracleRow, naive, settled};

/// `SECOND FIELD FROM > TO` converts; `SECOND FIELD ID x` erases; `SECOND FIELD ID COLUMN = VALUE` sets.
fn parse(number: usize, line: &str) -> alluvium_core::Request {
    let words: Vec<&str> = line.split(' ').collect();
    let op = match words[1..] {
        [field, from, ">", to] => format!(r#""op":"convert","field":"{field}","from":"{from}","to":"{to}""#),
        [field, id, "x"] => format!(r#""op":"delete","scope":"subject","field":"{field}","id":"{id}""#),
        [field, id, column, "=", value] => {
            format!(r#""op":"update","field":"{field}","id":"{id}","set":{{"{column}":"{value}"}}"#)
        }
        ref other => panic!("{other:?}"),
    };
    let time = format!("1970-01-01T00:00:{}Z", words[0]);
    request(&format!(r#"{{"request_id":"r{number}","org_id":"O","execution_time":"{time}",{op}}}"#))
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(n - 1) {
        for at in 0..n {
            let mut longer = shorter.clone();
            longer.insert(at, n - 1);
            all.push(longer);
        }
    }
    all
}

/// All ways in which the requests can arrive.
fn arrivals(lines: &[&str]) -> Vec<Vec<Accepted>> {
    let requests: Vec<_> = lines.iter().enumerate().map(|(number, line)| parse(number, line)).collect();
    let mut all = Vec::new();
    for order in permutations(lines.len()) {
        for cuts in 0..1_u32 << (lines.len() - 1) {
            let mut batch = 1;
            let accepted = order.iter().enumerate().map(|(at, number)| {
                batch += u64::from(at > 0 && cuts & 1 << (at - 1) != 0);
                Accepted { request: requests[*number].clone(), batch: BatchNumber(batch) }
            });
            all.push(accepted.collect());
        }
    }
    all
}

fn both(accepted: &[Accepted], row: &OracleRow) -> Option<OracleRow> {
    let call = &datasets()[0];
    let want = settled(call, accepted, BatchNumber(20), row);
    assert_eq!(resolved(call, &Fates::fold(&ledger(call, "O", accepted), END), row), want);
    want
}

/// Rows of these leads, with an event at second 25, end as these leads, however the requests arrive.
fn leads(lines: &[&str], ends: &[(&str, Option<&str>)]) {
    let call = &datasets()[0];
    for accepted in arrivals(lines) {
        let requests: Vec<_> = accepted.iter().map(|a| a.request.clone()).collect();
        for (lead, end) in ends {
            let source = row(call, &[Some(lead), None, None], None, 25_000_000);
            let got = both(&accepted, &source);
            assert_eq!(got, naive(call, &requests, &source));
            assert_eq!(got.as_ref().and_then(|row| row.ids["lead"].as_deref()), *end, "{lead} by {lines:?}");
        }
    }
}

#[test]
fn ten_chains_end_where_a_person_says() {
    // 1: one step.
    leads(&["10 lead a > b"], &[("a", Some("b")), ("b", Some("b")), ("c", Some("c"))]);
    // 2: a chain in its order.
    leads(&["10 lead a > b", "20 lead b > c"], &[("a", Some("c")), ("b", Some("c")), ("c", Some("c"))]);
    // 3: a chain told backwards: when a becomes b, b's step is past.
    leads(&["20 lead a > b", "10 lead b > c"], &[("a", Some("b")), ("b", Some("c"))]);
    // 4: chained merges that meet on the way, C to B while B goes to A.
    leads(&["10 lead c > b", "20 lead b > a"], &[("c", Some("a")), ("b", Some("a")), ("a", Some("a"))]);
    // 5: many to one, then on.
    leads(
        &["10 lead a > d", "11 lead b > d", "12 lead c > d", "20 lead d > e"],
        &[("a", Some("e")), ("b", Some("e")), ("c", Some("e")), ("d", Some("e"))],
    );
    // 6: a cycle of three: who starts at a goes round once, b and c only as far as a.
    leads(&["10 lead a > b", "20 lead b > c", "30 lead c > a"], &[("a", Some("a")), ("b", Some("a")), ("c", Some("a"))]);
    // 7: there and back at one time: r0 before r1.
    leads(&["10 lead a > b", "10 lead b > a"], &[("a", Some("a")), ("b", Some("a"))]);
    // 8: the same id converted twice: the first takes all there is, the second what came to it after.
    leads(&["10 lead a > b", "20 lead x > a", "30 lead a > c"], &[("a", Some("b")), ("x", Some("c")), ("b", Some("b"))]);
    // 9: an id taken over in time: a leaves before b moves in.
    leads(&["10 lead a > c", "20 lead b > a", "30 lead c > b"], &[("a", Some("b")), ("b", Some("a")), ("c", Some("b"))]);
    // 10: an update goes with the id it was meant for, whatever its length of way; events after it are not touched.
    let lines = ["10 lead a > b", "30 lead b note = N", "40 lead b > c"];
    leads(&lines, &[("a", Some("c")), ("b", Some("c")), ("c", Some("c"))]);
    for accepted in arrivals(&lines) {
        let note = |lead, second: i64| {
            let source = row(&datasets()[0], &[Some(lead), None, None], None, second * 1_000_000);
            both(&accepted, &source).map(|row| row.values["note"].clone())
        };
        assert_eq!(note("a", 30).as_deref(), Some("\"N\""));
        assert_eq!(note("a", 31).as_deref(), Some("\"source\""));
        assert_eq!(note("c", 30).as_deref(), Some("\"source\""));
    }
}

#[test]
fn a_delete_takes_what_led_to_it_unless_it_came_before_the_leading() {
    let lines = ["10 lead a > b", "30 lead b x"];
    let call = &datasets()[0];
    let gone = |accepted: &[Accepted], lead| {
        let gone = |second: i64| both(accepted, &row(call, &[Some(lead), None, None], None, second * 1_000_000)).is_none();
        assert!(!gone(31));
        gone(30)
    };
    for accepted in arrivals(&lines) {
        assert!(gone(&accepted, "a") && gone(&accepted, "b") && !gone(&accepted, "c"));
    }
    // The delete of a came; that a had been converted away before came later: a stays away, though the requests alone keep it.
    for accepted in arrivals(&["10 lead a > b", "30 lead a x"]) {
        let delete_came_first =
            accepted.iter().any(|d| d.request.id == "r1" && accepted.iter().any(|c| c.request.id == "r0" && c.batch > d.batch));
        assert_eq!(gone(&accepted, "a"), delete_came_first);
        assert!(!gone(&accepted, "b"));
    }
}

#[test]
fn a_cleared_user_keeps_the_row_and_may_be_named_again_by_another_field() {
    // The user goes at 30 with ip and note; a later update through the lead sets the note again, an earlier one does not.
    let lines = ["30 user u x", "40 lead l note = later", "20 lead l ip = earlier", "50 user u > v"];
    let call = &datasets()[0];
    for accepted in arrivals(&lines) {
        let end = |second: i64| both(&accepted, &row(call, &[Some("l"), Some("u"), None], None, second * 1_000_000)).unwrap();
        let before = end(20);
        assert_eq!(before.ids["user"], None);
        assert_eq!(before.ids["lead"].as_deref(), Some("l"));
        assert_eq!((before.values["ip"].as_str(), before.values["note"].as_str()), ("null", "\"later\""));
        assert_eq!(before.values["size"], "\"source\"");
        // Events after the erasure go on, and to v.
        let after = end(40);
        assert_eq!(after.ids["user"].as_deref(), Some("v"));
        assert_eq!((after.values["ip"].as_str(), after.values["note"].as_str()), ("\"source\"", "\"later\""));
    }
}

#[test]
fn one_request_for_several_fields_erases_by_each_of_them() {
    let json = r#"{"request_id":"r","org_id":"O","execution_time":"1970-01-01T00:00:30Z","op":"delete","scope":"subject","subjects":[{"field":"user","id":"u"},{"field":"device","id":"d"}]}"#;
    let accepted = [Accepted { request: request(json), batch: BatchNumber(1) }];
    let [call, page] = &datasets()[..] else { panic!("two datasets") };
    let end = both(&accepted, &row(call, &[None, Some("u"), Some("d")], None, 0)).unwrap();
    assert_eq!((end.ids["user"].as_ref(), end.ids["device"].as_ref()), (None, None));
    assert!(["ip", "note", "size"].iter().all(|column| end.values[*column] == "null"));
    let fates = Fates::fold(&ledger(page, "O", &accepted), END);
    assert_eq!(resolved(page, &fates, &row(page, &[Some("l"), Some("u")], None, 0)), None);
    assert!(resolved(page, &fates, &row(page, &[Some("u"), None], None, 0)).is_some());
}
