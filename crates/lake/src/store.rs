//! The store of a lake: what is put there once, is there once.
//!
//! Everything goes through [`Store`]. Its puts are put-if-absent, and what counts is what is in the store afterwards: an answer
//! that was lost, or a refusal, is looked up, never taken at its word and never repeated blindly.

use std::error::Error as StdError;
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use alluvium_core::{Durability, Error, Kind, Result};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use crate::local::{self, LocalDisk, Unsynced};
use crate::machine::{Machine, ThisMachine};

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
}

/// The storage of a project.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    local: Option<Arc<LocalDisk>>,
    machine: Arc<dyn Machine>,
}

impl Store {
    /// Opens the storage a project file names: a directory (relative ones are taken from `base`) or a URL.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for schemes that are not built yet, [`Kind::Invalid`] for what is not a directory, [`Kind::Unavailable`] if the directory cannot be made or read.
    pub fn open(storage: &str, base: &FsPath, durability: Durability) -> Result<Self> {
        let directory = storage_directory(storage, base)?;
        let opened = local::create_root(&directory).map_err(|e| io_error(e, "opening storage", &directory.display().to_string()));
        opened?;
        Self::over_directory(&directory, storage, durability)
    }

    /// As [`Store::open`], but makes nothing: storage that is not there is an empty store, which nothing may be written to.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_to_read(storage: &str, base: &FsPath, durability: Durability) -> Result<Self> {
        let directory = storage_directory(storage, base)?;
        match directory.try_exists() {
            Ok(true) => Self::over_directory(&directory, storage, durability),
            Ok(false) => Ok(Self::over(Arc::new(object_store::memory::InMemory::new()))),
            Err(e) => Err(io_error(e, "opening storage", &directory.display().to_string())),
        }
    }

    fn over_directory(directory: &FsPath, storage: &str, durability: Durability) -> Result<Self> {
        let disk = local::shared(directory, durability).map_err(|e| store_error(e, "opening storage", storage))?;
        Ok(Self { inner: disk.clone(), local: Some(disk), machine: Arc::new(ThisMachine) })
    }

    /// A store over any object store, as tests and simulations make them.
    #[must_use]
    pub fn over(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, local: None, machine: Arc::new(ThisMachine) }
    }

    /// Puts a layer (faults, counters) around the store; a local disk below keeps syncing.
    #[must_use]
    pub fn layered(&self, layer: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>) -> Self {
        Self { inner: layer(self.inner.clone()), ..self.clone() }
    }

    /// The same store, used from another machine.
    #[must_use]
    pub fn on(&self, machine: Arc<dyn Machine>) -> Self {
        Self { machine, ..self.clone() }
    }

    /// The machine that uses the store.
    #[must_use]
    pub fn machine(&self) -> &Arc<dyn Machine> {
        &self.machine
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
        self.put_if_absent(path, bytes, PutOptions::from(PutMode::Create)).await
    }

    /// As [`Store::put_new`], but on a local disk durable only after [`Store::sync_staged`].
    ///
    /// # Errors
    /// As [`Store::put_new`].
    pub async fn stage(&self, path: &Path, bytes: Bytes) -> Result<PutNew> {
        let mut options = PutOptions::from(PutMode::Create);
        options.extensions.insert(Unsynced);
        self.put_if_absent(path, bytes, options).await
    }

    /// A put whose failure is taken at its word.
    #[cfg(feature = "plants")]
    pub(crate) async fn put_trusting(&self, path: &Path, bytes: &Bytes) -> object_store::Result<()> {
        self.inner.put_opts(path, bytes.clone().into(), PutOptions::from(PutMode::Create)).await.map(|_| ())
    }

    async fn put_if_absent(&self, path: &Path, bytes: Bytes, options: PutOptions) -> Result<PutNew> {
        let failed = match self.inner.put_opts(path, bytes.clone().into(), options).await {
            Ok(_) => return Ok(PutNew::Created),
            Err(failed) => failed,
        };
        match self.get(path).await? {
            Some(there) if there == bytes => Ok(PutNew::Created),
            Some(_) => Ok(PutNew::Exists),
            None => Err(store_error(failed, "writing", path.as_ref())),
        }
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
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(store_error(e, "reading", path.as_ref())),
        }
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
            .map_ok(|meta| Found { path: meta.location, size: meta.size })
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
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn delete(&self, path: &Path) -> Result<()> {
        match self.inner.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(store_error(e, "deleting", path.as_ref())),
        }
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
    let directory = match storage.split_once("://") {
        Some(("file", path)) => PathBuf::from(path),
        Some((scheme, _)) => {
            return Err(Error::new(Kind::Unsupported, format!("opening storage {storage}: {scheme}:// is not built yet"))
                .hint("use a local directory for now"));
        }
        None => base.join(storage),
    };
    if directory.exists() && !directory.is_dir() {
        return Err(Error::new(Kind::Invalid, format!("opening storage {storage}: it is not a directory"))
            .hint("name a directory; it is made if it is not there"));
    }
    Ok(directory)
}

/// Our error for a store's.
pub(crate) fn store_error(error: object_store::Error, doing: &str, what: &str) -> Error {
    let mut below: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(e) = below {
        if let Some(io) = e.downcast_ref::<io::Error>() {
            let kind = io.kind();
            let text = io.to_string();
            return with_io_hint(Error::new(Kind::Unavailable, format!("{doing} {what}: {text}")), kind).source(error);
        }
        below = e.source();
    }
    Error::new(Kind::Unavailable, format!("{doing} {what}")).source(error)
}

/// Our error for an I/O error.
pub(crate) fn io_error(error: io::Error, doing: &str, what: &str) -> Error {
    let kind = error.kind();
    with_io_hint(Error::new(Kind::Unavailable, format!("{doing} {what}: {error}")), kind).source(error)
}

fn with_io_hint(error: Error, kind: io::ErrorKind) -> Error {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            error.hint("the disk is full: free some space and run again; nothing is lost, the batch is taken up again")
        }
        io::ErrorKind::ReadOnlyFilesystem => error.hint("the storage is read-only: mount it writable and run again"),
        io::ErrorKind::PermissionDenied => error.hint("check the owner and the permissions of that path"),
        _ => error,
    }
}
