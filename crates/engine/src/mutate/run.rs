//! The rounds of a mutation: take requests in, fold them, move each data table to the newest position.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use alluvium_core::{
    BatchKey, BatchNumber, Dataset, DatasetName, Error, Incarnation, Job, Kind, LedgerPosition, Range, RecordBody, Recorded,
    Requests, Result, Shard, TableName, TableSpec, app_id,
};
use alluvium_lake::{ChainStore, LeaseWatch};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use super::earlier::Table;
use super::plan::Move;
use crate::engine::Engine;
use crate::ingest::{IngestOptions, Mode, RunSummary, floor_lease_name};
use crate::ledger::DatasetLedger;
use crate::rewrite::{Resumed, RewriteChain, rewrite_lease_name};
use crate::turn::give_back;

/// How long to wait before a plan that appends were quicker than is made again, for the first time.
const LOST_INTERVAL: Duration = Duration::from_millis(100);
/// How long a follower rests when it found nothing to do.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// After so many plans that appends were quicker than, appends wait.
const LOSSES_BEFORE_FLOOR: u32 = 3;

/// What must have been taken in and is not listed is looked for so often, with so much time between.
const MAX_LOOKS: u32 = 8;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Marks of finished batches of requests that are read at a time.
const MARKS_AT_ONCE: usize = 16;

/// One dataset's part in a run.
pub(super) struct Mutating<'a> {
    pub(super) engine: &'a Engine,
    pub(super) dataset: &'a Dataset,
    pub(super) incarnation: Incarnation,
    pub(super) chain: ChainStore,
}

/// What applying requests would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WouldChange {
    /// The requests that would be applied.
    pub requests: u64,
    /// Data files that would be opened.
    pub files_opened: u64,
    /// Data files that would be replaced.
    pub files_rewritten: u64,
    /// Rows of which a value would change.
    pub updated: u64,
    /// Rows that would go.
    pub deleted: u64,
}

/// What a round did.
enum Round {
    /// A batch was finished.
    Batch,
    /// A batch was finished, and nothing was taken in that it did not apply.
    Last,
    /// Look again.
    Again,
    /// There is nothing to do.
    Idle,
}

impl Engine {
    /// Takes requests in, and applies to the tables of `datasets` those that were not applied yet.
    ///
    /// # Errors
    /// Only what concerns all datasets; the rest is in [`RunSummary::failed`].
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the next run goes on where this one was.
    pub async fn mutate(&self, datasets: &[&Dataset], options: impl Into<IngestOptions>) -> Result<RunSummary> {
        let options = options.into();
        let mut summary = RunSummary::default();
        // Requests that wait for a row are tried once a run by themselves; a follower tries them with what comes.
        let mut tried: BTreeSet<DatasetName> = BTreeSet::new();
        loop {
            let before = summary.batches;
            let once = IngestOptions { mode: Mode::UntilIdle, ..options };
            self.finish_intake(&mut summary).await?;
            if self.project.requests.has_source {
                let taken = Box::pin(self.ingest(&[&self.project.requests.intake], once)).await?;
                summary.add(taken);
            }
            self.apply_requests(datasets, &mut tried, &mut summary).await?;
            if options.mode != Mode::Follow || self.stop.asked() {
                return Ok(summary);
            }
            if let Some(lasting) = summary.failed.iter().position(|(_, e)| !e.may_pass()) {
                summary.failed.swap(0, lasting);
                return Ok(summary);
            }
            for (_, error) in summary.failed.drain(..) {
                self.observer.warning(&format!("{}; trying again", error.chain_text()));
            }
            if summary.batches == before {
                self.stop.sleep(FOLLOW_INTERVAL).await;
            }
        }
    }

