//! Sorted files against a sorted list, golden files, damage.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use alluvium_core::{Durability, Kind};
use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};
use xxhash_rust::xxh3::xxh3_128;

use super::*;
use crate::store::{PutNew, Store};

const GOLDEN: &[u8] = include_bytes!("../../tests/golden/sorted-file-v1.sorted");
const COMPRESSED: &[u8] = include_bytes!("../../tests/golden/sorted-file-compressed-v1.sorted");

type Entries = Vec<(SortedKey, Vec<u8>)>;

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn memory() -> Store {
    Store::over(Arc::new(InMemory::new()))
}

/// A key of node `node` of organisation `org`, as the golden files' script makes them.
fn key(org: u64, node: u64) -> SortedKey {
    let mut bytes = [0; SortedKey::BYTES];
    bytes[..8].copy_from_slice(&org.to_be_bytes());
    bytes[8..].copy_from_slice(&xxh3_128(&node.to_be_bytes()).to_be_bytes());
    SortedKey(bytes)
}

async fn write(store: &Store, name: &str, entries: &Entries, spool_bytes: usize) -> SortedFile {
    let path = Path::from(name);
    let mut writer = SortedWriter::spooling(store, path.clone(), spool_bytes).unwrap();
    for (key, value) in entries {
        writer.push(*key, value).unwrap();
    }
    let size = writer.finish("{\"note\":1}").await.unwrap();
    let file = SortedFile::open(store, &path).await.unwrap().unwrap();
    assert_eq!((file.entries(), file.keys(), file.meta()), (size.entries, size.keys, "{\"note\":1}"));
    assert_eq!(store.get(&path).await.unwrap().unwrap().len() as u64, size.bytes);
    file
}

async fn all(file: &SortedFile) -> Result<Entries, alluvium_core::Error> {
    let (mut scan, mut entries) = (file.scan(), Vec::new());
    while scan.advance().await? {
        entries.push((scan.key(), scan.value().to_vec()));
    }
    Ok(entries)
}

async fn found(file: &SortedFile, keys: &[SortedKey]) -> Result<Vec<(usize, Vec<u8>)>, alluvium_core::Error> {
    let mut found = Vec::new();
    file.get_many(keys, |i, value| {
        found.push((i, value.to_vec()));
        Ok(())
    })
    .await?;
    Ok(found)
}

/// The same by a file that is shut, whatever its size.
async fn found_shut(store: &Store, name: &str, keys: &[SortedKey]) -> Result<Vec<(usize, Vec<u8>)>, alluvium_core::Error> {
    let shut = ShutSortedFile::find(store, &Path::from(name)).await?.unwrap().without_end();
    let mut found = Vec::new();
    shut.get_many(keys, |i, value| {
        found.push((i, value.to_vec()));
        Ok(())
    })
    .await?;
    Ok(found)
}

fn naively(entries: &Entries, keys: &[SortedKey]) -> Vec<(usize, Vec<u8>)> {
    let mut expected = Vec::new();
    // Whoever asks for a key twice is told each of its values twice.
    for (key, value) in entries {
        expected.extend(keys.iter().enumerate().filter(|(_, k)| *k == key).map(|(i, _)| (i, value.clone())));
    }
    expected
}

