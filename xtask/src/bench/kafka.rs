//! `cargo xtask bench kafka`: a topic taken in, against a bare consumer that drains it plus our own ingest of the same lines
//! from files, and against Spark Structured Streaming (`availableNow`, into a Delta table) where Spark is.
//!
//! A real broker is started for it; broker, filler and bare consumer are an example of the testkit, processes of their own.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::generate::{self, Shape};
use super::measure::{self, Measured};
use super::options::Options;
use super::report::median;
use super::{FILES, cache, directory, project_reading, remove, target_dir};
use crate::steps;

const TOPIC: &str = "activity";
const PARTITIONS: u32 = 8;
/// Runs in one Spark session; the fastest counts, the first warms it up.
const SPARK_RUNS: &str = "3";

/// A broker, until it is dropped.
struct Served {
    child: Child,
    bootstrap: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        // With its input closed it ends by itself.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Measures as `options` ask and prints a table.
pub fn run(options: &Options) -> io::Result<()> {
    let target = target_dir()?;
    let tools = build(&target)?;
    let binary = options.binary.clone().unwrap_or_else(|| target.join("release/alluvium"));
    let dir = directory(options)?;
    let shape = Shape::new(options.rows, options.orgs, FILES);
    let input = generate::input(&dir, shape)?;
    let served = serve(&tools)?;
    let partitions = PARTITIONS.to_string();
    let mut fill = Command::new(&tools);
    fill.args(["fill", &served.bootstrap, TOPIC, &partitions]).args(&input.files);
    measure::run(fill, "filling the topic")?;

    let sources = [
        ("files", format!("files: {{ path: \"{}\", format: json }}", input.dir.display())),
        ("kafka", format!("kafka: {{ topic: {TOPIC} }}")),
    ];
    let mut taken: [Vec<Measured>; 3] = [Vec::new(), Vec::new(), Vec::new()];
    for run in 0..options.runs {
        eprintln!("xtask: run {} of {}", run + 1, options.runs);
        let mut drain = Command::new(&tools);
        drain.args(["drain", &served.bootstrap, TOPIC]);
        let drained = measure::run(drain, "draining the topic")?;
        expect(&drained, "records", shape.rows)?;
        taken[0].push(drained);
        for (at, (name, source)) in sources.iter().enumerate() {
            let work = dir.join(format!("run-kafka-{name}"));
            remove(&work)?;
            fs::create_dir_all(&work)?;
            let head = format!("kafka: {{ bootstrap.servers: \"{}\" }}\n", served.bootstrap);
            fs::write(work.join("alluvium.yaml"), format!("{head}{}", project_reading(source, "process")))?;
            let mut command = Command::new(&binary);
            command.args(["run", "ingest", "--output", "json", "--project"]).arg(&work);
            let measured = measure::run(command, name)?;
            expect(&measured, "inserted", shape.rows)?;
            taken[at + 1].push(measured);
            if options.keep.is_none() {
                remove(&work)?;
            }
        }
    }
    report(shape, &taken);
    if let Some((python, jars)) = spark() {
        let work = dir.join("run-kafka-spark");
        remove(&work)?;
        fs::create_dir_all(&work)?;
        let mut command = Command::new(python);
        command.arg(steps::root().join("xtask/python/peer_kafka.py")).arg(jars).args([&served.bootstrap, TOPIC]);
        command.arg(&work).arg(SPARK_RUNS);
        let measured = measure::run(command, "peer_kafka.py")?;
        expect(&measured, "rows", shape.rows)?;
        let last = measured.stdout.lines().last().unwrap_or_default();
        let seconds = Duration::from_micros(measure::json_number(last, "elapsed_us").unwrap_or_default()).as_secs_f64();
        println!("Spark Structured Streaming, warm   {seconds:>6.2} s: {:.1} times as long", seconds / wall(&taken[2]));
        remove(&work)?;
    }
    Ok(())
}

/// An error unless the last line that was printed has `field` as wanted.
fn expect(measured: &Measured, field: &str, wanted: u64) -> io::Result<()> {
    let last = measured.stdout.lines().last().unwrap_or_default();
    match measure::json_number(last, field) {
        Some(number) if number == wanted => Ok(()),
        other => Err(io::Error::other(format!("{other:?} {field} instead of {wanted}: {last}"))),
    }
}

fn wall(runs: &[Measured]) -> f64 {
    median(&runs.iter().map(|m| m.wall).collect::<Vec<Duration>>()).as_secs_f64()
}

fn report(shape: Shape, taken: &[Vec<Measured>; 3]) {
    let wall = |at: usize| wall(&taken[at]);
    let peak = |at: usize| median(&taken[at].iter().map(|m| m.peak_bytes >> 20).collect::<Vec<u64>>());
    println!("kafka: {} rows, {} partitions; medians of {} runs\n", shape.rows, PARTITIONS, taken[0].len());
    for (at, name) in ["bare consumer drains the topic", "alluvium, from files", "alluvium, from the topic"].iter().enumerate() {
        println!("{name:<32} {:>6.2} s  {:>6} MiB", wall(at), peak(at));
    }
    println!("\nthe topic takes {:.2} times as long as draining it and reading files", wall(2) / (wall(0) + wall(1)));
}

/// Builds the program and its tools; where the tools are.
fn build(target: &Path) -> io::Result<PathBuf> {
    let status = steps::cargo()
        .args(["build", "--release", "--workspace", "--bin", "alluvium"])
        .args(["--example", "kafka", "--target-dir"])
        .arg(target)
        .current_dir(steps::root())
        .status()?;
    if status.success() { Ok(target.join("release/examples/kafka")) } else { Err(io::Error::other("the release build failed")) }
}

fn serve(tools: &Path) -> io::Result<Served> {
    let mut command = Command::new(tools);
    command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
    if std::env::var_os("ALLUVIUM_TEST_KAFKA").is_none()
        && let Some(jars) = jars()
    {
        command.env("ALLUVIUM_TEST_KAFKA", jars);
    }
    let mut child = command.spawn()?;
    let mut bootstrap = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut bootstrap)?;
    }
    let bootstrap = bootstrap.trim().to_owned();
    let served = Served { child, bootstrap };
    if served.bootstrap.is_empty() {
        return Err(io::Error::other("no broker: run .ci/run once, or set ALLUVIUM_TEST_KAFKA to the directory of its jars"));
    }
    Ok(served)
}

/// Spark's Python and its jars: named by the environment as for the tests, or where `.ci/run` puts them.
fn spark() -> Option<(PathBuf, PathBuf)> {
    let named = |name: &str, path: &str| {
        std::env::var_os(name).map(PathBuf::from).or_else(|| Some(cache()?.join("spark").join(path))).filter(|path| path.exists())
    };
    let found = named("ALLUVIUM_TEST_SPARK_PYTHON", "venv/bin/python").zip(named("ALLUVIUM_TEST_SPARK_JARS", "jars"));
    if found.is_none() {
        eprintln!(
            "xtask: no Spark: it is left out (set ALLUVIUM_TEST_SPARK_PYTHON and ALLUVIUM_TEST_SPARK_JARS, or run .ci/run once)"
        );
    }
    found
}

/// The broker's jars where `.ci/run` puts them.
fn jars() -> Option<PathBuf> {
    let found = fs::read_dir(cache()?).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    found.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("kafka-"))).max()
}
