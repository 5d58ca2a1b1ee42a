//! Every put of a mutation is the last: the store dies before and after each, or reports failure after success, and a fresh process goes on.
//!
//! A small history: rows are taken in, requests move them to other ids and partitions, set values and delete; rows come that requests wait
//! for; a second wave brings requests that execute before those of the first. The faults befall every put of the second half: more rows, late requests,
//! and all that mutate does with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use alluvium_engine::Mode;
use alluvium_lake::Store;
use alluvium_testkit::{Fault, FaultStore, Lab, Row, TableReader};
use object_store::ObjectStore;
use object_store::memory::InMemory;

pub const YAML: &str = "
project: sweep
storage: ./lake
durability: process
datasets:
  call:
    source: { files: { path: ./inbox/call, format: json } }
    key: id
    org: org
    event_time: at
    fields: { id: string, org: string, at: timestamp, lead: string, user: string, note: string }
    identities: [lead, { field: user, on_erase: clear, clear: [note] }]
    layout: { partition_by: [lead] }
requests:
  source: { files: { path: ./inbox/requests, format: json } }
  max_attempts: 3
";

/// Rows: id, hour, lead, user.
const FIRST: [(&str, u32, &str, &str); 7] = [
    ("1", 1, "a", "u1"),
    ("2", 2, "a", "u2"),
    ("3", 3, "b", "u1"),
    ("4", 4, "c", "u3"),
    ("5", 5, "d", "u4"),
    ("6", 6, "e", "u5"),
    ("7", 7, "e", "u6"),
];
const LATER: [(&str, u32, &str, &str); 4] =
    [("8", 1, "a", "u1"), ("9", 9, "w", "u2"), ("10", 2, "d", "u3"), ("11", 8, "f", "u7")];

const EARLY_REQUESTS: [&str; 5] = [
    r#"{"request_id":"r1","org_id":"o","op":"convert","field":"lead","from":"a","to":"b","execution_time":"2026-01-01T10:00:00Z"}"#,
    r#"{"request_id":"r2","org_id":"o","op":"delete","scope":"subject","field":"lead","id":"d","execution_time":"2026-01-01T10:00:00Z"}"#,
    r#"{"request_id":"r3","org_id":"o","op":"update","field":"user","id":"u3","set":{"note":"x"},"execution_time":"2026-01-01T10:00:00Z"}"#,
    r#"{"request_id":"r4","org_id":"o","op":"convert","field":"lead","from":"w","to":"z","execution_time":"2026-01-01T10:00:00Z"}"#,
    r#"{"request_id":"r5","org_id":"o","op":"convert","field":"lead","from":"nobody","to":"z","execution_time":"2026-01-01T10:00:00Z"}"#,
];
const LATE_REQUESTS: [&str; 6] = [
    // Executes before r1: what it moves to a, r1 moves on to b.
    r#"{"request_id":"s1","org_id":"o","op":"convert","field":"lead","from":"c","to":"a","execution_time":"2026-01-01T09:00:00Z"}"#,
    r#"{"request_id":"s2","org_id":"o","op":"delete","scope":"subject","field":"user","id":"u1","execution_time":"2026-01-01T11:00:00Z"}"#,
    r#"{"request_id":"s3","org_id":"o","op":"delete","scope":"record","id":"7","execution_time":"2026-01-01T11:00:00Z"}"#,
    r#"{"request_id":"s4","org_id":"o","op":"update","field":"lead","id":"e","set":{"note":null},"execution_time":"2026-01-01T12:00:00Z"}"#,
    // The same as before, and another of the same id.
    r#"{"request_id":"r1","org_id":"o","op":"convert","field":"lead","from":"a","to":"b","execution_time":"2026-01-01T10:00:00Z"}"#,
    r#"{"request_id":"r2","org_id":"o","op":"delete","scope":"subject","field":"lead","id":"e","execution_time":"2026-01-01T10:00:00Z"}"#,
];

