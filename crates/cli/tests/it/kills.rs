//! Processes that are killed at random moments, and several at once. The seed is printed: `ALLUVIUM_TEST_SEED` repeats it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use alluvium_testkit::{Landed, StoreKind, TestStore};

use crate::site::{Site, poll, wait_until};

const DATASETS: [&str; 2] = ["edit", "view"];

/// `taken`: where files go whose rows have landed; they stay without it.
fn yaml(store: &TestStore, taken: Option<&str>) -> String {
    let after = taken.map_or("keep".to_owned(), |place| format!("move:{}", store.beside(place)));
    let (storage, inbox) = (store.storage(), store.beside("inbox"));
    let dataset = |name: &str| {
        format!(
            "  {name}:
    source: {{ files: {{ path: '{inbox}/{name}', format: json, after: '{after}' }} }}
    org: org
    event_time: at
    fields: {{ org: string, at: timestamp, n: long }}
    layout: {{ partition_by: [org] }}
    batch: {{ max_rows: 40 }}
"
        )
    };
    format!("project: kills\nstorage: '{storage}'\ndurability: process\ndatasets:\n{}{}", dataset("edit"), dataset("view"))
}

/// Marsaglia's xorshift: good enough to choose moments.
struct Random(u64);

impl Random {
    fn new(test: &str) -> Self {
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos().into();
        let seed: u64 = std::env::var("ALLUVIUM_TEST_SEED").map_or_else(|_| now(), |text| text.parse().unwrap());
        eprintln!("{test}: ALLUVIUM_TEST_SEED={seed}");
        Self(seed * 2 + 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What was put into the inboxes: records and refusals, by dataset.
#[derive(Default)]
struct Sent {
    files: u64,
    rows: BTreeMap<&'static str, u64>,
    refused: BTreeMap<&'static str, u64>,
}

impl Sent {
    /// Puts a file of some records into each inbox.
    fn send(&mut self, site: &Site, random: &mut Random) {
        for dataset in DATASETS {
            let records = 1 + random.below(70);
            let mut text = String::new();
            for i in 0..records {
                let bad = random.below(17) == 0;
                let n = if bad { "\"no number\"".to_owned() } else { i.to_string() };
                text += &format!("{{\"org\":\"o{}\",\"at\":\"2026-01-0{}\",\"n\":{n}}}\n", random.below(4), 1 + random.below(3));
                *if bad { &mut self.refused } else { &mut self.rows }.entry(dataset).or_default() += 1;
            }
            // Names in no order: later files sort before earlier ones, too.
            self.files += 1;
            site.deliver(&format!("inbox/{dataset}/{:03}-{}.json", random.below(1000), self.files), text);
        }
    }

    /// Checks that exactly this landed.
    fn check(&self, site: &Site) {
        for dataset in DATASETS {
            let landed: Landed = site.landed(dataset, "org");
            let count = |counts: &BTreeMap<&str, u64>| counts.get(dataset).copied().unwrap_or(0);
            assert_eq!(landed.rows.len() as u64, count(&self.rows), "rows of {dataset}");
            assert_eq!(landed.dead_letters.len() as u64, count(&self.refused), "dead letters of {dataset}");
            let told: u64 = landed.notifications.iter().map(|r| r["inserted"].parse::<u64>().unwrap()).sum();
            assert_eq!(told, count(&self.rows), "notifications of {dataset}");
        }
    }
}

fn inbox_files(site: &Site) -> usize {
    DATASETS.iter().map(|d| site.delivered(&format!("inbox/{d}"))).sum()
}

/// Runs that are killed within the time that one takes here, while files arrive.
fn killed_while_files_arrive(kind: StoreKind, runs: u64) {
    let mut random = Random::new("killed_while_files_arrive");
    let Some(site) = Site::on(kind, |store| yaml(store, Some("taken"))) else { return };
    let mut sent = Sent::default();
    sent.send(&site, &mut random);
    let began = Instant::now();
    site.ok(&["run", "ingest"]);
    let within_ms = began.elapsed().as_millis() as u64;
    let mut killed = 0;
    for _ in 0..runs {
        for _ in 0..1 + random.below(3) {
            sent.send(&site, &mut random);
        }
        let mut child = site.start(&["run", "ingest"]);
        let deadline = Instant::now() + Duration::from_millis(random.below(within_ms));
        match wait_until(&mut child, deadline) {
            Some(status) => assert_eq!(status.code(), Some(0)),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                killed += 1;
            }
        }
    }
    assert!(killed > runs / 6, "only {killed} of {runs} runs were killed: the moments are badly chosen");
    site.ok(&["run", "ingest"]);
    sent.check(&site);
    assert_eq!(inbox_files(&site), 0, "every taken file was moved");
}

#[test]
fn killed_thirty_times_while_files_arrive_lands_every_record_once() {
    killed_while_files_arrive(StoreKind::Local, 30);
}

#[test]
fn killed_twelve_times_on_s3_lands_every_record_once() {
    killed_while_files_arrive(StoreKind::S3, 12);
}

#[test]
fn killed_twelve_times_on_azure_lands_every_record_once() {
    killed_while_files_arrive(StoreKind::Azure, 12);
}

/// Three processes at once, of which one is killed within `within_ms`; some rounds after each other.
fn three_at_once(kind: StoreKind, taken: Option<&str>, rounds: u64, within_ms: u64) {
    let mut random = Random::new("three_at_once");
    let Some(site) = Site::on(kind, |store| yaml(store, taken)) else { return };
    let mut sent = Sent::default();
    for round in 0..rounds {
        for _ in 0..3 {
            sent.send(&site, &mut random);
        }
        let mut children: Vec<_> = (0..3)
            .map(|i| {
                let log = fs::File::create(site.path(&format!("stderr-{i}"))).unwrap();
                site.command(&["run", "ingest"]).stdout(std::process::Stdio::null()).stderr(log).spawn().unwrap()
            })
            .collect();
        let deadline = Instant::now() + Duration::from_millis(50 + random.below(within_ms));
        if wait_until(&mut children[0], deadline).is_none() {
            children[0].kill().unwrap();
            children[0].wait().unwrap();
        }
        sent.send(&site, &mut random);
        for (i, child) in children.iter_mut().enumerate().skip(1) {
            let code = child.wait().unwrap().code();
            let told = fs::read_to_string(site.path(&format!("stderr-{i}"))).unwrap();
            assert!(matches!(code, Some(0 | 5)), "{kind:?}, moved to {taken:?}, round {round}: exit code {code:?}: {told}");
        }
    }
    site.ok(&["run", "ingest"]);
    sent.check(&site);
}

#[test]
fn three_processes_at_once_one_killed_eight_rounds_land_every_record_once() {
    three_at_once(StoreKind::Local, None, 8, 700);
    three_at_once(StoreKind::Local, Some("taken"), 8, 700);
}

#[test]
fn three_processes_on_s3_one_killed_three_rounds_land_every_record_once() {
    three_at_once(StoreKind::S3, Some("taken"), 3, 1500);
}

#[test]
fn three_processes_on_azure_one_killed_three_rounds_land_every_record_once() {
    three_at_once(StoreKind::Azure, None, 3, 2500);
}

/// A reader downstream: its copy of the table by where each row came from, and the rows of which it does not know that they were
/// acknowledged, as what acknowledged them was killed.
#[derive(Default)]
struct Copy {
    rows: BTreeMap<(String, u64), String>,
    uncertain: BTreeSet<(String, u64)>,
    killed: u64,
    /// How long the last run took that was not killed.
    usual: Duration,
}

impl Copy {
    /// Runs the program, which is killed, if `kill` says so, within about the time that it usually takes. Whether it ended.
    fn run(&mut self, site: &Site, random: &mut Random, args: &[&str], to: &Path, kill: bool) -> bool {
        let mut command = site.command(args);
        let begun = Instant::now();
        let mut child = command.stdout(fs::File::create(to).unwrap()).stderr(std::process::Stdio::null()).spawn().unwrap();
        let within_ms = u64::try_from(self.usual.as_millis()).unwrap().max(20);
        if kill && wait_until(&mut child, begun + Duration::from_millis(random.below(within_ms))).is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
            self.killed += 1;
            return false;
        }
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}");
        if !kill {
            self.usual = begun.elapsed();
        }
        true
    }

