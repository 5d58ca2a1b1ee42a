//! What operations tell while they run.

use alluvium_core::{BatchNumber, BatchOutcome, DatasetName, Job, Shard};

use crate::maintain::VacuumReport;

/// A listener to running operations. Called from several threads; must return quickly.
pub trait Observer: Send + Sync {
    /// More input was read: records and bytes since the last call.
    fn input(&self, dataset: &DatasetName, records: u64, bytes: u64);
    /// Something the user should know, that does not stop the work.
    fn warning(&self, message: &str);
    /// A batch is finished.
    fn batch(&self, report: &BatchReport);
    /// A table was vacuumed, or with `dry_run` would have been.
    fn vacuumed(&self, report: &VacuumReport, dry_run: bool) {
        let _most_do_not_care = (report, dry_run);
    }
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn input(&self, _: &DatasetName, _: u64, _: u64) {}
    fn warning(&self, _: &str) {}
    fn batch(&self, _: &BatchReport) {}
}

/// A finished batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchReport {
    /// The kind of work.
    pub job: Job,
    /// The dataset.
    pub dataset: DatasetName,
    /// The shard, where the source is cut into several.
    pub shard: Option<Shard>,
    /// The batch.
    pub batch: BatchNumber,
    /// Whether a record left by another process, or an earlier run, was finished.
    pub resumed: bool,
    /// What it did.
    pub outcome: BatchOutcome,
}
