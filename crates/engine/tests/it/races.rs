//! Meetings of two processes that once lost rows, or failed a run for no reason: each is made to happen.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use alluvium_engine::Mode;
use alluvium_lake::Store;
use alluvium_testkit::{Lab, PauseStore, Step};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::FutureExt;
use object_store::ObjectStore;

use crate::common::{expected, file, ingest, is_refused, landed, line, memory, places, run, settle, yaml};

/// An engine over `store` that, the first time it comes to `at`, lets `meanwhile` happen first.
fn interrupted<F, G>(store: &Arc<dyn ObjectStore>, at: impl Fn(&Step) -> bool + Send + Sync + 'static, meanwhile: F) -> Store
where
    F: Fn() -> G + Send + Sync + 'static,
    G: Future<Output = ()> + Send + 'static,
{
    Store::over(Arc::new(PauseStore::once_at(store.clone(), at, move || meanwhile().boxed())))
}

fn puts_record(batch: u64) -> impl Fn(&Step) -> bool {
    let name = format!("{batch:020}.0000.json");
    move |step| matches!(step, Step::Put(path) if path.filename() == Some(&name))
}

fn reads_record(batch: u64) -> impl Fn(&Step) -> bool {
    let name = format!("{batch:020}.0000.json");
    move |step| matches!(step, Step::Get(path) if path.filename() == Some(&name))
}

/// The other process saw a file that came later and sorts first, so its first batch ends within another file than ours.
#[tokio::test(flavor = "multi_thread")]
async fn loser_of_a_record_with_an_older_listing_takes_every_record_once() {
    let dir = tempfile::tempdir().unwrap();
    file(dir.path(), "f1.json", 8);
    file(dir.path(), "f2.json", 8);
    let lab = Lab::new(dir.path(), &yaml("keep", 10));
    let store = memory();
    let (other, below, directory) = (lab.clone(), store.clone(), dir.path().to_owned());
    let loser = interrupted(&store, puts_record(1), move || {
        let (other, below, directory) = (other.clone(), below.clone(), directory.clone());
        async move {
            file(&directory, "f0.json", 6);
            let summary = ingest(&other.engine(&Store::over(below)), Mode::Once).await.unwrap();
            assert_eq!(summary.batches, 1);
        }
    });
    let summary = ingest(&lab.engine(&loser), Mode::UntilIdle).await.unwrap();
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    let wanted = expected(&[("f0.json", 6), ("f1.json", 8), ("f2.json", 8)]);
    assert_eq!(places(&landed(&store).await), wanted, "the run itself goes on until nothing is left");
}

/// Between our look at the chain and our opening of the file, another process took the rest of it and moved it away.
#[tokio::test(flavor = "multi_thread")]
async fn file_that_another_process_finished_and_moved_away_is_no_error() {
    for after in ["move:./taken", "delete"] {
        let files = [("f1.json", 8), ("f2.json", 3)];
        let dir = tempfile::tempdir().unwrap();
        for (name, records) in files {
            file(dir.path(), name, records);
        }
        let lab = Lab::new(dir.path(), &yaml(after, 5));
        let store = memory();
        let (other, below) = (lab.clone(), store.clone());
        let slow = interrupted(&store, reads_record(1), move || {
            let (other, below) = (other.clone(), below.clone());
            async move {
                run(&other, &below).await;
            }
        });
        let first = ingest(&lab.engine(&Store::over(store.clone())), Mode::Once).await.unwrap();
        assert_eq!(first.batches, 1);
        let summary = ingest(&lab.engine(&slow), Mode::UntilIdle).await.unwrap();
        assert!(summary.failed.is_empty(), "{after}: {:?}", summary.failed);
        settle(&lab, &store, &files).await;
    }
}

/// While we hold batch 1, another process takes so many that old records are folded away.
#[tokio::test(flavor = "multi_thread")]
async fn process_that_wakes_after_its_records_were_folded_away_goes_on() {
    let files = [("f1.json", 180)];
    let dir = tempfile::tempdir().unwrap();
    file(dir.path(), "f1.json", 180);
    let lab = Lab::new(dir.path(), &yaml("keep", 1));
    let store = memory();
    let (other, below, directory) = (lab.clone(), store.clone(), dir.path().to_owned());
    let slow = interrupted(
        &store,
        |step| matches!(step, Step::Put(p) if p.as_ref().ends_with("1.done.json")),
        move || {
            let (other, below, directory) = (other.clone(), below.clone(), directory.clone());
            async move {
                run(&other, &below).await;
                file(&directory, "f2.json", 2);
            }
        },
    );
    let summary = ingest(&lab.engine(&slow), Mode::UntilIdle).await.unwrap();
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    settle(&lab, &store, &[files[0], ("f2.json", 2)]).await;
}

/// Many small batches by two processes that fold the same names.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_that_fold_taken_names_at_once_do_not_fail_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..40).map(|i| format!("f{i:02}.json")).collect();
    for name in &names {
        file(dir.path(), name, 2);
    }
    let lab = Lab::new(dir.path(), &yaml("keep", 1));
    let store = memory();
    let tasks: Vec<_> = (0..2)
        .map(|seed| {
            let engine = lab.engine(&Store::over(Arc::new(PauseStore::jitter(store.clone(), 77 + seed))));
            tokio::spawn(async move { ingest(&engine, Mode::UntilIdle).await })
        })
        .collect();
    for task in tasks {
        for (_, error) in task.await.unwrap().unwrap().failed {
            assert_eq!(error.kind(), alluvium_core::Kind::Fenced, "{}", error.chain_text());
        }
    }
    let files: Vec<(&str, u64)> = names.iter().map(|n| (n.as_str(), 2)).collect();
    settle(&lab, &store, &files).await;
}

