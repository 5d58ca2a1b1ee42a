//! `alluvium-sim`: runs simulated worlds. `cargo xtask sim` builds and starts it.
//!
//! Prints `seed N` for each world in which something did not hold, and nothing else, to stdout; what and how to stderr. It ends
//! with 0 only if everything held; with `--plant all`, only if every broken rule was found, and found again by its seed.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use alluvium_lake::{Plant, plant};
use alluvium_testkit::sim::{self, Simulated};

const USAGE: &str = "\
usage: cargo xtask sim [--seed N | --minutes M | --seeds COUNT] [--from N] [--threads N] [--plant NAME]

  --seed N        run one world, and tell its story if it fails
  --seeds COUNT   run so many worlds (default 300)
  --minutes M     run worlds for so long
  --from N        begin with this seed (default 1)
  --threads N     run so many worlds at a time (default: one a core)
  --plant NAME    break a rule on purpose, and stop at the first world that shows it; all: each of them in turn";

/// A broken rule must show within this time.
const FOUND_WITHIN: Duration = Duration::from_secs(180);

/// Worlds that are told in full; of more only the seeds are printed.
const TOLD: usize = 1;

/// What is asked for.
struct Wanted {
    seed: Option<u64>,
    minutes: Option<f64>,
    seeds: u64,
    from: u64,
    threads: usize,
    plants: Vec<Plant>,
    all_plants: bool,
}

fn wanted(args: &[String]) -> Option<Wanted> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut wanted = Wanted { seed: None, minutes: None, seeds: 300, from: 1, threads, plants: Vec::new(), all_plants: false };
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next()?;
        match (name.as_str(), value.as_str()) {
            ("--seed", _) => wanted.seed = Some(value.parse().ok()?),
            ("--minutes", _) => wanted.minutes = Some(value.parse().ok()?),
            ("--seeds", _) => wanted.seeds = value.parse().ok()?,
            ("--from", _) => wanted.from = value.parse().ok()?,
            ("--threads", _) => wanted.threads = value.parse().ok()?,
            ("--plant", "all") => (wanted.plants, wanted.all_plants) = (Plant::ALL.to_vec(), true),
            ("--plant", _) => wanted.plants = vec![*Plant::ALL.iter().find(|p| p.name() == value)?],
            _ => return None,
        }
    }
    Some(wanted)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(wanted) = wanted(&args) else {
        let plants: Vec<&str> = Plant::ALL.iter().map(|p| p.name()).collect();
        eprintln!("{USAGE}\n\nrules to break: {}", plants.join(", "));
        return ExitCode::from(2);
    };
    let held = if wanted.all_plants { every_plant_shows(&wanted) } else { run(&wanted) };
    match held {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("alluvium-sim: {error}");
            ExitCode::from(1)
        }
    }
}

/// Whether everything held.
fn run(wanted: &Wanted) -> io::Result<bool> {
    plant(wanted.plants.first().copied());
    if let Some(seed) = wanted.seed {
        let one = sim::simulate(seed)?;
        let seconds = one.simulated.as_secs_f64();
        eprintln!(
            "sim: {} operations, {} faults, {seconds:.1} s of its own time, digest {:016x}",
            one.operations, one.faults, one.digest
        );
        return report(&[one]);
    }
    let planted = !wanted.plants.is_empty();
    let begun = Instant::now();
    let until = match wanted.minutes {
        Some(minutes) => Some(begun + Duration::from_secs_f64(minutes * 60.0)),
        None => planted.then(|| begun + FOUND_WITHIN),
    };
    let hunted = sim::hunt(wanted.from, wanted.threads, |seed, failed| match until {
        Some(until) => Instant::now() >= until || (planted && failed > 0),
        None => seed >= wanted.from.saturating_add(wanted.seeds),
    })?;
    eprintln!(
        "sim: {} worlds from seed {}, {} operations, {} faults, {:.1} h of their own time in {:.1} s: {} failed",
        hunted.seeds,
        wanted.from,
        hunted.operations,
        hunted.faults,
        hunted.simulated.as_secs_f64() / 3600.0,
        begun.elapsed().as_secs_f64(),
        hunted.failed.len()
    );
    report(&hunted.failed)
}

fn report(all: &[Simulated]) -> io::Result<bool> {
    let mut held = true;
    for (number, one) in all.iter().filter(|one| one.violation.is_some()).enumerate() {
        held = false;
        println!("seed {}", one.seed);
        eprintln!("  {}", one.violation.as_deref().unwrap_or_default());
        if number < TOLD
            && let Some(story) = sim::explain(one.seed)?
        {
            eprintln!("{story}");
        }
    }
    Ok(held)
}

/// Whether every broken rule shows, and shows again in the same world.
fn every_plant_shows(wanted: &Wanted) -> io::Result<bool> {
    let mut all = true;
    for broken in &wanted.plants {
        plant(Some(*broken));
        let begun = Instant::now();
        let hunted = sim::hunt(wanted.from, wanted.threads, |_, failed| failed > 0 || begun.elapsed() >= FOUND_WITHIN)?;
        let seconds = begun.elapsed().as_secs_f64();
        let Some(first) = hunted.failed.first() else {
            eprintln!("sim: {}: NOT FOUND in {} worlds, {seconds:.1} s", broken.name(), hunted.seeds);
            all = false;
            continue;
        };
        let again = sim::simulate(first.seed)?;
        let same = again.violation == first.violation && again.digest == first.digest;
        plant(None);
        let without = sim::simulate(first.seed)?;
        all &= same && without.violation.is_none();
        eprintln!(
            "sim: {}: found by seed {} after {} worlds, {seconds:.1} s{}{}: {}",
            broken.name(),
            first.seed,
            hunted.seeds,
            if same { "" } else { ", NOT REPLAYED" },
            if without.violation.is_none() { "" } else { ", FAILS WITHOUT IT TOO" },
            first.violation.as_deref().unwrap_or_default().lines().next().unwrap_or_default()
        );
    }
    Ok(all)
}
