//! Requests that are handed over, instead of coming from a source: the same chain takes them in, at the place where its source stands.

use std::sync::Arc;

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, Dataset, Error, FileCursor, FileFormat, FileRange, KafkaPositions, Kind, Range, Result,
    Shard, Source,
};
use alluvium_lake::{ChainListing, Lease};
use bytes::Bytes;

use super::dead_letters::DeadLetters;
use super::read::{Fed, Feed, Origin};
use super::run::{RunSummary, lease_name, shard_lease_name};
use super::taken::Taken;
use super::work::{ChainWork, Resumed, has_many_records};
use crate::engine::Engine;
use crate::source::{Input, Splitter};

impl Engine {
    /// Takes in the requests that `lines` holds, one JSON object a line. `source` is what they are said to come from. What was accepted before
    /// is counted as skipped, what is no request is a dead letter. On return they are durable; nothing is applied yet.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed, or if requests come from a topic that was never read.
    ///
    /// # Cancel safety
    /// Cancelled anywhere, some of the requests are taken in; submit them again.
    pub async fn submit_requests(&self, source: &str, lines: Bytes) -> Result<RunSummary> {
        match self.submit_until_stopped(source, lines).await? {
            (summary, None) => Ok(summary),
            (_, Some(lines)) => {
                Err(Error::new(Kind::Unavailable, format!("stopped when {lines} lines of the submitted requests were taken in"))
                    .hint("submit all of them again: those that were taken in are passed over"))
            }
        }
    }

    /// As [`Engine::submit_requests`]; where it is asked to stop, how many lines were taken in by then.
    pub(crate) async fn submit_until_stopped(&self, source: &str, lines: Bytes) -> Result<(RunSummary, Option<u64>)> {
        let incarnation = self.incarnation().await?;
        let Some(lease) = self.intake_lease().await? else { return Ok((RunSummary::default(), Some(0))) };
        let mut work = ChainWork::new(self, self.requests_intake(), &incarnation, Shard::WHOLE);
        let submitted = submit(&mut work, source, lines).await;
        if let Err(error) = lease.release().await {
            tracing::warn!(error = %error.chain_text(), "could not give back a lease");
        }
        submitted
    }

    /// What only one process at a time holds that takes requests in; `None` if the user asked to stop.
    pub(super) async fn intake_lease(&self) -> Result<Option<Lease>> {
        let intake = self.requests_intake();
        let name = match &intake.source {
            Source::Files(_) => lease_name(intake),
            Source::Kafka(_) => shard_lease_name(intake, Shard::WHOLE),
        };
        self.turn(&name).await
    }
}

async fn submit(work: &mut ChainWork<'_>, source: &str, lines: Bytes) -> Result<(RunSummary, Option<u64>)> {
    let mut summary = RunSummary::default();
    let mut from = FileCursor::default();
    loop {
        let (listing, key) = next_key(work).await?;
        let range = standing_still(work, &listing, BatchNumber(key.batch.0 - 1)).await?;
        work.prepare(&listing).await?;
        if let Err(error) = drop_old_records(work, &listing, BatchNumber(key.batch.0 - 1)).await {
            tracing::warn!(error = %error.chain_text(), "could not drop old records; there are more to list, nothing is lost");
        }
        let mut feed = Submitted::new(source, &lines, from, work.dataset)?;
        let Some(staged) = work.stage(key, &mut feed).await? else { return Ok((summary, Some(from.record))) };
        let (to, ended) = (feed.splitter.cursor(), feed.ended);
        let is_empty = staged.data.adds.is_empty() && staged.dead_letters.adds.is_empty();
        if is_empty {
            // Nothing but what was there before: no batch is worth it.
            summary.outcome.skipped += staged.skipped;
            for sweep in staged.sweeps {
                sweep.run().await;
            }
        } else {
            let (record, sweeps) = work.record_of(key, range, 0, staged);
            let outcome = match work.write(&record, sweeps).await {
                Ok(Some(outcome)) => outcome,
                Ok(None) => continue,
                // What was taken in is passed over.
                Err(e) if is_finished(work, key, &e).await? => continue,
                Err(e) => return Err(e),
            };
            summary.batches += 1;
            summary.outcome += outcome;
        }
        if ended {
            return Ok((summary, None));
        }
        from = to;
    }
}

