//! A namespace that is deleted and made again, and processes of the former life that stood still meanwhile.

use std::sync::Arc;

use alluvium_core::Kind;
use alluvium_engine::Mode;
use alluvium_lake::Store;
use alluvium_testkit::{Lab, PauseStore, Step};
use futures::FutureExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::sync::Notify;

use crate::common::{file, ingest, landed, memory, settle, yaml};

const MARK: &str = "default/_alluvium/deleting.json";

fn puts(name: impl Into<String>) -> impl Fn(&Step) -> bool {
    let name = name.into();
    move |step| matches!(step, Step::Put(path) if path.filename() == Some(&name))
}

/// At the second batch, the next life's table has come to the very version that the process saw last in the former one's.
#[tokio::test(flavor = "multi_thread")]
async fn batch_recorded_after_its_namespace_was_deleted_gets_nothing_into_the_next() {
    for batch in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "f.json", 12);
        let lab = Lab::new(dir.path(), &yaml("keep", 5));
        let store = memory();
        let (other, below) = (lab.clone(), store.clone());
        let meanwhile = move || {
            let (other, below) = (other.clone(), Store::over(below.clone()));
            async move {
                other.engine(&below).delete_namespace().await.unwrap();
                assert_eq!(ingest(&other.engine(&below), Mode::Once).await.unwrap().batches, 1);
            }
            .boxed()
        };
        let old = PauseStore::once_at(store.clone(), puts(format!("{batch:020}.0000.json")), meanwhile);
        let summary = ingest(&lab.engine(&Store::over(Arc::new(old))), Mode::UntilIdle).await.unwrap();
        let (_, error) = summary.failed.first().expect("the process finds that it is old");
        assert_eq!(error.kind(), Kind::Fenced, "batch {batch}: {error}");
        assert_eq!(landed(&store).await.commits, 1, "batch {batch}: the next life's own batch, and no other");
        settle(&lab, &store, &[("f.json", 12)]).await;
    }
}

/// A process that records a batch and dies, between the deletion's look at the chains and its mark.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_that_finds_a_batch_recorded_just_before_its_mark_is_refused_and_leaves_no_mark() {
    let dir = tempfile::tempdir().unwrap();
    file(dir.path(), "a.json", 3);
    let lab = Lab::new(dir.path(), &yaml("keep", 5));
    let store = memory();
    settle(&lab, &store, &[("a.json", 3)]).await;
    file(dir.path(), "f.json", 4);
    let (other, below) = (lab.clone(), store.clone());
    let meanwhile = move || {
        let (other, below) = (other.clone(), below.clone());
        async move {
            let reached = Arc::new(Notify::new());
            let told = reached.clone();
            let hang = move || {
                told.notify_one();
                std::future::pending().boxed()
            };
            let dies = PauseStore::once_at(below, puts(format!("{:020}.json", 2)), hang);
            let life = tokio::spawn(async move { ingest(&other.engine(&Store::over(Arc::new(dies))), Mode::Once).await });
            reached.notified().await;
            life.abort();
        }
        .boxed()
    };
    let deleter = Store::over(Arc::new(PauseStore::once_at(store.clone(), puts("deleting.json"), meanwhile)));
    let error = lab.engine(&deleter).delete_namespace().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    assert!(store.get(&Path::from(MARK)).await.is_err(), "the namespace is not marked any more");
    settle(&lab, &store, &[("a.json", 3), ("f.json", 4)]).await;
}