    /// Runs the jobs that are built: requests go before events, then what is past its retention, and what nobody needs any more goes last.
    ///
    /// # Errors
    /// As [`Engine::mutate`], [`Engine::ingest`], [`Engine::retain`] and [`Engine::vacuum`].
    pub async fn run_all(&self, datasets: &[&Dataset], options: impl Into<IngestOptions>) -> Result<RunSummary> {
        let options = options.into();
        // Of all datasets, all tables.
        let names: Vec<String> = match datasets.len() == self.project.datasets.len() {
            true => Vec::new(),
            false => datasets.iter().map(|dataset| dataset.name.0.clone()).collect(),
        };
        if options.mode == Mode::Follow {
            let both = Box::pin(futures::future::join(self.mutate(datasets, options), self.ingest(datasets, options)));
            let upkeep = futures::future::join(self.retain_now_and_then(datasets).boxed(), self.vacuum_now_and_then(&names));
            // Retentions and vacuums may end anywhere; they end with the others.
            let (mutated, ingested) = match futures::future::select(both, Box::pin(upkeep)).await {
                futures::future::Either::Left((done, _)) => done,
                futures::future::Either::Right((_, both)) => both.await,
            };
            let mut summary = mutated?;
            summary.add(ingested?);
            return Ok(summary);
        }
        let mut summary = self.mutate(datasets, options).await?;
        summary.add(self.ingest(datasets, options).await?);
        if !self.stop.asked() {
            summary.add(self.retain(datasets, options.mode).boxed().await?);
        }
        if !self.stop.asked() {
            summary.failed.extend(self.vacuum(&names, false).await?.failed);
        }
        Ok(summary)
    }

    /// What applying the requests that were taken in would change in the table of a dataset. Changes nothing, but for the folded ledger, which is
    /// kept for when they are applied.
    ///
    /// # Errors
    /// As [`Engine::mutate`] of one dataset.
    pub async fn would_mutate(&self, dataset: &Dataset) -> Result<WouldChange> {
        let nothing = WouldChange::default();
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(nothing) };
        let chain = self.chain(&incarnation, Job::Mutate, dataset, Shard::WHOLE);
        let Some(state) = self.log_of(&TableSpec::data(dataset)).state(&app_id(chain.chain())).await? else { return Ok(nothing) };
        let to = LedgerPosition(self.requests_taken(&incarnation).await?.0);
        let ledger = DatasetLedger::at(self, &incarnation, dataset, to, Some(state.ledger())).await?;
        let a_move = Move {
            from: state.ledger(),
            to,
            ledger,
            version: state.version(),
            standing: self.log_of(&TableSpec::data(dataset)).standing_files_with_statistics(state.version()).await?,
            shape: state.shape(),
            feed: state.has_change_data_feed(),
            taken: to,
            most_told: u64::MAX,
            tries: false,
            fixed: false,
            earlier: None,
            after: chain.listing().await?.newest_done().unwrap_or(BatchNumber(0)),
        };
        Mutating { engine: self, dataset, incarnation, chain }.would(a_move).await
    }

    /// Moves the tables of `datasets` to the newest position of the ledger.
    async fn apply_requests(
        &self,
        datasets: &[&Dataset],
        tried: &mut BTreeSet<DatasetName>,
        summary: &mut RunSummary,
    ) -> Result<()> {
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(()) };
        for dataset in datasets {
            if self.stop.asked() {
                break;
            }
            let chain = self.chain(&incarnation, Job::Mutate, dataset, Shard::WHOLE);
            let mutating = Mutating { engine: self, dataset, incarnation: incarnation.clone(), chain };
            let mut tries = !tried.contains(&dataset.name);
            match Box::pin(mutating.run_alone(&mut tries, summary)).await {
                Ok(()) => {}
                Err(e) => summary.failed.push((dataset.name.0.clone(), e)),
            }
            tried.insert(dataset.name.clone());
        }
        Ok(())
    }

    /// Finishes a batch of requests that another process left, also where there is no source to read.
    async fn finish_intake(&self, summary: &mut RunSummary) -> Result<()> {
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(()) };
        let intake = self.chain(&incarnation, Job::Mutate, &self.project.requests.intake, Shard::WHOLE);
        let listing = intake.listing().await?;
        if listing.newest().is_some_and(|newest| !listing.done.contains(&newest.batch)) {
            let (taken, _if_stopped_the_next_run_finishes_it) = self.submit_until_stopped("", Bytes::new()).await?;
            summary.add(taken);
        }
        Ok(())
    }

    /// The last of the batches of requests after `from` and up to `to` that together took in no more than `most`, but one at least.
    pub(crate) async fn batches_at_once(
        &self,
        incarnation: &Incarnation,
        from: BatchNumber,
        to: BatchNumber,
        most: u64,
    ) -> Result<BatchNumber> {
        let chain = self.chain(incarnation, Job::Mutate, self.requests_intake(), Shard::WHOLE);
        let marks = stream::iter(from.0 + 1..=to.0).map(|batch| {
            let chain = chain.clone();
            async move { chain.done_mark(BatchNumber(batch)).await.map(|mark| (batch, mark)) }
        });
        let (mut marks, mut requests, mut in_table) = (marks.buffered(MARKS_AT_ONCE), 0, None);
        while let Some((batch, mark)) = marks.try_next().await? {
            requests += match mark {
                Some(mark) => mark.outcome.inserted,
                // Of a batch long finished the mark may be gone.
                None => {
                    let rows = match &mut in_table {
                        Some(rows) => rows,
                        none => none.insert(self.requests_by_batch(incarnation).await?),
                    };
                    rows.get(&BatchNumber(batch)).copied().unwrap_or(Requests::MAX_BATCH_REQUESTS)
                }
            };
            if requests > most {
                return Ok(BatchNumber((batch - 1).max(from.0 + 1)));
            }
        }
        Ok(to)
    }

    /// How many requests each batch took in, as far as files that hold those of one batch tell.
    async fn requests_by_batch(&self, incarnation: &Incarnation) -> Result<HashMap<BatchNumber, u64>> {
        let mut rows: HashMap<BatchNumber, u64> = HashMap::new();
        let intake = self.chain(incarnation, Job::Mutate, self.requests_intake(), Shard::WHOLE);
        for (file, bounds) in
            self.log(&TableName::REQUESTS).live_files_with(&app_id(intake.chain()), BatchNumber(0), "batch_id").await?
        {
            // A purge puts a file in the place of each.
            if let (Some((first, last)), Some(of_file)) = (bounds, file.rows)
                && first == last
            {
                *rows.entry(BatchNumber(first.unsigned_abs())).or_default() += of_file;
            }
        }
        Ok(rows)
    }

    /// The last batch of requests that is finished.
    pub(crate) async fn requests_taken(&self, incarnation: &Incarnation) -> Result<BatchNumber> {
        let chain = self.chain(incarnation, Job::Mutate, &self.project.requests.intake, Shard::WHOLE);
        Ok(chain.listing().await?.newest_done().unwrap_or(BatchNumber(0)))
    }
}

