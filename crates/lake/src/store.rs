//! The store of a lake: what is put there once, is there once.
//!
//! Everything goes through [`Store`]. Its puts are put-if-absent, and what counts is what is in the store afterwards: an answer
//! that was lost, or a refusal, is looked up, never taken at its word and never repeated blindly.

mod error;
mod open;
mod patience;
mod proof;
mod ranges;
mod upload;

use std::fs::File;
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use alluvium_core::{Durability, Error, Kind, Result};
use bytes::Bytes;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::sync::Semaphore;

use self::error::{io_error, may_pass, object_is_missing};
use crate::blocking::in_place;
use crate::local::{self, LocalDisk, Unsynced};
use crate::log::KnownStates;
use crate::machine::{Machine, ThisMachine};
use crate::pieces::Pieces;

pub(crate) use self::error::said;
pub use self::error::store_error;
pub use self::open::Location;
pub use self::proof::STORE_PROOF_FORMAT;
pub(crate) use self::proof::prove_once;

/// A put that failed in a way that may pass, and left nothing, is carried out so often in all.
const PUT_TRIES: u32 = 3;
/// The pause before a put is carried out again; doubled each time.
const PUT_PAUSE: Duration = Duration::from_millis(200);
/// Staged files and parts of them on their way to the store at a time.
const UPLOADS_IN_FLIGHT: usize = 16;
/// Objects deleted with one request, where the store can.
const DELETED_AT_ONCE: usize = 1000;

/// What stands at a name after a put-if-absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum PutNew {
    /// What was put, now or by an earlier try of the same bytes.
    Created,
    /// Something else.
    Exists,
}

/// An object found by listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path in the store.
    pub path: Path,
    /// Its size in bytes.
    pub size: u64,
    /// When it was put, in milliseconds since 1970 by the store's clock.
    pub modified_ms: i64,
}

/// The storage of a project.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    local: Option<Arc<LocalDisk>>,
    /// The same where nothing is layered over it.
    bare: Option<Arc<LocalDisk>>,
    machine: Arc<dyn Machine>,
    /// Which store it is.
    identity: Arc<str>,
    uploads: Arc<Semaphore>,
    /// What this process knows of the tables in it.
    states: KnownStates,
}

impl Store {
    /// Opens the storage a project file names: a directory (relative ones are taken from `base`) or a URL, see [`Location::open`].
    ///
    /// # Errors
    /// [`Kind::Invalid`] for what is not a directory, or a URL or environment that is not right; [`Kind::Unavailable`] if the directory
    /// cannot be made or read.
    pub fn open(storage: &str, base: &FsPath, durability: Durability) -> Result<Self> {
        if Location::is_url(storage) {
            return Location::open(storage).map(Self::at);
        }
        let directory = storage_directory(storage, base)?;
        local::create_root(&directory).map_err(|e| io_error(e, "opening storage", &directory.display().to_string()))?;
        Self::over_directory(&directory, storage, durability)
    }

