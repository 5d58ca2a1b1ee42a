//! The oracle of the ledger: what a row must become, computed one row and one request at a time, as the design's words say it.
//!
//! It shares nothing with the fold but the types of requests and declarations: no paths, no fates, no components. Slow on
//! purpose: every question walks through all requests, and finality through all positions.

mod positions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use alluvium_core::{BatchNumber, Dataset, Delete, JsonText, OnErase, Op, Request, Scope};

pub use self::positions::{AtPosition, Settling};

/// A request and the intake batch that accepted it.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The request.
    pub request: Request,
    /// The batch.
    pub batch: BatchNumber,
}

/// A row, as the source gave it or as it became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OracleRow {
    /// The organisation.
    pub org: String,
    /// Its ids, by identity field; `None` is null.
    pub ids: BTreeMap<String, Option<String>>,
    /// The record's key.
    pub key: Option<String>,
    /// The event time, in microseconds since 1970.
    pub event_time: i64,
    /// The other columns, as JSON.
    pub values: BTreeMap<String, String>,
}

/// What happened to a row on its way.
#[derive(Debug, Clone)]
struct Way {
    row: OracleRow,
    erased: bool,
    /// The request that set a column, or cleared it.
    set_by: BTreeMap<String, (i64, String)>,
    /// The request that cleared an identity field.
    cleared: BTreeMap<String, (i64, String)>,
    /// The ids of the requests that matched the row.
    matched: Vec<String>,
}

fn place(request: &Request) -> (i64, String) {
    (request.execution_time, request.id.clone())
}

/// What all of `requests` make of a row, nothing final; `None`: it is gone.
#[must_use]
pub fn naive(dataset: &Dataset, requests: &[Request], row: &OracleRow) -> Option<OracleRow> {
    let mut way = walk(dataset, requests, row);
    keep_source(&purged(dataset, &in_order(requests, &row.org)), row, &mut way);
    (!way.erased).then_some(way.row)
}

/// The ids of those of `requests` that match a row on its way, each once, nothing final.
#[must_use]
pub fn matched(dataset: &Dataset, requests: &[Request], row: &OracleRow) -> Vec<String> {
    walk(dataset, requests, row).matched
}

/// What a row is at a position: what the requests up to it make of it, and what was erased or cleared at any position before stays so.
#[must_use]
pub fn settled(dataset: &Dataset, accepted: &[Accepted], position: BatchNumber, row: &OracleRow) -> Option<OracleRow> {
    let up_to =
        |batch: u64| -> Vec<Request> { accepted.iter().filter(|a| a.batch.0 <= batch).map(|a| a.request.clone()).collect() };
    let mut cleared: BTreeMap<String, (i64, String)> = BTreeMap::new();
    let mut gone = Purged::new();
    for batch in 0..=position.0 {
        gone.extend(purged(dataset, &in_order(&up_to(batch), &row.org)));
        let way = walk(dataset, &up_to(batch), row);
        if way.erased {
            return None;
        }
        for (field, by) in way.cleared {
            let last = cleared.entry(field).or_insert_with(|| by.clone());
            if *last < by {
                *last = by;
            }
        }
    }
    let mut way = walk(dataset, &up_to(position.0), row);
    keep_source(&gone, row, &mut way);
    clear_again(dataset, &cleared, &mut way);
    Some(way.row)
}

/// Ids that are purged, by field.
type Purged = BTreeSet<(String, String)>;

/// The requests of an organisation in their order.
fn in_order<'r>(requests: &'r [Request], org: &str) -> Vec<&'r Request> {
    let of_org = requests.iter().filter(|request| request.org == org);
    let ordered: BTreeMap<(i64, String), &Request> = of_org.map(|request| (place(request), request)).collect();
    ordered.into_values().collect()
}

