//! The rounds of a run: finish what is recorded, else take the next range.

use std::collections::VecDeque;
use std::time::Duration;

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, BatchOutcome, BatchRecord, Dataset, Error, FoundFile, Incarnation, Job, Kind, Range,
    RecordBody, Result, Shard, TableSpec, app_id,
};
use alluvium_lake::{ChainListing, ChainStore, Lease, LeaseWatch, PutNew, Sweep};

use super::backlog::{Inbox, still_waiting};
use super::finish::{Finished, Finishing};
use super::taken::Taken;
use crate::engine::Engine;

/// How long a follower waits before it looks for new files again.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// How long a run waits before it asks again whether another process still works on the same.
const LEASE_INTERVAL: Duration = Duration::from_millis(100);
/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// When nothing is left that was there at the start.
    #[default]
    UntilIdle,
    /// After one batch a dataset.
    Once,
    /// When it is stopped.
    Follow,
}

/// What a run did.
#[derive(Debug, Default)]
pub struct RunSummary {
    /// Batches finished.
    pub batches: u64,
    /// What they did together.
    pub outcome: BatchOutcome,
    /// The datasets that failed, and why. The others went on.
    pub failed: Vec<(String, Error)>,
}

/// One dataset's part in a run.
pub(super) struct Ingest<'a> {
    pub(super) engine: &'a Engine,
    pub(super) dataset: &'a Dataset,
    incarnation: Incarnation,
    pub(super) chain: ChainStore,
    pub(super) inbox: Inbox,
    pub(super) taken: Taken,
    /// What is still to be taken; `None` before the first listing.
    pub(super) queue: Option<VecDeque<FoundFile>>,
    prepared: bool,
    /// The newest batch whose files this process has moved or deleted, if the project file says so.
    acted_up_to: BatchNumber,
    /// This round has begun to finish a batch: what has changed in the chain since may be our own doing.
    finishing: bool,
    watch: LeaseWatch,
    lease: Option<Lease>,
}

/// What a round did.
enum Round {
    /// A batch was finished.
    Batch(BatchOutcome),
    /// Another process was quicker with the record: look again.
    Again,
    /// Another process has the dataset's lease.
    Waiting,
    /// There is nothing to take.
    Idle,
    /// The user asked to stop.
    Stopped,
}

impl Engine {
    /// Takes in what the sources of `datasets` hold. The datasets take turns, a batch each; one that fails does not stop the
    /// others.
    ///
    /// # Errors
    /// Only what concerns all datasets, such as a namespace that is being deleted; the rest is in [`RunSummary::failed`].
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the next run goes on where this one was.
    pub async fn ingest(&self, datasets: &[&Dataset], mode: Mode) -> Result<RunSummary> {
        let incarnation = self.incarnation().await?;
        let mut summary = RunSummary::default();
        let mut turns: VecDeque<Ingest<'_>> = VecDeque::new();
        for dataset in datasets {
            match Ingest::new(self, dataset, &incarnation) {
                Ok(ingest) => turns.push_back(ingest),
                Err(e) => summary.failed.push((dataset.name.0.clone(), e)),
            }
        }
        let (mut idle, mut waiting) = (0, 0);
        while let Some(mut ingest) = turns.pop_front() {
            if self.stop.asked() {
                ingest.release().await;
                continue;
            }
            let round = ingest.turn().await;
            waiting = if matches!(round, Ok(Round::Waiting)) { waiting + 1 } else { 0 };
            match round {
                Ok(Round::Batch(outcome)) => {
                    summary.batches += 1;
                    add(&mut summary.outcome, &outcome);
                    idle = 0;
                    if mode == Mode::Once {
                        ingest.release().await;
                    } else {
                        turns.push_back(ingest);
                    }
                }
                Ok(Round::Again) => turns.push_back(ingest),
                Ok(Round::Waiting) => {
                    turns.push_back(ingest);
                    if waiting >= turns.len() {
                        waiting = 0;
                        self.stop.sleep(LEASE_INTERVAL).await;
                    }
                }
                Ok(Round::Idle) if mode == Mode::Follow => {
                    ingest.queue = None;
                    turns.push_back(ingest);
                    idle += 1;
                    if idle >= turns.len() {
                        idle = 0;
                        self.stop.sleep(FOLLOW_INTERVAL).await;
                    }
                }
                Ok(Round::Idle | Round::Stopped) => ingest.release().await,
                Err(e) => {
                    summary.failed.push((ingest.dataset.name.0.clone(), e));
                    ingest.release().await;
                }
            }
        }
        Ok(summary)
    }
}

