//! Copies of lakes for runs to work on, which cost little and do not disturb the runs after them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A fresh copy of a project, in the place in `work` where all runs have theirs.
///
/// The copy before is emptied and set aside, not removed: for some minutes ext4 passes over every inode that was freed, one by one,
/// when it makes a file, and so a run would be the slower the more files the run before it wrote.
pub(super) fn fresh_copy(project: &Path, work: &Path) -> io::Result<PathBuf> {
    let (copy, spent) = (work.join("run"), work.join("spent"));
    if copy.exists() {
        empty_own_files(&copy)?;
        fs::create_dir_all(&spent)?;
        fs::rename(&copy, spent.join(fs::read_dir(&spent)?.count().to_string()))?;
    }
    copy_dir(project, &copy)?;
    Ok(copy)
}

/// A copy of a project whose files are the same ones under further names: no writer of Delta tables changes a file in its place.
pub(super) fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg("-al").arg(from).arg(to).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cp -al {} failed", from.display()))) }
}

/// Writes a file of a copy, which may be one of the original until then.
pub(super) fn write_anew(file: &Path, text: &str) -> io::Result<()> {
    if file.exists() {
        fs::remove_file(file)?;
    }
    fs::write(file, text)
}

/// Cuts off what is in files that have no other name.
fn empty_own_files(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            empty_own_files(&entry.path())?;
        } else if metadata.is_file() && metadata.nlink() == 1 {
            fs::File::options().write(true).truncate(true).open(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_fresh_copy_has_what_the_project_has_and_the_one_before_costs_nothing() {
        let work = std::env::temp_dir().join(format!("alluvium-bench-copies-{}", std::process::id()));
        let base = work.join("base");
        fs::create_dir_all(base.join("lake")).unwrap();
        fs::write(base.join("lake/a"), "table").unwrap();
        fs::write(base.join("alluvium.yaml"), "one").unwrap();
        for run in 0..3 {
            let copy = fresh_copy(&base, &work).unwrap();
            assert_eq!(fs::read_to_string(copy.join("lake/a")).unwrap(), "table");
            assert!(!copy.join("lake/b").exists());
            write_anew(&copy.join("alluvium.yaml"), &format!("run {run}")).unwrap();
            fs::write(copy.join("lake/b"), "written by the run").unwrap();
        }
        assert_eq!(fs::read_to_string(base.join("lake/a")).unwrap(), "table");
        assert_eq!(fs::read_to_string(base.join("alluvium.yaml")).unwrap(), "one");
        for spent in ["spent/0", "spent/1"] {
            assert_eq!(fs::read_to_string(work.join(spent).join("lake/b")).unwrap(), "");
        }
        fs::remove_dir_all(&work).unwrap();
    }
}
