//! Directories with names of every kind, found, opened, moved and deleted.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, FileTimes};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use alluvium_core::{TakenFiles, plan_files};
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, PutPayload};
use tempfile::TempDir;

use super::*;

fn write(root: &Path, name: &str, content: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn set_time(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

fn time(secs: u64, nanos: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(secs, nanos)
}

fn source() -> (TempDir, FileSet) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    let files = FileSet::local(dir.path().join("in"));
    (dir, files)
}

async fn names(files: &FileSet, after: Option<&str>) -> Vec<String> {
    files.list(after).await.unwrap().0.into_iter().map(|f| f.path).collect()
}

async fn content(files: &FileSet, name: &str) -> Vec<u8> {
    match files.open(name).await.unwrap().file {
        OpenedFile::File(mut file) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            bytes
        }
        OpenedFile::Ranged(file) => tokio::task::block_in_place(|| {
            let mut bytes = Vec::new();
            RangedReader::new(file).read_to_end(&mut bytes).unwrap();
            bytes
        }),
    }
}

async fn stamp_of(files: &FileSet, name: &str) -> FileStamp {
    files.stat(name).await.unwrap().unwrap().stamp
}

const ODD_NAMES: [&str; 20] = [
    "100%.json",
    "a\nb\tc\u{7f}.json",
    "a b.json",
    "a\"b'c.json",
    "a%20b.json",
    "back\\slash.json",
    "c:d|e?f*.json",
    "d 1/e#2/f%3/x.json",
    "empty.json",
    "g{1}[2]^~`<>.json",
    "i..json",
    "space /x.json",
    "trailing.json ",
    "x#1",
    "x#1.json",
    "x&y=z+1;.json",
    "x.json#12",
    "~tilde.json",
    "ünïcødé.json",
    "日本語/🦀.json",
];

#[tokio::test]
async fn every_utf8_name_is_listed_as_it_is_opens_moves_and_deletes() {
    let (dir, files) = source();
    for name in ODD_NAMES {
        write(&dir.path().join("in"), name, if name == "empty.json" { b"" } else { name.as_bytes() });
    }
    let done = FileSet::local(dir.path().join("done"));
    let (listed, notes) = files.list(None).await.unwrap();
    assert_eq!(listed.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ODD_NAMES);
    assert_eq!(notes, ListingNotes::default());
    for (number, found) in listed.iter().enumerate() {
        let name = found.path.as_str();
        let expected: &[u8] = if name == "empty.json" { b"" } else { name.as_bytes() };
        assert_eq!(found.size, expected.len() as u64);
        assert_eq!(content(&files, name).await, expected, "{name:?}");
        assert_eq!(files.open(name).await.unwrap().stamp, found.stamp);
        if number % 2 == 0 {
            assert_eq!(files.move_to(name, found.stamp, &done).await.unwrap(), Removal::Done);
            assert_eq!(fs::read(dir.path().join("done").join(name)).unwrap(), expected);
            assert_eq!(files.move_to(name, found.stamp, &done).await.unwrap(), Removal::AlreadyGone);
        } else {
            assert_eq!(files.delete(name, found.stamp).await.unwrap(), Removal::Done);
            assert_eq!(files.delete(name, found.stamp).await.unwrap(), Removal::AlreadyGone);
        }
    }
    assert_eq!(names(&files, None).await, [""; 0]);
}

