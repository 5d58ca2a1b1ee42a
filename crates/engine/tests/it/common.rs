//! The project and the input that these tests share: events of a few organisations over a few days, some of them refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use alluvium_engine::{Engine, Mode, RunSummary};
use alluvium_lake::Store;
use alluvium_testkit::{DatasetCheck, Lab, Landed};
use object_store::ObjectStore;
use object_store::memory::InMemory;

/// A project of one dataset, `edit`, that ends a batch after `max_rows` records.
pub fn yaml(after: &str, max_rows: u64) -> String {
    format!(
        "project: test
storage: ./lake
durability: process
datasets:
  edit:
    source: {{ files: {{ path: ./inbox, format: json, after: '{after}' }} }}
    org: org
    event_time: at
    fields: {{ org: string, at: timestamp, n: long, lead: string }}
    identities: [lead]
    layout: {{ partition_by: [org] }}
    batch: {{ max_rows: {max_rows} }}
"
    )
}

/// Record `i` of a file as a line. Every fifth is refused (its `n` is no number), every third has a field nobody declared;
/// organisations and days alternate.
pub fn line(file: &str, i: u64) -> String {
    let org = ["a/b c", "b%20", "ç"][(i % 3) as usize];
    let day = 1 + i % 2;
    let n = if is_refused(i) { "\"many\"".to_owned() } else { i.to_string() };
    let more = if i.is_multiple_of(3) { r#","mood":"good""# } else { "" };
    format!(r#"{{"org":"{org}","at":"2026-01-0{day}T23:59:59.5Z","n":{n},"lead":"{file}-{i}"{more}}}"#)
}

pub fn is_refused(i: u64) -> bool {
    i % 5 == 3
}

/// Writes a file of `records` lines into the inbox. It gets its name whole, as files of a source should.
pub fn file(directory: &Path, name: &str, records: u64) {
    let inbox = directory.join("inbox");
    fs::create_dir_all(&inbox).unwrap();
    let text: String = (0..records).map(|i| line(name, i) + "\n").collect();
    let unfinished = inbox.join(format!("{name}.tmp"));
    fs::write(&unfinished, text).unwrap();
    fs::rename(unfinished, inbox.join(name)).unwrap();
}

/// What must have landed of files of so many records each: (file, record, refused).
pub fn expected(files: &[(&str, u64)]) -> Vec<(String, u64, bool)> {
    let mut all: Vec<_> =
        files.iter().flat_map(|(name, records)| (0..*records).map(|i| ((*name).to_owned(), i, is_refused(i)))).collect();
    all.sort();
    all
}

/// What landed, as [`expected`] has it.
pub fn places(landed: &Landed) -> Vec<(String, u64, bool)> {
    let rows = landed.rows.iter().map(|r| (r["_source"].clone(), r["_offset"].parse().unwrap(), false));
    let letters = landed.dead_letters.iter().map(|r| (r["source"].clone(), r["position"].parse().unwrap(), true));
    let mut all: Vec<_> = rows.chain(letters).collect();
    all.sort();
    all
}

/// Checks that each row holds what its line said.
pub fn check_values(landed: &Landed) {
    for row in &landed.rows {
        let i: u64 = row["_offset"].parse().unwrap();
        let mut wanted = BTreeMap::from([
            ("org", ["a/b c", "b%20", "ç"][(i % 3) as usize].to_owned()),
            ("at", format!("2026-01-0{}T23:59:59.500000Z", 1 + i % 2)),
            ("n", i.to_string()),
            ("lead", format!("{}-{i}", row["_source"])),
            ("event_date", format!("2026-01-0{}", 1 + i % 2)),
            ("_source", row["_source"].clone()),
            ("_offset", i.to_string()),
        ]);
        if i.is_multiple_of(3) {
            wanted.insert("_rescued", r#"{"mood":"good"}"#.to_owned());
        }
        let wanted: BTreeMap<String, String> = wanted.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        assert_eq!(*row, wanted);
    }
    for letter in &landed.dead_letters {
        let raw = line(&letter["source"], letter["position"].parse().unwrap());
        let hex: String = raw.bytes().map(|b| format!("{b:02x}")).collect();
        assert_eq!(letter["raw"], hex, "a dead letter keeps the whole record");
        assert_eq!(letter.get("field").map(String::as_str), Some("n"));
    }
}

/// A store in memory.
pub fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

/// Runs until nothing is left.
pub async fn ingest(engine: &Engine, mode: Mode) -> alluvium_core::Result<RunSummary> {
    let datasets = engine.datasets(&[])?;
    engine.ingest(&datasets, mode).await
}

/// Runs a fresh engine until nothing is left, and fails with what it failed with.
pub async fn run(lab: &Lab, store: &Arc<dyn ObjectStore>) -> RunSummary {
    let summary = ingest(&lab.engine(&Store::over(store.clone())), Mode::UntilIdle).await.unwrap();
    if let Some((dataset, error)) = summary.failed.first() {
        panic!("{dataset}: {}", error.chain_text());
    }
    summary
}

/// What landed of `edit`.
pub async fn landed(store: &Arc<dyn ObjectStore>) -> Landed {
    DatasetCheck::new(store, "default", "edit", "org").landed().await.unwrap_or_else(|fault| panic!("{fault}"))
}

/// Runs a fresh engine once more, which must find nothing to do, and checks that every record of `files` landed once.
pub async fn settle(lab: &Lab, store: &Arc<dyn ObjectStore>, files: &[(&str, u64)]) -> Landed {
    run(lab, store).await;
    assert_eq!(run(lab, store).await.batches, 0, "nothing is left to do");
    let landed = landed(store).await;
    assert_eq!(places(&landed), expected(files));
    check_values(&landed);
    landed
}
