//! Fates worked out by hand.

use super::*;
use crate::ledger::RowGroup;

/// The fates of requests that came in one batch.
fn fates(lines: &[&str]) -> Vec<String> {
    told(&ledger(lines), 1)
}

#[test]
fn a_chain_leads_from_each_id_to_the_end() {
    let lines = ["1 r1 10 convert lead a b", "1 r2 20 convert lead b c", "1 r3 30 convert lead c d"];
    assert_eq!(fates(&lines), ["lead a: * d", "lead b: * d", "lead c: * d"]);
}

#[test]
fn a_chain_told_backwards_leads_one_step() {
    let lines = ["1 r1 30 convert lead a b", "1 r2 20 convert lead b c", "1 r3 10 convert lead c d"];
    assert_eq!(fates(&lines), ["lead a: * b", "lead b: * c", "lead c: * d"]);
}

#[test]
fn a_cycle_comes_back_and_says_nothing_of_who_does() {
    // a goes to b and comes back; b goes to a only where it stood before.
    assert_eq!(fates(&["1 r1 10 convert lead a b", "1 r2 20 convert lead b a"]), ["lead b: * a"]);
}

#[test]
fn equal_times_are_ordered_by_the_ids_of_requests() {
    assert_eq!(fates(&["1 r2 10 convert lead b c", "1 r1 10 convert lead a b"]), ["lead a: * c", "lead b: * c"]);
    assert_eq!(fates(&["1 r1 10 convert lead b c", "1 r2 10 convert lead a b"]), ["lead a: * b", "lead b: * c"]);
}

#[test]
fn a_delete_reaches_those_who_were_converted_before_it_up_to_its_time() {
    let lines = ["1 r1 10 convert lead a b", "1 r2 20 erase lead b", "1 r3 30 convert lead x b"];
    assert_eq!(fates(&lines), ["lead a: 20 erased; * same", "lead b: 20 erased; * same"]);
}

#[test]
fn rows_newer_than_an_erasure_for_privacy_keep_their_ids_where_they_would_be_led_to_one_that_is_purged() {
    // b is purged, and a, which had become b by then; y comes to b through x later, and z goes on to c.
    let lines = [
        "1 r1 10 convert lead a b",
        "1 r2 20 erase lead b",
        "1 r3 30 convert lead x b",
        "1 r4 25 convert lead y x",
        "1 r5 40 convert lead z a",
        "1 r6 50 convert lead a c",
    ];
    let wanted = ["lead a: 20 erased; * same", "lead b: 20 erased; * same", "lead z: * c"];
    assert_eq!(fates(&lines), wanted);
    // Of one that is no erasure for privacy nothing is purged.
    let plain: Vec<String> = lines.iter().map(|line| line.replace("erase lead b", "erase lead b keep")).collect();
    let plain: Vec<&str> = plain.iter().map(String::as_str).collect();
    let wanted = ["lead a: 20 erased; * b", "lead b: 20 erased; * same", "lead x: * b", "lead y: * b", "lead z: * c"];
    assert_eq!(fates(&plain), wanted);
}

#[test]
fn what_was_purged_at_a_position_is_purged_at_every_later_one() {
    // At the first position a was one with b when b was erased; a request that comes later says that it was not.
    let lines = ["1 r1 10 convert lead a b", "1 r2 20 erase lead b", "2 r0 5 convert lead a c", "2 r3 30 convert lead x a"];
    assert_eq!(told(&ledger(&lines), 2), ["lead a: 20 erased; * c", "lead b: 20 erased; * same"]);
}

#[test]
fn until_takes_the_place_of_the_execution_time_before_and_after_it() {
    assert_eq!(fates(&["1 r1 20 erase lead a until 5"]), ["lead a: 5 erased; * same"]);
    assert_eq!(fates(&["1 r1 20 erase lead a until 50"]), ["lead a: 50 erased; * same"]);
    let lines = ["1 r1 20 erase user a until 50", "1 r2 30 erase user a"];
    assert_eq!(fates(&lines), ["user a: 50 null ip=null@r1; * same"]);
}

#[test]
fn an_update_holds_for_events_up_to_its_time_and_the_latest_wins() {
    let lines = ["1 r1 10 set lead a note 1", "1 r2 20 set lead a note 2", "1 r3 15 set lead a size 9"];
    assert_eq!(fates(&lines), ["lead a: 15 same note=2@r2 size=9@r3; 20 same note=2@r2; * same"]);
}