/// The ids that requests of one organisation, in order, purge: each that erasures for privacy name, and each that had become it by then.
fn purged(dataset: &Dataset, ordered: &[&Request]) -> Purged {
    let mut gone = Purged::new();
    // What each id that is mentioned has become so far.
    let mut now: BTreeMap<(String, String), String> = BTreeMap::new();
    for request in ordered.iter().filter(|r| r.dataset.as_ref().is_none_or(|name| *name == dataset.name)) {
        match &request.op {
            Op::Convert { field, from, to } if dataset.identities.iter().any(|i| i.field == *field) => {
                for id in [from, to] {
                    now.entry((field.clone(), id.as_str().to_owned())).or_insert_with(|| id.as_str().to_owned());
                }
                let becomes = |((of, _), is): &(&(String, String), &mut String)| of == field && **is == from.as_str();
                now.iter_mut().filter(becomes).for_each(|(_, is)| to.as_str().clone_into(is));
            }
            Op::Delete(Delete { scope: Scope::Subject(subjects), privacy: true, .. }) => {
                for subject in subjects.iter().filter(|s| dataset.identities.iter().any(|i| i.field == s.field)) {
                    gone.insert((subject.field.clone(), subject.id.as_str().to_owned()));
                    let led =
                        |((field, _), is): &(&(String, String), &String)| *field == subject.field && **is == subject.id.as_str();
                    gone.extend(now.iter().filter(led).map(|(id, _)| id.clone()));
                }
            }
            _ => {}
        }
    }
    gone
}

/// A row that is led to an id that is purged keeps the id that its source gave.
fn keep_source(gone: &Purged, source: &OracleRow, way: &mut Way) {
    for (field, id) in &mut way.row.ids {
        if id.as_ref().is_some_and(|id| gone.contains(&(field.clone(), id.clone()))) {
            id.clone_from(&source.ids[field]);
        }
    }
}

/// Clears what was cleared at any position: the last request that did counts, by field.
fn clear_again(dataset: &Dataset, cleared: &BTreeMap<String, (i64, String)>, way: &mut Way) {
    for (field, by) in cleared {
        way.row.ids.insert(field.clone(), None);
        for column in clears(dataset, field).unwrap_or_default() {
            if way.set_by.get(&column).is_none_or(|set_by| set_by < by) {
                way.row.values.insert(column, "null".to_owned());
            }
        }
    }
}

/// Whether a request came late: at some position before its batch, rows that hold what it is about at its place in the order were
/// erased or cleared behind it. The row that is tried is as old as can be, so every bound reaches it.
#[must_use]
pub fn is_late(dataset: &Dataset, accepted: &[Accepted], of: &Accepted) -> bool {
    let mut blank = OracleRow {
        org: of.request.org.clone(),
        ids: dataset.identities.iter().map(|i| (i.field.clone(), None)).collect(),
        key: None,
        event_time: i64::MIN,
        values: BTreeMap::new(),
    };
    let mut rows = Vec::new();
    let mut with = |field: &str, id: &str| {
        if blank.ids.contains_key(field) {
            let mut row = blank.clone();
            row.ids.insert(field.to_owned(), Some(id.to_owned()));
            rows.push(row);
        }
    };
    match &of.request.op {
        Op::Convert { field, from: id, .. } | Op::Update { field, id, .. } => with(field, id.as_str()),
        Op::Delete(Delete { scope: Scope::Subject(subjects), .. }) => {
            for subject in subjects {
                with(&subject.field, subject.id.as_str());
            }
        }
        Op::Delete(Delete { scope: Scope::Record(key), .. }) => {
            blank.key = Some(key.as_str().to_owned());
            rows.push(blank);
        }
        Op::Delete(Delete { scope: Scope::Org | Scope::Before(_), .. }) => rows.push(blank),
    }
    (0..of.batch.0).any(|batch| {
        let behind = |a: &&Accepted| a.batch.0 <= batch && place(&a.request) > place(&of.request);
        let behind: Vec<Request> = accepted.iter().filter(behind).map(|a| a.request.clone()).collect();
        rows.iter().any(|row| {
            let way = walk(dataset, &behind, row);
            way.erased || !way.cleared.is_empty()
        })
    })
}