#[tokio::test]
async fn hidden_and_unfinished_names_are_left_out_at_every_depth() {
    let (dir, files) = source();
    for name in [".a", "_a", "a.tmp", "d/.a", ".d/a", "_d/a", "d/e.tmp/a", "d/b"] {
        write(&dir.path().join("in"), name, b"x");
    }
    assert_eq!(names(&files, None).await, ["d/b"]);
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_empty_and_says_so() {
    let (dir, _) = source();
    let (listed, notes) = FileSet::local(dir.path().join("none/at/all")).list(None).await.unwrap();
    assert!(listed.is_empty());
    assert!(notes.missing);
    let (_, notes) = FileSet::local(dir.path().join("in")).list(None).await.unwrap();
    assert!(!notes.missing);
}

#[tokio::test]
async fn a_source_that_is_a_file_is_refused() {
    let (dir, _) = source();
    write(dir.path(), "f", b"");
    assert_eq!(FileSet::local(dir.path().join("f")).list(None).await.unwrap_err().kind(), Kind::Invalid);
}

#[tokio::test]
async fn names_that_are_not_utf8_are_told_and_the_others_listed() {
    let (dir, files) = source();
    let root = dir.path().join("in");
    write(&root, "good.json", b"x");
    fs::write(root.join(OsStr::from_bytes(b"bad\xff.json")), b"x").unwrap();
    fs::create_dir(root.join(OsStr::from_bytes(b"dir\xfe"))).unwrap();
    fs::write(root.join(OsStr::from_bytes(b".hidden\xff")), b"x").unwrap();
    let (listed, mut notes) = files.list(None).await.unwrap();
    assert_eq!(listed.len(), 1);
    notes.unusable.sort_by(|a, b| a.name.cmp(&b.name));
    let told: Vec<&str> = notes.unusable.iter().map(|u| u.name.as_str()).collect();
    assert_eq!(told, ["bad\u{fffd}.json", "dir\u{fffd}"]);
    assert_eq!(notes.unusable_count, 2);
}

#[tokio::test]
async fn links_are_followed_and_loops_and_loose_ends_are_told() {
    let (dir, files) = source();
    let root = dir.path().join("in");
    write(dir.path(), "outside/deep/o.json", b"outside");
    write(&root, "real/r.json", b"real");
    symlink("../outside/deep/o.json", root.join("linked.json")).unwrap();
    symlink(dir.path().join("outside"), root.join("linkdir")).unwrap();
    symlink("..", root.join("real/up")).unwrap();
    symlink(root.join("real"), dir.path().join("outside/back")).unwrap();
    symlink("nowhere", root.join("loose")).unwrap();
    let (listed, notes) = files.list(None).await.unwrap();
    let names: Vec<&str> = listed.iter().map(|f| f.path.as_str()).collect();
    assert_eq!(names, ["linkdir/back/r.json", "linkdir/deep/o.json", "linked.json", "real/r.json"]);
    let told: BTreeSet<&str> = notes.unusable.iter().map(|u| u.name.as_str()).collect();
    assert_eq!(told, BTreeSet::from(["linkdir/back/up", "loose", "real/up"]));
    assert_eq!(content(&files, "linked.json").await, b"outside");
    assert_eq!(listed[2].size, 7);
}

#[tokio::test]
async fn a_linked_file_moves_as_content_and_its_target_stays() {
    let (dir, files) = source();
    write(dir.path(), "target.json", b"target");
    symlink("../target.json", dir.path().join("in/l.json")).unwrap();
    let stamp = stamp_of(&files, "l.json").await;
    let done = FileSet::local(dir.path().join("done"));
    assert_eq!(files.move_to("l.json", stamp, &done).await.unwrap(), Removal::Done);
    assert_eq!(fs::read(dir.path().join("target.json")).unwrap(), b"target");
    let moved = dir.path().join("done/l.json");
    assert!(fs::symlink_metadata(&moved).unwrap().is_file());
    assert_eq!(fs::read(moved).unwrap(), b"target");
    assert_eq!(stamp_of(&done, "l.json").await, stamp);
    assert_eq!(fs::read_dir(dir.path().join("done")).unwrap().count(), 1, "nothing unfinished is left");
    assert!(fs::symlink_metadata(dir.path().join("in/l.json")).is_err());
}

#[tokio::test]
async fn after_a_name_only_later_ones_are_listed_across_directories() {
    let (dir, files) = source();
    let all = ["a.json", "a/1", "a/2/x", "a/3", "b", "c/1", "c0"];
    for name in all {
        write(&dir.path().join("in"), name, b"x");
    }
    let sorted: Vec<&str> = BTreeSet::from(all).into_iter().collect();
    for after in ["", "a", "a.json", "a/", "a/2", "a/2/x", "a/2/y", "a/3", "b", "c", "c/1", "c0", "zzz"] {
        let expected: Vec<&str> = sorted.iter().copied().filter(|n| *n > after).collect();
        assert_eq!(names(&files, Some(after)).await, expected, "after {after:?}");
    }
}

#[tokio::test]
async fn the_stamp_changes_with_size_or_time_and_only_then() {
    let (dir, files) = source();
    let path = dir.path().join("in/f");
    fs::write(&path, b"one").unwrap();
    set_time(&path, time(1_700_000_000, 5_000));
    let stamp = stamp_of(&files, "f").await;
    set_time(&path, time(1_700_000_000, 6_000));
    assert_ne!(stamp_of(&files, "f").await, stamp);
    fs::write(&path, b"four").unwrap();
    set_time(&path, time(1_700_000_000, 5_000));
    assert_ne!(stamp_of(&files, "f").await, stamp);
    // Another inode, restored with its time.
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"two").unwrap();
    set_time(&path, time(1_700_000_000, 5_000));
    assert_eq!(stamp_of(&files, "f").await, stamp);
    let before_1970 = SystemTime::UNIX_EPOCH - Duration::new(1_700_000_000, 5_000);
    set_time(&path, before_1970);
    assert_ne!(stamp_of(&files, "f").await, stamp);
}

