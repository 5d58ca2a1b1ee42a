//! Many worlds, and what is left of one that fails when all is taken away that it fails without.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::plan::{Plan, Without};
use super::run::{Verdict, run};
use super::scratch::Scratch;

/// The most worlds that are run to make one smaller.
const MAX_SHRINKS: usize = 120;
/// A world in which nothing happens for so long, in real time, hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// How one seed came out.
#[derive(Debug, Clone)]
pub struct Simulated {
    /// The seed.
    pub seed: u64,
    /// What did not hold, if anything.
    pub violation: Option<String>,
    /// The same for the same history and the same end.
    pub digest: u64,
    /// Operations of the store.
    pub operations: u64,
    /// Faults that happened.
    pub faults: usize,
    /// How long it was in the world's own time.
    pub simulated: Duration,
}

/// Runs the world of `seed` once.
///
/// # Errors
/// If its directory cannot be made.
pub fn simulate(seed: u64) -> io::Result<Simulated> {
    let verdict = once(&Plan::of(seed), &Without::default(), false)?;
    Ok(Simulated {
        seed,
        violation: verdict.violation,
        digest: verdict.digest,
        operations: verdict.operations,
        faults: verdict.hits.len(),
        simulated: verdict.simulated,
    })
}

fn once(plan: &Plan, without: &Without, tell: bool) -> io::Result<Verdict> {
    // One thread decodes and encodes, so that files are numbered alike in every run.
    let _set_by_the_first = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    let scratch = Scratch::new(plan.seed)?;
    let ended = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(AtomicU64::new(0));
    let (watching, watched, seed) = (ended.clone(), progress.clone(), plan.seed);
    let watch = std::thread::spawn(move || {
        let mut last = (0, Instant::now());
        while !watching.load(Ordering::SeqCst) {
            let now = watched.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            }
            if last.1.elapsed() > HANGS_AFTER {
                println!("seed {seed}");
                eprintln!("seed {seed} hangs: something in it waits for what no event brings");
                std::process::exit(1);
            }
            std::thread::park_timeout(Duration::from_secs(1));
        }
    });
    let verdict = run(plan, without, scratch.path(), tell, &progress);
    ended.store(true, Ordering::SeqCst);
    watch.thread().unpark();
    verdict
}

/// What hunting found.
#[derive(Debug, Clone, Default)]
pub struct Hunted {
    /// Seeds run.
    pub seeds: u64,
    /// Operations of the store in all of them.
    pub operations: u64,
    /// Faults in all of them.
    pub faults: u64,
    /// Their own time, together.
    pub simulated: Duration,
    /// Seeds that failed, in order.
    pub failed: Vec<Simulated>,
}

/// Runs the seeds from `first` on, `threads` at a time, until `enough` says so of the next seed and the failures so far.
///
/// # Errors
/// If a world's directory cannot be made.
pub fn hunt(first: u64, threads: usize, enough: impl Fn(u64, usize) -> bool + Sync) -> io::Result<Hunted> {
    let (next, failures) = (AtomicU64::new(first), AtomicU64::new(0));
    let found: io::Result<Vec<Vec<Simulated>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1))
            .map(|_| {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::SeqCst);
                        if enough(seed, usize::try_from(failures.load(Ordering::SeqCst)).unwrap_or(usize::MAX)) {
                            return Ok(mine);
                        }
                        let one = simulate(seed)?;
                        if one.violation.is_some() {
                            failures.fetch_add(1, Ordering::SeqCst);
                        }
                        mine.push(one);
                    }
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err(io::Error::other("a world panicked")))).collect()
    });
    let mut hunted = Hunted::default();
    for one in found?.into_iter().flatten() {
        hunted.seeds += 1;
        hunted.operations += one.operations;
        hunted.faults += one.faults as u64;
        hunted.simulated += one.simulated;
        if one.violation.is_some() {
            hunted.failed.push(one);
        }
    }
    hunted.failed.sort_by_key(|one| one.seed);
    Ok(hunted)
}

