//! Events on their way into a data table: each row becomes what the ledger, at the table's position, makes of it.
//!
//! Invariant: every live row is what the ledger at the table's position makes of it; rows resolved at another position are never
//! committed ([`alluvium_lake::LedgerRule::At`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alluvium_core::{Dataset, Fate, LedgerPosition, LedgerShape, Result};
use alluvium_lake::{KeyMap, SortedKey};
use arrow::array::RecordBatch;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::read::{Made, Open, Origin, Taking};
use crate::engine::Engine;
use crate::ledger::DatasetLedger;
use crate::requests::{BYTES_OF_A_HIT, Counting, Matched};
use crate::resolve::{HitRow, NamedNodes, RowEdits, SourceRows, edited, plan_edits};
use crate::retain::past_rows;
use crate::source::{Chunk, Decoder};

/// About what a fate takes that was looked up.
const BYTES_OF_A_FATE: usize = 192;

/// Takes events in, and resolves them.
pub(super) struct EventTaking<'a> {
    decoder: Decoder,
    resolving: Resolving<'a>,
}

/// Resolves rows at one position of the ledger.
pub(super) struct Resolving<'a> {
    dataset: &'a Dataset,
    pub(super) ledger: DatasetLedger,
    /// Of the nodes that were looked up last.
    fates: Mutex<Arc<KeyMap<Fate>>>,
    /// What requests matched, and was not handed on to be counted.
    hits: Mutex<Vec<HitRow>>,
    counting: tokio::sync::Mutex<Counting>,
    /// About what is held to be counted, or was.
    counting_bytes: AtomicU64,
    left_out: AtomicU64,
}

impl<'a> EventTaking<'a> {
    pub(super) fn new(engine: &Engine, dataset: &'a Dataset, ledger: DatasetLedger) -> Self {
        Self { decoder: Decoder::new(dataset), resolving: Resolving::new(engine, dataset, ledger) }
    }

    pub(super) fn into_resolving(self) -> Resolving<'a> {
        self.resolving
    }
}

impl Taking for EventTaking<'_> {
    fn take(&self, chunk: Chunk, origin: &Origin, staged_at_micros: i64) -> Result<Made> {
        let mut made = self.decoder.take(chunk, origin, staged_at_micros)?;
        made.rows = made.rows.map(|rows| self.resolving.kept(rows, staged_at_micros)).transpose()?;
        if self.resolving.ledger.is_empty() {
            return Ok(made);
        }
        if let Some(rows) = made.rows.take() {
            let named = self.resolving.named(&rows)?;
            if named.is_empty() {
                made.rows = Some(rows);
            } else {
                made.open = Some(Open::Rows { rows, named });
            }
        }
        Ok(made)
    }

    fn look_up<'s>(&'s self, open: &'s [&'s Open]) -> BoxFuture<'s, Result<()>> {
        let named = open.iter().filter_map(|open| match open {
            Open::Rows { named, .. } => Some(named),
            Open::Requests(_) => None,
        });
        self.resolving.look_up(named.flat_map(NamedNodes::keys).collect()).boxed()
    }

    fn memory_bytes(&self) -> u64 {
        let Resolving { fates, hits, counting_bytes, .. } = &self.resolving;
        let fates = fates.lock().unwrap_or_else(PoisonError::into_inner).len() * BYTES_OF_A_FATE;
        let hits = hits.lock().unwrap_or_else(PoisonError::into_inner).len() * BYTES_OF_A_HIT;
        (fates + hits) as u64 + counting_bytes.load(Ordering::Relaxed)
    }

    fn end(&self, open: Open, _: &Origin, _: i64) -> Result<Made> {
        let rows = match open {
            Open::Rows { rows, named } => Some(self.resolving.resolved(&rows, &named)?),
            Open::Requests(_) => None,
        };
        Ok(Made { rows, refused: Vec::new(), open: None })
    }
}

impl<'a> Resolving<'a> {
    pub(super) fn new(engine: &Engine, dataset: &'a Dataset, ledger: DatasetLedger) -> Self {
        let counting = tokio::sync::Mutex::new(Counting::new(engine, &ledger, dataset));
        Self {
            dataset,
            ledger,
            fates: Mutex::default(),
            hits: Mutex::default(),
            counting,
            counting_bytes: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    pub(super) fn position(&self) -> LedgerPosition {
        self.ledger.position()
    }

    pub(super) fn shape(&self) -> LedgerShape {
        self.ledger.shape()
    }

    /// Rows that were not taken, because they are erased or past their retention.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// The rows without those that are past their retention at that moment, which is when an attempt was staged that read the source. Its record
    /// tells how many were left out; later attempts take over the rows that it staged, and those that grow too old meanwhile are left to
    /// a retention. So what is written and what is counted as skipped are together what was read, whichever attempt is real.
    pub(super) fn kept(&self, rows: RecordBatch, staged_at_micros: i64) -> Result<RecordBatch> {
        if self.dataset.retention.is_forever() {
            return Ok(rows);
        }
        let past = past_rows(&rows, self.dataset, &self.dataset.retention.bounds(staged_at_micros))?;
        self.left_out.fetch_add(past.len() as u64, Ordering::Relaxed);
        if past.is_empty() {
            return Ok(rows);
        }
        edited(&rows, &RowEdits { erased: past, ..RowEdits::default() }, self.dataset)
    }

    /// What requests matched, of all rows that were resolved.
    pub(super) async fn into_matched(self) -> Result<(DatasetLedger, Matched)> {
        let mut counting = self.counting.into_inner();
        counting.add(self.hits.into_inner().unwrap_or_else(PoisonError::into_inner)).await?;
        Ok((self.ledger, counting.finish().await?))
    }

    /// The nodes that rows hang on and requests name.
    pub(super) fn named(&self, rows: &RecordBatch) -> Result<NamedNodes> {
        NamedNodes::of(&SourceRows::new(rows, self.dataset)?, self.dataset, &self.ledger)
    }

    /// Learns the fates of nodes, and forgets others.
    pub(super) async fn look_up(&self, nodes: Vec<SortedKey>) -> Result<()> {
        // So the hits of one while are in memory, not those of the batch.
        let hits = std::mem::take(&mut *self.hits.lock().unwrap_or_else(PoisonError::into_inner));
        let mut counting = self.counting.lock().await;
        counting.add(hits).await?;
        self.counting_bytes.store(counting.memory_bytes() as u64, Ordering::Relaxed);
        drop(counting);
        *self.fates.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        let fates = self.ledger.fates(nodes).await?;
        *self.fates.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(fates);
        Ok(())
    }

    /// The rows as the ledger makes them, without those that are erased. The fates of their nodes were looked up.
    pub(super) fn resolved(&self, rows: &RecordBatch, named: &NamedNodes) -> Result<RecordBatch> {
        let source = SourceRows::new(rows, self.dataset)?;
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut hits = Vec::new();
        let edits = plan_edits(&source, self.dataset, named, &fates, &mut hits)?;
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).append(&mut hits);
        self.left_out.fetch_add(edits.erased.len() as u64, Ordering::Relaxed);
        if edits.is_empty() { Ok(rows.clone()) } else { edited(rows, &edits, self.dataset) }
    }

    /// Rows that are all there is to resolve for now.
    pub(super) async fn resolve(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let named = self.named(rows)?;
        self.look_up(named.keys().collect()).await?;
        self.resolved(rows, &named)
    }
}
