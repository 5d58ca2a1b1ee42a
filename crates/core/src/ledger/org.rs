//! The requests of one organisation that count for one dataset, compact and in order.
//!
//! What it takes: per request 32 bytes and its id's text, per step (a thing that a request does to one node) 24 bytes, per text (id, key,
//! value) about 40 bytes and the text, each text once. Folding adds about 50 bytes per node. With ids of 15 letters that comes to
//! some 240 bytes a request, see `examples/fold.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use super::components::Components;
use super::fate::Order;
use super::finality::Finality;
use super::node::{Field, Node};
use super::shape::Shape;
use super::texts::Texts;
use crate::chain::BatchNumber;
use crate::pseudonym::{OrgPseudonyms, is_pseudonym};
use crate::request::{Delete, Id, Op, OrderKey, Request, Scope};

/// The tag of record keys among the texts of ids, whose tags are their fields.
const RECORD: u16 = u16::MAX;

/// A request's place in the order of its organisation, from 0.
pub(super) type Rank = u32;
/// A node's number: an id in a field, or a record's key.
pub(super) type NodeNumber = u32;

/// One thing that a request does to one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Convert {
        from: NodeNumber,
        to: NodeNumber,
    },
    /// With `privacy` the id is purged.
    Erase {
        node: NodeNumber,
        privacy: bool,
    },
    Update {
        node: NodeNumber,
        set: u32,
    },
    EraseRecord {
        node: NodeNumber,
    },
    EraseOrg,
}

impl Act {
    /// The id or record it is about; `None`: the organisation.
    pub(super) const fn node(self) -> Option<NodeNumber> {
        match self {
            Self::EraseRecord { node } => Some(node),
            Self::EraseOrg => None,
            _ => self.id(),
        }
    }

    /// The id it is about, if it is about one.
    pub(super) const fn id(self) -> Option<NodeNumber> {
        match self {
            Self::Convert { from: node, .. } | Self::Erase { node, .. } | Self::Update { node, .. } => Some(node),
            Self::EraseRecord { .. } | Self::EraseOrg => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// The request; while requests still come in, its number as it came.
    pub rank: Rank,
    pub act: Act,
    /// The last event time it is about, inclusive.
    pub bound: i64,
}

#[derive(Debug, Clone, Copy)]
struct Accepted {
    execution_time: i64,
    batch: BatchNumber,
    /// Where its id ends among the ids as they came.
    id_end: usize,
    number: u32,
}

/// Ids and keys, each once. Where the organisation has pseudonyms, ids are known by them, whether a request spells them or not.
#[derive(Default)]
struct Nodes {
    texts: Texts,
    pseudonyms: Option<Arc<OrgPseudonyms>>,
    /// The ids that some request spells, where they are known by their pseudonyms.
    spelled: HashMap<NodeNumber, Box<str>>,
}

impl Nodes {
    fn id(&mut self, shape: &Shape, field: Field, id: &str) -> NodeNumber {
        let Some(pseudonyms) = &self.pseudonyms else { return self.texts.intern(field.0, id) };
        let node = self.texts.intern(field.0, &pseudonyms.of(&shape.identity(field).field, id));
        if !is_pseudonym(id) {
            self.spelled.entry(node).or_insert_with(|| id.into());
        }
        node
    }

    /// The id as a request spells it, or the pseudonym of one that none does.
    fn get(&self, node: NodeNumber) -> &str {
        match self.spelled.get(&node) {
            Some(spelled) => spelled,
            None => self.texts.get(node),
        }
    }

    fn find_id(&self, shape: &Shape, field: Field, id: &str) -> Option<NodeNumber> {
        match &self.pseudonyms {
            None => self.texts.find(field.0, id),
            Some(pseudonyms) => self.texts.find(field.0, &pseudonyms.of(&shape.identity(field).field, id)),
        }
    }
}

/// Gathers the requests of one organisation, in any order.
pub struct LedgerBuilder {
    shape: Arc<Shape>,
    accepted: Vec<Accepted>,
    ids: String,
    steps: Vec<Step>,
    nodes: Nodes,
    values: Texts,
    /// Columns and values of updates, one update after the other.
    sets: Vec<(u16, u32)>,
    set_ends: Vec<u32>,
}

/// The requests of one organisation as far as they count for one dataset, in their order. See the module of the ledger for what it
/// can be asked.
pub struct OrgLedger {
    pub(super) shape: Arc<Shape>,
    requests: Vec<Accepted>,
    ids: String,
    id_starts: Vec<usize>,
    /// In the order of requests.
    pub(super) steps: Vec<Step>,
    nodes: Nodes,
    values: Texts,
    sets: Vec<(u16, u32)>,
    set_ends: Vec<u32>,
}

/// A request of an [`OrgLedger`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerRequest<'l> {
    /// Its place in the order.
    pub order: OrderKey<'l>,
    /// The batch that took it in.
    pub batch: BatchNumber,
}

impl LedgerBuilder {
    /// No requests yet.
    #[must_use]
    pub fn new(shape: Arc<Shape>) -> Self {
        Self {
            shape,
            accepted: Vec::new(),
            ids: String::new(),
            steps: Vec::new(),
            nodes: Nodes::default(),
            values: Texts::default(),
            sets: Vec::new(),
            set_ends: Vec::new(),
        }
    }