impl<'a> Ingest<'a> {
    fn new(engine: &'a Engine, dataset: &'a Dataset, incarnation: &Incarnation) -> Result<Self> {
        Ok(Self {
            engine,
            dataset,
            inbox: Inbox::new(engine, dataset)?,
            chain: engine.chain(incarnation, Job::Ingest, dataset, Shard::WHOLE),
            incarnation: incarnation.clone(),
            taken: Taken::new(),
            queue: None,
            prepared: false,
            acted_up_to: BatchNumber(0),
            finishing: false,
            watch: LeaseWatch::new(&engine.store, &engine.resolver, &lease_name(dataset), engine.project.lease_ttl),
            lease: None,
        })
    }

    /// A round, if this process has the dataset's lease or gets it.
    async fn turn(&mut self) -> Result<Round> {
        match &self.lease {
            Some(lease) if lease.is_lost() => {
                return Err(Error::new(
                    Kind::Fenced,
                    format!("dataset {}: another process took over while this one stood still", self.dataset.name),
                )
                .hint("nothing is lost and nothing to do: the other process goes on"));
            }
            Some(_) => {}
            None => match self.watch.try_acquire().await? {
                Some(lease) => self.lease = Some(lease),
                None => return Ok(Round::Waiting),
            },
        }
        self.round().await
    }

    /// Lets the next go first. A lease that cannot be given back runs out by itself.
    async fn release(self) {
        if let Some(lease) = self.lease
            && let Err(error) = lease.release().await
        {
            tracing::warn!(error = %error.chain_text(), "could not give back a lease");
        }
    }

