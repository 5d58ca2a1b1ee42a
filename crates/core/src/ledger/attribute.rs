//! How many rows each request matched on their way: a pass forward over the requests, with the rows that stand on each id.
//!
//! When a convert joins the rows of two ids, the fewer go to the more; a row that is erased is taken out where it stands. So the cost is
//! that of the requests and of `rows * log(rows)`, not of their product.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::node::Field;
use super::org::{Act, NodeNumber, OrgLedger, Rank, Step};
use crate::chain::BatchNumber;

/// Rows that are alike in all that requests may ask, as the SOURCE gave them.
#[derive(Clone, Copy)]
pub struct RowGroup<'r> {
    /// The ids in the order of [`super::Shape::identity_fields`]; `None` is null.
    pub ids: &'r [Option<&'r str>],
    /// The record's key.
    pub key: Option<&'r str>,
    /// The event time, in microseconds since 1970.
    pub event_time: i64,
    /// How many rows they are.
    pub rows: u64,
}

impl OrgLedger {
    /// How many of the rows each request matches at its point in the order, of the requests up to a position; by the requests'
    /// places in [`Self::requests`], 0 for those of later batches. What is final is not asked: a row that only finality erases counts as the
    /// requests alone have it. A request that matches a row by several ids counts it once.
    #[must_use]
    pub fn attribute<'r>(&self, position: BatchNumber, rows: impl Iterator<Item = RowGroup<'r>>) -> Vec<u64> {
        let mut walk = Walk::new(self, rows);
        for step in self.steps_at(position) {
            walk.step(step);
        }
        walk.matched
    }
}

/// Where a group of rows stands on one of its ids, or on its key.
type Stand = Option<u32>;

struct Group {
    event_time: i64,
    rows: u64,
    erased: bool,
    /// Whether requests of now are at or after the event time.
    active: bool,
    /// The request that counted it last.
    counted: Option<Rank>,
}

/// The rows on one node; sets that were joined into another only lead to it.
struct Set {
    joined: u32,
    rows: u64,
    active: u64,
    /// By event time; groups that went stay until they come up.
    groups: BinaryHeap<Reverse<(i64, u32)>>,
}

struct Walk<'l> {
    ledger: &'l OrgLedger,
    /// By event time.
    groups: Vec<Group>,
    /// For each group, one for each identity field and one for the key.
    stands: Vec<Stand>,
    width: usize,
    sets: Vec<Set>,
    on: HashMap<NodeNumber, u32>,
    next_active: usize,
    org_erased: usize,
    matched: Vec<u64>,
}