fn walk(dataset: &Dataset, requests: &[Request], row: &OracleRow) -> Way {
    let mut ordered: BTreeMap<(i64, String), &Request> = BTreeMap::new();
    for request in requests {
        ordered.insert(place(request), request);
    }
    walk_in_order(dataset, ordered.into_values(), row)
}

fn walk_in_order<'r>(dataset: &Dataset, ordered: impl Iterator<Item = &'r Request>, row: &OracleRow) -> Way {
    let mut way = Way { row: row.clone(), erased: false, set_by: BTreeMap::new(), cleared: BTreeMap::new(), matched: Vec::new() };
    for request in ordered {
        let other_dataset = request.dataset.as_ref().is_some_and(|name| *name != dataset.name);
        if request.org != row.org || other_dataset {
            continue;
        }
        if apply(dataset, request, &mut way) {
            way.matched.push(request.id.clone());
        }
        if way.erased {
            break;
        }
    }
    way
}

/// Applies one request to a row where it stands; whether it matched.
fn apply(dataset: &Dataset, request: &Request, way: &mut Way) -> bool {
    let holds = |row: &OracleRow, field: &str, id: &str| row.ids.get(field).is_some_and(|held| held.as_deref() == Some(id));
    match &request.op {
        Op::Convert { field, from, to } => {
            if !holds(&way.row, field, from.as_str()) {
                return false;
            }
            way.row.ids.insert(field.clone(), Some(to.as_str().to_owned()));
            true
        }
        Op::Update { field, id, set } => {
            if !holds(&way.row, field, id.as_str()) || way.row.event_time > request.execution_time {
                return false;
            }
            let mut any = false;
            for (column, value) in set {
                if may_be_set(dataset, column) {
                    way.row.values.insert(column.clone(), value.as_str().to_owned());
                    way.set_by.insert(column.clone(), place(request));
                    any = true;
                }
            }
            any
        }
        Op::Delete(delete) => {
            if way.row.event_time > delete.until.unwrap_or(request.execution_time) {
                return false;
            }
            match &delete.scope {
                Scope::Org => way.erased = true,
                Scope::Before(before) => way.erased = way.row.event_time < *before,
                Scope::Record(key) => way.erased = dataset.key.is_some() && way.row.key.as_deref() == Some(key.as_str()),
                Scope::Subject(subjects) => {
                    let at_this_point = way.row.clone();
                    let hit: BTreeSet<&str> = subjects
                        .iter()
                        .filter(|subject| holds(&at_this_point, &subject.field, subject.id.as_str()))
                        .map(|subject| subject.field.as_str())
                        .collect();
                    for field in &hit {
                        erase(dataset, request, field, way);
                    }
                    return !hit.is_empty();
                }
            }
            way.erased
        }
    }
}

/// What an erasure of the id in `field` does to the row.
fn erase(dataset: &Dataset, request: &Request, field: &str, way: &mut Way) {
    let Some(columns) = clears(dataset, field) else {
        way.erased = true;
        return;
    };
    way.row.ids.insert(field.to_owned(), None);
    way.cleared.insert(field.to_owned(), place(request));
    for column in columns {
        way.row.values.insert(column.clone(), JsonText::null().as_str().to_owned());
        way.set_by.insert(column, place(request));
    }
}

/// The columns that go with an id; `None`: the row goes.
fn clears(dataset: &Dataset, field: &str) -> Option<Vec<String>> {
    match &dataset.identities.iter().find(|i| i.field == field)?.on_erase {
        OnErase::Delete => None,
        OnErase::Clear(columns) => Some(columns.clone()),
    }
}

fn may_be_set(dataset: &Dataset, column: &str) -> bool {
    dataset.fields.iter().any(|f| f.name == column)
        && column != dataset.org
        && column != dataset.event_time
        && dataset.key.as_deref() != Some(column)
        && !dataset.identities.iter().any(|i| i.field == column)
}
