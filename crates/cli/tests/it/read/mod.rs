//! `tables`, `query` and `status` on a project of two datasets, made anew for each test.

#![allow(clippy::unwrap_used)]

mod changes;
mod query;
mod refusals;
mod status;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Two datasets; `visit` is never given any data.
const PROJECT: &str = r#"
project: tiny
storage: ./lake
durability: process
datasets:
  edit:
    source: { files: { path: ./inbox/edit, format: json } }
    key: id
    org: orgId
    event_time: at
    fields:
      id: long
      orgId: string
      at: timestamp
      isRobot: boolean
      price: "decimal(10,2)"
      raw_bytes: binary
      tags: array<string>
      score: double
  visit:
    source: { files: { path: ./inbox/visit, format: json } }
    org: org_id
    event_time: at
    fields: { org_id: string, at: timestamp }
"#;

/// Three rows of two organisations and one record that is refused (its time is none).
const EDITS: &str = r#"{"id":1,"orgId":"a","at":"2026-01-02T03:04:05Z","isRobot":true,"price":"12.50","raw_bytes":"aGk=","tags":["x","y"],"score":0.5}
{"id":9007199254740993,"orgId":"b","at":"2026-01-02T03:04:05.123456Z","isRobot":false,"price":"0.10","score":1e300}
{"id":3,"orgId":"a","at":"2026-01-03 00:00:00","unknown":7}
{"id":4,"orgId":"a","at":"never"}
"#;

/// A project in a directory of its own.
struct Tiny {
    directory: TempDir,
}

/// What a command said.
struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Tiny {
    fn new() -> Self {
        let tiny = Self { directory: TempDir::new().unwrap() };
        fs::write(tiny.path("alluvium.yaml"), PROJECT).unwrap();
        fs::create_dir_all(tiny.path("inbox/edit")).unwrap();
        fs::create_dir_all(tiny.path("inbox/visit")).unwrap();
        tiny
    }

    /// With [`EDITS`] taken in.
    fn with_edits() -> Self {
        let tiny = Self::new();
        tiny.ingest("edit", "a.json", EDITS);
        tiny
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ingest(&self, dataset: &str, file: &str, lines: &str) {
        fs::write(self.path("inbox").join(dataset).join(file), lines).unwrap();
        let said = self.run(&["run", "ingest", dataset]);
        assert_eq!(said.code, 0, "{}", said.stderr);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_alluvium"));
        command.args(args).arg("--project").arg(self.directory.path()).stdin(Stdio::null());
        for name in ["ALLUVIUM_PROJECT", "ALLUVIUM_NAMESPACE", "ALLUVIUM_MEMORY", "RUST_LOG"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Said {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        Said {
            code: status.code().unwrap(),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
        }
    }

    /// The lines of a query's JSON.
    fn rows(&self, sql: &str) -> Vec<String> {
        let said = self.run(&["query", sql, "--format", "json"]);
        assert_eq!(said.code, 0, "{sql}: {}", said.stderr);
        said.stdout.lines().map(str::to_owned).collect()
    }

    /// Cuts the log of a table so that it cannot be read.
    fn break_table(&self, table: &str) {
        fs::write(self.path("lake/default").join(table).join("_delta_log/00000000000000000000.json"), "no JSON\n").unwrap();
    }
}

fn objects(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Data files of a table, by listing.
fn data_files(table: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(table).unwrap().map(|e| e.unwrap().path());
    entries.filter(|p| p.extension().is_some_and(|e| e == "parquet")).collect()
}
