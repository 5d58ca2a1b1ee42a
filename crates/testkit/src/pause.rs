//! A store that does something else before a step: waits, or lets another process run.
//!
//! With [`PauseStore::jitter`] two engines over one store meet in another order for every seed; with [`PauseStore::once_at`] the
//! order that matters is made to happen.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result,
};

/// What is about to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// An object is put.
    Put(Path),
    /// An object is read.
    Get(Path),
    /// A directory is listed.
    List(Path),
}

type Before = dyn Fn(Step) -> BoxFuture<'static, ()> + Send + Sync;

/// The store.
#[derive(Clone)]
pub struct PauseStore {
    inner: Arc<dyn ObjectStore>,
    before: Arc<Before>,
}

impl PauseStore {
    /// Runs `before` before every step.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>, before: impl Fn(Step) -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self { inner, before: Arc::new(before) }
    }

    /// Waits a little before every step, at most two milliseconds; how long follows from `seed`.
    #[must_use]
    pub fn jitter(inner: Arc<dyn ObjectStore>, seed: u64) -> Self {
        let state = AtomicU64::new(seed.wrapping_mul(2).wrapping_add(1));
        Self::new(inner, move |_| {
            // Xorshift, by Marsaglia.
            let mut x = state.load(Ordering::Relaxed);
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            state.store(x, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_micros(x % 2000)).boxed()
        })
    }

    /// Runs `then` before the first step for which `at` holds.
    #[must_use]
    pub fn once_at(
        inner: Arc<dyn ObjectStore>,
        at: impl Fn(&Step) -> bool + Send + Sync + 'static,
        then: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        let happened = AtomicBool::new(false);
        Self::new(inner, move |step| {
            if at(&step) && !happened.swap(true, Ordering::SeqCst) { then() } else { std::future::ready(()).boxed() }
        })
    }
}

impl fmt::Debug for PauseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PauseStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl fmt::Display for PauseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PauseStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for PauseStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        (self.before)(Step::Put(location.clone())).await;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        (self.before)(Step::Put(location.clone())).await;
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        (self.before)(Step::Get(location.clone())).await;
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        (self.before)(Step::Get(location.clone())).await;
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let listing = async move {
            (store.before)(Step::List(prefix.clone().unwrap_or_default())).await;
            store.inner.list(prefix.as_ref())
        };
        stream::once(listing).flatten().boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix, offset) = (self.clone(), prefix.cloned(), offset.clone());
        let listing = async move {
            (store.before)(Step::List(prefix.clone().unwrap_or_default())).await;
            store.inner.list_with_offset(prefix.as_ref(), &offset)
        };
        stream::once(listing).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
