//! After a log cleanup the name of an old version is free again: a paused writer's put into it succeeds where nobody sees it.

use std::sync::Arc;

use alluvium_core::Kind;
use alluvium_lake::{Commit, Published, Store};
use alluvium_testkit::{PauseStore, Step};
use futures::FutureExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::common::{TABLE, commit, create, file, key, log, publish};

fn entry(version: u64) -> Path {
    Path::from(format!("{TABLE}/_delta_log/{version:020}.json"))
}

/// Others commit up to version 100, whose checkpoint is written, and entries below `keep_from` are cleaned up.
async fn others_go_on(store: Arc<dyn ObjectStore>, from_batch: u64, app_id: &'static str, keep_from: u64) {
    let log = log(&store);
    let mut batch = from_batch;
    loop {
        let Published::Committed { version } = publish(&log, app_id, batch).await.unwrap() else { panic!("not committed") };
        batch += 1;
        if version == 100 {
            break;
        }
    }
    assert!(store.head(&Path::from(format!("{TABLE}/_delta_log/_last_checkpoint"))).await.is_ok());
    for version in 0..keep_from {
        store.delete(&entry(version)).await.unwrap();
    }
}

/// A store whose first put of version 4 waits until others have gone on.
fn paused(store: &Arc<dyn ObjectStore>, from_batch: u64, app_id: &'static str, keep_from: u64) -> Arc<dyn ObjectStore> {
    let below = store.clone();
    Arc::new(PauseStore::once_at(
        store.clone(),
        |step| matches!(step, Step::Put(path) if *path == entry(4)),
        move || others_go_on(below.clone(), from_batch, app_id, keep_from).boxed(),
    ))
}

