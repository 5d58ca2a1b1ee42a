//! Records that vacuum voided, and records of a namespace that is gone: the batch goes on with the next attempt.

use std::sync::Arc;

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, BatchRecord, ChainId, Job, Kind, Namespace, RECORD_FORMAT, RecordBody, Resolver, Shard,
    TxnVersion, app_id,
};
use alluvium_engine::Mode;
use alluvium_lake::{ChainStore, Commit, DeltaLog, LedgerRule, Published, Store, open_or_create_namespace};
use alluvium_testkit::{DatasetCheck, Lab, PauseStore, Step};
use futures::FutureExt;
use object_store::ObjectStore;

use crate::common::{file, ingest, memory, run, settle, yaml};

static NO_MARKS: std::collections::BTreeMap<String, serde_json::Value> = std::collections::BTreeMap::new();

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

/// A process of a namespace that was deleted and made again wakes, and writes its record, its mark and its commit.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_incarnation_writes_late_is_not_looked_at_and_it_cannot_commit() {
    let (_dir, former_lab) = lab();
    let former_store = memory();
    let summary = ingest(&former_lab.engine(&Store::over(former_store.clone())), Mode::Once).await.unwrap();
    assert_eq!(summary.batches, 1);
    let key = BatchKey { batch: BatchNumber::FIRST, attempt: Attempt::FIRST };
    let former_chain = chain(&former_lab, &former_store).await;
    let former = former_chain.record(key).await.unwrap().unwrap();
    let mark = former_chain.done_mark(key.batch).await.unwrap().unwrap();

    let (_dir, lab) = lab();
    let memory = memory();
    let chain = chain(&lab, &memory).await;
    assert_ne!(former.chain, *chain.chain());
    let store = Store::over(memory.clone());
    let old_owner = ChainStore::new(&store, &Resolver::new(Namespace::parse("default").unwrap()), former.chain.clone());
    let _created = old_owner.write(&former).await.unwrap();
    old_owner.mark_done(&mark).await.unwrap();
    run(&lab, &memory).await;
    let RecordBody::Intent(recorded) = &former.body else { panic!("an intent") };
    let commit = Commit {
        app_id: &app_id(&former.chain),
        incarnation: &former.chain.incarnation,
        key,
        adds: &recorded.data.adds,
        removes: &[],
        marks: &NO_MARKS,
        changes: &[],
        rewrites: None,
        ledger: LedgerRule::None,
        decides: true,
        resumed: false,
        now_ms: 0,
    };
    let refused = DeltaLog::new(&store, "default/edit".into()).publish(&commit).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Fenced, "{refused}");
    settle(&lab, &memory, &FILES).await;
}

/// Another program replaced the log by one without our transactions, with the files of a batch that is then resumed.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_live_already_are_not_added_again_by_a_resumed_batch() {
    let (_dir, lab) = lab();
    let store = memory();
    run(&lab, &store).await;
    let chain = chain(&lab, &store).await;
    let newest = chain.listing().await.unwrap().newest().unwrap();
    let record = chain.record(newest).await.unwrap().unwrap();
    let RecordBody::Intent(recorded) = &record.body else { panic!("an intent") };
    let app = "alluvium/that-another-program-dropped";
    let log = DeltaLog::new(&Store::over(store.clone()), "default/edit".into());
    let before = log.live_files(None).await.unwrap().len();
    let commit = Commit {
        app_id: app,
        incarnation: &chain.chain().incarnation,
        key: BatchKey { batch: BatchNumber::FIRST, attempt: Attempt::FIRST },
        adds: &recorded.data.adds,
        removes: &[],
        marks: &NO_MARKS,
        changes: &[],
        rewrites: None,
        ledger: LedgerRule::None,
        decides: true,
        resumed: true,
        now_ms: 0,
    };
    let Published::Committed { version } = log.publish(&commit).await.unwrap() else { panic!("committed") };
    assert_eq!(log.live_files(None).await.unwrap().len(), before);
    let entries = DatasetCheck::new(&store, "default", "edit", "org").table("edit").log().await.unwrap();
    let entry = &entries[usize::try_from(version).unwrap()];
    assert_eq!((entry.adds.len(), &entry.txns), (0, &vec![(app.to_owned(), 1024)]));
}
