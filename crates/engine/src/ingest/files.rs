//! Rounds of a dataset that reads files.

use std::collections::VecDeque;

use alluvium_core::{BatchKey, BatchNumber, FileCursor, FoundFile, Range, RecordBody, Result};
use alluvium_lake::ChainListing;

use super::backlog::{Inbox, still_waiting};
use super::read_files::FileFeed;
use super::run::Round;
use super::taken::Taken;
use super::work::ChainWork;

/// The files of a source, and what was taken of them.
pub(super) struct FileIntake {
    inbox: Inbox,
    taken: Taken,
    /// What is still to be taken; `None` before the first listing.
    queue: Option<VecDeque<FoundFile>>,
    /// The newest batch whose files this process has moved or deleted, if the project file says so.
    acted_up_to: BatchNumber,
}

impl FileIntake {
    pub(super) fn new(inbox: Inbox) -> Self {
        Self { inbox, taken: Taken::new(), queue: None, acted_up_to: BatchNumber(0) }
    }

    /// Forgets what was listed and what was taken.
    pub(super) fn forget(&mut self) {
        self.taken = Taken::new();
        self.queue = None;
    }

    /// Forgets what was listed.
    pub(super) fn list_again(&mut self) {
        self.queue = None;
    }

    /// Moves or deletes what a finished batch has taken, as the project file says.
    pub(super) async fn after(&mut self, work: &ChainWork<'_>, batch: BatchNumber, range: &Range) -> Result<()> {
        work.finishing(true).after(&self.inbox, range).await?;
        self.acted_up_to = batch;
        Ok(())
    }

    /// Reads the next range, stages it, records it and finishes it.
    pub(super) async fn next_batch(&mut self, work: &mut ChainWork<'_>, listing: &ChainListing, key: BatchKey) -> Result<Round> {
        let finished = BatchNumber(key.batch.0 - 1);
        let first = !work.is_prepared();
        if finished > self.taken.up_to || first {
            self.taken.catch_up(&work.chain, listing, finished).await?;
            // A process that died after its last batch may have left the batch's files where they were.
            if finished > self.acted_up_to
                && let Some(range) = work.range_of(listing, finished).await?
            {
                self.after(work, finished, &range).await?;
            }
            self.taken.fold(&work.chain, listing).await?;
            if let Some(queue) = &mut self.queue {
                still_waiting(queue, &self.taken);
            }
        }
        work.prepare(listing).await?;
        if self.queue.is_none() {
            self.queue = Some(self.inbox.list(work.engine, work.dataset, &self.taken).await?);
        }
        let Some(queue) = self.queue.as_mut().filter(|queue| !queue.is_empty()) else { return Ok(Round::Idle) };
        let first_from: Option<FileCursor> = self.taken.partial.as_ref().and_then(|p| p.to);
        let mut feed = FileFeed::new(&self.inbox, queue, first_from, &work.dataset.batch);
        let Some(staged) = work.stage(key, &mut feed).await? else { return Ok(Round::Stopped) };
        let ranges = feed.into_ranges();
        if ranges.is_empty() {
            for sweep in staged.sweeps {
                sweep.run().await;
            }
            return Ok(Round::Idle);
        }
        let (record, sweeps) = work.record_of(key, Range::Files(ranges), 0, staged);
        match work.write(&record, sweeps).await? {
            Some(outcome) => {
                if let RecordBody::Intent(recorded) = &record.body {
                    self.after(work, record.batch, &recorded.range).await?;
                }
                Ok(Round::Batch(outcome))
            }
            None => {
                // The files that went into ours may still be waiting.
                self.queue = None;
                Ok(Round::Again)
            }
        }
    }
}
