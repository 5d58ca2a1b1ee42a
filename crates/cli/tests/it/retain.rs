//! `run retain` from the command line: what goes, what is told of it, and what other readers see.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::site::Site;

fn project(more: &str) -> String {
    format!(
        "project: retain
storage: ./lake
durability: process
datasets:
  edit:
    source: {{ files: {{ path: ./in, format: json }} }}
    org: org_id
    event_time: at
    fields: {{ eid: string, org_id: string, at: {{ type: timestamp, unit: ms }}, user_id: string, note: string }}
    identities: [user_id]
{more}"
    )
}

const KEPT: &str = "    retention: 30d\n    retention_by_org: { A: 7d, C: 365d }\n";

/// Each of three organisations has an event of 1, 10, 100 and 1000 days ago.
fn events() -> String {
    let days = [1, 10, 100, 1000];
    let event = |org: &str, day: u64| {
        let at = SystemTime::now() - Duration::from_secs(day * 86_400);
        let at_ms = u64::try_from(at.duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        let row = json!({ "eid": format!("{org}{day}"), "org_id": org, "at": at_ms, "user_id": format!("u{day}"), "note": "n" });
        format!("{row}\n")
    };
    ["A", "B", "C"].iter().flat_map(|org| days.map(|day| event(org, day))).collect()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(site: &Site) -> Vec<String> {
    let rows = lines(&site.ok(&["query", "SELECT eid FROM edit ORDER BY eid", "--format", "json"]));
    rows.iter().map(|row| row["eid"].as_str().unwrap().to_owned()).collect()
}

const GONE: [&str; 6] = ["A10", "A100", "A1000", "B100", "B1000", "C1000"];
const LEFT: [&str; 6] = ["A1", "B1", "B10", "C1", "C10", "C100"];

/// All events came while rows were kept for ever; now they are not.
fn begun(more: &str) -> Site {
    let site = Site::new(&project(more));
    site.write("in/1.json", events());
    site.ok(&["run", "ingest"]);
    site.write("alluvium.yaml", project(&format!("{KEPT}{more}")));
    site
}

/// What is told of rows that went, behind a token: sorted.
fn deletes_since(site: &Site, token: &str) -> Vec<String> {
    let mut told = lines(&site.ok(&["changes", "edit", "--rows", "--since", token]));
    told.pop();
    assert!(told.iter().all(|row| row["_change_type"] == "delete"), "{told:?}");
    let mut ids: Vec<String> = told.iter().map(|row| row["eid"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

fn token(site: &Site) -> String {
    let told = lines(&site.ok(&["changes", "edit", "--rows"]));
    told.last().unwrap()["next"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_past_its_retention_goes_and_is_told_of() {
    for more in ["", "    layout: { partition_by: [] }\n", "    change_data_feed: true\n"] {
        let site = begun(more);
        let token = token(&site);
        let dry = lines(&site.ok(&["run", "retain", "--dry-run", "--output", "json"]));
        assert_eq!((dry[0]["job"].as_str(), &dry[0]["deleted"], &dry[0]["dry_run"]), (Some("retain"), &json!(6), &json!(true)));
        assert_eq!(ids(&site).len(), 12, "a dry run removes nothing");
        let done = lines(&site.ok(&["run", "retain", "--output", "json"]));
        assert_eq!((done[0]["job"].as_str(), done[0]["outcome"].as_str()), (Some("retain"), Some("committed")));
        for key in ["deleted", "files_opened", "files_rewritten"] {
            assert_eq!(done[0][key], dry[0][key], "{key}");
        }
        assert_eq!((&done[0]["updated"], &done[0]["inserted"], &done[1]["batches"]), (&json!(0), &json!(0), &json!(1)));
        assert_eq!(ids(&site), LEFT);
        assert_eq!(deletes_since(&site, &token), GONE);
        let sums = "SELECT org_id, job, sum(deleted) AS n FROM raw.notifications WHERE deleted > 0 GROUP BY 1, 2 ORDER BY 1";
        let told = lines(&site.ok(&["query", sums, "--format", "json"]));
        let wanted = [("A", 3), ("B", 2), ("C", 1)].map(|(org, n)| json!({ "org_id": org, "job": "retain", "n": n }));
        assert_eq!(told, wanted);
        if let Some(seen) = site.read_by_others(&["edit"], &[]) {
            assert_eq!(seen[0]["rows"], 6);
        }
        let again = site.run(&["run", "retain"]);
        assert_eq!((again.status.code(), String::from_utf8(again.stderr).unwrap().as_str()), (Some(0), "nothing to do\n"));
    }
}

#[test]
fn run_all_retains_after_it_ingests_and_what_comes_too_late_is_skipped() {
    let site = begun("");
    site.write("in/2.json", events());
    let told = lines(&site.ok(&["run", "all", "--output", "json"]));
    let jobs: Vec<&str> = told.iter().filter_map(|line| line["job"].as_str()).filter(|job| *job != "vacuum").collect();
    assert_eq!(jobs, ["ingest", "retain"]);
    assert_eq!((&told[0]["inserted"], &told[0]["skipped"], &told[1]["deleted"]), (&json!(6), &json!(6), &json!(6)));
    assert_eq!(ids(&site).len(), 2 * LEFT.len());
    let status = site.ok(&["status"]);
    assert!(status.contains("retain"), "{status}");
}

#[test]
fn a_retention_says_what_it_does_and_a_namespace_never_used_has_nothing_to_do() {
    let site = Site::new(&project(KEPT));
    for args in [&["run", "retain"][..], &["run", "retain", "--once"]] {
        let output = site.run(args);
        assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), "nothing to do\n"));
    }
    assert_eq!(site.run(&["run", "retain", "nothing"]).status.code(), Some(2));
    let site = begun("");
    let dry = site.ok(&["run", "retain", "edit", "--dry-run"]);
    assert_eq!(dry, "retain edit: would drop 6 rows that are past their retention: 3 files rewritten or removed, 3 opened\n");
    let said = site.ok(&["run", "retain", "edit"]);
    assert!(said.starts_with("retain edit batch 1: 6 rows deleted, 3 files rewritten or removed, 3 opened ("), "{said}");
}
