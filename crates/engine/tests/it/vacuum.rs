//! What a vacuum takes and what it leaves: rows, readers, batches under way, files of others; and a vacuum that dies anywhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use alluvium_core::{Kind, ReadKind};
use alluvium_engine::{ChangesRequest, Engine, Mode, VacuumSummary};
use alluvium_lake::Store;
use alluvium_testkit::{Fault, FaultStore, Lab, PauseStore, Row, Step, StepClock, TableReader};
use arrow::array::AsArray;
use futures::{FutureExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::mutate_sweep::{self, Run, YAML, put, put_rows};

const ROWS: [(&str, u32, &str, &str); 3] = [("1", 1, "a", "u1"), ("2", 2, "a", "u2"), ("3", 3, "c", "u3")];
const CONVERT: &str = r#"{"request_id":"r1","org_id":"o","op":"convert","field":"lead","from":"a","to":"b","execution_time":"2026-01-01T10:00:00Z"}"#;
/// All of the lake's files were put before this long ago, by the clock of these engines.
const DAYS_LATER: i64 = 3_650;

/// Files that are no longer needed go at once; the clock is years ahead of the store's.
fn lab(directory: &std::path::Path, after: &str) -> Lab {
    let clock = StepClock::new();
    clock.advance_micros(DAYS_LATER * 86_400_000_000);
    Lab::new(directory, &format!("{YAML}maintenance: {{ vacuum_after: {after} }}\n")).with_clock(Arc::new(clock))
}

/// Rows were taken in, and a conversion replaced a file.
async fn converted(after: &str) -> (tempfile::TempDir, Lab, InMemory, String) {
    let dir = tempfile::tempdir().unwrap();
    let lab = lab(dir.path(), after);
    let store = InMemory::new();
    put_rows(dir.path(), "1.json", &ROWS);
    mutate_sweep::settle(&lab, &shared(&store), Run::Ingest).await;
    let token = token(&engine(&lab, shared(&store))).await;
    put(dir.path(), "requests", "1.json", CONVERT);
    mutate_sweep::settle(&lab, &shared(&store), Run::Mutate).await;
    (dir, lab, store, token)
}

fn shared(store: &InMemory) -> Arc<dyn ObjectStore> {
    Arc::new(store.clone())
}

fn engine(lab: &Lab, store: Arc<dyn ObjectStore>) -> Engine {
    lab.engine(&Store::over(store))
}

async fn vacuum(lab: &Lab, store: Arc<dyn ObjectStore>) -> VacuumSummary {
    let summary = engine(lab, store).vacuum(&[], false).await.unwrap();
    if let Some((table, error)) = summary.failed.first() {
        panic!("{table}: {}", error.chain_text());
    }
    summary
}

/// What is in the store below a directory, without leases.
async fn objects(store: &InMemory, directory: &str) -> BTreeSet<String> {
    let found: Vec<_> = store.list(Some(&Path::from(directory))).try_collect().await.unwrap();
    found.into_iter().map(|meta| meta.location.to_string()).filter(|path| !path.contains("/leases/")).collect()
}

/// The data files of the table, but for its log.
async fn files(store: &InMemory) -> BTreeSet<String> {
    objects(store, "default/call").await.into_iter().filter(|path| !path.contains("/_delta_log/")).collect()
}

/// The store, with the log of the table as it was before it was cut.
async fn uncut(store: &InMemory, before: &InMemory) -> InMemory {
    let whole = store.fork();
    for path in objects(before, "default/call/_delta_log").await {
        let path = Path::from(path);
        if whole.head(&path).await.is_err() {
            whole.put(&path, before.get(&path).await.unwrap().bytes().await.unwrap().into()).await.unwrap();
        }
    }
    whole
}

/// The data files that the newest version needs, by a reader of its own.
async fn live(store: &InMemory) -> BTreeSet<String> {
    let log = TableReader::new(&shared(store), "default/call").log().await.unwrap();
    TableReader::live(&log).unwrap().into_iter().map(|add| format!("default/call/{}", add.path)).collect()
}

async fn rows(store: &InMemory) -> Vec<Row> {
    let mut rows = TableReader::new(&shared(store), "default/call").rows().await.unwrap();
    rows.sort();
    rows
}

/// How many changed rows a reader is given, and whether it was told to start over.
async fn read(engine: &Engine, consumer: Option<&str>, commits: bool) -> alluvium_core::Result<usize> {
    let dataset = engine.datasets(&[])?[0];
    let request = ChangesRequest { kind: ReadKind::Rows, consumer, since: None, snapshot: false };
    let mut reader = engine.changes(dataset, &request).await?;
    let mut changes = reader.read().await?;
    let mut given = 0;
    while let Some(batch) = changes.next().await? {
        given += batch.num_rows();
    }
    if commits {
        reader.commit(&changes).await?;
    }
    Ok(given)
}

async fn token(engine: &Engine) -> String {
    let request = ChangesRequest { kind: ReadKind::Rows, consumer: None, since: None, snapshot: false };
    let mut reader = engine.changes(engine.datasets(&[]).unwrap()[0], &request).await.unwrap();
    let mut changes = reader.read().await.unwrap();
    while changes.next().await.unwrap().is_some() {}
    changes.token()
}

/// As [`read`], from where another reading ended.
async fn read_since(engine: &Engine, token: &str) -> alluvium_core::Result<usize> {
    let request = ChangesRequest { kind: ReadKind::Rows, consumer: None, since: Some(token), snapshot: false };
    let mut reader = engine.changes(engine.datasets(&[])?[0], &request).await?;
    let mut changes = reader.read().await?;
    let mut given = 0;
    while let Some(batch) = changes.next().await? {
        given += batch.num_rows();
    }
    Ok(given)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_mutation_replaced_goes_and_all_rows_and_their_indexes_stay() {
    let (dir, lab, store, token) = converted("0s").await;
    let (before, replaced) = (rows(&store).await, files(&store).await.difference(&live(&store).await).count() as u64);
    assert!(replaced > 0);
    let dry = engine(&lab, shared(&store)).vacuum(&[], true).await.unwrap();
    let all = objects(&store, "default").await;
    assert_eq!(dry.removed().files, replaced);
    let summary = vacuum(&lab, shared(&store)).await;
    assert_eq!(summary.removed(), dry.removed(), "a dry run says what goes");
    let marks = |path: &&String| path.contains("/floors/") || path.contains("/purged/");
    assert_eq!(objects(&store, "default").await.difference(&all).find(|path| !marks(path)), None);
    assert_eq!(files(&store).await, live(&store).await);
    assert_eq!(rows(&store).await, before);
    assert_eq!(objects(&store, "default/_alluvium/rewrites").await, BTreeSet::new());
    let index = |path: &String| {
        let name = path.rsplit('/').next().unwrap();
        let stem = &name["part-".len()..name.len() - "-00000.parquet".len()];
        format!("default/_alluvium/indexes/call/{stem}.idx")
    };
    assert_eq!(objects(&store, "default/_alluvium/indexes").await, live(&store).await.iter().map(index).collect());
    assert_eq!(vacuum(&lab, shared(&store)).await.removed().files, 0, "once is enough");
    // The history before is not kept any more: a new reader is given the rows that stand, one that goes on from there is told.
    assert_eq!(read(&engine(&lab, shared(&store)), None, false).await.unwrap(), 3);
    assert_eq!(read_since(&engine(&lab, shared(&store)), &token).await.unwrap_err().kind(), Kind::NotFound);
    // Life goes on.
    put_rows(dir.path(), "2.json", &[("4", 4, "a", "u4")]);
    mutate_sweep::settle(&lab, &shared(&store), Run::All).await;
    let leads: Vec<String> = rows(&store).await.into_iter().map(|row| row["lead"].clone()).collect();
    assert_eq!(leads, ["b", "b", "c", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing() {
    let (_dir, lab, store, _) = converted("0s").await;
    let before = objects(&store, "default").await;
    let summary = engine(&lab, shared(&store)).vacuum(&[], true).await.unwrap();
    assert!(summary.removed().files > 0);
    assert_eq!(objects(&store, "default").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_younger_than_the_retention_stays() {
    let (_dir, lab, store, _) = converted("4000d").await;
    let before = files(&store).await;
    assert_eq!(vacuum(&lab, shared(&store)).await.removed().files, 0);
    assert_eq!(files(&store).await, before);
    assert_eq!(read(&engine(&lab, shared(&store)), None, false).await.unwrap(), 3 + 4, "the history is whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_named_reader_has_not_read_is_kept_until_it_has_or_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (lab, store) = (lab(dir.path(), "0s"), InMemory::new());
    put_rows(dir.path(), "1.json", &ROWS);
    mutate_sweep::settle(&lab, &shared(&store), Run::Ingest).await;
    for name in ["slow", "gone"] {
        assert_eq!(read(&engine(&lab, shared(&store)), Some(name), true).await.unwrap(), 3);
    }
    put(dir.path(), "requests", "1.json", CONVERT);
    mutate_sweep::settle(&lab, &shared(&store), Run::Mutate).await;
    let before = files(&store).await;
    let summary = vacuum(&lab, shared(&store)).await;
    let of_call = summary.tables.iter().find(|report| report.table.as_str() == "call").unwrap();
    assert_eq!(of_call.kept_for, ["gone", "slow"]);
    assert_eq!((files(&store).await, of_call.removed.files), (before, 0));
    assert_eq!(read(&engine(&lab, shared(&store)), Some("slow"), true).await.unwrap(), 4, "two rows before and after");
    engine(&lab, shared(&store)).remove_consumer("gone").await.unwrap();
    vacuum(&lab, shared(&store)).await;
    assert_eq!(files(&store).await, live(&store).await);
    assert_eq!(read(&engine(&lab, shared(&store)), Some("slow"), true).await.unwrap(), 0);
}

const ERASE: &str = r#"{"request_id":"e1","org_id":"o","op":"delete","scope":"subject","field":"lead","id":"a","execution_time":"2026-01-01T10:00:00Z"}"#;

/// Rows of `a` were taken in, and erased for privacy, after this reader had read them.
async fn erased(erase: &str, reader: Option<&str>) -> (tempfile::TempDir, Lab, InMemory) {
    let dir = tempfile::tempdir().unwrap();
    let yaml = format!("{YAML}maintenance: {{ vacuum_after: 4000d }}\n{erase}");
    let (lab, store) = (lab(dir.path(), "4000d").with_yaml(&yaml), InMemory::new());
    put_rows(dir.path(), "1.json", &ROWS);
    mutate_sweep::settle(&lab, &shared(&store), Run::Ingest).await;
    if reader.is_some() {
        assert_eq!(read(&engine(&lab, shared(&store)), reader, true).await.unwrap(), 3);
    }
    put(dir.path(), "requests", "1.json", ERASE);
    mutate_sweep::settle(&lab, &shared(&store), Run::Mutate).await;
    (dir, lab, store)
}

/// What is in the store, but for what a purge of requests makes, whose names differ from one to the next.
async fn but_requests(store: &InMemory) -> BTreeSet<String> {
    let is_other = |path: &String| !["/requests/", "/erase/"].iter().any(|part| path.contains(part));
    objects(store, "default").await.into_iter().filter(is_other).collect()
}

/// The requests in all data files of their table, live or not.
async fn stored_requests(store: &InMemory) -> Vec<String> {
    let mut all = Vec::new();
    for path in objects(store, "default/requests").await {
        if path.ends_with(".parquet") && !path.contains("/_delta_log/") {
            let bytes = store.get(&Path::from(path)).await.unwrap().bytes().await.unwrap();
            for rows in ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap() {
                let rows = rows.unwrap();
                all.extend(rows["request"].as_string::<i32>().iter().map(|request| request.unwrap().to_owned()));
            }
        }
    }
    all.sort();
    all
}

/// The requests in which an id is replaced are the same requests, and say the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_erased_id_is_known_by_its_pseudonym_and_stays_out() {
    let (dir, lab, store) = erased("", None).await;
    let plain = stored_requests(&store).await;
    // A process that goes on from before the purge, and had no pseudonyms to know.
    let old = engine(&lab, shared(&store));
    put_rows(dir.path(), "11.json", &[("8", 4, "c", "u4")]);
    let datasets = old.datasets(&[]).unwrap();
    assert_eq!(old.ingest(&datasets, Mode::UntilIdle).await.unwrap().outcome.inserted, 1);
    let before = store.fork();
    vacuum(&lab, shared(&store)).await;
    let replaced = stored_requests(&store).await;
    assert!(replaced.len() == 1 && replaced[0].contains("erased:1:") && replaced != plain);
    assert_eq!(objects(&store, "default/_alluvium/ledger").await, BTreeSet::new(), "what was folded from them is made again");
    // The same again is the same, another of its id is refused; a late convert of another id to the erased one erases its rows.
    let other = ERASE.replace("\"a\"", "\"b\"");
    let late = CONVERT.replace("r1", "r2").replace("\"a\"", "\"x\"").replace("\"b\"", "\"a\"").replace("T10", "T09");
    put(dir.path(), "requests", "2.json", &[ERASE, &other, &late].join("\n"));
    // The rows of before come again, with some of others; the erasure was at 10.
    put_rows(dir.path(), "2.json", &ROWS);
    put_rows(dir.path(), "3.json", &[("4", 4, "x", "u4"), ("5", 11, "a", "u4"), ("6", 11, "x", "u4"), ("7", 4, "b", "u4")]);
    let done = old.run_all(&datasets, Mode::UntilIdle).await.unwrap();
    assert!(done.failed.is_empty(), "{:?}", done.failed);
    assert_eq!(stored_requests(&store).await.len(), 2);
    assert_eq!(TableReader::new(&shared(&store), "default/dead_letters").rows().await.unwrap().len(), 1);
    let rows = rows(&uncut(&store, &before).await).await;
    let standing: BTreeSet<String> = rows.iter().map(|row| format!("{} {}", row["id"], row["lead"])).collect();
    // What is newer than the erasure stays where it was.
    assert_eq!(standing, ["3 c", "5 a", "6 x", "7 b", "8 c"].map(str::to_owned).into());
    assert_eq!(rows.len(), 6, "of the rows that came again one is of another person");
    vacuum(&lab, shared(&store)).await;
    let replaced = stored_requests(&store).await;
    assert!(replaced.iter().all(|request| ["\"a\"", "\"x\""].iter().all(|id| !request.contains(id))), "{replaced:?}");
}

/// Without the key that made the pseudonyms nothing is folded or looked up: with another one, nobody who was erased would be known again.
#[tokio::test(flavor = "multi_thread")]
async fn without_its_key_nothing_is_written() {
    let (dir, lab, store) = erased("erase: { key: 'file:key.txt' }\n", None).await;
    let before = store.fork();
    let failed = engine(&lab, shared(&store)).vacuum(&[], false).await.unwrap().failed;
    assert_eq!(
        failed.iter().map(|(table, error)| (table.as_str(), error.kind())).collect::<Vec<_>>(),
        [("requests", Kind::Unavailable)]
    );
    let key = dir.path().join("key.txt");
    let write = |digit: &str| std::fs::write(&key, format!("{}\n", digit.repeat(64))).unwrap();
    write("7");
    vacuum(&lab, shared(&store)).await;
    assert!(stored_requests(&store).await[0].contains("erased:1:"));
    let record = objects(&store, "default/_alluvium/erase").await.into_iter().find(|path| path.ends_with("/key.json")).unwrap();
    let record = store.get(&Path::from(record)).await.unwrap().bytes().await.unwrap();
    assert!(!String::from_utf8_lossy(&record).contains("7777"), "the key is not kept in the lake");
    put_rows(dir.path(), "2.json", &[("4", 4, "a", "u4"), ("5", 4, "b", "u4")]);
    put(dir.path(), "requests", "2.json", &CONVERT.replace("\"a\"", "\"b\"").replace("to\":\"b\"", "to\":\"d\""));
    for wrong in [None, Some("8"), Some("x")] {
        match wrong {
            None => std::fs::remove_file(&key).unwrap(),
            Some(digit) => write(digit),
        }
        let engine = engine(&lab, shared(&store));
        let datasets = engine.datasets(&[]).unwrap();
        let failed = match engine.run_all(&datasets, Mode::UntilIdle).await {
            Ok(summary) => summary.failed.into_iter().map(|(_, error)| error.kind()).collect(),
            Err(error) => vec![error.kind()],
        };
        assert!(!failed.is_empty() && failed.iter().all(|kind| *kind == Kind::Unavailable), "{wrong:?}: {failed:?}");
    }
    write("7");
    mutate_sweep::settle(&lab, &shared(&store), Run::All).await;
    let rows = rows(&uncut(&store, &before).await).await;
    assert_eq!(rows.iter().map(|row| row["lead"].as_str()).collect::<Vec<_>>(), ["c", "d"]);
}

/// The same lab, so many hours later.
fn later(lab: &Lab, hours: i64) -> Lab {
    let clock = StepClock::new();
    clock.advance_micros(DAYS_LATER * 86_400_000_000 + hours * 3_600_000_000);
    lab.with_clock(Arc::new(clock))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_erasure_for_privacy_replaced_goes_whatever_the_retention() {
    let (dir, lab, store) = erased("", None).await;
    assert!(files(&store).await.len() > live(&store).await.len());
    let before = store.fork();
    assert!(vacuum(&lab, shared(&store)).await.removed().files > 0);
    // Version 0 made the table, 1 took the rows in, 2 erased.
    let log = "default/call/_delta_log";
    let left = ["_last_checkpoint", "00000000000000000002.checkpoint.parquet", "00000000000000000002.json"];
    assert_eq!(objects(&store, log).await, left.iter().map(|name| format!("{log}/{name}")).collect());
    let whole = uncut(&store, &before).await;
    assert_eq!(files(&store).await, live(&whole).await);
    assert_eq!(objects(&store, "default/_alluvium/rewrites").await, BTreeSet::new());
    let leads: Vec<String> = rows(&whole).await.into_iter().map(|row| row["lead"].clone()).collect();
    assert_eq!(leads, ["c"]);
    assert_eq!(read(&engine(&lab, shared(&store)), None, false).await.unwrap(), 1, "a new reader is given what stands");
    // What is replaced from then on is kept as long as anything.
    put(dir.path(), "requests", "2.json", &CONVERT.replace("\"a\"", "\"c\"").replace("T10", "T11"));
    mutate_sweep::settle(&lab, &shared(&store), Run::Mutate).await;
    let again = vacuum(&lab, shared(&store)).await;
    assert_eq!(again.removed().files, 0, "{again:?}");
    let whole = uncut(&store, &before).await;
    assert!(files(&store).await.len() > live(&whole).await.len());
    // A request that comes late and leads more rows to the erased id erases them: what held them goes, too.
    let late = CONVERT.replace("r1", "r3").replace("\"b\"", "\"x\"").replace("\"a\"", "\"b\"").replace("\"x\"", "\"a\"");
    put(dir.path(), "requests", "3.json", &late.replace("T10", "T09"));
    mutate_sweep::settle(&lab, &shared(&store), Run::Mutate).await;
    let whole = uncut(&store, &before).await;
    vacuum(&lab, shared(&store)).await;
    let whole = uncut(&store, &whole).await;
    assert_eq!(files(&store).await, live(&whole).await);
    // Life goes on.
    put_rows(dir.path(), "2.json", &[("4", 4, "a", "u4"), ("5", 11, "a", "u4")]);
    mutate_sweep::settle(&lab, &shared(&store), Run::All).await;
    let leads: Vec<String> = rows(&uncut(&store, &whole).await).await.into_iter().map(|row| row["lead"].clone()).collect();
    // b had become the erased a, so the row that was c stays what it was; of the two others one is newer than the erasure.
    assert_eq!(leads, ["c", "a"]);
}

/// Who is under way with a batch that was recorded before the erasure may look for what the log says of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_not_cut_while_a_batch_from_before_is_under_way() {
    let (_dir, lab, store) = erased("", None).await;
    let mark = objects(&store, "default/_alluvium/chains").await;
    let mark = mark.iter().find(|path| path.contains("/ingest/call/") && path.ends_with(".done.json")).unwrap();
    let mark = Path::from(mark.as_str());
    let bytes = store.get(&mark).await.unwrap().bytes().await.unwrap();
    store.delete(&mark).await.unwrap();
    vacuum(&lab, shared(&store)).await;
    let entries = || objects(&store, "default/call/_delta_log");
    assert_eq!(entries().await.len(), 3);
    store.put(&mark, bytes.into()).await.unwrap();
    vacuum(&lab, shared(&store)).await;
    assert!(entries().await.iter().all(|path| !path.ends_with("00000000000000000001.json")));
}

/// A purge that dies anywhere is gone on with by the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_dies_anywhere_is_gone_on_with() {
    let (_dir, lab, begun) = erased("", None).await;
    let wanted = rows(&begun).await;
    let ended = begun.fork();
    let counted = FaultStore::new(shared(&ended)).counting_deletes();
    vacuum(&lab, Arc::new(counted.clone())).await;
    let (steps, whole) = (counted.put_count(), but_requests(&ended).await);
    assert!(steps >= 20, "only {steps} steps");
    for n in 1..=steps {
        for fault in [Fault::DieBefore(n), Fault::DieAfter(n), Fault::ErrorAfterSuccess(n)] {
            let store = begun.fork();
            let faulty = FaultStore::new(shared(&store)).counting_deletes().with_fault(fault);
            let _it_died = engine(&lab, Arc::new(faulty)).vacuum(&[], false).await;
            assert_eq!(rows(&uncut(&store, &begun).await).await, wanted, "{fault:?}");
            vacuum(&lab, shared(&store)).await;
            assert_eq!(but_requests(&store).await, whole, "{fault:?}");
            let stored = stored_requests(&store).await;
            assert!(stored.len() == 1 && !stored[0].contains(r#""id":"a""#), "{fault:?}: {stored:?}");
            assert_eq!(rows(&uncut(&store, &begun).await).await, wanted, "{fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_comes_so_long_after_the_erasure_as_the_project_says() {
    let (_dir, lab, store) = erased("erase: { purge_after: 2h }\n", None).await;
    let before = files(&store).await;
    assert_eq!(vacuum(&later(&lab, 1), shared(&store)).await.removed().files, 0);
    assert_eq!(files(&store).await, before);
    let whole = store.fork();
    assert!(vacuum(&later(&lab, 3), shared(&store)).await.removed().files > 0);
    assert_eq!(files(&store).await, live(&uncut(&store, &whole).await).await);
}

/// Erasures that follow one another closely do not put each other off.
#[tokio::test(flavor = "multi_thread")]
async fn each_erasure_is_purged_when_its_own_time_has_come() {
    let (dir, lab, store) = erased("erase: { purge_after: 10h }\n", None).await;
    let before = store.fork();
    let of_a = files(&store).await.difference(&live(&store).await).cloned().collect::<BTreeSet<_>>();
    let next = ERASE.replace("e1", "e2").replace("\"a\"", "\"c\"");
    put(dir.path(), "requests", "2.json", &next);
    mutate_sweep::settle(&later(&lab, 6), &shared(&store), Run::Mutate).await;
    let of_both = files(&store).await;
    vacuum(&later(&lab, 11), shared(&store)).await;
    assert_eq!(files(&store).await, of_both.difference(&of_a).cloned().collect());
    let log = "default/call/_delta_log/00000000000000000002.checkpoint.parquet";
    assert!(objects(&store, "default/call/_delta_log").await.contains(log), "the log is cut at the first of them");
    assert_eq!(rows(&uncut(&store, &before).await).await.len(), 0);
    vacuum(&later(&lab, 17), shared(&store)).await;
    assert_eq!(files(&store).await, BTreeSet::new());
}

/// What an attempt staged that lost its batch is nobody's any more, however young it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_lost_attempt_staged_goes_at_once() {
    let (_dir, lab, store, _) = converted("4000d").await;
    let (kept, first) = (files(&store).await, live(&store).await.into_iter().next().unwrap());
    let (stem, _) = first.rsplit_once('-').unwrap();
    let (batch, _writer) = stem.rsplit_once('-').unwrap();
    let left = format!("{batch}-0123456789abcdef0123456789abcdef-00000.parquet");
    store.put(&Path::from(left.as_str()), "x".into()).await.unwrap();
    assert_eq!(vacuum(&lab, shared(&store)).await.removed().files, 1);
    assert_eq!(files(&store).await, kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_waits_for_named_readers_and_in_the_end_passes_them_by() {
    let (_dir, lab, store) = erased("erase: { wait_for_consumers: 12h }\n", Some("slow")).await;
    let before = files(&store).await;
    let summary = vacuum(&lab, shared(&store)).await;
    let of_call = summary.tables.iter().find(|report| report.table.as_str() == "call").unwrap();
    assert_eq!((files(&store).await, of_call.kept_for.as_slice()), (before, &["slow".to_owned()][..]));
    let whole = store.fork();
    vacuum(&later(&lab, 13), shared(&store)).await;
    assert_eq!(files(&store).await, live(&uncut(&store, &whole).await).await);
    let told = read(&engine(&lab, shared(&store)), Some("slow"), true).await.unwrap_err();
    assert_eq!(told.kind(), Kind::NotFound);
    // One that reads in time is given what went, and then nothing is kept.
    let (_dir, lab, store) = erased("erase: { wait_for_consumers: 12h }\n", Some("slow")).await;
    assert_eq!(read(&engine(&lab, shared(&store)), Some("slow"), true).await.unwrap(), 2, "two rows went");
    let whole = store.fork();
    vacuum(&lab, shared(&store)).await;
    assert_eq!(files(&store).await, live(&uncut(&store, &whole).await).await);
}

/// The vacuum runs at every step of an ingest: what was staged and not recorded is staged again, what was recorded is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_vacuum_at_any_put_of_an_ingest_and_a_mutation_loses_and_doubles_nothing() {
    let (_clean_dir, _, clean, _) = converted("0s").await;
    let wanted = rows(&clean).await;
    let counted = FaultStore::new(shared(&InMemory::new()));
    let dir = tempfile::tempdir().unwrap();
    put_rows(dir.path(), "1.json", &ROWS);
    put(dir.path(), "requests", "1.json", CONVERT);
    let counting = lab(dir.path(), "0s");
    let whole = |lab: Lab, store: Arc<dyn ObjectStore>| async move {
        mutate_sweep::settle(&lab, &store, Run::Ingest).await;
        mutate_sweep::settle(&lab, &store, Run::Mutate).await;
    };
    whole(counting, Arc::new(counted.clone())).await;
    let puts = counted.put_count();
    assert!(puts > 20, "only {puts} puts");
    for n in 1..=puts {
        let dir = tempfile::tempdir().unwrap();
        put_rows(dir.path(), "1.json", &ROWS);
        put(dir.path(), "requests", "1.json", CONVERT);
        let (lab, store) = (lab(dir.path(), "0s"), InMemory::new());
        let seen = std::sync::atomic::AtomicU64::new(0);
        let (other_lab, other) = (lab.clone(), shared(&store));
        let is_nth =
            move |step: &Step| matches!(step, Step::Put(_)) && seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == n;
        let paused = PauseStore::once_at(shared(&store), is_nth, move || {
            let (lab, store) = (other_lab.clone(), other.clone());
            async move { drop(vacuum(&lab, store).await) }.boxed()
        });
        whole(lab.clone(), Arc::new(paused)).await;
        let mut landed = rows(&store).await;
        let mut expected = wanted.clone();
        for row in landed.iter_mut().chain(&mut expected) {
            row.remove("_ingested_at");
        }
        assert_eq!(landed, expected, "put {n}");
        vacuum(&lab, shared(&store)).await;
        assert_eq!(files(&store).await, live(&store).await, "put {n}");
    }
}

/// What a process staged that died goes, once; and the next one takes the same in.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_process_staged_goes_and_its_input_lands_once() {
    for n in 1..=6 {
        let dir = tempfile::tempdir().unwrap();
        let (lab, store) = (lab(dir.path(), "0s"), InMemory::new());
        put_rows(dir.path(), "1.json", &ROWS);
        let dying: Arc<dyn ObjectStore> = Arc::new(FaultStore::new(shared(&store)).with_fault(Fault::DieAfter(n)));
        let dying = engine(&lab, dying);
        let _it_died = dying.ingest(&dying.datasets(&[]).unwrap(), Mode::UntilIdle).await;
        vacuum(&lab, shared(&store)).await;
        mutate_sweep::settle(&lab, &shared(&store), Run::Ingest).await;
        assert_eq!(rows(&store).await.len(), 3, "put {n}");
        vacuum(&lab, shared(&store)).await;
        assert_eq!(files(&store).await, live(&store).await, "put {n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vacuum_that_dies_anywhere_is_gone_on_with() {
    let (_dir, lab, begun, _) = converted("0s").await;
    let wanted = rows(&begun).await;
    let counted = FaultStore::new(shared(&begun.fork())).counting_deletes();
    vacuum(&lab, Arc::new(counted.clone())).await;
    let steps = counted.put_count();
    assert!(steps >= 3, "only {steps} steps");
    for n in 1..=steps {
        for fault in [Fault::DieBefore(n), Fault::DieAfter(n), Fault::ErrorAfterSuccess(n)] {
            let store = begun.fork();
            let faulty = FaultStore::new(shared(&store)).counting_deletes().with_fault(fault);
            let _it_died = engine(&lab, Arc::new(faulty)).vacuum(&[], false).await;
            assert_eq!(rows(&store).await, wanted, "{fault:?}");
            vacuum(&lab, shared(&store)).await;
            assert_eq!((files(&store).await, rows(&store).await), (live(&store).await, wanted.clone()), "{fault:?}");
        }
    }
}

/// Other programs' files: what is no part of a table is left alone, what may be is by its age.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_other_programs_go_by_age_and_hidden_ones_stay() {
    let (_dir, lab, store, _) = converted("0s").await;
    let put = |path: &'static str| {
        let store = store.clone();
        async move { store.put(&Path::from(path), "x".into()).await.unwrap() }
    };
    for path in [
        "default/call/part-00000-1b2f.c000.snappy.parquet",
        "default/call/lead=a/part-00001-1b2f.c000.snappy.parquet",
        "default/call/_dlt_metadata/x.json",
        "default/call/.part-00000.parquet.crc",
        "default/call/_SUCCESS",
        "default/call/_change_data/cdc-00000.parquet",
    ] {
        put(path).await;
    }
    let day = StepClock::new();
    let now = chrono::Utc::now().timestamp_micros();
    day.advance_micros(now + 6 * 86_400_000_000 - StepClock::START_MICROS);
    let young = lab.with_clock(Arc::new(day));
    vacuum(&young, shared(&store)).await;
    let others = |files: BTreeSet<String>, live: BTreeSet<String>| files.difference(&live).cloned().collect::<Vec<_>>();
    assert_eq!(others(files(&store).await, live(&store).await).len(), 6, "a week's age is wanted");
    vacuum(&lab, shared(&store)).await;
    let left = ["default/call/.part-00000.parquet.crc", "default/call/_SUCCESS", "default/call/_dlt_metadata/x.json"];
    assert_eq!(others(files(&store).await, live(&store).await), left);
}
