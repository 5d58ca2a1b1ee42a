//! The rounds of a retention: finish what is recorded, else drop what is past now.

use std::sync::Arc;
use std::time::Duration;

use alluvium_core::{
    BatchKey, BatchRecord, Dataset, DoneMark, Incarnation, Job, RECORD_FORMAT, Range, RecordBody, Recorded, Result,
    RetentionBounds, Shard, TableFiles, TableRewrite, TableSpec, app_id,
};
use alluvium_lake::{ChainStore, DeltaLog, Sweep, TableState};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use super::file::{Candidate, Expiring, Looked, Told};
use crate::engine::Engine;
use crate::ingest::{Mode, RunSummary};
use crate::rewrite::{
    Counts, FILES_AT_ONCE, Resumed, RewriteChain, Rewriter, RewrittenFiles, RewrittenTable, Room, rewrite_lease_name,
};
use crate::turn::give_back;

/// How long to wait before a plan that others were quicker than is made again, for the first time.
const LOST_INTERVAL: Duration = Duration::from_millis(100);
/// How long who follows waits between retentions: each rewrites the files in which rows have grown too old since the last.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// One dataset's part in a run.
struct Retaining<'a> {
    engine: &'a Engine,
    dataset: &'a Dataset,
    incarnation: Incarnation,
    chain: ChainStore,
}

/// What a retention would drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WouldDrop {
    /// Data files that would be opened.
    pub files_opened: u64,
    /// Data files that would be replaced, or go whole.
    pub files_rewritten: u64,
    /// Rows that would go.
    pub deleted: u64,
}

/// What there is to do in a table.
struct Plan {
    expiring: Arc<Expiring>,
    /// Files that go whole, and how many rows with each.
    whole: Vec<(Candidate, Counts)>,
    /// Files that must be opened.
    open: Vec<Candidate>,
}

/// What a round did.
enum Round {
    /// A batch was finished that was recorded before.
    Earlier(Box<DoneMark>),
    /// A batch was finished that began now.
    New(Box<DoneMark>),
    /// Look again.
    Again,
    /// There is nothing to do.
    Idle,
}

impl Engine {
    /// Drops the rows of `datasets` that are past their retention now. With [`Mode::Once`], one batch a dataset, which may be one that an earlier
    /// run left.
    ///
    /// # Errors
    /// Only what concerns all datasets; the rest is in [`RunSummary::failed`].
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the next run goes on where this one was.
    pub async fn retain(&self, datasets: &[&Dataset], mode: Mode) -> Result<RunSummary> {
        let mut summary = RunSummary::default();
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(summary) };
        for dataset in datasets {
            if self.stop.asked() {
                break;
            }
            let retaining = Retaining::new(self, dataset, &incarnation);
            match retaining.run_alone(mode, &mut summary).boxed().await {
                Ok(()) => {}
                Err(e) => summary.failed.push((dataset.name.0.clone(), e)),
            }
        }
        Ok(summary)
    }

    /// Retains now and then, until the user asks to stop. What fails is tried again the next time.
    pub async fn retain_now_and_then(&self, datasets: &[&Dataset]) {
        while !self.stop.asked() {
            let failed = match self.retain(datasets, Mode::UntilIdle).await {
                Ok(summary) => summary.failed.into_iter().map(|(_, error)| error).collect(),
                Err(error) => vec![error],
            };
            for error in failed {
                self.observer.warning(&format!("retain: {}; trying again later", error.chain_text()));
            }
            self.stop.sleep(FOLLOW_INTERVAL).await;
        }
    }

    /// What would be dropped of a dataset now. Changes nothing.
    ///
    /// # Errors
    /// As [`Engine::retain`] of one dataset.
    pub async fn would_retain(&self, dataset: &Dataset) -> Result<WouldDrop> {
        let mut would = WouldDrop::default();
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(would) };
        let retaining = Retaining::new(self, dataset, &incarnation);
        let Some(state) = retaining.log().state(&app_id(retaining.chain.chain())).await? else { return Ok(would) };
        let plan = retaining.plan(&state, dataset.retention.bounds(self.clock.now_micros())).await?;
        would.files_rewritten = plan.whole.len() as u64;
        would.deleted = plan.whole.iter().flat_map(|(_, counts)| counts.values()).map(|(_, deleted)| deleted).sum();
        would.files_opened = plan.open.len() as u64;
        let looks = plan.open.into_iter().map(|candidate| plan.expiring.would(candidate));
        let mut looks = stream::iter(looks).buffer_unordered(FILES_AT_ONCE);
        while let Some(deleted) = looks.try_next().await? {
            would.files_rewritten += u64::from(deleted > 0);
            would.deleted += deleted;
        }
        Ok(would)
    }
}