#[test]
fn updates_follow_the_id_they_were_meant_for() {
    let lines =
        ["1 r1 10 set lead a note 1", "1 r2 20 convert lead a b", "1 r3 30 set lead b size 3", "1 r4 40 set lead a note 4"];
    assert_eq!(fates(&lines), ["lead a: 10 b note=1@r1 size=3@r3; 30 b size=3@r3; * b", "lead b: 30 same size=3@r3; * same"]);
}

#[test]
fn a_cleared_id_is_null_and_takes_no_more_requests() {
    let lines = [
        "1 r1 10 set user a ip 1",
        "1 r2 11 set user a note 2",
        "1 r3 20 erase user a",
        "1 r4 30 convert user a b",
        "1 r5 40 set user b note 5",
    ];
    assert_eq!(
        fates(&lines),
        [
            // Up to 10 the update of ip is cleared over; up to 20 the id is null; later events go on to b.
            "user a: 11 null ip=null@r3 note=2@r2; 20 null ip=null@r3; 40 b note=5@r5; * b",
            "user b: 40 same note=5@r5; * same",
        ]
    );
}

#[test]
fn the_organisation_and_records_are_erased_up_to_the_greatest_bound() {
    let lines = ["1 r1 10 org", "1 r2 20 record k", "1 r3 5 record k", "1 r4 50 before 30", "1 r5 12 before 40"];
    // before 30 at 50 reaches up to one microsecond before 30, before 40 at 12 up to 12.
    assert_eq!(fates(&lines), ["org: 29999999us erased; * same", "record k: 20 erased; * same"]);
}

#[test]
fn what_was_erased_stays_erased_when_the_convert_away_comes_late() {
    let early = ledger(&["2 r1 10 convert lead a b", "1 r2 20 erase lead a"]);
    assert_eq!(told(&early, 1), ["lead a: 20 erased; * same"]);
    assert_eq!(told(&early, 2), ["lead a: 20 erased; * b"]);
    assert_eq!(early.late(BatchNumber(2)), [true, false]);
    let together = ledger(&["1 r1 10 convert lead a b", "1 r2 20 erase lead a"]);
    // In one batch nothing was final: a is b when the delete comes, which hits nobody.
    assert_eq!(told(&together, 1), ["lead a: * b"]);
    assert_eq!(together.late(BatchNumber(1)), [false, false]);
}

#[test]
fn what_was_cleared_stays_cleared_and_only_what_is_later_than_the_clearing_is_set() {
    let lines = [
        "1 r4 20 erase user a",
        "2 r1 10 convert user a b",
        "2 r2 15 set user b ip 1",
        "2 r3 15 set user b note 1",
        "2 r5 25 set user b ip 2",
    ];
    let ledger = ledger(&lines);
    assert_eq!(told(&ledger, 1), ["user a: 20 null ip=null@r4; * same"]);
    assert_eq!(
        told(&ledger, 2),
        [
            "user a: 15 null ip=2@r5 note=1@r3; 20 null ip=2@r5; 25 b ip=2@r5; * b",
            "user b: 15 same ip=2@r5 note=1@r3; 25 same ip=2@r5; * same",
        ]
    );
}

#[test]
fn the_latest_clearing_of_any_position_is_the_one_that_counts() {
    let lines = ["1 r4 40 erase user a", "2 r2 20 erase user a"];
    assert_eq!(told(&ledger(&lines), 2), ["user a: 40 null ip=null@r4; * same"]);
    let together = lines.map(|line| line.replace("2 r2", "1 r2"));
    let together: Vec<&str> = together.iter().map(String::as_str).collect();
    assert_eq!(fates(&together), ["user a: 20 null ip=null@r2; 40 null ip=null@r4; * same"]);
}

#[test]
fn the_latest_clearing_counts_also_when_a_position_between_had_an_earlier_one() {
    let lines = ["1 r4 40 erase user a", "2 r2 20 erase user a", "3 r1 10 set user a note 1"];
    assert_eq!(told(&ledger(&lines), 3), ["user a: 10 null ip=null@r4 note=1@r1; 40 null ip=null@r4; * same"]);
}

#[test]
fn an_update_reaches_every_piece_that_begins_before_its_bound() {
    let lines = ["1 r1 15 set user a note 1", "1 r2 20 erase user a until 3", "1 r3 30 erase user a"];
    let want = "user a: 3 null ip=null@r2 note=1@r1; 15 null ip=null@r3 note=1@r1; 30 null ip=null@r3; * same";
    assert_eq!(fates(&lines), [want]);
}

