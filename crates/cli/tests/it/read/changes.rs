//! `alluvium changes` and `alluvium consumers`: what a reader downstream is given, and what it may not do.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Tiny, objects};

mod others;

/// A line of input.
fn edit(id: i64, org: &str) -> String {
    format!("{{\"id\":{id},\"orgId\":\"{org}\",\"at\":\"2026-01-02T03:04:05Z\"}}\n")
}

/// What `changes` printed: its rows, and the token of its last line.
struct Given {
    rows: Vec<Value>,
    next: String,
}

impl Given {
    fn ids(&self) -> Vec<i64> {
        self.rows.iter().map(|r| r["id"].as_i64().unwrap()).collect()
    }
}

impl Tiny {
    /// Runs `changes edit` with these arguments, which must end with 0.
    fn changes(&self, args: &[&str]) -> Given {
        let args: Vec<&str> = ["changes", "edit"].into_iter().chain(args.iter().copied()).collect();
        let said = self.run(&args);
        assert_eq!(said.code, 0, "{args:?}: {}", said.stderr);
        let mut rows = objects(&said.stdout);
        let last = rows.pop().unwrap();
        Given { rows, next: last["next"].as_str().unwrap().to_owned() }
    }

    /// As a vacuum writes it: versions before that one are not kept.
    fn floor(&self, table: &str, kept_from: u64) {
        let floor = self.path(&format!("lake/default/_alluvium/floors/{table}"));
        fs::create_dir_all(&floor).unwrap();
        let record = json!({ "format": 1, "kept_from": kept_from, "written_at_ms": 0 });
        fs::write(floor.join("00000000000000000001.json"), record.to_string()).unwrap();
    }

    /// Runs a command that must end with `code`, and says why.
    fn refused(&self, code: i32, args: &[&str]) -> String {
        let said = self.run(args);
        assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{args:?}: {}", said.stderr);
        said.stderr
    }
}

