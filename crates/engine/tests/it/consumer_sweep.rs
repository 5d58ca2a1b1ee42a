//! A consumer whose process dies at any put stands where it stood or where it was to go, and what it is given next joins on; a
//! namespace that is replaced at any step of a reading gives no rows of both lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium_core::{NextVersion, ReadKind, Result};
use alluvium_engine::{ChangesRequest, Engine};
use alluvium_lake::{Store, delete_namespace};
use alluvium_testkit::{Fault, FaultStore, Lab, PauseStore};
use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use futures::FutureExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;

use crate::common::{expected, file, memory, run, yaml};

/// Rows by their file and place in it.
type Places = Vec<(String, u64)>;

fn engine(lab: &Lab, store: Arc<dyn ObjectStore>) -> Engine {
    lab.engine(&Store::over(store))
}

/// The rows that these files of so many records make.
fn rows_of(files: &[(&str, u64)]) -> Places {
    expected(files).into_iter().filter(|(_, _, refused)| !refused).map(|(name, place, _)| (name, place)).collect()
}

/// What one process is given, which acknowledges it by itself or not; and its token.
async fn given(engine: &Engine, consumer: Option<&str>, commit: bool) -> Result<(Places, String)> {
    let dataset = engine.datasets(&[])?[0];
    let request = ChangesRequest { kind: ReadKind::Rows, consumer, since: None, snapshot: false };
    let mut reader = engine.changes(dataset, &request).await?;
    let mut changes = reader.read().await?;
    let mut rows = Places::new();
    while let Some(batch) = changes.next().await? {
        let column = |name: &str, to: DataType| cast(batch.column_by_name(name).unwrap(), &to).unwrap();
        let (sources, offsets) = (column("_source", DataType::Utf8), column("_offset", DataType::Int64));
        let sources = sources.as_string::<i32>().iter().map(|s| s.unwrap().to_owned());
        rows.extend(sources.zip(offsets.as_primitive::<Int64Type>().values().iter().map(|o| o.unsigned_abs())));
    }
    if commit {
        reader.commit(&changes).await?;
    }
    rows.sort();
    Ok((rows, changes.token()))
}

/// Where the consumer stands; the beginning, if it is not registered.
async fn place(engine: &Engine) -> NextVersion {
    engine.consumers().await.unwrap().first().map_or(NextVersion(0), |c| c.rows.next)
}

/// A lake, and a consumer that acknowledged so many files, one after the other; what it has not acknowledged are `b.json` and
/// `c.json`.
async fn prepared(acknowledged: usize) -> (tempfile::TempDir, Lab, InMemory) {
    let directory = tempfile::tempdir().unwrap();
    let lab = Lab::new(directory.path(), &yaml("keep", 7));
    let base = InMemory::new();
    let store: Arc<dyn ObjectStore> = Arc::new(base.clone());
    for i in 0..acknowledged {
        file(directory.path(), &format!("a{i:02}.json"), 4);
        run(&lab, &store).await;
        given(&engine(&lab, store.clone()), Some("copy"), true).await.unwrap();
    }
    for (name, records) in UNREAD {
        file(directory.path(), name, records);
    }
    run(&lab, &store).await;
    (directory, lab, base)
}

const UNREAD: [(&str, u64); 2] = [("b.json", 10), ("c.json", 5)];
const LATER: (&str, u64) = ("d.json", 9);
/// None, and so many that old records of the consumer are deleted.
const ACKNOWLEDGED: [usize; 2] = [0, 9];

fn faults(puts: u64) -> impl Iterator<Item = Fault> {
    (1..=puts).flat_map(|n| [Fault::DieBefore(n), Fault::DieAfter(n), Fault::ErrorAfterSuccess(n)])
}

fn over(store: &Arc<InMemory>, fault: Option<Fault>) -> FaultStore {
    let faulty = FaultStore::new(store.clone()).counting_deletes();
    if let Some(fault) = fault { faulty.with_fault(fault) } else { faulty }
}

