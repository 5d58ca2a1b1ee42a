//! `alluvium status`.

use std::fs;

use serde_json::{Value, json};

use super::{Tiny, objects};
use crate::site::only_entry;

fn status(tiny: &Tiny) -> Vec<Value> {
    let said = tiny.run(&["status", "--output", "json"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    objects(&said.stdout)
}

fn source(last_file: Option<&str>, files: u64, bytes: u64) -> Value {
    json!({
        "last_file": last_file, "partly_taken": null, "waiting_files": files, "waiting_bytes": bytes,
        "changed_files": 0, "unusable_files": 0, "missing": false,
    })
}

fn dataset(name: &str, source: Value, dead_letters: u64) -> Value {
    json!({
        "kind": "dataset", "dataset": name, "source": source, "dead_letters": dead_letters, "pending_requests": 0, "retries": 0,
    })
}

#[test]
fn status_of_an_empty_project_says_so_and_makes_nothing() {
    let tiny = Tiny::new();
    assert_eq!(
        status(&tiny),
        [
            json!({ "kind": "namespace", "namespace": "default", "storage": "./lake", "used": false }),
            dataset("edit", source(None, 0, 0), 0),
            dataset("visit", source(None, 0, 0), 0),
        ]
    );
    assert!(!tiny.path("lake").exists());
    let text = tiny.run(&["status"]);
    assert_eq!(text.code, 0);
    assert!(text.stdout.starts_with("namespace default in ./lake, nothing in it yet\n"), "{}", text.stdout);
}

#[test]
fn status_after_a_batch_tells_its_counts_and_what_waits() {
    let tiny = Tiny::with_edits();
    fs::write(tiny.path("inbox/edit/b.json"), "12345").unwrap();
    fs::write(tiny.path("inbox/edit/c.json"), "123").unwrap();
    let said = status(&tiny);
    assert_eq!(said.len(), 4);
    assert_eq!(said[1], dataset("edit", source(Some("a.json"), 2, 8), 1));
    let mut chain = said[2].clone();
    let at = chain["last_batch_at"].take();
    assert_eq!(
        chain,
        json!({
            "kind": "chain", "job": "ingest", "dataset": "edit", "shard": 0, "last_batch_id": 1, "last_batch_at": null,
            "table_version": 1, "inserted": 3, "updated": 0, "deleted": 0, "dead_letters": 1, "unfinished_batch_id": null,
            "unfinished_attempt": null,
        })
    );
    let at = at.as_str().unwrap();
    assert!(at.ends_with('Z') && at.as_bytes()[10] == b'T', "{at}");
    assert_eq!(said[3]["dataset"], json!("visit"));
}

#[test]
fn status_tells_of_a_batch_that_waits_to_be_resumed() {
    let tiny = Tiny::with_edits();
    let chains = only_entry(&tiny.path("lake/default/_alluvium/chains"));
    let mark = chains.join("ingest/edit/0/00000000000000000001.done.json");
    fs::remove_file(mark).unwrap();
    let chain = status(&tiny)[2].clone();
    assert_eq!(
        (&chain["last_batch_id"], &chain["unfinished_batch_id"], &chain["unfinished_attempt"]),
        (&json!(0), &json!(1), &json!(0))
    );
}

#[test]
fn status_shows_the_place_in_a_partly_taken_file() {
    let tiny = Tiny::new();
    let small = super::PROJECT.replace("    key: id\n", "    key: id\n    batch: { max_rows: 3 }\n");
    fs::write(tiny.path("alluvium.yaml"), small).unwrap();
    fs::write(tiny.path("inbox/edit/a.json"), super::EDITS).unwrap();
    assert_eq!(tiny.run(&["run", "ingest", "--once"]).code, 0);
    let source = status(&tiny)[1]["source"].clone();
    assert_eq!(source["partly_taken"], json!({ "file": "a.json", "records": 3 }));
    assert_eq!((&source["waiting_files"], &source["waiting_bytes"]), (&json!(1), &json!(super::EDITS.len())));
}

#[test]
fn a_broken_table_of_dead_letters_does_not_hide_the_rest() {
    let tiny = Tiny::with_edits();
    tiny.break_table("dead_letters");
    let said = tiny.run(&["status", "--output", "json"]);
    assert_eq!(said.code, 8, "{}", said.stderr);
    let objects = objects(&said.stdout);
    assert_eq!(objects[1]["dead_letters"], Value::Null);
    assert_eq!(objects[2]["last_batch_id"], json!(1));
}

#[test]
fn a_missing_source_directory_is_told() {
    let tiny = Tiny::new();
    fs::remove_dir(tiny.path("inbox/visit")).unwrap();
    assert_eq!(status(&tiny)[2]["source"]["missing"], json!(true));
}
