//! `cargo xtask bench mutate`: conversions applied to a table, measured against deltalake's MERGE on a copy of it and against `cp`.
//!
//! One lake is taken in once; every run works on a fresh copy of it, in a process of its own, timed from before its start to after
//! its end. Both read the same file of requests and commit; a run that does not change as many rows as the others is an error. `cp`
//! copies the whole table: about the least that rewriting every file can take.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::copies::{fresh_copy, write_anew};
use super::generate::{self, Random, Shape, WIDE_COLUMNS, Zipf};
use super::measure::{self, Measured};
use super::options::{Bench, Options, SMALL_MEMORY};
use super::report::median;
use super::{FILES, alluvium, binary, directory, project, python, remove};
use crate::steps;

const USAGE: &str = "\
usage: cargo xtask bench mutate [OPTIONS]

  --rows N        rows of the table, a million a batch (4000000)
  --orgs N        organisations, skewed (50); with 1, row groups are as large as they get
  --wide          rows of 60 columns, one of them 4 KiB of JSON; take fewer of them
  --runs R        runs of each, in turns; medians are printed (3)
  --memory SIZE   the budget of one more line (256MiB)
  --keep DIR      work there and leave the table (default: the target directory's bench/, table removed)
  --binary PATH   measure this alluvium instead of building one
";

/// Conversions of a run, and how many of a thousand are of a lead that may have rows. Of the rest no row is found, as with leads
/// that a CRM knows and no activity names.
const CASES: [(usize, u64); 2] = [(1_000, 142), (50_000, 528)];

/// The benchmark.
pub const BENCH: Bench =
    Bench { name: "mutate", usage: USAGE, rows: 4_000_000, memory: SMALL_MEMORY, also: &["--memory", "--wide"], run: compare };

/// A way to apply the requests.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Contender {
    Alluvium {
        durability: &'static str,
        memory: Option<String>,
    },
    /// With Delta's change data feed.
    AlluviumFeed,
    Merge,
    /// With its change data feed.
    MergeFeed,
    Copy,
}

impl Contender {
    fn name(&self) -> String {
        match self {
            Self::Alluvium { durability, memory: None } => format!("alluvium, {durability}"),
            Self::Alluvium { durability, memory: Some(memory) } => format!("alluvium, {durability}, {memory}"),
            Self::AlluviumFeed => "alluvium, process, feed".to_owned(),
            Self::Merge => "deltalake MERGE".to_owned(),
            Self::MergeFeed => "deltalake MERGE, feed".to_owned(),
            Self::Copy => "cp of the table".to_owned(),
        }
    }
}

impl Contender {
    /// The project it runs in.
    fn project(&self, input: &Path, wide: bool) -> String {
        match self {
            Self::Alluvium { durability, .. } => project_with_requests(input, durability, wide),
            _ => project_with_requests(input, "process", wide)
                .replace("    key: event_id\n", "    key: event_id\n    change_data_feed: true\n"),
        }
    }
}

/// The runs of one contender on one case.
struct Line {
    contender: Contender,
    runs: Vec<Measured>,
    /// What the last run printed of the files it rewrote.
    rewritten: Option<u64>,
}

impl Line {
    fn seconds(&self) -> f64 {
        median(&self.runs.iter().map(|run| run.wall).collect::<Vec<Duration>>()).as_secs_f64()
    }
}