/// Bytes that cannot be compressed.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Few different keys, often repeated; values from nothing to longer than a block.
fn any_entries() -> impl Strategy<Value = Entries> {
    let value = prop_oneof![
        6 => proptest::collection::vec(any::<u8>(), 0..40),
        2 => (0_usize..3000).prop_map(|n| vec![7; n]),
        1 => (16_000_usize..40_000, any::<u64>()).prop_map(|(length, seed)| noise(length, seed)),
    ];
    proptest::collection::vec(((0_u64..3, 0_u64..60).prop_map(|(o, n)| key(o, n)), value), 0..120).prop_map(|mut entries| {
        entries.sort_by_key(|(key, _)| *key);
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_was_written_is_scanned_and_found(
        entries in any_entries(), asked in proptest::collection::vec((0_u64..4, 0_u64..80), 0..60), spilled in any::<bool>(),
    ) {
        let mut keys: Vec<SortedKey> = asked.into_iter().map(|(o, n)| key(o, n)).collect();
        keys.sort();
        runtime().block_on(async {
            let spool_bytes = if spilled { 1000 } else { spool::IN_MEMORY_BYTES };
            let store = memory();
            let file = write(&store, "f", &entries, spool_bytes).await;
            assert_eq!(all(&file).await.unwrap(), entries);
            assert_eq!(found(&file, &keys).await.unwrap(), naively(&entries, &keys));
            assert_eq!(found_shut(&store, "f", &keys).await.unwrap(), naively(&entries, &keys));
            assert!(entries.iter().all(|(key, _)| file.may_contain(key)));
        });
    }

    #[test]
    fn merged_files_hold_what_the_mode_and_the_caller_leave(
        files in proptest::collection::vec(any_entries(), 0..4), keep_all in any::<bool>(),
    ) {
        let mode = if keep_all { MergeMode::KeepAll } else { MergeMode::NewestWins };
        let keep = |_: &SortedKey, value: &[u8]| value.first() != Some(&7);
        let mut expected: Entries = Vec::new();
        for (age, entries) in files.iter().enumerate() {
            let newer = |key: &SortedKey| files[age + 1..].iter().flatten().any(|(k, _)| k == key);
            expected.extend(entries.iter().filter(|(key, _)| keep_all || !newer(key)).cloned());
        }
        expected.retain(|(key, value)| keep(key, value));
        expected.sort_by_key(|(key, _)| *key);
        runtime().block_on(async {
            let (store, mut sorted) = (memory(), Vec::new());
            for (i, entries) in files.iter().enumerate() {
                sorted.push(write(&store, &i.to_string(), entries, spool::IN_MEMORY_BYTES).await);
            }
            let mut writer = SortedWriter::new(&store, Path::from("merged")).unwrap();
            merge_sorted(&sorted, mode, keep, &mut writer).await.unwrap();
            let size = writer.finish("").await.unwrap();
            let merged = SortedFile::open(&store, &Path::from("merged")).await.unwrap().unwrap();
            assert_eq!((all(&merged).await.unwrap(), size.entries), (expected.clone(), expected.len() as u64));
        });
    }

    #[test]
    fn a_file_with_any_byte_changed_is_refused(at in any::<prop::sample::Index>(), flip in 1_u8..=255, compressed in any::<bool>()) {
        let golden = if compressed { COMPRESSED } else { GOLDEN };
        let mut bytes = golden.to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let newer = bytes[bytes.len() - 12..bytes.len() - 8] > [0, 0, 0, 1][..];
        let expected = Some(if newer { Kind::Unsupported } else { Kind::Corrupt });
        prop_assert_eq!(kind_of_looking_up(bytes.clone()), expected);
        prop_assert_eq!(kind_of_reading(bytes), expected);
    }

    #[test]
    fn a_file_that_is_cut_or_arbitrary_is_corrupt(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in any::<prop::sample::Index>()) {
        prop_assert_eq!(kind_of_looking_up(bytes.clone()), Some(Kind::Corrupt));
        prop_assert_eq!(kind_of_reading(bytes), Some(Kind::Corrupt));
        prop_assert_eq!(kind_of_reading(GOLDEN[..cut.index(GOLDEN.len())].to_vec()), Some(Kind::Corrupt));
    }
}

/// The kind of the error of reading the whole file.
fn kind_of_reading(bytes: Vec<u8>) -> Option<Kind> {
    runtime().block_on(async {
        let (store, path) = (memory(), Path::from("f"));
        assert_eq!(store.put_new(&path, Bytes::from(bytes)).await.unwrap(), PutNew::Created);
        let read = async { all(&SortedFile::open(&store, &path).await?.unwrap()).await };
        read.await.err().map(|e| e.kind())
    })
}

/// The kind of the error of looking up all keys of the golden files without opening the file.
fn kind_of_looking_up(bytes: Vec<u8>) -> Option<Kind> {
    runtime().block_on(async {
        let store = memory();
        assert_eq!(store.put_new(&Path::from("f"), Bytes::from(bytes)).await.unwrap(), PutNew::Created);
        let mut keys: Vec<SortedKey> = (0..3).map(|n| key(7, n)).chain((0..1000).map(|n| key(n % 3, n))).collect();
        keys.sort();
        found_shut(&store, "f", &keys).await.err().map(|e| e.kind())
    })
}

fn golden_entries() -> Entries {
    let mut entries: Entries =
        [(0, "first"), (1, ""), (2, "dritter ü")].map(|(n, value)| (key(7, n), value.as_bytes().to_vec())).into();
    entries.sort();
    entries.insert(2, (entries[1].0, b"another of that key".to_vec()));
    entries
}

#[tokio::test]
async fn the_golden_file_reads_and_writes_as_it_is() {
    let (store, golden, own) = (memory(), Path::from("golden"), Path::from("own"));
    assert_eq!(store.put_new(&golden, Bytes::from_static(GOLDEN)).await.unwrap(), PutNew::Created);
    let file = SortedFile::open(&store, &golden).await.unwrap().unwrap();
    assert_eq!(all(&file).await.unwrap(), golden_entries());
    assert_eq!((file.meta(), file.entries(), file.keys()), ("{\"position\":42}", 4, 3));
    let mut writer = SortedWriter::new(&store, own.clone()).unwrap();
    for (key, value) in golden_entries() {
        writer.push(key, &value).unwrap();
    }
    writer.finish("{\"position\":42}").await.unwrap();
    assert_eq!(store.get(&own).await.unwrap().unwrap(), GOLDEN);
}

#[tokio::test]
async fn the_golden_file_of_compressed_blocks_is_read() {
    let (store, golden) = (memory(), Path::from("golden"));
    assert_eq!(store.put_new(&golden, Bytes::from_static(COMPRESSED)).await.unwrap(), PutNew::Created);
    let file = SortedFile::open(&store, &golden).await.unwrap().unwrap();
    let mut expected: Entries = (0..1000).map(|n| (key(n % 3, n), format!("value of node {n}").into_bytes())).collect();
    expected.sort();
    assert_eq!(all(&file).await.unwrap(), expected);
    let keys: Vec<SortedKey> = expected.iter().map(|(key, _)| *key).collect();
    let values: Vec<(usize, Vec<u8>)> = expected.into_iter().map(|(_, value)| value).enumerate().collect();
    assert_eq!(found(&file, &keys).await.unwrap(), values);
}

#[tokio::test]
async fn a_file_of_many_blocks_and_pieces_on_a_disk_is_looked_up_and_scanned() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open("lake", directory.path(), alluvium_core::Durability::Process).unwrap();
    let mut entries: Entries = (0..150_000).map(|n| (key(n % 10, n), n.to_be_bytes().to_vec())).collect();
    entries.sort();
    let file = write(&store, "a/b/f.sorted", &entries, 1 << 20).await;
    assert_eq!(all(&file).await.unwrap(), entries);
    let keys: Vec<SortedKey> = entries.iter().map(|(key, _)| *key).step_by(997).collect();
    let values = entries.iter().map(|(_, value)| value.clone()).step_by(997).enumerate().collect::<Vec<_>>();
    assert_eq!(found(&file, &keys).await.unwrap(), values);
    let shut = ShutSortedFile::find(&store, &Path::from("a/b/f.sorted")).await.unwrap().unwrap();
    assert_eq!((found_shut(&store, "a/b/f.sorted", &keys).await.unwrap(), shut.entries()), (values, 150_000));
    assert_eq!(all(&shut.open().await.unwrap().unwrap()).await.unwrap(), entries);
    let strangers = (0..100_000_u64).filter(|n| file.may_contain(&key(n % 10, n + 1_000_000))).count();
    assert!(strangers < 1000, "{strangers} of 100,000 keys that are not there seem to be");
}

#[tokio::test]
async fn entries_out_of_order_keys_out_of_order_and_values_too_long_are_internal_faults() {
    let store = memory();
    let mut writer = SortedWriter::new(&store, Path::from("f")).unwrap();
    writer.push(key(2, 0), b"").unwrap();
    assert_eq!(writer.push(key(1, 0), b"").unwrap_err().kind(), Kind::Internal);
    assert_eq!(writer.push(key(3, 0), &vec![0; MAX_SORTED_VALUE_BYTES + 1]).unwrap_err().kind(), Kind::Internal);
    let file = write(&store, "g", &vec![(key(1, 0), vec![1; MAX_SORTED_VALUE_BYTES])], 1 << 20).await;
    assert_eq!(found(&file, &[key(1, 0)]).await.unwrap(), [(0, vec![1; MAX_SORTED_VALUE_BYTES])]);
    assert_eq!(found(&file, &[key(2, 0), key(1, 0)]).await.unwrap_err().kind(), Kind::Internal);
}

#[tokio::test]
async fn no_file_is_none_a_second_of_a_name_a_conflict_and_one_deleted_while_open_not_found() {
    let (store, entries) = (memory(), golden_entries());
    assert!(SortedFile::open(&store, &Path::from("f")).await.unwrap().is_none());
    let file = write(&store, "f", &entries, 1 << 20).await;
    for spool_bytes in [0, 1 << 20] {
        let mut writer = SortedWriter::spooling(&store, Path::from("f"), spool_bytes).unwrap();
        writer.push(key(9, 9), b"other").unwrap();
        assert_eq!(writer.finish("").await.unwrap_err().kind(), Kind::Conflict);
    }
    assert_eq!(all(&file).await.unwrap(), entries);
    let shut = ShutSortedFile::find(&store, &Path::from("f")).await.unwrap().unwrap().without_end();
    store.delete(&Path::from("f")).await.unwrap();
    assert_eq!(all(&file).await.unwrap_err().kind(), Kind::NotFound);
    assert!(shut.open().await.unwrap().is_none());
    assert_eq!(shut.get_many(&[entries[0].0], |_, _| Ok(())).await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn on_a_disk_a_spilled_file_gets_its_name_once_and_can_be_read_by_whoever_reads_others() {
    use std::os::unix::fs::PermissionsExt;
    for durability in [Durability::Process, Durability::Disk] {
        let directory = tempfile::tempdir().unwrap();
        let (store, entries) = (Store::open("lake", directory.path(), durability).unwrap(), golden_entries());
        for spool_bytes in [0, 1 << 20] {
            let name = format!("deep/down/{spool_bytes}");
            let file = write(&store, &name, &entries, spool_bytes).await;
            assert_eq!(all(&file).await.unwrap(), entries);
            let mut writer = SortedWriter::spooling(&store, Path::from(name), spool_bytes).unwrap();
            writer.push(key(9, 9), b"other").unwrap();
            assert_eq!(writer.finish("").await.unwrap_err().kind(), Kind::Conflict);
        }
        let below = directory.path().join("lake/deep/down");
        let mode = |name: &str| std::fs::metadata(below.join(name)).unwrap().permissions().mode();
        assert_eq!(mode("0"), mode("1048576"));
        assert_eq!(std::fs::read_dir(&below).unwrap().count(), 2);
    }
}

#[tokio::test]
async fn an_error_of_the_visitor_ends_the_look_up() {
    let file = write(&memory(), "f", &golden_entries(), 1 << 20).await;
    let (keys, mut told) = ([golden_entries()[1].0], 0);
    let failed = file.get_many(&keys, |_, _| {
        told += 1;
        Err(alluvium_core::Error::new(Kind::Fenced, "the test wants this"))
    });
    assert_eq!((failed.await.unwrap_err().kind(), told), (Kind::Fenced, 1));
}
