//! Requests from the command line: converts, updates and deletes over rows that landed and rows to come. Expected values by hand.

use serde_json::{Value, json};

use crate::site::Site;

const YAML: &str = "project: crm
storage: ./lake
durability: process
datasets:
  engagement:
    source: { files: { path: ./in, format: json } }
    key: eid
    org: org_id
    event_time: at
    fields:
      eid: string
      org_id: { type: string, nullable: false }
      at: timestamp
      lead_id: string
      user_id: string
      cadence: string
      n: long
      ip: string
    identities: [lead_id, { field: user_id, on_erase: clear, clear: [ip] }]
  meeting:
    source: { files: { path: ./meet, format: json } }
    org: org_id
    event_time: at
    fields:
      org_id: { type: string, nullable: false }
      at: timestamp
      lead_id: string
    identities: [lead_id]
    layout: { partition_by: [org_id, lead_id] }
requests:
  source: { files: { path: ./rq, format: json } }
  max_attempts: 2
";

fn lines(values: &[Value]) -> String {
    values.iter().map(|v| format!("{v}\n")).collect()
}

fn event(eid: &str, day: u32, lead: &str, user: &str, n: i64) -> Value {
    json!({ "eid": eid, "org_id": "A", "at": format!("2026-01-{day:02}T00:00:00Z"), "lead_id": lead, "user_id": user,
            "cadence": "old", "n": n, "ip": "10.0.0.1" })
}

fn convert(id: &str, from: &str, to: &str, day: u32) -> Value {
    json!({ "request_id": id, "org_id": "A", "op": "convert", "field": "lead_id", "from": from, "to": to,
            "execution_time": format!("2026-02-{day:02}T00:00:00Z") })
}

/// Rows as `eid lead_id user_id cadence n ip _original`, null as `-`.
fn rows(site: &Site) -> Vec<String> {
    let sql = "SELECT eid, lead_id, user_id, cadence, n, ip, _original FROM engagement ORDER BY eid";
    let text = site.ok(&["query", sql, "--format", "json"]);
    text.lines()
        .map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            let cell = |name: &str| match &row[name] {
                Value::Null => "-".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            ["eid", "lead_id", "user_id", "cadence", "n", "ip", "_original"].map(cell).join(" ")
        })
        .collect()
}

fn summary(output: &str) -> Value {
    serde_json::from_str(output.lines().last().unwrap()).unwrap()
}

fn state(site: &Site, id: &str) -> (String, Value) {
    let shown: Value = serde_json::from_str(&site.ok(&["request", "show", id, "--output", "json"])).unwrap();
    (shown["state"].as_str().unwrap().to_owned(), shown["rows_changed"].clone())
}

fn site() -> Site {
    let site = Site::new(YAML);
    site.write("in/1.json", lines(&[event("a", 1, "L1", "U1", 1), event("b", 20, "L1", "U2", 2), event("c", 3, "L2", "U1", 3)]));
    site.ok(&["run", "ingest"]);
    site
}

