//! `alluvium run`.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

use alluvium_core::{Dataset, Error, Kind, Result};
use alluvium_engine::{IngestOptions, Mode, RunSummary, SourcePosition, Stop, VacuumSummary, WouldDrop};
use serde_json::json;

use super::engine;
use crate::args::{Global, JobArg, Output, RunArgs};
use crate::progress::Progress;
use crate::{context, memory, output};

/// Runs a job. The exit code is that of the first dataset that failed.
pub async fn run(global: &Global, args: &RunArgs) -> Result<u8> {
    match args.job {
        JobArg::Ingest | JobArg::Mutate | JobArg::Retain | JobArg::All | JobArg::Vacuum => {}
        JobArg::Optimize => {
            return Err(
                Error::new(Kind::Unsupported, "that job is not built yet").hint("jobs that are: ingest, mutate, retain, vacuum")
            );
        }
    }
    if args.job == JobArg::Vacuum {
        return vacuum(global, args).await;
    }
    if args.dry_run {
        return dry_run(global, args).await;
    }
    let started = Instant::now();
    let mode = if args.once {
        Mode::Once
    } else if args.follow {
        Mode::Follow
    } else {
        Mode::UntilIdle
    };
    let (engine, progress) = engine(global, args.memory.as_deref())?;
    // The process ends when the job does; to free what it holds one by one would take time.
    let engine = ManuallyDrop::new(engine);
    let datasets = engine.datasets(&args.datasets)?;
    let options = IngestOptions { mode, accept_loss: args.accept_loss };
    let summary = match args.job {
        JobArg::Mutate => engine.mutate(&datasets, options).await,
        JobArg::Retain if args.follow => {
            engine.retain_now_and_then(&datasets).await;
            Ok(RunSummary::default())
        }
        JobArg::Retain => engine.retain(&datasets, mode).await,
        JobArg::All => engine.run_all(&datasets, options).await,
        _ => engine.ingest(&datasets, options).await,
    };
    progress.clear();
    print_summary(global.output, &summary?, started)
}

/// Removes the files that nobody needs any more.
async fn vacuum(global: &Global, args: &RunArgs) -> Result<u8> {
    let started = Instant::now();
    let (engine, progress) = if args.dry_run {
        let progress = Arc::new(Progress::new(global.output));
        let budget = memory::budget(args.memory.as_deref())?;
        (context::reading_engine(global, budget, progress.clone(), Stop::default())?, progress)
    } else {
        engine(global, args.memory.as_deref())?
    };
    if args.follow && !args.dry_run {
        engine.datasets(&args.datasets)?;
        engine.vacuum_now_and_then(&args.datasets).await;
        progress.clear();
        return Ok(0);
    }
    let summary = engine.vacuum(&args.datasets, args.dry_run).await;
    progress.clear();
    print_vacuum(global.output, &summary?, args.dry_run, started)
}

