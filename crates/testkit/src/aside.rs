//! A store of which one directory is each owner's own.
//!
//! Leases only save work; what is safe must be so without them. Given leases of its own, every engine believes that it is
//! alone, and all meetings happen that leases would only make rare.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Keeps what lies in a directory `leases` in a memory of its own, and passes on the rest.
#[derive(Debug)]
pub struct OwnLeases {
    inner: Arc<dyn ObjectStore>,
    own: Arc<InMemory>,
}

impl OwnLeases {
    /// Around `inner`, with no leases yet.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, own: Arc::default() }
    }

    fn of(&self, location: &Path) -> &dyn ObjectStore {
        if is_lease(location) { &*self.own } else { &*self.inner }
    }

    fn under(&self, prefix: Option<&Path>) -> &dyn ObjectStore {
        prefix.map_or(&*self.inner, |prefix| self.of(prefix))
    }
}

fn is_lease(location: &Path) -> bool {
    location.parts().any(|part| part.as_ref() == "leases")
}

impl fmt::Display for OwnLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnLeases({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for OwnLeases {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.of(location).put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.of(location).put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.of(location).get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.of(location).get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, own) = (self.inner.clone(), self.own.clone());
        locations
            .then(move |location| {
                let (inner, own) = (inner.clone(), own.clone());
                async move {
                    let location = location?;
                    if is_lease(&location) {
                        own.delete(&location).await?
                    } else {
                        inner.delete(&location).await?
                    }
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.under(prefix).list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.under(prefix).list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.under(prefix).list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.of(from).copy_opts(from, to, options).await
    }
}
