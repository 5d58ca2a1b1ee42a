//! Every put is the last: the store dies before and after each, or reports failure after success, and a fresh process goes on.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use alluvium_core::Durability;
use alluvium_engine::Mode;
use alluvium_lake::Store;
use alluvium_testkit::{Fault, FaultStore, Lab, Landed, StoreKind, TestStore};
use object_store::ObjectStore;
use object_store::prefix::PrefixStore;

use crate::common::{file, ingest, landed, memory, settle, yaml};

/// Two files, batches of seven: 7 | 3 + 4 | 7 | 1, so that batches end within files, at a file's end and with the input.
const FILES: [(&str, u64); 2] = [("a.json", 10), ("b.json", 12)];
const MAX_ROWS: u64 = 7;
const BATCHES: usize = 4;

fn lab(after: &str) -> (tempfile::TempDir, Lab) {
    let dir = tempfile::tempdir().unwrap();
    for (name, records) in FILES {
        file(dir.path(), name, records);
    }
    let lab = Lab::new(dir.path(), &yaml(after, MAX_ROWS));
    (dir, lab)
}

/// A run that no fault touches: what lands, and how many puts it takes.
async fn clean(after: &str) -> (Landed, u64) {
    let (_dir, lab) = lab(after);
    let store = memory();
    let counted = FaultStore::new(store.clone()).counting_deletes();
    let summary = ingest(&lab.engine(&Store::over(Arc::new(counted.clone()))), Mode::UntilIdle).await.unwrap();
    assert!(summary.failed.is_empty());
    let puts = counted.put_count();
    let landed = settle(&lab, &store, &FILES).await;
    assert_eq!(landed.commits, BATCHES);
    (landed, puts)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).into_iter().flatten().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn one(after: &str, fault: Fault, wanted: &Landed) {
    one_on(memory(), after, fault, wanted).await;
}

async fn one_on(store: Arc<dyn ObjectStore>, after: &str, fault: Fault, wanted: &Landed) {
    let (dir, lab) = lab(after);
    let faulty = FaultStore::new(store.clone()).counting_deletes().with_fault(fault);
    let outcome = ingest(&lab.engine(&Store::over(Arc::new(faulty.clone()))), Mode::UntilIdle).await;
    if let Fault::ErrorAfterSuccess(_) = fault {
        let summary = outcome.unwrap();
        assert!(summary.failed.is_empty(), "{fault:?}: an answer that was lost is looked up: {:?}", summary.failed);
    } else {
        assert!(faulty.is_dead(), "{fault:?} did not happen");
        assert!(outcome.map_or(true, |s| !s.failed.is_empty()), "{fault:?}: a dead store was not noticed");
    }
    let landed = settle(&lab, &store, &FILES).await;
    assert_eq!(landed, *wanted, "{fault:?}");
    if after != "keep" {
        assert_eq!(names(&dir.path().join("inbox")), [""; 0], "{fault:?}: a taken file was not moved");
        assert_eq!(names(&dir.path().join("taken")), ["a.json", "b.json"], "{fault:?}");
    }
}

async fn sweep(after: &str) {
    let (wanted, puts) = clean(after).await;
    // 4 batches of at least a data file, a record, a commit, a notification file, its commit and a mark.
    assert!(puts >= 24, "only {puts} puts");
    for n in 1..=puts {
        for fault in [Fault::DieBefore(n), Fault::DieAfter(n), Fault::ErrorAfterSuccess(n)] {
            // The death that nobody notices: after the very last put.
            if fault != Fault::DieAfter(puts) {
                one(after, fault, &wanted).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn store_dying_at_any_put_of_a_source_that_is_kept_lands_every_record_once() {
    sweep("keep").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn store_dying_at_any_put_of_a_source_that_is_moved_lands_every_record_once_and_moves_every_file() {
    sweep("move:./taken").await;
}

/// A sweep over a real server of an object store: every seventh put, because each case takes a hundred requests and more.
async fn reduced_sweep(kind: StoreKind) {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = TestStore::start(kind, directory.path()) else { return };
    let (wanted, puts) = clean("keep").await;
    for (case, n) in (1..puts).step_by(7).enumerate() {
        let faults = [Fault::DieBefore(n), Fault::DieAfter(n + 2), Fault::ErrorAfterSuccess(n + 4)];
        for (i, fault) in faults.into_iter().enumerate() {
            if matches!(fault, Fault::DieBefore(n) | Fault::DieAfter(n) | Fault::ErrorAfterSuccess(n) if n < puts) {
                let place = Arc::new(PrefixStore::new(server.whole(), format!("{case}-{i}")));
                one_on(place, "keep", fault, &wanted).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_dying_at_some_puts_lands_every_record_once() {
    reduced_sweep(StoreKind::S3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_dying_at_some_puts_lands_every_record_once() {
    reduced_sweep(StoreKind::Azure).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_deaths_in_a_row_at_any_distance_land_every_record_once() {
    let (wanted, puts) = clean("keep").await;
    for first in (1..puts).step_by(7) {
        for second in [1, 2, 3, 5, 8] {
            let (_dir, lab) = lab("keep");
            let store = memory();
            for fault in [Fault::DieAfter(first), Fault::DieBefore(second), Fault::DieAfter(second)] {
                let faulty = FaultStore::new(store.clone()).with_fault(fault);
                let _dies = ingest(&lab.engine(&Store::over(Arc::new(faulty))), Mode::UntilIdle).await;
            }
            assert_eq!(settle(&lab, &store, &FILES).await, wanted, "{first} {second}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn local_disk_dying_at_some_puts_lands_every_record_once() {
    let (wanted, puts) = clean("keep").await;
    for n in (1..puts).step_by(4) {
        for (fault, durability) in [(Fault::DieBefore(n), Durability::Disk), (Fault::DieAfter(n), Durability::Process)] {
            let (dir, lab) = lab("keep");
            let disk = Store::open("./lake", dir.path(), durability).unwrap();
            let faulty = disk.layered(|inner| Arc::new(FaultStore::new(inner).with_fault(fault)) as Arc<dyn ObjectStore>);
            let _dies = ingest(&lab.engine(&faulty), Mode::UntilIdle).await;
            let again = ingest(&lab.engine(&disk), Mode::UntilIdle).await.unwrap();
            assert!(again.failed.is_empty(), "{fault:?}: {:?}", again.failed);
            assert_eq!(landed(&disk.object_store()).await, wanted, "{fault:?}");
        }
    }
}
