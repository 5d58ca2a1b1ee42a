//! A process that commits again and again remembers what it last saw of a table's log: few requests, and nothing taken for true that
//! is not.

use std::sync::Arc;

use alluvium_core::{Incarnation, Kind, TableSpec};
use alluvium_lake::{Published, PutNew, Store};
use alluvium_testkit::{Fault, FaultStore, PutKind};
use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::common::{TABLE, commit, create, file, key, live, log, publish};

fn entry(version: u64) -> Path {
    Path::from(format!("{TABLE}/_delta_log/{version:020}.json"))
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_others_in_between_are_noticed_and_the_batch_lands_once() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let ours = create(&store).await;
    assert_eq!(publish(&ours, "app", 1).await.unwrap(), Published::Committed { version: 1 });
    for batch in 1..=3 {
        assert_eq!(publish(&log(&store), "other", batch).await.unwrap(), Published::Committed { version: batch + 1 });
    }
    assert_eq!(publish(&ours, "app", 2).await.unwrap(), Published::Committed { version: 5 });
    // A later owner of our own chain went on: what we remember of it is old.
    assert_eq!(publish(&log(&store), "app", 3).await.unwrap(), Published::Committed { version: 6 });
    assert_eq!(publish(&ours, "app", 3).await.unwrap(), Published::AlreadyPublished { key: key(3) });
    assert_eq!(publish(&log(&store), "app", 4).await.unwrap(), Published::Committed { version: 7 });
    assert_eq!(publish(&ours, "app", 3).await.unwrap(), Published::Fenced { newest: key(4) });
    assert_eq!(publish(&ours, "app", 5).await.unwrap(), Published::Committed { version: 8 });
    assert_eq!(live(&store).await.len(), 5 + 3);
}

/// What another process added after the version that this one remembers may be removed by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_came_after_what_is_remembered_can_be_removed() {
    for own_chain in [true, false] {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let ours = create(&store).await;
        assert_eq!(publish(&ours, "app", 1).await.unwrap(), Published::Committed { version: 1 });
        let other = if own_chain { "app" } else { "other" };
        assert_eq!(publish(&log(&store), other, 2).await.unwrap(), Published::Committed { version: 2 });
        let (adds, removes) = ([file("new")], [format!("{other}-2.parquet")]);
        assert_eq!(ours.publish(&commit("app", 3, &adds, &removes)).await.unwrap(), Published::Committed { version: 3 });
        assert_eq!(live(&store).await, ["app-1.parquet", "new.parquet"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_cleaned_up_beyond_what_is_remembered_is_read_anew() {
    for keep_from in [100, 101] {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let ours = create(&store).await;
        for batch in 1..=3 {
            assert_eq!(publish(&ours, "app", batch).await.unwrap(), Published::Committed { version: batch });
        }
        let other = log(&store);
        for batch in 1..=97 {
            assert_eq!(publish(&other, "other", batch).await.unwrap(), Published::Committed { version: batch + 3 });
        }
        for version in 0..keep_from {
            store.delete(&entry(version)).await.unwrap();
        }
        assert_eq!(publish(&ours, "app", 4).await.unwrap(), Published::Committed { version: 101 }, "{keep_from}");
        let found = log(&store).live_files(None).await.unwrap();
        assert_eq!((found.len(), found.iter().filter(|f| f.path == "app-4.parquet").count()), (101, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_incarnation_of_the_namespace_is_a_conflict_though_the_table_is_remembered() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let ours = create(&store).await;
    assert_eq!(publish(&ours, "app", 1).await.unwrap(), Published::Committed { version: 1 });
    let error = ours.ensure(&TableSpec::notifications(), &Incarnation("another".to_owned()), "app", 0).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_onto_a_remembered_version_takes_one_put_and_one_listing() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    create(&store).await;
    let counted = FaultStore::new(store);
    let ours = log(&(Arc::new(counted.clone()) as Arc<dyn ObjectStore>));
    assert_eq!(publish(&ours, "app", 1).await.unwrap(), Published::Committed { version: 1 });
    let before = counted.put_count();
    assert_eq!(publish(&ours, "app", 2).await.unwrap(), Published::Committed { version: 2 });
    assert_eq!(counted.put_count(), before + 1);
}

#[tokio::test]
async fn a_large_file_goes_up_in_parts_and_a_lost_answer_to_the_last_step_is_looked_up() {
    let content = Bytes::from((0..20_000_000_u32).map(|i| (i % 251) as u8).collect::<Vec<_>>());
    let path = Path::from("default/edit/large.parquet");
    for fault in [None, Some(Fault::ErrorAfterSuccess(1))] {
        let memory = Arc::new(InMemory::new());
        let below = FaultStore::new(memory.clone());
        if let Some(fault) = fault {
            below.arm(fault);
        }
        let store = Store::over(Arc::new(below.clone()));
        assert_eq!(store.stage_own(&path, content.clone()).await.unwrap(), PutNew::Created, "{fault:?}");
        assert_eq!(below.log().iter().map(|put| put.kind).collect::<Vec<_>>(), [PutKind::Multipart]);
        assert!(memory.get(&path).await.unwrap().bytes().await.unwrap() == content);
    }
    let dies = FaultStore::new(Arc::new(InMemory::new())).with_fault(Fault::DieBefore(1));
    let error = Store::over(Arc::new(dies)).stage_own(&path, content).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
}

/// A process that stood still while the namespace was deleted wakes in the middle of a batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_to_a_table_that_was_deleted_leaves_nothing_behind() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let ours = create(&store).await;
    for batch in 1..=3 {
        assert_eq!(publish(&ours, "app", batch).await.unwrap(), Published::Committed { version: batch });
    }
    for version in 0..=3 {
        store.delete(&entry(version)).await.unwrap();
    }
    assert_eq!(publish(&ours, "app", 4).await.unwrap_err().kind(), Kind::Fenced);
    assert!(store.get(&entry(4)).await.is_err());
    create(&store).await;
    assert_eq!(publish(&log(&store), "new", 1).await.unwrap(), Published::Committed { version: 1 });
}
