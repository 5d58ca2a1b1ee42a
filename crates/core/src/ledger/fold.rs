//! From requests to fates.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::components::Components;
use super::fate::{Ending, Fate, FinalId, Live, Pieces, SetColumn};
use super::finality::{Final, Finality};
use super::node::Node;
use super::org::{Act, NodeNumber, OrgLedger, Rank};
use super::path::{Path, Paths, Set};
use crate::chain::BatchNumber;
use crate::request::{Id, JsonText};

/// A node whose fate is another one at a later position; `None` is a fate that leaves rows as the source gave them.
#[derive(Debug, Clone, Copy)]
pub struct FateChange<'c> {
    /// The node.
    pub node: Node<'c>,
    /// Its fate at the earlier position.
    pub old: Option<&'c Fate>,
    /// Its fate at the later position.
    pub new: Option<&'c Fate>,
}

/// What became of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed<'l> {
    /// The place of the convert that took it away, in [`OrgLedger::requests`].
    pub by: usize,
    /// What its rows have instead.
    pub now: &'l str,
}

impl OrgLedger {
    /// Tells the fate of every node at a position: what the requests that batches up to it took in make of rows. Nodes that are not
    /// told of leave rows as the source gave them.
    pub fn fold(&self, position: BatchNumber, visit: &mut dyn FnMut(Node<'_>, &Fate)) {
        let erases = self.steps_at(position).any(|step| matches!(step.act, Act::Erase { .. }));
        let finality =
            if erases { Finality::new(self, &Components::new(self, position), position, &|_| true) } else { Finality::default() };
        self.tell(position, &finality, &|_| true, &mut |node, fate| visit(self.told(node), &fate));
    }

    /// Tells each node whose fate at `to` is not what it was at `from`, an earlier position. Only components to which batches after `from` brought a request are folded.
    pub fn changed(&self, from: BatchNumber, to: BatchNumber, visit: &mut dyn FnMut(FateChange<'_>)) {
        let components = Components::new(self, to);
        let mut touched = vec![false; components.len() as usize];
        let mut org = false;
        for step in self.steps_at(to).filter(|step| self.batch(step.rank) > from) {
            match step.act.node() {
                Some(node) => touched[components.of(node) as usize] = true,
                None => org = true,
            }
        }
        let selected = |component: u32| touched[component as usize];
        let wanted = |node: Option<NodeNumber>| node.map_or(org, |node| selected(components.of(node)));
        let mut before: BTreeMap<Option<NodeNumber>, Fate> = BTreeMap::new();
        let finality = Finality::new(self, &components, from, &selected);
        self.tell(from, &finality, &wanted, &mut |node, fate| {
            before.insert(node, fate);
        });
        let finality = Finality::new(self, &components, to, &selected);
        self.tell(to, &finality, &wanted, &mut |node, fate| {
            let old = before.remove(&node);
            if old.as_ref() != Some(&fate) {
                visit(FateChange { node: self.told(node), old: old.as_ref(), new: Some(&fate) });
            }
        });
        for (node, old) in before {
            visit(FateChange { node: self.told(node), old: Some(&old), new: None });
        }
    }

    /// Which requests, by their places in [`Self::requests`], are late at a position: some batch before the request's own had made final that
    /// rows are erased or cleared which, at the request's place in the order, hold the id (the key, the organisation) that it is about, by a
    /// delete that executes after it. What it would have changed is gone already.
    #[must_use]
    pub fn late(&self, position: BatchNumber) -> Vec<bool> {
        let mut late = Finality::new(self, &Components::new(self, position), position, &|_| true).late;
        // From the last request to the first: the earliest batch of those that erase the organisation, or a record.
        let mut org: Option<BatchNumber> = None;
        let mut records: HashMap<NodeNumber, BatchNumber> = HashMap::new();
        for step in self.steps_at(position).rev() {
            let batch = self.batch(step.rank);
            let of_record = match step.act {
                Act::EraseRecord { node } => Some(*records.entry(node).and_modify(|b| *b = batch.min(*b)).or_insert(batch)),
                _ => None,
            };
            if [org, of_record].into_iter().flatten().any(|erased| erased < batch) {
                late[step.rank as usize] = true;
            }
            if step.act == Act::EraseOrg {
                org = Some(org.map_or(batch, |erased| erased.min(batch)));
            }
        }
        late
    }

    /// What the ids of the request at this place, in [`Self::requests`], had become before it, at a position, if no row has one of them then: each was
    /// converted away, and nothing led back to it. Tells of the first. What a delete made final counts as well: it is told only if that was
    /// so at each position from the delete's own on.
    #[must_use]
    pub fn renamed(&self, place: usize, position: BatchNumber) -> Option<Renamed<'_>> {
        let steps = || self.steps_at(position).filter(|step| step.rank as usize == place);
        let ids: Vec<NodeNumber> = steps().filter_map(|step| step.act.id()).collect();
        let mut positions = BTreeSet::from([position]);
        if let Some(erase) = steps().find(|step| matches!(step.act, Act::Erase { .. })) {
            let own = self.batch(erase.rank);
            let about = |act: Act| matches!(act, Act::Convert { from, to } if ids.contains(&from) || ids.contains(&to));
            let batches = self.steps_at(position).filter(|step| about(step.act)).map(|step| self.batch(step.rank));
            positions.extend(batches.filter(|batch| *batch > own));
            positions.insert(own);
        }
        let mut renamed = None;
        for position in positions {
            renamed = Some(self.renamed_at(&ids, place, position)?);
        }
        renamed
    }

    /// The same of one position.
    fn renamed_at(&self, ids: &[NodeNumber], place: usize, position: BatchNumber) -> Option<Renamed<'_>> {
        // By which convert rows of an id became another, and what they are now.
        let mut renamed: BTreeMap<NodeNumber, (Rank, NodeNumber)> = BTreeMap::new();
        for step in self.steps_at(position).take_while(|step| (step.rank as usize) < place) {
            let Act::Convert { from, to } = step.act else { continue };
            renamed.values_mut().filter(|(_, now)| *now == from).for_each(|(_, now)| *now = to);
            if ids.contains(&from) {
                renamed.entry(from).or_insert((step.rank, to));
            }
            renamed.remove(&to);
        }
        let all = ids.iter().all(|id| renamed.contains_key(id));
        let (by, now) = *renamed.get(ids.first()?).filter(|_| all)?;
        Some(Renamed { by: by as usize, now: self.node_text(now) })
    }

