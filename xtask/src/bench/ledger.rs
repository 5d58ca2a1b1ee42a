//! `cargo xtask bench ledger`: what many requests cost those who come after them.
//!
//! A lake takes in rows and applies conversions; then the same rows come once more, and a thousand more requests that are taken in, or
//! taken in and applied: each with the conversions before them and without. Each run works on a fresh copy, in a process of its own. Look-ups: a row has one id in a field
//! that requests name, which is held against the ledger in the time that the rows take longer.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::generate::{self, Input, Shape};
use super::measure::{self, Measured};
use super::mutate::{conversions, copy_dir, project_with_requests, write_anew};
use super::options::{Bench, Options};
use super::report::median;
use super::{FILES, alluvium, binary, directory, remove};

const USAGE: &str = "\
usage: cargo xtask bench ledger [OPTIONS]

  --requests N    conversions that are there before (1000000)
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

/// The runs of a job, with or without the requests before it.
struct Line {
    job: Job,
    beside: bool,
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
    let alone = place.lake(false);
    fs::create_dir_all(alone.join("requests"))?;
    fs::write(alone.join("alluvium.yaml"), project_with_requests(Path::new("./inbox"), "process", false))?;
    rows_come(&alone, &input, "a")?;
    let rows = place.run(&alone, "ingest")?;
    let beside = place.lake(true);
    copy_dir(&alone, &beside)?;
    fs::write(beside.join("requests/a.json"), conversions(options.requests, SHARE, options.orgs))?;
    let first = place.run(&beside, "mutate")?;
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
    for lake in [&alone, &beside] {
        fs::write(lake.join("later.json"), conversions(1, SHARE, options.orgs).replace("\"r1\"", "\"first\""))?;
        place.submit(lake)?;
    }
    let later = conversions(LATER, SHARE, options.orgs).replace("\"request_id\":\"r", "\"request_id\":\"later");
    let mut lines: Vec<Line> = [Job::Rows, Job::TakeIn, Job::Apply]
        .into_iter()
        .flat_map(|job| [false, true].map(|beside| Line { job, beside, runs: Vec::new() }))
        .collect();
    for run in 0..options.runs {
        for line in &mut lines {
            eprintln!("xtask: run {} of {}: {:?}, requests before: {}", run + 1, options.runs, line.job, line.beside);
            let copy = place.work.join("run");
            remove(&copy)?;
            copy_dir(&place.lake(line.beside), &copy)?;
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
    fn lake(&self, beside: bool) -> PathBuf {
        self.work.join(if beside { "beside" } else { "alone" })
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
    let mut text = format!("{:<52}{:>8}{:>10}{:>8}{:>16}\n", "", "s", "peak MiB", "ratio", "look-ups a s");
    for line in lines {
        let alone = lines.iter().find(|other| other.job == line.job && !other.beside);
        let alone = alone.map_or_else(|| line.seconds(), Line::seconds);
        let what = match line.job {
            Job::Rows => format!("{rows} rows"),
            Job::TakeIn => format!("{LATER} requests taken in"),
            Job::Apply => format!("{LATER} requests applied"),
        };
        let name = if line.beside { format!("{what}, {requests} requests before") } else { what };
        let look_ups = match line.job {
            Job::Rows if line.beside => {
                format!("{:.0}", rows as f64 / (line.seconds() - alone).max(f64::EPSILON))
            }
            _ => String::new(),
        };
        let (seconds, peak) = (line.seconds(), line.peak_mib());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<52}{seconds:>8.2}{peak:>10.0}{:>8}{look_ups:>16}", format!("{:.2}x", seconds / alone));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_are_counted_in_the_time_that_rows_take_longer() {
        let run =
            |ms| Measured { wall: Duration::from_millis(ms), cpu: Duration::ZERO, peak_bytes: 64 << 20, stdout: String::new() };
        let line = |job, beside, ms| Line { job, beside, runs: vec![run(ms)] };
        let lines = [line(Job::Rows, false, 2_000), line(Job::Rows, true, 3_000), line(Job::Apply, true, 500)];
        let text = table(&lines, 700, 9);
        let words = |at| text.lines().nth(at).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(2), ["700", "rows,", "9", "requests", "before", "3.00", "64", "1.50x", "700"]);
        assert_eq!(words(3), ["1000", "requests", "applied,", "9", "requests", "before", "0.50", "64", "1.00x"]);
    }
}