async fn three_versions() -> Arc<dyn ObjectStore> {
    let store: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
    let log = create(&store).await;
    for batch in 1..=3 {
        assert_eq!(publish(&log, "app", batch).await.unwrap(), Published::Committed { version: batch });
    }
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn put_into_a_freed_name_is_noticed_and_the_batch_committed_where_it_is_seen() {
    // Cleanup may leave the checkpoint's own entry, or remove it too.
    for keep_from in [100, 101] {
        let store = three_versions().await;
        let slow = paused(&store, 1, "other", keep_from);
        assert_eq!(publish(&log(&slow), "app", 4).await.unwrap(), Published::Committed { version: 101 }, "{keep_from}");
        let live = log(&store).live_files(None).await.unwrap();
        assert_eq!(live.iter().filter(|f| f.path == "app-4.parquet").count(), 1);
        assert_eq!(live.len(), 3 + 97 + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn put_into_a_freed_name_of_a_chain_that_has_gone_on_is_fenced() {
    for keep_from in [100, 101] {
        let store = three_versions().await;
        let slow = paused(&store, 4, "app", keep_from);
        let outcome = publish(&log(&slow), "app", 4).await.unwrap();
        assert_eq!(outcome, Published::Fenced { newest: key(100) }, "{keep_from}");
        assert_eq!(log(&store).live_files(None).await.unwrap().len(), 100);
    }
}

/// Another process published the same record, the only batch of its chain since, before the cleanup.
#[tokio::test(flavor = "multi_thread")]
async fn put_into_a_freed_name_of_a_batch_that_is_carried_does_not_name_the_unseen_version() {
    let store = three_versions().await;
    let below = store.clone();
    let slow: Arc<dyn ObjectStore> = Arc::new(PauseStore::once_at(
        store.clone(),
        |step| matches!(step, Step::Put(path) if *path == entry(4)),
        move || {
            let below = below.clone();
            async move {
                others_go_on(below.clone(), 1, "other", 100).await;
                let other = log(&below);
                assert_eq!(publish(&other, "app", 4).await.unwrap(), Published::Committed { version: 101 });
            }
            .boxed()
        },
    ));
    let outcome = publish(&log(&slow), "app", 4).await.unwrap();
    let told = match outcome {
        Published::Committed { version } => version,
        Published::AlreadyPublished { key } => log(&store).version_of("app", key).await.unwrap().0,
        other => panic!("{other:?}"),
    };
    assert_eq!(told, 101);
    assert_eq!(log(&store).live_files(None).await.unwrap().iter().filter(|f| f.path == "app-4.parquet").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_that_is_cut_or_damaged_is_corrupt_and_nothing_is_written() {
    for (what, version, bytes) in [("cut", 2, None), ("damaged", 3, Some("{\"add\":{\"pa"))] {
        let store = three_versions().await;
        match bytes {
            None => store.delete(&entry(version)).await.unwrap(),
            Some(bytes) => {
                store.put(&entry(version), bytes.into()).await.unwrap();
            }
        }
        let before = Store::over(store.clone()).list(&Path::from(TABLE), None).await.unwrap();
        let error = publish(&log(&store), "app", 4).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{what}: {}", error.chain_text());
        assert_eq!(Store::over(store.clone()).list(&Path::from(TABLE), None).await.unwrap(), before, "{what}");
    }
}

/// A reader has listed the log; before it reads what it saw, another program cleans up below a new checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn log_that_is_cleaned_up_while_it_is_read_is_not_damaged() {
    let store = three_versions().await;
    let below = store.clone();
    let slow: Arc<dyn ObjectStore> = Arc::new(PauseStore::once_at(
        store.clone(),
        |step| matches!(step, Step::Get(path) if *path == entry(1)),
        move || {
            let below = below.clone();
            async move {
                log(&below).checkpoint(3).await.unwrap();
                for version in 0..3 {
                    below.delete(&entry(version)).await.unwrap();
                }
            }
            .boxed()
        },
    ));
    assert_eq!(log(&slow).state("app").await.unwrap().map(|s| s.version()), Some(3));
    assert_eq!(publish(&log(&slow), "app", 4).await.unwrap(), Published::Committed { version: 4 });
}

/// What this process saw last is gone when it finishes a batch that another left.
#[tokio::test(flavor = "multi_thread")]
async fn batch_is_committed_though_the_version_known_last_was_cleaned_up() {
    let store = three_versions().await;
    let mine = log(&store);
    assert_eq!(mine.state("app").await.unwrap().map(|s| s.version()), Some(3));
    let other = log(&store);
    assert_eq!(publish(&other, "other", 1).await.unwrap(), Published::Committed { version: 4 });
    other.checkpoint(4).await.unwrap();
    for version in 0..4 {
        store.delete(&entry(version)).await.unwrap();
    }
    let adds = [file("app-4")];
    let resumed = Commit { resumed: true, ..commit("app", 4, &adds, &[]) };
    assert_eq!(mine.publish(&resumed).await.unwrap(), Published::Committed { version: 5 });
}

/// Another process takes the version's name first; before that is looked at, it is cleaned up.
#[tokio::test(flavor = "multi_thread")]
async fn batch_that_lost_to_an_entry_cleaned_up_since_is_committed_behind_it() {
    let store = three_versions().await;
    let (first, then) = (store.clone(), store.clone());
    let cleaned: Arc<dyn ObjectStore> = Arc::new(PauseStore::once_at(
        store.clone(),
        |step| matches!(step, Step::Get(path) if *path == entry(4)),
        move || {
            let store = then.clone();
            async move {
                log(&store).checkpoint(4).await.unwrap();
                for version in 0..=4 {
                    store.delete(&entry(version)).await.unwrap();
                }
            }
            .boxed()
        },
    ));
    let slow: Arc<dyn ObjectStore> = Arc::new(PauseStore::once_at(
        cleaned,
        |step| matches!(step, Step::Put(path) if *path == entry(4)),
        move || {
            let store = first.clone();
            async move {
                assert_eq!(publish(&log(&store), "other", 1).await.unwrap(), Published::Committed { version: 4 });
            }
            .boxed()
        },
    ));
    assert_eq!(publish(&log(&slow), "app", 4).await.unwrap(), Published::Committed { version: 5 });
}