#[test]
fn a_second_look_back_is_needed_where_a_late_request_is_itself_undone() {
    // a was erased by d1 in batch 1. r1 (batch 2) moves it to b before d1, r0 (batch 3) to c before that: a is erased, b too since
    // batch 2 only by its own.
    let lines = ["1 d1 30 erase lead a", "2 r1 20 convert lead a b", "2 d2 40 erase lead b", "3 r0 10 convert lead a c"];
    let ledger = ledger(&lines);
    assert_eq!(told(&ledger, 2), ["lead a: 40 erased; * same", "lead b: 40 erased; * same"]);
    assert_eq!(told(&ledger, 3), ["lead a: 40 erased; * c", "lead b: 40 erased; * same"]);
    assert_eq!(ledger.late(BatchNumber(3)), [true, true, false, false]);
}

#[test]
fn a_later_position_that_erases_less_takes_nothing_back() {
    let lines = ["1 d1 30 erase lead a", "2 r1 20 convert lead a b", "2 d2 25 erase lead b", "3 r0 10 convert lead a c"];
    assert_eq!(told(&ledger(&lines), 3), ["lead a: 30 erased; * c", "lead b: 25 erased; * same"]);
}

#[test]
fn changes_tell_only_nodes_whose_fate_is_another() {
    let lines = ["1 r1 10 convert lead a b", "1 r2 10 convert lead x y", "2 r3 20 convert lead b a", "2 r4 30 org"];
    let mut changes = Vec::new();
    ledger(&lines).changed(BatchNumber(1), BatchNumber(2), &mut |change| {
        let shown = |fate: Option<&Fate>| fate.map_or("-".to_owned(), pieces);
        changes.push(format!("{}: {} -> {}", name(change.node), shown(change.old), shown(change.new)));
    });
    changes.sort();
    assert_eq!(changes, ["lead a: * b -> -", "lead b: - -> * a", "org: - -> 30 erased; * same"]);
}

