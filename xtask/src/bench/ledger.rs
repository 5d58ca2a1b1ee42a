//! `cargo xtask bench ledger`: what many requests cost those who come after them.
//!
//! A lake takes in rows and applies conversions; then the same rows come once more, and a thousand more requests that are taken in, or
//! taken in and applied: each with the conversions before them and without. The rows come also where in place of each conversion there
//! is a deletion older than any row: as many ids are found, and no row changes. Each run works on a fresh copy, in a process of its own.
//! Look-ups: a row has one id in a field that requests name, which is held against the ledger in the time that the rows take longer.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::copies::{copy_dir, fresh_copy, write_anew};
use super::generate::{self, Input, Shape};
use super::measure::{self, Measured};
use super::mutate::{conversions, project_with_requests};
use super::options::{Bench, Options};
use super::report::median;
use super::{FILES, alluvium, binary, directory, remove};

const USAGE: &str = "\
usage: cargo xtask bench ledger [OPTIONS]

  --requests N    requests that are there before (1000000)
  --rows N        rows to take in, a million a batch (4000000)
  --orgs N        organisations, skewed (50)
  --runs R        runs of each, in turns; medians are printed (3)
  --memory SIZE   the budget (512MiB)
  --keep DIR      work there and leave the tables (default: the target directory's bench/, tables removed)
  --binary PATH   measure this alluvium instead of building one
";

/// Requests that come later.
const LATER: usize = 1_000;
/// Of a thousand, how many are of leads that the rows name.
const SHARE: u64 = 528;
/// The benchmark.
pub const BENCH: Bench =
    Bench { name: "ledger", usage: USAGE, rows: 4_000_000, memory: "512MiB", also: &["--memory", "--requests"], run: compare };

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    Rows,
    TakeIn,
    Apply,
}

/// The requests that are there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// They change the rows whose ids they name.
    Conversions,
    /// Of the same ids, and older than any row.
    Deletions,
}

impl Before {
    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Conversions => "conversions",
            Self::Deletions => "deletions",
        }
    }
}

/// The runs of a job after such requests.
struct Line {
    job: Job,
    before: Before,
    runs: Vec<Measured>,
}

impl Line {
    fn seconds(&self) -> f64 {
        median(&self.runs.iter().map(|run| run.wall).collect::<Vec<Duration>>()).as_secs_f64()
    }

    fn peak_mib(&self) -> f64 {
        median(&self.runs.iter().map(|run| run.peak_bytes).collect::<Vec<u64>>()) as f64 / f64::from(1 << 20)
    }
}

/// Lakes and the binary that works on them.
struct Place {
    binary: PathBuf,
    memory: String,
    work: PathBuf,
}

fn compare(options: &Options) -> io::Result<()> {
    let (binary, dir) = (binary(options)?, directory(options)?);
    let input = generate::input(&dir, Shape::new(options.rows, options.orgs, FILES))?;
    let place = Place { binary, memory: options.memory.clone(), work: dir.join("ledger") };
    remove(&place.work)?;
    let alone = place.lake(Before::Nothing);
    fs::create_dir_all(alone.join("requests"))?;
    fs::write(alone.join("alluvium.yaml"), project_with_requests(Path::new("./inbox"), "process", false))?;
    rows_come(&alone, &input, "a")?;
    let rows = place.run(&alone, "ingest")?;
    let requests = conversions(options.requests, SHARE, options.orgs);
    let come_before = |before: Before, requests: &str| {
        eprintln!("xtask: {} requests come: {}", options.requests, before.name());
        let lake = place.lake(before);
        copy_dir(&alone, &lake)?;
        fs::write(lake.join("requests/a.json"), requests)?;
        place.run(&lake, "mutate")
    };
    let first = come_before(Before::Conversions, &requests)?;
    come_before(Before::Deletions, &older_deletions(&requests))?;
    drop(requests);
    println!(
        "ledger: {} rows taken in in {:.1} s, then {} conversions taken in, folded and applied in {:.1} s, peak {} MiB (budget {})\n",
        options.rows,
        rows.wall.as_secs_f64(),
        options.requests,
        first.wall.as_secs_f64(),
        first.peak_bytes >> 20,
        options.memory
    );
    // Who takes requests in finds the last batch before in order first.
    for lake in [Before::Nothing, Before::Conversions].map(|before| place.lake(before)) {
        fs::write(lake.join("later.json"), conversions(1, SHARE, options.orgs).replace("\"r1\"", "\"first\""))?;
        place.submit(&lake)?;
    }
    let later = conversions(LATER, SHARE, options.orgs).replace("\"request_id\":\"r", "\"request_id\":\"later");
    let mut lines = [
        (Job::Rows, Before::Nothing),
        (Job::Rows, Before::Deletions),
        (Job::Rows, Before::Conversions),
        (Job::TakeIn, Before::Nothing),
        (Job::TakeIn, Before::Conversions),
        (Job::Apply, Before::Nothing),
        (Job::Apply, Before::Conversions),
    ]
    .map(|(job, before)| Line { job, before, runs: Vec::new() });
    for run in 0..options.runs {
        for line in &mut lines {
            eprintln!("xtask: run {} of {}: {:?}, before: {}", run + 1, options.runs, line.job, line.before.name());
            let copy = fresh_copy(&place.lake(line.before), &place.work)?;
            let measured = match line.job {
                Job::Rows => {
                    rows_come(&copy, &input, "b")?;
                    place.run(&copy, "ingest")?
                }
                Job::TakeIn => {
                    write_anew(&copy.join("later.json"), &later)?;
                    place.submit(&copy)?
                }
                Job::Apply => {
                    fs::write(copy.join("requests/b.json"), &later)?;
                    place.run(&copy, "mutate")?
                }
            };
            line.runs.push(measured);
        }
    }
    println!("{}", table(&lines, options.rows, options.requests));
    if options.keep.is_none() {
        remove(&place.work)?;
    }
    Ok(())
}

