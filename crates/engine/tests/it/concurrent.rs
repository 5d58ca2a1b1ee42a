//! Several processes on one chain at once, meeting in another order for every seed.

use std::sync::Arc;

use alluvium_core::Kind;
use alluvium_engine::Mode;
use alluvium_lake::Store;
use alluvium_testkit::{Fault, FaultStore, Lab, PauseStore};
use object_store::ObjectStore;

use crate::common::{expected, file, ingest, memory, places, settle, yaml};

const FILES: [(&str, u64); 4] = [("a.json", 10), ("b.json", 12), ("c.json", 1), ("d.json", 9)];

/// Runs `engines` engines at once; each may be fenced, but fail in no other way.
async fn meet(seed: u64, after: &str, engines: u64, dies: Option<u64>) {
    let dir = tempfile::tempdir().unwrap();
    for (name, records) in FILES {
        file(dir.path(), name, records);
    }
    let lab = Lab::new(dir.path(), &yaml(after, 5));
    let store = memory();
    let tasks: Vec<_> = (0..engines)
        .map(|i| {
            let mut below: Arc<dyn ObjectStore> = Arc::new(PauseStore::jitter(store.clone(), seed * 16 + i));
            let mortal = i == 0 && dies.is_some();
            if let Some(n) = dies.filter(|_| mortal) {
                below = Arc::new(FaultStore::new(below).with_fault(Fault::DieAfter(n)));
            }
            let engine = lab.engine(&Store::over(below));
            tokio::spawn(async move { (mortal, ingest(&engine, Mode::UntilIdle).await) })
        })
        .collect();
    for task in tasks {
        let (mortal, outcome) = task.await.unwrap();
        if mortal {
            continue;
        }
        for (_, error) in outcome.unwrap().failed {
            assert_eq!(error.kind(), Kind::Fenced, "seed {seed}, after {after}: {}", error.chain_text());
        }
    }
    let landed = settle(&lab, &store, &FILES).await;
    assert_eq!(places(&landed), expected(&FILES), "seed {seed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_at_once_land_every_record_once() {
    for seed in 1..=6 {
        meet(seed, "keep", 2, None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_that_move_what_they_took_land_every_record_once() {
    for seed in 1..=6 {
        meet(seed, "move:./taken", 3, None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_beside_another_leaves_every_record_once() {
    for seed in 1..=6 {
        meet(seed, "delete", 2, Some(3 + seed * 4)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_that_wait_for_each_others_leases_are_never_fenced() {
    for seed in 1..=4 {
        let dir = tempfile::tempdir().unwrap();
        for (name, records) in FILES {
            file(dir.path(), name, records);
        }
        let lab = Lab::new(dir.path(), &yaml("keep", 5)).with_shared_leases();
        let store = memory();
        let tasks: Vec<_> = (0..3)
            .map(|i| {
                let engine = lab.engine(&Store::over(Arc::new(PauseStore::jitter(store.clone(), seed * 16 + i))));
                tokio::spawn(async move { ingest(&engine, Mode::UntilIdle).await })
            })
            .collect();
        for task in tasks {
            let summary = task.await.unwrap().unwrap();
            assert!(summary.failed.is_empty(), "seed {seed}: {:?}", summary.failed);
        }
        settle(&lab, &store, &FILES).await;
    }
}