/// Prints what a vacuum did, and the errors of the tables that failed. Returns the exit code.
pub fn print_vacuum(format: Output, summary: &VacuumSummary, dry_run: bool, started: Instant) -> Result<u8> {
    for (_, error) in &summary.failed {
        output::print_error(error);
    }
    let (removed, elapsed_ms) = (summary.removed(), u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    match format {
        Output::Json => output::json(&json!({
            "summary": true, "batches": 0, "tables": summary.tables.len(), "dry_run": dry_run,
            "files_removed": removed.files + removed.beside, "data_files_removed": removed.files, "bytes_removed": removed.bytes,
            "failed": summary.failed.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "elapsed_ms": elapsed_ms,
        }))?,
        Output::Text if summary.tables.is_empty() && summary.failed.is_empty() => eprintln!("nothing to do"),
        Output::Text => output::line(&format!(
            "{} files{}, {}, in {} tables, {:.1} s",
            output::number(removed.files + removed.beside),
            if dry_run { " would be removed" } else { " removed" },
            output::bytes(removed.bytes),
            summary.tables.len(),
            elapsed_ms as f64 / 1000.0
        ))?,
    }
    Ok(summary.failed.first().map_or(0, |(_, error)| error.kind().exit_code()))
}

/// Says what a run would take in.
async fn dry_run(global: &Global, args: &RunArgs) -> Result<u8> {
    let progress = Arc::new(Progress::new(global.output));
    let engine = context::reading_engine(global, memory::budget(args.memory.as_deref())?, progress, Stop::default())?;
    let mut failed = None;
    if matches!(args.job, JobArg::Mutate | JobArg::All) {
        for dataset in engine.datasets(&args.datasets)? {
            let would = match engine.would_mutate(dataset).await {
                Ok(would) => would,
                Err(error) => {
                    output::print_error(&error);
                    failed = failed.or(Some(error.kind().exit_code()));
                    continue;
                }
            };
            let number = output::number;
            match global.output {
                Output::Json => output::json(&json!({
                    "job": "mutate", "dataset": dataset.name.0, "dry_run": true, "requests": would.requests,
                    "updated": would.updated, "deleted": would.deleted, "files_opened": would.files_opened,
                    "files_rewritten": would.files_rewritten,
                }))?,
                Output::Text => output::line(&format!(
                    "mutate {}: would apply {} requests that were taken in: {} rows updated, {} deleted, {} files rewritten",
                    dataset.name,
                    number(would.requests),
                    number(would.updated),
                    number(would.deleted),
                    number(would.files_rewritten)
                ))?,
            }
        }
    }
    let sources = match args.job {
        JobArg::Mutate | JobArg::Retain => Vec::new(),
        _ => engine.datasets(&args.datasets)?,
    };
    let requests = (matches!(args.job, JobArg::Mutate | JobArg::All) && engine.project().requests.has_source)
        .then(|| engine.requests_intake());
    let sources = requests.into_iter().chain(sources);
    for dataset in sources {
        let waiting = match engine.waiting(dataset).await {
            Ok(waiting) => waiting,
            Err(error) => {
                output::print_error(&error);
                failed = failed.or(Some(error.kind().exit_code()));
                continue;
            }
        };
        match waiting {
            SourcePosition::Files(files) => match global.output {
                Output::Json => output::json(&json!({
                    "job": dataset.intake_job().name(), "dataset": dataset.name.0, "dry_run": true,
                    "waiting_files": files.waiting_files, "waiting_bytes": files.waiting_bytes,
                }))?,
                Output::Text => output::line(&format!(
                    "{} {}: would take {} files, {}",
                    dataset.intake_job(),
                    dataset.name,
                    output::number(files.waiting_files),
                    output::bytes(files.waiting_bytes)
                ))?,
            },
            SourcePosition::Kafka(topic) => {
                if let Some(error) = &topic.unknown {
                    output::print_error(error);
                    failed = failed.or(Some(error.kind().exit_code()));
                    continue;
                }
                let lag = topic.lag().unwrap_or(0);
                match global.output {
                    Output::Json => output::json(&json!({
                        "job": dataset.intake_job().name(), "dataset": dataset.name.0, "dry_run": true, "topic": topic.topic, "lag": lag,
                    }))?,
                    Output::Text => output::line(&format!(
                        "{} {}: would read {} offsets of the topic {}",
                        dataset.intake_job(),
                        dataset.name,
                        output::number(lag),
                        topic.topic
                    ))?,
                }
            }
        }
    }
    if matches!(args.job, JobArg::Retain | JobArg::All) {
        for dataset in engine.datasets(&args.datasets)?.into_iter().filter(|dataset| !dataset.retention.is_forever()) {
            match engine.would_retain(dataset).await {
                Ok(would) => print_would_retain(global.output, dataset, would)?,
                Err(error) => {
                    output::print_error(&error);
                    failed = failed.or(Some(error.kind().exit_code()));
                }
            }
        }
    }
    Ok(failed.unwrap_or(0))
}

fn print_would_retain(format: Output, dataset: &Dataset, would: WouldDrop) -> Result<()> {
    let WouldDrop { files_opened, files_rewritten, deleted } = would;
    match format {
        Output::Json => output::json(&json!({
            "job": "retain", "dataset": dataset.name.0, "dry_run": true, "deleted": deleted, "files_opened": files_opened,
            "files_rewritten": files_rewritten,
        })),
        Output::Text => output::line(&format!(
            "retain {}: would drop {} rows that are past their retention: {} files rewritten or removed, {} opened",
            dataset.name,
            output::number(deleted),
            output::number(files_rewritten),
            output::number(files_opened)
        )),
    }
}

/// Prints what a run did, and the errors of the datasets that failed. Returns the exit code.
pub fn print_summary(format: Output, summary: &RunSummary, started: Instant) -> Result<u8> {
    for (_, error) in &summary.failed {
        output::print_error(error);
    }
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let outcome = &summary.outcome;
    match format {
        Output::Json => output::json(&json!({
            "summary": true, "batches": summary.batches,
            "inserted": outcome.inserted, "updated": outcome.work.updated, "deleted": outcome.work.deleted,
            "skipped": outcome.skipped, "dead_letters": outcome.dead_letters,
            "files_opened": outcome.work.files_opened, "files_rewritten": outcome.work.files_rewritten,
            "bytes_copied": outcome.work.bytes_copied, "bytes_encoded": outcome.work.bytes_encoded,
            "failed": summary.failed.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "elapsed_ms": elapsed_ms,
        }))?,
        Output::Text if summary.batches == 0 && summary.failed.is_empty() => eprintln!("nothing to do"),
        Output::Text if outcome.work.updated + outcome.work.deleted > 0 => output::line(&format!(
            "{} rows in, {} updated, {} deleted, {} dead letters in {} batches, {:.1} s",
            output::number(outcome.inserted),
            output::number(outcome.work.updated),
            output::number(outcome.work.deleted),
            output::number(outcome.dead_letters),
            output::number(summary.batches),
            elapsed_ms as f64 / 1000.0
        ))?,
        Output::Text => output::line(&format!(
            "{} rows, {} dead letters in {} batches, {:.1} s",
            output::number(outcome.inserted),
            output::number(outcome.dead_letters),
            output::number(summary.batches),
            elapsed_ms as f64 / 1000.0
        ))?,
    }
    Ok(summary.failed.first().map_or(0, |(_, error)| error.kind().exit_code()))
}