#[test]
fn requests_that_do_not_count_are_passed_over() {
    let datasets = Project::parse(PROJECT, &|_| None).unwrap().datasets;
    let shape = Arc::new(Shape::of(&datasets[0]));
    let mut builder = LedgerBuilder::new(shape.clone());
    let stored = |rest: &str| {
        let json = format!(r#"{{"format":1,"request_id":"r","org_id":"O","execution_time":"1970-01-01",{rest}}}"#);
        crate::request::Request::from_json(&json).unwrap()
    };
    for rest in [
        r#""dataset":"page","op":"delete","scope":"org""#,
        r#""op":"convert","field":"gone","from":"a","to":"b""#,
        r#""op":"delete","scope":"subject","field":"gone","id":"a""#,
        r#""op":"update","field":"lead","id":"a","set":{"gone":1,"user":2,"call_id":3,"at":4,"org_id":5}"#,
    ] {
        assert!(!builder.push(&stored(rest), BatchNumber(1)), "{rest}");
        assert_eq!(shape.nodes(&stored(rest)), [], "{rest}");
    }
    let partly = stored(r#""op":"update","field":"lead","id":"a","set":{"gone":1,"note":2}"#);
    assert!(builder.push(&partly, BatchNumber(1)));
    assert_eq!(shape.nodes(&partly), [Node::Id { field: "lead", id: "a" }]);
    let convert = stored(r#""op":"convert","field":"lead","from":"a","to":"b""#);
    assert_eq!(shape.nodes(&convert), ["a", "b"].map(|id| Node::Id { field: "lead", id }));
    let subjects = r#""op":"delete","scope":"subject","subjects":[{"field":"gone","id":"a"},{"field":"user","id":"b"}]"#;
    assert_eq!(shape.nodes(&stored(subjects)), [Node::Id { field: "user", id: "b" }]);
    assert_eq!(shape.nodes(&stored(r#""op":"delete","scope":"record","id":"k""#)), [Node::Record("k")]);
    assert_eq!(shape.nodes(&stored(r#""op":"delete","scope":"before","before":"2026-01-01""#)), [Node::Org]);
    assert_eq!(told(&builder.build(), 1), ["lead a: 0 same note=2@r; * same"]);
}

#[test]
fn requests_count_the_rows_they_matched_on_the_way() {
    let lines = [
        "1 r1 10 convert lead a b",
        "1 r2 20 convert lead c b",
        "1 r3 30 set lead b note 1",
        "1 r4 40 erase user u",
        "1 r5 50 erase lead b until 35",
        "1 r6 55 convert lead b z",
        "1 r7 55 record k",
    ];
    let second = 1_000_000;
    let group =
        |ids: &'static [Option<&'static str>], key, time: i64, rows| RowGroup { ids, key, event_time: time * second, rows };
    let rows = [
        group(&[Some("a"), Some("u")], None, 5, 100),
        group(&[Some("c"), None], Some("k"), 32, 20),
        group(&[Some("b"), Some("u")], Some("k"), 36, 3),
    ];
    let matched = ledger(&lines).attribute(BatchNumber(1), rows.into_iter());
    // r3 only reaches the event of 5; r5 takes all but the last, which r6 moves and r7 takes by its key.
    assert_eq!(matched, [100, 20, 100, 103, 120, 3, 3]);
}

#[test]
fn a_storm_of_a_hundred_thousand_chained_converts_ends_in_one_id() {
    const LINKS: u32 = 100_000;
    let datasets = Project::parse(PROJECT, &|_| None).unwrap().datasets;
    let mut builder = LedgerBuilder::new(Arc::new(Shape::of(&datasets[0])));
    for link in 0..LINKS {
        let op = crate::request::Op::Convert {
            field: "lead".to_owned(),
            from: Id::new(&format!("l{link}")),
            to: Id::new(&format!("l{}", link + 1)),
        };
        let request = crate::request::Request {
            id: format!("{link}"),
            org: "O".to_owned(),
            dataset: None,
            execution_time: link.into(),
            op,
        };
        builder.push(&request, BatchNumber(u64::from(LINKS - link)));
    }
    let end = FinalId::Is(Id::new(&format!("l{LINKS}")));
    let mut count = 0;
    builder.build().fold(BatchNumber(u64::MAX), &mut |_, fate| {
        assert_eq!(*fate.at(0), Ending::Live(Live { id: end.clone(), columns: Vec::new() }));
        count += 1;
    });
    assert_eq!(count, LINKS);
}

#[test]
fn a_value_set_to_null_is_a_value() {
    assert_eq!(fates(&["1 r1 10 set lead a note null"]), ["lead a: 10 same note=null@r1; * same"]);
    assert!(JsonText::null().is_null());
}

#[test]
fn an_id_that_converts_made_another_is_renamed_until_one_leads_back_to_it() {
    let lines = [
        "1 r1 10 erase lead a",
        "1 r2 20 convert lead a b",
        "1 r3 21 convert lead b c",
        "1 r4 22 convert lead a d",
        "1 r5 30 erase lead a",
        "1 r6 40 convert lead x a",
        "1 r7 50 set lead a note 1",
        "2 r8 51 convert lead a e",
        "1 r9 52 erase lead a",
        "3 s1 53 erase lead a",
        "1 s2 54 set lead a note 1",
        "1 s3 55 org",
        "1 s4 56 convert lead x y",
    ];
    let ledger = ledger(&lines);
    let requests: Vec<&str> = ledger.requests().map(|request| request.order.request_id).collect();
    let renamed = |position| {
        let renamed = (0..requests.len()).filter_map(|place| Some((place, ledger.renamed(place, BatchNumber(position))?)));
        renamed
            .map(|(place, renamed)| format!("{} {} {}", requests[place], requests[renamed.by], renamed.now))
            .collect::<Vec<_>>()
    };
    // What r9 erased while nothing had led away from x's new id stays so, and so does what it keeps out.
    assert_eq!(renamed(3), ["r4 r2 c", "r5 r2 c", "s1 r8 e", "s2 r8 e", "s4 r6 e"]);
    assert_eq!(renamed(1), ["r4 r2 c", "r5 r2 c", "s4 r6 a"]);
}

#[test]
fn of_several_subjects_all_must_be_renamed() {
    let datasets = Project::parse(PROJECT, &|_| None).unwrap().datasets;
    let read = |json: &str| read_request(json, &datasets, &|_, _| Ok(())).unwrap();
    let convert = |id: &str, field: &str| {
        format!(
            r#"{{"request_id":"{id}","org_id":"O","op":"convert","field":"{field}","from":"a","to":"b","execution_time":"2026-01-01"}}"#
        )
    };
    let erase = r#"{"request_id":"e","org_id":"O","op":"delete","scope":"subject","execution_time":"2026-01-02",
        "subjects":[{"field":"lead","id":"a"},{"field":"user","id":"a"}]}"#;
    for (converts, renamed) in [(&["lead"][..], false), (&["user"], false), (&["lead", "user"], true)] {
        let mut builder = LedgerBuilder::new(Arc::new(Shape::of(&datasets[0])));
        for field in converts {
            builder.push(&read(&convert(field, field)), BatchNumber(1));
        }
        builder.push(&read(erase), BatchNumber(1));
        assert_eq!(builder.build().renamed(converts.len(), BatchNumber(1)).is_some(), renamed, "{converts:?}");
    }
}
