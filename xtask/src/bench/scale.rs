//! `cargo xtask bench scale`: what mutations cost where little of a table is touched.
//!
//! Three questions: do the same requests take longer when nine times as many rows of other organisations stand beside; how many of a
//! thousand files are opened when ten hold what is looked for, and nothing but their contents tells which; what one person costs.
//! Every run works on a fresh copy, in a process of its own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::copies::{copy_dir, fresh_copy, write_anew};
use super::generate::{self, Input, Shape};
use super::measure::{self, Measured};
use super::mutate::{conversions, project_with_requests};
use super::options::{Bench, Options, SMALL_MEMORY};
use super::report::median;
use super::{FILES, alluvium, binary, directory, remove};

const USAGE: &str = "\
usage: cargo xtask bench scale [OPTIONS]

  --rows N        rows that requests are about; ten times as many in the large table (1000000)
  --orgs N        organisations, skewed; as many others in the large table (50)
  --runs R        runs of each, in turns; medians are printed (3)
  --keep DIR      work there and leave the tables (default: the target directory's bench/, tables removed)
  --binary PATH   measure this alluvium instead of building one
";

/// Conversions that both tables see, and how many of a thousand may have rows.
const CONVERSIONS: (usize, u64) = (1_000, 142);
/// The files of the table without partitions, and how many of them hold what is looked for.
const MANY_FILES: u64 = 1_000;
const HITS: u64 = 10;

/// The benchmark.
pub const BENCH: Bench = Bench { name: "scale", usage: USAGE, rows: 1_000_000, memory: SMALL_MEMORY, also: &[], run: compare };

/// A lake and requests to it.
struct Case {
    name: &'static str,
    lake: PathBuf,
    requests: String,
    runs: Vec<Measured>,
}

fn compare(options: &Options) -> io::Result<()> {
    let (binary, dir) = (binary(options)?, directory(options)?);
    let work = dir.join("scale");
    remove(&work)?;
    let shape = Shape::new(options.rows, options.orgs, FILES);
    let input = generate::input(&dir, shape)?;
    let others = Shape { first_org: options.orgs + 1, ..Shape::new(options.rows * 9, options.orgs, FILES * 9) };
    let others = generate::input(&dir, others)?;

    let small = work.join("small");
    ingest(&binary, &small, &input, |project| project)?;
    let large = work.join("large");
    copy_dir(&small, &large)?;
    write_anew(&large.join("alluvium.yaml"), &project_with_requests(&others.dir, "process", false))?;
    run(&binary, &large, "ingest")?;
    let many = work.join("many");
    let rows_a_file = options.rows / MANY_FILES;
    ingest(&binary, &many, &input, |project| {
        let project = project.replace("layout: { partition_by: [org_id] }", "layout: { partition_by: [] }");
        project.replace("max_rows: 1000000", &format!("max_rows: {rows_a_file}"))
    })?;

    let (count, share) = CONVERSIONS;
    let leads = leads(&input)?;
    let one = leads.iter().take(1).map(|lead| request(lead, "one")).collect();
    let ten: String = leads.iter().map(|lead| request(lead, "ten")).collect();
    let mut cases = [
        ("conversions", &small, conversions(count, share, options.orgs)),
        ("the same, ten times the rows", &large, conversions(count, share, options.orgs)),
        ("one person, ten times the rows", &large, one),
        ("ten persons, a thousand files", &many, ten),
    ]
    .map(|(name, lake, requests)| Case { name, lake: lake.clone(), requests, runs: Vec::new() });
    for at in 0..options.runs {
        for case in &mut cases {
            eprintln!("xtask: run {} of {}: {}", at + 1, options.runs, case.name);
            let copy = fresh_copy(&case.lake, &work)?;
            fs::create_dir_all(copy.join("requests"))?;
            fs::write(copy.join("requests/requests.json"), &case.requests)?;
            case.runs.push(run(&binary, &copy, "mutate")?);
        }
    }
    println!("{}", table(&cases)?);
    if options.keep.is_none() {
        remove(&work)?;
    }
    Ok(())
}

fn ingest(binary: &Path, lake: &Path, input: &Input, change: impl Fn(String) -> String) -> io::Result<()> {
    eprintln!("xtask: taking in {}", input.dir.display());
    fs::create_dir_all(lake)?;
    fs::write(lake.join("alluvium.yaml"), change(project_with_requests(&input.dir, "process", false)))?;
    run(binary, lake, "ingest").map(|_measured| ())
}

fn run(binary: &Path, lake: &Path, job: &str) -> io::Result<Measured> {
    let mut command = alluvium(binary);
    command.args(["run", job, "--output", "json", "--project"]).arg(lake);
    measure::run(command, &format!("alluvium run {job}"))
}

/// Organisations and leads of lines that stand far from each other in the input.
fn leads(input: &Input) -> io::Result<BTreeSet<(String, String)>> {
    let mut leads = BTreeSet::new();
    for (at, path) in input.files.iter().enumerate() {
        let lines = if at < (HITS as usize) % input.files.len() { 2 } else { 1 };
        let mut file = BufReader::new(fs::File::open(path)?);
        let half = fs::metadata(path)?.len() / 2;
        for line in 0..lines {
            if line == 1 {
                io::Seek::seek(&mut file, io::SeekFrom::Start(half))?;
                // What is left of a line.
                file.read_line(&mut String::new())?;
            }
            let mut text = String::new();
            file.read_line(&mut text)?;
            let field = |name: &str| text.split(&format!("\"{name}\":\"")).nth(1)?.split('"').next().map(str::to_owned);
            leads.extend(field("org_id").zip(field("lead_id")));
        }
    }
    Ok(leads)
}

fn request((org, lead): &(String, String), name: &str) -> String {
    format!(
        "{{\"request_id\":\"{name}-{lead}\",\"org_id\":\"{org}\",\"op\":\"convert\",\"field\":\"lead_id\",\"from\":\"{lead}\",\
         \"to\":\"003{lead}\",\"execution_time\":\"2026-06-01T00:00:00Z\"}}\n"
    )
}

/// `ratio`: to the first line.
fn table(cases: &[Case]) -> io::Result<String> {
    let seconds = |case: &Case| median(&case.runs.iter().map(|run| run.wall).collect::<Vec<Duration>>()).as_secs_f64();
    let mut text = format!(
        "{:<34}{:>8}{:>8}{:>10}{:>8}{:>8}{:>10}{:>8}\n",
        "", "s", "ratio", "peak MiB", "files", "opened", "rewritten", "rows"
    );
    for case in cases {
        let (files, _) = measure::data_files(&case.lake.join("lake/default/activity"))?;
        let peak = median(&case.runs.iter().map(|run| run.peak_bytes).collect::<Vec<u64>>()) >> 20;
        let stdout = case.runs.last().map_or("", |run| run.stdout.as_str());
        let number = |field| measure::json_number(stdout.lines().last().unwrap_or_default(), field).unwrap_or_default();
        let (opened, rewritten, rows) = (number("files_opened"), number("files_rewritten"), number("updated"));
        let ratio = cases.first().map_or(1.0, |first| seconds(case) / seconds(first));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<34}{:>8.2}{:>8}{peak:>10}{files:>8}{opened:>8}{rewritten:>10}{rows:>8}",
            case.name,
            seconds(case),
            format!("{ratio:.2}x"),
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn leads_stand_in_every_file_and_requests_name_them() {
        let dir = std::env::temp_dir().join(format!("alluvium-bench-scale-{}", std::process::id()));
        let input = generate::input(&dir, Shape::new(4_000, 3, 8)).unwrap();
        let leads = leads(&input).unwrap();
        assert_eq!(leads.len(), 10);
        let first = leads.first().unwrap();
        assert!(request(first, "x").contains(&format!("\"from\":\"{}\"", first.1)), "{first:?}");
        let text: String = input.files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        assert!(leads.iter().all(|(org, lead)| text.contains(lead.as_str()) && text.contains(org.as_str())));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn wide_rows_have_all_their_columns() {
        let dir = std::env::temp_dir().join(format!("alluvium-bench-wide-{}", std::process::id()));
        let input = generate::input(&dir, Shape { wide: true, ..Shape::new(10, 2, 1) }).unwrap();
        let text = fs::read_to_string(&input.files[0]).unwrap();
        let line = text.lines().next().unwrap();
        assert!(line.len() > 5_000 && line.ends_with("}\"}"), "{}", line.len());
        let columns = (1..generate::WIDE_COLUMNS).filter(|column| line.contains(&format!(",\"c{column:02}\":")));
        assert_eq!(columns.count() + usize::from(line.contains(",\"payload\":")), generate::WIDE_COLUMNS as usize);
        fs::remove_dir_all(&dir).unwrap();
    }
}