#[test]
fn requests_change_rows_that_landed_and_rows_to_come_and_the_source_stays_known() {
    let site = site();
    site.write(
        "rq/1.json",
        lines(&[
            convert("r1", "L1", "C1", 1),
            // Holds for rows up to the tenth: not for b.
            json!({ "request_id": "r2", "org_id": "A", "op": "update", "field": "lead_id", "id": "L1",
                    "set": { "cadence": "Q3", "n": "7" }, "execution_time": "2026-01-10T00:00:00Z" }),
            json!({ "request_id": "r3", "org_id": "A", "op": "delete", "scope": "subject", "field": "user_id", "id": "U1",
                    "execution_time": "2026-01-02T00:00:00Z" }),
            json!({ "request_id": "r4", "org_id": "A", "op": "delete", "scope": "record", "id": "c",
                    "execution_time": "2026-02-01T00:00:00Z" }),
            convert("r5", "L9", "C1", 1),
        ]),
    );
    let run = summary(&site.ok(&["run", "mutate", "--output", "json"]));
    assert_eq!((&run["updated"], &run["deleted"], &run["files_rewritten"]), (&json!(2), &json!(1), &json!(1)));
    let a = r#"a C1 - Q3 7 - {"cadence":"old","ip":"10.0.0.1","lead_id":"L1","n":1,"user_id":"U1"}"#;
    let b = r#"b C1 U2 old 2 10.0.0.1 {"lead_id":"L1"}"#;
    assert_eq!(rows(&site), [a, b]);
    assert_eq!(state(&site, "r1"), ("applied".to_owned(), json!({ "engagement": 2 })));
    assert_eq!(state(&site, "r4"), ("applied".to_owned(), json!({ "engagement": 1 })));
    assert_eq!(state(&site, "r5"), ("waiting".to_owned(), json!({})));
    let shown: Value = serde_json::from_str(&site.ok(&["request", "show", "r1", "--output", "json"])).unwrap();
    let times =
        [&shown["execution_time"], &shown["accepted_at"], &shown["batches"][0]["changed_at"]].map(|t| t.as_str().unwrap());
    assert!(times.is_sorted() && times[0] == "2026-02-01T00:00:00Z", "{times:?}");

    // What comes later is what it would have become, and makes the waiting request an applied one.
    site.write("in/2.json", lines(&[event("d", 5, "L9", "U3", 4), event("e", 5, "L1", "U3", 5)]));
    site.ok(&["run", "ingest"]);
    let d = r#"d C1 U3 old 4 10.0.0.1 {"lead_id":"L9"}"#;
    let e = r#"e C1 U3 Q3 7 10.0.0.1 {"cadence":"old","lead_id":"L1","n":5}"#;
    assert_eq!(rows(&site), [a, b, d, e]);
    assert_eq!(state(&site, "r5"), ("applied".to_owned(), json!({ "engagement": 1 })));

    // A request that arrives late and executes early: the first convert then does not match those rows any more.
    site.write("late.json", lines(&[convert("r0", "L1", "X", 1)]).replace("2026-02-01", "2026-01-31"));
    site.ok(&["request", "submit", "late.json"]);
    site.ok(&["run", "mutate"]);
    let moved = |row: &str| row.replacen(" C1 ", " X ", 1);
    assert_eq!(rows(&site), [moved(a), moved(b), d.to_owned(), moved(e)]);

    // Once more the same, and another of the same id.
    site.write("again.json", lines(&[convert("r1", "L1", "C1", 1), convert("r1", "L1", "C2", 1)]));
    let again = summary(&site.ok(&["request", "submit", "again.json", "--output", "json"]));
    assert_eq!((&again["inserted"], &again["skipped"], &again["dead_letters"]), (&json!(0), &json!(1), &json!(1)));
    let letters = site.ok(&["dead-letters", "list", "--dataset", "requests"]);
    assert!(letters.contains("a request of this id was accepted before"), "{letters}");
}

#[test]
fn a_request_without_rows_waits_and_then_counts_as_unmatched() {
    let site = site();
    site.write("rq/1.json", lines(&[convert("r5", "L9", "C1", 1)]));
    // Pending and waiting, as status tells of the dataset, and the batches of requests that were taken in.
    let told = |site: &Site| {
        let status = site.ok(&["status", "--output", "json"]);
        let objects: Vec<Value> = status.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let find = |kind: &str, dataset: &str| objects.iter().find(|o| o["kind"] == kind && o["dataset"] == dataset).cloned();
        let dataset = find("dataset", "engagement").unwrap();
        let batches = find("chain", "requests").map(|chain| chain["last_batch_id"].clone());
        (dataset["pending_requests"].clone(), dataset["retries"].clone(), batches)
    };
    assert_eq!(told(&site), (json!(0), json!(0), None));
    for (wanted, retries) in [("waiting", 1), ("unmatched", 0), ("unmatched", 0)] {
        site.ok(&["run", "mutate"]);
        assert_eq!(state(&site, "r5").0, wanted);
        assert_eq!(told(&site), (json!(0), json!(retries), Some(json!(1))));
    }
    site.write("more.json", lines(&[convert("r6", "L8", "C1", 1), convert("r7", "L7", "C1", 1)]));
    site.ok(&["request", "submit", "more.json"]);
    assert_eq!(told(&site), (json!(2), json!(0), Some(json!(2))));
    let status = site.ok(&["status"]);
    assert!(status.contains("\ndataset engagement: 2 requests to apply, 0 wait for a row\n"), "{status}");
    let listed = site.ok(&["request", "list", "--state", "unmatched"]);
    assert!(listed.contains("r5"), "{listed}");
    assert_eq!(site.run(&["request", "show", "nope"]).status.code(), Some(3));
}

