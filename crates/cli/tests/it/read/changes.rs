//! `alluvium changes` and `alluvium consumers`: what a reader downstream is given, and what it may not do.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Tiny, objects};

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

/// The rows of each version, from what a writer printed.
fn versions_in(stdout: Vec<u8>) -> Vec<Vec<Value>> {
    let versions = objects(&String::from_utf8(stdout).unwrap());
    versions.iter().map(|v| v["rows"].as_array().unwrap().clone()).collect()
}

/// Lets deltalake change the table of `edit`; the rows of each version as it sees them. `None`, said so, where there is no Python.
fn changed_by_deltalake(tiny: &Tiny, operations: &[&str]) -> Option<Vec<Vec<Value>>> {
    let Some(python) = std::env::var_os("ALLUVIUM_TEST_PYTHON") else {
        eprintln!("skipped: another writer, because ALLUVIUM_TEST_PYTHON is not set (.ci/run sets it)");
        return None;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../xtask/python/foreign_writes.py");
    let output = Command::new(python).arg(script).arg(tiny.path("lake/default/edit")).args(operations).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(versions_in(output.stdout))
}

/// Lets Spark do so.
fn changed_by_spark(tiny: &Tiny, operations: &[&str]) -> Option<Vec<Vec<Value>>> {
    let (python, jars) = crate::spark::spark()?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../xtask/python/spark_write.py");
    let table = tiny.path("lake/default/edit");
    let output = Command::new(python).arg(script).arg(jars).arg(table).args(operations).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(versions_in(output.stdout))
}

/// Applies changes to nothing, version by version, and compares with what deltalake sees in each.
fn assert_changes_make_versions(rows: &[Value], versions: &[Vec<Value>]) {
    let mut stands: Vec<Value> = Vec::new();
    let mut rows = rows.iter().peekable();
    for (version, expected) in versions.iter().enumerate() {
        let mut preimage: Option<Value> = None;
        while let Some(row) = rows.next_if(|r| r["_commit_version"] == json!(version)) {
            let value = json!([row["id"], row["orgId"], row["isRobot"], row["_offset"]]);
            let change = row["_change_type"].as_str().unwrap();
            let identity = json!([row["_source"], row["_offset"]]);
            match preimage.take() {
                Some(before) => assert_eq!((change, &before), ("update_postimage", &identity)),
                None => assert_ne!(change, "update_postimage"),
            }
            if change == "update_preimage" {
                preimage = Some(identity);
            }
            if change == "insert" || change == "update_postimage" {
                stands.push(value);
            } else {
                let at =
                    stands.iter().position(|s| *s == value).unwrap_or_else(|| panic!("{change} of what is not there: {row}"));
                stands.swap_remove(at);
            }
        }
        assert_eq!(preimage, None);
        let text = |rows: &[Value]| {
            let mut text: Vec<String> = rows.iter().map(Value::to_string).collect();
            text.sort();
            text
        };
        assert_eq!(text(&stands), text(expected), "version {version}");
    }
    assert_eq!(rows.next(), None);
}

fn with_twenty() -> Tiny {
    let tiny = Tiny::new();
    for half in 0..2 {
        let lines: String = (half * 10..half * 10 + 10).map(|id| edit(id, if id % 3 == 0 { "a" } else { "b" })).collect();
        tiny.ingest("edit", &format!("{half}.json"), &lines);
    }
    tiny
}

#[test]
fn what_another_program_updates_deletes_and_rewrites_is_told_exactly() {
    let tiny = with_twenty();
    let all = ["update", "delete", "append", "optimize", "update", "overwrite", "delete"];
    let Some(versions) = changed_by_deltalake(&tiny, &all) else { return };
    let given = tiny.changes(&["--rows"]);
    assert_changes_make_versions(&given.rows, &versions);
    let kinds = |version: i64| {
        let of: Vec<&str> =
            given.rows.iter().filter(|r| r["_commit_version"] == version).map(|r| r["_change_type"].as_str().unwrap()).collect();
        ["insert", "update_preimage", "update_postimage", "delete"].map(|k| of.iter().filter(|t| **t == k).count())
    };
    // By hand: ten odd ids; then 3, 8, 13 and 18; then two rows once more; then files put together.
    assert_eq!([kinds(3), kinds(4), kinds(5), kinds(6)], [[0, 10, 10, 0], [0, 0, 0, 4], [2, 0, 0, 0], [0, 0, 0, 0]]);
    // Told in steps, it is the same.
    let mut stepwise = Vec::new();
    tiny.changes(&["--rows", "--consumer", "copy"]);
    let first = tiny.changes(&["--rows", "--consumer", "copy", "--commit"]);
    stepwise.extend(first.rows);
    assert_eq!(stepwise, given.rows);
}

#[test]
fn a_change_data_feed_that_another_program_wrote_is_used() {
    let tiny = with_twenty();
    let Some(versions) = changed_by_deltalake(&tiny, &["feed", "update", "delete"]) else { return };
    let fed = fs::read_dir(tiny.path("lake/default/edit/_change_data")).unwrap().count();
    assert!(fed > 0, "no feed was written: the test would show nothing");
    assert_changes_make_versions(&tiny.changes(&["--rows"]).rows, &versions);
}

#[test]
fn what_spark_updates_merges_marks_restores_and_feeds_is_told_exactly() {
    let tiny = with_twenty();
    // Rewrites first; then deletion vectors, and rows restored from them; then a feed.
    let all = ["update", "merge", "optimize", "vectors", "delete", "update", "restore", "feed", "merge"];
    let Some(versions) = changed_by_spark(&tiny, &all) else { return };
    let marked = fs::read_dir(tiny.path("lake/default/edit")).unwrap();
    let vectors = marked.filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("deletion_vector")).count();
    assert!(vectors > 0, "no deletion vector was written: the test would show less");
    assert!(tiny.path("lake/default/edit/_change_data").exists());
    assert_changes_make_versions(&tiny.changes(&["--rows"]).rows, &versions);
    // What stands is the same, deletion vectors heeded.
    let stands = tiny.changes(&["--rows", "--snapshot"]).rows.len();
    assert_eq!(stands, versions.last().unwrap().len());
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

#[test]
fn rows_that_other_deletion_vectors_mark_and_unmark_are_deletes_and_inserts() {
    let tiny = Tiny::new();
    tiny.ingest("edit", "a.json", &(0..8).map(|id| edit(id, "a")).collect::<String>());
    let given = tiny.changes(&["--rows"]);
    let at = |positions: &[usize]| positions.iter().map(|p| given.rows[*p]["id"].as_i64().unwrap()).collect::<BTreeSet<_>>();
    let add = actions_of(&tiny, 1, "add").remove(0);
    let protocol = json!({ "protocol": { "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "appendOnly", "invariants"] } });
    // Rows 1, 2, 5; 3, 4, 5; 0, 1, 2, 6: spelled by hand, as in the tests of the plan.
    let vectors = [
        (r"^Bg9^0rr910000000000iXQKl0rr91000625c8Xg0rrf31POJ5", 38, 3),
        (r"^Bg9^0rr910000000000iXQKl0rr91000625c8Xg0@@D71POJ5", 38, 3),
        (r"^Bg9^0rr910000000000iXQKl0rr91000935c8Xg000310SSA8", 40, 4),
    ];
    let vectors = vectors.map(
        |(text, bytes, rows)| json!({ "storageType": "i", "pathOrInlineDv": text, "sizeInBytes": bytes, "cardinality": rows }),
    );
    let mut before = Value::Null;
    for (version, vector) in (2..).zip(&vectors) {
        let mut after = add.clone();
        after["deletionVector"] = vector.clone();
        let remove = json!({ "path": add["path"], "deletionTimestamp": 1, "dataChange": true, "extendedFileMetadata": true,
            "partitionValues": add["partitionValues"], "size": add["size"], "deletionVector": before });
        write_entry(&tiny, version, &[protocol.clone(), json!({ "remove": remove }), json!({ "add": after })]);
        before = vector.clone();
    }
    let given = tiny.changes(&["--rows", "--since", &given.next]);
    let told = |version: u64, change: &str| {
        let of = given.rows.iter().filter(|r| r["_commit_version"] == version && r["_change_type"] == change);
        of.map(|r| r["id"].as_i64().unwrap()).collect::<BTreeSet<_>>()
    };
    assert_eq!((told(2, "delete"), told(2, "insert")), (at(&[1, 2, 5]), at(&[])));
    assert_eq!((told(3, "delete"), told(3, "insert")), (at(&[3, 4]), at(&[1, 2])));
    assert_eq!((told(4, "delete"), told(4, "insert")), (at(&[0, 1, 2, 6]), at(&[3, 4, 5])));
    assert_eq!(given.rows.len(), 14);
}

#[test]
fn a_rewrite_that_cannot_be_compared_within_the_memory_is_refused_by_its_version() {
    let tiny = Tiny::new();
    let long = "x".repeat(4000);
    let line = |id: usize| format!("{{\"id\":{id},\"orgId\":\"a\",\"at\":\"2026-01-02\",\"more\":\"{long}\"}}\n");
    tiny.ingest("edit", "a.json", &(0..10_000).map(line).collect::<String>());
    if changed_by_deltalake(&tiny, &["update"]).is_none() {
        return;
    }
    // Half of the rows, before and after, are more than half of 64 MiB.
    let file = tiny.path("out");
    let why = tiny.refused(7, &["changes", "edit", "--rows", "--memory", "64MiB", "--to", file.to_str().unwrap()]);
    assert!(why.contains("version 2 ") && why.contains("--memory"), "{why}");
    assert!(!file.exists());
    let given = tiny.changes(&["--rows", "--snapshot", "--memory", "64MiB"]);
    assert_eq!(given.rows.len(), 10_000);
    assert!(tiny.changes(&["--rows", "--since", &given.next]).rows.is_empty());
}
