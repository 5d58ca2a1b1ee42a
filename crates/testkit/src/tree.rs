//! Trees of files on the local disk.

use std::fs::{self, FileTimes};
use std::io;
use std::path::Path;

/// Copies the directory `from` with all it holds to `to`, which is made if it is not there. Files keep their times of
/// modification; links are followed.
///
/// # Errors
///
/// The first error of the file system; what was copied by then stays.
pub fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = fs::metadata(&source)?;
        if metadata.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            fs::copy(&source, &target)?;
            let times = FileTimes::new().set_modified(metadata.modified()?);
            fs::File::options().write(true).open(&target)?.set_times(times)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nested_files_are_copied_with_their_times() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("deep/to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::create_dir_all(from.join("empty")).unwrap();
        fs::write(from.join("a/b/x y#1.json"), b"one").unwrap();
        fs::write(from.join("top"), b"").unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_000);
        let file = fs::File::options().write(true).open(from.join("a/b/x y#1.json")).unwrap();
        file.set_times(FileTimes::new().set_modified(old)).unwrap();

        copy_tree(&from, &to).unwrap();

        assert_eq!(fs::read(to.join("a/b/x y#1.json")).unwrap(), b"one");
        assert_eq!(fs::metadata(to.join("a/b/x y#1.json")).unwrap().modified().unwrap(), old);
        assert_eq!(fs::read(to.join("top")).unwrap(), b"");
        assert!(to.join("empty").is_dir());
    }
}
