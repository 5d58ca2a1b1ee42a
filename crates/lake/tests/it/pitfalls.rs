//! What went wrong for others in committing once, each case by the report it comes from.

use std::sync::Arc;

use alluvium_core::{Attempt, BatchKey};
use alluvium_lake::{Commit, Published};
use alluvium_testkit::{Fault, FaultStore};
use object_store::ObjectStore;
use object_store::memory::InMemory;

use crate::common::{commit, create, file, key, live, log, publish};

async fn table() -> Arc<dyn ObjectStore> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    create(&store).await;
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_rs_2580_same_application_and_version_twice_is_a_recognised_no_op() {
    let store = table().await;
    assert_eq!(publish(&log(&store), "app", 1).await.unwrap(), Published::Committed { version: 1 });
    assert_eq!(publish(&log(&store), "app", 1).await.unwrap(), Published::AlreadyPublished { key: key(1) });
    assert_eq!(publish(&log(&store), "other", 1).await.unwrap(), Published::Committed { version: 2 });
    assert_eq!(live(&store).await, ["app-1.parquet", "other-1.parquet"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_rs_2279_error_although_the_commit_landed_is_a_commit() {
    let store = table().await;
    let faulty: Arc<dyn ObjectStore> = Arc::new(FaultStore::new(store.clone()).with_fault(Fault::ErrorAfterSuccess(1)));
    assert_eq!(publish(&log(&faulty), "app", 1).await.unwrap(), Published::Committed { version: 1 });
    assert_eq!(live(&store).await, ["app-1.parquet"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn iceberg_17551_owner_that_is_overtaken_is_fenced_by_the_commit_itself() {
    let store = table().await;
    for batch in [1, 2] {
        let _committed = publish(&log(&store), "app", batch).await.unwrap();
    }
    assert_eq!(publish(&log(&store), "app", 1).await.unwrap(), Published::Fenced { newest: key(2) });
    assert_eq!(live(&store).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn iceberg_17340_same_files_under_another_attempt_are_not_added_again() {
    let store = table().await;
    let adds = [file("shared")];
    let commit =
        |attempt| Commit { key: BatchKey { attempt: Attempt(attempt), ..key(1) }, decides: true, ..commit("app", 1, &adds, &[]) };
    assert_eq!(log(&store).publish(&commit(0)).await.unwrap(), Published::Committed { version: 1 });
    assert_eq!(log(&store).publish(&commit(1)).await.unwrap(), Published::AlreadyPublished { key: key(1) });
    assert_eq!(live(&store).await, ["shared.parquet"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn iceberg_10431_batch_after_one_that_never_came_is_refused_where_batches_are_decided() {
    let store = table().await;
    let adds = [file("later")];
    let commit = Commit { decides: true, ..commit("app", 2, &adds, &[]) };
    assert_eq!(log(&store).publish(&commit).await.unwrap_err().kind(), alluvium_core::Kind::Corrupt);
    assert_eq!(live(&store).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_that_removes_a_file_no_longer_live_is_refused() {
    let store = table().await;
    let _committed = publish(&log(&store), "app", 1).await.unwrap();
    let removes = ["app-1.parquet".to_owned()];
    let commit = |app_id| commit(app_id, 1, &[], &removes);
    assert_eq!(log(&store).publish(&commit("one")).await.unwrap(), Published::Committed { version: 2 });
    let outcome = log(&store).publish(&commit("two")).await.unwrap();
    assert_eq!(outcome, Published::Refused { missing: "app-1.parquet".to_owned() });
    assert_eq!(live(&store).await, [""; 0]);
}

/// Eight writers at once on one table: all commit, none twice.
#[tokio::test(flavor = "multi_thread")]
async fn writers_that_race_for_every_version_all_commit_once() {
    let store = table().await;
    let tasks: Vec<_> = (0..8)
        .map(|i| {
            let log = log(&store);
            tokio::spawn(async move {
                for batch in 1..=5 {
                    assert!(matches!(publish(&log, &format!("w{i}"), batch).await.unwrap(), Published::Committed { .. }));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(live(&store).await.len(), 40);
}
