//! The local disk as an object store that survives a power cut.
//!
//! `object_store`'s own local store never syncs. This one wraps it: with [`Durability::Disk`] a put is on the disk, name and
//! content, before it returns, and the content is on the disk before the name is visible. Puts marked with [`Unsynced`] are
//! made durable together by [`LocalDisk::sync`]. Staging files are named `staged#digits`, which listings leave out.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use alluvium_core::Durability;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::{Errno, pread, retry_on_intr};

use crate::pieces::Pieces;

/// Put this into a put's extensions when the put need not be durable on return.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unsynced;

/// A directory as an object store.
#[derive(Debug)]
pub(crate) struct LocalDisk {
    inner: LocalFileSystem,
    root: PathBuf,
    durability: Durability,
}

impl LocalDisk {
    /// Opens `root`, which must be a directory.
    pub(crate) fn new(root: &FsPath, durability: Durability) -> Result<Self> {
        let root = root.canonicalize().map_err(generic)?;
        Ok(Self { inner: LocalFileSystem::new_with_prefix(&root)?, root, durability })
    }

    /// Makes every put so far durable, names and contents. Does nothing with [`Durability::Process`].
    pub(crate) async fn sync(&self) -> Result<()> {
        if self.durability == Durability::Process {
            return Ok(());
        }
        let root = self.root.clone();
        blocking(move || rustix::fs::syncfs(File::open(root)?).map_err(io::Error::from)).await
    }

    /// Removes directories without files and staging leftovers below `directory`, itself included, unless `keep` is a file there.
    pub(crate) async fn remove_empty_directories(&self, directory: &Path, keep: &Path) -> Result<()> {
        let (directory, keep) = (self.inner.path_to_filesystem(directory)?, self.file_path(keep)?);
        blocking(move || remove_empty(&directory, &keep).map(|_| ())).await
    }

    /// A file without a name, which goes with the process unless [`LocalDisk::link`] gives it one.
    pub(crate) fn unnamed_file(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&self.root, flags, Mode::from_raw_mode(0o666))?.into())
    }

    /// Gives an [`unnamed_file`](LocalDisk::unnamed_file) a name that is new, durable on return. `false`: the file has not got it, and cannot
    /// have one, be it of another disk or of a file system without links.
    pub(crate) async fn link(&self, file: Arc<File>, location: &Path) -> Result<bool> {
        let (path, sync) = (self.file_path(location)?, self.durability == Durability::Disk);
        let linked = tokio::task::spawn_blocking(move || link(&file, &path, sync)).await.map_err(generic)?;
        linked.map_err(|source| said(location, source))
    }

    /// Puts `pieces` where nothing stands, durable only after [`LocalDisk::sync`].
    pub(crate) async fn stage(&self, location: &Path, pieces: Pieces) -> Result<()> {
        let path = self.file_path(location)?;
        let staged = tokio::task::spawn_blocking(move || put(&path, &pieces, true, false)).await.map_err(generic)?;
        staged.map_err(|source| said(location, source))
    }

    /// A file to read from at any place.
    pub(crate) fn file(&self, location: &Path) -> io::Result<File> {
        File::open(self.file_path(location).map_err(io::Error::other)?)
    }

    /// All of a file.
    pub(crate) fn read(&self, location: &Path) -> io::Result<Bytes> {
        fs::read(self.file_path(location).map_err(io::Error::other)?).map(Bytes::from)
    }

    fn file_path(&self, location: &Path) -> Result<PathBuf> {
        self.inner.path_to_filesystem(location)
    }
}

impl fmt::Display for LocalDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalDisk({})", self.root.display())
    }
}

