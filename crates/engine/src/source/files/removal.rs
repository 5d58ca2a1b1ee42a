//! Moving and deleting local files whose rows have landed: a courtesy, repeated after a crash, never over another file.

use std::fs::{self, File, FileTimes};
use std::io::{self, ErrorKind};
use std::path::Path;

use alluvium_core::{Error, FileStamp, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::Removal;
use super::local::{canonical, stamp, stat};

pub(super) fn delete_file(root: &Path, path: &str, taken: FileStamp) -> Result<Removal> {
    match stat(root, path)? {
        None => Ok(Removal::AlreadyGone),
        Some(now) if now.stamp != taken => Ok(Removal::Changed),
        Some(_) => unlink(&root.join(path)),
    }
}

pub(super) fn move_file(root: &Path, path: &str, taken: FileStamp, to_root: &Path) -> Result<Removal> {
    let (from, to) = (root.join(path), to_root.join(path));
    match stat(root, path)? {
        None => return Ok(Removal::AlreadyGone),
        Some(now) if now.stamp != taken => return Ok(Removal::Changed),
        Some(_) => {}
    }
    if canonical(root) == canonical(to_root) {
        return Err(Error::new(Kind::Invalid, format!("the source file {from:?} is to be moved to where it is")));
    }
    let failed = |e: io::Error| not_moved(&from, &to, e);
    let parent = to.parent().unwrap_or(to_root);
    fs::create_dir_all(parent).map_err(failed)?;
    if canonical(from.parent().unwrap_or(root)) == canonical(parent) {
        return Err(Error::new(Kind::Invalid, format!("the source file {from:?} is to be moved to where it is")));
    }
    if fs::symlink_metadata(&to).is_err() {
        // A hard link never replaces a file, as a renaming would. A link moves as the file it leads to.
        let link = fs::symlink_metadata(&from).map_err(failed)?.is_symlink();
        match if link { Err(ErrorKind::Unsupported.into()) } else { fs::hard_link(&from, &to) } {
            Ok(()) => return unlink(&from),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(_) => {
                if !copy(&from, &to, parent, taken).map_err(failed)? {
                    return Ok(Removal::Changed);
                }
            }
        }
    }
    // What an earlier attempt brought there has the same size and time.
    match fs::metadata(&to) {
        Ok(there) if there.is_file() && stamp(&there) == taken => unlink(&from),
        _ => Ok(Removal::Obstructed),
    }
}

/// Copies content and time of modification, durably. False if the file changed meanwhile.
fn copy(from: &Path, to: &Path, parent: &Path, taken: FileStamp) -> io::Result<bool> {
    let name = xxh3_64(to.as_os_str().as_encoded_bytes());
    let unfinished = parent.join(format!(".alluvium-move-{name:016x}.tmp"));
    fs::copy(from, &unfinished)?;
    let now = fs::metadata(from)?;
    let copied = File::open(&unfinished)?;
    copied.set_times(FileTimes::new().set_modified(now.modified()?))?;
    copied.sync_all()?;
    if stamp(&now) != taken || stamp(&copied.metadata()?) != taken {
        fs::remove_file(&unfinished)?;
        return Ok(false);
    }
    fs::rename(&unfinished, to)?;
    File::open(parent)?.sync_all()?;
    Ok(true)
}

fn unlink(path: &Path) -> Result<Removal> {
    match fs::remove_file(path) {
        Ok(()) => Ok(Removal::Done),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Removal::AlreadyGone),
        Err(e) => Err(hinted(Error::new(Kind::Unavailable, format!("the source file {path:?} cannot be deleted")), &e).source(e)),
    }
}

fn not_moved(from: &Path, to: &Path, error: io::Error) -> Error {
    hinted(Error::new(Kind::Unavailable, format!("the source file {from:?} cannot be moved to {to:?}")), &error).source(error)
}

fn hinted(failed: Error, error: &io::Error) -> Error {
    match error.kind() {
        ErrorKind::PermissionDenied => failed.hint("let the user that runs this program write to both directories"),
        _ => failed,
    }
}