fn compare(options: &Options) -> io::Result<()> {
    let (binary, dir) = (binary(options)?, directory(options)?);
    let input = generate::input(&dir, Shape { wide: options.wide, ..Shape::new(options.rows, options.orgs, FILES) })?;
    let work = dir.join("mutate");
    remove(&work)?;
    let base = work.join("base");
    fs::create_dir_all(&base)?;
    eprintln!("xtask: taking in {} rows", options.rows);
    fs::write(base.join("alluvium.yaml"), project_with_requests(&input.dir, "process", options.wide))?;
    let mut ingest = alluvium(&binary);
    ingest.args(["run", "ingest", "--output", "json", "--project"]).arg(&base);
    measure::run(ingest, "alluvium run ingest")?;
    let (files, bytes) = measure::data_files(&table_dir(&base))?;

    let mut contenders = vec![
        Contender::Alluvium { durability: "process", memory: None },
        Contender::Alluvium { durability: "disk", memory: None },
        Contender::Alluvium { durability: "process", memory: Some(options.memory.clone()) },
        Contender::AlluviumFeed,
    ];
    let python = python();
    match &python {
        Some(_) => contenders.extend([Contender::Merge, Contender::MergeFeed]),
        None => {
            eprintln!("xtask: no Python with deltalake: the peer is left out (set ALLUVIUM_TEST_PYTHON, or run .ci/run once)")
        }
    }
    contenders.push(Contender::Copy);
    for (count, share) in CASES {
        let requests = work.join(format!("{count}.json"));
        fs::write(&requests, conversions(count, share, options.orgs))?;
        let mut lines: Vec<Line> =
            contenders.iter().map(|c| Line { contender: c.clone(), runs: Vec::new(), rewritten: None }).collect();
        let mut updated = None;
        for run in 0..options.runs {
            for line in &mut lines {
                eprintln!("xtask: {count} conversions, run {} of {}: {}", run + 1, options.runs, line.contender.name());
                let copy = fresh_copy(&base, &work)?;
                let (measured, changed) = match &line.contender {
                    Contender::Alluvium { .. } | Contender::AlluviumFeed => {
                        write_anew(&copy.join("alluvium.yaml"), &line.contender.project(&input.dir, options.wide))?;
                        fs::create_dir(copy.join("requests"))?;
                        fs::copy(&requests, copy.join("requests/requests.json"))?;
                        let mut command = alluvium(&binary);
                        command.args(["run", "mutate", "--output", "json", "--project"]).arg(&copy);
                        if let Contender::Alluvium { memory: Some(memory), .. } = &line.contender {
                            command.args(["--memory", memory]);
                        }
                        let measured = measure::run(command, &line.contender.name())?;
                        let summary = measured.stdout.lines().last().unwrap_or_default();
                        line.rewritten = measure::json_number(summary, "files_rewritten");
                        let changed = measure::json_number(summary, "updated");
                        (measured, changed)
                    }
                    Contender::Merge | Contender::MergeFeed => {
                        let Some(python) = &python else { continue };
                        let mut command = Command::new(python);
                        command.arg(steps::root().join("xtask/python/peer_mutate.py")).arg(table_dir(&copy)).arg(&requests);
                        if line.contender == Contender::MergeFeed {
                            command.arg("feed");
                        }
                        let measured = measure::run(command, "peer_mutate.py")?;
                        let changed = measure::json_number(&measured.stdout, "updated");
                        (measured, changed)
                    }
                    Contender::Copy => {
                        let mut command = Command::new("cp");
                        command.arg("-a").arg(table_dir(&base)).arg(copy.join("copy"));
                        (measure::run(command, "cp")?, updated)
                    }
                };
                updated = updated.or(changed);
                if changed.is_none() || changed != updated {
                    return Err(io::Error::other(format!(
                        "{} changed {changed:?} rows, the first contender {updated:?}; it printed:\n{}",
                        line.contender.name(),
                        measured.stdout
                    )));
                }
                line.runs.push(measured);
            }
        }
        println!(
            "mutate: {count} conversions, {} rows of {}{}, in {files} files of {:.0} MB, {} organisations; medians of {} runs\n",
            updated.unwrap_or_default(),
            options.rows,
            if options.wide { " wide ones" } else { "" },
            bytes as f64 / 1e6,
            options.orgs,
            options.runs
        );
        println!("{}", table(&lines));
    }
    if options.keep.is_none() {
        remove(&work)?;
    }
    Ok(())
}

/// The project of `bench ingest`, with requests from files.
pub(super) fn project_with_requests(input: &Path, durability: &str, wide: bool) -> String {
    let mut project = project(input, durability) + "requests: { source: { files: { path: ./requests, format: json } } }\n";
    if wide {
        let kind = |column: u32| if column.is_multiple_of(3) { "long" } else { "string" };
        let columns: String = (1..WIDE_COLUMNS).map(|column| format!("      c{column:02}: {}\n", kind(column))).collect();
        project = project.replace("    identities:", &format!("{columns}      payload: string\n    identities:"));
    }
    project
}

