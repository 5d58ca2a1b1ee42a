//! Finality: what requests up to some batch erased or cleared stays so at every later position.
//!
//! It is the union of what the requests of batches up to n erase, over all n. A batch that only brings requests behind all erasures so far
//! changes nothing that was erased, so only the positions before a batch that brings an earlier one are folded by themselves, and
//! only in the components where that happens; one such fold goes once over the component's requests.

use std::collections::{HashMap, HashSet};

use super::components::{Components, breaks};
use super::org::{Act, NodeNumber, OrgLedger, Rank, Step};
use super::path::Paths;
use super::purged::add_purged;
use crate::chain::BatchNumber;

/// What is final of an id, besides what the requests of today make of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Final {
    /// The last event time of rows that are erased.
    pub erased: Option<i64>,
    /// For event times after the entry before and up to this one: the last request, in the order, that cleared the id.
    pub clears: Vec<(i64, Rank)>,
}

/// What is final, of ids of which it may be more than what today's requests make, and who came late.
#[derive(Default)]
pub(super) struct Finality {
    pub of: HashMap<NodeNumber, Final>,
    pub late: Vec<bool>,
    /// The ids that are purged.
    pub purged: HashSet<NodeNumber>,
}

impl Final {
    /// The request that last cleared the id of a row of this event time.
    pub(super) fn cleared_at(&self, event_time: i64) -> Option<Rank> {
        step_at(&self.clears, event_time)
    }

    fn add(&mut self, erased: i64, clears: &[(i64, Rank)]) {
        if erased > i64::MIN {
            self.erased = self.erased.max(Some(erased));
        }
        if clears.is_empty() {
            return;
        }
        let mut ends: Vec<i64> = self.clears.iter().chain(clears).map(|(up_to, _)| *up_to).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut merged: Vec<(i64, Rank)> = Vec::with_capacity(ends.len());
        for end in ends {
            let Some(rank) = step_at(&self.clears, end).max(step_at(clears, end)) else { continue };
            match merged.last_mut() {
                Some(last) if last.1 == rank => last.0 = end,
                _ => merged.push((end, rank)),
            }
        }
        self.clears = merged;
    }
}

fn step_at(steps: &[(i64, Rank)], event_time: i64) -> Option<Rank> {
    steps.get(steps.partition_point(|(up_to, _)| *up_to < event_time)).map(|(_, rank)| *rank)
}

impl Finality {
    /// What is final at `position` in the components that `selected` says. The components may be those of a later position: they
    /// hold the ones of then whole, and looking at one of them at more batches than must be finds nothing else.
    pub(super) fn new(
        ledger: &OrgLedger,
        components: &Components,
        position: BatchNumber,
        selected: &dyn Fn(u32) -> bool,
    ) -> Self {
        let mut all = Self { late: vec![false; ledger.requests().len()], ..Self::default() };
        let mut paths: Option<Paths<'_>> = None;
        for component in (0..components.len()).filter(|c| selected(*c)) {
            let steps = components.steps(ledger, component).filter(|step| ledger.batch(step.rank) <= position);
            if steps.clone().all(|step| !matches!(step.act, Act::Erase { .. })) {
                continue;
            }
            let purges = steps.clone().any(|step| matches!(step.act, Act::Erase { privacy: true, .. }));
            if purges {
                add_purged(steps.clone(), &mut all.purged);
            }
            for batch in breaks(ledger, steps.clone()) {
                if purges {
                    add_purged(steps.clone().filter(|step| ledger.batch(step.rank) <= batch), &mut all.purged);
                }
                let paths = paths.get_or_insert_with(|| Paths::without_values(ledger));
                all.look_at(ledger, components.nodes(component), steps.clone(), batch, paths);
            }
        }
        all
    }

    /// Adds what the requests up to `batch` make final, and marks those that came after it and would have changed such rows.
    fn look_at<'l>(
        &mut self,
        ledger: &OrgLedger,
        nodes: &[NodeNumber],
        steps: impl DoubleEndedIterator<Item = &'l Step>,
        batch: BatchNumber,
        paths: &mut Paths<'_>,
    ) {
        paths.reset(nodes);
        for step in steps.rev() {
            if ledger.batch(step.rank) <= batch {
                paths.before(step);
            } else if step.act.id().is_some_and(|node| paths.of(node).erases()) {
                self.late[step.rank as usize] = true;
            }
        }
        for &node in nodes {
            let path = paths.of(node);
            if path.erases() {
                let clears: Vec<(i64, Rank)> = path.clears().map(|c| (c.up_to, c.rank)).collect();
                self.of.entry(node).or_default().add(path.erased, &clears);
            }
        }
    }
}