#[test]
fn rows_of_a_batch_are_inserts_with_the_version_and_time_of_their_commit() {
    let tiny = Tiny::with_edits();
    let given = tiny.changes(&["--rows"]);
    assert_eq!(given.ids().into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 3, 9_007_199_254_740_993]));
    let first = given.rows.iter().find(|r| r["id"] == 1).unwrap();
    assert_eq!(first["_change_type"], "insert");
    // Version 0 made the table.
    assert_eq!(first["_commit_version"], 1);
    assert!(first["_commit_timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!((&first["price"], &first["raw_bytes"], &first["tags"]), (&json!("12.50"), &json!("aGk="), &json!(["x", "y"])));
    assert_eq!((&first["_offset"], &first["event_date"]), (&json!(0), &json!("2026-01-02")));
}

#[test]
fn notifications_tell_which_partitions_to_read_again() {
    let tiny = Tiny::with_edits();
    tiny.ingest("visit", "v.json", "{\"org_id\":\"z\",\"at\":\"2026-01-02\"}\n");
    let given = tiny.changes(&[]);
    let told: Vec<Value> = given
        .rows
        .iter()
        .map(|r| json!([r["org_id"], r["event_date"], r["table_name"], r["table_version"], r["inserted"]]))
        .collect();
    assert_eq!(
        told,
        [
            json!(["a", "2026-01-02", "edit", 1, 1]),
            json!(["a", "2026-01-03", "edit", 1, 1]),
            json!(["b", "2026-01-02", "edit", 1, 1])
        ]
    );
    assert!(given.rows[0].get("_change_type").is_none());
    assert!(tiny.changes(&["--since", &given.next]).rows.is_empty());
}

#[test]
fn a_consumer_that_comes_and_goes_over_ten_batches_is_given_each_row_once_in_order() {
    let tiny = Tiny::new();
    let (mut seen, mut versions) = (Vec::new(), Vec::new());
    for batch in 0..10 {
        tiny.ingest("edit", &format!("{batch:02}.json"), &format!("{}{}", edit(batch * 2, "a"), edit(batch * 2 + 1, "b")));
        if batch % 3 == 1 {
            let given = tiny.changes(&["--rows", "--consumer", "copy"]);
            // Not acknowledged yet: the same again.
            assert_eq!(tiny.changes(&["--rows", "--consumer", "copy"]).rows, given.rows);
            seen.extend(given.ids());
            versions.extend(given.rows.iter().map(|r| r["_commit_version"].as_i64().unwrap()));
            tiny.run(&["consumers", "commit", "copy", &given.next]);
        }
        if batch % 3 == 2 {
            let given = tiny.changes(&["--rows", "--consumer", "copy", "--commit"]);
            seen.extend(given.ids());
            versions.extend(given.rows.iter().map(|r| r["_commit_version"].as_i64().unwrap()));
        }
    }
    let last = tiny.changes(&["--rows", "--consumer", "copy", "--commit"]);
    seen.extend(last.ids());
    versions.extend(last.rows.iter().map(|r| r["_commit_version"].as_i64().unwrap()));
    assert!(versions.is_sorted(), "{versions:?}");
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    assert!(tiny.changes(&["--rows", "--consumer", "copy"]).rows.is_empty());
}

#[test]
fn what_is_not_there_yet_is_nothing_and_only_a_consumer_is_written_down() {
    let tiny = Tiny::new();
    let given = tiny.changes(&["--rows"]);
    assert!(given.rows.is_empty() && tiny.changes(&[]).rows.is_empty());
    assert!(!tiny.path("lake").exists());
    assert_eq!(tiny.run(&["consumers", "list"]).code, 0);
    // The beginning stays the beginning.
    tiny.ingest("edit", "a.json", &edit(1, "a"));
    assert_eq!(tiny.changes(&["--rows", "--since", &given.next]).ids(), [1]);
}

#[test]
fn two_readers_with_one_name_do_not_both_advance_it() {
    let tiny = Tiny::with_edits();
    let one = tiny.changes(&["--rows", "--consumer", "copy"]);
    tiny.ingest("edit", "b.json", &edit(7, "a"));
    // Reads on, from where the first one read too.
    let other = tiny.changes(&["--rows", "--consumer", "copy"]);
    assert_eq!(tiny.run(&["consumers", "commit", "copy", &one.next]).code, 0);
    let why = tiny.refused(4, &["consumers", "commit", "copy", &other.next]);
    assert!(why.contains("another reader"), "{why}");
    // Acknowledged again, as after a lost answer.
    assert_eq!(tiny.run(&["consumers", "commit", "copy", &one.next]).code, 0);
    let then = tiny.changes(&["--rows", "--consumer", "copy"]);
    assert_eq!(then.ids(), [7]);
    assert_eq!(tiny.run(&["consumers", "commit", "copy", &then.next]).code, 0);
    tiny.refused(4, &["consumers", "commit", "copy", &one.next]);
}

#[test]
fn two_readers_that_read_to_the_same_place_are_told_apart() {
    let tiny = Tiny::with_edits();
    let [one, other] = [(), ()].map(|()| tiny.changes(&["--rows", "--consumer", "copy"]));
    assert_eq!(one.rows, other.rows);
    assert_eq!(tiny.run(&["consumers", "commit", "copy", &one.next]).code, 0);
    let why = tiny.refused(4, &["consumers", "commit", "copy", &other.next]);
    assert!(why.contains("another reader"), "{why}");
    // Reading on does not make the late one an early one, and the first one goes on.
    tiny.ingest("edit", "b.json", &edit(7, "a"));
    let [one, other] = [one, other].map(|g| tiny.changes(&["--rows", "--consumer", "copy", "--since", &g.next]));
    assert_eq!((one.ids(), other.ids()), (vec![7], vec![7]));
    tiny.refused(4, &["consumers", "commit", "copy", &other.next]);
    assert_eq!(tiny.run(&["consumers", "commit", "copy", &one.next]).code, 0);
}

#[test]
fn of_two_processes_that_go_on_with_one_token_one_advances_the_consumer() {
    let tiny = Tiny::with_edits();
    let first = tiny.changes(&["--rows", "--consumer", "copy", "--commit"]);
    tiny.ingest("edit", "b.json", &edit(7, "a"));
    let on = ["--rows", "--consumer", "copy", "--since", &first.next];
    let [one, other, third] = [(), (), ()].map(|()| tiny.changes(&on));
    assert_eq!([one.ids(), other.ids(), third.ids()], [vec![7], vec![7], vec![7]]);
    assert_eq!(tiny.run(&["consumers", "commit", "copy", &one.next]).code, 0);
    let why = tiny.refused(4, &["consumers", "commit", "copy", &other.next]);
    assert!(why.contains("another reader"), "{why}");
    // Nor by going on without the name, which the token carries.
    let unnamed = tiny.changes(&["--rows", "--since", &third.next]);
    tiny.refused(4, &["consumers", "commit", "copy", &unnamed.next]);
    let commits = tiny.run(&["changes", "edit", "--rows", "--consumer", "copy", "--since", &first.next, "--commit"]);
    assert_eq!(commits.code, 4, "{}", commits.stderr);
    // The one that won goes on.
    tiny.ingest("edit", "c.json", &edit(8, "a"));
    let next = tiny.changes(&["--rows", "--consumer", "copy", "--since", &one.next, "--commit"]);
    assert_eq!(next.ids(), [8]);
    assert!(tiny.changes(&["--rows", "--consumer", "copy"]).rows.is_empty());
}

#[test]
fn a_token_of_a_removed_consumer_is_none_of_a_new_one_with_its_name() {
    let tiny = Tiny::with_edits();
    let before = tiny.changes(&["--rows", "--consumer", "copy"]);
    assert_eq!(tiny.run(&["consumers", "remove", "copy"]).code, 0);
    let now = tiny.changes(&["--rows", "--consumer", "copy"]);
    tiny.refused(4, &["consumers", "commit", "copy", &before.next]);
    assert_eq!(tiny.run(&["consumers", "commit", "copy", &now.next]).code, 0);
}

#[test]
fn a_consumer_that_has_begun_is_never_given_what_stands_unasked() {
    let tiny = Tiny::with_edits();
    // Given, and perhaps used, but not acknowledged.
    assert_eq!(tiny.changes(&["--rows", "--consumer", "copy"]).rows.len(), 3);
    tiny.ingest("edit", "b.json", &edit(7, "a"));
    tiny.floor("edit", 2);
    let why = tiny.refused(3, &["changes", "edit", "--rows", "--consumer", "copy"]);
    assert!(why.contains("alluvium consumers reset copy"), "{why}");
    assert!(tiny.run(&["consumers", "list"]).stdout.contains("must start over"));
    assert_eq!(tiny.changes(&["--rows", "--consumer", "copy", "--snapshot"]).rows.len(), 4);
    // A new one is, once.
    assert_eq!(tiny.changes(&["--rows", "--consumer", "new"]).rows.len(), 4);
    tiny.refused(3, &["changes", "edit", "--rows", "--consumer", "new"]);
    assert_eq!(tiny.run(&["consumers", "reset", "new"]).code, 0);
    assert_eq!(tiny.changes(&["--rows", "--consumer", "new"]).rows.len(), 4);
}

#[test]
fn tokens_that_are_none_or_of_another_place_are_refused() {
    let tiny = Tiny::with_edits();
    let (rows, partitions) = (tiny.changes(&["--rows"]).next, tiny.changes(&[]).next);
    let cut = &rows[..rows.len() - 2];
    for args in [
        &["changes", "edit", "--rows", "--since", "nonsense"][..],
        &["changes", "edit", "--rows", "--since", cut],
        &["changes", "edit", "--rows", "--since", &partitions],
        &["changes", "edit", "--since", &rows],
        &["changes", "visit", "--rows", "--since", &rows],
        &["changes", "nothing"],
        &["changes", "edit", "--commit"],
        &["changes", "edit", "--consumer", "a/b"],
        &["changes", "edit", "--follow", "--to", "x"],
        &["consumers", "commit", "copy", "nonsense"],
    ] {
        tiny.refused(2, args);
    }
    assert_eq!(tiny.run(&["namespace", "delete", "default", "--yes"]).code, 0);
    tiny.ingest("edit", "b.json", &edit(7, "a"));
    let why = tiny.refused(2, &["changes", "edit", "--rows", "--since", &rows]);
    assert!(why.contains("former life"), "{why}");
}

#[test]
fn a_consumer_is_listed_reset_and_removed_by_name() {
    let tiny = Tiny::with_edits();
    let given = tiny.changes(&["--rows", "--consumer", "copy", "--commit"]);
    tiny.ingest("edit", "b.json", &edit(7, "a"));
    for args in [&["consumers", "list", "--output", "json"][..], &["status", "--output", "json"]] {
        let said = tiny.run(args);
        let listed: Vec<Value> = objects(&said.stdout).into_iter().filter(|o| o["kind"] == "consumer").collect();
        assert_eq!(listed.len(), 1, "{}", said.stdout);
        assert_eq!((&listed[0]["consumer"], &listed[0]["dataset"]), (&json!("copy"), &json!("edit")));
        assert_eq!(listed[0]["rows"], json!({ "next_version": 2, "lag_versions": 1, "kept": true }));
        // Version 0 made the table, then two batches.
        assert_eq!(listed[0]["partitions"], json!({ "next_version": 0, "lag_versions": 3, "kept": true }));
    }
    assert!(tiny.run(&["status"]).stdout.contains("copy"));
    assert_eq!(tiny.run(&["consumers", "reset", "copy"]).code, 0);
    assert_eq!(tiny.changes(&["--rows", "--consumer", "copy"]).ids().len(), given.rows.len() + 1);
    assert_eq!(tiny.run(&["consumers", "remove", "copy"]).code, 0);
    for args in [&["reset", "copy"][..], &["remove", "copy"], &["commit", "copy", &given.next]] {
        let args: Vec<&str> = ["consumers"].iter().chain(args).copied().collect();
        tiny.refused(3, &args);
    }
}

#[test]
fn behind_what_is_kept_is_refused_before_the_first_row_and_a_new_reader_is_given_what_stands() {
    let tiny = Tiny::with_edits();
    tiny.changes(&["--rows", "--consumer", "copy", "--commit"]);
    for id in [7, 8] {
        tiny.ingest("edit", &format!("{id}.json"), &edit(id, "a"));
    }
    tiny.floor("edit", 3);
    let why = tiny.refused(3, &["changes", "edit", "--rows", "--consumer", "copy"]);
    assert!(why.contains("alluvium consumers reset copy"), "{why}");
    assert!(tiny.run(&["consumers", "list"]).stdout.contains("must start over"));
    // Notifications have a floor of their own.
    assert_eq!(tiny.changes(&["--consumer", "copy"]).rows.len(), 5);
    let stands = tiny.changes(&["--rows"]);
    assert_eq!(stands.ids().into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 3, 7, 8, 9_007_199_254_740_993]));
    assert!(stands.rows.iter().all(|r| r["_change_type"] == "insert" && r["_commit_version"] == 3));
    assert_eq!(tiny.run(&["consumers", "reset", "copy"]).code, 0);
    assert_eq!(tiny.changes(&["--rows", "--consumer", "copy", "--commit"]).rows.len(), 5);
    assert!(tiny.changes(&["--rows", "--consumer", "copy"]).rows.is_empty());
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let tiny = Tiny::with_edits();
    let token = tiny.changes(&["--rows"]).next;
    for format in ["json", "parquet", "arrow"] {
        let file = tiny.path(format);
        let said = tiny.run(&["changes", "edit", "--rows", "--format", format, "--to", file.to_str().unwrap()]);
        assert_eq!((said.code, said.stdout), (0, format!("{{\"next\":\"{token}\"}}\n")), "{format}: {}", said.stderr);
    }
    let lines = objects(&fs::read_to_string(tiny.path("json")).unwrap());
    assert_eq!((lines.len(), &lines[3]["next"]), (4, &json!(token)));
    let parquet = fs::read(tiny.path("parquet")).unwrap();
    assert_eq!((&parquet[..4], &parquet[parquet.len() - 4..]), (&b"PAR1"[..], &b"PAR1"[..]));
    for data in super::data_files(&tiny.path("lake/default/edit")) {
        fs::write(&data, "damaged").unwrap();
    }
    let file = tiny.path("broken");
    let said = tiny.run(&["changes", "edit", "--rows", "--format", "parquet", "--to", file.to_str().unwrap()]);
    assert_eq!((said.code, said.stdout.as_str()), (8, ""), "{}", said.stderr);
    let left: Vec<_> = fs::read_dir(tiny.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|n| n.to_string_lossy().contains("broken")), "{left:?}");
}

