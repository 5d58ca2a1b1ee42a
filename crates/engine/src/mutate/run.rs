//! The rounds of a mutation: take requests in, fold them, move each data table to the newest position.

use std::time::Duration;

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, BatchRecord, Dataset, Error, Incarnation, Job, Kind, LedgerPosition, Range, RecordBody,
    Result, Shard, TableSpec, app_id,
};
use alluvium_lake::{ChainListing, ChainStore, LeaseWatch, PutNew};

use crate::engine::Engine;
use crate::ingest::{Amend, Finished, Finishing, IngestOptions, Mode, RunSummary};
use crate::ledger::DatasetLedger;

/// How long to wait before looking again whether another process still works on the same table.
const LEASE_INTERVAL: Duration = Duration::from_millis(100);
/// How long a follower rests when it found nothing to do.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// One dataset's part in a run.
pub(super) struct Mutating<'a> {
    pub(super) engine: &'a Engine,
    pub(super) dataset: &'a Dataset,
    pub(super) incarnation: Incarnation,
    pub(super) chain: ChainStore,
}

/// What a round did.
enum Round {
    /// A batch was finished.
    Batch,
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
        loop {
            let before = summary.batches;
            let once = IngestOptions { mode: Mode::UntilIdle, ..options };
            if self.project.requests.has_source {
                let taken = self.ingest(&[&self.project.requests.intake], once).await?;
                summary.add(taken);
            }
            self.apply_requests(datasets, &mut summary).await?;
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

    /// Runs the jobs that are built: requests go before events.
    ///
    /// # Errors
    /// As [`Engine::mutate`] and [`Engine::ingest`].
    pub async fn run_all(&self, datasets: &[&Dataset], options: impl Into<IngestOptions>) -> Result<RunSummary> {
        let options = options.into();
        if options.mode == Mode::Follow {
            let (mutated, ingested) = futures::future::join(self.mutate(datasets, options), self.ingest(datasets, options)).await;
            let mut summary = mutated?;
            summary.add(ingested?);
            return Ok(summary);
        }
        let mut summary = self.mutate(datasets, options).await?;
        summary.add(self.ingest(datasets, options).await?);
        Ok(summary)
    }

    /// Moves the tables of `datasets` to the newest position of the ledger.
    async fn apply_requests(&self, datasets: &[&Dataset], summary: &mut RunSummary) -> Result<()> {
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(()) };
        for dataset in datasets {
            if self.stop.asked() {
                break;
            }
            let chain = self.chain(&incarnation, Job::Mutate, dataset, Shard::WHOLE);
            let mutating = Mutating { engine: self, dataset, incarnation: incarnation.clone(), chain };
            if let Err(e) = mutating.run_alone(summary).await {
                summary.failed.push((dataset.name.0.clone(), e));
            }
        }
        Ok(())
    }

    /// The last batch of requests that is finished.
    pub(crate) async fn requests_taken(&self, incarnation: &Incarnation) -> Result<BatchNumber> {
        let chain = self.chain(incarnation, Job::Mutate, &self.project.requests.intake, Shard::WHOLE);
        Ok(chain.listing().await?.newest_done().unwrap_or(BatchNumber(0)))
    }
}

