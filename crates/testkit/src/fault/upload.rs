//! A multipart upload through a [`FaultStore`]: its completion is a put.

use async_trait::async_trait;
use futures::FutureExt;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use super::{FaultStore, PutKind};

#[derive(Debug)]
pub(super) struct FaultUpload {
    store: FaultStore,
    location: Path,
    below: Box<dyn MultipartUpload>,
}

impl FaultUpload {
    pub(super) fn new(store: FaultStore, location: Path, below: Box<dyn MultipartUpload>) -> Self {
        Self { store, location, below }
    }
}

#[async_trait]
impl MultipartUpload for FaultUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.store.alive() {
            Ok(()) => self.below.put_part(data),
            Err(dead) => std::future::ready(Err(dead)).boxed(),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let after = self.store.begin(PutKind::Multipart, &self.location)?;
        let answer = self.below.complete().await;
        self.store.end(after, answer)
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.alive()?;
        self.below.abort().await
    }
}
