//! Which of the files that are there come next.
//!
//! Place in the flow: the engine shows every listed file to a [`FilePlanner`], which keeps only the new ones.

use std::fmt;

use super::TakenFiles;
use crate::error::{Error, Kind};
use crate::position::{FileRange, FileStamp};

/// A file that a listing showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// Its name relative to the source's directory, with `/` between parts.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// What it is now.
    pub stamp: FileStamp,
}

/// What to take next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilePlan {
    /// The files to take, first the one of which a part was taken already, then new ones in the byte order of their paths.
    pub next: Vec<FoundFile>,
    /// Taken files that have changed since, in the byte order of their paths. They are not read again: tell the user.
    pub changed: Vec<String>,
}

/// The file of which only a part was taken is not what it was, so the rest cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialLost {
    /// Its relative path.
    pub path: String,
    /// It is not there any more; else it is another file, or was written to.
    pub gone: bool,
}

impl fmt::Display for PartialLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.gone { "is not there any more" } else { "was changed" };
        write!(f, "the source file {:?} {how}, of which only a part was taken in", self.path)
    }
}

impl std::error::Error for PartialLost {}

impl From<PartialLost> for Error {
    fn from(lost: PartialLost) -> Self {
        Self::new(Kind::Conflict, lost.to_string()).hint("put the file back as it was, with its time of modification")
    }
}

/// Whether files of that relative path are looked at at all: no part of it begins with `.` or `_` or ends in `.tmp`.
#[must_use]
pub fn is_looked_at(path: &str) -> bool {
    path.split('/').all(|part| !part.starts_with(['.', '_']) && !part.ends_with(".tmp"))
}

/// Sees the files of a listing one by one and keeps those to take: memory follows the new files, not all that are there.
#[derive(Debug)]
pub struct FilePlanner<'a> {
    taken: &'a TakenFiles,
    partial: Option<&'a FileRange>,
    partial_now: Option<FoundFile>,
    plan: FilePlan,
}

impl<'a> FilePlanner<'a> {
    /// `partial`: the last piece of the batch before, if it ended before its file did.
    #[must_use]
    pub fn new(taken: &'a TakenFiles, partial: Option<&'a FileRange>) -> Self {
        Self { taken, partial, partial_now: None, plan: FilePlan::default() }
    }

    /// Takes note of a file that is there. The order does not matter.
    pub fn see(&mut self, file: FoundFile) {
        if self.partial.is_some_and(|p| p.path == file.path) {
            self.partial_now = Some(file);
        } else if is_looked_at(&file.path) {
            match self.taken.get(&file.path) {
                None => self.plan.next.push(file),
                Some(stamp) if stamp != file.stamp => self.plan.changed.push(file.path),
                Some(_) => {}
            }
        }
    }

    /// The plan, once all files were seen.
    ///
    /// # Errors
    ///
    /// [`PartialLost`] if the rest of the partly taken file cannot be taken; nothing may be taken before that is mended.
    pub fn finish(self) -> Result<FilePlan, PartialLost> {
        let mut plan = self.plan;
        plan.next.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        plan.changed.sort_unstable();
        if let Some(partial) = self.partial {
            match self.partial_now {
                Some(now) if now.stamp == partial.stamp => plan.next.insert(0, now),
                now => return Err(PartialLost { path: partial.path.clone(), gone: now.is_none() }),
            }
        }
        Ok(plan)
    }
}

/// Plans over a whole listing at once; see [`FilePlanner`].
///
/// # Errors
///
/// As [`FilePlanner::finish`].
pub fn plan_files(
    listing: impl IntoIterator<Item = FoundFile>,
    taken: &TakenFiles,
    partial: Option<&FileRange>,
) -> Result<FilePlan, PartialLost> {
    let mut planner = FilePlanner::new(taken, partial);
    listing.into_iter().for_each(|file| planner.see(file));
    planner.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::position::FileCursor;

    fn found(path: &str, stamp: u64) -> FoundFile {
        FoundFile { path: path.to_owned(), size: 1, stamp: FileStamp(stamp) }
    }

    fn partial(path: &str, stamp: u64) -> FileRange {
        let to = Some(FileCursor { record: 3, byte: 40 });
        FileRange { path: path.to_owned(), size: 1, stamp: FileStamp(stamp), from: FileCursor::default(), to }
    }

    fn taken(files: &[(&str, u64)]) -> TakenFiles {
        let mut taken = TakenFiles::new();
        taken.insert_batch(files.iter().map(|(path, stamp)| (*path, FileStamp(*stamp))));
        taken
    }

    fn paths(files: &[FoundFile]) -> Vec<&str> {
        files.iter().map(|f| f.path.as_str()).collect()
    }

    #[test]
    fn new_files_come_in_byte_order_and_a_late_one_with_an_earlier_name_is_found() {
        let taken = taken(&[("b", 1)]);
        let listing = ["é", "b", "a/z", "a.json", "B", "a", "b2", "b10"].map(|p| found(p, 1));
        let plan = plan_files(listing, &taken, None).unwrap();
        assert_eq!(paths(&plan.next), ["B", "a", "a.json", "a/z", "b10", "b2", "é"]);
        assert!(plan.changed.is_empty());
    }

    #[test]
    fn hidden_and_unfinished_names_are_not_looked_at() {
        let hidden = [".a", "_a", "a.tmp", "x/.a", "x/_a", ".x/a", "_x/y/a", "x/a.json.tmp", "x.tmp/a"];
        for path in hidden {
            assert!(!is_looked_at(path), "{path}");
        }
        for path in ["a", "a_b/c.d", "a.tmp.json", "tmp", "a.TMP", "x/a.json", "a#1", "a~"] {
            assert!(is_looked_at(path), "{path}");
        }
        let plan = plan_files(hidden.map(|p| found(p, 1)), &TakenFiles::new(), None).unwrap();
        assert_eq!(plan, FilePlan::default());
    }

    #[test]
    fn a_taken_file_that_changed_is_reported_and_not_taken() {
        let taken = taken(&[("a", 1), ("b", 1), ("c", 1)]);
        let plan = plan_files([found("c", 2), found("b", 1), found("a", 2)], &taken, None).unwrap();
        assert_eq!(plan, FilePlan { next: vec![], changed: vec!["a".to_owned(), "c".to_owned()] });
    }

    #[test]
    fn the_rest_of_a_partly_taken_file_comes_first() {
        let taken = taken(&[("m", 1)]);
        let plan = plan_files([found("a", 1), found("m", 1)], &taken, Some(&partial("m", 1))).unwrap();
        assert_eq!(paths(&plan.next), ["m", "a"]);
        assert!(plan.changed.is_empty());
    }

    #[test]
    fn a_partly_taken_file_that_changed_or_went_is_a_conflict() {
        let taken = taken(&[("m", 1)]);
        let changed = plan_files([found("a", 1), found("m", 2)], &taken, Some(&partial("m", 1))).unwrap_err();
        assert_eq!(changed, PartialLost { path: "m".to_owned(), gone: false });
        let gone = plan_files([found("a", 1)], &taken, Some(&partial("m", 1))).unwrap_err();
        assert_eq!(gone, PartialLost { path: "m".to_owned(), gone: true });
        let error = Error::from(gone);
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.message().contains("\"m\" is not there any more"), "{error}");
    }
}
