//! From fates to what a row must be.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::fate::{Ending, Fate, FinalId, Live, SetColumn};
use super::node::Node;
use super::org::OrgLedger;
use super::shape::Shape;
use crate::chain::BatchNumber;
use crate::request::{Id, JsonText};

/// What a row must be. Whatever it does not name is as the source gave it.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<'f> {
    /// As the source gave it.
    Unchanged,
    /// Not there.
    Erased,
    /// There, with some ids or values of its own.
    Changed(Changed<'f>),
}

/// The ids and values that a row must have in the place of the source's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed<'f> {
    /// Identity fields by their places in the shape, ascending: the id, or null.
    pub ids: Vec<(usize, Option<&'f Id>)>,
    /// Columns in the order of their names.
    pub columns: Vec<(&'f str, &'f JsonText)>,
}

/// What a row of this event time (microseconds since 1970) must be, given the fates of its organisation, its record's key, and its ids
/// by their places in the shape: of each the fate of what the SOURCE gave, `None` where it gave null or nothing happened to it.
/// Allocates only for a row that changes.
pub fn resolve<'f>(event_time: i64, org: Option<&'f Fate>, record: Option<&'f Fate>, ids: &[Option<&'f Fate>]) -> Outcome<'f> {
    let endings = || ids.iter().enumerate().filter_map(|(at, fate)| Some((at, (*fate)?.at(event_time))));
    let whole = [org, record].into_iter().flatten().map(|fate| fate.at(event_time));
    if whole.chain(endings().map(|(_, ending)| ending)).any(|ending| *ending == Ending::Erased) {
        return Outcome::Erased;
    }
    let mut changed = Changed::default();
    let mut columns: Vec<&SetColumn> = Vec::new();
    for (at, ending) in endings() {
        let Ending::Live(Live { id, columns: set }) = ending else { continue };
        match id {
            FinalId::Source => {}
            FinalId::Null => changed.ids.push((at, None)),
            FinalId::Is(id) => changed.ids.push((at, Some(id))),
        }
        columns.extend(set);
    }
    // Of a column that is set through several ids the latest request's value comes first and stays. One request that clears the same
    // column through two ids says null both times.
    columns.sort_unstable_by(|a, b| match a.column.cmp(&b.column) {
        Ordering::Equal => b.order.cmp(&a.order),
        other => other,
    });
    columns.dedup_by(|later, first| later.column == first.column);
    changed.columns = columns.into_iter().map(|set| (&*set.column, &set.value)).collect();
    if changed.ids.is_empty() && changed.columns.is_empty() { Outcome::Unchanged } else { Outcome::Changed(changed) }
}

/// The fates of one organisation in one dataset, in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fates {
    org: Option<Fate>,
    records: HashMap<Id, Fate>,
    ids: Vec<HashMap<Id, Fate>>,
    fields: Vec<String>,
}

/// What the source gave a row, as far as requests may ask. Ids stand in the order of [`Shape::identity_fields`].
#[derive(Clone, Copy)]
pub struct SourceRow<'r> {
    /// The ids; `None` is null.
    pub ids: &'r [Option<&'r str>],
    /// The record's key.
    pub key: Option<&'r str>,
    /// The event time, in microseconds since 1970.
    pub event_time: i64,
}

impl Fates {
    /// None yet.
    #[must_use]
    pub fn new(shape: &Shape) -> Self {
        let fields: Vec<String> = shape.identity_fields().map(str::to_owned).collect();
        Self { ids: vec![HashMap::new(); fields.len()], fields, ..Self::default() }
    }

    /// The fates of a ledger at a position.
    #[must_use]
    pub fn fold(ledger: &OrgLedger, position: BatchNumber) -> Self {
        let mut all = Self::new(&ledger.shape);
        ledger.fold(position, &mut |node, fate| all.set(node, Some(fate.clone())));
        all
    }

    /// Gives a node another fate; `None`: one that leaves rows as they are. A field that is no identity has none.
    pub fn set(&mut self, node: Node<'_>, fate: Option<Fate>) {
        let (map, id) = match node {
            Node::Org => {
                self.org = fate;
                return;
            }
            Node::Record(key) => (Some(&mut self.records), key),
            Node::Id { field, id } => {
                let at = self.fields.iter().position(|f| f == field);
                (at.map(|at| &mut self.ids[at]), id)
            }
        };
        match (map, fate) {
            (Some(map), Some(fate)) => {
                map.insert(Id::new(id), fate);
            }
            (Some(map), None) => {
                map.remove(id);
            }
            (None, _) => {}
        }
    }

    /// What a row must be.
    pub fn resolve(&self, row: &SourceRow<'_>) -> Outcome<'_> {
        /// Identity fields of a row that are looked up without allocating.
        const FEW: usize = 8;
        let record = row.key.and_then(|key| self.records.get(key));
        let fate = |at: usize| row.ids.get(at).copied().flatten().and_then(|id| self.ids.get(at)?.get(id));
        if self.ids.len() <= FEW {
            let fates: [Option<&Fate>; FEW] = std::array::from_fn(fate);
            return resolve(row.event_time, self.org.as_ref(), record, &fates);
        }
        let fates: Vec<Option<&Fate>> = (0..self.ids.len()).map(fate).collect();
        resolve(row.event_time, self.org.as_ref(), record, &fates)
    }

    /// How many nodes have a fate.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.org.is_some()) + self.records.len() + self.ids.iter().map(HashMap::len).sum::<usize>()
    }

    /// Whether all rows are left as they are.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
