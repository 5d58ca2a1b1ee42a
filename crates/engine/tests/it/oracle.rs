//! The oracle run: random events and requests come in random files and waves, several processes ingest and mutate at the same time and die,
//! and at the end, and at every version on the way, the tables are what the oracle makes of them.
//!
//! `ORACLE_SEEDS=1..21 ORACLE_EVENTS=2500 ORACLE_REQUESTS=1500 ORACLE_WAVES=24` makes it as large as one likes.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alluvium_core::Kind;
use alluvium_engine::{Engine, Mode, RunSummary};
use alluvium_lake::Store;
use alluvium_testkit::{Fault, FaultStore, Lab, PauseStore};
use bytes::Bytes;
use futures::FutureExt;
use object_store::ObjectStore;

use crate::common::memory;
use crate::oracle_check::check;
use crate::oracle_history::{Dice, History, Size};

/// Runs without faults until nothing is left, at most: as many attempts as a request has, and some.
const MOST_QUIET_RUNS: usize = 12;
/// Processes at a time.
const PROCESSES: usize = 4;

/// A store that is slow now and then, so that processes meet in another order for every seed.
fn jittery(store: &Arc<dyn ObjectStore>, seed: u64) -> Arc<dyn ObjectStore> {
    let dice = std::sync::Mutex::new(Dice(seed));
    Arc::new(PauseStore::new(store.clone(), move |_| {
        let slow = dice.lock().unwrap().percent(6);
        let wait = async move {
            if slow {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        wait.boxed()
    }))
}

/// What a process does.
#[derive(Debug, Clone)]
enum Doing {
    Ingest,
    Mutate,
    All,
    Submit(Vec<(String, String)>),
}

async fn run(engine: &Engine, doing: Doing) -> alluvium_core::Result<RunSummary> {
    let datasets = engine.datasets(&[])?;
    match doing {
        Doing::Ingest => engine.ingest(&datasets, Mode::UntilIdle).await,
        Doing::Mutate => engine.mutate(&datasets, Mode::UntilIdle).await,
        Doing::All => engine.run_all(&datasets, Mode::UntilIdle).await,
        Doing::Submit(all) => {
            for (source, lines) in all {
                engine.submit_requests(&source, Bytes::from(lines)).await?;
            }
            engine.mutate(&datasets, Mode::UntilIdle).await
        }
    }
}

fn put_files(directory: &Path, files: &[(String, String, String)]) {
    for (kind, name, text) in files {
        let inbox = directory.join("inbox").join(kind);
        fs::create_dir_all(&inbox).unwrap();
        let unfinished = inbox.join(format!("{name}.tmp"));
        fs::write(&unfinished, text).unwrap();
        fs::rename(unfinished, inbox.join(name)).unwrap();
    }
}

/// Lets several processes run at once, some of which die, while files come.
async fn wave(lab: &Lab, store: &Arc<dyn ObjectStore>, directory: &Path, wave: &crate::oracle_history::Wave, dice: &mut Dice) {
    let (before, meanwhile) = wave.files.split_at(dice.below(wave.files.len() + 1));
    put_files(directory, before);
    let mut doings = vec![Doing::Ingest, Doing::Mutate, dice.one_of(&[Doing::Ingest, Doing::Mutate, Doing::All]).clone()];
    if !wave.submitted.is_empty() {
        doings.push(Doing::Submit(wave.submitted.clone()));
    }
    doings.truncate(PROCESSES);
    let tasks: Vec<_> = doings
        .into_iter()
        .map(|doing| {
            let n = 1 + dice.below(60) as u64;
            let fault = match dice.below(10) {
                0..3 => Some(Fault::DieBefore(n)),
                3..6 => Some(Fault::DieAfter(n)),
                6..8 => Some(Fault::ErrorAfterSuccess(n)),
                _ => None,
            };
            let slow = jittery(store, dice.next());
            let below = match fault {
                Some(fault) => Arc::new(FaultStore::new(slow).with_fault(fault)) as Arc<dyn ObjectStore>,
                None => slow,
            };
            let engine = lab.engine(&Store::over(below));
            tokio::spawn(async move { (fault, doing.clone(), run(&engine, doing).await) })
        })
        .collect();
    put_files(directory, meanwhile);
    for task in tasks {
        let (fault, doing, outcome) = task.await.unwrap();
        if matches!(fault, Some(Fault::DieBefore(_) | Fault::DieAfter(_))) {
            continue;
        }
        for (_, error) in outcome.unwrap().failed {
            assert_eq!(error.kind(), Kind::Fenced, "{doing:?} {fault:?}: {}", error.chain_text());
        }
    }
}

async fn world(seed: u64, size: Size) {
    let started = Instant::now();
    let history = History::new(seed, size);
    let directory = tempfile::tempdir().unwrap();
    let lab = Lab::new(directory.path(), &history.yaml);
    let store = memory();
    let mut dice = Dice(seed ^ 0x5EED);
    for one in &history.waves {
        wave(&lab, &store, directory.path(), one, &mut dice).await;
    }
    let came = started.elapsed();
    let quiet = |doing| async {
        let summary = run(&lab.engine(&Store::over(store.clone())), doing).await.unwrap();
        if let Some((dataset, error)) = summary.failed.first() {
            panic!("{dataset}: {}", error.chain_text());
        }
        summary.batches
    };
    // A process that died may not have submitted all; what was taken is not taken again.
    let submitted = history.waves.iter().flat_map(|w| w.submitted.clone()).collect();
    quiet(Doing::Submit(submitted)).await;
    let mut runs = 0;
    while quiet(Doing::All).await > 0 {
        runs += 1;
        assert!(runs < MOST_QUIET_RUNS, "there is always something left to do");
    }
    let ran = started.elapsed();
    check(&history, &lab, &store).await;
    let seconds = |time: Duration| time.as_secs_f64();
    println!(
        "seed {seed}: right; {:.1} s of waves, {:.1} s until idle, {:.1} s of checks",
        seconds(came),
        seconds(ran - came),
        seconds(started.elapsed() - ran)
    );
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("ORACLE_SEEDS") else { return 1..9 };
    let (first, end) = text.split_once("..").unwrap();
    first.parse().unwrap()..end.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_the_oracles_at_every_version_whatever_comes_in_what_order_and_whoever_dies() {
    let size =
        Size { events: number("ORACLE_EVENTS", 100), requests: number("ORACLE_REQUESTS", 90), waves: number("ORACLE_WAVES", 4) };
    for seed in seeds() {
        println!("seed {seed}");
        world(seed, size).await;
    }
}
