//! `cargo xtask bench ingest`: ingestion measured against DuckDB reading and deltalake writing the same files.
//!
//! Everything that is compared runs here and now, in turns, each in a fresh directory and a process of its own; the
//! table prints medians, and ratios to the peer. The input is generated once and kept. Nothing is judged: the numbers are
//! for people, and for the documents that quote them.

mod changes;
mod copies;
mod generate;
mod kafka;
mod ledger;
mod measure;
mod mutate;
mod options;
mod report;
mod scale;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use generate::{Input, Shape};
use measure::Measured;
use options::{Bench, Options, SMALL_MEMORY};
use report::Line;

use crate::steps;

const FILES: u32 = 8;

/// A process that takes the input in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Contender {
    Alluvium { durability: &'static str, memory: Option<String> },
    Peer { streaming: bool },
}

impl Contender {
    fn name(&self) -> String {
        match self {
            Self::Alluvium { durability, memory: None } => format!("alluvium, {durability}"),
            Self::Alluvium { durability, memory: Some(memory) } => format!("alluvium, {durability}, {memory}"),
            Self::Peer { streaming: false } => "DuckDB + deltalake".to_owned(),
            Self::Peer { streaming: true } => "DuckDB + deltalake, streaming".to_owned(),
        }
    }
}

/// Where things are: the binary, the peer's Python, and the directory for inputs and lakes.
struct Place {
    binary: PathBuf,
    python: Option<PathBuf>,
    dir: PathBuf,
    keep: bool,
}