    /// The same of an organisation whose ids may have been replaced.
    #[must_use]
    pub fn with_pseudonyms(shape: Arc<Shape>, pseudonyms: Option<Arc<OrgPseudonyms>>) -> Self {
        let nodes = Nodes { pseudonyms, ..Nodes::default() };
        Self { nodes, ..Self::new(shape) }
    }

    /// Adds a request with the intake batch that accepted it. Passed over, with `false`: one that does not count for the dataset. All must be
    /// of one organisation; one that was added before counts once, with its earliest batch.
    pub fn push(&mut self, request: &Request, batch: BatchNumber) -> bool {
        if !self.shape.is_named_by(request) {
            return false;
        }
        let number = u32::try_from(self.accepted.len()).expect("4 billion requests of one organisation do not fit in memory");
        let before = self.steps.len();
        let bound = request.last_event_time().unwrap_or(i64::MAX);
        let mut step = |act| self.steps.push(Step { rank: number, act, bound });
        match &request.op {
            Op::Convert { field, from, to } => {
                // Ids that another dataset's column spells so, and this one cannot hold, are about the other alone.
                if let Some(field) = self.shape.field(field).filter(|field| self.shape.can_hold(*field, to)) {
                    let mut node = |id: &Id| self.nodes.id(&self.shape, field, id.as_str());
                    let (from, to) = (node(from), node(to));
                    if from != to {
                        step(Act::Convert { from, to });
                    }
                }
            }
            Op::Update { field, id, set } => {
                if let Some(field) = self.shape.field(field) {
                    let columns = self.sets.len();
                    for (column, value) in set {
                        if let Some(column) = self.shape.settable(column) {
                            self.sets.push((column, self.values.intern(0, value.as_str())));
                        }
                    }
                    if self.sets.len() > columns {
                        let set = u32::try_from(self.set_ends.len()).expect("as many as requests at most");
                        self.set_ends.push(u32::try_from(self.sets.len()).expect("4 billion values do not fit in memory"));
                        step(Act::Update { node: self.nodes.id(&self.shape, field, id.as_str()), set });
                    }
                }
            }
            Op::Delete(Delete { scope: Scope::Subject(subjects), privacy, .. }) => {
                for subject in subjects {
                    if let Some(field) = self.shape.field(&subject.field) {
                        let node = self.nodes.id(&self.shape, field, subject.id.as_str());
                        step(Act::Erase { node, privacy: *privacy });
                    }
                }
            }
            Op::Delete(Delete { scope: Scope::Record(key), .. }) => {
                if self.shape.has_key() {
                    step(Act::EraseRecord { node: self.nodes.texts.intern(RECORD, key.as_str()) });
                }
            }
            Op::Delete(Delete { scope: Scope::Org | Scope::Before(_), .. }) => step(Act::EraseOrg),
        }
        if self.steps.len() == before {
            return false;
        }
        self.ids.push_str(&request.id);
        let execution_time = request.execution_time;
        self.accepted.push(Accepted { execution_time, batch, id_end: self.ids.len(), number });
        true
    }

