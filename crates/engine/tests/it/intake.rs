//! Requests that are taken in while listings are late and processes die or are asked to stop.

use std::fs;
use std::sync::{Arc, Mutex};

use alluvium_engine::{Mode, Stop};
use alluvium_lake::Store;
use alluvium_testkit::{Lab, Listener, PauseStore, Step, TableReader};
use bytes::Bytes;
use futures::{FutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::common::{file, line, memory, run, yaml};

const LOG: &str = "default/requests/_delta_log";
const REQUEST: &str =
    r#"{"request_id":"r1","org_id":"ç","op":"convert","field":"lead","from":"a.json-2","to":"L","execution_time":"2026-01-05"}"#;

/// A store whose `nth` listing of a directory of that name does not show the last file there that ends so.
fn listing_late(store: &Arc<dyn ObjectStore>, directory: &'static str, ending: &'static str, nth: usize) -> Arc<dyn ObjectStore> {
    let last = move |found: Vec<Path>| found.into_iter().filter(|path| path.as_ref().ends_with(ending)).max();
    listing_without(store, directory, nth, last)
}

/// The file that tells of the most batches, of which there must be several.
fn widest(found: Vec<Path>) -> Option<Path> {
    let batches = |path: &Path| {
        let (from, to) = path.filename()?.strip_suffix(".sorted")?.split_once('-')?;
        Some(to.parse::<u64>().ok()? - from.parse::<u64>().ok()?)
    };
    found.into_iter().filter(|path| batches(path) > Some(0)).max_by_key(batches)
}

/// A store whose `nth` listing of a directory of that name does not show one of the files there.
fn listing_without(
    store: &Arc<dyn ObjectStore>,
    directory: &'static str,
    nth: usize,
    which: impl Fn(Vec<Path>) -> Option<Path> + Clone + Send + Sync + 'static,
) -> Arc<dyn ObjectStore> {
    let (below, hidden, listings) = (store.clone(), Arc::new(Mutex::new(None)), Arc::new(Mutex::new(0)));
    Arc::new(PauseStore::new(store.clone(), move |step| {
        let (below, hidden, listings, which) = (below.clone(), hidden.clone(), listings.clone(), which.clone());
        async move {
            // The step after the listing finds everything as it is.
            let back: Option<(Path, Bytes)> = hidden.lock().unwrap().take();
            if let Some((path, bytes)) = back {
                below.put(&path, bytes.into()).await.unwrap();
            }
            let Step::List(listed) = step else { return };
            if !listed.as_ref().ends_with(directory) {
                return;
            }
            let found: Vec<_> = below.list(Some(&listed)).try_collect().await.unwrap();
            let Some(path) = which(found.into_iter().map(|f| f.location).collect()) else { return };
            let listing = {
                let mut listings = listings.lock().unwrap();
                *listings += 1;
                *listings
            };
            if listing == nth {
                let bytes = below.get(&path).await.unwrap().bytes().await.unwrap();
                below.delete(&path).await.unwrap();
                *hidden.lock().unwrap() = Some((path, bytes));
            }
        }
        .boxed()
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_known_and_folded_whichever_listing_of_their_table_is_late() {
    for nth in 1..=8 {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "a.json", 6);
        let lab = Lab::new(dir.path(), &yaml("keep", 100));
        let store = memory();
        run(&lab, &store).await;
        let lines = Bytes::from_static(REQUEST.as_bytes());
        lab.engine(&Store::over(store.clone())).submit_requests("one.json", lines.clone()).await.unwrap();
        let again = lab.engine(&Store::over(listing_late(&store, LOG, ".json", nth)));
        let summary = again.submit_requests("two.json", lines).await.unwrap();
        assert_eq!((summary.batches, summary.outcome.skipped), (0, 1), "listing {nth} is late");
        let applying = lab.engine(&Store::over(listing_late(&store, LOG, ".json", nth)));
        let summary = applying.mutate(&applying.datasets(&[]).unwrap(), Mode::UntilIdle).await.unwrap();
        assert!(summary.failed.is_empty(), "listing {nth} is late: {:?}", summary.failed);
        let rows = TableReader::new(&store, "default/edit").rows().await.unwrap();
        let changed = rows.iter().filter(|row| row.get("lead").is_some_and(|lead| lead == "L")).count();
        assert_eq!(changed, 1, "listing {nth} is late");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_folded_with_those_before_whichever_listing_of_the_ledger_is_late() {
    // Comes first, and executes last.
    const BEFORE: &str =
        r#"{"request_id":"r0","org_id":"ç","op":"convert","field":"lead","from":"L","to":"M","execution_time":"2026-01-06"}"#;
    for directory in ["/requests", "/fates"] {
        for nth in 1..=6 {
            let dir = tempfile::tempdir().unwrap();
            file(dir.path(), "a.json", 6);
            let lab = Lab::new(dir.path(), &yaml("keep", 100));
            let store = memory();
            run(&lab, &store).await;
            let engine = lab.engine(&Store::over(store.clone()));
            engine.submit_requests("one.json", BEFORE.into()).await.unwrap();
            engine.mutate(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await.unwrap();
            engine.submit_requests("two.json", REQUEST.into()).await.unwrap();
            let applying = lab.engine(&Store::over(listing_late(&store, directory, ".sorted", nth)));
            let summary = applying.mutate(&applying.datasets(&[]).unwrap(), Mode::UntilIdle).await.unwrap();
            assert!(summary.failed.is_empty(), "listing {nth} of {directory} is late: {:?}", summary.failed);
            let rows = TableReader::new(&store, "default/edit").rows().await.unwrap();
            let changed = rows.iter().filter(|row| row.get("lead").is_some_and(|lead| lead == "M")).count();
            assert_eq!(changed, 1, "listing {nth} of {directory} is late");
        }
    }
}

/// A lake that has taken in six rows, and its inbox.
async fn six_rows() -> (tempfile::TempDir, Lab, Arc<dyn ObjectStore>) {
    let dir = tempfile::tempdir().unwrap();
    file(dir.path(), "a.json", 6);
    let lab = Lab::new(dir.path(), &yaml("keep", 100));
    let store = memory();
    run(&lab, &store).await;
    (dir, lab, store)
}

/// The files of the folded ledger whose paths have `part`.
async fn ledger_files(store: &Arc<dyn ObjectStore>, part: &str) -> Vec<Path> {
    let all: Vec<_> = store.list(Some(&Path::from("default/_alluvium/ledger"))).try_collect().await.unwrap();
    all.into_iter().map(|found| found.location).filter(|path| path.as_ref().contains(part)).collect()
}

/// A look ahead folds far, and of that only the requests by node are merged, across where the table is to stop on its way: those batches have many
/// requests each, and one of them all for one id.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_moves_in_steps_where_requests_were_merged_across_them_and_fates_were_not() {
    const BATCHES: u64 = 16;
    const REQUESTS: u64 = 2500;
    let (_dir, lab, store) = six_rows().await;
    let engine = lab.engine(&Store::over(store.clone()));
    let datasets = engine.datasets(&[]).unwrap();
    for batch in 1..=BATCHES {
        let request = |n: u64| {
            let id = format!("{batch:02}-{n}");
            if batch == 8 {
                return format!(
                    r#"{{"request_id":"{id}","org_id":"ç","op":"update","field":"lead","id":"hot","set":{{"n":{n}}},"execution_time":"2026-01-05"}}"#
                );
            }
            let (from, to) = match (batch, n) {
                (3, 0) => ("a.json-2".to_owned(), "K".to_owned()),
                (BATCHES, 0) => ("K".to_owned(), "L".to_owned()),
                _ => (format!("from-{id}"), format!("to-{id}")),
            };
            REQUEST.replace("r1", &id).replace("a.json-2", &from).replace(r#""L""#, &format!("{to:?}"))
        };
        let lines: Vec<String> = (0..REQUESTS).map(request).collect();
        engine.submit_requests("some.json", lines.join("\n").into()).await.unwrap();
        engine.would_mutate(datasets[0]).await.unwrap();
    }
    let of_requests = ledger_files(&store, "/requests/").await.len();
    let of_fates = ledger_files(&store, "/fates/").await.len();
    assert_eq!((of_requests, of_fates), (9, 16), "the requests of the first eight were merged");
    let summary = engine.mutate(&datasets, Mode::UntilIdle).await.unwrap();
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    assert!(summary.batches > 1, "it goes in steps");
    let rows = TableReader::new(&store, "default/edit").rows().await.unwrap();
    let changed: Vec<_> = rows.iter().filter(|row| row.contains_key("_original")).map(|row| row["lead"].as_str()).collect();
    assert_eq!(changed, ["L"]);
}

/// Many spans, one for each batch: while one is folded the fates of the one before are written, and files of those before merged.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_folded_batch_by_batch_while_files_are_merged_follows_a_chain_through_all_of_them() {
    const BATCHES: u64 = 28;
    let id = |link: u64| if link == 0 { "a.json-2".to_owned() } else { format!("link-{link}") };
    // All listings are in time, or one does not show the newest file, or one that was merged.
    let newest = (25..=28).map(|nth| ("/requests", false, nth)).chain([("/requests", false, 0), ("/fates", false, 20)]);
    let merged = [("/requests", true, 1), ("/fates", true, 1), ("/fates", true, 2)];
    for (directory, is_merged, nth) in newest.chain(merged) {
        let (_dir, lab, store) = six_rows().await;
        let engine = lab.engine(&Store::over(store.clone()));
        for batch in 0..BATCHES {
            // A link of the chain, each before the one of the batch before, and what hangs on nothing.
            let link = BATCHES - 1 - batch;
            let time = format!("2026-01-05T00:{link:02}:00Z");
            let of_chain = REQUEST.replace("r1", &format!("r{link}")).replace("a.json-2", &id(link));
            let of_chain = of_chain.replace(r#""L""#, &format!("{:?}", id(link + 1))).replace("2026-01-05", &time);
            let alone = REQUEST.replace("r1", &format!("alone-{batch}")).replace("a.json-2", &format!("alone-{batch}"));
            engine.submit_requests("some.json", format!("{of_chain}\n{alone}").into()).await.unwrap();
        }
        assert_eq!(ledger_files(&store, "/fates/").await, []);
        // Memory for no more than one batch at a time.
        let late = if is_merged {
            listing_without(&store, directory, nth, widest)
        } else {
            listing_late(&store, directory, ".sorted", nth)
        };
        let narrow = lab.with_memory(12 << 10).engine(&Store::over(late));
        let would = narrow.would_mutate(narrow.datasets(&[]).unwrap()[0]).await.unwrap();
        assert_eq!(would.updated, 1, "listing {nth} of {directory} is late");
        let files = ledger_files(&store, "/fates/").await;
        assert!((9..28).contains(&files.len()), "{files:?}: some were merged, and the newest were not");
        let summary = engine.mutate(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await.unwrap();
        assert!(summary.failed.is_empty(), "{:?}", summary.failed);
        let rows = TableReader::new(&store, "default/edit").rows().await.unwrap();
        let changed: Vec<_> = rows.iter().filter(|row| row.contains_key("_original")).map(|row| row["lead"].as_str()).collect();
        assert_eq!(changed, ["link-28"], "listing {nth} of {directory} is late");
    }
}

/// The requests by node follow from the table of requests: where they are gone and the fates are there, they are made again.
#[tokio::test(flavor = "multi_thread")]
async fn requests_by_node_that_are_gone_are_made_again() {
    let (dir, lab, store) = six_rows().await;
    let engine = lab.engine(&Store::over(store.clone()));
    let datasets = engine.datasets(&[]).unwrap();
    engine.submit_requests("one.json", REQUEST.into()).await.unwrap();
    engine.mutate(&datasets, Mode::UntilIdle).await.unwrap();
    let gone = ledger_files(&store, "/requests/").await;
    assert_eq!(gone.len(), 1);
    store.delete(&gone[0]).await.unwrap();
    // It executes before the other, so what the other became of it is looked up.
    let before = REQUEST
        .replace("r1", "r0")
        .replace("a.json-2", "M")
        .replace("\"to\":\"L\"", "\"to\":\"a.json-2\"")
        .replace("01-05", "01-04");
    engine.submit_requests("two.json", before.into()).await.unwrap();
    let summary = engine.mutate(&datasets, Mode::UntilIdle).await.unwrap();
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    fs::write(dir.path().join("inbox/b.json"), line("a.json", 2).replace("a.json-2", "M")).unwrap();
    run(&lab, &store).await;
    let rows = TableReader::new(&store, "default/edit").rows().await.unwrap();
    let changed: Vec<_> = rows.iter().filter(|row| row.contains_key("_original")).map(|row| row["lead"].as_str()).collect();
    assert_eq!(changed, ["L", "L"]);
}

/// A fate that changed before the table's position and is as it was again behind it: what was deleted is folded up to the position, and from there on.
#[tokio::test(flavor = "multi_thread")]
async fn a_folded_ledger_that_was_deleted_is_made_again_and_what_changed_since_the_tables_position_is_found() {
    let convert = |id: &str, from: &str, to: &str, day: u32| {
        let time = format!("2026-01-{day:02}");
        REQUEST.replace("r1", id).replace("a.json-2", from).replace(r#""L""#, &format!("{to:?}")).replace("2026-01-05", &time)
    };
    for deleted in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "a.json", 6);
        let lab = Lab::new(dir.path(), &yaml("keep", 100));
        let store = memory();
        run(&lab, &store).await;
        let mut leads = Vec::new();
        let batches =
            [vec![convert("r1", "a.json-2", "B", 10), convert("r2", "B", "C", 15)], vec![convert("r3", "B", "a.json-2", 12)]];
        for lines in batches {
            let engine = lab.engine(&Store::over(store.clone()));
            engine.submit_requests("some.json", lines.join("\n").into()).await.unwrap();
            let summary = engine.mutate(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await.unwrap();
            assert!(summary.failed.is_empty(), "{:?}", summary.failed);
            let rows = TableReader::new(&store, "default/edit").rows().await.unwrap();
            let is_it = |row: &&alluvium_testkit::Row| row["org"] == "ç" && row["n"] == "2";
            leads.extend(rows.iter().find(is_it).map(|row| row["lead"].clone()));
            if deleted {
                let ledger: Vec<_> = store.list(Some(&Path::from("default/_alluvium/ledger"))).try_collect().await.unwrap();
                assert!(!ledger.is_empty());
                for found in ledger {
                    store.delete(&found.location).await.unwrap();
                }
            }
        }
        assert_eq!(leads, ["C", "a.json-2"], "deleted: {deleted}");
    }
}

/// A chain that nothing but submitted requests go through keeps no more records than others; files that it took before are not taken again.
#[tokio::test(flavor = "multi_thread")]
async fn many_short_submissions_leave_few_records_and_a_file_that_was_taken_stays_taken() {
    let dir = tempfile::tempdir().unwrap();
    let inbox = dir.path().join("asked");
    std::fs::create_dir_all(&inbox).unwrap();
    let request = |id: &str| REQUEST.replace("\"r1\"", &format!("\"{id}\""));
    std::fs::write(inbox.join("first.json"), request("of the file")).unwrap();
    let declared =
        format!("{}requests: {{ source: {{ files: {{ path: ./asked, format: json, after: keep }} }} }}\n", yaml("keep", 100));
    let lab = Lab::new(dir.path(), &declared);
    let store = memory();
    let engine = lab.engine(&Store::over(store.clone()));
    let datasets = engine.datasets(&[]).unwrap();
    assert_eq!(engine.mutate(&datasets, Mode::UntilIdle).await.unwrap().outcome.inserted, 1);
    file(dir.path(), "a.json", 6);
    run(&lab, &store).await;
    for n in 0..100 {
        // Each a process of its own.
        let summary = lab.engine(&Store::over(store.clone())).submit_requests("one.json", request(&n.to_string()).into()).await;
        assert_eq!(summary.unwrap().outcome.inserted, 1);
    }
    let left: Vec<_> = store.list(Some(&Path::from("default/_alluvium/chains"))).try_collect().await.unwrap();
    let left = left.iter().filter(|found| found.location.as_ref().contains("/mutate/requests/")).count();
    assert!((16..=2 * 33 + 4).contains(&left), "{left} records and marks are left");
    let again = lab.engine(&Store::over(store.clone())).mutate(&datasets, Mode::UntilIdle).await.unwrap();
    // All that waits is applied at once, though nothing but the table tells how many the old batches took in.
    assert!(again.failed.is_empty() && again.batches == 1, "{again:?}");
    assert_eq!(TableReader::new(&store, "default/requests").rows().await.unwrap().len(), 101);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutation_asked_to_stop_while_another_process_takes_requests_in_ends_without_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let lab = Lab::new(dir.path(), &yaml("keep", 100)).with_shared_leases();
    let store = memory();
    let (stood, stands) = tokio::sync::oneshot::channel();
    let stood = Arc::new(Mutex::new(Some(stood)));
    // The other has recorded its batch, and stands still before it marks it as done.
    let standing = PauseStore::new(store.clone(), move |step| {
        let stops_here = matches!(&step, Step::Put(path) if path.as_ref().ends_with(".done.json"));
        let stood = stops_here.then(|| stood.lock().unwrap().take());
        async move {
            if let Some(stood) = stood {
                let _who_waits_hears_it = stood.map(|stood| stood.send(()));
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    });
    let other = lab.engine(&Store::over(Arc::new(standing)));
    let other = tokio::spawn(async move { other.submit_requests("one.json", REQUEST.into()).await });
    stands.await.unwrap();
    let stop = Stop::default();
    stop.ask();
    let engine = lab.engine_with(&Store::over(store.clone()), Arc::new(Listener::default()), stop);
    let summary = engine.mutate(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await;
    let failed = summary.map(|summary| summary.failed.len()).map_err(|e| e.chain_text());
    assert_eq!(failed, Ok(0));
    other.abort();
}

/// A store whose first put of a version of `requests` waits: meanwhile the lease is lost, and others finish the batch and take in more.
fn overtaken_by(lab: &Lab, store: &Arc<dyn ObjectStore>, version: u64, lines: String) -> Arc<dyn ObjectStore> {
    let commits = move |step: &Step| matches!(step, Step::Put(path) if path.as_ref() == format!("{LOG}/{version:020}.json"));
    let (lab, below) = (lab.clone(), store.clone());
    let meanwhile = move || {
        let (lab, below, lines) = (lab.clone(), below.clone(), lines.clone());
        async move {
            let leases: Vec<_> = below.list(Some(&Path::from("default/_alluvium/leases"))).try_collect().await.unwrap();
            for lease in leases {
                below.delete(&lease.location).await.unwrap();
            }
            let other = lab.engine(&Store::over(below));
            other.submit_requests("two.json", lines.into()).await.unwrap();
        }
        .boxed()
    };
    Arc::new(PauseStore::once_at(store.clone(), commits, meanwhile))
}

async fn taken(store: &Arc<dyn ObjectStore>) -> Vec<String> {
    let rows = TableReader::new(store, "default/requests").rows().await.unwrap();
    let mut taken: Vec<_> = rows.iter().map(|row| row["request_id"].clone()).collect();
    taken.sort_unstable();
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_overtaken_while_it_submits_goes_on_and_nothing_is_taken_twice() {
    let dir = tempfile::tempdir().unwrap();
    let lab = Lab::new(dir.path(), &yaml("keep", 100));
    let store = memory();
    let one = [REQUEST.to_owned(), REQUEST.replace("\"r1\"", "\"r2\"")].join("\n");
    let two = REQUEST.replace("\"r1\"", "\"r3\"");
    let standing = lab.engine(&Store::over(overtaken_by(&lab, &store, 1, two)));
    let summary = standing.submit_requests("one.json", one.into()).await.unwrap();
    assert_eq!((summary.batches, summary.outcome.skipped), (0, 2), "others finished its batch, and it found both known");
    assert_eq!(taken(&store).await, ["r1", "r2", "r3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_overtaken_while_it_takes_refused_requests_in_again_goes_on_and_nothing_is_taken_twice() {
    let dir = tempfile::tempdir().unwrap();
    let store = memory();
    let before = Lab::new(
        dir.path(),
        &yaml("keep", 100).replace("identities: [lead]", "identities: [n2]").replace("n: long", "n: long, n2: string"),
    );
    before.engine(&Store::over(store.clone())).submit_requests("one.json", REQUEST.into()).await.unwrap();
    assert_eq!(taken(&store).await, [""; 0]);
    let lab = Lab::new(dir.path(), &yaml("keep", 100));
    let standing = lab.engine(&Store::over(overtaken_by(&lab, &store, 2, REQUEST.replace("\"r1\"", "\"r2\""))));
    let intake = standing.sources(&["requests".to_owned()]).unwrap();
    let summary = standing.replay_dead_letters(&intake).await.unwrap();
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    assert_eq!(taken(&store).await, ["r1", "r2"]);
    assert_eq!(TableReader::new(&store, "default/dead_letters").rows().await.unwrap().len(), 0);
}
