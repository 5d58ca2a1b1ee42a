//! The chain of a job that rewrites a table: what is under way is finished first, and who was quicker with a record decides.

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, BatchRecord, Dataset, DoneMark, Error, Incarnation, Job, Kind, RecordBody, Recorded, Result,
};
use alluvium_lake::{ChainListing, ChainStore, PutNew, Sweep};

use crate::engine::Engine;
use crate::ingest::{Finished, Finishing, drop_old_records};

/// The chain of a job that rewrites a dataset's table.
pub(crate) struct RewriteChain<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) dataset: &'a Dataset,
    pub(crate) incarnation: &'a Incarnation,
    pub(crate) chain: &'a ChainStore,
}

/// What became of the batch of the chain's newest record.
pub(crate) enum Resumed {
    /// It was finished before, or there is none; the next has this key.
    Before(BatchKey),
    /// It is finished now.
    Now(Box<DoneMark>),
    /// It takes another attempt, of this key; with what an earlier one recorded, if there was one.
    Amend(BatchKey, Option<Box<Recorded>>),
}

impl RewriteChain<'_> {
    /// Finishes what the chain's newest record intends.
    pub(crate) async fn resume(&self) -> Result<Resumed> {
        let listing = self.chain.listing().await?;
        let first = |batch| Resumed::Before(BatchKey { batch, attempt: Attempt::FIRST });
        let Some(newest) = listing.newest() else { return Ok(first(BatchNumber::FIRST)) };
        if listing.done.contains(&newest.batch) {
            drop_old_records(self.chain, &listing, newest.batch).await?;
            return Ok(first(newest.batch.next()));
        }
        let gone =
            || Error::new(Kind::Unavailable, format!("the record of batch {newest} was listed and is gone")).hint("run again");
        let record = self.chain.record(newest).await?.ok_or_else(gone)?;
        let why = match Box::pin(self.finishing(true).finish(&record)).await? {
            Finished::Done(mark) => return Ok(Resumed::Now(mark)),
            Finished::Amend(why) => why,
        };
        let attempt = newest.attempt.next().ok_or_else(|| {
            Error::new(Kind::Internal, format!("batch {newest} of {} was attempted too often: {why}", self.dataset.name))
        })?;
        // The first record fixed the range; void ones may stand among them.
        let recorded = match record.body {
            RecordBody::Intent(recorded) => Some(recorded),
            RecordBody::Void => self.newest_intent(&listing, newest).await?,
        };
        Ok(Resumed::Amend(BatchKey { batch: newest.batch, attempt }, recorded))
    }

    async fn newest_intent(&self, listing: &ChainListing, key: BatchKey) -> Result<Option<Box<Recorded>>> {
        for attempt in listing.records.get(&key.batch).into_iter().flatten().rev() {
            let record = self.chain.record(BatchKey { attempt: *attempt, ..key }).await?;
            if let Some(RecordBody::Intent(recorded)) = record.map(|record| record.body) {
                return Ok(Some(recorded));
            }
        }
        Ok(None)
    }

    /// Writes a record and finishes its batch; `None` if that takes another look: another process was quicker, or the table changed.
    pub(crate) async fn write(&self, record: &BatchRecord, sweeps: Vec<Sweep>) -> Result<Option<Box<DoneMark>>> {
        if self.chain.write(record).await? == PutNew::Exists {
            // Only a record that stands there tells that ours never will.
            if self.chain.record(record.key()).await?.is_some() {
                for sweep in sweeps {
                    sweep.run().await;
                }
            }
            return Ok(None);
        }
        match Box::pin(self.finishing(false).finish(record)).await? {
            Finished::Done(mark) => Ok(Some(mark)),
            Finished::Amend(_) => Ok(None),
        }
    }

    fn finishing(&self, resumed: bool) -> Finishing<'_> {
        let Self { engine, dataset, incarnation, chain } = *self;
        Finishing { engine, incarnation, dataset, chain, resumed }
    }
}

/// The lease of the jobs that rewrite a dataset's table: two at a time would make each other's plans again.
pub(crate) fn rewrite_lease_name(dataset: &Dataset) -> String {
    format!("{}.{}", Job::Mutate, dataset.name)
}
