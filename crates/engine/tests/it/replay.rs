//! Dead letters taken in again: the store dies at every put, processes meet, and each record ends as one row or one letter.

use std::fs;
use std::sync::Arc;

use alluvium_core::Kind;
use alluvium_engine::{Engine, RunSummary};
use alluvium_lake::Store;
use alluvium_testkit::{Fault, FaultStore, Lab, Landed, PauseStore};
use object_store::ObjectStore;
use object_store::memory::InMemory;

use crate::common::{expected, file, is_refused, landed, places, run, yaml};

const FILES: [(&str, u64); 2] = [("a.json", 10), ("b.json", 12)];
/// Lines of `c.json` that no declaration makes rows of.
const HOPELESS: u64 = 3;

/// A lake with dead letters, and the project with its declaration mended: what was no number becomes a text beside it.
async fn refused() -> (tempfile::TempDir, Lab, InMemory) {
    let dir = tempfile::tempdir().unwrap();
    for (name, records) in FILES {
        file(dir.path(), name, records);
    }
    fs::write(dir.path().join("inbox/c.json"), "no json\n".repeat(3)).unwrap();
    let text = yaml("keep", 9);
    let lab = Lab::new(dir.path(), &text);
    let memory = InMemory::new();
    let store: Arc<dyn ObjectStore> = Arc::new(memory.clone());
    run(&lab, &store).await;
    let before = landed(&store).await;
    assert_eq!(before.dead_letters.len() as u64, 4 + HOPELESS);
    let mended = text.replace("n: long,", "n: { type: long, from: number }, n_text: { type: string, from: n },");
    assert_ne!(mended, text);
    (dir, lab.with_yaml(&mended), memory)
}

async fn replay(engine: &Engine) -> alluvium_core::Result<RunSummary> {
    engine.replay_dead_letters(&engine.datasets(&[])?).await
}

async fn settled(lab: &Lab, store: &Arc<dyn ObjectStore>, what: &str) -> Landed {
    let engine = lab.engine(&Store::over(store.clone()));
    let summary = replay(&engine).await.unwrap();
    assert!(summary.failed.is_empty(), "{what}: {:?}", summary.failed);
    assert_eq!(replay(&engine).await.unwrap().batches, 0, "{what}: nothing is left that fits");
    let landed = landed(store).await;
    let mut wanted = expected(&FILES);
    wanted.iter_mut().for_each(|(_, _, refused)| *refused = false);
    wanted.extend((0..HOPELESS).map(|i| ("c.json".to_owned(), i, true)));
    assert_eq!(places(&landed), wanted, "{what}");
    for row in &landed.rows {
        let replayed = is_refused(row["_offset"].parse().unwrap());
        assert_eq!(row.get("n_text").map(String::as_str), replayed.then_some("many"), "{what}");
    }
    landed
}

#[tokio::test(flavor = "multi_thread")]
async fn store_dying_at_any_put_of_a_replay_makes_each_letter_that_fits_one_row() {
    let (_dir, lab, memory) = refused().await;
    let counted = FaultStore::new(Arc::new(memory.fork()));
    let store: Arc<dyn ObjectStore> = Arc::new(counted.clone());
    assert!(replay(&lab.engine(&Store::over(store.clone()))).await.unwrap().failed.is_empty());
    let puts = counted.put_count();
    let wanted = settled(&lab, &counted.inner(), "clean").await;
    assert!(puts >= 8, "data, letters, a record, three commits, notifications and a mark, not {puts} puts");
    for n in 1..=puts {
        for fault in [Fault::DieBefore(n), Fault::DieAfter(n), Fault::ErrorAfterSuccess(n)] {
            let store: Arc<dyn ObjectStore> = Arc::new(memory.fork());
            let faulty = FaultStore::new(store.clone()).with_fault(fault);
            let _dies = replay(&lab.engine(&Store::over(Arc::new(faulty)))).await;
            assert_eq!(settled(&lab, &store, &format!("{fault:?}")).await, wanted, "{fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replays_and_an_ingest_at_once_make_each_record_one_row() {
    let (dir, lab, memory) = refused().await;
    file(dir.path(), "d.json", 9);
    for seed in 1..=8 {
        let store: Arc<dyn ObjectStore> = Arc::new(memory.fork());
        let engine = |i: u64| lab.engine(&Store::over(Arc::new(PauseStore::jitter(store.clone(), seed * 8 + i))));
        let (one, two, three) = (engine(1), engine(2), engine(3));
        let tasks = [
            tokio::spawn(async move { replay(&one).await }),
            tokio::spawn(async move { replay(&two).await }),
            tokio::spawn(async move { crate::common::ingest(&three, alluvium_engine::Mode::UntilIdle).await }),
        ];
        for task in tasks {
            for (_, error) in task.await.unwrap().unwrap().failed {
                assert_eq!(error.kind(), Kind::Fenced, "seed {seed}: {}", error.chain_text());
            }
        }
        let engine = lab.engine(&Store::over(store.clone()));
        assert!(replay(&engine).await.unwrap().failed.is_empty());
        let mut wanted = expected(&[FILES[0], FILES[1], ("d.json", 9)]);
        wanted.iter_mut().for_each(|(_, _, refused)| *refused = false);
        wanted.extend((0..HOPELESS).map(|i| ("c.json".to_owned(), i, true)));
        wanted.sort();
        assert_eq!(places(&landed(&store).await), wanted, "seed {seed}");
    }
}