fn table_dir(project: &Path) -> PathBuf {
    project.join("lake/default/activity")
}

/// `count` conversions of as many leads as JSON lines; `share` of a thousand are of leads that the input may name.
pub(super) fn conversions(count: usize, share: u64, orgs: u32) -> String {
    let zipf = Zipf::new(orgs);
    let mut random = Random::new(count as u64);
    let mut text = String::new();
    let mut seen = BTreeSet::new();
    while seen.len() < count {
        let org = zipf.pick(random.unit());
        // A lead with one more letter sorts among the others: no statistics tell that it has no rows.
        let named = random.below(1000) < share;
        let leads = if named { 200_000 } else { 200_000.max(count as u64) };
        let from = format!("00Q{org:04}{:06}{}", random.below(leads), if named { "" } else { "x" });
        if seen.insert(from.clone()) {
            let at = seen.len();
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{{\"request_id\":\"r{at}\",\"org_id\":\"00D{org:06}\",\"op\":\"convert\",\"field\":\"lead_id\",\
                 \"from\":\"{from}\",\"to\":\"003{org:04}{at:06}\",\"execution_time\":\"2026-06-01T00:00:00Z\"}}"
            );
        }
    }
    text
}

/// `speed`: how many times as fast as MERGE, which has a feed where the contender has one; `memory`: the share of its peak.
fn table(lines: &[Line]) -> String {
    let peak = |line: &Line| median(&line.runs.iter().map(|run| run.peak_bytes).collect::<Vec<u64>>()) as f64;
    let peer = |line: &Line| match line.contender {
        Contender::AlluviumFeed | Contender::MergeFeed => Contender::MergeFeed,
        _ => Contender::Merge,
    };
    let mut text = format!("{:<28}{:>8}{:>8}{:>10}{:>8}{:>10}{:>10}\n", "", "s", "cpu s", "peak MiB", "files", "speed", "memory");
    for line in lines {
        let cpu = median(&line.runs.iter().map(|run| run.cpu).collect::<Vec<Duration>>()).as_secs_f64();
        let merge = lines.iter().find(|other| other.contender == peer(line));
        let files = line.rewritten.map_or_else(String::new, |files| files.to_string());
        let speed = merge.map_or_else(String::new, |merge| format!("{:.2}x", merge.seconds() / line.seconds()));
        let memory = merge.map_or_else(String::new, |merge| format!("{:.2}x", peak(line) / peak(merge)));
        let _ = writeln!(
            text,
            "{:<28}{:>8.2}{cpu:>8.2}{:>10.0}{files:>8}{speed:>10}{memory:>10}",
            line.contender.name(),
            line.seconds(),
            peak(line) / f64::from(1 << 20),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_of_as_many_different_leads() {
        let text = conversions(1_000, 142, 50);
        let froms: BTreeSet<&str> = text.lines().filter_map(|line| line.split("\"from\":\"").nth(1)?.split('"').next()).collect();
        assert_eq!((text.lines().count(), froms.len()), (1_000, 1_000));
        let named = froms.iter().filter(|from| !from.ends_with('x')).count();
        assert!((110..175).contains(&named), "{named}");
        assert_eq!(text, conversions(1_000, 142, 50));
    }

    #[test]
    fn the_table_compares_with_merge() {
        let run = |ms, mib: u64| Measured {
            wall: Duration::from_millis(ms),
            cpu: Duration::from_millis(ms * 2),
            peak_bytes: mib << 20,
            stdout: String::new(),
        };
        let ours = Contender::Alluvium { durability: "disk", memory: None };
        let ours = Line { contender: ours, runs: vec![run(900, 90), run(500, 70), run(700, 80)], rewritten: Some(4) };
        let merge = Line { contender: Contender::Merge, runs: vec![run(7000, 320)], rewritten: None };
        let text = table(&[ours, merge]);
        let words = |at| text.lines().nth(at).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(1), ["alluvium,", "disk", "0.70", "1.40", "80", "4", "10.00x", "0.25x"]);
        assert_eq!(words(2), ["deltalake", "MERGE", "7.00", "14.00", "320", "1.00x", "1.00x"]);
    }
}
