//! Retention: organisations that keep their rows for different times, in several layouts; a retention that dies anywhere, that others
//! overtake; records that come too late.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as Directory;
use std::sync::Arc;

use alluvium_core::BatchOutcome;
use alluvium_engine::{Mode, RunSummary, WouldDrop};
use alluvium_lake::Store;
use alluvium_testkit::{Fault, FaultStore, Lab, PauseStore, Step, StepClock, TableReader};
use futures::FutureExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::mutate_sweep::put;

const DAY_MICROS: i64 = 86_400_000_000;

/// Others keep rows for 10 days, `short` for 7, `long` for 20.
fn yaml(layout: &str) -> String {
    format!(
        "project: retain
storage: ./lake
durability: process
datasets:
  call:
    source: {{ files: {{ path: ./inbox/call, format: json }} }}
    org: org
    event_time: at
    fields: {{ id: string, org: string, at: timestamp, lead: string }}
    identities: [lead]
    retention: 10d
    retention_by_org: {{ short: 7d, long: 20d }}
    layout: {{ partition_by: {layout} }}
requests:
  source: {{ files: {{ path: ./inbox/requests, format: json }} }}
"
    )
}

/// How long rows are kept.
const KEPT: &str = "    retention: 10d\n    retention_by_org: { short: 7d, long: 20d }\n";

/// The same for ever.
pub fn kept_for_ever(layout: &str) -> String {
    yaml(layout).replace(KEPT, "")
}

pub const BY_ORG: &str = "[org]";
pub const BY_ORG_AND_DAY: &str = "[org, event_date]";
const TOGETHER: &str = "[]";