    /// As [`Store::open`], but makes nothing: storage that is not there is an empty store, which nothing may be written to.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_to_read(storage: &str, base: &FsPath, durability: Durability) -> Result<Self> {
        if Location::is_url(storage) {
            return Location::open(storage).map(Self::at);
        }
        let directory = storage_directory(storage, base)?;
        match directory.try_exists() {
            Ok(true) => Self::over_directory(&directory, storage, durability),
            Ok(false) => Ok(Self::over(Arc::new(object_store::memory::InMemory::new()))),
            Err(e) => Err(io_error(e, "opening storage", &directory.display().to_string())),
        }
    }

    fn over_directory(directory: &FsPath, storage: &str, durability: Durability) -> Result<Self> {
        let disk = local::shared(directory, durability).map_err(|e| store_error(e, "opening storage", storage))?;
        let identity = disk.to_string();
        Ok(Self { local: Some(disk.clone()), bare: Some(disk.clone()), ..Self::named(disk, &identity) })
    }

    /// The store at a place in an object store.
    #[must_use]
    pub fn at(location: Location) -> Self {
        let Location { store, prefix, identity } = location;
        let inner = if prefix.as_ref().is_empty() { store } else { Arc::new(PrefixStore::new(store, prefix)) };
        Self::named(inner, &identity)
    }

    /// A store over any object store, as tests and simulations make them.
    #[must_use]
    pub fn over(inner: Arc<dyn ObjectStore>) -> Self {
        Self::named(inner, "a store of its own")
    }

    fn named(inner: Arc<dyn ObjectStore>, identity: &str) -> Self {
        let uploads = Arc::new(Semaphore::new(UPLOADS_IN_FLIGHT));
        let machine = Arc::new(ThisMachine);
        Self { inner, local: None, bare: None, machine, identity: identity.into(), uploads, states: KnownStates::default() }
    }

    /// Puts a layer (faults, counters) around the store; a local disk below keeps syncing. What is known of the tables stays with
    /// the store as it was: behind another layer stands another process.
    #[must_use]
    pub fn layered(&self, layer: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>) -> Self {
        let (local, machine) = (self.local.clone(), self.machine.clone());
        Self { local, machine, ..Self::named(layer(self.inner.clone()), &self.identity) }
    }

    /// The same store, used from another machine: by another process.
    #[must_use]
    pub fn on(&self, machine: Arc<dyn Machine>) -> Self {
        Self { local: self.local.clone(), bare: self.bare.clone(), machine, ..Self::named(self.inner.clone(), &self.identity) }
    }

    /// The machine that uses the store.
    #[must_use]
    pub fn machine(&self) -> &Arc<dyn Machine> {
        &self.machine
    }

    /// Which store it is: the same for every process that uses it.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// What this process knows of the tables in the store.
    pub(crate) fn known_states(&self) -> &KnownStates {
        &self.states
    }

    /// The object store below, for readers.
    #[must_use]
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        self.inner.clone()
    }

    /// Puts `bytes` at `path` if nothing stands there. Durable on return. May be repeated with the same bytes.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed and nothing stands at `path` as far as it can be told.
    pub async fn put_new(&self, path: &Path, bytes: Bytes) -> Result<PutNew> {
        self.put_if_absent(path, bytes.into(), PutOptions::from(PutMode::Create)).await
    }

    /// Puts `bytes` at `path`, whatever stands there: only for what may be any of several right things.
    pub(crate) async fn put_over(&self, path: &Path, bytes: Bytes) -> Result<()> {
        let put = self.inner.put_opts(path, bytes.into(), PutOptions::from(PutMode::Overwrite)).await;
        put.map(|_| ()).map_err(|e| store_error(e, "writing", path.as_ref()))
    }

    /// A file of a local disk that nothing is layered over; `None` elsewhere, and if it cannot be opened.
    pub(crate) fn file(&self, path: &Path) -> Option<File> {
        self.bare.as_ref()?.file(path).ok()
    }

    /// Whether it is a directory of this machine.
    pub(crate) fn is_local_disk(&self) -> bool {
        self.local.is_some()
    }

    /// As [`Store::put_new`], but on a local disk durable only after [`Store::sync_staged`].
    ///
    /// # Errors
    /// As [`Store::put_new`].
    pub async fn stage(&self, path: &Path, payload: impl Into<PutPayload>) -> Result<PutNew> {
        let mut options = PutOptions::from(PutMode::Create);
        options.extensions.insert(Unsynced);
        self.put_if_absent(path, payload.into(), options).await
    }

    /// As [`Store::stage`], for a file whose name no other writer ever uses: a large one goes up in parts. Waits while too much is
    /// on its way to the store.
    ///
    /// # Errors
    /// As [`Store::put_new`].
    pub async fn stage_own(&self, path: &Path, pieces: impl Into<Pieces>) -> Result<PutNew> {
        let pieces = pieces.into();
        if let Some(disk) = self.bare.as_ref().filter(|_| !pieces.are_bytes()) {
            return match disk.stage(path, pieces).await {
                Ok(()) => Ok(PutNew::Created),
                Err(object_store::Error::AlreadyExists { .. }) => Ok(PutNew::Exists),
                Err(e) => Err(store_error(e, "writing", path.as_ref())),
            };
        }
        let payload = if pieces.are_bytes() { pieces.read() } else { in_place(|| pieces.read()) };
        let payload = payload.map_err(|e| io_error(e, "reading what is to be written", path.as_ref()))?;
        if self.local.is_some() {
            return self.stage(path, payload).await;
        }
        if payload.content_length() < upload::IN_PARTS_FROM_BYTES {
            // The semaphore is never closed; without a slot the file goes up all the same.
            let _slot = self.uploads.acquire().await.ok();
            return self.stage(path, payload).await;
        }
        let uploaded = upload::upload(self.inner.as_ref(), path, upload::Body::Payload(payload), &self.uploads).await;
        uploaded.map(|()| PutNew::Created).map_err(|e| store_error(e, "writing", path.as_ref()))
    }

    /// A put whose failure is taken at its word.
    #[cfg(feature = "plants")]
    pub(crate) async fn put_trusting(&self, path: &Path, bytes: &Bytes) -> object_store::Result<()> {
        self.inner.put_opts(path, bytes.clone().into(), PutOptions::from(PutMode::Create)).await.map(|_| ())
    }

    async fn put_if_absent(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutNew> {
        let mut pause = PUT_PAUSE;
        for left in (0..PUT_TRIES).rev() {
            let failed = match self.inner.put_opts(path, payload.clone(), options.clone()).await {
                Ok(_) => return Ok(PutNew::Created),
                Err(failed) => failed,
            };
            match self.get(path).await? {
                Some(there) if payload.iter().flatten().eq(&there) => return Ok(PutNew::Created),
                Some(_) => return Ok(PutNew::Exists),
                // Nothing stands there. Should the first put still arrive, the second is refused and finds its own bytes.
                None if left > 0 && may_pass(&failed) => {}
                // What stood there has gone since: a log entry that was cleaned up, a record that was folded away. It may have been
                // our own.
                None if matches!(failed, object_store::Error::AlreadyExists { .. }) && !may_pass(&failed) => {
                    return Ok(PutNew::Exists);
                }
                None => return Err(store_error(failed, "writing", path.as_ref())),
            }
            self.machine.sleep(pause).await;
            pause *= 2;
        }
        Err(Error::new(Kind::Internal, format!("writing {path}: it was never tried")))
    }

    /// Makes all that was staged durable.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the disk failed; then nothing of what was staged may be relied upon.
    pub async fn sync_staged(&self) -> Result<()> {
        match &self.local {
            Some(disk) => disk.sync().await.map_err(|e| store_error(e, "syncing", &disk.to_string())),
            None => Ok(()),
        }
    }

    /// The object at `path`, whole; `None` if there is none.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn get(&self, path: &Path) -> Result<Option<Bytes>> {
        let got = match self.inner.get(path).await {
            Ok(got) => got.bytes().await,
            Err(e) => Err(e),
        };
        match got {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if object_is_missing(&e) => Ok(None),
            Err(e) => Err(store_error(e, "reading", path.as_ref())),
        }
    }

    /// A few small objects, in their order; of those that are not there `None`.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn get_all(&self, paths: &[Path]) -> Result<Vec<Option<Bytes>>> {
        let Some(disk) = &self.bare else {
            let gets: Vec<_> = paths.iter().map(|path| self.get(path)).collect();
            return try_join_all(gets).await;
        };
        // One after the other is quicker than to have each read elsewhere and wait for it.
        let read = |path: &Path| match disk.read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io_error(e, "reading", path.as_ref())),
        };
        in_place(|| paths.iter().map(read).collect())
    }

    /// Whether anything at all is below `directory`.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn has_any(&self, directory: &Path) -> Result<bool> {
        let first = self.inner.list(Some(directory)).next().await;
        first.transpose().map(|first| first.is_some()).map_err(|e| store_error(e, "listing", directory.as_ref()))
    }

    /// All objects below `directory` whose path is greater than `after`, ordered by path.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn list(&self, directory: &Path, after: Option<&Path>) -> Result<Vec<Found>> {
        let listing = match after {
            Some(after) => self.inner.list_with_offset(Some(directory), after),
            None => self.inner.list(Some(directory)),
        };
        let mut found: Vec<Found> = listing
            .map_ok(|meta| Found { modified_ms: meta.last_modified.timestamp_millis(), path: meta.location, size: meta.size })
            .try_collect()
            .await
            .map_err(|e| store_error(e, "listing", directory.as_ref()))?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// The names of the directories right below `directory`.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn list_directories(&self, directory: &Path) -> Result<Vec<String>> {
        let prefix = if directory.as_ref().is_empty() { None } else { Some(directory) };
        let listed = self.inner.list_with_delimiter(prefix).await.map_err(|e| store_error(e, "listing", directory.as_ref()))?;
        Ok(listed.common_prefixes.iter().filter_map(|p| p.filename().map(str::to_owned)).collect())
    }

    /// Deletes the object at `path`; nothing there is fine.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed, several times.
    pub async fn delete(&self, path: &Path) -> Result<()> {
        let mut pause = PUT_PAUSE;
        for left in (0..PUT_TRIES).rev() {
            match self.inner.delete(path).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => return Ok(()),
                Err(e) if left > 0 && may_pass(&e) => self.machine.sleep(pause).await,
                Err(e) => return Err(store_error(e, "deleting", path.as_ref())),
            }
            pause *= 2;
        }
        Err(Error::new(Kind::Internal, format!("deleting {path}: it was never tried")))
    }

    /// Deletes objects in this order, many at once where that is cheaper; those that are not there are fine.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed; some are then gone.
    pub async fn delete_all(&self, paths: Vec<Path>) -> Result<()> {
        let at_once = if self.local.is_some() { 1 } else { DELETED_AT_ONCE };
        for paths in paths.chunks(at_once) {
            if let [path] = paths {
                self.delete(path).await?;
                continue;
            }
            let owned: Vec<_> = paths.iter().cloned().map(Ok).collect();
            let mut deleted = self.inner.delete_stream(stream::iter(owned).boxed());
            while let Some(outcome) = deleted.next().await {
                match outcome {
                    Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(e) => return Err(store_error(e, "deleting", paths.first().map_or("", |p| p.as_ref()))),
                }
            }
        }
        Ok(())
    }

    /// Removes what is left of a deleted directory on a local disk: directories without files, and staging files of puts that
    /// never ended. Everything above `keep` stays.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the disk failed.
    pub async fn remove_empty_directories(&self, directory: &Path, keep: &Path) -> Result<()> {
        match &self.local {
            Some(disk) => {
                disk.remove_empty_directories(directory, keep).await.map_err(|e| store_error(e, "deleting", directory.as_ref()))
            }
            None => Ok(()),
        }
    }
}

/// The directory that a project file's `storage` names.
fn storage_directory(storage: &str, base: &FsPath) -> Result<PathBuf> {
    let directory = match storage.strip_prefix("file://") {
        Some(path) => PathBuf::from(path),
        None => base.join(storage),
    };
    if directory.exists() && !directory.is_dir() {
        return Err(Error::new(Kind::Invalid, format!("opening storage {storage}: it is not a directory"))
            .hint("name a directory; it is made if it is not there"));
    }
    Ok(directory)
}
