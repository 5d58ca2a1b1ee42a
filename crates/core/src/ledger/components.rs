//! Connected components: ids that converts join. What happens to one component's requests touches no other's fates.

use std::collections::BTreeMap;

use super::org::{Act, NodeNumber, OrgLedger, Step};
use crate::chain::BatchNumber;

/// The ids of an organisation's requests, grouped, those of later positions too; a record's key is a component by itself.
pub(super) struct Components {
    /// The component of each node.
    of_node: Vec<u32>,
    nodes: Grouped,
    /// Places in the ledger's steps, in order.
    steps: Grouped,
}

/// Numbers grouped by a number: one array of all, cut at ends.
struct Grouped {
    ends: Vec<u32>,
    items: Vec<u32>,
}

impl Grouped {
    /// Groups `items` by `group`, keeping their order. `groups` is how many there are.
    fn new(groups: usize, items: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut ends = vec![0_u32; groups + 1];
        for (group, _) in items.clone() {
            ends[group as usize + 1] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        let mut next = ends.clone();
        let mut sorted = vec![0; ends[groups] as usize];
        for (group, item) in items {
            sorted[next[group as usize] as usize] = item;
            next[group as usize] += 1;
        }
        Self { ends, items: sorted }
    }

    fn of(&self, group: u32) -> &[u32] {
        &self.items[self.ends[group as usize] as usize..self.ends[group as usize + 1] as usize]
    }
}

/// Union-find with path halving.
struct Roots(Vec<NodeNumber>);

impl Roots {
    fn find(&mut self, mut node: NodeNumber) -> NodeNumber {
        while self.0[node as usize] != node {
            let parent = self.0[node as usize];
            self.0[node as usize] = self.0[parent as usize];
            node = self.0[node as usize];
        }
        node
    }
}

impl Components {
    /// The components that the steps up to `position` make.
    pub(super) fn new(ledger: &OrgLedger, position: BatchNumber) -> Self {
        let nodes = NodeNumber::try_from(ledger.nodes()).expect("nodes are numbered by u32");
        let mut roots = Roots((0..nodes).collect());
        for step in ledger.steps_at(position) {
            if let Act::Convert { from, to } = step.act {
                let (a, b) = (roots.find(from), roots.find(to));
                let (low, high) = (a.min(b), a.max(b));
                roots.0[high as usize] = low;
            }
        }
        let mut of_node = vec![0; nodes as usize];
        let mut count = 0_u32;
        for node in 0..nodes {
            let root = roots.find(node);
            // A root is the least of its component, so it comes first.
            of_node[node as usize] = if root == node {
                count += 1;
                count - 1
            } else {
                of_node[root as usize]
            };
        }
        let by_node = (0..nodes).map(|node| (of_node[node as usize], node));
        let steps = (0_u32..).zip(&ledger.steps).filter(|(_, step)| ledger.batch(step.rank) <= position);
        let by_step = steps.filter_map(|(at, step)| Some((of_node[step.act.node()? as usize], at)));
        let groups = count as usize;
        Self { nodes: Grouped::new(groups, by_node), steps: Grouped::new(groups, by_step), of_node }
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.nodes.ends.len() - 1).expect("components are no more than nodes")
    }

    pub(super) fn of(&self, node: NodeNumber) -> u32 {
        self.of_node[node as usize]
    }

    pub(super) fn nodes(&self, component: u32) -> &[NodeNumber] {
        self.nodes.of(component)
    }

    /// The component's steps, in order.
    pub(super) fn steps<'l>(&self, ledger: &'l OrgLedger, component: u32) -> impl DoubleEndedIterator<Item = &'l Step> + Clone {
        self.steps.of(component).iter().map(|at| &ledger.steps[*at as usize])
    }
}

/// The batches `b` such that what the requests up to `b` erase must be looked at by itself: the batch after it brings a
/// request that executes before an erasure of `b` or earlier. After other batches the next one erases all that they did.
pub(super) fn breaks<'l>(ledger: &'l OrgLedger, steps: impl Iterator<Item = &'l Step>) -> Vec<BatchNumber> {
    /// What a batch brings: its first rank, and the last rank of an erasure.
    struct Brought {
        first: u32,
        last_erase: Option<u32>,
    }
    let mut batches: BTreeMap<BatchNumber, Brought> = BTreeMap::new();
    for step in steps {
        let erase = matches!(step.act, Act::Erase { .. }).then_some(step.rank);
        let brought = batches.entry(ledger.batch(step.rank)).or_insert(Brought { first: step.rank, last_erase: None });
        brought.first = brought.first.min(step.rank);
        brought.last_erase = brought.last_erase.max(erase);
    }
    let mut all = Vec::new();
    let mut before: Option<(BatchNumber, Option<u32>)> = None;
    for (batch, brought) in batches {
        let erased = before.and_then(|(last, erased)| {
            if erased.is_some_and(|erased| brought.first < erased) {
                all.push(last);
            }
            erased
        });
        before = Some((batch, erased.max(brought.last_erase)));
    }
    all
}
