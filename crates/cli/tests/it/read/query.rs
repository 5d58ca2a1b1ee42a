//! `alluvium query`: what comes back.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Tiny, objects};

#[test]
fn rows_as_json_follow_the_rules_for_values() {
    let tiny = Tiny::with_edits();
    let sql =
        "SELECT id, orgId, at, isRobot, price, raw_bytes, tags, score, event_date, _rescued, _original FROM edit ORDER BY id";
    assert_eq!(
        tiny.rows(sql),
        [
            r#"{"id":1,"orgId":"a","at":"2026-01-02T03:04:05Z","isRobot":true,"price":"12.50","raw_bytes":"aGk=","tags":["x","y"],"score":0.5,"event_date":"2026-01-02","_rescued":null,"_original":null}"#,
            r#"{"id":3,"orgId":"a","at":"2026-01-03T00:00:00Z","isRobot":null,"price":null,"raw_bytes":null,"tags":null,"score":null,"event_date":"2026-01-03","_rescued":"{\"unknown\":7}","_original":null}"#,
            r#"{"id":9007199254740993,"orgId":"b","at":"2026-01-02T03:04:05.123456Z","isRobot":false,"price":"0.10","raw_bytes":null,"tags":null,"score":1e300,"event_date":"2026-01-02","_rescued":null,"_original":null}"#,
        ]
    );
}

#[test]
fn output_json_prints_json_and_a_table_is_the_default() {
    let tiny = Tiny::with_edits();
    let sql = "SELECT orgId, count(*) AS n FROM lake.edit GROUP BY orgId ORDER BY orgId";
    assert_eq!(tiny.run(&["query", sql, "--output", "json"]).stdout, "{\"orgId\":\"a\",\"n\":2}\n{\"orgId\":\"b\",\"n\":1}\n");
    let said = tiny.run(&["query", sql]);
    assert_eq!(said.stdout, "orgId  n\n-----  -\na      2\nb      1\n");
    assert_eq!(said.stderr, "2 rows\n");
}

#[test]
fn a_cell_of_several_lines_stays_in_its_column_and_moves_no_cursor() {
    let said = Tiny::new().run(&["query", "SELECT 7 AS n, concat('a', chr(10), 'bc', chr(27), '[31m') AS t, NULL AS z"]);
    assert_eq!(said.stdout, "n  t             z\n-  ------------  ----\n7  a             NULL\n   bc\\u{1b}[31m\n");
}

#[test]
fn csv_has_a_header_and_tells_null_from_empty() {
    let tiny = Tiny::new();
    let said = tiny.run(&["query", "SELECT 'a,\"b\"' AS x, '' AS y, NULL AS z, 1.5 AS w", "--format", "csv"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "x,y,z,w\n\"a,\"\"b\"\"\",\"\",,1.5\n"));
}

