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

/// Ranges of a file this far apart are read at once: what lies between them takes no longer to read than another call.
const GAP_BYTES: u64 = 8 << 10;
/// Several ranges read at once are no longer than this: the memory that they are read into stays in the processor's cache.
const JOINED_BYTES: u64 = 64 << 10;

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

/// The bytes of each range, in memory of its own. Ranges near each other are read with what lies between them, where they ascend.
fn read_ranges(path: &FsPath, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
    let file = File::open(path)?;
    let (mut read, mut rest, mut buffer) = (Vec::with_capacity(ranges.len()), ranges, Vec::new());
    while let Some(first) = rest.first() {
        let together = joined(rest);
        if let [only] = together {
            let mut bytes = Vec::new();
            read_range(&file, only.clone(), &mut bytes)?;
            read.push(Bytes::from(bytes));
        } else {
            read_range(&file, first.start..together[together.len() - 1].end, &mut buffer)?;
            let within = |at: u64| (at - first.start) as usize;
            read.extend(together.iter().map(|range| Bytes::copy_from_slice(&buffer[within(range.start)..within(range.end)])));
        }
        rest = &rest[together.len()..];
    }
    Ok(read)
}

/// The first of `ranges`, and those behind it that are worth to be read with it.
fn joined(ranges: &[Range<u64>]) -> &[Range<u64>] {
    let [first, ..] = ranges else { return ranges };
    let near = |pair: &[Range<u64>]| {
        let ascend = [pair[0].start, pair[0].end, pair[1].start, pair[1].end].is_sorted();
        ascend && pair[1].start - pair[0].end <= GAP_BYTES && pair[1].end - first.start <= JOINED_BYTES
    };
    &ranges[..1 + ranges.windows(2).take_while(|pair| near(pair)).count()]
}

/// Reads the bytes of one range in place of what is in `bytes`; new memory is not written to before.
fn read_range(file: &File, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
    let length = range.end.checked_sub(range.start).ok_or(io::ErrorKind::InvalidInput)?;
    let length = usize::try_from(length).map_err(io::Error::other)?;
    bytes.clear();
    bytes.reserve_exact(length);
    while bytes.len() < length {
        let at = range.start + bytes.len() as u64;
        if retry_on_intr(|| pread(file, spare_capacity(bytes), at))? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    // There may have been room for more than was asked for.
    bytes.truncate(length);
    Ok(())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_read_together_are_those_of_the_file(starts in proptest::collection::vec((0..300_000_u64, 0..30_000_u64), 0..40), sorted: bool) {
            let content: Vec<u8> = (0..330_000_u32).map(|at| (at * 7 / 8) as u8).collect();
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), &content).unwrap();
            let mut ranges: Vec<Range<u64>> = starts.iter().map(|(start, length)| *start..start + length).collect();
            if sorted {
                ranges.sort_by_key(|range| range.start);
            }
            let wanted: Vec<&[u8]> = ranges.iter().map(|range| &content[range.start as usize..range.end as usize]).collect();
            prop_assert_eq!(read_ranges(file.path(), &ranges).unwrap(), wanted);
            ranges.push(329_990..330_001);
            prop_assert_eq!(read_ranges(file.path(), &ranges).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn near_ranges_that_ascend_are_read_together_up_to_a_length() {
        let many = |ranges: &[Range<u64>]| joined(ranges).len();
        assert_eq!(many(&[0..10, 10..20, 20 + GAP_BYTES..30 + GAP_BYTES, 40 + 3 * GAP_BYTES..50 + 3 * GAP_BYTES]), 3);
        assert_eq!(many(&[10..20, 0..5, 20..30]), 1);
        assert_eq!(many(&[0..10, Range { start: 12, end: 11 }]), 1);
        assert_eq!(many(&[0..10, 10..JOINED_BYTES, JOINED_BYTES..JOINED_BYTES + 1]), 2);
        assert_eq!(many(&[0..2 * JOINED_BYTES, 2 * JOINED_BYTES..2 * JOINED_BYTES + 1]), 1);
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inverted = Range { start: 5, end: 3 };
        assert_eq!(read_ranges(file.path(), &[inverted]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