impl<'l> Walk<'l> {
    fn new<'r>(ledger: &'l OrgLedger, rows: impl Iterator<Item = RowGroup<'r>>) -> Self {
        let mut rows: Vec<RowGroup<'r>> = rows.filter(|row| row.rows > 0).collect();
        rows.sort_by_key(|row| row.event_time);
        let fields = ledger.shape.identity_fields().len();
        let width = fields + 1;
        let mut walk = Self {
            ledger,
            groups: Vec::with_capacity(rows.len()),
            stands: Vec::with_capacity(rows.len() * width),
            width,
            sets: Vec::new(),
            on: HashMap::new(),
            next_active: 0,
            org_erased: 0,
            matched: vec![0; ledger.requests().len()],
        };
        for (number, row) in (0_u32..).zip(&rows) {
            for at in 0..fields {
                let field = u16::try_from(at).ok().map(Field);
                let node = row.ids.get(at).copied().flatten().zip(field).and_then(|(id, field)| ledger.find_id(field, id));
                walk.stand(number, row, node);
            }
            walk.stand(number, row, row.key.and_then(|key| ledger.find_record(key)));
            let RowGroup { event_time, rows, .. } = *row;
            walk.groups.push(Group { event_time, rows, erased: false, active: false, counted: None });
        }
        walk
    }

    fn stand(&mut self, group: u32, row: &RowGroup<'_>, node: Option<NodeNumber>) {
        let stand = node.map(|node| {
            let new = u32::try_from(self.sets.len()).expect("nodes are numbered by u32");
            let at = *self.on.entry(node).or_insert(new);
            if at == new {
                self.sets.push(Set { joined: new, rows: 0, active: 0, groups: BinaryHeap::new() });
            }
            let set = &mut self.sets[at as usize];
            set.rows += row.rows;
            set.groups.push(Reverse((row.event_time, group)));
            at
        });
        self.stands.push(stand);
    }

    fn find(&mut self, mut set: u32) -> usize {
        while self.sets[set as usize].joined != set {
            let next = self.sets[set as usize].joined;
            self.sets[set as usize].joined = self.sets[next as usize].joined;
            set = self.sets[set as usize].joined;
        }
        set as usize
    }

    fn step(&mut self, step: &Step) {
        let rank = step.rank;
        self.activate(self.ledger.execution_time(rank));
        let matched = match step.act {
            Act::Convert { from, to } => self.convert(from, to),
            Act::Update { node, .. } => self.on.get(&node).copied().map_or(0, |set| {
                let set = self.find(set);
                self.sets[set].active
            }),
            Act::Erase { node, .. } => {
                let field = self.ledger.field(node).unwrap_or(Field(0));
                let clears = self.ledger.shape.identity(field).clears.is_some();
                self.erase(node, usize::from(field.0), clears, step)
            }
            Act::EraseRecord { node } => self.erase(node, self.width - 1, false, step),
            Act::EraseOrg => self.erase_org(step.bound),
        };
        self.matched[rank as usize] += matched;
    }

    /// Groups whose event time is reached count for updates from now on.
    fn activate(&mut self, now: i64) {
        while self.groups.get(self.next_active).is_some_and(|group| group.event_time <= now) {
            let group = self.next_active;
            self.next_active += 1;
            self.groups[group].active = true;
            for at in group * self.width..(group + 1) * self.width {
                if let Some(set) = self.stands[at] {
                    let set = self.find(set);
                    self.sets[set].active += self.groups[group].rows;
                }
            }
        }
    }

    fn convert(&mut self, from: NodeNumber, to: NodeNumber) -> u64 {
        let Some(moved) = self.on.remove(&from) else { return 0 };
        let moved = self.find(moved);
        let rows = self.sets[moved].rows;
        let into = match self.on.get(&to).copied() {
            None => moved,
            Some(there) => {
                let there = self.find(there);
                let more = self.sets[there].groups.len() >= self.sets[moved].groups.len();
                let (into, gone) = if more { (there, moved) } else { (moved, there) };
                let mut groups = std::mem::take(&mut self.sets[gone].groups);
                let (rows, active) = (self.sets[gone].rows, self.sets[gone].active);
                self.sets[gone].joined = into as u32;
                let set = &mut self.sets[into];
                set.groups.append(&mut groups);
                set.rows += rows;
                set.active += active;
                into
            }
        };
        self.on.insert(to, into as u32);
        rows
    }

    /// Erases what stands on a node by its field, up to the step's bound: the groups, or (`clears`) only that they stand there.
    fn erase(&mut self, node: NodeNumber, field: usize, clears: bool, step: &Step) -> u64 {
        let Some(set) = self.on.get(&node).copied() else { return 0 };
        let set = self.find(set);
        let mut matched = 0;
        while let Some(Reverse((event_time, group))) = self.sets[set].groups.peek().copied() {
            if event_time > step.bound {
                break;
            }
            self.sets[set].groups.pop();
            let at = group as usize;
            if self.stands[at * self.width + field].is_none() {
                continue;
            }
            if self.groups[at].counted != Some(step.rank) {
                self.groups[at].counted = Some(step.rank);
                matched += self.groups[at].rows;
            }
            if clears {
                self.leave(at, field);
            } else {
                self.go(at);
            }
        }
        matched
    }

    fn erase_org(&mut self, bound: i64) -> u64 {
        let mut matched = 0;
        while self.groups.get(self.org_erased).is_some_and(|group| group.event_time <= bound) {
            let group = self.org_erased;
            self.org_erased += 1;
            if !self.groups[group].erased {
                matched += self.groups[group].rows;
                self.go(group);
            }
        }
        matched
    }

    /// The group is no more.
    fn go(&mut self, group: usize) {
        self.groups[group].erased = true;
        for field in 0..self.width {
            self.leave(group, field);
        }
    }

    /// The group stands on nothing by this field any more.
    fn leave(&mut self, group: usize, field: usize) {
        let Some(set) = self.stands[group * self.width + field].take() else { return };
        let set = self.find(set);
        let (rows, active) = (self.groups[group].rows, self.groups[group].active);
        self.sets[set].rows -= rows;
        if active {
            self.sets[set].active -= rows;
        }
    }
}