#[tokio::test]
async fn a_changed_file_is_neither_moved_nor_deleted() {
    let (dir, files) = source();
    write(&dir.path().join("in"), "f", b"one");
    let stamp = stamp_of(&files, "f").await;
    write(&dir.path().join("in"), "f", b"longer");
    let done = FileSet::local(dir.path().join("done"));
    assert_eq!(files.move_to("f", stamp, &done).await.unwrap(), Removal::Changed);
    assert_eq!(files.delete("f", stamp).await.unwrap(), Removal::Changed);
    assert_eq!(content(&files, "f").await, b"longer");
    assert!(!dir.path().join("done/f").exists());
}

#[tokio::test]
async fn a_move_never_replaces_another_file_and_finishes_one_cut_short() {
    let (dir, files) = source();
    let (from, to) = (dir.path().join("in/d/f"), dir.path().join("done/d/f"));
    write(dir.path(), "in/d/f", b"new");
    write(dir.path(), "done/d/f", b"old one");
    let stamp = stamp_of(&files, "d/f").await;
    let done = FileSet::local(dir.path().join("done"));
    assert_eq!(files.move_to("d/f", stamp, &done).await.unwrap(), Removal::Obstructed);
    assert_eq!((fs::read(&from).unwrap(), fs::read(&to).unwrap()), (b"new".to_vec(), b"old one".to_vec()));

    // As after a crash between the link and the removal.
    fs::remove_file(&to).unwrap();
    fs::hard_link(&from, &to).unwrap();
    assert_eq!(files.move_to("d/f", stamp, &done).await.unwrap(), Removal::Done);
    assert!(!from.exists());
    assert_eq!(fs::read(&to).unwrap(), b"new");
}

#[tokio::test]
async fn a_move_to_where_the_file_is_is_refused_and_leaves_it() {
    let (dir, files) = source();
    write(&dir.path().join("in"), "d/f", b"x");
    symlink("in", dir.path().join("same")).unwrap();
    fs::create_dir(dir.path().join("other")).unwrap();
    symlink("../in/d", dir.path().join("other/d")).unwrap();
    let stamp = stamp_of(&files, "d/f").await;
    for same in ["in", "same", "other", "in/../in"] {
        let to = FileSet::local(dir.path().join(same));
        assert_eq!(files.move_to("d/f", stamp, &to).await.unwrap_err().kind(), Kind::Invalid, "{same}");
        assert_eq!(content(&files, "d/f").await, b"x");
    }
}