    /// Uses what was printed, if it is whole; its token.
    fn take(&mut self, printed: &Path) -> Option<String> {
        let text = fs::read_to_string(printed).ok()?;
        // A line that was cut short ends what counts.
        let mut lines: Vec<serde_json::Value> = text.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
        let next = lines.pop()?["next"].as_str()?.to_owned();
        for row in lines {
            assert_eq!(row["_change_type"], "insert");
            let place = (row["_source"].as_str().unwrap().to_owned(), row["_offset"].as_u64().unwrap());
            let twice = self.rows.insert(place.clone(), row["n"].to_string());
            let expected = twice.is_none() || self.uncertain.contains(&place);
            assert!(expected, "{place:?} was acknowledged, and is given again");
            self.uncertain.insert(place);
        }
        Some(next)
    }
}

#[test]
fn a_consumer_killed_while_it_comes_and_goes_over_ten_batches_has_a_copy_that_equals_the_table() {
    let mut random = Random::new("a_consumer_killed_while_it_comes_and_goes");
    let site = Site::on(StoreKind::Local, |store| yaml(store, None)).expect("the local disk is there");
    let (mut sent, mut copy) = (Sent::default(), Copy::default());
    let (printed, file) = (site.path("printed"), site.path("file.json"));
    let by_hand = ["changes", "edit", "--rows", "--consumer", "copy"];
    let by_itself = ["changes", "edit", "--rows", "--consumer", "copy", "--commit", "--to", "file.json"];
    for _ in 0..10 {
        sent.send(&site, &mut random);
        site.ok(&["run", "ingest"]);
        for _ in 0..3 {
            let kill = random.below(2) == 0;
            if random.below(2) == 0 {
                // Read, use, acknowledge; killed in the reading or in the acknowledging.
                if !copy.run(&site, &mut random, &by_hand, &printed, kill) {
                    continue;
                }
                let next = copy.take(&printed).expect("it ended");
                let kill = random.below(2) == 0;
                if copy.run(&site, &mut random, &["consumers", "commit", "copy", &next], &printed, kill) {
                    copy.uncertain.clear();
                }
            } else {
                // The file has its name before the consumer moves: it is used also if the program was killed after that.
                let _ = fs::remove_file(&file);
                let ended = copy.run(&site, &mut random, &by_itself, &printed, kill);
                let taken = copy.take(&file);
                assert!(taken.is_some() || !ended, "it ended without a file");
                if ended {
                    copy.uncertain.clear();
                }
            }
        }
    }
    assert!(copy.killed > 3, "only {} were killed: the moments are badly chosen", copy.killed);
    assert!(copy.run(&site, &mut random, &by_itself, &printed, false));
    assert!(copy.take(&file).is_some());
    let table = site.landed("edit", "org").rows;
    let table: BTreeMap<_, _> =
        table.iter().map(|r| ((r["_source"].clone(), r["_offset"].parse::<u64>().unwrap()), r["n"].clone())).collect();
    assert_eq!(copy.rows, table);
}

