//! Delta's own change data feed: as deltalake and Spark read it, against what `changes --rows` tells of a table without one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::site::Site;
use crate::spark::spark;

fn project(feed: bool) -> String {
    format!(
        "project: feed
storage: ./lake
durability: process
datasets:
  edit:
    source: {{ files: {{ path: ./in, format: json }} }}
    key: eid
    org: org_id
    event_time: at
    change_data_feed: {feed}
    fields:
      eid: string
      org_id: {{ type: string, nullable: false }}
      at: timestamp
      lead_id: string
      user_id: string
      n: long
      tags: array<string>
    identities: [lead_id, user_id]
    layout: {{ partition_by: [org_id, lead_id] }}
requests: {{ source: {{ files: {{ path: ./rq, format: json }} }} }}
"
    )
}

const COLUMNS: [&str; 7] = ["eid", "org_id", "lead_id", "user_id", "n", "_offset", "_original"];

fn event(eid: u32, org: &str, lead: &str, user: &str) -> String {
    let row = json!({ "eid": eid.to_string(), "org_id": org, "at": "2026-01-01T00:00:00Z", "lead_id": lead, "user_id": user,
                      "n": eid, "tags": ["x", null] });
    format!("{row}\n")
}

fn request(id: &str, org: &str, rest: Value) -> String {
    let mut request = json!({ "request_id": id, "org_id": org, "execution_time": "2026-02-01T00:00:00Z" });
    request.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    format!("{request}\n")
}

/// Rows come; ids, a column and rows change and go, one row into another partition; more rows come.
fn lived_through(site: &Site) {
    let users = ["u1", "u2", "u3"];
    let events = (0..12).map(|eid| event(eid, if eid < 9 { "A" } else { "B" }, "l1", users[eid as usize % 3]));
    site.write("in/1.json", events.collect::<String>());
    site.ok(&["run", "ingest"]);
    let requests = [
        request("r1", "A", json!({ "op": "convert", "field": "user_id", "from": "u1", "to": "c1" })),
        request("r2", "A", json!({ "op": "update", "field": "user_id", "id": "u2", "set": { "n": 70, "tags": null } })),
        request("r3", "A", json!({ "op": "delete", "scope": "subject", "field": "user_id", "id": "u3" })),
        request("r4", "B", json!({ "op": "delete", "scope": "org" })),
    ];
    site.write("rq/1.json", requests.concat());
    site.ok(&["run", "mutate"]);
    site.write("in/2.json", event(20, "A", "l2", "u1") + &event(21, "A", "l2", "u9"));
    site.ok(&["run", "ingest"]);
    // Rows of l2 move into another partition.
    site.write("rq/2.json", request("r5", "A", json!({ "op": "convert", "field": "lead_id", "from": "l2", "to": "l1" })));
    site.ok(&["run", "mutate"]);
}

/// Version, what happened, and the values as text, sorted.
type Change = (u64, String, Vec<Option<String>>);

/// What `changes --rows` tells from the beginning on, or from behind a token.
fn told(site: &Site, since: &[&str]) -> (Vec<Change>, String) {
    let args: Vec<&str> = ["changes", "edit", "--rows"].into_iter().chain(since.iter().copied()).collect();
    let said = site.ok(&args);
    let mut rows: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let next = rows.pop().unwrap()["next"].as_str().unwrap().to_owned();
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let change = |row: &Value| {
        let values = COLUMNS.map(|name| text(&row[name])).to_vec();
        (row["_commit_version"].as_u64().unwrap(), row["_change_type"].as_str().unwrap().to_owned(), values)
    };
    let mut changes: Vec<Change> = rows.iter().map(change).collect();
    changes.sort();
    (changes, next)
}