/// Makes a failing world as small as it can, and tells its story.
///
/// # Errors
/// If a world's directory cannot be made.
pub fn explain(seed: u64) -> io::Result<Option<String>> {
    let plan = Plan::of(seed);
    let first = once(&plan, &Without::default(), false)?;
    if first.violation.is_none() {
        return Ok(None);
    }
    let (without, tried) = shrink(&plan, &first)?;
    let small = once(&plan, &without, true)?;
    let mut text = String::new();
    let _ = writeln!(text, "violation: {}", first.violation.unwrap_or_default());
    let _ = writeln!(
        text,
        "shrunk in {tried} runs to {} processes, {} files, {} faults; after: {}, at most {} rows a batch, {} leases",
        plan.processes.len() - without.processes.len(),
        plan.files.len() - without.files.len(),
        small.hits.len(),
        plan.after,
        plan.max_rows,
        if plan.shared_leases { "shared" } else { "no shared" },
    );
    if let Some(topic) = &plan.topic {
        let _ = writeln!(text, "  {topic:?}");
    }
    for (number, process) in plan.processes.iter().enumerate().filter(|(i, _)| !without.processes.contains(i)) {
        let _ = writeln!(text, "  p{number} {:?} from {} ms on, up to {} lives", process.role, process.starts_ms, process.lives);
    }
    for (_, file) in plan.files.iter().enumerate().filter(|(i, _)| !without.files.contains(i)) {
        let _ = writeln!(text, "  {} at {} ms: {:?}", file.name, file.comes_ms, file.records);
    }
    for hit in &small.hits {
        let site = &hit.site;
        let _ = writeln!(
            text,
            "  at {:.3} ms, p{} life {}: {:?} {} for the {}. time {}",
            hit.at as f64 / 1e6,
            site.process,
            site.life,
            site.verb,
            site.place,
            site.nth + 1,
            hit.fault
        );
    }
    for line in &small.told {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "violation: {}", small.violation.unwrap_or_default());
    Ok(Some(text))
}

/// Leaves out processes, files, then faults, as long as it still fails.
fn shrink(plan: &Plan, first: &Verdict) -> io::Result<(Without, usize)> {
    let mut best = Without::default();
    let mut hits: Vec<u64> = first.hits.iter().map(|h| h.id).collect();
    let mut tried = 0;
    let mut fails = |without: &Without| -> io::Result<Option<Vec<u64>>> {
        tried += 1;
        let verdict = once(plan, without, false)?;
        Ok(verdict.violation.map(|_| verdict.hits.iter().map(|h| h.id).collect()))
    };
    let mut budget = MAX_SHRINKS;
    let mut spend = || {
        budget = budget.saturating_sub(1);
        budget > 0
    };
    for process in 0..plan.processes.len() {
        let mut smaller = best.clone();
        smaller.processes.insert(process);
        if spend()
            && let Some(now) = fails(&smaller)?
        {
            (best, hits) = (smaller, now);
        }
    }
    for file in 0..plan.files.len() {
        let mut smaller = best.clone();
        smaller.files.insert(file);
        if spend()
            && let Some(now) = fails(&smaller)?
        {
            (best, hits) = (smaller, now);
        }
    }
    let mut piece = hits.len();
    while piece > 0 && !hits.is_empty() {
        let mut at = 0;
        while at < hits.len() && spend() {
            let rest: BTreeSet<u64> =
                hits.iter().enumerate().filter(|(i, _)| *i < at || *i >= at + piece).map(|(_, id)| *id).collect();
            let smaller = Without { only_faults: Some(Arc::new(rest)), ..best.clone() };
            match fails(&smaller)? {
                Some(now) => (best, hits) = (smaller, now),
                None => at += piece,
            }
        }
        piece /= 2;
    }
    Ok((best, tried))
}
