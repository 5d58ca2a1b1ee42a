//! The store fails where it was told to.

#![allow(clippy::unwrap_used)]

use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, PutMode, PutPayload};

use super::*;

fn faulty() -> (Arc<InMemory>, FaultStore) {
    let memory = Arc::new(InMemory::new());
    (Arc::clone(&memory), FaultStore::new(memory))
}

fn path(name: &str) -> Path {
    Path::from(name)
}

async fn put(store: &impl ObjectStore, name: &str) -> Result<()> {
    store.put(&path(name), PutPayload::from_static(b"x")).await.map(|_| ())
}

async fn names(store: &impl ObjectStore) -> Vec<String> {
    let metas: Vec<_> = store.list(None).try_collect().await.unwrap();
    metas.into_iter().map(|m| m.location.to_string()).collect()
}

fn fate<T>(result: Result<T>) -> Option<Injected> {
    injected(&result.err().unwrap())
}

#[tokio::test]
async fn without_a_fault_puts_pass_and_are_logged_in_order() {
    let (memory, store) = faulty();
    put(&store, "b").await.unwrap();
    put(&store, "a").await.unwrap();
    store.copy(&path("a"), &path("c")).await.unwrap();
    store.rename_if_not_exists(&path("c"), &path("d")).await.unwrap();
    let mut upload = store.put_multipart(&path("e")).await.unwrap();
    upload.put_part(PutPayload::from_static(b"x")).await.unwrap();
    upload.complete().await.unwrap();
    store.delete(&path("b")).await.unwrap();

    let log: Vec<(PutKind, String)> = store.log().into_iter().map(|p| (p.kind, p.path.to_string())).collect();
    let expected =
        [(PutKind::Put, "b"), (PutKind::Put, "a"), (PutKind::Copy, "c"), (PutKind::Rename, "d"), (PutKind::Multipart, "e")];
    assert_eq!(log, expected.map(|(kind, name)| (kind, name.to_owned())));
    assert_eq!(store.put_count(), 5);
    assert_eq!(names(&*memory).await, ["a", "d", "e"]);
}

#[tokio::test]
async fn die_before_the_second_put_leaves_one_object_and_nothing_works_after() {
    let (memory, store) = faulty();
    let store = store.with_fault(Fault::DieBefore(2));
    put(&store, "a").await.unwrap();
    assert_eq!(fate(put(&store, "b").await), Some(Injected::Dead));
    assert!(store.is_dead());

    assert_eq!(fate(put(&store, "c").await), Some(Injected::Dead));
    assert_eq!(fate(store.get(&path("a")).await), Some(Injected::Dead));
    assert_eq!(fate(store.get_ranges(&path("a"), std::slice::from_ref(&(0..1))).await), Some(Injected::Dead));
    assert_eq!(fate(store.delete(&path("a")).await), Some(Injected::Dead));
    assert_eq!(fate(store.list(None).try_collect::<Vec<_>>().await), Some(Injected::Dead));
    assert_eq!(fate(store.list_with_offset(None, &path("0")).try_collect::<Vec<_>>().await), Some(Injected::Dead));
    assert_eq!(fate(store.list_with_delimiter(None).await), Some(Injected::Dead));
    assert_eq!(fate(store.copy(&path("a"), &path("c")).await), Some(Injected::Dead));
    assert_eq!(fate(store.rename(&path("a"), &path("c")).await), Some(Injected::Dead));
    assert_eq!(fate(store.put_multipart(&path("c")).await), Some(Injected::Dead));
    assert_eq!(names(&*memory).await, ["a"]);
    assert_eq!(store.put_count(), 2, "what a dead process tries does not count");
}

#[tokio::test]
async fn die_after_the_second_put_leaves_two_objects_and_tells_nobody() {
    let (memory, store) = faulty();
    let store = store.with_fault(Fault::DieAfter(2));
    put(&store, "a").await.unwrap();
    assert_eq!(fate(put(&store, "b").await), Some(Injected::Dead));
    assert_eq!(fate(put(&store, "c").await), Some(Injected::Dead));
    assert_eq!(names(&*memory).await, ["a", "b"]);
}

#[tokio::test]
async fn a_put_begun_beside_the_last_one_fails_too() {
    let (memory, store) = faulty();
    let store = store.with_fault(Fault::DieAfter(1));
    let both = futures::join!(put(&store, "a"), put(&store, "b"));
    assert_eq!((fate(both.0), fate(both.1)), (Some(Injected::Dead), Some(Injected::Dead)));
    assert_eq!(names(&*memory).await, ["a"]);
}

#[tokio::test]
async fn error_after_success_fails_once_and_takes_effect() {
    let (memory, store) = faulty();
    let store = store.with_fault(Fault::ErrorAfterSuccess(1));
    assert_eq!(fate(put(&store, "a").await), Some(Injected::ErrorAfterSuccess));
    put(&store, "b").await.unwrap();
    assert_eq!(names(&*memory).await, ["a", "b"]);
}

#[tokio::test]
async fn error_after_success_keeps_a_refusal_of_the_store_itself() {
    let (_, store) = faulty();
    put(&store, "a").await.unwrap();
    store.arm(Fault::ErrorAfterSuccess(2));
    let refused = store.put_opts(&path("a"), PutPayload::new(), PutMode::Create.into()).await.unwrap_err();
    assert!(matches!(refused, object_store::Error::AlreadyExists { .. }), "{refused}");
    assert_eq!(injected(&refused), None);
}

#[tokio::test]
async fn a_multipart_upload_dies_at_its_completion() {
    let (memory, store) = faulty();
    let store = store.with_fault(Fault::DieBefore(1));
    let mut upload = store.put_multipart(&path("a")).await.unwrap();
    upload.put_part(PutPayload::from_static(b"x")).await.unwrap();
    assert_eq!(fate(upload.complete().await), Some(Injected::Dead));
    assert_eq!(fate(upload.put_part(PutPayload::new()).await), Some(Injected::Dead));
    assert_eq!(fate(upload.abort().await), Some(Injected::Dead));
    assert!(names(&*memory).await.is_empty());
}

#[tokio::test]
async fn deletions_count_only_when_asked() {
    let (memory, store) = faulty();
    let store = store.counting_deletes();
    put(&store, "a").await.unwrap();
    put(&store, "b").await.unwrap();
    store.arm(Fault::DieAfter(3));
    assert_eq!(fate(store.delete(&path("a")).await), Some(Injected::Dead));
    assert_eq!(fate(store.delete(&path("b")).await), Some(Injected::Dead));
    assert_eq!(store.log().last().map(|p| p.kind), Some(PutKind::Delete));
    assert_eq!(names(&*memory).await, ["b"]);
}

#[tokio::test]
async fn a_listing_under_way_ends_with_the_death_of_the_store() {
    let (_, store) = faulty();
    put(&store, "a").await.unwrap();
    put(&store, "b").await.unwrap();
    let listing = store.list(None);
    store.arm(Fault::DieBefore(3));
    assert_eq!(fate(put(&store, "c").await), Some(Injected::Dead));
    assert_eq!(fate(listing.try_collect::<Vec<_>>().await), Some(Injected::Dead));
}

#[test]
fn an_error_wrapped_in_another_is_still_recognised() {
    let error = std::io::Error::other(object_store::Error::from(Injected::Dead));
    assert_eq!(injected(&error), Some(Injected::Dead));
    assert_eq!(injected(&std::io::Error::other("real")), None);
}
