//! `cargo xtask bench changes`: reading the rows of one batch as changes, measured against deltalake's `load_cdf`.
//!
//! The same rows are taken in by Alluvium in one batch, and written by deltalake in one commit to a table with Delta's change data
//! feed; then each is read as changes from its beginning, in turns. `load_cdf` is timed inside its process, without the start of
//! Python and its imports; Alluvium is timed from before its start to after its end. Like is compared with like: rows that go nowhere
//! with rows in memory, a file with a file, both synced.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::generate::{self, Shape};
use super::measure;
use super::options::{Bench, Options, SMALL_MEMORY};
use super::report::median;
use super::{FILES, alluvium, binary, directory, project, python, remove};
use crate::steps;

const USAGE: &str = "\
usage: cargo xtask bench changes [OPTIONS]

  --rows N        rows of the batch (1000000)
  --orgs N        organisations, skewed (50)
  --runs R        runs of each, in turns; medians are printed (3)
  --keep DIR      work there and leave the tables (default: the target directory's bench/, tables removed)
  --binary PATH   measure this alluvium instead of building one
";

/// The benchmark.
pub const BENCH: Bench = Bench { name: "changes", usage: USAGE, rows: 1_000_000, memory: SMALL_MEMORY, also: &[], run: compare };

/// Where what is read goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Nowhere: `/dev/null`, or batches in memory that are dropped.
    Nowhere,
    /// A file, synced.
    File,
}

/// A way to read the changes.
struct Line {
    name: &'static str,
    kept: Kept,
    /// Arguments of `alluvium changes`; none: `load_cdf`.
    args: Option<&'static [&'static str]>,
    walls: Vec<Duration>,
    cpus: Vec<Duration>,
    peaks: Vec<u64>,
}

/// One reading: from start to end, on all cores together, and the most memory.
struct Reading {
    wall: Duration,
    cpu: Duration,
    peak_bytes: u64,
}

