//! Shows a run while it runs: a bar on a terminal, a line or a JSON object for each batch.

use std::io::{self, IsTerminal};
use std::sync::Mutex;

use alluvium_core::{Dataset, DatasetName, Job, Shard};
use alluvium_engine::{BatchReport, Observer, VacuumReport};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::args::Output;
use crate::output;

/// The listener of the command line.
pub struct Progress {
    output: Output,
    bar: ProgressBar,
    records: Mutex<u64>,
}

impl Progress {
    /// A listener; its bar is drawn only if stderr is a terminal.
    pub fn new(output: Output) -> Self {
        let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {elapsed} {binary_bytes} read at {binary_bytes_per_sec}, {msg}")
        {
            bar.set_style(style);
        }
        Self { output, bar, records: Mutex::new(0) }
    }

    fn line(&self, text: &str) {
        // A reader of stdout that is gone ends the process inside `line`; another fault of stdout does not stop the work.
        let _ = self.bar.suspend(|| output::line(text));
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// A batch's object as text, with the shard, where the source is cut into several.
fn with_shard(shard: Option<Shard>, mut batch: Value) -> String {
    if let Some(Shard(shard)) = shard {
        batch["shard"] = shard.into();
    }
    batch.to_string()
}

impl Observer for Progress {
    fn input(&self, dataset: &DatasetName, records: u64, bytes: u64) {
        let mut all = self.records.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *all += records;
        self.bar.inc(bytes);
        self.bar.set_message(format!("{} records, {dataset}", output::number(*all)));
    }

    fn warning(&self, message: &str) {
        self.bar.suspend(|| eprintln!("warning: {message}"));
    }

    fn batch(&self, report: &BatchReport) {
        let BatchReport { job, dataset, shard, batch, resumed, outcome } = report;
        let text = match self.output {
            Output::Json => with_shard(
                *shard,
                json!({
                    "job": job.name(), "dataset": dataset.0, "batch_id": batch.0,
                    "outcome": if *resumed { "resumed" } else { "committed" },
                    "inserted": outcome.inserted, "updated": outcome.work.updated, "deleted": outcome.work.deleted,
                    "skipped": outcome.skipped, "dead_letters": outcome.dead_letters,
                    "files_opened": outcome.work.files_opened, "files_rewritten": outcome.work.files_rewritten,
                    "bytes_copied": outcome.work.bytes_copied, "bytes_encoded": outcome.work.bytes_encoded,
                }),
            ),
            Output::Text if *job == Job::Mutate && dataset.0 != Dataset::REQUESTS => format!(
                "{job} {dataset} batch {batch}{}: {} rows updated, {} deleted, {} files rewritten or removed, {} opened ({} encoded)",
                if *resumed { " (resumed)" } else { "" },
                output::number(outcome.work.updated),
                output::number(outcome.work.deleted),
                output::number(outcome.work.files_rewritten),
                output::number(outcome.work.files_opened),
                output::bytes(outcome.work.bytes_encoded),
            ),
            Output::Text if *job == Job::Retain => format!(
                "{job} {dataset} batch {batch}{}: {} rows deleted, {} files rewritten or removed, {} opened ({} encoded)",
                if *resumed { " (resumed)" } else { "" },
                output::number(outcome.work.deleted),
                output::number(outcome.work.files_rewritten),
                output::number(outcome.work.files_opened),
                output::bytes(outcome.work.bytes_encoded),
            ),
            Output::Text => format!(
                "{job} {dataset}{} batch {batch}{}: {} rows in {} files ({}), {} dead letters",
                shard.map_or_else(String::new, |shard| format!(" shard {}", shard.0)),
                if *resumed { " (resumed)" } else { "" },
                output::number(outcome.inserted),
                output::number(outcome.files),
                output::bytes(outcome.bytes),
                output::number(outcome.dead_letters),
            ),
        };
        self.line(&text);
    }

    fn vacuumed(&self, report: &VacuumReport, dry_run: bool) {
        let VacuumReport { table, removed, kept_from, kept_for } = report;
        if matches!(self.output, Output::Text) && removed.files + removed.beside == 0 && kept_for.is_empty() {
            return;
        }
        let text = match self.output {
            Output::Json => json!({
                "job": Job::Vacuum.name(), "dataset": table.as_str(), "dry_run": dry_run,
                "outcome": if dry_run { "would remove" } else { "removed" },
                "files_removed": removed.files + removed.beside, "data_files_removed": removed.files,
                "bytes_removed": removed.bytes, "changes_kept_from": kept_from.0, "kept_for": kept_for,
            })
            .to_string(),
            Output::Text => format!(
                "vacuum {table}: {} {} data files and {} files beside them, {}; changes are kept from version {} on{}",
                if dry_run { "would remove" } else { "removed" },
                output::number(removed.files),
                output::number(removed.beside),
                output::bytes(removed.bytes),
                kept_from.0,
                if kept_for.is_empty() { String::new() } else { format!(", for {}", kept_for.join(", ")) },
            ),
        };
        self.line(&text);
    }
}
