//! `alluvium changes` of tables that another program changed, by its own log entries or by ones written by hand.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::super::{Tiny, objects};
use super::{actions_of, edit, write_entry};

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
fn a_removal_that_does_not_say_its_partition_has_the_one_with_which_its_file_came() {
    let tiny = Tiny::new();
    tiny.ingest("edit", "a.json", &edit(1, "a"));
    let add = actions_of(&tiny, 1, "add").remove(0);
    write_entry(&tiny, 2, &[json!({ "remove": { "path": add["path"], "deletionTimestamp": 1, "dataChange": true } })]);
    let given = tiny.changes(&["--rows"]);
    let row = |at: usize| [&given.rows[at]["_change_type"], &given.rows[at]["orgId"], &given.rows[at]["event_date"]];
    assert_eq!(
        (row(0), row(1)),
        ([&json!("insert"), &json!("a"), &json!("2026-01-02")], [&json!("delete"), &json!("a"), &json!("2026-01-02")])
    );
    // The entry that tells is gone: no value is better than a wrong one.
    let since = tiny.changes(&["--rows", "--since", &given.next]);
    assert!(since.rows.is_empty());
    let absent = json!({ "remove": { "path": "never-came.parquet", "deletionTimestamp": 1, "dataChange": true } });
    write_entry(&tiny, 3, &[absent]);
    let why = tiny.refused(7, &["changes", "edit", "--rows", "--since", &given.next]);
    assert!(why.contains("version 3 ") && why.contains("--snapshot"), "{why}");
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

#[test]
fn a_file_is_told_in_the_types_of_the_table_where_that_changes_no_value_and_refused_elsewhere() {
    for (wider, code) in [("decimal(20,0)", 0), ("integer", 7), ("double", 7), ("string", 7)] {
        let tiny = Tiny::new();
        tiny.ingest("edit", "a.json", &edit(1, "a"));
        // As after another program changed the type of `id`, which the file has as a long.
        let mut table = actions_of(&tiny, 0, "metaData").remove(0);
        let mut schema: Value = serde_json::from_str(table["schemaString"].as_str().unwrap()).unwrap();
        let fields = schema["fields"].as_array_mut().unwrap();
        fields.iter_mut().find(|f| f["name"] == "id").unwrap()["type"] = json!(wider);
        table["schemaString"] = json!(schema.to_string());
        write_entry(&tiny, 2, &[json!({ "metaData": table })]);
        let said = tiny.run(&["changes", "edit", "--rows"]);
        assert_eq!(said.code, code, "{wider}: {}", said.stderr);
        if code == 0 {
            assert_eq!(objects(&said.stdout)[0]["id"], json!("1"));
        } else {
            assert!(said.stdout.is_empty() && said.stderr.contains("--snapshot"), "{}", said.stderr);
        }
    }
}