/// Files of `rows`: organisation and day of December 2025; a row's id is both.
fn put_rows(directory: &Directory, name: &str, rows: &[(&str, u32)]) {
    let line = |(org, day): &(&str, u32)| {
        format!(r#"{{"id":"{org}-{day}","org":"{org}","at":"2025-12-{day:02}T12:00:00Z","lead":"l{day}"}}"#) + "\n"
    };
    put(directory, "call", name, &rows.iter().map(line).collect::<String>());
}

/// Each organisation has a row a day, from the 26th to the 31st.
fn all_rows() -> Vec<(&'static str, u32)> {
    ["short", "long", "other"].into_iter().flat_map(|org| (26..32).map(move |day| (org, day))).collect()
}

/// What is left on the 8th of January: of `short` nothing before the 1st, of others nothing before the 29th, of `long` all.
fn left() -> BTreeSet<String> {
    all_rows()
        .into_iter()
        .filter(|(org, day)| match *org {
            "short" => false,
            "long" => true,
            _ => *day >= 29,
        })
        .map(|(org, day)| format!("{org}-{day}"))
        .collect()
}

pub struct Lake {
    pub dir: tempfile::TempDir,
    pub clock: Arc<StepClock>,
    pub lab: Lab,
    pub store: InMemory,
}

impl Lake {
    /// All rows were taken in on the 1st of January, when none was too old; now it is the 8th.
    pub async fn begun(layout: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(StepClock::new());
        let lab = Lab::new(dir.path(), &yaml(layout)).with_clock(clock.clone());
        let lake = Self { dir, clock, lab, store: InMemory::new() };
        put_rows(lake.dir.path(), "1.json", &all_rows());
        assert_eq!(lake.ingest().await.outcome.inserted, 18);
        lake.clock.advance_micros(7 * DAY_MICROS);
        lake
    }

    pub fn shared(&self) -> Arc<dyn ObjectStore> {
        Arc::new(self.store.clone())
    }

    pub async fn ingest(&self) -> RunSummary {
        let engine = self.lab.engine(&Store::over(self.shared()));
        whole(engine.ingest(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await)
    }

    pub async fn mutate(&self) -> RunSummary {
        let engine = self.lab.engine(&Store::over(self.shared()));
        whole(engine.mutate(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await)
    }

    async fn retain(&self) -> RunSummary {
        whole(retain(&self.lab, self.shared()).await)
    }

    async fn would(&self) -> WouldDrop {
        let engine = self.lab.engine(&Store::over(self.shared()));
        engine.would_retain(engine.datasets(&[]).unwrap()[0]).await.unwrap()
    }

    async fn versions(&self) -> usize {
        TableReader::new(&self.shared(), "default/call").log().await.unwrap().len()
    }

    pub async fn ids(&self) -> BTreeSet<String> {
        ids(&self.shared()).await
    }
}

fn whole(summary: alluvium_core::Result<RunSummary>) -> RunSummary {
    let summary = summary.unwrap();
    if let Some((dataset, error)) = summary.failed.first() {
        panic!("{dataset}: {}", error.chain_text());
    }
    summary
}

async fn retain(lab: &Lab, store: Arc<dyn ObjectStore>) -> alluvium_core::Result<RunSummary> {
    let engine = lab.engine(&Store::over(store));
    engine.retain(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await
}

/// The ids of the table's rows, each there once.
async fn ids(store: &Arc<dyn ObjectStore>) -> BTreeSet<String> {
    let rows = TableReader::new(store, "default/call").rows().await.unwrap();
    let ids: BTreeSet<String> = rows.iter().map(|row| row["id"].clone()).collect();
    assert_eq!(ids.len(), rows.len(), "a row is there twice");
    ids
}

/// What notifications tell of a job, by organisation and day: rows inserted and deleted. Each batch tells of a day once.
pub async fn told(store: &Arc<dyn ObjectStore>, job: &str) -> BTreeMap<(String, String), (u64, u64)> {
    let mut told: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for row in TableReader::new(store, "default/notifications").rows().await.unwrap() {
        if row["job"] != job || row["table_name"] != "call" {
            continue;
        }
        let of = (row["org_id"].clone(), row["event_date"].clone());
        assert!(seen.insert((row["table_version"].clone(), of.clone())), "told twice: {row:?}");
        let sum = told.entry(of).or_default();
        sum.0 += row["inserted"].parse::<u64>().unwrap();
        sum.1 += row["deleted"].parse::<u64>().unwrap();
    }
    told
}

/// What must be told of: one row of each of these days, of `short` all and of others the first three.
fn wanted_told() -> BTreeMap<(String, String), (u64, u64)> {
    let gone = all_rows().into_iter().filter(|(org, day)| !left().contains(&format!("{org}-{day}")));
    gone.map(|(org, day)| ((org.to_owned(), format!("2025-12-{day}")), (0, 1))).collect()
}

async fn each_loses_its_own(layout: &str, files_opened: u64, files_rewritten: u64) {
    let lake = Lake::begun(layout).await;
    let (dry, before) = (lake.would().await, lake.versions().await);
    assert_eq!(lake.versions().await, before, "a dry run changes nothing");
    let summary = lake.retain().await;
    let BatchOutcome { inserted, skipped, work, .. } = summary.outcome;
    assert_eq!((summary.batches, inserted, skipped, work.updated, work.deleted), (1, 0, 0, 0, 9), "{layout}");
    assert_eq!((work.files_opened, work.files_rewritten), (files_opened, files_rewritten), "{layout}");
    assert_eq!(dry, WouldDrop { files_opened, files_rewritten, deleted: 9 }, "{layout}: a dry run says what goes");
    assert_eq!(lake.ids().await, left(), "{layout}");
    assert_eq!(told(&lake.shared(), "retain").await, wanted_told(), "{layout}");
    // What is left stays as it is, and a run that finds nothing writes nothing.
    let versions = lake.versions().await;
    assert_eq!(lake.retain().await.batches, 0, "{layout}");
    assert_eq!((lake.versions().await, lake.would().await.deleted), (versions, 0), "{layout}");
    // A day later another one of others is too old, and none of long is.
    lake.clock.advance_micros(DAY_MICROS);
    assert_eq!(lake.retain().await.outcome.work.deleted, 1, "{layout}");
    assert!(!lake.ids().await.contains("other-29"), "{layout}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_organisation_loses_what_is_past_its_own_retention() {
    // One file an organisation: that of long is told by its times, those of short and others are read.
    each_loses_its_own(BY_ORG, 2, 2).await;
    // A file a day: nothing is opened.
    each_loses_its_own(BY_ORG_AND_DAY, 0, 9).await;
    // One file of all.
    each_loses_its_own(TOGETHER, 1, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_counts_from_the_next_run_on_and_without_one_rows_stay() {
    let lake = Lake::begun(BY_ORG).await;
    let with = |keys: &str| lake.lab.with_yaml(&yaml(BY_ORG).replace(KEPT, keys));
    assert_eq!(whole(retain(&with(""), lake.shared()).await).batches, 0);
    assert_eq!(lake.ids().await.len(), 18);
    // Only what an organisation of its own says: on the 8th the 27th at noon is 11 days and a half ago.
    let summary = whole(retain(&with("    retention_by_org: { long: 11d }\n"), lake.shared()).await);
    assert_eq!(summary.outcome.work.deleted, 2);
    let of_long: Vec<String> = lake.ids().await.into_iter().filter(|id| id.starts_with("long")).collect();
    assert_eq!(of_long, ["long-28", "long-29", "long-30", "long-31"]);
    let summary = whole(retain(&with("    retention: 0s\n"), lake.shared()).await);
    assert_eq!((summary.outcome.work.deleted, lake.ids().await.len()), (16, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn store_dying_at_any_put_of_a_retention_leaves_the_tables_of_a_clean_run() {
    for layout in [BY_ORG, BY_ORG_AND_DAY, TOGETHER] {
        let lake = Lake::begun(layout).await;
        let counted = FaultStore::new(Arc::new(lake.store.fork())).counting_deletes();
        whole(retain(&lake.lab, Arc::new(counted.clone())).await);
        let puts = counted.put_count();
        // A record, a commit, notifications and their commit, a mark.
        assert!(puts >= 5, "only {puts} puts");
        for n in 1..=puts {
            for fault in [Fault::DieBefore(n), Fault::DieAfter(n), Fault::ErrorAfterSuccess(n)] {
                if fault == Fault::DieAfter(puts) {
                    continue;
                }
                let shared: Arc<dyn ObjectStore> = Arc::new(lake.store.fork());
                let faulty = FaultStore::new(shared.clone()).counting_deletes().with_fault(fault);
                let outcome = retain(&lake.lab, Arc::new(faulty.clone())).await;
                if let Fault::ErrorAfterSuccess(_) = fault {
                    whole(outcome);
                } else {
                    assert!(faulty.is_dead(), "{layout} {fault:?} did not happen");
                }
                whole(retain(&lake.lab, shared.clone()).await);
                assert_eq!(whole(retain(&lake.lab, shared.clone()).await).batches, 0, "{layout} {fault:?}");
                assert_eq!(ids(&shared).await, left(), "{layout} {fault:?}");
                assert_eq!(told(&shared, "retain").await, wanted_told(), "{layout} {fault:?}");
            }
        }
    }
}

/// A retention that comes to put its first record, lets `meanwhile` happen, and goes on to its end.
async fn overtaken(
    lake: &Lake,
    meanwhile: impl Fn() -> futures::future::BoxFuture<'static, ()> + Send + Sync + 'static,
) -> RunSummary {
    let record = format!("{:020}.0000.json", 1);
    let puts_record = move |step: &Step| matches!(step, Step::Put(path) if path.as_ref().contains("retain/call") && path.filename() == Some(&record));
    let paused = PauseStore::once_at(lake.shared(), puts_record, meanwhile);
    whole(retain(&lake.lab, Arc::new(paused)).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_come_while_a_retention_is_planned_stay_and_it_is_not_planned_again() {
    let lake = Lake::begun(BY_ORG).await;
    put_rows(lake.dir.path(), "2.json", &[("long", 25), ("other", 30)]);
    let (lab, store) = (lake.lab.clone(), lake.shared());
    let summary = overtaken(&lake, move || {
        let (lab, store) = (lab.clone(), store.clone());
        async move {
            let engine = lab.engine(&Store::over(store));
            whole(engine.ingest(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await);
        }
        .boxed()
    })
    .await;
    assert_eq!((summary.batches, summary.outcome.work.deleted), (1, 9));
    let rows = TableReader::new(&lake.shared(), "default/call").rows().await.unwrap();
    assert_eq!(rows.len(), 9 + 2);
    assert_eq!(told(&lake.shared(), "retain").await, wanted_told());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_mutation_changes_while_a_retention_is_planned_is_planned_again() {
    let lake = Lake::begun(BY_ORG).await;
    // Of a row that goes and one that stays, and of a file that goes whole.
    let request = |id: &str, org: &str, rest: &str| {
        format!(r#"{{"request_id":"{id}","org_id":"{org}","execution_time":"2026-01-05T00:00:00Z",{rest}}}"#) + "\n"
    };
    let requests = [
        request("r1", "other", r#""op":"convert","field":"lead","from":"l31","to":"c31""#),
        request("r2", "other", r#""op":"delete","scope":"subject","field":"lead","id":"l26""#),
        request("r3", "short", r#""op":"delete","scope":"subject","field":"lead","id":"l28""#),
    ];
    put(lake.dir.path(), "requests", "1.json", &requests.concat());
    let (lab, store) = (lake.lab.clone(), lake.shared());
    let summary = overtaken(&lake, move || {
        let (lab, store) = (lab.clone(), store.clone());
        async move {
            let engine = lab.engine(&Store::over(store));
            whole(engine.mutate(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await);
        }
        .boxed()
    })
    .await;
    assert_eq!((summary.batches, summary.outcome.work.deleted), (1, 7), "two went before");
    assert_eq!(lake.ids().await, left());
    let rows = TableReader::new(&lake.shared(), "default/call").rows().await.unwrap();
    let lead = rows.iter().find(|row| row["id"] == "other-31").map(|row| row["lead"].as_str());
    assert_eq!(lead, Some("c31"), "what the mutation did stays");
    let mut wanted = wanted_told();
    for (org, day) in [("other", 26), ("short", 28)] {
        wanted.remove(&(org.to_owned(), format!("2025-12-{day}")));
    }
    assert_eq!(told(&lake.shared(), "retain").await, wanted);
    // The table is at the position that the mutation brought it to.
    assert_eq!((lake.mutate().await.batches, lake.retain().await.batches), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_others_left_nothing_of_is_finished_all_the_same() {
    let lake = Lake::begun(BY_ORG_AND_DAY).await;
    let log = TableReader::new(&lake.shared(), "default/call").log().await.unwrap();
    let all: Vec<String> = TableReader::live(&log).unwrap().into_iter().map(|add| add.path).collect();
    let (store, version) = (lake.shared(), log.len());
    let summary = overtaken(&lake, move || {
        let (store, all) = (store.clone(), all.clone());
        async move {
            let remove = |path: &String| {
                format!(r#"{{"remove":{{"path":"{path}","dataChange":true,"deletionTimestamp":1767225600000}}}}"#) + "\n"
            };
            let entry = Path::from(format!("default/call/_delta_log/{version:020}.json"));
            store.put(&entry, all.iter().map(remove).collect::<String>().into()).await.unwrap();
        }
        .boxed()
    })
    .await;
    assert_eq!((summary.batches, summary.outcome.work.deleted), (1, 0));
    assert_eq!(told(&lake.shared(), "retain").await, BTreeMap::new());
    assert_eq!((lake.ids().await.len(), lake.retain().await.batches), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_come_too_late_are_not_written_and_are_counted() {
    let lake = Lake::begun(BY_ORG).await;
    lake.retain().await;
    // On the 8th: the 30th is too old for short, the 28th for others, the 20th not for long.
    put_rows(lake.dir.path(), "2.json", &[("short", 30), ("long", 20), ("other", 28), ("other", 30)]);
    let summary = lake.ingest().await;
    assert_eq!((summary.batches, summary.outcome.inserted, summary.outcome.skipped), (1, 2, 2));
    let mut wanted = left();
    wanted.extend(["long-20".to_owned()]);
    let rows = TableReader::new(&lake.shared(), "default/call").rows().await.unwrap();
    let ids: BTreeSet<String> = rows.iter().map(|row| row["id"].clone()).collect();
    assert_eq!((rows.len(), ids), (9 + 2, wanted));
    assert_eq!(lake.retain().await.batches, 0);
    // A batch of which nothing is left is finished, and its file taken.
    put_rows(lake.dir.path(), "3.json", &[("short", 31)]);
    let summary = lake.ingest().await;
    assert_eq!((summary.batches, summary.outcome.inserted, summary.outcome.skipped), (1, 0, 1));
    assert_eq!(lake.ingest().await.batches, 0);
}

/// An attempt that cannot be published is resolved again days later: what it wrote is written, what it left out is counted once.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_attempt_at_an_ingest_decides_as_the_one_that_read_the_source() {
    let lake = Lake::begun(BY_ORG).await;
    lake.retain().await;
    let convert = r#"{"request_id":"r1","org_id":"other","op":"convert","field":"lead","from":"l30","to":"c30","execution_time":"2026-01-05T00:00:00Z"}"#;
    put(lake.dir.path(), "requests", "1.json", convert);
    put_rows(lake.dir.path(), "2.json", &[("other", 28), ("other", 30), ("short", 30)]);
    let record = format!("{:020}.0000.json", 2);
    let puts_record = move |step: &Step| matches!(step, Step::Put(path) if path.as_ref().contains("ingest/call") && path.filename() == Some(&record));
    let (lab, store, clock) = (lake.lab.clone(), lake.shared(), lake.clock.clone());
    let paused = PauseStore::once_at(lake.shared(), puts_record, move || {
        let (lab, store, clock) = (lab.clone(), store.clone(), clock.clone());
        async move {
            let engine = lab.engine(&Store::over(store));
            whole(engine.mutate(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await);
            clock.advance_micros(30 * DAY_MICROS);
        }
        .boxed()
    });
    let engine = lake.lab.engine(&Store::over(Arc::new(paused)));
    let summary = whole(engine.ingest(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await);
    assert_eq!((summary.batches, summary.outcome.inserted, summary.outcome.skipped), (1, 1, 2));
    let rows = TableReader::new(&lake.shared(), "default/call").rows().await.unwrap();
    let leads: Vec<&str> = rows.iter().filter(|row| row["id"] == "other-30").map(|row| row["lead"].as_str()).collect();
    assert_eq!(leads, ["c30", "c30"], "it was resolved again");
    // A retention takes it then.
    lake.retain().await;
    assert_eq!(lake.ids().await.len(), 0);
}