    /// Tells the components at a position: the ids (or the one key) that converts join, and the places in [`Self::requests`] of the
    /// requests about them, in order. Requests about the whole organisation are in none; one that names several ids may be in several.
    pub fn components(&self, position: BatchNumber, visit: &mut dyn FnMut(&[Node<'_>], &[usize])) {
        let components = Components::new(self, position);
        let (mut nodes, mut places) = (Vec::new(), Vec::new());
        for component in 0..components.len() {
            places.clear();
            places.extend(components.steps(self, component).map(|step| step.rank as usize));
            places.dedup();
            nodes.clear();
            nodes.extend(components.nodes(component).iter().map(|node| self.node(*node)));
            if !places.is_empty() {
                visit(&nodes, &places);
            }
        }
    }

    fn told(&self, node: Option<NodeNumber>) -> Node<'_> {
        node.map_or(Node::Org, |node| self.node(node))
    }

    /// Tells the fates of the nodes that `wanted` says; `None` is the organisation. What it is not told of need not be folded.
    fn tell(
        &self,
        position: BatchNumber,
        finality: &Finality,
        wanted: &dyn Fn(Option<NodeNumber>) -> bool,
        visit: &mut dyn FnMut(Option<NodeNumber>, Fate),
    ) {
        let mut paths = Paths::new(self);
        let mut org: Option<i64> = None;
        let mut records: BTreeMap<NodeNumber, i64> = BTreeMap::new();
        for step in self.steps_at(position).rev().filter(|step| wanted(step.act.node())) {
            match step.act {
                Act::EraseOrg => org = org.max(Some(step.bound)),
                Act::EraseRecord { node } => {
                    let bound = records.entry(node).or_insert(step.bound);
                    *bound = step.bound.max(*bound);
                }
                Act::Convert { .. } | Act::Erase { .. } | Act::Update { .. } => paths.before(step),
            }
        }
        for (node, path) in paths.all() {
            if wanted(Some(node))
                && let Some(fate) = self.fate(node, path, finality)
            {
                visit(Some(node), fate);
            }
        }
        for (node, bound) in records {
            visit(Some(node), Fate::erased_up_to(bound));
        }
        if let Some(bound) = org {
            visit(None, Fate::erased_up_to(bound));
        }
    }

    /// The fate that an id's path and what is final make, unless it leaves rows as they are.
    fn fate(&self, node: NodeNumber, path: &Path, finality: &Finality) -> Option<Fate> {
        let of = finality.of.get(&node);
        if of.is_none() && path.end == node && path.sets().is_empty() && !path.erases() {
            return None;
        }
        let erased = of.and_then(|f| f.erased).max((path.erased > i64::MIN).then_some(path.erased));
        let mut pieces = Pieces::new();
        for up_to in self.ends(path, of) {
            let ending = if erased.is_some_and(|erased| up_to <= erased) {
                Ending::Erased
            } else {
                Ending::Live(self.live(node, path, finality, up_to))
            };
            pieces.push(up_to, ending);
        }
        let ending = self.live(node, path, finality, i64::MAX);
        Some(pieces.finish(Ending::Live(ending))).filter(|fate| !fate.is_untouched())
    }

    /// The event times, ascending, after which an id's rows may become something else.
    fn ends(&self, path: &Path, of: Option<&Final>) -> Vec<i64> {
        let time = |set: &Set| self.execution_time(set.rank);
        let mut ends: Vec<i64> = path.sets().iter().map(time).collect();
        for clear in path.clears() {
            ends.push(clear.up_to);
            ends.extend(clear.sets.iter().map(time));
        }
        ends.extend((path.erased > i64::MIN).then_some(path.erased));
        if let Some(of) = of {
            ends.extend(of.erased);
            ends.extend(of.clears.iter().map(|(up_to, _)| *up_to));
        }
        ends.sort_unstable();
        ends.dedup();
        ends.retain(|end| *end < i64::MAX);
        ends
    }

    /// What becomes of rows of this event time that are not erased.
    fn live(&self, node: NodeNumber, path: &Path, finality: &Finality, event_time: i64) -> Live {
        let cut = path.clears().find(|clear| clear.up_to >= event_time);
        let sets = cut.map_or(path.sets(), |clear| &clear.sets);
        let mut columns: BTreeMap<u16, (Option<u32>, Rank)> = BTreeMap::new();
        for set in sets.iter().filter(|set| self.execution_time(set.rank) >= event_time) {
            columns.insert(set.column, (Some(set.value), set.rank));
        }
        let cleared = cut.map(|clear| clear.rank).max(finality.of.get(&node).and_then(|of| of.cleared_at(event_time)));
        if let (Some(rank), Some(field)) = (cleared, self.field(node)) {
            for &column in self.shape.identity(field).clears.iter().flatten() {
                let now = columns.entry(column).or_insert((None, rank));
                if now.1 < rank {
                    *now = (None, rank);
                }
            }
        }
        let id = match cleared {
            Some(_) => FinalId::Null,
            // What nobody can spell any more was purged.
            None if path.end == node || finality.purged.contains(&path.end) || !self.is_spelled(path.end) => FinalId::Source,
            None => FinalId::Is(Id::new(self.node_text(path.end))),
        };
        let column = |(column, (value, rank)): (u16, (Option<u32>, Rank))| SetColumn {
            column: self.shape.column(column).clone(),
            value: value.map_or_else(JsonText::null, |value| JsonText::canonical(self.value(value))),
            order: self.order(rank),
        };
        let mut columns: Vec<SetColumn> = columns.into_iter().map(column).collect();
        columns.sort_unstable_by(|a, b| a.column.cmp(&b.column));
        Live { id, columns }
    }
}
