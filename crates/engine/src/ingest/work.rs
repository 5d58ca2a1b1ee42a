//! A chain of a dataset and what any round of it does, whatever its source: finish what is recorded, record what was staged.

use alluvium_core::{
    BatchKey, BatchNumber, BatchOutcome, BatchRecord, BatchSpan, Dataset, Error, Incarnation, Kind, Range, RecordBody, Result,
    Shard, TableName, TableSpec, app_id,
};
#[cfg(feature = "plants")]
use alluvium_lake::Plant;
use alluvium_lake::{ChainListing, ChainStore, PutNew, Sweep};

use super::finish::{Amend, Finished, Finishing};
use crate::engine::Engine;
use crate::requests::RequestIds;

/// Finished batches whose records are kept though nothing needs them.
pub(crate) const RECORDS_KEPT: u64 = 16;

/// One chain of a dataset.
pub(super) struct ChainWork<'a> {
    pub(super) engine: &'a Engine,
    pub(super) dataset: &'a Dataset,
    pub(super) incarnation: Incarnation,
    pub(super) chain: ChainStore,
    prepared: bool,
    /// Whether there were requests when the run began, so that a mutation may want the floor.
    pub(super) requests_came: bool,
    /// This round has begun to finish a batch: what has changed in the chain since may be our own doing.
    pub(super) finishing: bool,
}

/// Whether a chain has so many records that old ones are worth to be deleted: not each time, as a listing costs as much for some names more.
pub(super) fn has_many_records(listing: &ChainListing) -> bool {
    listing.records.len() as u64 >= 2 * RECORDS_KEPT
}

/// Deletes the records of batches long finished, of a chain whose newest record alone tells where it stands.
pub(crate) async fn drop_old_records(chain: &ChainStore, listing: &ChainListing, finished: BatchNumber) -> Result<()> {
    if !has_many_records(listing) {
        return Ok(());
    }
    chain.delete(&listing.before(BatchNumber(finished.0.saturating_sub(RECORDS_KEPT)))).await
}

/// What became of the batch that the chain's newest record intends.
pub(super) enum Resumed {
    /// All tables have it.
    Done(BatchOutcome, Option<Range>),
    /// The same intent under another key: to be written.
    Again(BatchRecord),
    /// Nothing of it was ever intended: the range is to be chosen under this key.
    Anew(BatchKey),
}

impl<'a> ChainWork<'a> {
    pub(super) fn new(engine: &'a Engine, dataset: &'a Dataset, incarnation: &Incarnation, shard: Shard) -> Self {
        Self {
            engine,
            dataset,
            chain: engine.chain(incarnation, dataset.intake_job(), dataset, shard),
            incarnation: incarnation.clone(),
            prepared: false,
            requests_came: false,
            finishing: false,
        }
    }

    pub(super) const fn is_prepared(&self) -> bool {
        self.prepared
    }

