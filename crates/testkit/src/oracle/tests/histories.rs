//! Random histories: requests of all kinds over few ids, so that chains, merges, cycles and ties come up all the time.

use std::collections::{BTreeMap, BTreeSet};

use alluvium_core::{BatchNumber, DatasetName, Delete, Id, JsonText, Op, Request, Scope, Subject};
use proptest::prelude::*;

use crate::oracle::{Accepted, OracleRow};

/// Few ids, so that they meet.
pub(super) const IDS: [&str; 4] = ["a", "b", "c", "d"];
/// The last execution time; event times go from before the first to after it.
pub(super) const LAST: i64 = 12;
/// Batches in which requests are taken in.
pub(super) const BATCHES: u64 = 5;

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![4 => Just("a"), 4 => Just("b"), 4 => Just("c"), 1 => Just("d")].prop_map(Id::new)
}

fn field() -> impl Strategy<Value = String> {
    prop_oneof![12 => Just("lead"), 8 => Just("user"), 4 => Just("device"), 1 => Just("nowhere")].prop_map(str::to_owned)
}

fn time() -> impl Strategy<Value = i64> {
    0..=LAST
}

fn subject() -> impl Strategy<Value = Subject> {
    (field(), id()).prop_map(|(field, id)| Subject { field, id })
}

fn set() -> impl Strategy<Value = BTreeMap<String, JsonText>> {
    let column = proptest::sample::select(&["ip", "note", "size", "size", "call_id", "nothing"][..]).prop_map(str::to_owned);
    proptest::collection::btree_map(column, (0..9_u8).prop_map(value), 1..3)
}

/// A value; 0 is null.
fn value(number: u8) -> JsonText {
    if number == 0 { JsonText::null() } else { JsonText::read(&format!("{{\"v\": {number}}}")).unwrap() }
}

fn delete() -> impl Strategy<Value = Op> {
    let scope = prop_oneof![
        16 => proptest::collection::btree_set(subject(), 1..3).prop_map(Scope::Subject),
        1 => id().prop_map(Scope::Record),
        1 => Just(Scope::Org),
        1 => time().prop_map(Scope::Before),
    ];
    let until = prop_oneof![3 => Just(None), 1 => (-2..=LAST + 2).prop_map(Some)];
    (scope, until, any::<bool>()).prop_map(|(scope, until, privacy)| {
        // What erases the organisation erases little else of the history if it reaches far.
        let until = if scope == Scope::Org { Some(until.unwrap_or(0).min(2)) } else { until };
        let scope = if let Scope::Before(before) = scope { Scope::Before(before / 4) } else { scope };
        Op::Delete(Delete { scope, until, privacy })
    })
}

fn op() -> impl Strategy<Value = Op> {
    let convert = (field(), id(), id())
        .prop_filter_map("from = to", |(field, from, to)| (from != to).then_some(Op::Convert { field, from, to }));
    let update = (field(), id(), set()).prop_map(|(field, id, set)| Op::Update { field, id, set });
    prop_oneof![6 => convert, 3 => delete(), 3 => update]
}

/// Of one user's two ids, and of columns that go with the user and are set through the lead as well.
fn op_of_a_user() -> impl Strategy<Value = Op> {
    let id = || prop_oneof![Just("a"), Just("b")].prop_map(Id::new);
    let convert = any::<bool>().prop_map(|back| {
        let (from, to) = if back { ("b", "a") } else { ("a", "b") };
        Op::Convert { field: "user".to_owned(), from: Id::new(from), to: Id::new(to) }
    });
    let until = prop_oneof![3 => Just(None), 1 => (-2..=LAST + 2).prop_map(Some)];
    let delete = (id(), until).prop_map(|(id, until)| {
        let subject = Subject { field: "user".to_owned(), id };
        Op::Delete(Delete { scope: Scope::Subject(BTreeSet::from([subject])), until, privacy: true })
    });
    let field = prop_oneof![Just("lead"), Just("user")].prop_map(str::to_owned);
    let update = (field, id(), set()).prop_map(|(field, id, set)| Op::Update { field, id, set });
    prop_oneof![convert, delete, update]
}

fn request() -> impl Strategy<Value = Request> {
    let org = prop_oneof![20 => Just("O"), 1 => Just("P")];
    let dataset = prop_oneof![10 => Just(None), 1 => Just(Some("call")), 1 => Just(Some("page"))];
    (org, dataset, time(), op()).prop_map(|(org, dataset, execution_time, op)| Request {
        id: String::new(),
        org: org.to_owned(),
        dataset: dataset.map(|name| DatasetName(name.to_owned())),
        execution_time,
        op,
    })
}

fn request_of_a_user() -> impl Strategy<Value = Request> {
    (time(), op_of_a_user()).prop_map(|(execution_time, op)| Request {
        id: String::new(),
        org: "O".to_owned(),
        dataset: None,
        execution_time,
        op,
    })
}

/// A history: requests in some order of arrival, each with its batch, none later than the one before. Ids are given so that at
/// equal times their order is not that of arrival.
pub(super) fn history(most: usize) -> impl Strategy<Value = Vec<Accepted>> {
    let of = |request: BoxedStrategy<Request>, most| proptest::collection::vec((request, 1..=BATCHES, any::<u16>()), 0..=most);
    let requests = prop_oneof![2 => of(request().boxed(), most), 1 => of(request_of_a_user().boxed(), most / 2)];
    requests.prop_map(|all| {
        let named = all.into_iter().enumerate().map(|(at, (mut request, batch, dice))| {
            request.id = format!("q{:03}-{at}", dice % 1000);
            Accepted { request, batch: BatchNumber(batch) }
        });
        let mut all: Vec<Accepted> = named.collect();
        all.sort_by_key(|a| a.batch);
        all
    })
}

/// Any row that the histories are about, by all event times around their bounds.
pub(super) fn rows(dataset: &alluvium_core::Dataset) -> impl Strategy<Value = Vec<OracleRow>> + use<> {
    let dataset = dataset.clone();
    let id = || prop_oneof![4 => proptest::sample::select(&IDS[..]).prop_map(Some), 1 => Just(None)];
    let one = (id(), id(), id(), id(), -3..=LAST + 3);
    proptest::collection::vec(one, 1..12)
        .prop_map(move |all| all.into_iter().map(|(a, b, c, key, time)| super::row(&dataset, &[a, b, c], key, time)).collect())
}

/// The same requests, but each delete comes no earlier than all that execute before it.
pub(super) fn deletes_wait(mut history: Vec<Accepted>) -> Vec<Accepted> {
    history.sort_by_key(|a| (a.request.execution_time, a.request.id.clone()));
    let mut last = BatchNumber(0);
    for accepted in &mut history {
        if matches!(accepted.request.op, Op::Delete(_)) {
            accepted.batch = accepted.batch.max(last);
        }
        last = last.max(accepted.batch);
    }
    history.sort_by_key(|a| a.batch);
    history
}