/// The key of the chain's next batch, and the listing that shows it. What others left is finished first.
pub(super) async fn next_key(work: &mut ChainWork<'_>) -> Result<(ChainListing, BatchKey)> {
    loop {
        let listing = work.chain.listing().await?;
        let key = match listing.newest() {
            None => BatchKey { batch: BatchNumber::FIRST, attempt: Attempt::FIRST },
            Some(newest) if listing.done.contains(&newest.batch) => {
                BatchKey { batch: newest.batch.next(), attempt: Attempt::FIRST }
            }
            Some(newest) => match work.resume(&listing, newest).await {
                Ok(Resumed::Done(..)) => continue,
                Ok(Resumed::Again(record)) => match work.write(&record, Vec::new()).await {
                    Ok(_either_way_look_again) => continue,
                    Err(e) if is_finished(work, record.key(), &e).await? => continue,
                    Err(e) => return Err(e),
                },
                Ok(Resumed::Anew(key)) => key,
                Err(e) if is_finished(work, newest, &e).await? => continue,
                Err(e) => return Err(e),
            },
        };
        return Ok((listing, key));
    }
}

/// Deletes the records of batches long finished, once what they took from files is kept elsewhere.
async fn drop_old_records(work: &ChainWork<'_>, listing: &ChainListing, finished: BatchNumber) -> Result<()> {
    match &work.dataset.source {
        Source::Kafka(_) => work.drop_old_records(listing, finished).await,
        Source::Files(_) if has_many_records(listing) => {
            let mut taken = Taken::new();
            taken.catch_up(&work.chain, listing, finished).await?;
            taken.fold(&work.chain, listing).await
        }
        Source::Files(_) => Ok(()),
    }
}

/// Whether a batch could not be finished because others did, and went on: this process stood still for longer than its lease.
pub(super) async fn is_finished(work: &ChainWork<'_>, key: BatchKey, error: &Error) -> Result<bool> {
    Ok(error.kind() == Kind::Fenced && work.chain.listing().await?.newest_done() >= Some(key.batch))
}

/// The range of a batch that takes nothing from the chain's source: the source's next batch goes on where the last one ended.
pub(super) async fn standing_still(work: &ChainWork<'_>, listing: &ChainListing, finished: BatchNumber) -> Result<Range> {
    match work.range_of(listing, finished).await? {
        Some(Range::Files(files)) => Ok(Range::Files(rest_of(files))),
        Some(Range::Kafka(range)) => {
            Ok(Range::Kafka(KafkaPositions::after(&range).range_to(&range.topic, &std::collections::BTreeMap::new())))
        }
        _ if matches!(work.dataset.source, Source::Files(_)) => Ok(Range::Files(Vec::new())),
        _ => Err(Error::new(
            Kind::Unavailable,
            "requests come from a topic that was not read yet, so there is no telling where it begins",
        )
        .hint("run once: alluvium run mutate")),
    }
}

/// Of a file that was not taken whole, the piece of no length where the next batch goes on.
fn rest_of(files: Vec<FileRange>) -> Vec<FileRange> {
    let last = files.into_iter().next_back();
    last.and_then(|file| Some(FileRange { from: file.to?, ..file })).into_iter().collect()
}

/// The lines that were handed over.
struct Submitted {
    origin: Arc<Origin>,
    splitter: Splitter,
    records_left: u64,
    bytes_left: u64,
    ended: bool,
}

impl Submitted {
    fn new(source: &str, lines: &Bytes, from: FileCursor, dataset: &Dataset) -> Result<Self> {
        let splitter = Splitter::open(Input::Bytes(lines.clone()), "", FileFormat::Json, from)
            .map_err(|_fault| Error::new(Kind::Internal, "reading submitted requests"))?;
        Ok(Self {
            origin: Arc::new(Origin { source: source.to_owned(), context: None }),
            splitter,
            records_left: dataset.batch.max_rows,
            bytes_left: dataset.batch.max_bytes,
            ended: false,
        })
    }
}

impl Feed for Submitted {
    fn next(&mut self, chunk_bytes: u64, _: &mut DeadLetters) -> Result<Fed> {
        if self.records_left == 0 || self.bytes_left == 0 {
            return Ok(Fed::End);
        }
        let chunk = self
            .splitter
            .next_chunk(self.records_left, chunk_bytes.min(self.bytes_left))
            .map_err(|_fault| Error::new(Kind::Internal, "reading submitted requests"))?;
        let Some(chunk) = chunk else {
            self.ended = true;
            return Ok(Fed::End);
        };
        self.records_left = self.records_left.saturating_sub(chunk.max_records());
        self.bytes_left = self.bytes_left.saturating_sub(chunk.bytes());
        Ok(Fed::Chunk(self.origin.clone(), chunk))
    }
}