#[test]
fn an_erasure_of_an_id_that_was_converted_away_before_says_by_which_request() {
    let site = site();
    let erase = |id: &str, subject: &str, day: u32| {
        json!({ "request_id": id, "org_id": "A", "op": "delete", "scope": "subject", "field": "lead_id", "id": subject,
                "execution_time": format!("2026-02-{day:02}T00:00:00Z") })
    };
    // Rows may be L2 again when e2 executes.
    let converts = [convert("r1", "L1", "C1", 1), convert("r2", "L2", "C2", 1), convert("r3", "L9", "L2", 2)];
    site.write("rq/1.json", lines(&converts) + &lines(&[erase("e1", "L1", 3), erase("e2", "L2", 3)]));
    site.ok(&["run", "mutate"]);
    let shown = |id: &str| serde_json::from_str::<Value>(&site.ok(&["request", "show", id, "--output", "json"])).unwrap();
    for (id, state, renamed_by) in
        [("e1", "waiting", json!("r1")), ("e2", "waiting", Value::Null), ("r1", "applied", Value::Null)]
    {
        let shown = shown(id);
        assert_eq!((&shown["state"], &shown["renamed_by"]), (&json!(state), &renamed_by), "{id}");
    }
    assert_eq!(
        shown("e1")["renamed"],
        json!({ "engagement": { "by": "r1", "to": "C1" }, "meeting": { "by": "r1", "to": "C1" } })
    );
    let text = site.ok(&["request", "show", "e1"]);
    assert!(text.contains("\n  engagement: its id had become C1 before, by request r1\n"), "{text}");
}

#[test]
fn rows_whose_partition_changes_move_and_changes_tell_each_once() {
    let site = site();
    let meeting = |lead: &str, day: u32| json!({ "org_id": "A", "at": format!("2026-01-{day:02}T00:00:00Z"), "lead_id": lead });
    site.write("meet/1.json", lines(&[meeting("L1", 1), meeting("L1", 2), meeting("L2", 3)]));
    site.ok(&["run", "ingest"]);
    site.ok(&["changes", "meeting", "--rows", "--consumer", "copy", "--commit"]);
    site.write("rq/1.json", lines(&[convert("r1", "L1", "C1", 1)]));
    site.ok(&["run", "mutate"]);
    let sql = "SELECT lead_id, count(*) AS rows FROM meeting GROUP BY lead_id ORDER BY lead_id";
    assert_eq!(site.ok(&["query", sql, "--format", "csv"]), "lead_id,rows\nC1,2\nL2,1\n");
    for dataset in ["meeting", "engagement"] {
        let told = site.ok(&["changes", dataset, "--rows", "--consumer", "copy"]);
        let kinds: Vec<String> = told
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["_change_type"].as_str().map(str::to_owned))
            .filter(|kind| kind != "insert")
            .collect();
        assert_eq!(kinds, ["update_preimage", "update_postimage", "update_preimage", "update_postimage"], "{dataset}");
    }
}