fn gzip(directory: &Path, name: &str, text: &str) -> u64 {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    let bytes = encoder.finish().unwrap();
    fs::create_dir_all(directory.join("inbox")).unwrap();
    fs::write(directory.join("inbox").join(name), &bytes).unwrap();
    bytes.len() as u64
}

/// The batch ends at a byte of the text that is, by chance, the size of the compressed file.
#[tokio::test(flavor = "multi_thread")]
async fn compressed_file_cut_where_its_compressed_size_happens_to_be_is_taken_whole() {
    let dir = tempfile::tempdir().unwrap();
    let name = "f.json.gz";
    // The first line is padded until it is as long as the whole file is when compressed.
    let rest: String = (1..60).map(|i| line(name, i) + "\n").collect();
    let mut padding = 0;
    loop {
        let first = line(name, 0) + &" ".repeat(padding) + "\n";
        let size = gzip(dir.path(), name, &format!("{first}{rest}"));
        if size == first.len() as u64 {
            break;
        }
        padding += 1;
        assert!(padding < 5000, "no padding makes both equal");
    }
    let lab = Lab::new(dir.path(), &yaml("keep", 1));
    let store = memory();
    run(&lab, &store).await;
    let landed = landed(&store).await;
    assert_eq!(places(&landed), expected(&[(name, 60)]));
    assert_eq!(landed.rows.len() as u64, (0..60).filter(|i| !is_refused(*i)).count() as u64);
}

/// The rows have landed, but their file cannot be moved: the run says so, and the next one moves it.
#[tokio::test(flavor = "multi_thread")]
async fn taken_file_that_cannot_be_moved_is_an_error_and_is_moved_by_the_next_run() {
    let files = [("a.json", 4), ("b.json", 4)];
    let dir = tempfile::tempdir().unwrap();
    for (name, records) in files {
        file(dir.path(), name, records);
    }
    let obstacle = dir.path().join("taken");
    fs::write(&obstacle, "").unwrap();
    let lab = Lab::new(dir.path(), &yaml("move:./taken", 4));
    let store = memory();
    for resumed in [false, true] {
        let summary = ingest(&lab.engine(&Store::over(store.clone())), Mode::UntilIdle).await.unwrap();
        assert_eq!(summary.failed.len(), 1, "resumed: {resumed}: a file that stays where it is was not told of");
        assert_eq!(places(&landed(&store).await), expected(&files[..1]));
    }
    fs::remove_file(&obstacle).unwrap();
    settle(&lab, &store, &files).await;
    assert_eq!(fs::read_dir(dir.path().join("inbox")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(dir.path().join("taken")).unwrap().count(), 2);
}
