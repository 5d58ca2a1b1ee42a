//! Says so when a store keeps us waiting: a command that retries in silence looks as if it hung.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result,
};
use tokio::time::Instant;

/// A request that takes longer is told of.
const PATIENCE: Duration = Duration::from_secs(5);
/// It is told of no more often than this, however many requests wait.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// A store that tells of slow answers.
#[derive(Debug, Clone)]
pub(super) struct Patient {
    inner: Arc<dyn ObjectStore>,
    telling: Arc<Telling>,
}

#[derive(Debug)]
struct Telling {
    name: String,
    since: Instant,
    /// Milliseconds after `since` before which nothing more is told.
    quiet_until_ms: AtomicU64,
}

impl Patient {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, name: String) -> Self {
        Self { inner, telling: Arc::new(Telling { name, since: Instant::now(), quiet_until_ms: AtomicU64::new(0) }) }
    }
}

impl Telling {
    async fn wait<T>(&self, doing: &str, answer: impl Future<Output = T>) -> T {
        tokio::pin!(answer);
        match tokio::time::timeout(PATIENCE, &mut answer).await {
            Ok(answer) => answer,
            Err(_) => {
                if self.may_tell() {
                    tracing::warn!("{} has not answered for {} s while {doing}; still trying", self.name, PATIENCE.as_secs());
                }
                answer.await
            }
        }
    }

    fn may_tell(&self) -> bool {
        self.may_tell_at(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn may_tell_at(&self, now_ms: u64) -> bool {
        let next = now_ms.saturating_add(TOLD_EVERY.as_millis() as u64);
        let quiet = &self.quiet_until_ms;
        quiet.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |until| (now_ms >= until).then_some(next)).is_ok()
    }
}

impl fmt::Display for Patient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.telling.name)
    }
}

#[async_trait]
impl ObjectStore for Patient {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.telling.wait("writing", self.inner.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.telling.wait("writing", self.inner.put_multipart_opts(location, opts)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.telling.wait("reading", self.inner.get_opts(location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.telling.wait("reading", self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        patient(&self.telling, "deleting", self.inner.delete_stream(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        patient(&self.telling, "listing", self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        patient(&self.telling, "listing", self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.telling.wait("listing", self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.telling.wait("copying", self.inner.copy_opts(from, to, options)).await
    }
}

fn patient<T: Send + 'static>(
    telling: &Arc<Telling>,
    doing: &'static str,
    items: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    stream::unfold((telling.clone(), items), move |(telling, mut items)| async move {
        let item = telling.wait(doing, items.next()).await?;
        Some((item, (telling, items)))
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn slow_answers_are_told_of_at_once_and_then_once_in_ten_seconds() {
        let patient = Patient::new(Arc::new(InMemory::new()), "s3://bucket".to_owned());
        let told: Vec<u64> = (0..40).map(|s| s * 1000).filter(|ms| patient.telling.may_tell_at(*ms)).collect();
        assert_eq!(told, [0, 10_000, 20_000, 30_000]);
    }
}
