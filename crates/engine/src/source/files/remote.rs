//! A prefix of an object store. Names are the objects' keys below the prefix, as the store spells them.
//!
//! Objects of no bytes are not looked at: they hold no records, and some programs put them where a directory would be.

use std::sync::Arc;

use alluvium_core::{Error, FileStamp, FoundFile, Kind, Result, is_looked_at};
use alluvium_lake::store_error;
use bytes::Bytes;
use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};

use super::ranged::{FIRST_BYTES, RangedFile};
use super::{ListingNotes, Opened, OpenedFile, Removal};

#[derive(Debug, Clone)]
pub(super) struct Prefix {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    /// Which store it is: between two places of one, objects are moved.
    pub(super) identity: Arc<str>,
}

/// Two objects are compared in pieces of this size.
const COMPARED_BYTES: u64 = 4 << 20;

impl Prefix {
    pub(super) async fn visit(&self, after: Option<&str>, mut see: impl FnMut(FoundFile)) -> Result<ListingNotes> {
        let mut objects = match after {
            Some(after) => self.store.list_with_offset(Some(&self.prefix), &self.key(after)?),
            None => self.store.list(Some(&self.prefix)),
        };
        let mut notes = ListingNotes { missing: after.is_none(), ..ListingNotes::default() };
        while let Some(object) = objects.next().await {
            let object = object.map_err(|e| self.failed("listing", self.prefix.as_ref(), e))?;
            notes.missing = false;
            if let Some(path) = self.name(&object.location).filter(|path| object.size > 0 && is_looked_at(path)) {
                see(FoundFile { path: path.to_owned(), size: object.size, stamp: stamp(&object) });
            }
        }
        Ok(notes)
    }

    pub(super) async fn stat(&self, path: &str) -> Result<Option<FoundFile>> {
        let meta = self.head(&self.key(path)?).await?;
        Ok(meta.map(|meta| FoundFile { path: path.to_owned(), size: meta.size, stamp: stamp(&meta) }))
    }

    pub(super) async fn open(&self, path: &str) -> Result<Opened> {
        let key = self.key(path)?;
        let options = GetOptions { range: Some(GetRange::Bounded(0..FIRST_BYTES)), ..GetOptions::default() };
        let (meta, first) = match self.store.get_opts(&key, options).await {
            Ok(got) => (got.meta.clone(), got.bytes().await.map_err(|e| self.failed("reading", path, e))?),
            // An empty object has no first bytes to ask for, and stores say so in their own ways.
            Err(e) => match self.head(&key).await {
                Ok(Some(meta)) if meta.size == 0 => (meta, Bytes::new()),
                _ => return Err(self.failed("reading", path, e)),
            },
        };
        let (size, stamp) = (meta.size, stamp(&meta));
        Ok(Opened { file: OpenedFile::Ranged(RangedFile::new(Arc::clone(&self.store), meta, first)), size, stamp })
    }

    pub(super) async fn delete(&self, path: &str, taken: FileStamp) -> Result<Removal> {
        let key = self.key(path)?;
        match self.head(&key).await? {
            None => Ok(Removal::AlreadyGone),
            Some(now) if stamp(&now) != taken => Ok(Removal::Changed),
            Some(_) => match self.store.delete(&key).await {
                Ok(()) => Ok(Removal::Done),
                Err(object_store::Error::NotFound { .. }) => Ok(Removal::AlreadyGone),
                Err(e) => Err(self.failed("deleting", path, e)),
            },
        }
    }

    pub(super) async fn move_to(&self, path: &str, taken: FileStamp, to: &Self) -> Result<Removal> {
        let (from, target) = (self.key(path)?, to.key(path)?);
        if from == target {
            return Err(Error::new(Kind::Invalid, format!("the source file {path:?} is to be moved to where it is")));
        }
        let Some(now) = self.head(&from).await? else { return Ok(Removal::AlreadyGone) };
        if stamp(&now) != taken {
            return Ok(Removal::Changed);
        }
        match to.head(&target).await? {
            None => self.store.copy(&from, &target).await.map_err(|e| self.failed("moving", path, e))?,
            // A crash between copy and deletion leaves the same bytes in both places.
            Some(there) if there.size == now.size && self.same_bytes(&from, &target, now.size).await? => {}
            Some(_) => return Ok(Removal::Obstructed),
        }
        self.delete(path, taken).await
    }

    async fn same_bytes(&self, a: &Path, b: &Path, size: u64) -> Result<bool> {
        for from in (0..size).step_by(COMPARED_BYTES as usize) {
            let piece = from..size.min(from + COMPARED_BYTES);
            let both = futures::future::try_join(self.store.get_range(a, piece.clone()), self.store.get_range(b, piece));
            let (a, b) = both.await.map_err(|e| self.failed("reading", a.as_ref(), e))?;
            if a != b {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn head(&self, key: &Path) -> Result<Option<ObjectMeta>> {
        match self.store.head(key).await {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed("looking at", key.as_ref(), e)),
        }
    }

    /// The key of a relative name; taken as it is, nothing is escaped anew.
    fn key(&self, path: &str) -> Result<Path> {
        let whole = if self.prefix.is_root() { path.to_owned() } else { format!("{}/{path}", self.prefix) };
        Path::parse(whole)
            .map_err(|e| Error::new(Kind::Invalid, format!("{path:?} is no name that the store could have")).source(e))
    }

    fn name<'a>(&self, key: &'a Path) -> Option<&'a str> {
        if self.prefix.is_root() {
            return Some(key.as_ref());
        }
        key.as_ref().strip_prefix(self.prefix.as_ref())?.strip_prefix('/')
    }

    fn failed(&self, doing: &str, path: &str, error: object_store::Error) -> Error {
        let missing = matches!(error, object_store::Error::NotFound { .. });
        let failed = store_error(error, doing, &format!("{path:?} in the source's store {}", self.store));
        match failed.kind() {
            Kind::Unavailable if missing => Error::new(Kind::NotFound, failed.message()).hint("it was there when it was listed"),
            _ => failed,
        }
    }
}

/// Of size and tag. Some stores put a tag in quotes in one answer and not in another.
fn stamp(meta: &ObjectMeta) -> FileStamp {
    match &meta.e_tag {
        Some(tag) => FileStamp::new(meta.size, tag.trim_matches('"')),
        None => FileStamp::new(meta.size, &meta.last_modified.to_rfc3339_opts(chrono::SecondsFormat::Nanos, true)),
    }
}