#[test]
fn a_consumer_moves_when_a_file_has_its_name_and_not_when_nobody_reads() {
    let tiny = Tiny::with_edits();
    let args = ["changes", "edit", "--rows", "--consumer", "copy", "--commit"];
    let nobody_reads = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    assert!(tiny.command(&args).stdout(nobody_reads()).status().unwrap().success());
    assert_eq!(tiny.changes(&["--rows", "--consumer", "copy"]).rows.len(), 3);
    let file = tiny.path("out");
    let to_file = tiny.command(&args).args(["--to", file.to_str().unwrap()]).stdout(nobody_reads()).status().unwrap();
    assert!(to_file.success() && file.exists());
    assert!(tiny.changes(&["--rows", "--consumer", "copy"]).rows.is_empty());
}

#[test]
fn what_is_no_regular_file_is_written_to_and_links_are_followed() {
    let tiny = Tiny::with_edits();
    let to = |path: &str| tiny.run(&["changes", "edit", "--rows", "--to", path]);
    assert_eq!(to("/dev/null").code, 0);
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let (link, target) = (tiny.path("link"), tiny.path("target"));
    std::os::unix::fs::symlink("target", &link).unwrap();
    // Nothing is there yet; then there is.
    for _ in 0..2 {
        assert_eq!(to(link.to_str().unwrap()).code, 0);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap().lines().count(), 4);
    }
}