impl Mutating<'_> {
    async fn run_alone(&self, tries: &mut bool, summary: &mut RunSummary) -> Result<()> {
        let name = rewrite_lease_name(self.dataset);
        let Some(lease) = self.engine.turn(&name).await? else { return Ok(()) };
        let done = self.run(tries, summary).await;
        give_back(lease).await;
        done
    }

    async fn run(&self, tries: &mut bool, summary: &mut RunSummary) -> Result<()> {
        // Appends that are quicker than a plan make it be made again; after a few they wait for one.
        let (mut lost, mut floor) = (0, None);
        while !self.engine.stop.asked() {
            match Box::pin(self.round(summary, tries)).await? {
                Round::Batch => lost = 0,
                Round::Last | Round::Idle => break,
                Round::Again => {
                    lost += 1;
                    if lost >= LOSSES_BEFORE_FLOOR && floor.is_none() {
                        let name = floor_lease_name(self.dataset);
                        let Engine { store, resolver, project, .. } = self.engine;
                        floor = LeaseWatch::new(store, resolver, &name, project.lease_ttl).try_acquire().await?;
                    }
                    self.engine.stop.sleep(LOST_INTERVAL * lost.min(20)).await;
                }
            }
            if lost == 0
                && let Some(floor) = floor.take()
            {
                give_back(floor).await;
            }
        }
        if let Some(floor) = floor {
            give_back(floor).await;
        }
        Ok(())
    }

    async fn round(&self, summary: &mut RunSummary, tries: &mut bool) -> Result<Round> {
        match self.rewriting().resume().await? {
            Resumed::Before(key) => self.attempt(key, None, summary, tries).await,
            Resumed::Amend(key, recorded) => self.attempt(key, recorded, summary, tries).await,
            Resumed::Now(mark) => {
                summary.batches += 1;
                summary.outcome += mark.outcome;
                *tries = false;
                Ok(Round::Batch)
            }
        }
    }

    /// Plans a batch, records it, and publishes it. `before` is what an earlier attempt recorded, if there was one.
    async fn attempt(
        &self,
        key: BatchKey,
        before: Option<Box<Recorded>>,
        summary: &mut RunSummary,
        tries: &mut bool,
    ) -> Result<Round> {
        let spec = TableSpec::data(self.dataset);
        let log = self.engine.log_of(&spec);
        let app = app_id(self.chain.chain());
        // A table that is not there has no rows, and is made at the newest position when the first come. What stands there is read before
        // what was taken in, which is never behind it.
        let Some(state) = log.state(&app).await? else { return Ok(Round::Idle) };
        let from = state.ledger();
        let mut taken = self.engine.requests_taken(&self.incarnation).await?;
        for _ in 0..MAX_LOOKS {
            if taken.0 >= from.0 {
                break;
            }
            // A listing that shows less is late.
            self.engine.store.machine().sleep(LOOK_INTERVAL).await;
            taken = self.engine.requests_taken(&self.incarnation).await?;
        }
        if taken.0 < from.0 {
            return Err(Error::new(
                Kind::Corrupt,
                format!(
                    "dataset {}: its table has applied {from} batches of requests, and only {taken} were taken in",
                    self.dataset.name
                ),
            )
            .hint("_alluvium or the table requests was restored to an older state: bring back the newest"));
        }
        let fixed = before.is_some();
        let to = match before.as_ref().map(|recorded| &recorded.range) {
            Some(Range::Ledger { to, .. }) => *to,
            _ => self.next_position(from, taken).await?,
        };
        // The log is read while requests are folded.
        let version = state.version();
        let standing = tokio::spawn({
            let log = log.clone();
            async move { log.standing_files_with_statistics(version).await }
        });
        let ledger = Box::pin(DatasetLedger::at(self.engine, &self.incarnation, self.dataset, to, Some(from))).await;
        let standing = standing.await.map_err(|e| Error::new(Kind::Internal, "reading the log").source(e))?;
        let ledger = match ledger {
            Ok(ledger) => ledger,
            // What others have merged since tells of later positions only.
            Err(e) if e.may_pass() && self.went_on(from, taken).await? => return Ok(Round::Again),
            Err(e) => return Err(e),
        };
        let mut folded = ledger.clone();
        let Some(evolved) = log.evolve(&spec, &self.incarnation, &app, self.engine.clock.now_ms()).await? else {
            return Ok(Round::Again);
        };
        let (standing, feed) = (standing?, evolved.has_change_data_feed());
        let earlier = match before {
            Some(recorded) => {
                let table = Table { standing: &standing, position: from, shape: ledger.shape(), feed };
                self.earlier(*recorded, &table).await
            }
            None => None,
        };
        let a_move = Move {
            from,
            to,
            ledger,
            version,
            standing,
            shape: state.shape(),
            feed,
            taken: LedgerPosition(taken.0),
            most_told: self.engine.requests_at_once(),
            tries: *tries,
            fixed,
            earlier,
            after: BatchNumber(key.batch.0 - 1),
        };
        let planned = Box::pin(self.plan(key, a_move)).await?;
        let Some((record, sweeps)) = planned else { return Ok(Round::Idle) };
        let Some(mark) = Box::pin(self.rewriting().write(&record, sweeps)).await? else { return Ok(Round::Again) };
        summary.batches += 1;
        summary.outcome += mark.outcome;
        folded.merge_small(BatchNumber(to.0)).await;
        let RecordBody::Intent(recorded) = &record.body else { return Ok(Round::Batch) };
        if recorded.mutation.as_ref().is_none_or(|mutation| mutation.told < to) || to.0 < taken.0 {
            return Ok(Round::Batch);
        }
        *tries = false;
        let is_last = self.engine.requests_taken(&self.incarnation).await?.0 == to.0;
        Ok(if is_last { Round::Last } else { Round::Batch })
    }

    /// Whether other processes moved the table, or took requests in, since it was at that position and so many were taken in.
    async fn went_on(&self, from: LedgerPosition, taken: BatchNumber) -> Result<bool> {
        let state = self.engine.log_of(&TableSpec::data(self.dataset)).state(&app_id(self.chain.chain())).await?;
        Ok(state.is_none_or(|state| state.ledger() != from) || self.engine.requests_taken(&self.incarnation).await? != taken)
    }

    /// How far the table moves at a time: as far as the memory allows, by one batch of requests at least.
    async fn next_position(&self, from: LedgerPosition, taken: BatchNumber) -> Result<LedgerPosition> {
        let most = self.engine.requests_at_once();
        Ok(LedgerPosition(self.engine.batches_at_once(&self.incarnation, BatchNumber(from.0), taken, most).await?.0))
    }

    fn rewriting(&self) -> RewriteChain<'_> {
        let Self { engine, dataset, incarnation, chain } = self;
        RewriteChain { engine, dataset, incarnation, chain }
    }
}
