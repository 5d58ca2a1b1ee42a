//! [`FaultStore`] as an object store: every method passes on to the store below, after asking whether it may.

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use super::upload::FaultUpload;
use super::{FaultStore, PutKind};

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({})", self.inner)
    }
}

impl FaultStore {
    async fn delete_one(&self, location: Path) -> Result<Path> {
        let counts = self.state().counts_deletes;
        if counts {
            let after = self.begin(PutKind::Delete, &location)?;
            self.end(after, self.inner.delete(&location).await)?;
        } else {
            self.alive()?;
            self.inner.delete(&location).await?;
        }
        Ok(location)
    }

    fn while_alive<T: Send + 'static>(&self, below: BoxStream<'static, Result<T>>) -> BoxStream<'static, Result<T>> {
        let store = self.clone();
        below.and_then(move |item| std::future::ready(store.alive().map(|()| item))).boxed()
    }

    /// The store's death as a stream's only item; `None` while it lives.
    fn death<T: Send + 'static>(&self) -> Option<BoxStream<'static, Result<T>>> {
        self.alive().err().map(|dead| futures::stream::once(std::future::ready(Err(dead))).boxed())
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let after = self.begin(PutKind::Put, location)?;
        self.end(after, self.inner.put_opts(location, payload, opts).await)
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.alive()?;
        let below = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(FaultUpload::new(self.clone(), location.clone(), below)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.alive()?;
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.alive()?;
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move { store.delete_one(location?).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.death().unwrap_or_else(|| self.while_alive(self.inner.list(prefix)))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.death().unwrap_or_else(|| self.while_alive(self.inner.list_with_offset(prefix, offset)))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.alive()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let after = self.begin(PutKind::Copy, to)?;
        self.end(after, self.inner.copy_opts(from, to, options).await)
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let after = self.begin(PutKind::Rename, to)?;
        self.end(after, self.inner.rename_opts(from, to, options).await)
    }
}
