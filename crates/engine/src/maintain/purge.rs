//! When a table's past must go: an erasure for privacy was applied to it, and what it removed still lies in files that are no longer its own.
//!
//! A table is purged up to a position of the ledger. What it still holds of erasures behind that position lies in files that were replaced at or
//! before the version that reached the position, so all such files go, whatever they hold: no version before that one can be read without them anyway.

use std::time::Duration;

use alluvium_core::{
    BatchNumber, BatchSpan, Dataset, Delete, Incarnation, Job, LedgerPosition, NextVersion, Op, Request, Result, Shape, Shard,
    TableSpec, app_id,
};
use alluvium_lake::{DeltaLog, Purged, PurgedTo, unfinished_since};

use crate::engine::Engine;

/// What of a table must go: erasures that were applied long enough ago, in the order of the versions that applied them; at least one.
#[derive(Debug, Clone)]
pub(super) struct Purge {
    erasures: Vec<Applied>,
    wait_for_consumers: Duration,
}

/// An erasure for privacy, or several, that a version applied: files that it or an earlier one replaced go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applied {
    version: u64,
    /// When, in milliseconds since 1970.
    at_ms: i64,
    /// How far the table is purged once they are gone.
    purged: Purged,
}

impl Purge {
    /// All that a table had replaced up to a version goes at once.
    pub(super) fn now(version: u64, at_ms: i64, purged: Purged) -> Self {
        Self { erasures: vec![Applied { version, at_ms, purged }], wait_for_consumers: Duration::ZERO }
    }

    /// The version of the last of them.
    pub(super) fn version(&self) -> u64 {
        self.erasures.last().map_or(0, |applied| applied.version)
    }

    /// The version of the last of them for which no named reader is waited for any more.
    pub(super) fn waits_for_nobody(&self, now_ms: i64) -> Option<u64> {
        let is_over = |applied: &&Applied| plus(applied.at_ms, self.wait_for_consumers) <= now_ms;
        self.erasures.iter().rev().find(is_over).map(|applied| applied.version)
    }

    /// The last of them of which nothing is left where changes are kept from there on.
    pub(super) fn gone(&self, kept_from: NextVersion) -> Option<&Applied> {
        self.erasures.iter().rev().find(|applied| applied.version < kept_from.0)
    }
}

fn plus(at_ms: i64, time: Duration) -> i64 {
    at_ms.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
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
        let before = PurgedTo::new(&self.store, &self.resolver, &spec.name).get().await?;
        let at = BatchNumber(state.ledger().0);
        let erased = self.erased_by_batches(incarnation, dataset, before, at).await?;
        let Some((first, _)) = erased.first() else {
            // So that these requests need not be read again.
            let purged = Purged { to: LedgerPosition(at.0), ..before };
            if remembers && purged != before {
                self.purged(&spec, purged, now_ms).await?;
            }
            return Ok(None);
        };
        let moves = log.moves_after(incarnation, LedgerPosition(first.0 - 1)).await?;
        let mut erasures: Vec<Applied> = Vec::new();
        for (number, (batch, erased_until)) in erased.iter().enumerate() {
            // What the log does not tell any more was long ago.
            let by = moves.iter().find(|(position, _, _)| position.0 >= batch.0).map(|(_, version, at_ms)| (*version, *at_ms));
            let (version, at_ms) = by.unwrap_or((state.version(), 0));
            let to = erased.get(number + 1).map_or(at.0, |(next, _)| next.0 - 1);
            let purged = Purged { to: LedgerPosition(to), erased_until: *erased_until };
            match erasures.last_mut() {
                Some(last) if last.version == version => last.purged = purged,
                _ => erasures.push(Applied { version, at_ms, purged }),
            }
        }
        let is_due = |applied: &Applied| plus(applied.at_ms, self.project.erase.purge_after) <= now_ms;
        let due = erasures.iter().take_while(|applied| is_due(applied)).count();
        erasures.truncate(due);
        let wait_for_consumers = self.project.erase.wait_for_consumers;
        Ok((!erasures.is_empty()).then_some(Purge { erasures, wait_for_consumers }))
    }

    /// The batches of requests up to `at` that erase for privacy what was not purged, ascending; each with the latest execution time of an erasure
    /// so far.
    async fn erased_by_batches(
        &self,
        incarnation: &Incarnation,
        dataset: &Dataset,
        mut purged: Purged,
        at: BatchNumber,
    ) -> Result<Vec<(BatchNumber, Option<i64>)>> {
        let shape = Shape::of(dataset);
        let mut erased: Vec<(BatchNumber, Option<i64>)> = Vec::new();
        let mut from = BatchNumber(purged.to.0);
        while from < at {
            let to = self.batches_at_once(incarnation, from, at, self.requests_folded_at_once()).await?;
            let Some(span) = BatchSpan::new(from, to) else { break };
            for accepted in self.accepted(incarnation, span, None).await? {
                match erased_by(&accepted.request, &shape, &purged) {
                    Erases::Nothing => continue,
                    Erases::Late => {}
                    Erases::UpTo(time) => purged.erased_until = purged.erased_until.max(Some(time)),
                }
                match erased.last_mut() {
                    Some(last) if last.0 == accepted.batch => last.1 = purged.erased_until,
                    _ => erased.push((accepted.batch, purged.erased_until)),
                }
            }
            from = to;
        }
        Ok(erased)
    }

    /// Cuts the log of a table whose files are purged, and says that what had to go of it has gone; next time, if a batch is under way that was recorded
    /// before the table was purged, and may look for what the log says of it.
    pub(super) async fn purge_log(
        &self,
        incarnation: &Incarnation,
        spec: &TableSpec,
        log: &DeltaLog,
        applied: &Applied,
        now_ms: i64,
    ) -> Result<()> {
        let committed_ms = log.put_ms(applied.version).await?;
        let is_older = |recorded_ms: i64| committed_ms.is_none_or(|committed_ms| recorded_ms <= committed_ms);
        let under_way = unfinished_since(&self.store, &self.resolver, incarnation).await?;
        if under_way.is_some_and(is_older) || !log.cut(applied.version).await? {
            return Ok(());
        }
        self.purged(spec, applied.purged, now_ms).await
    }

    pub(super) async fn purged(&self, spec: &TableSpec, purged: Purged, now_ms: i64) -> Result<()> {
        PurgedTo::new(&self.store, &self.resolver, &spec.name).raise(purged, now_ms).await
    }
}

/// What a request may erase for privacy.
enum Erases {
    Nothing,
    /// It is an erasure, of this execution time.
    UpTo(i64),
    /// It executes no later than an erasure that was there before, and may lead more rows to it.
    Late,
}

fn erased_by(request: &Request, shape: &Shape, before: &Purged) -> Erases {
    let is_late = || before.erased_until.is_some_and(|until| request.execution_time <= until);
    match &request.op {
        _ if shape.nodes(request).is_empty() => Erases::Nothing,
        Op::Delete(Delete { privacy: true, .. }) => Erases::UpTo(request.execution_time),
        Op::Convert { .. } if is_late() => Erases::Late,
        _ => Erases::Nothing,
    }
}