#[tokio::test]
async fn a_directory_within_another_is_recognised_through_links_and_before_it_is_made() {
    let (dir, files) = source();
    symlink("in", dir.path().join("link")).unwrap();
    let at = |name: &str| FileSet::local(dir.path().join(name));
    for inner in ["in", "in/done/later", "link/done", "in/../in/x"] {
        assert!(at(inner).is_within(&files), "{inner}");
    }
    for outer in ["", "inbox", "done", "link2/in"] {
        assert!(!at(outer).is_within(&files), "{outer}");
    }
}

#[tokio::test]
async fn opening_what_is_not_there_or_not_a_file_says_which() {
    let (dir, files) = source();
    fs::create_dir(dir.path().join("in/d")).unwrap();
    assert_eq!(files.open("none").await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(files.open("d").await.unwrap_err().kind(), Kind::Invalid);
    assert_eq!(files.stat("none").await.unwrap(), None);
    assert_eq!(files.stat("d/none").await.unwrap(), None);
}

#[tokio::test]
async fn a_link_that_cannot_be_looked_through_is_told_and_a_name_too_long_is_unavailable() {
    let (dir, files) = source();
    symlink("self", dir.path().join("in/self")).unwrap();
    let (listed, notes) = files.list(None).await.unwrap();
    assert!(listed.is_empty());
    assert_eq!(notes.unusable_count, 1);
    assert_eq!(files.open(&"x".repeat(300)).await.unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn permission_denied_is_unavailable_with_a_hint() {
    // Root reads everything, so the error is made rather than met.
    let error = local::unreadable(Path::new("/in"), std::io::ErrorKind::PermissionDenied.into());
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.hint_text().is_some());
}

#[tokio::test]
async fn more_files_than_a_packet_are_all_shown_and_plan_as_new_then_as_taken() {
    let (dir, files) = source();
    for i in 0..5000 {
        write(&dir.path().join("in"), &format!("{}/{i:05}.json", i % 7), b"");
    }
    let (listed, _) = files.list(None).await.unwrap();
    let mut expected: Vec<String> = (0..5000).map(|i| format!("{}/{i:05}.json", i % 7)).collect();
    expected.sort();
    assert_eq!(listed.iter().map(|f| f.path.clone()).collect::<Vec<_>>(), expected);
    let mut taken = TakenFiles::new();
    assert_eq!(plan_files(listed.clone(), &taken, None).unwrap().next, listed);
    taken.insert_batch(listed.iter().map(|f| (&f.path, f.stamp)));
    assert_eq!(plan_files(listed, &taken, None).unwrap().next, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_lists_opens_moves_and_deletes_by_the_same_names() {
    let store = Arc::new(InMemory::new());
    let (inbox, done) = ("ns/in", "ns/done");
    for name in ["ns/in/d/b.json", "ns/in/a b#1.json", "ns/in/_x", "ns/in/.y/z", "ns/in/t.tmp", "ns/inbox2/n", "ns/in/c"] {
        store.put(&StorePath::parse(name).unwrap(), PutPayload::from(name.as_bytes().to_vec())).await.unwrap();
    }
    let files = FileSet::in_store(store.clone(), StorePath::from(inbox));
    let done = FileSet::in_store(store.clone(), StorePath::from(done));
    assert_eq!(names(&files, None).await, ["a b#1.json", "c", "d/b.json"]);
    assert_eq!(names(&files, Some("c")).await, ["d/b.json"]);
    assert_eq!(content(&files, "a b#1.json").await, b"ns/in/a b#1.json");
    assert!(done.list(None).await.unwrap().1.missing);

    let stamp = stamp_of(&files, "d/b.json").await;
    assert_eq!(files.open("d/b.json").await.unwrap().stamp, stamp);
    assert_eq!(files.move_to("d/b.json", FileStamp(stamp.0 ^ 1), &done).await.unwrap(), Removal::Changed);
    assert_eq!(files.move_to("d/b.json", stamp, &done).await.unwrap(), Removal::Done);
    assert_eq!(files.move_to("d/b.json", stamp, &done).await.unwrap(), Removal::AlreadyGone);
    assert_eq!(content(&done, "d/b.json").await, b"ns/in/d/b.json");

    // A copy whose original was not deleted any more, then another file in the way.
    let c = stamp_of(&files, "c").await;
    store.copy(&StorePath::from("ns/in/c"), &StorePath::from("ns/done/c")).await.unwrap();
    assert_eq!(files.move_to("c", c, &done).await.unwrap(), Removal::Done);
    let a = stamp_of(&files, "a b#1.json").await;
    let there = StorePath::parse("ns/done/a b#1.json").unwrap();
    store.put(&there, PutPayload::from_static(b"ns/IN/a b#1.json")).await.unwrap();
    assert_eq!(files.move_to("a b#1.json", a, &done).await.unwrap(), Removal::Obstructed);
    assert_eq!(files.delete("a b#1.json", a).await.unwrap(), Removal::Done);
    assert_eq!(files.delete("a b#1.json", a).await.unwrap(), Removal::AlreadyGone);
    assert_eq!(files.open("a b#1.json").await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(names(&files, None).await, [""; 0]);
    assert!(!done.is_within(&files));
}

/// Bytes that tell where they are.
fn telling(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i * 31 + i / 251) as u8).collect()
}

async fn ranged(store: &Arc<InMemory>, content: Vec<u8>) -> RangedFile {
    store.put(&StorePath::from("in/f"), PutPayload::from(content)).await.unwrap();
    let files = FileSet::in_store(store.clone(), StorePath::from("in"));
    match files.open("f").await.unwrap().file {
        OpenedFile::Ranged(file) => file,
        OpenedFile::File(_) => panic!("a store has no local files"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_file_of_many_ranges_is_read_whole_and_from_any_place() {
    let content = telling(11 << 20);
    let store = Arc::new(InMemory::new());
    let file = ranged(&store, content.clone()).await;
    tokio::task::block_in_place(|| {
        for (at, length) in [(0, 10), (1 << 20, 5), (content.len() - 8, 8), ((1 << 20) - 3, 6), (5 << 20, 3 << 20), (7, 0)] {
            assert_eq!(file.read_at(at as u64, length).unwrap(), content[at..at + length], "{at}");
        }
        assert_eq!(file.read_at(content.len() as u64 - 3, 10).unwrap(), content[content.len() - 3..]);
        assert_eq!(file.read_at(content.len() as u64 + 3, 10).unwrap().len(), 0);
        let mut reader = RangedReader::new(file);
        let mut first = [0; 100];
        reader.read_exact(&mut first).unwrap();
        assert!(reader.skip(50) && reader.skip(6 << 20));
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest == content[150 + (6 << 20)..], "what comes after passing over some is what stands there");
        assert!(!reader.skip(1), "there is nothing behind the end");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_file_that_is_replaced_while_it_is_read_is_an_error_and_no_mixture() {
    let store = Arc::new(InMemory::new());
    let file = ranged(&store, telling(3 << 20)).await;
    store.put(&StorePath::from("in/f"), PutPayload::from(vec![0; 3 << 20])).await.unwrap();
    tokio::task::block_in_place(|| {
        assert!(file.read_at(2 << 20, 10).unwrap_err().to_string().contains("replaced while it was being read"));
        let read = RangedReader::new(file).read_to_end(&mut Vec::new());
        assert!(read.unwrap_err().to_string().contains("replaced while it was being read"));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_stored_file_opens_and_is_not_listed() {
    let store = Arc::new(InMemory::new());
    let file = ranged(&store, Vec::new()).await;
    assert_eq!(file.size(), 0);
    let files = FileSet::in_store(store, StorePath::from("in"));
    assert_eq!(names(&files, None).await, [""; 0]);
}