const USAGE: &str = "\
usage: cargo xtask bench ingest|kafka [OPTIONS]

  --rows N        JSON lines to take in, about 390 bytes each (1000000)
  --orgs N        organisations, skewed (50)
  --memory SIZE   the budget of the run with a small one (256MiB; ingest only)
  --runs R        runs of each, in turns; medians are printed (3)
  --tenfold       then once more with ten times the rows, one run each (ingest only)
  --keep DIR      work there and leave the tables (default: the target directory's bench/, tables removed)
  --binary PATH   measure this alluvium instead of building one
  --peer-only     measure DuckDB + deltalake alone (ingest only)
";

const INGEST: Bench = Bench {
    name: "ingest",
    usage: USAGE,
    rows: 1_000_000,
    memory: SMALL_MEMORY,
    also: &["--memory", "--tenfold", "--peer-only"],
    run: ingest,
};
const KAFKA: Bench = Bench { name: "kafka", usage: USAGE, rows: 1_000_000, memory: SMALL_MEMORY, also: &[], run: kafka::run };

/// Runs the benchmark of that name as `args` ask; `None` if there is none.
pub fn main(name: &str, args: &[&str]) -> Option<ExitCode> {
    let all = [INGEST, KAFKA, changes::BENCH, mutate::BENCH, ledger::BENCH, scale::BENCH];
    all.iter().find(|bench| bench.name == name).map(|bench| bench.main(args))
}

fn ingest(options: &Options) -> io::Result<()> {
    let binary = if options.peer_only { PathBuf::new() } else { binary(options)? };
    let bench = Place { binary, python: python(), dir: directory(options)?, keep: options.keep.is_some() };
    if bench.python.is_none() {
        eprintln!(
            "xtask: no Python with deltalake and duckdb: the peer is left out (set ALLUVIUM_TEST_PYTHON, or run .ci/run once)"
        );
    }

    let small = Some(options.memory.clone());
    let mut contenders = Vec::new();
    if !options.peer_only {
        contenders.push(Contender::Alluvium { durability: "process", memory: None });
        contenders.push(Contender::Alluvium { durability: "disk", memory: None });
        contenders.push(Contender::Alluvium { durability: "process", memory: small.clone() });
    }
    let peers = [Contender::Peer { streaming: false }, Contender::Peer { streaming: true }];
    contenders.extend(peers.iter().filter(|_| bench.python.is_some()).cloned());
    bench.compare(Shape::new(options.rows, options.orgs, FILES), &contenders, options.runs)?;

    if options.tenfold {
        contenders.retain(|c| !matches!(c, Contender::Alluvium { durability: "disk", .. }));
        bench.compare(Shape::new(options.rows * 10, options.orgs, FILES * 10), &contenders, 1)?;
    }
    Ok(())
}

impl Place {
    /// Runs all contenders `runs` times in turns and prints their medians.
    fn compare(&self, shape: Shape, contenders: &[Contender], runs: usize) -> io::Result<()> {
        let input = generate::input(&self.dir, shape)?;
        let mut lines: Vec<Line> = contenders.iter().map(|c| Line::new(c.name())).collect();
        // Reading it once puts the input into the page cache for all alike.
        measure::limit(&input.files, 0, &self.dir.join("scratch"))?;
        for run in 0..runs {
            for (contender, line) in contenders.iter().zip(&mut lines) {
                eprintln!("xtask: run {} of {runs}: {}", run + 1, contender.name());
                let work = self.dir.join(format!("run-{}", contender.name().replace([',', ' ', '+'], "-")));
                remove(&work)?;
                fs::create_dir_all(&work)?;
                let measured = self.run(contender, &input, shape.rows, &work)?;
                line.add(&measured, measure::data_files(&work)?);
                if !self.keep {
                    remove(&work)?;
                }
            }
        }
        let out_bytes = lines.first().map_or(0, Line::bytes);
        let limit = measure::limit(&input.files, out_bytes, &self.dir.join("scratch"))?;
        // The stronger of the two ways to run the peer is the one to beat.
        let peers = (0..lines.len()).filter(|at| matches!(contenders[*at], Contender::Peer { .. }));
        let reference = peers.min_by_key(|at| lines[*at].wall());
        print!("{}", report::table(shape, input.bytes, &lines, reference, limit));
        Ok(())
    }

    /// One run in the empty directory `work`; an error unless every row arrived.
    fn run(&self, contender: &Contender, input: &Input, rows: u64, work: &Path) -> io::Result<Measured> {
        let name = contender.name();
        let (measured, arrived) = match contender {
            Contender::Alluvium { durability, memory } => {
                fs::write(work.join("alluvium.yaml"), project(&input.dir, durability))?;
                let mut command = alluvium(&self.binary);
                command.args(["run", "ingest", "--output", "json", "--project"]).arg(work);
                if let Some(memory) = memory {
                    command.args(["--memory", memory]);
                }
                let measured = measure::run(command, &name)?;
                let summary = measured.stdout.lines().last().unwrap_or_default();
                let arrived = measure::json_number(summary, "inserted");
                (measured, arrived)
            }
            Contender::Peer { streaming } => {
                let python = self.python.as_ref().ok_or_else(|| io::Error::other("no Python for the peer"))?;
                let mut command = Command::new(python);
                command.arg(steps::root().join("xtask/python/peer_ingest.py"));
                command.args(streaming.then_some("--stream")).arg(work.join("table")).args(&input.files);
                let measured = measure::run(command, &name)?;
                let arrived = measure::json_number(&measured.stdout, "rows");
                (measured, arrived)
            }
        };
        if arrived == Some(rows) {
            return Ok(measured);
        }
        Err(io::Error::other(format!("{name} took in {arrived:?} rows of {rows}; it printed:\n{}", measured.stdout)))
    }
}

/// The project file: one batch a million rows, as the peer's one commit.
fn project(input: &Path, durability: &str) -> String {
    project_reading(&format!("files: {{ path: \"{}\", format: json }}", input.display()), durability)
}

/// As [`project`], reading this source.
fn project_reading(source: &str, durability: &str) -> String {
    format!(
        r#"project: bench
storage: ./lake
durability: {durability}
datasets:
  activity:
    source: {{ {source} }}
    key: event_id
    org: org_id
    event_time: occurred_at
    fields:
      event_id: string
      org_id: {{ type: string, nullable: false }}
      occurred_at: timestamp
      type: string
      lead_id: string
      user_id: string
      cadence_id: string
      cadence_name: string
      subject: string
      url: string
      ip: string
      duration_ms: long
      meta: "struct<channel: string, score: double>"
    identities: [lead_id, user_id]
    layout: {{ partition_by: [org_id] }}
    batch: {{ max_rows: 1000000, max_bytes: 1GiB }}
"#
    )
}

/// The product, with none of its settings from this process's environment.
fn alluvium(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for name in ["ALLUVIUM_PROJECT", "ALLUVIUM_NAMESPACE", "ALLUVIUM_MEMORY", "RUST_LOG"] {
        command.env_remove(name);
    }
    command
}

/// The binary to measure: the one that was named, or a release that is built.
fn binary(options: &Options) -> io::Result<PathBuf> {
    match &options.binary {
        Some(binary) => Ok(binary.clone()),
        None => build_release(&target_dir()?),
    }
}

/// Where inputs and lakes go.
fn directory(options: &Options) -> io::Result<PathBuf> {
    let dir = match &options.keep {
        Some(dir) => dir.clone(),
        None => target_dir()?.join("bench"),
    };
    fs::create_dir_all(&dir)?;
    fs::canonicalize(dir)
}

/// Builds the release binary, and says where it is.
///
/// With `--workspace`, so that features are the ones every other build unites, and nothing is compiled twice.
fn build_release(target: &Path) -> io::Result<PathBuf> {
    let status = steps::cargo()
        .args(["build", "--release", "--workspace", "--bin", "alluvium", "--target-dir"])
        .arg(target)
        .current_dir(steps::root())
        .status()?;
    if status.success() { Ok(target.join("release/alluvium")) } else { Err(io::Error::other("the release build failed")) }
}

/// The target directory that this program was built in: `<target>/<profile>/xtask`.
pub fn target_dir() -> io::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    exe.ancestors().nth(2).map(Path::to_path_buf).ok_or_else(|| io::Error::other("xtask does not run from a target directory"))
}

/// The Python that CI's tests use: named by the environment, or where `.ci/run` puts it.
fn python() -> Option<PathBuf> {
    if let Some(python) = std::env::var_os("ALLUVIUM_TEST_PYTHON") {
        return Some(python.into());
    }
    cache().map(|cache| cache.join("venv/bin/python")).filter(|python| python.exists())
}

/// Where `.ci/run` puts what it installs.
fn cache() -> Option<PathBuf> {
    let caches = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    Some(caches.join("alluvium-ci"))
}

/// Removes a directory that may not be there.
fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