impl Mutating<'_> {
    async fn run_alone(&self, summary: &mut RunSummary) -> Result<()> {
        let name = format!("{}.{}", Job::Mutate, self.dataset.name);
        let mut watch = LeaseWatch::new(&self.engine.store, &self.engine.resolver, &name, self.engine.project.lease_ttl);
        let lease = loop {
            match watch.try_acquire().await? {
                Some(lease) => break lease,
                None if self.engine.stop.asked() => return Ok(()),
                None => self.engine.stop.sleep(LEASE_INTERVAL).await,
            }
        };
        let done = self.run(summary).await;
        if let Err(error) = lease.release().await {
            tracing::warn!(error = %error.chain_text(), "could not give back a lease");
        }
        done
    }

    async fn run(&self, summary: &mut RunSummary) -> Result<()> {
        // Requests that wait for a row are tried once a run: one attempt a batch.
        let mut tried = false;
        while !self.engine.stop.asked() {
            match self.round(summary, &mut tried).await? {
                Round::Batch | Round::Again => {}
                Round::Idle => return Ok(()),
            }
        }
        Ok(())
    }

    async fn round(&self, summary: &mut RunSummary, tried: &mut bool) -> Result<Round> {
        let listing = self.chain.listing().await?;
        let Some(newest) = listing.newest() else {
            return self.next_batch(BatchKey { batch: BatchNumber::FIRST, attempt: Attempt::FIRST }, None, summary, tried).await;
        };
        if listing.done.contains(&newest.batch) {
            self.drop_old_records(&listing, newest.batch).await?;
            return self.next_batch(BatchKey { batch: newest.batch.next(), attempt: Attempt::FIRST }, None, summary, tried).await;
        }
        let gone =
            || Error::new(Kind::Unavailable, format!("the record of batch {newest} was listed and is gone")).hint("run again");
        let record = self.chain.record(newest).await?.ok_or_else(gone)?;
        let why = match self.finishing(true).finish(&record).await? {
            Finished::Done(mark) => {
                summary.batches += 1;
                summary.outcome += mark.outcome;
                *tried = true;
                return Ok(Round::Batch);
            }
            Finished::Amend(why) => why,
        };
        let attempt = newest.attempt.next().ok_or_else(|| {
            Error::new(Kind::Internal, format!("batch {newest} of {} was attempted too often: {why}", self.dataset.name))
        })?;
        // The first record fixed the range; a void one may stand before it.
        let range = match &record.body {
            RecordBody::Intent(recorded) => Some(recorded.range.clone()),
            RecordBody::Void => self.earlier_range(&listing, newest).await?,
        };
        let before = match (why, &record.body) {
            (Amend::Moved, RecordBody::Intent(_)) => Some(record),
            _ => None,
        };
        self.attempt(BatchKey { batch: newest.batch, attempt }, range, before, summary, tried).await
    }

    async fn earlier_range(&self, listing: &ChainListing, key: BatchKey) -> Result<Option<Range>> {
        for attempt in listing.records.get(&key.batch).into_iter().flatten() {
            if let Some(recorded) = self.chain.recorded_range(BatchKey { attempt: *attempt, ..key }).await? {
                return Ok(Some(recorded.range));
            }
        }
        Ok(None)
    }

    async fn next_batch(&self, key: BatchKey, range: Option<Range>, summary: &mut RunSummary, tried: &mut bool) -> Result<Round> {
        self.attempt(key, range, None, summary, tried).await
    }

    /// Plans a batch, records it, and publishes it. `range` is that of an earlier attempt, whose record may be `before`.
    async fn attempt(
        &self,
        key: BatchKey,
        range: Option<Range>,
        before: Option<BatchRecord>,
        summary: &mut RunSummary,
        tried: &mut bool,
    ) -> Result<Round> {
        let spec = TableSpec::data(self.dataset);
        let log = self.engine.log_of(&spec);
        let app = app_id(self.chain.chain());
        let taken = self.engine.requests_taken(&self.incarnation).await?;
        // A table that is not there has no rows, and is made at the newest position when the first come.
        let Some(state) = log.state(&app).await? else { return Ok(Round::Idle) };
        let from = state.ledger();
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
        let to = match range {
            Some(Range::Ledger { to, .. }) => to,
            _ => LedgerPosition(taken.0),
        };
        let ledger = DatasetLedger::at(self.engine, &self.incarnation, self.dataset, to).await?;
        let _state = log.ensure(&spec, &self.incarnation, &app, self.engine.clock.now_ms()).await?;
        let _what_was_staged_before_may_be_used = before;
        let planned = self.plan(key, from, to, ledger, state.version(), *tried, range.is_some()).await?;
        let Some((record, sweeps)) = planned else { return Ok(Round::Idle) };
        *tried = true;
        if self.chain.write(&record).await? == PutNew::Exists {
            for sweep in sweeps {
                sweep.run().await;
            }
            return Ok(Round::Again);
        }
        match self.finishing(false).finish(&record).await? {
            Finished::Done(mark) => {
                summary.batches += 1;
                summary.outcome += mark.outcome;
                Ok(Round::Batch)
            }
            Finished::Amend(_) => Ok(Round::Again),
        }
    }

    async fn drop_old_records(&self, listing: &ChainListing, finished: BatchNumber) -> Result<()> {
        const RECORDS_KEPT: u64 = 64;
        if (listing.records.len() as u64) < 2 * RECORDS_KEPT {
            return Ok(());
        }
        self.chain.delete(&listing.before(BatchNumber(finished.0.saturating_sub(RECORDS_KEPT)))).await
    }

    fn finishing(&self, resumed: bool) -> Finishing<'_> {
        Finishing { engine: self.engine, incarnation: &self.incarnation, dataset: self.dataset, chain: &self.chain, resumed }
    }
}