/// A fresh process that is given more than there was: from `stands` on all, and each row once.
async fn joins_on(lab: &Lab, store: Arc<InMemory>, directory: &std::path::Path, acknowledged: bool, case: &str) {
    file(directory, LATER.0, LATER.1);
    let shared: Arc<dyn ObjectStore> = store;
    run(lab, &shared).await;
    std::fs::remove_file(directory.join("inbox").join(LATER.0)).unwrap();
    let (rows, _) = given(&engine(lab, shared.clone()), Some("copy"), true).await.unwrap();
    let wanted = if acknowledged { rows_of(&[LATER]) } else { rows_of(&[UNREAD[0], UNREAD[1], LATER]) };
    assert_eq!(rows, wanted, "{case}");
    let (rows, _) = given(&engine(lab, shared), Some("copy"), true).await.unwrap();
    assert_eq!(rows, [], "{case}: all of it was acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn dying_at_any_put_of_reading_and_acknowledging_leaves_the_consumer_at_its_old_or_its_new_place() {
    for acknowledged in ACKNOWLEDGED {
        let (directory, lab, base) = prepared(acknowledged).await;
        let before = place(&engine(&lab, Arc::new(base.fork()))).await;
        let clean = Arc::new(base.fork());
        let counted = over(&clean, None);
        let (rows, _) = given(&engine(&lab, Arc::new(counted.clone())), Some("copy"), true).await.unwrap();
        assert_eq!(rows, rows_of(&UNREAD));
        let after = place(&engine(&lab, clean)).await;
        assert!(after > before && counted.put_count() >= 2, "{} puts", counted.put_count());
        let mut met = [0, 0];
        for fault in faults(counted.put_count()) {
            let case = format!("{acknowledged} acknowledged, {fault:?}");
            let store = Arc::new(base.fork());
            let outcome = given(&engine(&lab, Arc::new(over(&store, Some(fault)))), Some("copy"), true).await;
            let stands = place(&engine(&lab, store.clone())).await;
            assert!(stands == before || stands == after, "{case}: it stands at {stands:?}");
            if let Fault::ErrorAfterSuccess(_) = fault {
                assert_eq!(outcome.map(|(rows, _)| rows).ok(), Some(rows_of(&UNREAD)), "{case}: a lost answer is looked up");
                assert_eq!(stands, after, "{case}");
            } else if outcome.is_ok() {
                assert_eq!(stands, after, "{case}: told to have been acknowledged");
            }
            met[usize::from(stands == after)] += 1;
            joins_on(&lab, store, directory.path(), stands == after, &case).await;
        }
        assert!(met.iter().all(|n| *n > 0), "{met:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dying_at_any_put_of_an_acknowledgement_and_acknowledging_again_moves_the_consumer_once() {
    for acknowledged in ACKNOWLEDGED {
        let (directory, lab, base) = prepared(acknowledged).await;
        let (_, token) = given(&engine(&lab, Arc::new(base.clone())), Some("copy"), false).await.unwrap();
        let before = place(&engine(&lab, Arc::new(base.fork()))).await;
        let clean = Arc::new(base.fork());
        let counted = over(&clean, None);
        engine(&lab, Arc::new(counted.clone())).commit_consumer("copy", &token).await.unwrap();
        let after = place(&engine(&lab, clean)).await;
        assert!(after > before && counted.put_count() >= 1);
        for fault in faults(counted.put_count()) {
            let case = format!("{acknowledged} acknowledged, {fault:?}");
            let store = Arc::new(base.fork());
            let outcome = engine(&lab, Arc::new(over(&store, Some(fault)))).commit_consumer("copy", &token).await;
            let stands = place(&engine(&lab, store.clone())).await;
            assert!(stands == before || stands == after, "{case}: it stands at {stands:?}");
            assert!(outcome.is_err() || stands == after, "{case}: told to have been acknowledged");
            assert!(outcome.is_ok() || !matches!(fault, Fault::ErrorAfterSuccess(_)), "{case}: a lost answer is looked up");
            for _again in 0..2 {
                engine(&lab, store.clone()).commit_consumer("copy", &token).await.unwrap();
                assert_eq!(place(&engine(&lab, store.clone())).await, after, "{case}");
            }
            joins_on(&lab, store, directory.path(), true, &case).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_replaced_at_any_step_of_a_reading_gives_no_rows_of_another_life_with_a_token() {
    let (old, new) = ([("a.json", 10), ("b.json", 9)], [("c.json", 10), ("d.json", 9)]);
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let labs = [(&first, old), (&second, new)].map(|(directory, files)| {
        files.iter().for_each(|(name, records)| file(directory.path(), name, *records));
        Lab::new(directory.path(), &yaml("keep", 7))
    });
    let [lab, other] = labs;
    let (mut whole, mut refused) = (0, 0);
    for step in 0.. {
        let store = memory();
        run(&lab, &store).await;
        let (steps, replaced) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let then = {
            let (store, other, replaced) = (store.clone(), other.clone(), replaced.clone());
            move || {
                let (store, other, replaced) = (store.clone(), other.clone(), replaced.clone());
                async move {
                    replaced.store(1, Ordering::SeqCst);
                    let resolver = other.project().resolver(None).unwrap();
                    delete_namespace(&Store::over(store.clone()), &resolver).await.unwrap();
                    run(&other, &store).await;
                }
                .boxed()
            }
        };
        let at = move |_: &alluvium_testkit::Step| steps.fetch_add(1, Ordering::SeqCst) == step;
        let paused = PauseStore::once_at(store.clone(), at, then);
        let outcome = given(&engine(&lab, Arc::new(paused)), None, false).await;
        match outcome {
            Ok((rows, _)) => {
                assert!(rows == rows_of(&old) || rows == rows_of(&new), "step {step}: {rows:?}");
                // It looks at the namespace twice before it looks at anything else.
                assert!(rows == rows_of(&old) || step < 4, "step {step}: rows of a life that began later");
                whole += 1;
            }
            Err(_) => refused += 1,
        }
        if replaced.load(Ordering::SeqCst) == 0 {
            break;
        }
    }
    assert!(whole > 1 && refused > 10, "{whole} whole, {refused} refused");
}