#[test]
fn sigterm_ends_a_big_run_within_five_seconds_and_the_next_run_completes_it() {
    const RECORDS: usize = 400_000;
    let big = |store: &TestStore| yaml(store, None).replace("max_rows: 40", "max_rows: 1000000");
    let site = Site::on(StoreKind::Local, big).expect("the local disk is there");
    let mut text = String::with_capacity(RECORDS * 70);
    for i in 0..RECORDS {
        text += &format!("{{\"org\":\"o{}\",\"at\":\"2026-01-0{}T00:00:00Z\",\"n\":{i}}}\n", i % 7, 1 + i % 3);
    }
    site.write("inbox/edit/big.json", text);
    let mut child = site.start(&["run", "ingest"]);
    let table = site.path("lake/default/edit/_delta_log/00000000000000000000.json");
    poll("the run makes its table", || table.exists());
    let asked = Instant::now();
    let signalled = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let status = wait_until(&mut child, asked + Duration::from_secs(5)).expect("it ends within five seconds");
    assert_eq!(status.code(), Some(0));
    site.ok(&["run", "ingest"]);
    let landed = site.landed("edit", "org");
    assert_eq!(landed.rows.len(), RECORDS);
    let sum: usize = landed.rows.iter().map(|r| r["n"].parse::<usize>().unwrap()).sum();
    assert_eq!(sum, RECORDS * (RECORDS - 1) / 2);
}
