//! `run vacuum` from the command line, and what it leaves of a person who was erased.

use alluvium_testkit::residue;
use serde_json::Value;

use crate::site::Site;

const PROJECT: &str = r#"
project: vacuum
storage: ./lake
durability: process
datasets:
  edit:
    source: { files: { path: ./in, format: json } }
    key: eid
    org: org_id
    event_time: at
    fields: { eid: string, org_id: string, at: timestamp, lead_id: string, user_id: string, name: string, note: string }
    identities: [lead_id, user_id]
"#;

/// Of the person who goes: ids, as they came and as they were converted, and a name, which is the least of its column.
const PERSON: [&str; 4] = ["lead-of-the-person-as-it-came", "contact-of-the-person", "user-of-the-person", "Aaaron the Person"];

fn event(eid: u32, lead: &str, user: &str, name: &str) -> String {
    let row = serde_json::json!({
        "eid": eid.to_string(), "org_id": "A", "at": "2026-01-01T00:00:00Z", "lead_id": lead, "user_id": user, "name": name, "note": "n",
    });
    format!("{row}\n")
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Rows of the person and of others came, the person's id was converted, and then the person was erased.
fn erased() -> Site {
    let site = Site::new(PROJECT);
    let [came, contact, user, name] = PERSON;
    site.write("in/1.json", event(1, came, "u1", name) + &event(2, "l2", user, name) + &event(3, "l3", "u3", "Berta"));
    site.ok(&["run", "ingest"]);
    let request = |id: &str, second: u32, rest: Value| {
        let mut request =
            serde_json::json!({ "request_id": id, "org_id": "A", "execution_time": format!("2026-02-01T00:00:0{second}Z") });
        request.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        format!("{request}\n")
    };
    let convert = serde_json::json!({ "op": "convert", "field": "lead_id", "from": came, "to": contact });
    site.write("convert.json", request("r1", 1, convert));
    site.ok(&["request", "submit", "convert.json"]);
    site.ok(&["run", "mutate"]);
    let subjects = [("lead_id", contact), ("user_id", user)].map(|(field, id)| serde_json::json!({ "field": field, "id": id }));
    let erase = serde_json::json!({ "op": "delete", "scope": "subject", "subjects": subjects });
    site.write("erase.json", request("r2", 2, erase));
    site.ok(&["request", "submit", "erase.json"]);
    site.ok(&["run", "mutate"]);
    site
}

#[test]
fn nothing_of_an_erased_person_is_left_in_the_table_its_log_and_beside_it() {
    let site = erased();
    let table = site.path("lake/default/edit");
    assert!(!residue(&table, &PERSON).unwrap().is_empty(), "until the vacuum it is all there");
    let dry = lines(&site.ok(&["run", "vacuum", "edit", "--dry-run", "--output", "json"]));
    let before = residue(&table, &PERSON).unwrap();
    let done = lines(&site.ok(&["run", "vacuum", "edit", "--output", "json"]));
    assert!(!before.is_empty(), "a dry run removes nothing");
    for (dry, done) in dry.iter().zip(&done) {
        assert_eq!((dry["dry_run"].as_bool(), done["dry_run"].as_bool()), (Some(true), Some(false)));
        assert_eq!((&dry["files_removed"], &dry["bytes_removed"]), (&done["files_removed"], &done["bytes_removed"]));
    }
    // Two files were replaced, each with its index, and two times it was told which rows changed.
    let counts = |key: &str| done[0][key].as_u64().unwrap();
    assert_eq!((counts("data_files_removed"), counts("files_removed")), (2, 6));
    assert_eq!(done[1]["summary"], true);
    assert_eq!(residue(&table, &PERSON).unwrap(), []);
    for beside in ["indexes", "rewrites"] {
        assert_eq!(residue(&site.path(&format!("lake/default/_alluvium/{beside}")), &PERSON).unwrap(), [], "{beside}");
    }
    let rows = lines(&site.ok(&["query", "SELECT eid, lead_id, user_id, name FROM edit ORDER BY eid", "--format", "json"]));
    assert_eq!(rows, [serde_json::json!({ "eid": "3", "lead_id": "l3", "user_id": "u3", "name": "Berta" })]);
    if let Some(seen) = site.read_by_others(&["edit"], &[]) {
        assert_eq!(seen[0]["rows"], 1);
    }
    // In requests the ids are replaced once the table is purged, and what was folded from them goes.
    let requests = site.path("lake/default/requests");
    assert!(!residue(&requests, &PERSON[..3]).unwrap().is_empty());
    site.ok(&["run", "vacuum"]);
    for beside in ["requests", "_alluvium/ledger", "_alluvium/outcomes", "notifications"] {
        assert_eq!(residue(&site.path(&format!("lake/default/{beside}")), &PERSON[..3]).unwrap(), [], "{beside}");
    }
    let shown = lines(&site.ok(&["request", "list", "--output", "json"]));
    assert_eq!(shown.iter().map(|r| r["state"].as_str().unwrap()).collect::<Vec<_>>(), ["applied", "applied"]);
    // What goes on from before is told to start over.
    let again = lines(&site.ok(&["run", "vacuum", "edit", "--output", "json"]));
    assert_eq!(again[0]["files_removed"], 0);
}

#[test]
fn a_vacuum_says_what_it_does_and_a_namespace_never_used_has_nothing_to_do() {
    let site = Site::new(PROJECT);
    let output = site.run(&["run", "vacuum"]);
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), "nothing to do\n"));
    let output = site.run(&["run", "vacuum", "nothing", "--follow"]);
    assert_eq!(output.status.code(), Some(2));
    let output = site.run(&["run", "vacuum", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    let site = erased();
    let said = site.ok(&["run", "vacuum"]);
    let first = said.lines().next().unwrap();
    assert!(first.starts_with("vacuum edit: removed 2 data files and 4 files beside them, "), "{said}");
    assert!(first.ends_with("; changes are kept from version 4 on"), "{said}");
    assert!(
        said.lines().nth(1).unwrap().starts_with("vacuum requests: removed 2 data files and 0 files beside them, "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 3, "what has nothing to remove is not told of: {said}");
}
