//! Records that vacuum voided, and records of a namespace that is gone: the batch goes on with the next attempt.

use std::sync::Arc;

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, BatchRecord, ChainId, Incarnation, Job, Namespace, RECORD_FORMAT, RecordBody, Resolver,
    Shard, TxnVersion,
};
use alluvium_engine::Mode;
use alluvium_lake::{ChainStore, Store, open_or_create_namespace};
use alluvium_testkit::{DatasetCheck, Lab, PauseStore, Step};
use futures::FutureExt;
use object_store::ObjectStore;

use crate::common::{file, ingest, memory, run, settle, yaml};

const FILES: [(&str, u64); 2] = [("a.json", 10), ("b.json", 12)];

fn lab() -> (tempfile::TempDir, Lab) {
    let dir = tempfile::tempdir().unwrap();
    for (name, records) in FILES {
        file(dir.path(), name, records);
    }
    let lab = Lab::new(dir.path(), &yaml("keep", 7));
    (dir, lab)
}

async fn chain(lab: &Lab, store: &Arc<dyn ObjectStore>) -> ChainStore {
    let resolver = Resolver::new(Namespace::parse("default").unwrap());
    let store = Store::over(store.clone());
    let incarnation = open_or_create_namespace(&store, &resolver, 0).await.unwrap();
    let dataset = lab.project().datasets[0].name.clone();
    ChainStore::new(&store, &resolver, ChainId { incarnation, job: Job::Ingest, dataset, shard: Shard::WHOLE })
}

fn void(chain: &ChainId, batch: u64, attempt: u16) -> BatchRecord {
    BatchRecord {
        format: RECORD_FORMAT,
        chain: chain.clone(),
        batch: BatchNumber(batch),
        attempt: Attempt(attempt),
        body: RecordBody::Void,
    }
}

/// The attempts that the data table's log carries, by batch.
async fn carried(store: &Arc<dyn ObjectStore>) -> Vec<(u64, u16)> {
    let log = DatasetCheck::new(store, "default", "edit", "org").table("edit").log().await.unwrap();
    let keys = log.iter().flat_map(|e| &e.txns).map(|(_, version)| TxnVersion(*version).key().unwrap());
    keys.map(|k| (k.batch.0, k.attempt.0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn voids_that_stand_before_the_first_batch_are_passed_by() {
    let (_dir, lab) = lab();
    let store = memory();
    let chain = chain(&lab, &store).await;
    for attempt in 0..3 {
        let _created = chain.write(&void(chain.chain(), 1, attempt)).await.unwrap();
    }
    run(&lab, &store).await;
    settle(&lab, &store, &FILES).await;
    assert_eq!(carried(&store).await, [(1, 3), (2, 0), (3, 0), (4, 0)]);
}

/// Vacuum voids each batch's first attempt between its staging and its record.
#[tokio::test(flavor = "multi_thread")]
async fn void_written_after_staging_makes_the_same_process_stage_again_and_land_once() {
    for batch in 1..=4 {
        let (_dir, lab) = lab();
        let store = memory();
        let chain = Arc::new(chain(&lab, &store).await);
        let record = Resolver::new(Namespace::parse("default").unwrap())
            .record(chain.chain(), BatchKey { batch: BatchNumber(batch), attempt: Attempt::FIRST });
        let paused = PauseStore::once_at(
            store.clone(),
            move |step| matches!(step, Step::Put(path) if path.as_ref() == record),
            move || {
                let chain = chain.clone();
                async move {
                    let _created = chain.write(&void(chain.chain(), batch, 0)).await.unwrap();
                }
                .boxed()
            },
        );
        let summary = ingest(&lab.engine(&Store::over(Arc::new(paused))), Mode::UntilIdle).await.unwrap();
        assert!(summary.failed.is_empty(), "{:?}", summary.failed);
        assert_eq!(summary.batches, 4, "the run goes on until idle");
        settle(&lab, &store, &FILES).await;
        let wanted: Vec<_> = (1..=4).map(|b| (b, u16::from(b == batch))).collect();
        assert_eq!(carried(&store).await, wanted);
    }
}

/// A process of a namespace that was deleted and made again wakes, and writes its record.
#[tokio::test(flavor = "multi_thread")]
async fn record_of_a_former_incarnation_is_not_published() {
    let (_dir, former_lab) = lab();
    let former_store = memory();
    let summary = ingest(&former_lab.engine(&Store::over(former_store.clone())), Mode::Once).await.unwrap();
    assert_eq!(summary.batches, 1);
    let key = BatchKey { batch: BatchNumber::FIRST, attempt: Attempt::FIRST };
    let former = chain(&former_lab, &former_store).await.record(key).await.unwrap().unwrap();

    let (_dir, lab) = lab();
    let store = memory();
    let chain = chain(&lab, &store).await;
    assert_ne!(former.chain.incarnation, Incarnation(String::new()));
    assert_ne!(former.chain, *chain.chain());
    let old_owner =
        ChainStore::new(&Store::over(store.clone()), &Resolver::new(Namespace::parse("default").unwrap()), former.chain.clone());
    let _created = old_owner.write(&former).await.unwrap();
    run(&lab, &store).await;
    settle(&lab, &store, &FILES).await;
}