    pub(super) fn finishing(&self, resumed: bool) -> Finishing<'_> {
        Finishing { engine: self.engine, incarnation: &self.incarnation, dataset: self.dataset, chain: &self.chain, resumed }
    }

    /// Finishes the batch of the chain's newest record.
    pub(super) async fn resume(&mut self, listing: &ChainListing, newest: BatchKey) -> Result<Resumed> {
        let record = self.record(newest).await?;
        self.prepare(listing).await?;
        #[cfg(feature = "plants")]
        if Plant::Abandon.grows()
            && let Some(outcome) = self.abandon(newest).await?
        {
            return Ok(Resumed::Done(outcome, None));
        }
        let why = match self.finishing(true).finish(&record).await? {
            Finished::Done(mark) => {
                let range = match record.body {
                    RecordBody::Intent(recorded) => Some(recorded.range),
                    RecordBody::Void => None,
                };
                return Ok(Resumed::Done(mark.outcome, range));
            }
            Finished::Amend(why) => why,
        };
        let attempt = newest.attempt.next().ok_or_else(|| {
            Error::new(Kind::Internal, format!("batch {newest} of {} was attempted too often: {why}", self.dataset.name))
        })?;
        let key = BatchKey { batch: newest.batch, attempt };
        let intent = match why {
            Amend::Voided => self.earlier_intent(listing, newest).await?,
            Amend::Moved => Some(record),
        };
        let Some(intent) = intent else { return Ok(Resumed::Anew(key)) };
        // The range is fixed, and what was staged for it is still there.
        Ok(Resumed::Again(match Self::intent_of(&intent) {
            Some(recorded) if why == Amend::Moved => self.resolved_again(&intent, recorded, key).await?,
            _ => BatchRecord { attempt, ..intent },
        }))
    }

    /// Marks a batch as done that the table does not carry.
    #[cfg(feature = "plants")]
    async fn abandon(&self, key: BatchKey) -> Result<Option<BatchOutcome>> {
        let log = self.engine.log_of(&TableSpec::deciding(self.dataset));
        let state = log.state(&app_id(self.chain.chain())).await?;
        let carried = state.as_ref().and_then(|s| s.txn()).and_then(alluvium_core::TxnVersion::key);
        if carried.is_some_and(|c| c.batch >= key.batch) {
            return Ok(None);
        }
        let mark = alluvium_core::DoneMark {
            format: alluvium_core::RECORD_FORMAT,
            batch: key.batch,
            attempt: key.attempt,
            table_version: 0,
            outcome: BatchOutcome::default(),
            committed_at_ms: 0,
        };
        self.chain.mark_done(&mark).await?;
        Ok(Some(mark.outcome))
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

    /// The range that the batch took; `None` before the first batch, and where its record was folded away.
    pub(super) async fn range_of(&self, listing: &ChainListing, batch: BatchNumber) -> Result<Option<Range>> {
        if batch.0 == 0 || !listing.records.contains_key(&batch) {
            return Ok(None);
        }
        for attempt in listing.records.get(&batch).into_iter().flatten() {
            if let Some(recorded) = self.chain.recorded_range(BatchKey { batch, attempt: *attempt }).await? {
                return Ok(Some(recorded.range));
            }
        }
        Ok(None)
    }

    /// Deletes the records of batches long finished, of a chain whose newest record alone tells where it stands.
    pub(super) async fn drop_old_records(&self, listing: &ChainListing, finished: BatchNumber) -> Result<()> {
        drop_old_records(&self.chain, listing, finished).await
    }

    /// Writes a record and finishes its batch; `None` if another process was quicker: what stands there decides what is taken.
    pub(super) async fn write(&mut self, record: &BatchRecord, sweeps: Vec<Sweep>) -> Result<Option<BatchOutcome>> {
        #[cfg(feature = "plants")]
        if Plant::ForgetIntent.grows() {
            self.finishing = true;
            let _forgotten_until_it_was_published = self.finishing(false).finish(record).await?;
        }
        if self.chain.write(record).await? == PutNew::Exists {
            // Only a record that stands there tells that ours never will. Where none does any more, ours may have stood there, and
            // others finished it and dropped the record while this process stood still.
            if self.chain.record(record.key()).await?.is_some() {
                for sweep in sweeps {
                    sweep.run().await;
                }
            }
            return Ok(None);
        }
        self.finishing = true;
        match self.finishing(false).finish(record).await? {
            Finished::Done(mark) => {
                if self.dataset.is_requests() && mark.attempt == record.attempt {
                    self.tell_ids(record).await;
                }
                Ok(Some(mark.outcome))
            }
            Finished::Amend(_) => Ok(None),
        }
    }

    /// Writes down which requests a batch that was just finished accepted, while they are in memory; else the next run reads them.
    async fn tell_ids(&self, record: &BatchRecord) {
        let files: Vec<String> = Self::intent_of(record).iter().flat_map(|r| &r.data.adds).map(|add| add.path.clone()).collect();
        let before = BatchNumber(record.batch.0 - 1);
        let (Some(accepted), Some(span)) = (self.engine.taken_here.of_files(&files), BatchSpan::new(before, record.batch)) else {
            return;
        };
        let told = async {
            let purge = self.engine.pseudonyms(&self.incarnation).await?.generation();
            RequestIds::tell(self.engine, &self.incarnation, purge, span, &accepted).await
        };
        if let Err(error) = told.await {
            tracing::debug!(error = %error.chain_text(), "could not write down which requests were accepted; the next run does");
        }
    }

    /// Lets the table follow the declaration, once a run. One that is not there yet is made when a batch's record stands: what is put
    /// into a namespace that is gone would be in the way of the next.
    pub(super) async fn prepare(&mut self, listing: &ChainListing) -> Result<()> {
        if self.prepared {
            return Ok(());
        }
        let spec = TableSpec::deciding(self.dataset);
        let (app, now_ms) = (app_id(self.chain.chain()), self.engine.clock.now_ms());
        let log = self.engine.log_of(&spec);
        let stands = log.evolve(&spec, &self.incarnation, &app, now_ms).await?.is_some();
        if !stands && listing.newest_done().is_some() && !log.stands().await? {
            return Err(Error::new(
                Kind::Corrupt,
                format!("dataset {}: its table is gone, though batches of it were finished", self.dataset.name),
            )
            .hint("restore the table's directory from a backup; to begin anew, delete the namespace or use a new dataset name"));
        }
        self.requests_came = !self.dataset.is_requests() && self.engine.log(&TableName::REQUESTS).exists().await?;
        self.prepared = true;
        Ok(())
    }
}