#[test]
fn rows_that_move_into_another_partition_take_columns_along_that_are_not_declared_any_more() {
    let with = YAML.replace(
        "      lead_id: string\n    identities: [lead_id]\n",
        "      lead_id: string\n      note: string\n    identities: [lead_id]\n",
    );
    assert_ne!(with, YAML);
    let site = Site::new(&with);
    let meeting = json!({ "org_id": "A", "at": "2026-01-01T00:00:00Z", "lead_id": "L1", "note": "kept" });
    site.write("meet/1.json", lines(&[meeting]));
    site.ok(&["run", "ingest"]);
    site.write("alluvium.yaml", YAML);
    site.write("rq/1.json", lines(&[convert("r1", "L1", "C1", 1)]));
    let run = summary(&site.ok(&["run", "mutate", "--output", "json"]));
    assert_eq!(run["updated"], 1);
    let text = site.ok(&["query", "SELECT lead_id, note FROM raw.meeting", "--format", "json"]);
    assert_eq!(text.trim(), r#"{"lead_id":"C1","note":"kept"}"#);
}

#[test]
fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let site = site();
    let delete = json!({ "request_id": "r2", "org_id": "A", "op": "delete", "scope": "record", "id": "c",
                         "execution_time": "2026-02-01T00:00:00Z" });
    site.write("more.json", lines(&[convert("r1", "L1", "C1", 1), delete, convert("r3", "L7", "C7", 1)]));
    site.ok(&["request", "submit", "more.json"]);
    let before = rows(&site);
    let would = |dataset: &str| -> Value {
        let text = site.ok(&["run", "mutate", "--dry-run", "--output", "json"]);
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.find(|line| line["job"] == "mutate" && line["dataset"] == dataset).unwrap()
    };
    let expected = json!({ "job": "mutate", "dataset": "engagement", "dry_run": true, "requests": 3, "updated": 2, "deleted": 1,
                           "files_opened": 1, "files_rewritten": 1 });
    assert_eq!(would("engagement"), expected);
    assert_eq!(would("engagement"), expected);
    // Of a table that has no rows yet nothing would change.
    assert_eq!(would("meeting")["requests"], 0);
    assert_eq!(rows(&site), before);
    let run = summary(&site.ok(&["run", "mutate", "--output", "json"]));
    assert_eq!((&run["updated"], &run["deleted"], &run["files_rewritten"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!(would("engagement")["requests"], 0);
}

#[test]
fn files_whose_rows_are_all_later_than_a_delete_holds_for_are_not_opened() {
    let unpartitioned =
        YAML.replace("    identities: [lead_id, {", "    layout: { partition_by: [] }\n    identities: [lead_id, {");
    assert_ne!(unpartitioned, YAML);
    // Where a file holds rows of one organisation alone, the log tells of those that go whole.
    for (project, opened_of_whole) in [(YAML, 0), (&*unpartitioned, 1)] {
        let site = Site::new(project);
        for day in 1..=6 {
            site.write(&format!("in/{day}.json"), lines(&[event(&format!("e{day}"), day, "L1", "U1", 1)]));
            site.ok(&["run", "ingest"]);
        }
        let before = |id: &str, before: &str, execution: &str| {
            json!({ "request_id": id, "org_id": "A", "op": "delete", "scope": "before", "before": before,
                    "execution_time": execution })
        };
        let mutate = |requests: &[Value]| {
            site.write(&format!("rq/{}.json", requests[0]["request_id"].as_str().unwrap()), lines(requests));
            let run = summary(&site.ok(&["run", "mutate", "--output", "json"]));
            (run["files_opened"].as_u64().unwrap(), run["deleted"].as_u64().unwrap())
        };
        // The file of the third day holds nothing older than that day's first moment.
        assert_eq!(mutate(&[before("r1", "2026-01-03T00:00:00Z", "2026-02-01T00:00:00Z")]), (2 * opened_of_whole, 2));
        assert_eq!(mutate(&[before("r2", "2026-01-03T00:00:00.000001Z", "2026-02-01T00:00:00Z")]), (1, 1));
        // It executed on the fourth day, and holds for no row after that.
        assert_eq!(mutate(&[before("r3", "2027-01-01T00:00:00Z", "2026-01-04T12:00:00Z")]), (opened_of_whole, 1));
        // What reaches less far than one before finds nothing, and ids are looked for in the files that hold them.
        assert_eq!(mutate(&[before("r4", "2026-01-02T00:00:00Z", "2026-02-01T00:00:00Z"), convert("r5", "L1", "C1", 1)]), (2, 0));
        let kept: Vec<String> = rows(&site).iter().map(|row| row[..5].to_owned()).collect();
        assert_eq!(kept, ["e5 C1", "e6 C1"]);
    }
}

#[test]
fn requests_that_lead_a_row_back_to_where_it_began_are_applied() {
    let site = site();
    site.write(
        "rq/1.json",
        lines(&[
            convert("r1", "L2", "X2", 1),
            convert("r2", "X2", "L2", 2),
            convert("r3", "L9", "X9", 1),
            convert("r4", "X9", "L9", 2),
        ]),
    );
    let before = rows(&site);
    let run = summary(&site.ok(&["run", "mutate", "--output", "json"]));
    assert_eq!((&run["updated"], &run["files_rewritten"]), (&json!(0), &json!(0)));
    assert_eq!(rows(&site), before);
    let applied = ("applied".to_owned(), json!({ "engagement": 1 }));
    assert_eq!(["r1", "r2"].map(|id| state(&site, id)), [applied.clone(), applied]);
    assert_eq!(["r3", "r4"].map(|id| state(&site, id).0), ["waiting", "waiting"]);
}

#[test]
fn refused_requests_are_taken_in_again_once_the_project_knows_their_field() {
    let site = site();
    let phone = json!({ "request_id": "r1", "org_id": "A", "op": "convert", "field": "phone", "from": "1", "to": "2",
                        "execution_time": "2026-02-01T00:00:00Z" });
    site.write("rq/1.json", lines(&[phone, convert("r2", "L1", "C1", 1), convert("r2", "L1", "C2", 1)]) + "{\n");
    site.ok(&["run", "mutate"]);
    let letters = |site: &Site| -> Vec<(String, u64)> {
        let text = site.ok(&["dead-letters", "list", "--dataset", "requests", "--output", "json"]);
        let letters: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut at: Vec<_> =
            letters.iter().map(|l| (l["source"].as_str().unwrap().to_owned(), l["position"].as_u64().unwrap())).collect();
        at.sort();
        at
    };
    let at = |position: u64| ("1.json".to_owned(), position);
    assert_eq!(letters(&site), [at(0), at(2), at(3)]);
    let replay = |site: &Site| {
        let summary = summary(&site.ok(&["dead-letters", "replay", "requests", "--output", "json"]));
        (summary["batches"].clone(), summary["inserted"].clone())
    };
    assert_eq!(replay(&site), (json!(0), json!(0)), "nothing fits yet");
    assert_eq!(letters(&site), [at(0), at(2), at(3)]);

    let mended = YAML.replace("      n: long\n", "      n: long\n      phone: string\n");
    site.write("alluvium.yaml", mended.replace("identities: [lead_id, {", "identities: [lead_id, phone, {"));
    assert_eq!(replay(&site), (json!(1), json!(1)));
    assert_eq!(letters(&site), [at(2), at(3)], "the rest stay, as they came");
    assert_eq!(replay(&site), (json!(0), json!(0)));
    let rows = |phone: &str| {
        let text = site.ok(&["query", "SELECT eid, phone FROM engagement WHERE phone IS NOT NULL", "--format", "json"]);
        assert_eq!(text.lines().collect::<Vec<_>>(), [format!("{{\"eid\":\"p\",\"phone\":\"{phone}\"}}")]);
    };
    site.write("in/2.json", lines(&[json!({ "eid": "p", "org_id": "A", "at": "2026-01-01T00:00:00Z", "phone": "1" })]));
    site.ok(&["run", "ingest"]);
    rows("1");
    site.ok(&["run", "mutate"]);
    rows("2");
    assert_eq!(state(&site, "r1"), ("applied".to_owned(), json!({ "engagement": 1 })));
    assert_eq!(site.ok(&["request", "list"]).lines().count(), 2);
}

#[test]
fn of_a_request_that_waits_one_row_stands_in_retries_whatever_the_attempts() {
    let site = Site::new(&YAML.replace("max_attempts: 2", "max_attempts: 4"));
    site.write("in/1.json", lines(&[event("a", 1, "L1", "U1", 1)]));
    site.ok(&["run", "ingest"]);
    // Request, attempts and state in `engagement`.
    let retries = || -> Vec<String> {
        let sql = "SELECT request_id, attempts, state FROM retries WHERE dataset = 'engagement' ORDER BY 1, 3";
        let text = site.ok(&["query", sql, "--format", "json"]);
        let row = |line: &str| -> Value { serde_json::from_str(line).unwrap() };
        let told =
            |r: &Value| format!("{} {} {}", r["request_id"].as_str().unwrap(), r["attempts"], r["state"].as_str().unwrap());
        text.lines().map(|line| told(&row(line))).collect()
    };
    site.write("rq/1.json", lines(&[convert("r1", "X1", "C1", 1), convert("r2", "X2", "C2", 1)]));
    site.ok(&["run", "mutate"]);
    assert_eq!(retries(), ["r1 1 waiting", "r2 1 waiting"]);
    site.write("rq/2.json", lines(&[convert("r3", "X3", "C3", 1)]));
    site.ok(&["run", "mutate"]);
    assert_eq!(retries(), ["r1 2 waiting", "r2 2 waiting", "r3 1 waiting"]);
    site.write("in/2.json", lines(&[event("b", 1, "X2", "U1", 1)]));
    site.ok(&["run", "ingest"]);
    assert_eq!(retries(), ["r1 2 waiting", "r2 2 applied", "r2 2 waiting", "r3 1 waiting"]);
    site.ok(&["run", "mutate"]);
    assert_eq!(retries(), ["r1 3 waiting", "r2 2 applied", "r3 2 waiting"]);
    site.ok(&["run", "mutate"]);
    assert_eq!(retries(), ["r1 4 unmatched", "r2 2 applied", "r3 3 waiting"]);
    site.write("in/3.json", lines(&[event("c", 1, "X1", "U1", 1)]));
    site.ok(&["run", "ingest"]);
    site.ok(&["run", "mutate"]);
    assert_eq!(retries(), ["r1 4 applied", "r1 4 unmatched", "r2 2 applied", "r3 4 unmatched"]);
    let states = ["r1", "r2", "r3"].map(|id| state(&site, id).0);
    assert_eq!(states, ["applied", "applied", "unmatched"]);
    site.ok(&["run", "mutate"]);
    assert_eq!(retries().len(), 4);
}

#[test]
fn many_small_batches_of_requests_leave_few_files_of_the_folded_ledger() {
    let site = site();
    // L1 goes from name to name, and rows come under every one of them.
    for at in 1..=20 {
        let from = if at == 1 { "L1".to_owned() } else { format!("N{}", at - 1) };
        site.write(&format!("rq/{at:02}.json"), lines(&[convert(&format!("r{at}"), &from, &format!("N{at}"), at)]));
        site.ok(&["run", "mutate"]);
    }
    let files = |kind: &str| {
        let datasets = std::fs::read_dir(site.path("lake/default/_alluvium/ledger")).unwrap().next().unwrap().unwrap().path();
        let shape = std::fs::read_dir(datasets.join("datasets/engagement")).unwrap().next().unwrap().unwrap().path();
        std::fs::read_dir(shape.join(kind)).unwrap().count()
    };
    assert!(files("fates") < 16 && files("requests") < 16, "{} {}", files("fates"), files("requests"));
    site.write("in/2.json", lines(&[event("d", 1, "L1", "U3", 4), event("e", 1, "N7", "U3", 5), event("f", 1, "L2", "U3", 6)]));
    site.ok(&["run", "ingest"]);
    let leads: Vec<String> = rows(&site).iter().map(|row| row.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(leads, ["a N20", "b N20", "c L2", "d N20", "e N20", "f L2"]);
    assert_eq!(state(&site, "r20"), ("applied".to_owned(), json!({ "engagement": 2 })));
}

#[test]
fn requests_that_were_there_before_the_table_get_their_states_in_parts_where_memory_is_small() {
    let site = Site::new(&YAML.replace("max_attempts: 2", "max_attempts: 9"));
    let all = 25_000;
    let some: String =
        (0..all).map(|n| format!("{}\n", convert(&format!("r{n}"), &format!("X{n}"), &format!("Y{n}"), 1))).collect();
    site.write("rq/1.json", some);
    site.ok(&["run", "mutate", "--memory", "64MiB"]);
    site.write("in/1.json", lines(&[event("a", 1, "X7", "U1", 1), event("b", 1, "X20000", "U1", 1)]));
    site.ok(&["run", "ingest"]);
    let run = summary(&site.ok(&["run", "mutate", "--memory", "64MiB", "--output", "json"]));
    // They were taken in as 10,000, 10,000 and 5,000; of 16,384 at most are told at a time.
    assert_eq!((&run["batches"], &run["updated"]), (&json!(2), &json!(0)));
    let sql = "SELECT count(*) AS rows, count(DISTINCT request_id) AS requests FROM retries \
               WHERE dataset = 'engagement' AND state = 'waiting'";
    let text = site.ok(&["query", sql, "--format", "json"]);
    let counted: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&counted["rows"], &counted["requests"]), (&json!(all - 2), &json!(all - 2)));
    assert_eq!(rows(&site).iter().filter(|row| row.contains(" Y7 ") || row.contains(" Y20000 ")).count(), 2);
    assert_eq!(["r7", "r20000", "r8"].map(|id| state(&site, id).0), ["applied", "applied", "waiting"]);
    let idle = summary(&site.ok(&["run", "mutate", "--memory", "64MiB", "--output", "json"]));
    assert_eq!(idle["batches"], json!(1), "one more attempt, in one batch");
}