impl<'a> Retaining<'a> {
    fn new(engine: &'a Engine, dataset: &'a Dataset, incarnation: &Incarnation) -> Self {
        let chain = engine.chain(incarnation, Job::Retain, dataset, Shard::WHOLE);
        Self { engine, dataset, incarnation: incarnation.clone(), chain }
    }

    async fn run_alone(&self, mode: Mode, summary: &mut RunSummary) -> Result<()> {
        // What is under way is finished also where rows are kept for ever by now.
        if self.dataset.retention.is_forever() && !self.is_under_way().await? {
            return Ok(());
        }
        let Some(lease) = self.engine.turn(&rewrite_lease_name(self.dataset)).await? else { return Ok(()) };
        let done = self.run(mode, summary).await;
        give_back(lease).await;
        done
    }

    async fn is_under_way(&self) -> Result<bool> {
        let listing = self.chain.listing().await?;
        Ok(listing.newest().is_some_and(|newest| !listing.done.contains(&newest.batch)))
    }

    async fn run(&self, mode: Mode, summary: &mut RunSummary) -> Result<()> {
        let mut lost = 0;
        while !self.engine.stop.asked() {
            let (mark, is_last) = match Box::pin(self.round()).await? {
                Round::Earlier(mark) => (mark, mode == Mode::Once),
                Round::New(mark) => (mark, true),
                Round::Idle => break,
                Round::Again => {
                    lost += 1;
                    self.engine.stop.sleep(LOST_INTERVAL * lost.min(20)).await;
                    continue;
                }
            };
            summary.batches += 1;
            summary.outcome += mark.outcome;
            lost = 0;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    async fn round(&self) -> Result<Round> {
        match self.rewriting().resume().await? {
            Resumed::Now(mark) => Ok(Round::Earlier(mark)),
            Resumed::Before(key) => self.attempt(key, self.bounds_now(), false).await,
            Resumed::Amend(key, recorded) => {
                // What was past at the moment of the first attempt: that is what the batch is about.
                let bounds = match recorded.map(|recorded| recorded.range) {
                    Some(Range::Retention(bounds)) => bounds,
                    _ => self.bounds_now(),
                };
                self.attempt(key, bounds, true).await
            }
        }
    }

    fn bounds_now(&self) -> RetentionBounds {
        self.dataset.retention.bounds(self.engine.clock.now_micros())
    }

    /// Plans a batch, records it, and publishes it. `fixed`: another attempt at it was recorded, so it is made also if nothing goes.
    async fn attempt(&self, key: BatchKey, bounds: RetentionBounds, fixed: bool) -> Result<Round> {
        let (log, app) = (self.log(), app_id(self.chain.chain()));
        if log.state(&app).await?.is_none() {
            return Ok(Round::Idle);
        }
        let spec = TableSpec::data(self.dataset);
        let Some(state) = log.evolve(&spec, &self.incarnation, &app, self.engine.clock.now_ms()).await? else {
            return Ok(Round::Again);
        };
        let plan = self.plan(&state, bounds).await?;
        if !fixed && plan.whole.is_empty() && plan.open.is_empty() {
            return Ok(Round::Idle);
        }
        let now_micros = self.engine.clock.now_micros();
        let table = RewrittenTable::new(self.engine, &plan.expiring.rewriter, self.chain.chain(), key, now_micros);
        let sweeps = table.sweeps();
        let bounds = plan.expiring.bounds.clone();
        let files = match self.stage(plan, table).await {
            Ok(files) => files,
            Err(e) => {
                for sweep in sweeps {
                    sweep.run().await;
                }
                return Err(e);
            }
        };
        if !fixed && files.data.is_empty() {
            return Ok(Round::Idle);
        }
        let record = self.record(key, bounds, &state, files, now_micros);
        self.write(record, sweeps, fixed).await
    }

    async fn write(&self, record: BatchRecord, sweeps: Vec<Sweep>, fixed: bool) -> Result<Round> {
        Ok(match self.rewriting().write(&record, sweeps).await? {
            Some(mark) if fixed => Round::Earlier(mark),
            Some(mark) => Round::New(mark),
            None => Round::Again,
        })
    }

    fn record(
        &self,
        key: BatchKey,
        bounds: RetentionBounds,
        state: &TableState,
        files: RewrittenFiles,
        now_micros: i64,
    ) -> BatchRecord {
        let RewrittenFiles { data, rewrites, counts, work } = files;
        let recorded = Recorded {
            range: Range::Retention(bounds),
            data,
            dead_letters: TableFiles::default(),
            retries: TableFiles::default(),
            outcomes: TableFiles::default(),
            ledger: state.ledger(),
            shape: state.shape(),
            mutation: None,
            rewrite: Some(TableRewrite { rewrites, work }),
            counts,
            skipped: 0,
            staged_at_micros: now_micros,
        };
        BatchRecord {
            format: RECORD_FORMAT,
            chain: self.chain.chain().clone(),
            batch: key.batch,
            attempt: key.attempt,
            body: RecordBody::Intent(Box::new(recorded)),
        }
    }

    /// What is past of the files of a version.
    async fn plan(&self, state: &TableState, bounds: RetentionBounds) -> Result<Plan> {
        let log = self.log();
        let rewriter = Rewriter::new(self.engine, self.dataset, log.stored_schema().await?, state.has_change_data_feed());
        let expiring = Arc::new(Expiring::new(rewriter, bounds));
        let mut plan = Plan { expiring, whole: Vec::new(), open: Vec::new() };
        for (file, stats) in log.standing_files_with_statistics(state.version()).await? {
            let candidate = Candidate { file, stats };
            match plan.expiring.told(&candidate) {
                Told::Stays => {}
                Told::Goes(counts) => plan.whole.push((candidate, counts)),
                Told::Open => plan.open.push(candidate),
            }
        }
        Ok(plan)
    }

    /// Stages what stands in the places of files.
    async fn stage(&self, plan: Plan, mut table: RewrittenTable) -> Result<RewrittenFiles> {
        let Plan { expiring, whole, open } = plan;
        table.opened(open.len());
        for (Candidate { file, .. }, counts) in whole {
            table.without(&file, counts)?;
        }
        let looks = open.into_iter().map(|candidate| {
            let (expiring, bytes) = (expiring.clone(), candidate.file.size);
            (bytes, async move { expiring.look(candidate).await })
        });
        let mut looks = Room::new(self.engine, self.dataset).looked(looks);
        while let Some(((file, looked), held)) = looks.try_next().await? {
            match looked {
                Looked::Stays => {}
                Looked::Goes(counts) => table.without(&file, counts)?,
                Looked::Rewritten(rewrite) => table = table.with(&file, *rewrite, held).await?,
            }
        }
        table.finish().await
    }

    fn log(&self) -> DeltaLog {
        self.engine.log_of(&TableSpec::data(self.dataset))
    }

    fn rewriting(&self) -> RewriteChain<'_> {
        let Self { engine, dataset, incarnation, chain } = self;
        RewriteChain { engine, dataset, incarnation, chain }
    }
}