    fn finishing(&self, resumed: bool) -> Finishing<'_> {
        Finishing { engine: self.engine, incarnation: &self.incarnation, dataset: self.dataset, chain: &self.chain, resumed }
    }

    async fn round(&mut self) -> Result<Round> {
        let listing = self.chain.listing().await?;
        self.finishing = false;
        match self.round_from(&listing).await {
            // Another process may have taken, moved or folded away what we had just listed: then its absence is no fault.
            Err(e)
                if !self.finishing
                    && may_be_overtaken(e.kind())
                    && self.chain.listing().await.is_ok_and(|now| now != listing) =>
            {
                self.taken = Taken::new();
                self.queue = None;
                Ok(Round::Again)
            }
            outcome => outcome,
        }
    }

    async fn round_from(&mut self, listing: &ChainListing) -> Result<Round> {
        let Some(newest) = listing.newest() else {
            return self.next_batch(listing, BatchKey { batch: BatchNumber::FIRST, attempt: Attempt::FIRST }).await;
        };
        if !listing.done.contains(&newest.batch) {
            return self.resume(listing, newest).await;
        }
        self.next_batch(listing, BatchKey { batch: newest.batch.next(), attempt: Attempt::FIRST }).await
    }

    /// Finishes the batch of the chain's newest record.
    async fn resume(&mut self, listing: &ChainListing, newest: BatchKey) -> Result<Round> {
        let record = self.record(newest).await?;
        self.prepare(listing).await?;
        match self.finishing(true).finish(&record).await? {
            Finished::Done(mark) => {
                if let RecordBody::Intent(recorded) = &record.body {
                    self.after(newest.batch, &recorded.range).await?;
                }
                Ok(Round::Batch(mark.outcome))
            }
            Finished::Amend(why) => {
                let attempt = newest.attempt.next().ok_or_else(|| {
                    Error::new(Kind::Internal, format!("batch {newest} of {} was attempted too often: {why}", self.dataset.name))
                })?;
                let key = BatchKey { batch: newest.batch, attempt };
                match self.earlier_intent(listing, newest).await? {
                    // The range is fixed, and what was staged for it is still there: the same intent under another key.
                    Some(intent) => self.write(BatchRecord { attempt, ..intent }, Vec::new()).await,
                    None => self.next_batch(listing, key).await,
                }
            }
        }
    }

    async fn record(&self, key: BatchKey) -> Result<BatchRecord> {
        self.chain.record(key).await?.ok_or_else(|| {
            Error::new(Kind::Unavailable, format!("the record of batch {key} of {} was listed and is gone", self.dataset.name))
                .hint("run again")
        })
    }

    async fn earlier_intent(&self, listing: &ChainListing, key: BatchKey) -> Result<Option<BatchRecord>> {
        for attempt in listing.records.get(&key.batch).into_iter().flatten().filter(|a| **a < key.attempt) {
            let record = self.record(BatchKey { attempt: *attempt, ..key }).await?;
            if matches!(record.body, RecordBody::Intent(_)) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Writes a record and finishes its batch.
    async fn write(&mut self, record: BatchRecord, sweeps: Vec<Sweep>) -> Result<Round> {
        if self.chain.write(&record).await? == PutNew::Exists {
            for sweep in sweeps {
                sweep.run().await;
            }
            // What stands there decides what is taken; the files that went into ours may still be waiting.
            self.queue = None;
            return Ok(Round::Again);
        }
        self.finishing = true;
        let Finished::Done(mark) = self.finishing(false).finish(&record).await? else {
            self.queue = None;
            return Ok(Round::Again);
        };
        if let RecordBody::Intent(recorded) = &record.body {
            self.after(record.batch, &recorded.range).await?;
        }
        Ok(Round::Batch(mark.outcome))
    }

    /// Moves or deletes what a finished batch has taken, as the project file says.
    async fn after(&mut self, batch: BatchNumber, range: &Range) -> Result<()> {
        self.finishing(true).after(&self.inbox, range).await?;
        self.acted_up_to = batch;
        Ok(())
    }

    /// Makes the table, or lets it follow the declaration, once a run.
    async fn prepare(&mut self, listing: &ChainListing) -> Result<()> {
        if self.prepared {
            return Ok(());
        }
        let spec = TableSpec::data(self.dataset);
        if listing.newest_done().is_some() && !self.engine.log_of(&spec).exists().await? {
            return Err(Error::new(
                Kind::Corrupt,
                format!("dataset {}: its table is gone, though batches of it were finished", self.dataset.name),
            )
            .hint("restore the table's directory from a backup; to begin anew, delete the namespace or use a new dataset name"));
        }
        let app = app_id(self.chain.chain());
        self.engine.log_of(&spec).ensure(&spec, &self.incarnation, &app, self.engine.clock.now_ms()).await?;
        self.prepared = true;
        Ok(())
    }

    /// Reads the next range, stages it, records it and finishes it.
    async fn next_batch(&mut self, listing: &ChainListing, key: BatchKey) -> Result<Round> {
        let finished = BatchNumber(key.batch.0 - 1);
        let first = !self.prepared;
        if finished > self.taken.up_to || first {
            self.taken.catch_up(&self.chain, listing, finished).await?;
            // A process that died after its last batch may have left the batch's files where they were.
            if finished > self.acted_up_to
                && let Some(range) = self.last_range(listing, finished).await?
            {
                self.after(finished, &range).await?;
            }
            self.taken.fold(&self.chain, listing).await?;
            if let Some(queue) = &mut self.queue {
                still_waiting(queue, &self.taken);
            }
        }
        self.prepare(listing).await?;
        if self.queue.is_none() {
            self.queue = Some(self.inbox.list(self.engine, self.dataset, &self.taken).await?);
        }
        if self.queue.as_ref().is_none_or(VecDeque::is_empty) {
            return Ok(Round::Idle);
        }
        match self.stage(key).await? {
            Some(staged) => self.write(staged.record, staged.sweeps).await,
            None if self.engine.stop.asked() => Ok(Round::Stopped),
            None => Ok(Round::Idle),
        }
    }

    async fn last_range(&self, listing: &ChainListing, batch: BatchNumber) -> Result<Option<Range>> {
        if batch.0 == 0 || !listing.records.contains_key(&batch) {
            return Ok(None);
        }
        let above = BatchKey { batch, attempt: Attempt::MAX };
        Ok(self.earlier_intent(listing, above).await?.and_then(|r| match r.body {
            RecordBody::Intent(recorded) => Some(recorded.range),
            RecordBody::Void => None,
        }))
    }
}

/// Whether an error can come from nothing but another process having gone on with the chain.
fn may_be_overtaken(kind: Kind) -> bool {
    matches!(kind, Kind::NotFound | Kind::Conflict | Kind::Corrupt | Kind::Unavailable)
}

/// The lease of a dataset's ingest.
pub(crate) fn lease_name(dataset: &Dataset) -> String {
    format!("{}.{}", Job::Ingest, dataset.name)
}

/// Adds one batch's outcome to a sum.
pub(super) fn add(sum: &mut BatchOutcome, one: &BatchOutcome) {
    sum.inserted += one.inserted;
    sum.dead_letters += one.dead_letters;
    sum.skipped += one.skipped;
    sum.files += one.files;
    sum.bytes += one.bytes;
}