#[test]
fn rows_of_no_table_yet_are_none_with_the_declared_columns() {
    let tiny = Tiny::new();
    let said = tiny.run(&["query", "SELECT * FROM visit", "--format", "csv"]);
    let header = "org_id,at,event_date,_source,_offset,_ingested_at,_rescued,_original\n";
    assert_eq!((said.code, said.stdout.as_str()), (0, header));
    for table in ["notifications", "requests", "retries", "dead_letters", "raw.edit", "lake.edit"] {
        assert_eq!(tiny.rows(&format!("SELECT count(*) AS n FROM {table}")), [r#"{"n":0}"#], "{table}");
    }
    assert!(!tiny.path("lake").exists());
}

#[test]
fn a_declaration_that_changed_shapes_lake_and_leaves_raw_as_stored() {
    let tiny = Tiny::with_edits();
    let changed = super::PROJECT.replace("      score: double\n", "      colour: string\n");
    fs::write(tiny.path("alluvium.yaml"), changed).unwrap();
    let keys =
        |sql: &str| -> Vec<String> { objects(&tiny.rows(sql)[0])[0].as_object().unwrap().keys().cloned().collect::<Vec<_>>() };
    let (lake, raw) = (keys("SELECT * FROM lake.edit LIMIT 1"), keys("SELECT * FROM raw.edit LIMIT 1"));
    let has = |keys: &[String], name: &str| keys.iter().any(|k| k == name);
    assert_eq!((has(&lake, "colour"), has(&lake, "score")), (true, false), "{lake:?}");
    assert_eq!((has(&raw, "colour"), has(&raw, "score")), (false, true), "{raw:?}");
    assert_eq!(tiny.rows("SELECT colour FROM edit WHERE id = 1"), [r#"{"colour":null}"#]);
}

#[test]
fn organisations_come_back_exactly_and_filters_find_them() {
    let tiny = Tiny::new();
    let orgs = [
        "plain",
        "a'b",
        "\"quoted\"",
        "100%",
        "%2F",
        "a/b",
        "../..",
        ".",
        " lead",
        "trail ",
        "a=b&c",
        "tab\there",
        "line\nend",
        "\u{1}",
        "été",
        "日本",
        "\u{20000}",
        "😀",
        "NULL",
        "null",
        "__HIVE_DEFAULT_PARTITION__",
        "a\\b",
        "?#*[]{}",
        &"x".repeat(500),
    ];
    let lines: String =
        orgs.iter().enumerate().map(|(i, org)| json!({ "id": i, "orgId": org, "at": "2026-01-02" }).to_string() + "\n").collect();
    tiny.ingest("edit", "orgs.json", &lines);
    for table in ["lake.edit", "raw.edit"] {
        let rows = tiny.rows(&format!("SELECT id, orgId FROM {table} ORDER BY id"));
        let back: Vec<Value> = rows.iter().map(|r| serde_json::from_str::<Value>(r).unwrap()["orgId"].clone()).collect();
        assert_eq!(back, orgs.map(|o| json!(o)), "{table}");
    }
    for (i, org) in orgs.iter().enumerate() {
        let sql = format!("SELECT id FROM edit WHERE orgId = '{}'", org.replace('\'', "''"));
        assert_eq!(tiny.rows(&sql), [format!("{{\"id\":{i}}}")], "{org:?}");
    }
}

#[test]
fn filter_on_the_organisation_opens_only_its_files() {
    let tiny = Tiny::with_edits();
    // Without the files of `b`, rows of `a` can still be read: nothing else was opened.
    for entry in super::data_files(&tiny.path("lake/default/edit")) {
        let bytes = fs::read(&entry).unwrap();
        let holds_b = bytes.windows(8).any(|w| w == 9_007_199_254_740_993_i64.to_le_bytes());
        if holds_b {
            fs::remove_file(&entry).unwrap();
        }
    }
    assert_eq!(tiny.rows("SELECT id FROM edit WHERE orgId = 'a' ORDER BY id"), [r#"{"id":1}"#, r#"{"id":3}"#]);
    let said = tiny.run(&["query", "SELECT max(score) FROM edit", "--format", "json"]);
    assert_eq!(said.code, 8, "{}{}", said.stdout, said.stderr);
}

#[test]
fn greatest_time_has_its_microseconds_and_counts_come_from_rows() {
    let tiny = Tiny::with_edits();
    assert_eq!(
        tiny.rows("SELECT max(at) AS m, min(at) AS l, count(*) AS n, max(orgId) AS o FROM edit WHERE event_date = '2026-01-02'"),
        [r#"{"m":"2026-01-02T03:04:05.123456Z","l":"2026-01-02T03:04:05Z","n":2,"o":"b"}"#]
    );
    assert_eq!(tiny.rows("SELECT max(at) AS m FROM edit WHERE orgId = 'b'"), [r#"{"m":"2026-01-02T03:04:05.123456Z"}"#]);
    assert_eq!(tiny.rows("SELECT max(at) AS m FROM edit"), [r#"{"m":"2026-01-03T00:00:00Z"}"#]);
}

#[test]
fn dead_letters_hold_the_record_as_base64_and_join_with_notifications() {
    let tiny = Tiny::with_edits();
    // base64 of {"id":4,"orgId":"a","at":"never"}
    assert_eq!(
        tiny.rows("SELECT dataset, source, position, raw, field FROM dead_letters"),
        [
            r#"{"dataset":"edit","source":"a.json","position":3,"raw":"eyJpZCI6NCwib3JnSWQiOiJhIiwiYXQiOiJuZXZlciJ9","field":"at"}"#
        ]
    );
    assert_eq!(tiny.rows("SELECT sum(inserted) AS n FROM notifications"), [r#"{"n":3}"#]);
}

#[test]
fn parquet_is_one_file_that_a_source_reads_back() {
    let tiny = Tiny::with_edits();
    let sql = "SELECT orgId AS org_id, at FROM edit ORDER BY id";
    let output = tiny.command(&["query", sql, "--format", "parquet"]).output().unwrap();
    assert!(output.status.success());
    let (edits, visits) = super::PROJECT.split_once("  visit:").unwrap();
    fs::write(tiny.path("alluvium.yaml"), format!("{edits}  visit:{}", visits.replace("json", "parquet"))).unwrap();
    fs::write(tiny.path("inbox/visit/rows.parquet"), output.stdout).unwrap();
    assert_eq!(tiny.run(&["run", "ingest", "visit"]).code, 0);
    assert_eq!(
        tiny.rows("SELECT org_id, at, _offset FROM visit ORDER BY _offset"),
        [
            r#"{"org_id":"a","at":"2026-01-02T03:04:05Z","_offset":0}"#,
            r#"{"org_id":"a","at":"2026-01-03T00:00:00Z","_offset":1}"#,
            r#"{"org_id":"b","at":"2026-01-02T03:04:05.123456Z","_offset":2}"#,
        ]
    );
}

#[test]
fn a_reader_that_closes_early_ends_the_query_quietly() {
    let tiny = Tiny::new();
    let sql = "SELECT * FROM generate_series(1, 100000000)";
    let mut child =
        tiny.command(&["query", sql, "--format", "json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "{\"value\":1}\n");
    let status = child.wait().unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_sort_beyond_the_memory_budget_spills_and_leaves_nothing_behind() {
    let tiny = Tiny::new();
    let temp = tiny.path("temp");
    fs::create_dir(&temp).unwrap();
    // 160 MB of texts; the first three in their order end in 1, 10 and 100.
    let sql = "SELECT sum(v) AS s FROM (SELECT v, row_number() OVER (ORDER BY t) AS r FROM \
               (SELECT value AS v, concat(repeat('x', 400), value) AS t FROM generate_series(1, 400000))) WHERE r <= 3";
    let output = tiny.command(&["query", sql, "--format", "json", "--memory", "64MiB"]).env("TMPDIR", &temp).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "{\"s\":111}\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0);
}

#[test]
fn a_query_that_computes_stops_on_a_signal_and_leaves_nothing_behind() {
    let tiny = Tiny::new();
    let temp = tiny.path("temp");
    fs::create_dir(&temp).unwrap();
    let sql = "SELECT count(*) FROM generate_series(1, 1000000000000)";
    let mut child = tiny.command(&["query", sql]).env("TMPDIR", &temp).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_dir(&temp).unwrap().count() == 0 {
        assert!(Instant::now() < deadline, "the query never began");
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let status = child.wait().unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((status.code(), stderr.as_str()), (Some(6), "error: the query was stopped before its end\n"));
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0);
}