    /// The requests in their order.
    #[must_use]
    pub fn build(self) -> OrgLedger {
        let Self { shape, accepted, ids, steps, nodes, values, sets, set_ends } = self;
        let mut id_starts: Vec<usize> = Vec::with_capacity(accepted.len());
        id_starts.extend(std::iter::once(0).chain(accepted.iter().map(|a| a.id_end)).take(accepted.len()));
        let id = |a: &Accepted| &ids[id_starts[a.number as usize]..a.id_end];
        let mut requests = accepted;
        requests.sort_unstable_by(|a, b| {
            (a.execution_time, id(a), a.batch, a.number).cmp(&(b.execution_time, id(b), b.batch, b.number))
        });
        requests.dedup_by(|again, first| again.execution_time == first.execution_time && id(again) == id(first));
        // What came as a number goes to its rank; those that came again go nowhere.
        let mut ranks: Vec<Option<Rank>> = vec![None; id_starts.len()];
        for (rank, request) in (0..).zip(&requests) {
            ranks[request.number as usize] = Some(rank);
        }
        let mut steps: Vec<Step> =
            steps.into_iter().filter_map(|step| ranks[step.rank as usize].map(|rank| Step { rank, ..step })).collect();
        steps.sort_by_key(|step| step.rank);
        OrgLedger { shape, requests, ids, id_starts, steps, nodes, values, sets, set_ends }
    }
}

impl OrgLedger {
    /// The requests in their order; their places are what [`OrgLedger::late`] and [`OrgLedger::attribute`] answer by.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = LedgerRequest<'_>> {
        self.requests.iter().map(|r| LedgerRequest { order: self.order_key(r), batch: r.batch })
    }

    fn order_key(&self, request: &Accepted) -> OrderKey<'_> {
        let request_id = &self.ids[self.id_starts[request.number as usize]..request.id_end];
        OrderKey { execution_time: request.execution_time, request_id }
    }

    pub(super) fn order(&self, rank: Rank) -> Order {
        let OrderKey { execution_time, request_id } = self.order_key(&self.requests[rank as usize]);
        Order { execution_time, request_id: request_id.into() }
    }

    pub(super) fn batch(&self, rank: Rank) -> BatchNumber {
        self.requests[rank as usize].batch
    }

    pub(super) fn execution_time(&self, rank: Rank) -> i64 {
        self.requests[rank as usize].execution_time
    }

    /// The steps of requests that batches up to `position` took in, in order.
    pub(super) fn steps_at(&self, position: BatchNumber) -> impl DoubleEndedIterator<Item = &Step> {
        self.steps.iter().filter(move |step| self.batch(step.rank) <= position)
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.texts.len()
    }

    /// The field of an id; `None` for a record's key.
    pub(super) fn field(&self, node: NodeNumber) -> Option<Field> {
        Some(self.nodes.texts.tag(node)).filter(|tag| *tag != RECORD).map(Field)
    }

    /// The id or key; of an id that no request spells any more, its pseudonym.
    pub(super) fn node_text(&self, node: NodeNumber) -> &str {
        self.nodes.get(node)
    }

    /// Whether any request still spells the id.
    pub(super) fn is_spelled(&self, node: NodeNumber) -> bool {
        self.nodes.pseudonyms.is_none() || !is_pseudonym(self.nodes.get(node))
    }

    /// The pseudonyms of the ids that are purged at a position, with their fields; only of an organisation that has some.
    pub fn purged(&self, position: BatchNumber, tell: &mut dyn FnMut(&str, &str)) {
        let purged = Finality::new(self, &Components::new(self, position), position, &|_| true).purged;
        for node in purged {
            if let Some(field) = self.field(node)
                && self.nodes.pseudonyms.is_some()
            {
                tell(&self.shape.identity(field).field, self.nodes.texts.get(node));
            }
        }
    }

    pub(super) fn node(&self, node: NodeNumber) -> Node<'_> {
        let text = self.nodes.get(node);
        match self.field(node) {
            None => Node::Record(text),
            Some(field) => Node::Id { field: &self.shape.identity(field).field, id: text },
        }
    }

    pub(super) fn find_id(&self, field: Field, id: &str) -> Option<NodeNumber> {
        self.nodes.find_id(&self.shape, field, id)
    }

    pub(super) fn find_record(&self, key: &str) -> Option<NodeNumber> {
        self.nodes.texts.find(RECORD, key)
    }

    /// The columns that an update sets, and the numbers of their values.
    pub(super) fn set(&self, set: u32) -> &[(u16, u32)] {
        let at = set as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.set_ends[before] as usize);
        &self.sets[start..self.set_ends[at] as usize]
    }

    pub(super) fn value(&self, value: u32) -> &str {
        self.values.get(value)
    }
}
