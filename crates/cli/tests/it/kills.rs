//! Processes that are killed at random moments, and several at once. The seed is printed: `ALLUVIUM_TEST_SEED` repeats it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use alluvium_testkit::Landed;

use crate::site::{Site, poll, wait_until};

const DATASETS: [&str; 2] = ["edit", "view"];

fn yaml(after: &str) -> String {
    let dataset = |name: &str| {
        format!(
            "  {name}:
    source: {{ files: {{ path: ./inbox/{name}, format: json, after: '{after}' }} }}
    org: org
    event_time: at
    fields: {{ org: string, at: timestamp, n: long }}
    layout: {{ partition_by: [org] }}
    batch: {{ max_rows: 40 }}
"
        )
    };
    format!("project: kills\nstorage: ./lake\ndurability: process\ndatasets:\n{}{}", dataset("edit"), dataset("view"))
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
            site.write(&format!("inbox/{dataset}/{:03}-{}.json", random.below(1000), self.files), text);
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
    DATASETS.iter().map(|d| fs::read_dir(site.path(&format!("inbox/{d}"))).unwrap().count()).sum()
}

#[test]
fn killed_thirty_times_while_files_arrive_lands_every_record_once() {
    let mut random = Random::new("killed_thirty_times");
    let site = Site::new(&yaml("move:./taken"));
    let mut sent = Sent::default();
    let mut killed = 0;
    for _ in 0..30 {
        for _ in 0..1 + random.below(3) {
            sent.send(&site, &mut random);
        }
        let mut child = site.start(&["run", "ingest"]);
        let deadline = Instant::now() + Duration::from_millis(random.below(500));
        match wait_until(&mut child, deadline) {
            Some(status) => assert_eq!(status.code(), Some(0)),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                killed += 1;
            }
        }
    }
    assert!(killed > 5, "only {killed} of 30 runs were killed: the moments are badly chosen");
    site.ok(&["run", "ingest"]);
    sent.check(&site);
    assert_eq!(inbox_files(&site), 0, "every taken file was moved");
}

#[test]
fn three_processes_at_once_one_killed_eight_rounds_land_every_record_once() {
    let mut random = Random::new("three_processes");
    for after in ["keep", "move:./taken"] {
        let site = Site::new(&yaml(after));
        let mut sent = Sent::default();
        for round in 0..8 {
            for _ in 0..3 {
                sent.send(&site, &mut random);
            }
            let mut children: Vec<_> = (0..3)
                .map(|i| {
                    let log = fs::File::create(site.path(&format!("stderr-{i}"))).unwrap();
                    site.command(&["run", "ingest"]).stdout(std::process::Stdio::null()).stderr(log).spawn().unwrap()
                })
                .collect();
            let deadline = Instant::now() + Duration::from_millis(50 + random.below(700));
            if wait_until(&mut children[0], deadline).is_none() {
                children[0].kill().unwrap();
                children[0].wait().unwrap();
            }
            sent.send(&site, &mut random);
            for (i, child) in children.iter_mut().enumerate().skip(1) {
                let code = child.wait().unwrap().code();
                let told = fs::read_to_string(site.path(&format!("stderr-{i}"))).unwrap();
                assert!(matches!(code, Some(0 | 5)), "after {after}, round {round}: exit code {code:?}: {told}");
            }
        }
        site.ok(&["run", "ingest"]);
        sent.check(&site);
    }
}

#[test]
fn sigterm_ends_a_big_run_within_five_seconds_and_the_next_run_completes_it() {
    const RECORDS: usize = 400_000;
    let site = Site::new(&yaml("keep").replace("max_rows: 40", "max_rows: 1000000"));
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
