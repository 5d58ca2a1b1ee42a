//! A directory on the local disk: walking it, and looking at and opening its files.
//!
//! Links are followed, to files and to directories; a link back to a directory it stands in is passed over. A file's stamp is
//! its size and time of modification, to the nanosecond: not its inode, so that a source restored with its times is the same.

use std::fs::{self, DirEntry, File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use alluvium_core::{Error, FileStamp, FoundFile, Kind, Result, is_looked_at};
use tokio::sync::mpsc;

use super::{ListingNotes, Opened, OpenedFile, blocking};

/// Files that the walking thread hands over at once, and how many such packets may wait.
const PACKET_FILES: usize = 1024;
const PACKETS: usize = 4;

pub(super) async fn visit(root: &Path, after: Option<&str>, mut see: impl FnMut(FoundFile)) -> Result<ListingNotes> {
    let (sender, mut packets) = mpsc::channel(PACKETS);
    let (root, after) = (root.to_owned(), after.map(str::to_owned));
    let walk = blocking(move || {
        Walk { after, packet: Vec::new(), sender, notes: ListingNotes::default(), pending: Vec::new() }.run(root)
    });
    let seen = async {
        while let Some(packet) = packets.recv().await {
            packet.into_iter().for_each(&mut see);
        }
    };
    futures::future::join(walk, seen).await.0
}

struct Walk {
    after: Option<String>,
    packet: Vec<FoundFile>,
    sender: mpsc::Sender<Vec<FoundFile>>,
    notes: ListingNotes,
    pending: Vec<Directory>,
}

struct Directory {
    path: PathBuf,
    /// What names in it begin with: empty, or ending in `/`.
    prefix: String,
    /// The true directories in which the links on the way here stand.
    links: Vec<PathBuf>,
}

impl Walk {
    fn run(mut self, root: PathBuf) -> Result<ListingNotes> {
        self.pending.push(Directory { path: root, prefix: String::new(), links: Vec::new() });
        while let Some(directory) = self.pending.pop() {
            let entries = match fs::read_dir(&directory.path) {
                Ok(entries) => entries,
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    self.notes.missing |= directory.prefix.is_empty();
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::NotADirectory && directory.prefix.is_empty() => {
                    return Err(
                        Error::new(Kind::Invalid, format!("the source {:?} is not a directory", directory.path)).source(e)
                    );
                }
                Err(e) => return Err(unreadable(&directory.path, e)),
            };
            for entry in entries {
                self.entry(&entry.map_err(|e| unreadable(&directory.path, e))?, &directory)?;
                if self.packet.len() >= PACKET_FILES && !self.hand_over() {
                    return Ok(self.notes);
                }
            }
        }
        self.hand_over();
        Ok(self.notes)
    }

    fn entry(&mut self, entry: &DirEntry, directory: &Directory) -> Result<()> {
        let name = entry.file_name();
        let shown = name.to_string_lossy();
        if !is_looked_at(&shown) {
            return Ok(());
        }
        let path = format!("{}{shown}", directory.prefix);
        if name.to_str().is_none() {
            self.notes.unusable(path, "its name is not UTF-8");
            return Ok(());
        }
        let at = entry.path();
        let link = entry.file_type().map_err(|e| unreadable(&at, e))?.is_symlink();
        let metadata = match if link { fs::metadata(&at) } else { entry.metadata() } {
            Ok(metadata) => metadata,
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return Err(unreadable(&at, e)),
            Err(_) if link => {
                self.notes.unusable(path, "it is a link that leads nowhere");
                return Ok(());
            }
            // Gone since the directory was read.
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(unreadable(&at, e)),
        };
        if metadata.is_dir() {
            self.directory(at, path, directory, link)?;
        } else if !metadata.is_file() {
            self.notes.unusable(path, "it is neither a file nor a directory");
        } else if self.after.as_ref().is_none_or(|after| path > *after) {
            self.packet.push(found(path, &metadata));
        }
        Ok(())
    }

    fn directory(&mut self, at: PathBuf, path: String, parent: &Directory, link: bool) -> Result<()> {
        let mut links = parent.links.clone();
        if link {
            let true_path = |path: &Path| fs::canonicalize(path).map_err(|e| unreadable(path, e));
            links.push(true_path(&parent.path)?);
            let target = true_path(&at)?;
            if links.iter().any(|place| place.starts_with(&target)) {
                self.notes.unusable(path, "it is a link to a directory that it stands in");
                return Ok(());
            }
        }
        let prefix = path + "/";
        // All names in a directory that sorts before `after`, and is not on the way to it, sort before it too.
        if self.after.as_ref().is_none_or(|after| prefix > *after || after.starts_with(&prefix)) {
            self.pending.push(Directory { path: at, prefix, links });
        }
        Ok(())
    }

    /// False if nobody listens any more.
    fn hand_over(&mut self) -> bool {
        self.sender.blocking_send(std::mem::take(&mut self.packet)).is_ok()
    }
}

pub(super) fn stat(root: &Path, path: &str) -> Result<Option<FoundFile>> {
    let at = root.join(path);
    match fs::metadata(&at) {
        Ok(metadata) => Ok(Some(found(path.to_owned(), &metadata))),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(unreadable(&at, e)),
    }
}

pub(super) fn open(root: &Path, path: &str) -> Result<Opened> {
    let at = root.join(path);
    let failed = |e: io::Error| match e.kind() {
        ErrorKind::NotFound => Error::new(Kind::NotFound, format!("the source file {at:?} is not there")).source(e),
        _ => unreadable(&at, e),
    };
    // A look first: opening a pipe would wait for its writer.
    if !fs::metadata(&at).map_err(failed)?.is_file() {
        return Err(Error::new(Kind::Invalid, format!("{at:?} is not a file")));
    }
    let file = File::open(&at).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    Ok(Opened { size: metadata.len(), stamp: stamp(&metadata), file: OpenedFile::File(file) })
}

fn found(path: String, metadata: &Metadata) -> FoundFile {
    FoundFile { path, size: metadata.len(), stamp: stamp(metadata) }
}

pub(super) fn stamp(metadata: &Metadata) -> FileStamp {
    // Where a file system keeps no time of modification, the size must do.
    let version = metadata.modified().map_or_else(
        |_| String::new(),
        |time| match time.duration_since(UNIX_EPOCH) {
            Ok(since) => format!("{}.{:09}", since.as_secs(), since.subsec_nanos()),
            Err(e) => format!("-{}.{:09}", e.duration().as_secs(), e.duration().subsec_nanos()),
        },
    );
    FileStamp::new(metadata.len(), &version)
}

/// The path after links, as far as it is there.
pub(super) fn canonical(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match there {
        Some((above, canonical)) => path.strip_prefix(above).map_or(path.clone(), |rest| canonical.join(rest)),
        None => path,
    }
}

pub(super) fn unreadable(path: &Path, error: io::Error) -> Error {
    let denied = error.kind() == ErrorKind::PermissionDenied;
    let failed = Error::new(Kind::Unavailable, format!("{path:?} cannot be read")).source(error);
    if denied { failed.hint("let the user that runs this program read it, or begin its name with `.` or `_`") } else { failed }
}
