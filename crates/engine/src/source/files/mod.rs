//! The files of a source: found, opened, and moved or deleted once their rows have landed.
//!
//! Place in the flow: first; what is listed here goes to `alluvium_core::FilePlanner`, which knows what was taken already.
//! Invariants: a name is listed exactly as it stands on the disk or in the store, and opens by that name; a file is only
//! removed while it is still what was taken. Local directories are walked by ourselves, because `object_store` hides
//! names that end in `#` and digits and escapes others. Deliberately not here: what a file holds.

mod local;
mod ranged;
mod remote;
mod removal;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use alluvium_core::{Error, FileStamp, FoundFile, Kind, Result};
use alluvium_lake::Location;
use object_store::ObjectStore;
use object_store::path::Path as StorePath;

pub use ranged::{RangedFile, RangedReader};

/// A directory of files, on the local disk or in an object store, with all directories below it.
#[derive(Debug, Clone)]
pub struct FileSet {
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Local(PathBuf),
    Store(remote::Prefix),
}

/// What a listing has to say beside the files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListingNotes {
    /// The directory is not there: as good as empty, but worth a warning.
    pub missing: bool,
    /// Names that cannot be taken; at most [`ListingNotes::MAX_UNUSABLE`] of them.
    pub unusable: Vec<UnusableName>,
    /// How many such names there are in all.
    pub unusable_count: u64,
}

/// A name that was passed over, though it is not one that is never looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableName {
    /// The relative path; what is not UTF-8 in it is replaced.
    pub name: String,
    /// Why it cannot be taken.
    pub why: &'static str,
}

impl ListingNotes {
    /// So many unusable names are told one by one.
    pub const MAX_UNUSABLE: usize = 100;

    fn unusable(&mut self, name: String, why: &'static str) {
        self.unusable_count += 1;
        if self.unusable.len() < Self::MAX_UNUSABLE {
            self.unusable.push(UnusableName { name, why });
        }
    }
}

/// The content of an opened file.
#[derive(Debug)]
pub enum OpenedFile {
    /// A file on the local disk, at its beginning.
    File(File),
    /// A file of an object store.
    Ranged(RangedFile),
}

/// An opened file and what it is at this moment, which the caller compares with what was listed or taken.
#[derive(Debug)]
pub struct Opened {
    /// Its content.
    pub file: OpenedFile,
    /// Its size in bytes.
    pub size: u64,
    /// Its stamp.
    pub stamp: FileStamp,
}

/// What became of a file that was to be moved or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Removal {
    /// It is gone from its place.
    Done,
    /// It was not there any more: done before, or by somebody else.
    AlreadyGone,
    /// It is not what was taken, so it was left alone.
    Changed,
    /// Another file has its name where it was to be moved to; both were left alone.
    Obstructed,
}

impl FileSet {
    /// The files below a directory on the local disk; it need not be there.
    #[must_use]
    pub fn local(dir: impl Into<PathBuf>) -> Self {
        Self { place: Place::Local(dir.into()) }
    }

    /// The objects below a prefix of a store.
    #[must_use]
    pub fn in_store(store: Arc<dyn ObjectStore>, prefix: StorePath) -> Self {
        let identity = format!("{:p}", Arc::as_ptr(&store)).into();
        Self { place: Place::Store(remote::Prefix { store, prefix, identity }) }
    }

    /// The objects below a place in an object store.
    #[must_use]
    pub fn at(location: Location) -> Self {
        let Location { store, prefix, identity } = location;
        Self { place: Place::Store(remote::Prefix { store, prefix, identity: identity.into() }) }
    }

    /// Whether the files are in an object store.
    #[must_use]
    pub const fn is_in_store(&self) -> bool {
        matches!(self.place, Place::Store(_))
    }