#[test]
fn a_full_disk_is_unavailable_in_every_format() {
    let tiny = Tiny::with_edits();
    if !std::path::Path::new("/dev/full").exists() {
        eprintln!("skipped: a full disk, because there is no /dev/full");
        return;
    }
    for format in ["json", "parquet", "arrow"] {
        let why = tiny.refused(6, &["changes", "edit", "--rows", "--format", format, "--to", "/dev/full"]);
        assert!(why.contains("writing"), "{format}: {why}");
    }
}

#[test]
fn following_prints_what_comes_acknowledges_it_and_ends_cleanly_on_a_signal() {
    let tiny = Tiny::with_edits();
    let mut child = tiny
        .command(&["changes", "edit", "--rows", "--consumer", "copy", "--commit", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut round = || -> Vec<String> {
        let mut some: Vec<String> = Vec::new();
        while !some.last().is_some_and(|line| line.starts_with("{\"next\"")) {
            some.push(lines.next().unwrap());
        }
        some
    };
    assert_eq!(round().len(), 4);
    tiny.ingest("edit", "b.json", &edit(7, "a"));
    let more = round();
    assert!(more.len() == 2 && more[0].starts_with("{\"id\":7,"), "{more:?}");
    // And again: each token of the one reader is good.
    tiny.ingest("edit", "c.json", &edit(8, "a"));
    let more = round();
    assert!(more.len() == 2 && more[0].starts_with("{\"id\":8,"), "{more:?}");
    // Acknowledged soon after its line.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !tiny.changes(&["--rows", "--consumer", "copy"]).rows.is_empty() {
        assert!(Instant::now() < deadline, "not acknowledged");
    }
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn following_ends_when_the_namespace_was_deleted_and_made_again() {
    let tiny = Tiny::with_edits();
    let mut child = tiny.command(&["changes", "edit", "--rows", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    while !lines.next().unwrap().starts_with("{\"next\"") {}
    assert_eq!(tiny.run(&["namespace", "delete", "default", "--yes"]).code, 0);
    tiny.ingest("edit", "b.json", &edit(7, "a"));
    tiny.ingest("edit", "c.json", &edit(8, "a"));
    assert_eq!(child.wait().unwrap().code(), Some(3));
    // Nothing of the new life was given.
    assert_eq!(lines.next(), None);
}

#[test]
fn a_reader_of_a_table_that_was_made_anew_must_start_over() {
    let tiny = Tiny::with_edits();
    let given = tiny.changes(&["--rows", "--consumer", "copy", "--commit"]);
    tiny.ingest("edit", "b.json", &edit(7, "a"));
    let first = tiny.path("lake/default/edit/_delta_log/00000000000000000000.json");
    let id = actions_of(&tiny, 0, "metaData")[0]["id"].as_str().unwrap().to_owned();
    let text = fs::read_to_string(&first).unwrap();
    fs::write(&first, text.replace(&id, "5fba94ed-9794-4965-ba6e-6ee3c0d22af9")).unwrap();
    for from in [["--consumer", "copy"], ["--since", &given.next]] {
        let why = tiny.refused(3, &["changes", "edit", "--rows", from[0], from[1]]);
        assert!(why.contains("made anew"), "{why}");
    }
    assert_eq!(tiny.run(&["consumers", "reset", "copy"]).code, 0);
    assert_eq!(tiny.changes(&["--rows", "--consumer", "copy"]).rows.len(), 4);
}

/// An entry in the log of `edit`, as another program writes it.
fn write_entry(tiny: &Tiny, version: u64, actions: &[Value]) {
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    fs::write(tiny.path(&format!("lake/default/edit/_delta_log/{version:020}.json")), lines.join("\n")).unwrap();
}

/// The actions of a version of `edit` that are of that kind.
fn actions_of(tiny: &Tiny, version: u64, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(tiny.path(&format!("lake/default/edit/_delta_log/{version:020}.json"))).unwrap();
    objects(&text).into_iter().filter_map(|line| line.get(kind).cloned()).collect()
}
