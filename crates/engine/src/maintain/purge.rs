//! When a table's past must go: an erasure for privacy was applied to it, and what it removed still lies in files that are no longer its own.
//!
//! A table is purged up to a position of the ledger. What it still holds of erasures behind that position lies in files that were replaced at or
//! before the version that reached the position, so all such files go, whatever they hold: no version before that one can be read without them anyway.

use std::sync::Arc;

use alluvium_core::{
    BatchNumber, BatchSpan, Dataset, Delete, Incarnation, Job, LedgerPosition, Op, Request, Result, Shape, Shard, TableSpec,
    app_id,
};
use alluvium_lake::{DeltaLog, Purged, PurgedTo, unfinished_since};

use crate::engine::Engine;

/// What of a table must go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purge {
    /// The version that erased it: files that it or an earlier one replaced go.
    pub(super) version: u64,
    /// From when on named readers are not waited for, in milliseconds since 1970.
    waits_until_ms: i64,
    /// How far the table is purged then.
    purged: Purged,
}

impl Purge {
    /// Whether named readers that have not read the erasure are still waited for.
    pub(super) const fn waits_for_readers(&self, now_ms: i64) -> bool {
        now_ms < self.waits_until_ms
    }
}

impl Engine {
    /// What of a dataset's table must go now; `None`: nothing, as far as was erased and applied long enough ago. With `remembers`, that there was
    /// nothing to purge is kept.
    pub(super) async fn purge_due(
        &self,
        incarnation: &Incarnation,
        dataset: &Dataset,
        log: &DeltaLog,
        now_ms: i64,
        remembers: bool,
    ) -> Result<Option<Purge>> {
        let chain = self.chain(incarnation, Job::Mutate, dataset, Shard::WHOLE);
        let Some(state) = log.state(&app_id(chain.chain())).await? else { return Ok(None) };
        let spec = TableSpec::data(dataset);
        let mut purged = PurgedTo::new(&self.store, &self.resolver, &spec.name).get().await?;
        let before = purged;
        let (at, shape) = (BatchNumber(state.ledger().0), Arc::new(Shape::of(dataset)));
        let mut from = BatchNumber(purged.to.0);
        let mut erased_at = None;
        while from < at {
            let to = self.batches_at_once(incarnation, from, at, self.requests_folded_at_once()).await?;
            let Some(span) = BatchSpan::new(from, to) else { break };
            for accepted in self.accepted(incarnation, span).await? {
                match erased_by(&accepted.request, &shape, &purged) {
                    Erases::Nothing => {}
                    Erases::Late => erased_at = erased_at.max(Some(accepted.batch)),
                    Erases::UpTo(time) => {
                        purged.erased_until = purged.erased_until.max(Some(time));
                        erased_at = erased_at.max(Some(accepted.batch));
                    }
                }
            }
            from = to;
        }
        purged.to = LedgerPosition(at.0);
        let Some(erased_at) = erased_at else {
            // So that these requests need not be read again.
            if remembers && purged != before {
                self.purged(&spec, purged, now_ms).await?;
            }
            return Ok(None);
        };
        let Some((version, applied_at_ms)) = log.reached(incarnation, LedgerPosition(erased_at.0)).await? else {
            return Ok(None);
        };
        let plus = |time: std::time::Duration| applied_at_ms.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        let waits_until_ms = plus(self.project.erase.wait_for_consumers);
        let due = plus(self.project.erase.purge_after) <= now_ms;
        Ok(due.then_some(Purge { version, waits_until_ms, purged }))
    }

    /// Cuts the log of a table whose files are purged, and says that what had to go of it has gone; next time, if a batch is under way that was recorded
    /// before the table was purged, and may look for what the log says of it.
    pub(super) async fn purge_log(
        &self,
        incarnation: &Incarnation,
        dataset: &Dataset,
        log: &DeltaLog,
        purge: &Purge,
        now_ms: i64,
    ) -> Result<()> {
        let committed_ms = log.put_ms(purge.version).await?;
        let is_older = |recorded_ms: i64| committed_ms.is_none_or(|committed_ms| recorded_ms <= committed_ms);
        let under_way = unfinished_since(&self.store, &self.resolver, incarnation).await?;
        if under_way.is_some_and(is_older) || !log.cut(purge.version).await? {
            return Ok(());
        }
        self.purged(&TableSpec::data(dataset), purge.purged, now_ms).await
    }

    async fn purged(&self, spec: &TableSpec, purged: Purged, now_ms: i64) -> Result<()> {
        PurgedTo::new(&self.store, &self.resolver, &spec.name).raise(purged, now_ms).await
    }
}

/// What a request may erase for privacy.
enum Erases {
    Nothing,
    /// It is an erasure, of this execution time.
    UpTo(i64),
    /// It executes before an erasure that was there before, and may lead more rows to it.
    Late,
}

fn erased_by(request: &Request, shape: &Shape, before: &Purged) -> Erases {
    let is_late = || before.erased_until.is_some_and(|until| request.execution_time < until);
    match &request.op {
        _ if shape.nodes(request).is_empty() => Erases::Nothing,
        Op::Delete(Delete { privacy: true, .. }) => Erases::UpTo(request.execution_time),
        Op::Convert { .. } if is_late() => Erases::Late,
        _ => Erases::Nothing,
    }
}