    /// Whether files can be moved from here to `other`: both are on the local disk, or in one store.
    #[must_use]
    pub fn can_move_to(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Place::Local(_), Place::Local(_)) => true,
            (Place::Store(from), Place::Store(to)) => from.identity == to.identity,
            _ => false,
        }
    }

    /// Shows every file to `see`, in no order; with `after`, only those whose names sort after it as bytes. Names that are never
    /// looked at (`.x`, `_x`, `x.tmp`) are left out. Memory does not grow with the number of files.
    ///
    /// # Errors
    ///
    /// [`Kind::Unavailable`] if a directory cannot be read: nothing may then be concluded from what was shown;
    /// [`Kind::Invalid`] if it is not a directory.
    pub async fn visit(&self, after: Option<&str>, see: impl FnMut(FoundFile)) -> Result<ListingNotes> {
        match &self.place {
            Place::Local(root) => local::visit(root, after, see).await,
            Place::Store(prefix) => prefix.visit(after, see).await,
        }
    }

    /// As [`FileSet::visit`], all at once and in the byte order of names.
    ///
    /// # Errors
    ///
    /// As [`FileSet::visit`].
    pub async fn list(&self, after: Option<&str>) -> Result<(Vec<FoundFile>, ListingNotes)> {
        let mut files = Vec::new();
        let notes = self.visit(after, |file| files.push(file)).await?;
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok((files, notes))
    }

    /// What the file of that name is now; `None` if it is not there.
    ///
    /// # Errors
    ///
    /// [`Kind::Unavailable`] if that cannot be told.
    pub async fn stat(&self, path: &str) -> Result<Option<FoundFile>> {
        match &self.place {
            Place::Local(root) => {
                let (root, path) = (root.clone(), path.to_owned());
                blocking(move || local::stat(&root, &path)).await
            }
            Place::Store(prefix) => prefix.stat(path).await,
        }
    }

    /// Opens the file of that name.
    ///
    /// # Errors
    ///
    /// [`Kind::NotFound`] if it is not there, [`Kind::Unavailable`] if it cannot be read, [`Kind::Invalid`] if it is no file.
    pub async fn open(&self, path: &str) -> Result<Opened> {
        match &self.place {
            Place::Local(root) => {
                let (root, path) = (root.clone(), path.to_owned());
                blocking(move || local::open(&root, &path)).await
            }
            Place::Store(prefix) => prefix.open(path).await,
        }
    }

    /// Moves a file under the same relative name to another set, if it is still what was `taken`. May be repeated: after a
    /// crash the second time finishes the first. Between the look at the file and its removal is a moment in which a writer
    /// could change it; whoever writes files in place there loses that change.
    ///
    /// # Errors
    ///
    /// [`Kind::Unavailable`] if a step fails: the file is then in its old place, in its new place, or in both;
    /// [`Kind::Invalid`] if both are the same place; [`Kind::Unsupported`] between disk and store or two stores.
    pub async fn move_to(&self, path: &str, taken: FileStamp, to: &Self) -> Result<Removal> {
        match (&self.place, &to.place) {
            (Place::Local(from), Place::Local(to)) => {
                let (from, to, path) = (from.clone(), to.clone(), path.to_owned());
                blocking(move || removal::move_file(&from, &path, taken, &to)).await
            }
            (Place::Store(from), Place::Store(to)) if from.identity == to.identity => from.move_to(path, taken, to).await,
            _ => Err(Error::new(Kind::Unsupported, format!("moving the source file {path:?} to another store"))
                .hint("let taken files be moved within one store, or let another program move them")),
        }
    }

    /// Deletes a file if it is still what was `taken`. May be repeated. The moment of [`FileSet::move_to`] is here too.
    ///
    /// # Errors
    ///
    /// [`Kind::Unavailable`] if it cannot be deleted.
    pub async fn delete(&self, path: &str, taken: FileStamp) -> Result<Removal> {
        match &self.place {
            Place::Local(root) => {
                let (root, path) = (root.clone(), path.to_owned());
                blocking(move || removal::delete_file(&root, &path, taken)).await
            }
            Place::Store(prefix) => prefix.delete(path, taken).await,
        }
    }

    /// Whether this directory is `other` or lies below it, after links. A directory for taken files must not lie in the
    /// source it is for: they would be found there as new ones.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Place::Local(inner), Place::Local(outer)) => local::canonical(inner).starts_with(local::canonical(outer)),
            (Place::Store(inner), Place::Store(outer)) => {
                inner.identity == outer.identity && inner.prefix.prefix_matches(&outer.prefix)
            }
            _ => false,
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    alluvium_lake::blocking("working on source files", work).await
}

#[cfg(test)]
mod tests;