/// Id, lead, user, note, `_original`.
type Cells = (&'static str, &'static str, Option<&'static str>, Option<&'static str>, Option<&'static str>);
/// The rows that must stand at the end, worked out by hand.
const WANTED: [Cells; 8] = [
    ("1", "b", None, None, Some(r#"{"lead":"a","note":"n","user":"u1"}"#)),
    ("2", "b", Some("u2"), Some("n"), Some(r#"{"lead":"a"}"#)),
    ("3", "b", None, None, Some(r#"{"note":"n","user":"u1"}"#)),
    ("4", "b", Some("u3"), Some("x"), Some(r#"{"lead":"c","note":"n"}"#)),
    ("6", "e", Some("u5"), None, Some(r#"{"note":"n"}"#)),
    ("8", "b", None, None, Some(r#"{"lead":"a","note":"n","user":"u1"}"#)),
    ("9", "z", Some("u2"), Some("n"), Some(r#"{"lead":"w"}"#)),
    ("11", "f", Some("u7"), Some("n"), None),
];

pub fn put(directory: &Path, kind: &str, name: &str, text: &str) {
    let inbox = directory.join("inbox").join(kind);
    fs::create_dir_all(&inbox).unwrap();
    fs::write(inbox.join(name), text).unwrap();
}

pub fn put_rows(directory: &Path, name: &str, rows: &[(&str, u32, &str, &str)]) {
    let line = |(id, hour, lead, user): &(&str, u32, &str, &str)| {
        format!(r#"{{"id":"{id}","org":"o","at":"2026-01-01T{hour:02}:00:00Z","lead":"{lead}","user":"{user}","note":"n"}}"#)
            + "\n"
    };
    put(directory, "call", name, &rows.iter().map(line).collect::<String>());
}

/// The project after its first half.
async fn begun() -> (tempfile::TempDir, Lab, InMemory) {
    let dir = tempfile::tempdir().unwrap();
    // All versions are looked at in the end.
    let lab = Lab::new(dir.path(), &format!("{YAML}erase: {{ purge_after: 400d }}\n"));
    let store = InMemory::new();
    let shared: Arc<dyn ObjectStore> = Arc::new(store.clone());
    put_rows(dir.path(), "1.json", &FIRST);
    settle(&lab, &shared, Run::Ingest).await;
    put(dir.path(), "requests", "1.json", &EARLY_REQUESTS.join("\n"));
    settle(&lab, &shared, Run::Mutate).await;
    put_rows(dir.path(), "2.json", &LATER);
    put(dir.path(), "requests", "2.json", &LATE_REQUESTS.join("\n"));
    (dir, lab, store)
}

#[derive(Debug, Clone, Copy)]
pub enum Run {
    Ingest,
    Mutate,
    /// Mutate, then ingest.
    All,
}

async fn go(lab: &Lab, store: &Arc<dyn ObjectStore>, run: Run) -> Result<u64, String> {
    let engine = lab.engine(&Store::over(store.clone()));
    let datasets = engine.datasets(&[]).unwrap();
    let summary = match run {
        Run::Ingest => engine.ingest(&datasets, Mode::UntilIdle).await,
        Run::Mutate => engine.mutate(&datasets, Mode::UntilIdle).await,
        Run::All => engine.run_all(&datasets, Mode::UntilIdle).await,
    };
    let summary = summary.map_err(|e| e.chain_text())?;
    match summary.failed.first() {
        Some((dataset, error)) => Err(format!("{dataset}: {}", error.chain_text())),
        None => Ok(summary.batches),
    }
}

pub async fn settle(lab: &Lab, store: &Arc<dyn ObjectStore>, run: Run) {
    go(lab, store, run).await.unwrap_or_else(|e| panic!("{e}"));
}

/// Runs until nothing is left: requests that wait are tried so often, and given up.
async fn until_nothing_is_left(lab: &Lab, store: &Arc<dyn ObjectStore>) {
    for _ in 0..8 {
        if go(lab, store, Run::All).await.unwrap_or_else(|e| panic!("{e}")) == 0 {
            return;
        }
    }
    panic!("there is always something left to do");
}

/// What stands in the tables at the end, without times and the numbers of batches and versions.
#[derive(Debug, PartialEq)]
struct Ended {
    rows: Vec<Row>,
    /// Request, attempts and state.
    retries: Vec<(String, String, String)>,
    /// Request and rows.
    outcomes: Vec<(String, String)>,
    /// Organisation, date, and rows inserted, updated, deleted in all.
    told: Vec<(String, String, [u64; 3])>,
    requests: Vec<String>,
    letters: usize,
}

impl Ended {
    /// The state each request that waited ended in.
    fn last_states(&self) -> BTreeMap<&str, &str> {
        let mut states = BTreeMap::new();
        for (request, _, state) in &self.retries {
            let last = states.entry(request.as_str()).or_insert(state.as_str());
            if *last != "applied" {
                *last = state;
            }
        }
        states
    }
}

async fn ended(store: &Arc<dyn ObjectStore>) -> Ended {
    let all = |table: &'static str| async move {
        TableReader::new(store, &format!("default/{table}")).rows().await.unwrap_or_else(|fault| panic!("{table}: {fault}"))
    };
    let mut rows = all("call").await;
    let places: BTreeSet<(String, String)> = rows.iter().map(|r| (r["_source"].clone(), r["_offset"].clone())).collect();
    assert_eq!(places.len(), rows.len(), "a row is there twice");
    for row in &mut rows {
        row.remove("_ingested_at");
    }
    rows.sort();
    let mut retries: Vec<_> =
        all("retries").await.into_iter().map(|r| (r["request_id"].clone(), r["attempts"].clone(), r["state"].clone())).collect();
    retries.sort();
    assert!(retries.windows(2).all(|pair| pair[0] != pair[1]), "told twice: {retries:?}");
    let mut outcomes: Vec<_> =
        all("_alluvium/outcomes").await.into_iter().map(|r| (r["request_id"].clone(), r["rows"].clone())).collect();
    outcomes.sort();
    let mut told = BTreeMap::new();
    let mut versions = BTreeSet::new();
    for row in all("notifications").await.into_iter().filter(|row| row["table_name"] == "call") {
        let of = (row["org_id"].clone(), row["event_date"].clone());
        assert!(versions.insert((row["table_version"].clone(), of.clone())), "told twice: {row:?}");
        let sums: &mut [u64; 3] = told.entry(of).or_default();
        for (sum, name) in sums.iter_mut().zip(["inserted", "updated", "deleted"]) {
            *sum += row[name].parse::<u64>().unwrap();
        }
    }
    let mut requests: Vec<String> = all("requests").await.into_iter().map(|r| r["request_id"].clone()).collect();
    requests.sort();
    let told = told.into_iter().map(|((org, date), counts)| (org, date, counts)).collect();
    Ended { rows, retries, outcomes, told, requests, letters: all("dead_letters").await.len() }
}

/// The second half without faults: how it ends, and how many puts it takes.
async fn clean(lab: &Lab, begun: &InMemory, run: Run) -> (Ended, u64) {
    let shared: Arc<dyn ObjectStore> = Arc::new(begun.fork());
    let counted = FaultStore::new(shared.clone()).counting_deletes();
    settle(lab, &(Arc::new(counted.clone()) as Arc<dyn ObjectStore>), run).await;
    let puts = counted.put_count();
    until_nothing_is_left(lab, &shared).await;
    let ended = ended(&shared).await;
    let cells = |r| (text(r, "id").unwrap(), text(r, "lead").unwrap(), text(r, "user"), text(r, "note"), text(r, "_original"));
    let (mut is, mut wanted) = (ended.rows.iter().map(cells).collect::<Vec<_>>(), WANTED.to_vec());
    is.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(is, wanted);
    assert_eq!(ended.requests, ["r1", "r2", "r3", "r4", "r5", "s1", "s2", "s3", "s4"]);
    assert_eq!(ended.letters, 1, "another request of the id r2");
    (ended, puts)
}

fn text<'r>(row: &'r Row, column: &str) -> Option<&'r str> {
    row.get(column).map(String::as_str)
}

async fn sweep(run: Run) {
    let (_dir, lab, begun) = begun().await;
    let (wanted, puts) = clean(&lab, &begun, run).await;
    // At least the requests' batch and the table's: files, a record, a commit, what follows, a mark.
    assert!(puts >= 12, "only {puts} puts");
    for n in 1..=puts {
        let faults = [Fault::DieBefore(n), Fault::DieAfter(n), Fault::ErrorAfterSuccess(n)];
        // Of a longer run each put meets one of them.
        let faults = if matches!(run, Run::Mutate) { &faults[..] } else { &faults[n as usize % 3..][..1] };
        for &fault in faults {
            // The death that nobody notices: after the very last put.
            if fault == Fault::DieAfter(puts) {
                continue;
            }
            let shared: Arc<dyn ObjectStore> = Arc::new(begun.fork());
            let faulty = FaultStore::new(shared.clone()).counting_deletes().with_fault(fault);
            let outcome = go(&lab, &(Arc::new(faulty.clone()) as Arc<dyn ObjectStore>), run).await;
            if let Fault::ErrorAfterSuccess(_) = fault {
                outcome.unwrap_or_else(|e| panic!("{run:?} {fault:?}: an answer that was lost is looked up: {e}"));
            } else {
                assert!(faulty.is_dead(), "{run:?} {fault:?} did not happen");
            }
            // Whoever goes on does the same in the same order.
            settle(&lab, &shared, run).await;
            until_nothing_is_left(&lab, &shared).await;
            let ended = ended(&shared).await;
            assert_eq!(ended.rows, wanted.rows, "{run:?} {fault:?}");
            assert_eq!(ended.requests, wanted.requests, "{run:?} {fault:?}");
            assert_eq!(ended.letters, wanted.letters, "{run:?} {fault:?}");
            match run {
                Run::Mutate => assert_eq!(ended.retries, wanted.retries, "{run:?} {fault:?}"),
                // An attempt more may have come before the rows did.
                _ => assert_eq!(ended.last_states(), wanted.last_states(), "{run:?} {fault:?}: {:?}", ended.retries),
            }
            assert_eq!(ended.outcomes, wanted.outcomes, "{run:?} {fault:?}");
            assert_eq!(ended.told, wanted.told, "{run:?} {fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn store_dying_at_any_put_of_a_mutation_leaves_the_tables_of_a_clean_run() {
    sweep(Run::Mutate).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn store_dying_at_any_put_of_a_mutation_and_an_ingest_leaves_the_tables_of_a_clean_run() {
    sweep(Run::All).await;
}