impl Line {
    const fn new(name: &'static str, kept: Kept, args: Option<&'static [&'static str]>) -> Self {
        Self { name, kept, args, walls: Vec::new(), cpus: Vec::new(), peaks: Vec::new() }
    }
}

fn compare(options: &Options) -> io::Result<()> {
    let (binary, dir) = (binary(options)?, directory(options)?);
    let input = generate::input(&dir, Shape::new(options.rows, options.orgs, FILES))?;
    let work = dir.join("changes");
    remove(&work)?;
    fs::create_dir_all(&work)?;

    eprintln!("xtask: taking in {} rows", options.rows);
    fs::write(work.join("alluvium.yaml"), project(&input.dir, "process"))?;
    let mut ingest = alluvium(&binary);
    ingest.args(["run", "ingest", "--output", "json", "--project"]).arg(&work);
    measure::run(ingest, "alluvium run ingest")?;
    let python = python();
    match &python {
        Some(python) => {
            eprintln!("xtask: the same rows by deltalake, with its change data feed");
            let mut peer = Command::new(python);
            peer.arg(steps::root().join("xtask/python/peer_ingest.py")).arg("--feed").arg(work.join("peer")).args(&input.files);
            measure::run(peer, "peer_ingest.py")?;
        }
        None => {
            eprintln!("xtask: no Python with deltalake: the peer is left out (set ALLUVIUM_TEST_PYTHON, or run .ci/run once)")
        }
    }

    const ARROW: &[&str] = &["--format", "arrow"];
    let mut lines = vec![
        Line::new("alluvium, Arrow, nowhere", Kept::Nowhere, Some(ARROW)),
        Line::new("alluvium, JSON lines, nowhere", Kept::Nowhere, Some(&["--format", "json"])),
        Line::new("alluvium, Arrow file", Kept::File, Some(ARROW)),
        Line::new("alluvium, Arrow file, 64MiB", Kept::File, Some(&["--format", "arrow", "--memory", "64MiB"])),
        Line::new("alluvium, JSON lines", Kept::File, Some(&["--format", "json"])),
        Line::new("alluvium, Parquet file", Kept::File, Some(&["--format", "parquet"])),
    ];
    if python.is_some() {
        lines.push(Line::new("load_cdf, in memory", Kept::Nowhere, None));
        lines.push(Line::new("load_cdf, Arrow file", Kept::File, None));
    }
    for run in 0..options.runs {
        for line in &mut lines {
            eprintln!("xtask: run {} of {}: {}", run + 1, options.runs, line.name);
            let Reading { wall, cpu, peak_bytes } = match (line.args, &python) {
                (Some(args), _) => read_changes(&binary, &work, line.kept, args)?,
                (None, Some(python)) => load_cdf(python, &work, line.kept, options.rows)?,
                (None, None) => continue,
            };
            line.walls.push(wall);
            line.cpus.push(cpu);
            line.peaks.push(peak_bytes);
        }
    }
    print!("{}", table(options, &lines));
    if options.keep.is_none() {
        remove(&work)?;
    }
    Ok(())
}

/// The file that is read into.
fn out(work: &Path) -> PathBuf {
    work.join("changes.out")
}

fn read_changes(binary: &Path, work: &Path, kept: Kept, args: &[&str]) -> io::Result<Reading> {
    let mut command = alluvium(binary);
    command.args(["changes", "activity", "--rows"]).args(args).arg("--project").arg(work).arg("--to");
    match kept {
        Kept::Nowhere => command.arg("/dev/null"),
        Kept::File => command.arg(out(work)),
    };
    let measured = measure::run(command, "alluvium changes")?;
    if kept == Kept::File {
        fs::remove_file(out(work))?;
    }
    if !measured.stdout.starts_with("{\"next\":") {
        return Err(io::Error::other(format!("alluvium changes printed no token: {}", measured.stdout)));
    }
    Ok(Reading { wall: measured.wall, cpu: measured.cpu, peak_bytes: measured.peak_bytes })
}

fn load_cdf(python: &Path, work: &Path, kept: Kept, rows: u64) -> io::Result<Reading> {
    let mut command = Command::new(python);
    command.arg(steps::root().join("xtask/python/peer_changes.py")).arg(work.join("peer"));
    if kept == Kept::File {
        command.arg(out(work));
    }
    let measured = measure::run(command, "peer_changes.py")?;
    if kept == Kept::File {
        fs::remove_file(out(work))?;
    }
    if measure::json_number(&measured.stdout, "rows") != Some(rows) {
        return Err(io::Error::other(format!("load_cdf did not read {rows} rows: {}", measured.stdout)));
    }
    let time = |name| Duration::from_micros(measure::json_number(&measured.stdout, name).unwrap_or_default());
    Ok(Reading { wall: time("elapsed_us"), cpu: time("cpu_us"), peak_bytes: measured.peak_bytes })
}

fn table(options: &Options, lines: &[Line]) -> String {
    let peer = |kept: Kept| lines.iter().find(|l| l.args.is_none() && l.kept == kept).map(|l| median(&l.walls).as_secs_f64());
    let mut text = format!(
        "changes --rows of one batch of {} rows, {} organisations; medians of {} runs\n\n{:<30}{:>8}{:>8}{:>10}{:>12}\n",
        options.rows, options.orgs, options.runs, "", "s", "cpu s", "peak MiB", "of load_cdf"
    );
    for line in lines {
        let seconds = median(&line.walls).as_secs_f64();
        let cpu = median(&line.cpus).as_secs_f64();
        let peak = line.peaks.iter().max().copied().unwrap_or(0) >> 20;
        let ratio = peer(line.kept).map_or_else(String::new, |peer| format!("{:.2}", seconds / peer));
        text.push_str(&format!("{:<30}{seconds:>8.2}{cpu:>8.2}{peak:>10}{ratio:>12}\n", line.name));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_table_tells_what_part_of_the_peers_time_each_takes() {
        let options = Options::parse(&["--orgs", "1"], &BENCH).unwrap().unwrap();
        let mut ours = Line::new("ours", Kept::File, Some(&[]));
        ours.walls = [900, 500, 700].map(Duration::from_millis).to_vec();
        ours.cpus = vec![Duration::from_millis(600)];
        ours.peaks = vec![5 << 20, 7 << 20, 6 << 20];
        let mut peer = Line::new("peer", Kept::File, None);
        peer.walls = vec![Duration::from_millis(1400)];
        let mut another = Line::new("another", Kept::Nowhere, None);
        another.walls = vec![Duration::from_millis(10)];
        let text = table(&options, &[ours, another, peer]);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(text.lines().nth(3).unwrap_or_default()), ["ours", "0.70", "0.60", "7", "0.50"]);
        assert_eq!(words(text.lines().nth(5).unwrap_or_default()), ["peer", "1.40", "0.00", "0", "1.00"]);
    }
}
