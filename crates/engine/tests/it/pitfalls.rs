//! What went wrong for others in taking input in once, each case by the report it comes from, as far as files can show it.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use alluvium_core::Kind;
use alluvium_engine::{Mode, Stop};
use alluvium_lake::Store;
use alluvium_testkit::{DatasetCheck, Fault, FaultStore, Lab, Listener, PutKind};
use object_store::ObjectStore;

use crate::common::{expected, file, ingest, landed, memory, places, run, settle, yaml};

/// The put of the n-th batch's record, counted from the first put of a run.
async fn record_put(lab: &Lab, batch: u64) -> u64 {
    let counted = FaultStore::new(memory());
    let summary = ingest(&lab.engine(&Store::over(Arc::new(counted.clone()))), Mode::UntilIdle).await.unwrap();
    assert!(summary.failed.is_empty());
    let name = format!("{batch:020}.0000.json");
    let at = counted.log().iter().position(|put| put.kind == PutKind::Put && put.path.filename() == Some(&name));
    at.expect("the batch is recorded") as u64 + 1
}

/// What was recorded survives the restart and needs no source any more.
#[tokio::test(flavor = "multi_thread")]
async fn connectors_467_recorded_batch_lands_although_its_source_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    file(dir.path(), "a.json", 10);
    let lab = Lab::new(dir.path(), &yaml("keep", 100));
    let put = record_put(&lab, 1).await;
    let store = memory();
    let faulty = FaultStore::new(store.clone()).with_fault(Fault::DieAfter(put));
    let died = ingest(&lab.engine(&Store::over(Arc::new(faulty.clone()))), Mode::UntilIdle).await;
    assert!(faulty.is_dead() && died.map_or(true, |s| !s.failed.is_empty()));
    fs::remove_file(dir.path().join("inbox/a.json")).unwrap();
    settle(&lab, &store, &[("a.json", 10)]).await;
}

/// What is staged and not recorded is as if it had never been: the next process reads again, and lands it once.
#[tokio::test(flavor = "multi_thread")]
async fn iceberg_10431_staged_but_not_recorded_rows_do_not_come_back_beside_those_read_again() {
    let dir = tempfile::tempdir().unwrap();
    file(dir.path(), "a.json", 10);
    let lab = Lab::new(dir.path(), &yaml("keep", 100));
    let put = record_put(&lab, 1).await;
    let store = memory();
    for _ in 0..3 {
        let faulty = FaultStore::new(store.clone()).with_fault(Fault::DieBefore(put));
        let _dies = ingest(&lab.engine(&Store::over(Arc::new(faulty))), Mode::UntilIdle).await;
    }
    settle(&lab, &store, &[("a.json", 10)]).await;
}

/// The rest of a partly taken file is not there any more: an error that stops, not a silent going on.
#[tokio::test(flavor = "multi_thread")]
async fn hudi_5400_rest_of_a_file_that_is_gone_or_changed_stops_the_dataset() {
    for gone in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "a.json", 10);
        file(dir.path(), "b.json", 4);
        let lab = Lab::new(dir.path(), &yaml("keep", 7));
        let store = memory();
        assert_eq!(ingest(&lab.engine(&Store::over(store.clone())), Mode::Once).await.unwrap().batches, 1);
        let path = dir.path().join("inbox/a.json");
        let (whole, time) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
        if gone {
            fs::remove_file(&path).unwrap();
        } else {
            fs::write(&path, [&whole[..], b"{}\n"].concat()).unwrap();
        }
        let summary = ingest(&lab.engine(&Store::over(store.clone())), Mode::UntilIdle).await.unwrap();
        assert_eq!((summary.batches, summary.failed[0].1.kind()), (0, Kind::Conflict), "gone: {gone}");
        assert_eq!(places(&landed(&store).await), expected(&[("a.json", 7)]));
        // As it was, with its time: nothing is lost.
        fs::write(&path, whole).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        settle(&lab, &store, &[("a.json", 10), ("b.json", 4)]).await;
    }
}

/// A file that changes after it was taken whole is told of and not read again; a late file with an earlier name is taken.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_delta_ingest_92_what_was_taken_is_never_read_again_and_what_came_late_is() {
    let dir = tempfile::tempdir().unwrap();
    file(dir.path(), "m.json", 6);
    let lab = Lab::new(dir.path(), &yaml("keep", 100));
    let store = memory();
    run(&lab, &store).await;
    file(dir.path(), "m.json", 9);
    file(dir.path(), "a.json", 3);
    let listener = Arc::new(Listener::default());
    let engine = lab.engine_with(&Store::over(store.clone()), listener.clone(), Stop::default());
    assert_eq!(ingest(&engine, Mode::UntilIdle).await.unwrap().batches, 1);
    let warnings = listener.warnings();
    assert!(warnings.iter().any(|w| w.contains("1 files changed after they were taken") && w.contains("m.json")), "{warnings:?}");
    settle(&lab, &store, &[("a.json", 3), ("m.json", 6)]).await;
}

/// Datasets take turns, a batch each: one with much input does not starve another.
#[tokio::test(flavor = "multi_thread")]
async fn hudi_12047_every_dataset_progresses_while_one_has_much_to_take() {
    let dir = tempfile::tempdir().unwrap();
    file(dir.path(), "a.json", 20);
    let one = yaml("keep", 5);
    let edit = &one[one.find("  edit:").unwrap()..];
    let both = format!("{one}{}", edit.replace("  edit:", "  view:").replace("./inbox", "./views"));
    fs::create_dir(dir.path().join("views")).unwrap();
    fs::copy(dir.path().join("inbox/a.json"), dir.path().join("views/a.json")).unwrap();
    let lab = Lab::new(dir.path(), &both);
    let store = memory();
    let listener = Arc::new(Listener::default());
    let engine = lab.engine_with(&Store::over(store.clone()), listener.clone(), Stop::default());
    assert!(ingest(&engine, Mode::UntilIdle).await.unwrap().failed.is_empty());
    let order: Vec<String> = listener.batches().iter().map(|b| b.dataset.0.clone()).collect();
    assert_eq!(order, ["edit", "view"].repeat(4));
    for dataset in ["edit", "view"] {
        let landed = DatasetCheck::new(&store, "default", dataset, "org").landed().await.unwrap();
        assert_eq!(places(&landed), expected(&[("a.json", 20)]));
    }
}

/// A stamp is size and time: a source restored from a backup with its times is known again.
#[tokio::test(flavor = "multi_thread")]
async fn source_restored_with_its_times_is_not_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    file(dir.path(), "a.json", 6);
    let lab = Lab::new(dir.path(), &yaml("keep", 100));
    let store = memory();
    run(&lab, &store).await;
    let copy = tempfile::tempdir().unwrap();
    alluvium_testkit::copy_tree(dir.path(), copy.path()).unwrap();
    let restored = Lab::new(copy.path(), &yaml("keep", 100));
    assert_eq!(run(&restored, &store).await.batches, 0);
    // Even with another time it is not taken twice: a file is taken once, by its path.
    let file = fs::File::options().write(true).open(copy.path().join("inbox/a.json")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    assert_eq!(run(&restored, &store).await.batches, 0);
    let below: Arc<dyn ObjectStore> = store.clone();
    assert_eq!(places(&landed(&below).await), expected(&[("a.json", 6)]));
}
