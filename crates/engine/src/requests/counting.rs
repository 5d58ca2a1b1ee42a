//! How many rows requests matched: counted while other rows are looked for, and some rows at a time, so that neither the rows nor the
//! requests about them are all in memory.

use std::collections::HashMap;
use std::sync::Arc;

use alluvium_core::{BatchNumber, Dataset, Error, Kind, OrgLedger, Result, RowGroup};
use alluvium_lake::in_place;
use rayon::prelude::*;
use tokio::task::JoinHandle;

use crate::engine::Engine;
use crate::ledger::DatasetLedger;
use crate::resolve::HitRow;

/// How many rows requests matched in a batch, by id; with the organisation.
pub(crate) type Matched = HashMap<String, (Arc<str>, u64)>;

/// The same, in no order.
type Counted = Vec<(String, (Arc<str>, u64))>;

/// About what a row takes that is to be counted.
pub(crate) const BYTES_OF_A_HIT: usize = 192;
/// About what a request that rows matched takes, with its id.
const BYTES_OF_A_COUNT: usize = 160;
/// About what a row and the requests around it take while it is counted.
const BYTES_TO_COUNT: usize = 512;
/// Rows that are counted at first.
const FIRST_PART: usize = 1 << 14;

/// Counts the rows that requests matched on their way to a position of the ledger.
pub(crate) struct Counting {
    ledger: DatasetLedger,
    dataset: Dataset,
    hits: Vec<HitRow>,
    /// So many are counted at a time: few at first, so that little is left when the last rows come, then twice as many each time, as
    /// requests that hang together are read again for each part.
    part: usize,
    /// And so many at most.
    most: usize,
    counted: Matched,
    /// So many rows are counted now.
    counting: usize,
    running: Option<JoinHandle<Result<Counted>>>,
}

impl Counting {
    pub(crate) fn new(engine: &Engine, ledger: &DatasetLedger, dataset: &Dataset) -> Self {
        let (ledger, dataset, most) = (ledger.clone(), dataset.clone(), engine.hits_counted_at_once());
        Self {
            ledger,
            dataset,
            hits: Vec::new(),
            part: FIRST_PART.min(most),
            most,
            counted: Matched::new(),
            counting: 0,
            running: None,
        }
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn count_in(&mut self, counted: impl IntoIterator<Item = (String, (Arc<str>, u64))>) {
        for (request, (org, rows)) in counted {
            self.counted.entry(request).or_insert((org, 0)).1 += rows;
        }
    }

    /// Adds rows; once there are many, they begin to be counted.
    pub(crate) async fn add(&mut self, mut hits: Vec<HitRow>) -> Result<()> {
        if self.running.as_ref().is_some_and(JoinHandle::is_finished) {
            self.counted_so_far().await?;
        }
        while self.hits.len() + hits.len() >= self.most {
            let rest = hits.split_off(self.most - self.hits.len());
            self.hits.append(&mut hits);
            self.count().await?;
            hits = rest;
        }
        self.hits.append(&mut hits);
        // Nothing waits here for what is counted.
        if self.hits.len() >= self.part && self.running.is_none() {
            self.count().await?;
            self.part = (2 * self.part).min(self.most);
        }
        Ok(())
    }

    /// About what it takes of memory until more is added.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.counted.len() * BYTES_OF_A_COUNT + self.counting * BYTES_TO_COUNT + self.hits.len() * BYTES_OF_A_HIT
    }

    /// Begins to count what was added, once what was added before is counted.
    async fn count(&mut self) -> Result<()> {
        self.counted_so_far().await?;
        let hits = std::mem::take(&mut self.hits);
        self.counting = hits.len();
        if !hits.is_empty() {
            let (ledger, dataset) = (self.ledger.clone(), self.dataset.clone());
            self.running = Some(tokio::spawn(matched(ledger, dataset, hits)));
        }
        Ok(())
    }

    /// Waits for what is counted now.
    async fn counted_so_far(&mut self) -> Result<()> {
        if let Some(running) = self.running.take() {
            let counted = running.await.map_err(|e| Error::new(Kind::Internal, "counting what requests matched").source(e))??;
            self.count_in(counted);
        }
        self.counting = 0;
        Ok(())
    }

    /// What all rows that were added come to.
    pub(crate) async fn finish(mut self) -> Result<Matched> {
        self.count().await?;
        self.counted_so_far().await?;
        Ok(self.counted)
    }
}

/// How many of the rows each request matched on their way.
async fn matched(ledger: DatasetLedger, dataset: Dataset, mut hits: Vec<HitRow>) -> Result<Counted> {
    hits.sort_unstable_by(|a, b| a.org.cmp(&b.org));
    let around = ledger.around(hits.iter().flat_map(|hit| hit.keys(&dataset, &ledger)).collect()).await?;
    let position = BatchNumber(ledger.position().0);
    let of_org = |(org, requests): &(&String, &OrgLedger)| {
        let first = hits.partition_point(|hit| *hit.org < ***org);
        let length = hits[first..].partition_point(|hit| *hit.org == ***org);
        let of_org: Vec<(&HitRow, Vec<Option<&str>>)> =
            hits[first..first + length].iter().map(|hit| (hit, hit.ids.iter().map(Option::as_deref).collect())).collect();
        let groups =
            of_org.iter().map(|(hit, ids)| RowGroup { ids, key: hit.key.as_deref(), event_time: hit.event_time, rows: hit.rows });
        let counts = requests.attribute(position, groups);
        let org: Arc<str> = Arc::from(org.as_str());
        let counted = requests.requests().zip(counts).filter(|(_, rows)| *rows > 0);
        counted.map(|(request, rows)| (request.order.request_id.to_owned(), (org.clone(), rows))).collect::<Vec<_>>()
    };
    let around: Vec<(&String, &OrgLedger)> = around.iter().collect();
    Ok(in_place(|| around.par_iter().flat_map_iter(of_org).collect()))
}
