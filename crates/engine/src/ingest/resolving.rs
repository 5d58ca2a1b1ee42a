//! Events on their way into a data table: each row becomes what the ledger, at the table's position, makes of it.
//!
//! Invariant: every live row is what the ledger at the table's position makes of it; rows resolved at another position are never
//! committed ([`alluvium_lake::LedgerRule::At`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use alluvium_core::{Dataset, Fate, LedgerPosition, LedgerShape, Result};
use alluvium_lake::SortedKey;
use arrow::array::RecordBatch;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::read::{Made, Open, Origin, Taking};
use crate::ledger::{DatasetLedger, node_key};
use crate::resolve::{Hits, SourceRows, edited, nodes_of_row, plan_edits};
use crate::source::{Chunk, Decoder};

/// Takes events in, and resolves them.
pub(super) struct EventTaking<'a> {
    decoder: Decoder,
    resolving: Resolving<'a>,
}

/// Resolves rows at one position of the ledger.
pub(super) struct Resolving<'a> {
    dataset: &'a Dataset,
    pub(super) ledger: DatasetLedger,
    fates: Mutex<HashMap<SortedKey, Fate>>,
    hits: Mutex<Hits>,
    erased: AtomicU64,
}

impl<'a> EventTaking<'a> {
    pub(super) fn new(dataset: &'a Dataset, ledger: DatasetLedger) -> Self {
        Self { decoder: Decoder::new(dataset), resolving: Resolving::new(dataset, ledger) }
    }

    pub(super) fn into_resolving(self) -> Resolving<'a> {
        self.resolving
    }
}

impl Taking for EventTaking<'_> {
    fn take(&self, chunk: Chunk, origin: &Origin, staged_at_micros: i64) -> Result<Made> {
        let mut made = self.decoder.take(chunk, origin, staged_at_micros)?;
        if self.resolving.ledger.is_empty() {
            return Ok(made);
        }
        if let Some(rows) = made.rows.take() {
            let nodes = self.resolving.nodes(&rows)?;
            if nodes.is_empty() {
                made.rows = Some(rows);
            } else {
                made.open = Some(Open::Rows { rows, nodes });
            }
        }
        Ok(made)
    }

    fn look_up<'s>(&'s self, open: &'s [&'s Open]) -> BoxFuture<'s, Result<()>> {
        let nodes = open.iter().flat_map(|open| match open {
            Open::Rows { nodes, .. } => nodes.clone(),
            Open::Requests(_) => Vec::new(),
        });
        self.resolving.look_up(nodes.collect()).boxed()
    }

    fn end(&self, open: Open, _: &Origin, _: i64) -> Result<Made> {
        let rows = match open {
            Open::Rows { rows, .. } => Some(self.resolving.resolved(&rows)?),
            Open::Requests(_) => None,
        };
        Ok(Made { rows, refused: Vec::new(), open: None })
    }
}

impl<'a> Resolving<'a> {
    pub(super) fn new(dataset: &'a Dataset, ledger: DatasetLedger) -> Self {
        Self { dataset, ledger, fates: Mutex::default(), hits: Mutex::default(), erased: AtomicU64::new(0) }
    }

    pub(super) fn position(&self) -> LedgerPosition {
        self.ledger.position()
    }

    pub(super) fn shape(&self) -> LedgerShape {
        self.ledger.shape()
    }

    /// Rows that were not taken, because they are erased.
    pub(super) fn erased(&self) -> u64 {
        self.erased.load(Ordering::Relaxed)
    }

    /// What requests matched.
    pub(super) fn into_hits(self) -> (DatasetLedger, Hits) {
        (self.ledger, self.hits.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The nodes of rows that the ledger may know of, sorted.
    pub(super) fn nodes(&self, rows: &RecordBatch) -> Result<Vec<SortedKey>> {
        let rows = SourceRows::new(rows, self.dataset)?;
        // What hangs on an organisation is asked once a run of rows, and ids often repeat.
        let mut asked: HashMap<(String, Option<String>, String), Option<SortedKey>> = HashMap::new();
        let mut nodes = Vec::new();
        for row in 0..rows.len() {
            let original = rows.original(row)?;
            let org = rows.org(row);
            nodes_of_row(&rows, row, &original, self.dataset, |_, node| {
                let (field, id) = match node {
                    alluvium_core::Node::Org => (None, ""),
                    alluvium_core::Node::Record(_) => {
                        let key = node_key(org, node);
                        nodes.extend(self.ledger.may_know(&key).then_some(key));
                        return;
                    }
                    alluvium_core::Node::Id { field, id } => (Some(field.to_owned()), id),
                };
                let known = asked.entry((org.to_owned(), field, id.to_owned())).or_insert_with(|| {
                    let key = node_key(org, node);
                    self.ledger.may_know(&key).then_some(key)
                });
                nodes.extend(*known);
            });
        }
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }

    /// Learns the fates of nodes.
    pub(super) async fn look_up(&self, nodes: Vec<SortedKey>) -> Result<()> {
        let known = |key: &SortedKey| self.fates.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key);
        let unknown: Vec<SortedKey> = nodes.into_iter().filter(|key| !known(key)).collect();
        let fates = self.ledger.fates(unknown).await?;
        self.fates.lock().unwrap_or_else(PoisonError::into_inner).extend(fates);
        Ok(())
    }

    /// The rows as the ledger makes them, without those that are erased. The fates of their nodes were looked up.
    pub(super) fn resolved(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let source = SourceRows::new(rows, self.dataset)?;
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        let edits = plan_edits(&source, self.dataset, &fates, &|key| self.ledger.is_named(key), &mut hits)?;
        self.erased.fetch_add(edits.erased.len() as u64, Ordering::Relaxed);
        if edits.is_empty() { Ok(rows.clone()) } else { edited(rows, &edits, self.dataset) }
    }
}
