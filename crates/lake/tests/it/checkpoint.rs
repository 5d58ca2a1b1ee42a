//! The hundredth version brings a checkpoint: whatever of it fails, the batch is in the log once, and readers see all.

use std::sync::Arc;

use alluvium_lake::{Published, Store};
use alluvium_testkit::{Fault, FaultStore};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::common::{TABLE, create, live, log, publish};

/// A table at version 99.
async fn before() -> InMemory {
    let memory = InMemory::new();
    let store: Arc<dyn ObjectStore> = Arc::new(memory.clone());
    let log = create(&store).await;
    for batch in 1..100 {
        assert_eq!(publish(&log, "app", batch).await.unwrap(), Published::Committed { version: batch });
    }
    memory
}

#[tokio::test(flavor = "multi_thread")]
async fn store_dying_at_any_put_around_a_checkpoint_commits_the_batch_once() {
    let memory = before().await;
    let counted = FaultStore::new(Arc::new(memory.fork()));
    let counting: Arc<dyn ObjectStore> = Arc::new(counted.clone());
    assert_eq!(publish(&log(&counting), "app", 100).await.unwrap(), Published::Committed { version: 100 });
    let puts = counted.put_count();
    assert!(puts >= 3, "an entry, a checkpoint and its hint, not {puts} puts");
    for n in 1..=puts {
        for fault in [Fault::DieBefore(n), Fault::DieAfter(n), Fault::ErrorAfterSuccess(n)] {
            let store: Arc<dyn ObjectStore> = Arc::new(memory.fork());
            let faulty: Arc<dyn ObjectStore> = Arc::new(FaultStore::new(store.clone()).with_fault(fault));
            let first = publish(&log(&faulty), "app", 100).await;
            let again = publish(&log(&store), "app", 100).await.unwrap();
            match again {
                Published::Committed { version } => assert!(version == 100 && first.is_err(), "{fault:?}: {first:?}"),
                Published::AlreadyPublished { key } => assert_eq!(key.batch.0, 100, "{fault:?}"),
                other => panic!("{fault:?}: {other:?}"),
            }
            assert_eq!(publish(&log(&store), "app", 101).await.unwrap(), Published::Committed { version: 101 }, "{fault:?}");
            assert_eq!(live(&store).await.len(), 101, "{fault:?}");
            // What readers make of log and checkpoint together.
            assert_eq!(log(&store).live_files(None).await.unwrap().len(), 101, "{fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn applications_that_came_before_a_checkpoint_are_settled_by_it_when_the_entries_are_gone() {
    let memory = before().await;
    let store: Arc<dyn ObjectStore> = Arc::new(memory);
    let log = log(&store);
    assert_eq!(publish(&log, "other", 7).await.unwrap(), Published::Committed { version: 100 });
    for version in 0..100 {
        store.delete(&Path::from(format!("{TABLE}/_delta_log/{version:020}.json"))).await.unwrap();
    }
    for batch in [1, 50, 98] {
        assert!(matches!(publish(&log, "app", batch).await.unwrap(), Published::Fenced { newest } if newest.batch.0 == 99));
    }
    assert!(matches!(publish(&log, "app", 99).await.unwrap(), Published::AlreadyPublished { .. }));
    assert_eq!(Store::over(store.clone()).list(&Path::from(format!("{TABLE}/_delta_log")), None).await.unwrap().len(), 3);
}
