//! `alluvium query`: what it refuses, and how it says so.

use std::fs;
use std::path::Path;

use super::Tiny;

/// Every file below, with its bytes.
fn everything(below: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![below.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push((path.display().to_string(), fs::read(&path).unwrap())) }
        }
    }
    found.sort();
    found
}

#[test]
fn statements_that_change_something_are_refused_and_change_nothing() {
    let tiny = Tiny::with_edits();
    let before = everything(tiny.directory.path());
    let out = tiny.path("out.csv").display().to_string();
    for sql in [
        "INSERT INTO edit SELECT * FROM edit",
        "INSERT INTO raw.edit SELECT * FROM raw.edit",
        "EXPLAIN ANALYZE INSERT INTO raw.edit SELECT * FROM raw.edit",
        "UPDATE edit SET id = 1",
        "DELETE FROM edit",
        "DROP TABLE edit",
        "DROP SCHEMA raw",
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "CREATE SCHEMA s",
        "SELECT 1 AS a INTO t",
        &format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{out}'"),
        &format!("COPY (SELECT 1) TO '{out}' STORED AS CSV"),
        &format!("EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}' STORED AS CSV"),
        "SET datafusion.execution.batch_size = 1",
        "RESET datafusion.execution.batch_size",
        "PREPARE p AS SELECT 1",
        "BEGIN",
        "TRUNCATE TABLE edit",
    ] {
        let said = tiny.run(&["query", sql]);
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{sql}: {}", said.stderr);
        assert!(said.stderr.contains("hint"), "{sql}: {}", said.stderr);
    }
    assert_eq!(everything(tiny.directory.path()), before);
}

#[test]
fn statements_that_only_read_run() {
    let tiny = Tiny::with_edits();
    for sql in
        ["EXPLAIN SELECT * FROM edit", "DESCRIBE edit", "SHOW TABLES", "VALUES (1)", "WITH t AS (SELECT 1 AS x) SELECT x FROM t"]
    {
        let said = tiny.run(&["query", sql]);
        assert_eq!(said.code, 0, "{sql}: {}", said.stderr);
        assert!(said.stdout.lines().count() > 2, "{sql}: {}", said.stdout);
    }
}

#[test]
fn an_unknown_table_is_not_found_and_the_known_ones_are_named() {
    for sql in ["SELECT * FROM edits", "SELECT * FROM raw.edits", "SELECT * FROM edit JOIN edits USING (id)"] {
        let said = Tiny::new().run(&["query", sql]);
        assert_eq!(said.code, 3, "{sql}: {}", said.stderr);
        assert!(said.stderr.contains("edit, visit, notifications"), "{}", said.stderr);
    }
    assert_eq!(Tiny::new().run(&["query", "SELECT * FROM other.edit"]).code, 3);
}

#[test]
fn wrong_statements_say_what_and_where() {
    let tiny = Tiny::new();
    for (sql, part) in [
        ("SELEC 1", "Line: 1, Column: 1"),
        ("SELECT isrobot FROM edit", "names are taken as written: isRobot"),
        ("SELECT org FROM visit", "the columns are: org_id, at, event_date"),
        ("SELECT nothing_like_it(1)", "nothing_like_it"),
        ("SELECT 1; SELECT 2", "single SQL statement"),
        ("", "No SQL statements"),
    ] {
        let said = tiny.run(&["query", sql]);
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{sql}: {}", said.stderr);
        assert!(said.stderr.contains(part), "{sql}: {}", said.stderr);
    }
}

#[test]
fn two_columns_of_one_name_are_refused_where_readers_would_lose_one() {
    let tiny = Tiny::new();
    let sql = "SELECT a.id, b.id FROM edit a JOIN edit b ON a.at = b.at";
    for (format, code) in [("json", 2), ("parquet", 2), ("csv", 0), ("table", 0)] {
        let said = tiny.run(&["query", sql, "--format", format]);
        assert_eq!(said.code, code, "{format}: {}", said.stderr);
    }
}

#[test]
fn a_failing_row_is_not_quoted() {
    let tiny = Tiny::new();
    tiny.ingest("edit", "a.json", "{\"id\":1,\"orgId\":\"SECRET_PERSON\",\"at\":\"2026-01-02\",\"tags\":[\"SECRET_TAG\"]}\n");
    for sql in [
        "SELECT CAST(orgId AS BIGINT) FROM edit",
        "SELECT CAST(orgId AS TIMESTAMP) FROM edit",
        "SELECT id FROM edit WHERE CAST(orgId AS BIGINT) = 1",
        "SELECT to_timestamp(orgId) FROM edit",
        "SELECT CAST(tags[1] AS DOUBLE) FROM edit",
        "SELECT CAST(orgId AS DECIMAL(5,2)) FROM edit",
        "SELECT arrow_cast(orgId, 'Int64') FROM edit",
        "SELECT id / 0 FROM edit",
    ] {
        let said = tiny.run(&["query", sql]);
        assert_eq!(said.code, 2, "{sql}: {}{}", said.stdout, said.stderr);
        assert!(!said.stderr.contains("SECRET"), "{sql}: {}", said.stderr);
        assert!(said.stderr.contains("the query failed: "), "{sql}: {}", said.stderr);
    }
}

#[test]
fn a_broken_table_troubles_only_queries_that_name_it() {
    let tiny = Tiny::with_edits();
    tiny.break_table("edit");
    assert_eq!(tiny.run(&["query", "SELECT * FROM edit"]).code, 8);
    assert_eq!(tiny.rows("SELECT count(*) AS n FROM dead_letters"), [r#"{"n":1}"#]);
}

#[test]
fn too_little_memory_for_a_query_is_said_with_the_flag_that_helps() {
    let tiny = Tiny::new();
    let sql = "SELECT array_agg(value) FROM generate_series(1, 40000000)";
    let said = tiny.run(&["query", sql, "--format", "csv", "--memory", "64MiB"]);
    assert_eq!(said.code, 6, "{}", said.stderr);
    assert!(said.stderr.contains("--memory"), "{}", said.stderr);
}
