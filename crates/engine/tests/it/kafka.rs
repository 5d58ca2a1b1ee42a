//! A topic's records land once each, whatever the cluster does: here one in memory, that does on command what real ones do now
//! and then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use alluvium_core::Kind;
use alluvium_engine::{IngestOptions, Mode, RunSummary, SourcePosition, Stop};
use alluvium_lake::Store;
use alluvium_testkit::{DatasetCheck, Fault, FaultStore, Lab, Landed, Listener, MemoryCluster, StepClock};
use object_store::ObjectStore;

use crate::common::memory;

const TOPIC: &str = "edits";

fn yaml(more: &str, max_rows: u64) -> String {
    format!(
        "project: test
storage: ./lake
durability: process
kafka: {{ bootstrap.servers: nowhere }}
datasets:
  edit:
    source: {{ kafka: {{ topic: {TOPIC}{more} }} }}
    org: org
    event_time: at
    fields: {{ org: string, at: timestamp, n: long }}
    layout: {{ partition_by: [org] }}
    batch: {{ max_rows: {max_rows}, max_delay: 20ms }}
"
    )
}

/// A lake in memory that reads a cluster in memory.
struct World {
    _dir: tempfile::TempDir,
    lab: Lab,
    store: Arc<dyn ObjectStore>,
    cluster: MemoryCluster,
}

impl World {
    fn new(more: &str, max_rows: u64, partitions: usize) -> Self {
        let (dir, cluster) = (tempfile::tempdir().unwrap(), MemoryCluster::default());
        cluster.create(TOPIC, partitions, None);
        let lab = Lab::new(dir.path(), &yaml(more, max_rows)).with_broker(Arc::new(cluster.clone()));
        Self { _dir: dir, lab, store: memory(), cluster }
    }

    /// Sends records whose `n` counts on from `from`, to the partitions in turn; every fifth is refused.
    fn send(&self, partitions: usize, from: u64, count: u64) {
        for n in from..from + count {
            self.cluster.send(TOPIC, (n as usize) % partitions, Some(&line(n)));
        }
    }

    async fn run(&self, options: impl Into<IngestOptions>) -> RunSummary {
        let engine = self.lab.engine(&Store::over(self.store.clone()));
        engine.ingest(&engine.datasets(&[]).unwrap(), options).await.unwrap()
    }

    async fn runs(&self) -> RunSummary {
        let summary = self.run(Mode::UntilIdle).await;
        assert!(summary.failed.is_empty(), "{:?}", summary.failed);
        summary
    }

    async fn fails(&self) -> (Kind, String) {
        let mut failed = self.run(Mode::UntilIdle).await.failed;
        assert_eq!(failed.len(), 1, "{failed:?}");
        let (_, error) = failed.remove(0);
        (error.kind(), error.to_string())
    }

    async fn accepts_loss(&self) -> RunSummary {
        let summary = self.run(IngestOptions { mode: Mode::UntilIdle, accept_loss: true }).await;
        assert!(summary.failed.is_empty(), "{:?}", summary.failed);
        summary
    }

    async fn landed(&self) -> Landed {
        landed(&self.store).await
    }

    async fn losses(&self) -> Vec<String> {
        let status = self.lab.engine(&Store::over(self.store.clone())).status().await.unwrap();
        match status.datasets.into_iter().next().unwrap().source.unwrap() {
            Some(SourcePosition::Kafka(topic)) => topic.losses.iter().map(|(_, loss)| loss.to_string()).collect(),
            other => panic!("{other:?}"),
        }
    }
}

async fn landed(store: &Arc<dyn ObjectStore>) -> Landed {
    DatasetCheck::new(store, "default", "edit", "org").landed().await.unwrap()
}