#[async_trait]
impl ObjectStore for LocalDisk {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let path = self.file_path(location)?;
        let create = match opts.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => return self.inner.put_opts(location, payload, opts).await,
        };
        let sync = self.durability == Durability::Disk && opts.extensions.get::<Unsynced>().is_none();
        let pieces = Pieces::from(payload);
        let outcome = tokio::task::spawn_blocking(move || put(&path, &pieces, create, sync)).await.map_err(generic)?;
        outcome.map(|()| PutResult { e_tag: None, version: None }).map_err(|source| said(location, source))
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let path = self.file_path(location)?;
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        let sync = self.durability == Durability::Disk;
        Ok(Box::new(SyncedUpload { inner, path, sync }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (path, wanted) = (self.file_path(location)?, ranges.to_vec());
        let read = tokio::task::spawn_blocking(move || read_ranges(&path, &wanted)).await.map_err(generic)?;
        match read {
            Ok(read) => Ok(read),
            // It knows what to say of what went wrong.
            Err(_) => self.inner.get_ranges(location, ranges).await,
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// The bytes of each range, read into memory that was not written to before.
fn read_ranges(path: &FsPath, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
    let file = File::open(path)?;
    let read = |range: &Range<u64>| {
        let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let at = range.start + bytes.len() as u64;
            if retry_on_intr(|| pread(&file, spare_capacity(&mut bytes), at))? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        // There may have been room for more than was asked for.
        bytes.truncate(length);
        Ok(Bytes::from(bytes))
    };
    ranges.iter().map(read).collect()
}

/// Writes a staging file, then gives it its name in one step: by a hard link where the name must be new, else by renaming.
fn put(path: &FsPath, pieces: &Pieces, create: bool, sync: bool) -> io::Result<()> {
    let staging = staging_path(path);
    let mut file = match File::create_new(&staging) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            create_parents(path, sync)?;
            File::create_new(&staging)?
        }
        opened => opened?,
    };
    let named = (|| {
        pieces.write_to(&mut file)?;
        if sync {
            file.sync_all()?;
        }
        drop(file);
        if create { fs::hard_link(&staging, path) } else { fs::rename(&staging, path) }
    })();
    if create || named.is_err() {
        // The staging name is of no use any more; a leftover does no harm.
        let _ = fs::remove_file(&staging);
    }
    named?;
    if sync { sync_parent(path) } else { Ok(()) }
}

fn link(file: &File, path: &FsPath, sync: bool) -> io::Result<bool> {
    if sync {
        file.sync_all()?;
    }
    create_parents(path, sync)?;
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::linkat(CWD, opened, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => {}
        Err(taken @ Errno::EXIST) => return Err(taken.into()),
        Err(_) => return Ok(false),
    }
    if sync {
        // A file system may have passed over a file without a name the first time.
        file.sync_all()?;
        sync_parent(path)?;
    }
    Ok(true)
}

/// Beside `path`, and short: `path`'s own name may be as long as names can be.
fn staging_path(path: &FsPath) -> PathBuf {
    path.with_file_name(format!("staged#{}", uuid::Uuid::new_v4().as_u128()))
}

/// Makes the directories above `path`; with `sync` each new one's entry is durable.
fn create_parents(path: &FsPath, sync: bool) -> io::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    if parent.is_dir() {
        return Ok(());
    }
    create_parents(parent, sync)?;
    match fs::create_dir(parent) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    if sync { sync_parent(parent) } else { Ok(()) }
}

/// Whether `directory` was removed.
fn remove_empty(directory: &FsPath, keep: &FsPath) -> io::Result<bool> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        entries => entries?,
    };
    let mut empty = true;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            empty &= remove_empty(&path, keep)?;
        } else if path != keep && is_staging(&entry.file_name().to_string_lossy()) {
            fs::remove_file(&path)?;
        } else {
            empty = false;
        }
    }
    if empty {
        fs::remove_dir(directory)?;
    }
    Ok(empty)
}

fn is_staging(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(_, digits)| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn sync_parent(path: &FsPath) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn said(location: &Path, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path: location.to_string(), source: source.into() },
        _ => generic(source),
    }
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "local disk", source: source.into() }
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<()> {
    tokio::task::spawn_blocking(work).await.map_err(generic)?.map_err(generic)
}

/// An upload in parts whose file is durable when `complete` returns.
#[derive(Debug)]
struct SyncedUpload {
    inner: Box<dyn MultipartUpload>,
    path: PathBuf,
    sync: bool,
}

#[async_trait]
impl MultipartUpload for SyncedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.inner.complete().await?;
        if self.sync {
            let path = self.path.clone();
            blocking(move || {
                File::open(&path)?.sync_all()?;
                sync_parent(&path)
            })
            .await?;
        }
        Ok(done)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

/// A directory for a project's storage, made if it is not there.
pub(crate) fn create_root(root: &FsPath) -> io::Result<()> {
    fs::create_dir_all(root)
}

/// The local disk as a shared store.
pub(crate) fn shared(root: &FsPath, durability: Durability) -> Result<Arc<LocalDisk>> {
    Ok(Arc::new(LocalDisk::new(root, durability)?))
}
