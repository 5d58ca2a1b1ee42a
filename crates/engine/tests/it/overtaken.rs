//! Mutations that are overtaken: between the plan and the commit, files come or go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use alluvium_core::{Job, parse_data_file};
use alluvium_engine::Mode;
use alluvium_lake::Store;
use alluvium_testkit::{Add, Lab, PauseStore, Step, TableReader};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::common::memory;
use crate::mutate_sweep::{Run, YAML, put, put_rows, settle};

const CONVERT: &str = r#"{"request_id":"r1","org_id":"o","op":"convert","field":"lead","from":"a","to":"b","execution_time":"2026-01-01T10:00:00Z"}"#;

/// The steps of a mutation that comes to put its first record, lets `meanwhile` happen, and then goes on to its end.
async fn overtaken<F>(lab: &Lab, store: &Arc<dyn ObjectStore>, meanwhile: F) -> Vec<Step>
where
    F: Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
{
    let steps: Arc<Mutex<Vec<Step>>> = Arc::default();
    let seen = steps.clone();
    let puts_record = move |step: &Step| {
        seen.lock().unwrap().push(step.clone());
        matches!(step, Step::Put(path) if path.as_ref().contains("mutate/call") && path.filename() == Some(&record(0)))
    };
    let paused = PauseStore::once_at(store.clone(), puts_record, meanwhile);
    let engine = lab.engine(&Store::over(Arc::new(paused)));
    let summary = engine.mutate(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await.unwrap();
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    let mut steps = std::mem::take(&mut *steps.lock().unwrap());
    let recorded = |step: &Step| matches!(step, Step::Put(path) if path.filename() == Some(&record(0)) && path.as_ref().contains("mutate/call"));
    steps.drain(..=steps.iter().position(recorded).unwrap());
    steps
}

fn record(attempt: u64) -> String {
    format!("{:020}.{attempt:04}.json", 1)
}

async fn live(store: &Arc<dyn ObjectStore>) -> Vec<Add> {
    TableReader::live(&TableReader::new(store, "default/call").log().await.unwrap()).unwrap()
}

/// Rows by id: lead and what the source gave.
async fn leads(store: &Arc<dyn ObjectStore>) -> BTreeMap<String, (String, Option<String>)> {
    let rows = TableReader::new(store, "default/call").rows().await.unwrap();
    let count = rows.len();
    let leads: BTreeMap<_, _> =
        rows.into_iter().map(|row| (row["id"].clone(), (row["lead"].clone(), row.get("_original").cloned()))).collect();
    assert_eq!(leads.len(), count, "a row is there twice");
    leads
}

fn converted() -> (String, Option<String>) {
    ("b".to_owned(), Some(r#"{"lead":"a"}"#.to_owned()))
}

async fn begun(yaml: &str) -> (tempfile::TempDir, Lab, Arc<dyn ObjectStore>) {
    let dir = tempfile::tempdir().unwrap();
    let lab = Lab::new(dir.path(), yaml);
    let store = memory();
    put_rows(dir.path(), "1.json", &[("1", 1, "a", "u1"), ("2", 2, "a", "u2"), ("3", 3, "c", "u3")]);
    settle(&lab, &store, Run::Ingest).await;
    put(dir.path(), "requests", "1.json", CONVERT);
    (dir, lab, store)
}

/// Which attempts at the mutation staged files that stand now.
async fn attempts_that_stand(store: &Arc<dyn ObjectStore>) -> Vec<u32> {
    let files = live(store).await.into_iter().filter_map(|add| parse_data_file(&add.path));
    let attempts = files.filter(|file| file.chain.job == Job::Mutate);
    let mut attempts: Vec<u32> = attempts.map(|file| file.key.attempt.0.into()).collect();
    attempts.sort_unstable();
    attempts
}

async fn an_append_overtakes(yaml: &str) {
    let (dir, lab, store) = begun(yaml).await;
    let before: Vec<String> = live(&store).await.into_iter().map(|add| add.path).collect();
    let (other, below, directory) = (lab.clone(), store.clone(), dir.path().to_owned());
    let steps = overtaken(&lab, &store, move || {
        put_rows(&directory, "2.json", &[("4", 4, "a", "u1"), ("5", 5, "d", "u2")]);
        let (other, below) = (other.clone(), below.clone());
        async move { settle(&other, &below, Run::Ingest).await }.boxed()
    })
    .await;
    let again: Vec<&Step> = steps
        .iter()
        .filter(|step| matches!(step, Step::Get(path) if before.iter().any(|file| path.as_ref().ends_with(file.as_str()))))
        .collect();
    assert!(again.is_empty(), "looked at before already: {again:?}");
    let leads = leads(&store).await;
    assert_eq!(leads.keys().collect::<Vec<_>>(), ["1", "2", "3", "4", "5"]);
    assert!(["1", "2", "4"].iter().all(|id| leads[*id] == converted()), "{leads:?}");
    assert_eq!(attempts_that_stand(&store).await, [0, 1], "of the first rows, and of those that came");

    let all = |table: &'static str| {
        let store = store.clone();
        async move { TableReader::new(&store, &format!("default/{table}")).rows().await.unwrap() }
    };
    let outcomes = all("_alluvium/outcomes").await;
    let counted: Vec<_> = outcomes.iter().map(|row| (row["request_id"].as_str(), row["rows"].as_str())).collect();
    assert_eq!(counted, [("r1", "3")]);
    let updated: u64 = all("notifications").await.iter().map(|row| row["updated"].parse::<u64>().unwrap()).sum();
    assert_eq!(updated, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_overtaken_mutation_made_of_files_that_stand_is_not_made_again() {
    // Rows that change do not change their place.
    an_append_overtakes(&YAML.replace("partition_by: [lead]", "partition_by: []")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_an_overtaken_mutation_moved_are_not_moved_again() {
    an_append_overtakes(YAML).await;
}

/// Who cleans up by Delta's rules alone takes staged files that are old; then files come.
#[tokio::test(flavor = "multi_thread")]
async fn a_staged_file_that_was_taken_away_is_made_again() {
    let (dir, lab, store) = begun(&YAML.replace("partition_by: [lead]", "partition_by: []")).await;
    let (other, below, directory) = (lab.clone(), store.clone(), dir.path().to_owned());
    overtaken(&lab, &store, move || {
        put_rows(&directory, "2.json", &[("4", 4, "a", "u1"), ("5", 5, "d", "u2")]);
        let (other, below) = (other.clone(), below.clone());
        async move {
            settle(&other, &below, Run::Ingest).await;
            let staged: Vec<_> = below.list(Some(&Path::from("default/call"))).try_collect().await.unwrap();
            let staged = staged.into_iter().map(|found| found.location);
            let is_staged =
                |path: &Path| path.filename().and_then(parse_data_file).is_some_and(|file| file.chain.job == Job::Mutate);
            for path in staged.filter(is_staged) {
                below.delete(&path).await.unwrap();
            }
        }
        .boxed()
    })
    .await;
    let leads = leads(&store).await;
    assert_eq!(leads.keys().collect::<Vec<_>>(), ["1", "2", "3", "4", "5"]);
    assert!(["1", "2", "4"].iter().all(|id| leads[*id] == converted()), "{leads:?}");
    assert_eq!(attempts_that_stand(&store).await, [1, 1]);
}

/// Another program deletes rows that the mutation has already written anew.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_file_that_goes_while_a_mutation_is_planned_do_not_come_back() {
    let (_dir, lab, store) = begun(YAML).await;
    let of_a = |add: &Add| add.partition_values["lead"].as_deref() == Some("a");
    let of_a = live(&store).await.into_iter().find(of_a).unwrap().path;
    let version = TableReader::new(&store, "default/call").log().await.unwrap().len();
    let below = store.clone();
    overtaken(&lab, &store, move || {
        let (below, of_a) = (below.clone(), of_a.clone());
        async move {
            let commit = format!(r#"{{"remove":{{"path":"{of_a}","dataChange":true,"deletionTimestamp":1767225600000}}}}"#);
            let entry = Path::from(format!("default/call/_delta_log/{version:020}.json"));
            below.put(&entry, commit.into()).await.unwrap();
        }
        .boxed()
    })
    .await;
    assert_eq!(leads(&store).await.keys().collect::<Vec<_>>(), ["3"]);
}
