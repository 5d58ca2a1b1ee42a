//! What a chain has taken from its source so far, and where it goes on.

use alluvium_core::{
    BatchKey, BatchNumber, BatchSpan, ChainFile, Error, FileRange, Kind, Range, Result, Segment, StoredSegment, TakenFiles,
    cover_segments, decode_segment, encode_segment, plan_segment,
};
use alluvium_lake::{ChainListing, ChainStore, RecordedRange};
use bytes::Bytes;
use futures::{StreamExt, stream};

use super::work::RECORDS_KEPT;

/// Records that are read at a time.
const RECORDS_AT_ONCE: usize = 8;

/// The files taken by the batches up to one, and the rest of the last file if that batch ended within it.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) files: TakenFiles,
    pub(super) partial: Option<FileRange>,
    /// The name that sorts last of those the newest batch took.
    pub(super) newest_name: Option<String>,
    /// The batch up to which this is known; 0 before the first.
    pub(super) up_to: BatchNumber,
    /// The names since the last stored segment.
    names_since_segment: u64,
    segments: Vec<StoredSegment>,
    loaded: bool,
}

impl Taken {
    /// Before the first batch is known.
    pub(super) fn new() -> Self {
        Self {
            files: TakenFiles::new(),
            partial: None,
            newest_name: None,
            up_to: BatchNumber(0),
            names_since_segment: 0,
            segments: Vec::new(),
            loaded: false,
        }
    }

    /// Learns what the batches up to `newest`, all finished, have taken.
    pub(super) async fn catch_up(&mut self, chain: &ChainStore, listing: &ChainListing, newest: BatchNumber) -> Result<()> {
        if self.is_folded_away(listing, newest) {
            *self = Self::new();
        }
        let mut from = self.up_to;
        if !self.loaded {
            let spans: Vec<BatchSpan> = listing.taken.clone();
            let cover = cover_segments(&spans, newest);
            for span in &cover.segments {
                let segment = self.segment(chain, *span).await?;
                self.segments.push(StoredSegment { span: *span, names: segment.names() });
                self.files.absorb(segment);
                from = from.max(span.to);
            }
            self.loaded = true;
        }
        let reads = (from.0 + 1..=newest.0).map(|batch| range_of(chain, listing, BatchNumber(batch)));
        let mut recorded = stream::iter(reads).buffered(RECORDS_AT_ONCE);
        let mut last = None;
        while let Some(next) = recorded.next().await {
            let next = next?;
            self.note(&next);
            last = Some(next.range);
        }
        if newest > self.up_to {
            let range = match last {
                Some(range) => range,
                None => range_of(chain, listing, newest).await?.range,
            };
            let files = match range {
                Range::Files(files) => files,
                Range::DeadLetters { .. } | Range::Ledger { .. } | Range::Retention(_) => Vec::new(),
                Range::Kafka(_) => return Err(reads_kafka(chain)),
            };
            self.newest_name = files.iter().map(|f| &f.path).max().cloned();
            self.partial = files.into_iter().next_back().filter(|f| f.to.is_some());
            self.up_to = newest;
        }
        Ok(())
    }

    /// Whether other processes have put into new segments, and deleted, what the next segment of ours would be made of.
    fn is_folded_away(&self, listing: &ChainListing, newest: BatchNumber) -> bool {
        let folded = self.segments.iter().map(|s| s.span.to).max().unwrap_or(BatchNumber(0));
        self.loaded
            && (self.segments.iter().any(|s| !listing.taken.contains(&s.span))
                || (folded.0 + 1..=newest.0).any(|batch| !listing.records.contains_key(&BatchNumber(batch))))
    }

    fn note(&mut self, recorded: &RecordedRange) {
        if let Range::Files(files) = &recorded.range {
            self.files.insert_batch(files.iter().map(|f| (f.path.as_str(), f.stamp)));
            self.names_since_segment += files.len() as u64;
        }
    }

    async fn segment(&self, chain: &ChainStore, span: BatchSpan) -> Result<Segment> {
        let bytes = chain.taken_segment(span).await?.ok_or_else(|| {
            Error::new(Kind::Unavailable, format!("reading which files batches up to {} took: the segment is gone", span.to))
                .hint("another process may just have merged it: run again")
        })?;
        decode_segment(&bytes).map_err(|e| e.context(format!("the files taken up to batch {}", span.to)))
    }

    /// Stores the names of many batches in one file when it is worth it, and drops the records it stands for.
    pub(super) async fn fold(&mut self, chain: &ChainStore, listing: &ChainListing) -> Result<()> {
        let Some(plan) = plan_segment(&self.segments, self.up_to, self.names_since_segment) else {
            return self.drop_records(chain, listing, Vec::new()).await;
        };
        let mut names = TakenFiles::new();
        for span in &plan.merges {
            names.absorb(self.segment(chain, *span).await?);
        }
        for batch in plan.records.from.0 + 1..=plan.records.to.0 {
            if let Range::Files(files) = range_of(chain, listing, BatchNumber(batch)).await?.range {
                names.insert_batch(files.iter().map(|f| (f.path.as_str(), f.stamp)));
            }
        }
        let segment = names.into_segment(plan.span);
        let stored = StoredSegment { span: plan.span, names: segment.names() };
        chain.write_taken_segment(plan.span, Bytes::from(encode_segment(&segment))).await?;
        self.segments.retain(|s| !plan.replaces.contains(&s.span));
        self.segments.push(stored);
        self.names_since_segment = 0;
        let replaced = plan.replaces.into_iter().map(|span| ChainFile::Taken { from: span.from.next(), to: span.to });
        self.drop_records(chain, listing, replaced.collect()).await
    }

    /// Deletes these files, and the records that segments stand for, but for a few.
    async fn drop_records(&self, chain: &ChainStore, listing: &ChainListing, mut files: Vec<ChainFile>) -> Result<()> {
        let folded = self.segments.iter().map(|s| s.span.to.0).max().unwrap_or(0);
        files.extend(listing.before(BatchNumber(folded.saturating_sub(RECORDS_KEPT))));
        if files.is_empty() { Ok(()) } else { chain.delete(&files).await }
    }
}

/// A chain goes on with the source it began with.
fn reads_kafka(chain: &ChainStore) -> Error {
    Error::new(
        Kind::Conflict,
        format!("dataset {}: its batches so far were read from Kafka, and the project file says files", chain.chain().dataset),
    )
    .hint("a dataset keeps its kind of source: give the files a dataset of their own")
}

/// What some attempt at the batch recorded; all attempts have the same range.
pub(super) async fn range_of(chain: &ChainStore, listing: &ChainListing, batch: BatchNumber) -> Result<RecordedRange> {
    for attempt in listing.records.get(&batch).into_iter().flatten() {
        if let Some(recorded) = chain.recorded_range(BatchKey { batch, attempt: *attempt }).await? {
            return Ok(recorded);
        }
    }
    Err(Error::new(Kind::Corrupt, format!("the record of batch {batch} of {} is gone", chain.chain().dataset))
        .hint("restore _alluvium/chains from a backup of the storage"))
}