fn line(n: u64) -> String {
    let org = ["a", "b", "c"][(n % 3) as usize];
    let value = if is_refused(n) { "\"many\"".to_owned() } else { n.to_string() };
    format!(r#"{{"org":"{org}","at":"2026-01-0{}T00:00:00Z","n":{value}}}"#, 1 + n % 2)
}

fn is_refused(n: u64) -> bool {
    n % 5 == 3
}

/// What landed: numbers of rows, ascending.
fn numbers(landed: &Landed) -> Vec<u64> {
    let mut all: Vec<u64> = landed.rows.iter().map(|r| r["n"].parse().unwrap()).collect();
    all.sort_unstable();
    all
}

fn fitting(numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
    numbers.into_iter().filter(|n| !is_refused(*n)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_all_partitions_land_once_with_their_place_in_batches_of_their_own_shards() {
    let world = World::new("", 7, 6);
    world.send(6, 0, 60);
    let summary = world.runs().await;
    // Four shards: two of two partitions with 20 records each (7, 7, 6), two of one with 10 (7, 3).
    assert_eq!((summary.batches, summary.outcome.inserted, summary.outcome.dead_letters), (10, 48, 12));
    let landed = world.landed().await;
    assert_eq!(numbers(&landed), fitting(0..60));
    for row in &landed.rows {
        let n: u64 = row["n"].parse().unwrap();
        assert_eq!((row["_source"].clone(), row["_offset"].clone()), (format!("{TOPIC}/{}", n % 6), (n / 6).to_string()));
    }
    assert_eq!(landed.dead_letters[0]["source"], format!("{TOPIC}/0"));
    assert_eq!(world.runs().await.batches, 0, "nothing is left");
    world.send(6, 60, 3);
    assert_eq!(world.runs().await.outcome.inserted, 3);
    assert_eq!(numbers(&world.landed().await), fitting(0..63));
    assert_eq!(world.cluster.committed("alluvium_test_edit", TOPIC, 0), Some(11));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_come_again_and_offsets_without_records_change_nothing() {
    let world = World::new("", 4, 2);
    world.cluster.repeat_after(3);
    world.cluster.gap(TOPIC, 0, 5);
    world.send(2, 0, 10);
    world.cluster.gap(TOPIC, 1, 3);
    world.send(2, 10, 10);
    world.cluster.gap(TOPIC, 0, 2);
    assert_eq!(world.runs().await.outcome.inserted, 16);
    assert_eq!(numbers(&world.landed().await), fitting(0..20));
    assert_eq!(world.runs().await.batches, 0, "a tail without records counts as read");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_the_replica_read_does_not_have_yet_are_taken_by_the_next_run() {
    let world = World::new("", 100, 1);
    world.send(1, 0, 10);
    world.cluster.lag(TOPIC, 0, Some(6));
    world.runs().await;
    assert_eq!(numbers(&world.landed().await), fitting(0..6));
    world.cluster.lag(TOPIC, 0, None);
    world.runs().await;
    assert_eq!(numbers(&world.landed().await), fitting(0..10));
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_without_records_that_expired_behind_the_last_run_are_no_loss() {
    let world = World::new("", 100, 1);
    world.send(1, 0, 5);
    world.runs().await;
    world.cluster.gap(TOPIC, 0, 3);
    world.runs().await;
    world.cluster.expire(TOPIC, 0, 8);
    world.send(1, 5, 2);
    world.runs().await;
    assert_eq!(numbers(&world.landed().await), fitting(0..7));
    assert_eq!(world.losses().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn start_is_fixed_by_the_first_run_even_where_it_reads_nothing() {
    for (start, first) in [("latest", 10), ("\"2026-01-01T00:00:00.004Z\"", 4)] {
        let world = World::new(&format!(", start: {start}"), 100, 1);
        world.send(1, 0, 10);
        world.runs().await;
        world.send(1, 10, 5);
        world.runs().await;
        assert_eq!(numbers(&world.landed().await), fitting(first..15), "{start}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_expired_before_they_were_read_stop_the_job_until_the_loss_is_accepted() {
    let world = World::new("", 100, 1);
    world.send(1, 0, 10);
    world.runs().await;
    world.send(1, 10, 10);
    world.cluster.expire(TOPIC, 0, 14);
    let (kind, text) = world.fails().await;
    assert_eq!(kind, Kind::Unavailable);
    assert!(text.contains("partition 0: offsets 10 to 13 have expired") && text.contains("--accept-loss"), "{text}");
    assert_eq!(numbers(&world.landed().await), fitting(0..10), "nothing behind the loss is read");
    world.accepts_loss().await;
    assert_eq!(numbers(&world.landed().await), fitting((0..10).chain(14..20)));
    assert_eq!(world.losses().await, ["partition 0: offsets 10 to 13 have expired"]);
    world.send(1, 20, 5);
    assert_eq!(world.runs().await.outcome.inserted, 4, "the loss is behind us");
    assert_eq!(world.losses().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_records_of_a_chain_go_and_what_they_took_is_not_read_again() {
    let world = World::new("", 1, 1);
    world.send(1, 0, 300);
    world.runs().await;
    world.send(1, 300, 10);
    world.runs().await;
    assert_eq!(numbers(&world.landed().await), fitting(0..310));
    let chain = object_store::path::Path::from("default/_alluvium/chains");
    let left = futures::StreamExt::count(world.store.list(Some(&chain))).await;
    assert!((16..=2 * 33).contains(&left), "{left} records and marks are left");
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_made_anew_is_found_out_by_its_end_by_its_last_record_or_by_its_id() {
    for (case, ids, sent_again) in [("end", [None, None], 3), ("record", [None, None], 15), ("id", [Some("a"), Some("b")], 15)] {
        let world = World::new("", 100, 1);
        world.cluster.create(TOPIC, 1, ids[0]);
        world.send(1, 0, 10);
        world.runs().await;
        world.cluster.create(TOPIC, 1, ids[1]);
        if case == "record" {
            // Longer than the first, and with another record at the place of the last one taken.
            world.send(1, 1000, 10);
            world.send(1, 1010, sent_again - 10);
        } else {
            world.send(1, 100, sent_again);
        }
        let (kind, text) = world.fails().await;
        assert_eq!(kind, Kind::Corrupt, "{case}: {text}");
        assert!(text.contains("partition 0: offsets from 10 on (the topic was made anew"), "{case}: {text}");
        assert_eq!(numbers(&world.landed().await), fitting(0..10), "{case}: nothing of the new topic is read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_are_gone_stop_the_job_and_new_ones_are_read_from_their_first_record() {
    let world = World::new(", shards: 2", 100, 2);
    world.send(2, 0, 10);
    world.runs().await;
    world.cluster.resize(TOPIC, 5);
    world.send(5, 10, 10);
    world.runs().await;
    assert_eq!(numbers(&world.landed().await), fitting(0..20));
    world.cluster.resize(TOPIC, 4);
    let (kind, text) = world.fails().await;
    assert_eq!(kind, Kind::Corrupt);
    assert!(text.contains("partition 4: offsets from 2 on (the partition is gone)"), "{text}");
    world.accepts_loss().await;
    assert_eq!(world.losses().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tombstones_are_counted_as_skipped_or_kept_as_dead_letters() {
    for (policy, skipped, letters) in [("skip", 2, 0), ("dead_letter", 0, 2)] {
        let world = World::new(&format!(", tombstones: {policy}"), 100, 1);
        world.cluster.send(TOPIC, 0, Some(&line(0)));
        world.cluster.send(TOPIC, 0, None);
        world.cluster.send(TOPIC, 0, None);
        let outcome = world.runs().await.outcome;
        assert_eq!((outcome.inserted, outcome.skipped, outcome.dead_letters), (1, skipped, letters), "{policy}");
        assert_eq!(world.runs().await.batches, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_no_json_are_dead_letters_with_their_bytes() {
    let world = World::new("", 100, 1);
    let values = ["", " \n", "not json", "{\"org\":\"a\",\n\"at\":\"2026-01-01T00:00:00Z\",\n\"n\":1}\n"];
    for value in values {
        world.cluster.send(TOPIC, 0, Some(value));
    }
    world.runs().await;
    let landed = world.landed().await;
    assert_eq!(numbers(&landed), [1], "a value may hold line ends");
    let letters: Vec<_> =
        landed.dead_letters.iter().map(|l| (l["position"].as_str(), l.get("raw").map_or("", String::as_str))).collect();
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(letters, [("0", ""), ("1", hex(" \n").as_str()), ("2", hex("not json").as_str())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_topic_fails_its_dataset_at_once_and_the_others_go_on() {
    let world = World::new("", 100, 1);
    let other = yaml("", 100).split_once("  edit:\n").unwrap().1.replace(&format!("topic: {TOPIC}"), "topic: missing");
    let lab = world.lab.with_yaml(&format!("{}  gone:\n{other}", yaml("", 100)));
    world.send(1, 0, 5);
    let engine = lab.engine(&Store::over(world.store.clone()));
    let summary = engine.ingest(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await.unwrap();
    assert_eq!(summary.failed.len(), 1);
    assert_eq!((summary.failed[0].0.as_str(), summary.failed[0].1.kind()), ("gone", Kind::NotFound));
    assert_eq!(numbers(&world.landed().await), fitting(0..5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_keeps_its_topic_and_its_kind_of_source() {
    let world = World::new("", 100, 1);
    world.send(1, 0, 5);
    world.runs().await;
    world.cluster.create("others", 1, None);
    for source in ["kafka: { topic: others }", "files: { path: ./inbox, format: json }"] {
        let lab = world.lab.with_yaml(&yaml("", 100).replace(&format!("kafka: {{ topic: {TOPIC} }}"), source));
        let engine = lab.engine(&Store::over(world.store.clone()));
        let mut failed = engine.ingest(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await.unwrap().failed;
        assert_eq!(failed.remove(0).1.kind(), Kind::Conflict, "{source}");
    }
}

/// Follows while `during` happens, until it returns.
async fn follow<F: Future<Output = ()>>(world: &World, during: impl FnOnce(Arc<Listener>) -> F) -> (RunSummary, Arc<Listener>) {
    let (stop, listener) = (Stop::default(), Arc::new(Listener::default()));
    let engine = world.lab.engine_with(&Store::over(world.store.clone()), listener.clone(), stop.clone());
    let run = tokio::spawn(async move { engine.ingest(&engine.datasets(&[]).unwrap(), Mode::Follow).await });
    during(listener.clone()).await;
    stop.ask();
    (run.await.unwrap().unwrap(), listener)
}

/// Waits until so many rows have landed in finished batches.
async fn until_inserted(listener: &Listener, rows: u64) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while listener.batches().iter().map(|b| b.outcome.inserted).sum::<u64>() < rows {
        assert!(std::time::Instant::now() < deadline, "not within a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_takes_what_comes_waits_for_a_broker_that_is_away_and_finds_new_partitions() {
    let world = World::new(", shards: 2", 1000, 2);
    let (summary, listener) = follow(&world, |listener| {
        let world = &world;
        async move {
            world.send(2, 0, 10);
            until_inserted(&listener, 8).await;
            world.cluster.set_away(true);
            world.send(2, 10, 10);
            world.cluster.set_away(false);
            until_inserted(&listener, 16).await;
            world.cluster.resize(TOPIC, 3);
            world.send(3, 20, 30);
            until_inserted(&listener, 40).await;
        }
    })
    .await;
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    assert!(!listener.batches().is_empty());
    assert_eq!(numbers(&world.landed().await), fitting(0..50));
}

/// As of a topic with transactions: its tail is control records. Once the cluster deletes them, they are no loss.
#[tokio::test(flavor = "multi_thread")]
async fn follower_records_that_it_stands_behind_offsets_without_records() {
    let clock = Arc::new(StepClock::new());
    let mut world = World::new("", 1000, 1);
    world.lab = world.lab.with_clock(clock.clone());
    let (summary, listener) = follow(&world, |listener| {
        let (world, clock) = (&world, clock.clone());
        async move {
            world.send(1, 0, 10);
            until_inserted(&listener, 8).await;
            world.cluster.gap(TOPIC, 0, 2);
            let batches = listener.batches().len();
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while listener.batches().len() == batches {
                assert!(std::time::Instant::now() < deadline, "not within a minute");
                clock.advance_micros(30_000_000);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await;
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    assert_eq!(listener.batches().last().unwrap().outcome.inserted, 0);
    assert_eq!(world.cluster.committed("alluvium_test_edit", TOPIC, 0), Some(12));
    world.cluster.expire(TOPIC, 0, 12);
    world.send(1, 10, 5);
    world.runs().await;
    assert_eq!(numbers(&world.landed().await), fitting(0..15));
}

/// The store dies at each put, before or after it, or loses the answer; a fresh process goes on.
#[tokio::test(flavor = "multi_thread")]
async fn store_dying_at_any_put_lands_every_record_once() {
    let new = || {
        let world = World::new(", shards: 2", 5, 2);
        world.send(2, 0, 16);
        world
    };
    let clean = new();
    let counted = FaultStore::new(clean.store.clone()).counting_deletes();
    let engine = clean.lab.engine(&Store::over(Arc::new(counted.clone())));
    let summary = engine.ingest(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await.unwrap();
    assert!(summary.failed.is_empty());
    let (puts, wanted) = (counted.put_count(), clean.landed().await.without_batches());
    assert_eq!(numbers(&wanted), fitting(0..16));
    assert!(puts >= 24, "only {puts} puts");
    for n in 1..=puts {
        for fault in [Fault::DieBefore(n), Fault::DieAfter(n), Fault::ErrorAfterSuccess(n)] {
            let world = new();
            let faulty = FaultStore::new(world.store.clone()).counting_deletes().with_fault(fault);
            let engine = world.lab.engine(&Store::over(Arc::new(faulty.clone())));
            let outcome = engine.ingest(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await;
            if let Fault::ErrorAfterSuccess(_) = fault {
                let summary = outcome.unwrap();
                assert!(summary.failed.is_empty(), "{fault:?}: {:?}", summary.failed);
            } else {
                assert!(faulty.is_dead(), "{fault:?} did not happen");
            }
            world.runs().await;
            assert_eq!(world.landed().await.without_batches(), wanted, "{fault:?}");
        }
    }
}

/// Processes that know nothing of each other's leases run the same chains at once.
#[tokio::test(flavor = "multi_thread")]
async fn processes_on_the_same_shards_at_once_land_every_record_once() {
    for seed in 1..=6_u64 {
        let world = World::new(", shards: 2", 4, 3);
        world.send(3, 0, 40);
        let tasks: Vec<_> = (0..3)
            .map(|i| {
                let store: Arc<dyn ObjectStore> =
                    Arc::new(alluvium_testkit::PauseStore::jitter(world.store.clone(), seed * 16 + i));
                let engine = world.lab.engine(&Store::over(store));
                tokio::spawn(async move { engine.ingest(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await })
            })
            .collect();
        for task in tasks {
            for (_, error) in task.await.unwrap().unwrap().failed {
                assert_eq!(error.kind(), Kind::Fenced, "seed {seed}: {}", error.chain_text());
            }
        }
        world.runs().await;
        assert_eq!(numbers(&world.landed().await), fitting(0..40), "seed {seed}");
        let mut places: BTreeMap<(String, String), u64> = BTreeMap::new();
        for row in world.landed().await.rows {
            *places.entry((row["_source"].clone(), row["_offset"].clone())).or_default() += 1;
        }
        assert!(places.values().all(|n| *n == 1), "seed {seed}");
    }
}
