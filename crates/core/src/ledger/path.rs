//! The backward pass: where an id leads from a point in the order to its end.
//!
//! Walking the requests from the last to the first, the path of an id at a point is what requests from there on make of rows that
//! hold it. A convert of a to b sets path(a) to what path(b) is at that point; an erasure or an update of a adds to path(a). Paths are
//! shared until one of them is added to, so that a chain or a merge of any length is one step each.
//!
//! Why a path is small: a later update of a column has the later bound, so of several only the last can count for any row; and
//! of the erasures of a field that clears, only those whose bound is greater than all before.

use std::rc::Rc;

use super::org::{Act, NodeNumber, OrgLedger, Rank, Step};

/// A column that an update on the path sets; it counts for event times up to its request's execution time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Set {
    pub column: u16,
    pub value: u32,
    pub rank: Rank,
}

/// Where a path ends for event times up to a bound: the id is cleared.
#[derive(Debug, Clone)]
pub(super) struct Cleared {
    pub up_to: i64,
    pub rank: Rank,
    /// What updates on the path before it set.
    pub sets: Vec<Set>,
}

/// What the requests from a point on make of rows that hold an id.
#[derive(Debug, Clone)]
pub(super) struct Path {
    /// The id at the end, where it is not cleared.
    pub end: NodeNumber,
    /// The last event time of rows that are erased; `i64::MIN`: none.
    pub erased: i64,
    sets: Option<Rc<Vec<Set>>>,
    /// From the greatest bound down to the least.
    clears: Option<Rc<Vec<Cleared>>>,
}

impl Path {
    pub(super) const fn new(end: NodeNumber) -> Self {
        Self { end, erased: i64::MIN, sets: None, clears: None }
    }

    /// What is set where the path goes to its end.
    pub(super) fn sets(&self) -> &[Set] {
        self.sets.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Where it ends before, from the least bound to the greatest.
    pub(super) fn clears(&self) -> impl DoubleEndedIterator<Item = &Cleared> + ExactSizeIterator {
        self.clears.as_deref().map_or(&[][..], Vec::as_slice).iter().rev()
    }

    /// Whether it erases or clears some row.
    pub(super) fn erases(&self) -> bool {
        self.erased > i64::MIN || self.clears.is_some()
    }

    /// Rows up to `bound` are cleared before all that is on the path.
    fn clear(&mut self, bound: i64, rank: Rank) {
        let clears = Rc::make_mut(self.clears.get_or_insert_default());
        while clears.last().is_some_and(|first| first.up_to <= bound) {
            clears.pop();
        }
        clears.push(Cleared { up_to: bound, rank, sets: Vec::new() });
    }

    /// Rows up to `bound` get values, before all that is on the path; values that are on it already are later and stay.
    fn update(&mut self, bound: i64, rank: Rank, values: &[(u16, u32)]) {
        let lacks = |sets: &[Set]| values.iter().any(|(column, _)| sets.iter().all(|set| set.column != *column));
        let add = |sets: &mut Vec<Set>| {
            for &(column, value) in values {
                if sets.iter().all(|set| set.column != column) {
                    sets.push(Set { column, value, rank });
                }
            }
        };
        // The pieces from the earliest event times on. One that has all columns was reached by a later update, and so were those after
        // it; one that begins at or after the bound is not reached, nor are those after it.
        let mut begin = i64::MIN;
        if self.clears().next().is_some_and(|first| lacks(&first.sets)) {
            let clears = Rc::make_mut(self.clears.get_or_insert_default());
            for piece in clears.iter_mut().rev() {
                if begin >= bound || !lacks(&piece.sets) {
                    return;
                }
                add(&mut piece.sets);
                begin = piece.up_to;
            }
        } else if self.clears.is_some() {
            return;
        }
        if begin < bound && lacks(self.sets()) {
            add(Rc::make_mut(self.sets.get_or_insert_default()));
        }
    }
}

/// The paths of all ids at one point of the order.
pub(super) struct Paths<'l> {
    ledger: &'l OrgLedger,
    by_node: Vec<Path>,
    with_values: bool,
}

impl<'l> Paths<'l> {
    /// At the end of the order: each id leads to itself.
    pub(super) fn new(ledger: &'l OrgLedger) -> Self {
        let nodes = NodeNumber::try_from(ledger.nodes()).expect("nodes are numbered by u32");
        Self { ledger, by_node: (0..nodes).map(Path::new).collect(), with_values: true }
    }

    /// The same, but updates are passed over.
    pub(super) fn without_values(ledger: &'l OrgLedger) -> Self {
        Self { with_values: false, ..Self::new(ledger) }
    }

    /// Puts ids back to the end of the order.
    pub(super) fn reset(&mut self, nodes: &[NodeNumber]) {
        for &node in nodes {
            self.by_node[node as usize] = Path::new(node);
        }
    }

    pub(super) fn of(&self, node: NodeNumber) -> &Path {
        &self.by_node[node as usize]
    }

    /// Every id's, records' keys among them, whose paths lead to themselves.
    pub(super) fn all(&self) -> impl Iterator<Item = (NodeNumber, &Path)> {
        (0..).zip(&self.by_node)
    }

    /// Goes back over a step.
    pub(super) fn before(&mut self, step: &Step) {
        match step.act {
            Act::Convert { from, to } => self.by_node[from as usize] = self.by_node[to as usize].clone(),
            Act::Erase { node, .. } => {
                let clears = self.ledger.field(node).is_some_and(|field| self.ledger.shape.identity(field).clears.is_some());
                let path = &mut self.by_node[node as usize];
                if clears {
                    path.clear(step.bound, step.rank);
                } else {
                    path.erased = path.erased.max(step.bound);
                }
            }
            Act::Update { node, set } if self.with_values => {
                self.by_node[node as usize].update(step.bound, step.rank, self.ledger.set(set));
            }
            Act::Update { .. } | Act::EraseRecord { .. } | Act::EraseOrg => {}
        }
    }
}