/// In place of each conversion a deletion of the same id that executes before any row's event time.
fn older_deletions(conversions: &str) -> String {
    let deletion = |conversion: &str| {
        let (head, _) = conversion.split_once(",\"to\":")?;
        let head = head.replace("\"op\":\"convert\"", "\"op\":\"delete\",\"scope\":\"subject\"").replace("\"from\":", "\"id\":");
        Some(format!("{head},\"execution_time\":\"2001-01-01T00:00:00Z\"}}\n"))
    };
    conversions.lines().filter_map(deletion).collect()
}

/// Puts the input into a lake's inbox, under names that begin so.
fn rows_come(lake: &Path, input: &Input, name: &str) -> io::Result<()> {
    let inbox = lake.join("inbox");
    fs::create_dir_all(&inbox)?;
    for (at, file) in input.files.iter().enumerate() {
        fs::hard_link(file, inbox.join(format!("{name}-{at:05}.json")))?;
    }
    Ok(())
}

impl Place {
    fn lake(&self, before: Before) -> PathBuf {
        self.work.join(before.name())
    }

    fn run(&self, lake: &Path, job: &str) -> io::Result<Measured> {
        let mut command = self.alluvium(lake);
        command.args(["run", job, "--output", "json", "--memory", &self.memory]);
        measure::run(command, &format!("alluvium run {job}"))
    }

    /// Takes in what came later.
    fn submit(&self, lake: &Path) -> io::Result<Measured> {
        let mut command = self.alluvium(lake);
        command.args(["request", "submit"]).arg(lake.join("later.json"));
        measure::run(command, "alluvium request submit")
    }

    fn alluvium(&self, lake: &Path) -> Command {
        let mut command = alluvium(&self.binary);
        command.arg("--project").arg(lake);
        command
    }
}

/// `ratio`: to the same job without requests before it.
fn table(lines: &[Line], rows: u64, requests: usize) -> String {
    let mut text = format!("{:<56}{:>8}{:>10}{:>8}{:>16}\n", "", "s", "peak MiB", "ratio", "look-ups a s");
    for line in lines {
        let alone = lines.iter().find(|other| other.job == line.job && other.before == Before::Nothing);
        let alone = alone.map_or_else(|| line.seconds(), Line::seconds);
        let what = match line.job {
            Job::Rows => format!("{rows} rows"),
            Job::TakeIn => format!("{LATER} requests taken in"),
            Job::Apply => format!("{LATER} requests applied"),
        };
        let name = match line.before {
            Before::Nothing => what,
            before => format!("{what}, {requests} {} before", before.name()),
        };
        let look_ups = match line.job {
            Job::Rows if line.before != Before::Nothing => {
                format!("{:.0}", rows as f64 / (line.seconds() - alone).max(f64::EPSILON))
            }
            _ => String::new(),
        };
        let (seconds, peak) = (line.seconds(), line.peak_mib());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<56}{seconds:>8.2}{peak:>10.0}{:>8}{look_ups:>16}", format!("{:.2}x", seconds / alone));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_are_of_the_ids_that_are_converted() {
        let deletions = older_deletions(&conversions(2, SHARE, 1));
        let first = deletions.lines().next().unwrap_or_default();
        assert_eq!(deletions.lines().count(), 2);
        let (head, id) = first.split_once("\"id\":\"00Q0001").unwrap_or_default();
        assert_eq!(
            head,
            "{\"request_id\":\"r1\",\"org_id\":\"00D000001\",\"op\":\"delete\",\"scope\":\"subject\",\"field\":\"lead_id\","
        );
        assert!(id.ends_with("\",\"execution_time\":\"2001-01-01T00:00:00Z\"}"), "{id}");
    }

    #[test]
    fn look_ups_are_counted_in_the_time_that_rows_take_longer() {
        let run =
            |ms| Measured { wall: Duration::from_millis(ms), cpu: Duration::ZERO, peak_bytes: 64 << 20, stdout: String::new() };
        let line = |job, before, ms| Line { job, before, runs: vec![run(ms)] };
        let lines = [
            line(Job::Rows, Before::Nothing, 2_000),
            line(Job::Rows, Before::Deletions, 3_000),
            line(Job::Apply, Before::Conversions, 500),
        ];
        let text = table(&lines, 700, 9);
        let words = |at| text.lines().nth(at).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(2), ["700", "rows,", "9", "deletions", "before", "3.00", "64", "1.50x", "700"]);
        assert_eq!(words(3), ["1000", "requests", "applied,", "9", "conversions", "before", "0.50", "64", "1.00x"]);
    }
}
