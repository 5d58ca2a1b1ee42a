//! Parts of objects, and files that are too large for memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use alluvium_core::Result;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as ObjectStoreError, GetOptions, GetRange, ObjectStoreExt};

use super::error::{object_is_missing, store_error};
use super::upload::{self, Body};
use super::{PutNew, Store};

impl Store {
    /// The size of the object at `path` and its last `most` bytes, or all if it has no more; `None` if there is none.
    ///
    /// # Errors
    /// [`alluvium_core::Kind::Unavailable`] if the store failed.
    pub(crate) async fn end_of(&self, path: &Path, most: u64) -> Result<Option<(u64, Bytes)>> {
        let options = GetOptions { range: Some(GetRange::Suffix(most)), ..GetOptions::default() };
        let got = match self.inner.get_opts(path, options).await {
            Ok(got) => {
                let size = got.meta.size;
                got.bytes().await.map(|bytes| (size, bytes))
            }
            Err(e) if object_is_missing(&e) => return Ok(None),
            // Azure knows no ranges from the end, and no store has one of an empty object.
            Err(_) => match self.inner.head(path).await {
                Ok(meta) if meta.size == 0 => Ok((0, Bytes::new())),
                Ok(meta) => {
                    let range = meta.size.saturating_sub(most)..meta.size;
                    self.inner.get_range(path, range).await.map(|bytes| (meta.size, bytes))
                }
                Err(e) => Err(e),
            },
        };
        match got {
            Ok(got) => Ok(Some(got)),
            Err(e) if object_is_missing(&e) => Ok(None),
            Err(e) => Err(store_error(e, "reading", path.as_ref())),
        }
    }

    /// These bytes of the object at `path`, fewer if it ends before; `None` if there is none.
    ///
    /// # Errors
    /// [`alluvium_core::Kind::Unavailable`] if the store failed.
    pub(crate) async fn range_of(&self, path: &Path, range: Range<u64>) -> Result<Option<Bytes>> {
        // A local disk reads several ranges into memory that was not written to before.
        Ok(self.ranges_of(path, &[range]).await?.map(|bytes| bytes.into_iter().next().unwrap_or_default()))
    }

    /// The same of several ranges, in their order.
    pub(crate) async fn ranges_of(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>> {
        match self.inner.get_ranges(path, ranges).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if object_is_missing(&e) => Ok(None),
            Err(e) => Err(store_error(e, "reading", path.as_ref())),
        }
    }

    /// A temporary file, which goes with the process: for [`Store::put_own_file`], near where that puts it.
    pub(crate) fn temporary_file(&self) -> io::Result<File> {
        match self.bare.as_ref().map(|disk| disk.unnamed_file()) {
            Some(Ok(file)) => Ok(file),
            _ => tempfile::tempfile(),
        }
    }

    /// Puts the `length` bytes of `file`, which may be more than memory holds, at `path`, a name that no other writer ever uses.
    /// Durable on return.
    ///
    /// # Errors
    /// [`alluvium_core::Kind::Unavailable`] if the store or the file failed.
    pub(crate) async fn put_own_file(&self, path: &Path, file: Arc<File>, length: u64) -> Result<PutNew> {
        match self.inner.head(path).await {
            Ok(_) => return Ok(PutNew::Exists),
            Err(e) if object_is_missing(&e) => {}
            Err(e) => return Err(store_error(e, "writing", path.as_ref())),
        }
        if let Some(disk) = &self.bare {
            match disk.link(file.clone(), path).await {
                Ok(true) => return Ok(PutNew::Created),
                Ok(false) => {}
                Err(ObjectStoreError::AlreadyExists { .. }) => return Ok(PutNew::Exists),
                Err(e) => return Err(store_error(e, "writing", path.as_ref())),
            }
        }
        let uploaded = upload::upload(self.inner.as_ref(), path, Body::File(file, length), &self.uploads).await;
        uploaded.map_err(|e| store_error(e, "writing", path.as_ref()))?;
        self.sync_staged().await?;
        Ok(PutNew::Created)
    }
}