/// The feed from a version on, as a script reads it.
fn read_feed(command: &mut Command, table: &Path, from: u64) -> Vec<Change> {
    let output = command.arg(table).arg(from.to_string()).args(COLUMNS).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let change = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let values = row["row"].as_array().unwrap().iter().map(|v| v.as_str().map(str::to_owned)).collect();
        (row["version"].as_u64().unwrap(), row["change"].as_str().unwrap().to_owned(), values)
    };
    let mut changes: Vec<Change> = String::from_utf8(output.stdout).unwrap().lines().map(change).collect();
    changes.sort();
    changes
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/python").join(name)
}

/// As deltalake reads it; `None`, said so, where there is no Python.
fn by_deltalake(site: &Site, from: u64) -> Option<Vec<Change>> {
    let Some(python) = std::env::var_os("ALLUVIUM_TEST_PYTHON") else {
        eprintln!("skipped: deltalake, because ALLUVIUM_TEST_PYTHON is not set (.ci/run sets it)");
        return None;
    };
    Some(read_feed(Command::new(python).arg(script("read_feed.py")), &site.path("lake/default/edit"), from))
}

fn by_spark(site: &Site, from: u64, (python, jars): &(OsString, OsString)) -> Vec<Change> {
    read_feed(Command::new(python).arg(script("spark_feed.py")).arg(jars), &site.path("lake/default/edit"), from)
}

fn files_of_the_feed(site: &Site) -> usize {
    std::fs::read_dir(site.path("lake/default/edit/_change_data")).map_or(0, Iterator::count)
}

#[test]
fn the_feed_tells_deltalake_and_spark_what_changes_tells_without_one() {
    let (fed, plain) = (Site::new(&project(true)), Site::new(&project(false)));
    lived_through(&fed);
    lived_through(&plain);
    assert_eq!(files_of_the_feed(&plain), 0);
    let (told_plain, _) = told(&plain, &[]);
    // By hand: 12 and 2 rows come; 3 rows are converted, 3 updated, 3 of the subject and 3 of B go; one of the two moved rows was
    // converted on its way in.
    let count = |kind: &str| told_plain.iter().filter(|(_, change, _)| change == kind).count();
    let kinds = ["insert", "update_preimage", "update_postimage", "delete"];
    assert_eq!(kinds.map(count), [14, 8, 8, 6]);
    assert_eq!(told(&fed, &[]).0, told_plain);
    if let Some(feed) = by_deltalake(&fed, 0) {
        assert_eq!(feed, told_plain);
    }
    if let Some(spark) = spark() {
        assert_eq!(by_spark(&fed, 0, &spark), told_plain);
    }
}

#[test]
fn a_feed_begins_and_ends_with_its_declaration() {
    let site = Site::new(&project(false));
    site.write("in/1.json", event(1, "A", "l1", "u1") + &event(2, "A", "l1", "u2"));
    site.ok(&["run", "ingest"]);
    let convert =
        |id: &str, from: &str, to: &str| request(id, "A", json!({ "op": "convert", "field": "user_id", "from": from, "to": to }));
    site.write("rq/1.json", convert("r1", "u1", "c1"));
    site.ok(&["run", "mutate"]);
    assert_eq!(files_of_the_feed(&site), 0);
    let (_, before) = told(&site, &[]);

    site.write("alluvium.yaml", project(true));
    site.write("rq/2.json", convert("r2", "c1", "d1"));
    site.ok(&["run", "mutate"]);
    assert_eq!(files_of_the_feed(&site), 1);
    let (told_with, middle) = told(&site, &["--since", &before]);
    // By hand: one row, before and after.
    assert_eq!(
        told_with.iter().map(|(_, change, _)| change.as_str()).collect::<Vec<_>>(),
        ["update_postimage", "update_preimage"]
    );
    if let Some(feed) = by_deltalake(&site, told_with[0].0) {
        assert_eq!(feed, told_with);
    }

    site.write("alluvium.yaml", project(false));
    site.write("rq/3.json", convert("r3", "u2", "e1"));
    site.ok(&["run", "mutate"]);
    assert_eq!(files_of_the_feed(&site), 1);
    let (told_after, _) = told(&site, &["--since", &middle]);
    assert_eq!(told_after.len(), 2);
}
