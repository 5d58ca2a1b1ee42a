//! Spark: it reads all our tables, and the example follows notifications with it.
//!
//! Needs the Python with pyspark, and the jars of delta-spark, that `.ci/run` installs, named by `ALLUVIUM_TEST_SPARK_PYTHON` and
//! `ALLUVIUM_TEST_SPARK_JARS`, and Java; without them the tests say that they skip.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::site::Site;

const PROJECT: &str = r#"
project: spark
storage: ./lake
durability: process
datasets:
  edit:
    source: { files: { path: ./inbox/edit, format: json } }
    org: orgId
    event_time: at
    fields:
      id: long
      orgId: string
      at: timestamp
      day: date
      price: "decimal(10,2)"
      raw_bytes: binary
      tags: array<string>
      place: "struct<city: string, zip: integer>"
      counts: "map<string, long>"
      who: string
    identities: [who]
    layout: { partition_by: [orgId] }
requests: { source: { files: { path: ./inbox/requests, format: json } } }
"#;

/// Organisations whose names are hard to spell in paths and in SQL.
const ORGANISATIONS: [&str; 5] = ["plain", "50% off/of 'it'", "été 日本", "a=b&c", "back\\slash"];

/// The Python with pyspark, and the directory of jars; `None`, said so, where they are not.
pub fn spark() -> Option<(OsString, OsString)> {
    let found = std::env::var_os("ALLUVIUM_TEST_SPARK_PYTHON").zip(std::env::var_os("ALLUVIUM_TEST_SPARK_JARS"));
    if found.is_none() {
        eprintln!(
            "skipped: Spark, because ALLUVIUM_TEST_SPARK_PYTHON and ALLUVIUM_TEST_SPARK_JARS are not set (.ci/run sets them)"
        );
    }
    found
}

fn script(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn lines(from: usize, to: usize) -> String {
    (from..to)
        .map(|id| {
            let org = serde_json::to_string(ORGANISATIONS[id % ORGANISATIONS.len()]).unwrap();
            let (day, who) = (1 + id % 3, id % 7);
            format!(
                "{{\"id\":{id},\"orgId\":{org},\"at\":\"2026-01-0{day}T03:04:05.123456Z\",\"day\":\"2026-01-0{day}\",\"price\":\"{id}.25\",\
                 \"raw_bytes\":\"aGk=\",\"tags\":[\"x\",null],\"place\":{{\"city\":\"c\",\"zip\":{id}}},\"counts\":{{\"k\":{id}}},\"who\":\"p{who}\"}}\n"
            )
        })
        .collect()
}

/// What Spark sees in tables of the site.
fn seen(python: &OsString, jars: &OsString, tables: &[PathBuf]) -> Vec<Value> {
    let output = Command::new(python)
        .arg(script("xtask/python/spark_read.py"))
        .arg(jars)
        .args(tables)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn follow(site: &Site, python: &OsString, jars: &OsString) -> String {
    let output = Command::new(python)
        .arg(script("examples/spark_consumer/consumer.py"))
        .args(["--dataset", "edit", "--org", "orgId", "--jars"])
        .arg(jars)
        .arg("--lake")
        .arg(site.path("lake/default"))
        .arg("--copy")
        .arg(site.path("copy"))
        .arg("--checkpoint")
        .arg(site.path("checkpoint"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn spark_reads_all_tables_and_follows_notifications_into_a_copy() {
    let Some((python, jars)) = spark() else { return };
    let site = Site::new(PROJECT);
    site.write("inbox/edit/a.json", lines(0, 100) + "not JSON\n");
    site.ok(&["run", "ingest"]);
    follow(&site, &python, &jars);
    // One more record, of one partition: only that one is read again.
    site.write("inbox/edit/b.json", lines(100, 101));
    site.ok(&["run", "ingest"]);
    let said = follow(&site, &python, &jars);
    assert!(said.ends_with(": 1 partitions read again\n"), "{said}");

    // Of the first organisation p3 has rows 10, 45 and 80, of the second p4 has 11, 46 and 81, of another day each.
    let first = r#""request_id":"c","op":"convert","field":"who","from":"p3","to":"q3""#;
    let second = r#""request_id":"d","op":"delete","scope":"subject","field":"who","id":"p4""#;
    let request = |org: usize, rest: &str| {
        let org = serde_json::to_string(ORGANISATIONS[org]).unwrap();
        format!("{{\"org_id\":{org},\"execution_time\":\"2026-02-01T00:00:00Z\",{rest}}}\n")
    };
    site.write("inbox/requests/a.json", request(0, first) + &request(1, second));
    site.ok(&["run", "mutate"]);
    let said = follow(&site, &python, &jars);
    assert!(said.ends_with(": 6 partitions read again\n"), "{said}");

    let tables = ["edit", "notifications", "dead_letters", "requests"].map(|t| site.path(&format!("lake/default/{t}")));
    let all: Vec<PathBuf> = tables.iter().cloned().chain([site.path("copy")]).collect();
    let by_spark = seen(&python, &jars, &all);
    let rows: Vec<u64> = by_spark.iter().map(|t| t["rows"].as_u64().unwrap()).collect();
    // By hand: 5 organisations on 3 days each, one partition told of again, and six that requests changed.
    assert_eq!(rows, [98, 22, 1, 2, 98]);
    assert_eq!(by_spark[0]["columns"], by_spark[4]["columns"]);
    assert_eq!(by_spark[0]["columns"]["id"]["sum"], (0..=100).sum::<u64>() - 11 - 46 - 81);
    assert_eq!(by_spark[0]["columns"]["_original"]["nulls"], 95);
    if let Some(others) = site.read_by_others(&["edit", "notifications", "dead_letters", "requests"], &[]) {
        for (spark, others) in by_spark.iter().zip(&others) {
            assert_eq!((&spark["rows"], &spark["columns"]), (&others["rows"], &others["columns"]));
        }
    }
    // The delete was an erasure for privacy: a vacuum removes what it replaced, and cuts the table's log.
    site.ok(&["run", "vacuum"]);
    assert!(!tables[0].join("_delta_log/00000000000000000000.json").exists());
    let after = seen(&python, &jars, &tables[..1]);
    assert_eq!((&after[0]["rows"], &after[0]["columns"]), (&by_spark[0]["rows"], &by_spark[0]["columns"]));
}
