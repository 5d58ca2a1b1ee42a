//! How fast sorted files are written, looked up, scanned and merged, and file indexes built, and how much memory that takes:
//! `cargo run --release --example sorted_lookups [ENTRIES]`, 10 M entries without an argument.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use alluvium_core::{Durability, Result};
use alluvium_lake::{IndexBuilder, MergeMode, SortedFile, SortedKey, SortedWriter, Store, merge_sorted};
use arrow::array::{Int64Array, StringArray};
use object_store::path::Path;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

const ORGS: u64 = 1000;
const LOOK_UPS: u64 = 1_000_000;
const ROWS: usize = 1_000_000;

#[tokio::main]
async fn main() -> Result<()> {
    let entries = std::env::args().nth(1).map_or(10_000_000, |count| count.parse().expect("a number of entries"));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open("lake", directory.path(), Durability::Process)?;
    build_indexes()?;
    let large = Path::from("large.sorted");
    write(&store, &large, entries).await?;
    let start = Instant::now();
    let file = SortedFile::open(&store, &large).await?.expect("it was just written");
    println!("open: {:?}, {} KiB kept", start.elapsed(), file.memory_bytes() >> 10);
    look_up(&file, entries).await?;
    let start = Instant::now();
    let (mut scan, mut bytes) = (file.scan(), 0);
    while scan.advance().await? {
        bytes += scan.value().len();
    }
    println!("scan: {:?} for {bytes} bytes of values; peak memory {} MiB", start.elapsed(), peak_mib());
    let small = Path::from("small.sorted");
    write(&store, &small, ORGS).await?;
    let files = [file, SortedFile::open(&store, &small).await?.expect("it was just written")];
    let start = Instant::now();
    let mut merged = SortedWriter::new(&store, Path::from("merged.sorted"))?;
    merge_sorted(&files, MergeMode::NewestWins, |_, _| true, &mut merged).await?;
    println!("merge: {:?}, {:?}; peak memory {} MiB", merged.finish("").await?, start.elapsed(), peak_mib());
    Ok(())
}

fn key(org: u64, node: u64) -> SortedKey {
    let mut bytes = [0; SortedKey::BYTES];
    bytes[..8].copy_from_slice(&xxh3_64(&org.to_be_bytes()).to_be_bytes());
    bytes[8..].copy_from_slice(&xxh3_128(&node.to_be_bytes()).to_be_bytes());
    SortedKey(bytes)
}

/// Node `n` is of organisation `n % ORGS`; a value is another node and a time.
async fn write(store: &Store, path: &Path, entries: u64) -> Result<()> {
    let mut orgs: Vec<u64> = (0..ORGS).collect();
    orgs.sort_by_key(|org| key(*org, 0));
    let (mut writer, mut spent) = (SortedWriter::new(store, path.clone())?, Duration::ZERO);
    for org in orgs {
        let mut nodes: Vec<(SortedKey, u64)> =
            (0..entries / ORGS).map(|n| n * ORGS + org).map(|node| (key(org, node), node)).collect();
        nodes.sort_unstable();
        let start = Instant::now();
        for (key, node) in nodes {
            let mut value = [0; 24];
            value[..16].copy_from_slice(&key.0[8..]);
            value[16..].copy_from_slice(&(1_700_000_000_000_000 + node).to_be_bytes());
            writer.push(key, &value)?;
        }
        spent += start.elapsed();
    }
    let start = Instant::now();
    let size = writer.finish("{}").await?;
    println!("write: {size:?} in {:?}; peak memory {} MiB", spent + start.elapsed(), peak_mib());
    Ok(())
}

/// One key in a hundred is there.
async fn look_up(file: &SortedFile, entries: u64) -> Result<()> {
    let node = |n: u64| if n.is_multiple_of(100) { n * 7919 % entries } else { entries + n };
    let mut keys: Vec<SortedKey> = (0..LOOK_UPS).map(node).map(|node| key(node % ORGS, node)).collect();
    let start = Instant::now();
    let may = keys.iter().filter(|key| file.may_contain(key)).count();
    println!("filter: {LOOK_UPS} keys in {:?}, {may} may be there", start.elapsed());
    let start = Instant::now();
    keys.sort_unstable();
    let (sorted, mut found) = (start.elapsed(), 0);
    let start = Instant::now();
    file.get_many(&keys, |_, _| {
        found += 1;
        Ok(())
    })
    .await?;
    println!(
        "look-up: {LOOK_UPS} keys in {:?} (sorting them {sorted:?}), {found} found; peak memory {} MiB",
        start.elapsed(),
        peak_mib()
    );
    Ok(())
}

fn build_indexes() -> Result<()> {
    for (different, files) in [(ROWS, 1), (ROWS, 50), (ROWS / 10, 50)] {
        let id = |row: usize| row.wrapping_mul(2_654_435_761) % different;
        let leads: StringArray = (0..ROWS).map(|row| Some(format!("00Q{:012}", id(row)))).collect();
        let users: Int64Array = (0..ROWS).map(|row| Some(id(row) as i64)).collect();
        let start = Instant::now();
        let index = IndexBuilder::new(vec!["lead_id".to_owned(), "user_id".to_owned()]);
        for file in 0..files {
            let (from, rows, mut ids) = (file * ROWS / files, ROWS / files, index.file());
            ids.add_column("lead_id", &leads.slice(from, rows))?;
            ids.add_column("user_id", &users.slice(from, rows))?;
            index.add(file as u32, ids);
        }
        let bytes = index.finish()?.map_or(0, |bytes| bytes.content_length());
        println!("index: {ROWS} rows, 2 fields, {different} ids, {files} files: {:?}, {} KiB", start.elapsed(), bytes >> 10);
    }
    Ok(())
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|kib| kib.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}
