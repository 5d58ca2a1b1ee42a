//! The fold equals the oracle on random histories.

use std::collections::HashSet;
use std::sync::Arc;

use alluvium_core::{
    BatchNumber, Dataset, Delete, ErasureKey, Fate, Fates, Id, LedgerBuilder, Node, Op, OrgLedger, OrgPseudonyms, OrgSalt,
    Request, RowGroup, Scope, Shape,
};
use proptest::prelude::*;

use super::histories::{BATCHES, deletes_wait, history, rows};
use super::{END, datasets, ledger, resolved};
use crate::oracle::{Accepted, OracleRow, Settling, is_late, matched, naive, settled};

const MOST: usize = 24;

/// A dataset's place, a history and rows.
fn world() -> impl Strategy<Value = (usize, Vec<Accepted>, Vec<OracleRow>)> {
    (0..2_usize).prop_flat_map(|at| (Just(at), history(MOST), rows(&datasets()[at])))
}

/// What the fold knows of one organisation whose ids may be replaced, of batches up to one.
fn known_by(dataset: &Dataset, pseudonyms: &Arc<OrgPseudonyms>, accepted: &[Accepted], up_to: BatchNumber) -> OrgLedger {
    let mut builder = LedgerBuilder::with_pseudonyms(Arc::new(Shape::of(dataset)), Some(pseudonyms.clone()));
    for Accepted { request, batch } in accepted.iter().filter(|a| a.request.org == "O" && a.batch <= up_to) {
        builder.push(request, *batch);
    }
    builder.build()
}

/// The ids that a request spells, with their fields.
fn ids_of(request: &Request) -> Vec<(String, String)> {
    let pair = |field: &String, id: &Id| (field.clone(), id.as_str().to_owned());
    match &request.op {
        Op::Convert { field, from, to } => vec![pair(field, from), pair(field, to)],
        Op::Update { field, id, .. } => vec![pair(field, id)],
        Op::Delete(Delete { scope: Scope::Subject(subjects), .. }) => subjects.iter().map(|s| pair(&s.field, &s.id)).collect(),
        Op::Delete(_) => Vec::new(),
    }
}

/// A history with pseudonyms where the requests of batches up to one spell ids that those batches purge in each dataset they count for.
fn replaced(history: &[Accepted], purged: u64, pseudonyms: &OrgPseudonyms) -> Vec<Accepted> {
    let of_all = Arc::new(pseudonyms.clone());
    let gone: Vec<(Dataset, HashSet<(String, String)>)> = datasets()
        .into_iter()
        .map(|dataset| {
            let mut gone = HashSet::new();
            known_by(&dataset, &of_all, history, BatchNumber(purged)).purged(BatchNumber(purged), &mut |field, pseudonym| {
                gone.insert((field.to_owned(), pseudonym.to_owned()));
            });
            (dataset, gone)
        })
        .collect();
    let replace = |accepted: &Accepted| {
        let request = &accepted.request;
        let counts = |dataset: &Dataset, field: &str| {
            request.dataset.as_ref().is_none_or(|name| *name == dataset.name)
                && dataset.identities.iter().any(|i| i.field == field)
        };
        let goes = |field: &str, pseudonym: &str| {
            let id = (field.to_owned(), pseudonym.to_owned());
            gone.iter().all(|(dataset, gone)| !counts(dataset, field) || gone.contains(&id))
        };
        let early = request.org == "O" && accepted.batch.0 <= purged;
        let replaced = if early { pseudonyms.replaced(request, &goes) } else { None };
        Accepted { request: replaced.unwrap_or_else(|| request.clone()), batch: accepted.batch }
    };
    history.iter().map(replace).collect()
}

fn requests(history: &[Accepted]) -> Vec<Request> {
    history.iter().map(|a| a.request.clone()).collect()
}

proptest! {
    #[test]
    fn every_position_of_any_history_is_the_oracles((at, history, rows) in world()) {
        let dataset = &datasets()[at];
        let ledger = ledger(dataset, "O", &history);
        for position in 0..=BATCHES {
            let fates = Fates::fold(&ledger, BatchNumber(position));
            for row in &rows {
                prop_assert_eq!(resolved(dataset, &fates, row), settled(dataset, &history, BatchNumber(position), row));
            }
        }
    }

    #[test]
    fn what_a_purge_of_requests_replaces_changes_no_fate((at, history, rows) in world(), purged in 0..=BATCHES) {
        let dataset = &datasets()[at];
        let pseudonyms = Arc::new(OrgPseudonyms::new(&ErasureKey::new([7; 32]), "O", &OrgSalt([7; 16])));
        let replaced = replaced(&history, purged, &pseudonyms);
        let ledger = known_by(dataset, &pseudonyms, &replaced, END);
        // The ids that some request still spells; the others are known by their pseudonyms.
        let shape = Shape::of(dataset);
        let own = replaced.iter().map(|a| &a.request).filter(|request| request.org == "O" && !shape.nodes(request).is_empty());
        let spelled: HashSet<(String, String)> = own.flat_map(ids_of).collect();
        for position in purged..=BATCHES {
            let fates = Fates::fold(&ledger, BatchNumber(position));
            for row in &rows {
                let mut looked_up = row.clone();
                for (field, id) in &mut looked_up.ids {
                    if let Some(id) = id && !spelled.contains(&(field.clone(), id.clone())) {
                        *id = pseudonyms.of(field, id).into_owned();
                    }
                }
                let mut got = resolved(dataset, &fates, &looked_up);
                for (field, id) in got.iter_mut().flat_map(|got| &mut got.ids) {
                    if id.is_some() && *id == looked_up.ids[field] {
                        id.clone_from(&row.ids[field]);
                    }
                }
                prop_assert_eq!(got, settled(dataset, &history, BatchNumber(position), row));
            }
        }
    }

    #[test]
    fn all_positions_at_once_are_each_position_by_itself((at, history, rows) in world()) {
        let dataset = &datasets()[at];
        let settling = Settling::new(dataset, &history, BatchNumber(BATCHES));
        for row in &rows {
            for (position, there) in (0..).map(BatchNumber).zip(settling.at_each(row)) {
                let up_to: Vec<Accepted> = history.iter().filter(|a| a.batch <= position).cloned().collect();
                prop_assert_eq!(there.row, settled(dataset, &history, position, row));
                prop_assert_eq!(there.matched, matched(dataset, &requests(&up_to), row));
            }
        }
    }

    #[test]
    fn without_an_early_delete_any_arrival_gives_what_the_requests_alone_say((at, history, rows) in world()) {
        let dataset = &datasets()[at];
        let history = deletes_wait(history);
        let fates = Fates::fold(&ledger(dataset, "O", &history), END);
        let all = requests(&history);
        for row in &rows {
            prop_assert_eq!(resolved(dataset, &fates, row), naive(dataset, &all, row));
        }
    }

    #[test]
    fn any_arrival_gives_fewer_rows_or_nulls_and_never_another_value((at, history, rows) in world()) {
        let dataset = &datasets()[at];
        let fates = Fates::fold(&ledger(dataset, "O", &history), END);
        let all = requests(&history);
        for row in &rows {
            let Some(got) = resolved(dataset, &fates, row) else { continue };
            let want = naive(dataset, &all, row);
            prop_assert!(want.is_some(), "a row that the requests erase is there");
            let want = want.unwrap();
            for (field, id) in got.ids {
                // Where it is led to was purged once, so it stays where it was.
                prop_assert!(id.is_none() || id == want.ids[&field] || id == row.ids[&field]);
            }
            for (column, value) in got.values {
                prop_assert!(value == super::null() || value == want.values[&column]);
            }
        }
    }

    #[test]
    fn what_is_erased_at_a_position_is_erased_at_every_later_one((at, history, rows) in world()) {
        let dataset = &datasets()[at];
        let ledger = ledger(dataset, "O", &history);
        let mut gone: HashSet<usize> = HashSet::new();
        for position in 0..=BATCHES {
            let fates = Fates::fold(&ledger, BatchNumber(position));
            for (number, row) in rows.iter().enumerate() {
                if resolved(dataset, &fates, row).is_none() {
                    gone.insert(number);
                } else {
                    prop_assert!(!gone.contains(&number));
                }
            }
        }
    }

    #[test]
    fn requests_that_come_again_change_nothing((at, history, _) in world(), again in proptest::collection::vec((any::<prop::sample::Index>(), 0..4_u64), 0..6)) {
        let dataset = &datasets()[at];
        let mut more = history.clone();
        for (which, later) in again {
            if !history.is_empty() {
                let mut accepted = which.get(&history).clone();
                accepted.batch.0 += later;
                more.insert(which.index(more.len()), accepted);
            }
        }
        for position in 0..=BATCHES {
            let position = BatchNumber(position);
            prop_assert_eq!(Fates::fold(&ledger(dataset, "O", &history), position), Fates::fold(&ledger(dataset, "O", &more), position));
        }
    }

    #[test]
    fn fates_brought_forward_by_their_changes_are_those_folded_anew((at, history, _) in world(), from in 0..=BATCHES, more in 0..=BATCHES) {
        let dataset = &datasets()[at];
        let (from, to) = (BatchNumber(from), BatchNumber(from + more));
        let ledger = ledger(dataset, "O", &history);
        let mut fates = Fates::fold(&ledger, from);
        let mut wrong = 0;
        ledger.changed(from, to, &mut |change| {
            wrong += usize::from(change.old == change.new);
            fates.set(change.node, change.new.cloned());
        });
        prop_assert_eq!(wrong, 0, "a change that is none was told");
        prop_assert_eq!(fates, Fates::fold(&ledger, to));
    }

    #[test]
    fn a_component_folds_by_itself_as_it_does_among_others((at, history, _) in world()) {
        let dataset = &datasets()[at];
        let whole = ledger(dataset, "O", &history);
        let all = Fates::fold(&whole, END);
        let mut put_together = Fates::fold(&ledger(dataset, "O", &[]), END);
        let ids: Vec<String> = whole.requests().map(|r| r.order.request_id.to_owned()).collect();
        let mut parts = Vec::new();
        whole.components(END, &mut |nodes, places| {
            let nodes: HashSet<(String, String)> = nodes.iter().map(|n| told(*n)).collect();
            parts.push((nodes, places.to_vec()));
        });
        for (nodes, places) in parts {
            let of: Vec<Accepted> =
                history.iter().filter(|a| places.iter().any(|p| ids[*p] == a.request.id)).cloned().collect();
            ledger(dataset, "O", &of).fold(END, &mut |node, fate| {
                if nodes.contains(&told(node)) {
                    put_together.set(node, Some(fate.clone()));
                }
            });
        }
        whole.fold(END, &mut |node, fate| {
            if node == Node::Org {
                put_together.set(node, Some(fate.clone()));
            }
        });
        prop_assert_eq!(all, put_together);
    }

    #[test]
    fn requests_match_as_many_rows_as_the_oracle_counts((at, history, rows) in world(), counts in proptest::collection::vec(0..5_u64, 12)) {
        let dataset = &datasets()[at];
        let ledger = ledger(dataset, "O", &history);
        let ids: Vec<Vec<Option<&str>>> =
            rows.iter().map(|row| dataset.identities.iter().map(|i| row.ids[&i.field].as_deref()).collect()).collect();
        let groups = rows.iter().zip(&ids).zip(&counts).map(|((row, ids), rows)| RowGroup {
            ids,
            key: row.key.as_deref(),
            event_time: row.event_time,
            rows: *rows,
        });
        for position in [2, BATCHES] {
            let up_to: Vec<Accepted> = history.iter().filter(|a| a.batch.0 <= position).cloned().collect();
            let got = ledger.attribute(BatchNumber(position), groups.clone());
            for (request, got) in ledger.requests().zip(got) {
                let all = requests(&up_to);
                let hits = |row: &OracleRow| matched(dataset, &all, row).iter().any(|id| id == request.order.request_id);
                let want: u64 = rows.iter().zip(&counts).filter(|(row, _)| hits(row)).map(|(_, count)| count).sum();
                prop_assert_eq!(got, want, "{}", request.order.request_id);
            }
        }
    }

    #[test]
    fn the_oracle_and_the_fold_agree_who_is_late((at, history, _) in world()) {
        let dataset = &datasets()[at];
        let ledger = ledger(dataset, "O", &history);
        let late = ledger.late(END);
        let of_org: Vec<Accepted> = history.iter().filter(|a| a.request.org == "O").cloned().collect();
        for (request, late) in ledger.requests().zip(late) {
            let accepted = of_org.iter().find(|a| a.request.id == request.order.request_id).unwrap();
            prop_assert_eq!(late, is_late(dataset, &of_org, accepted), "{}", request.order.request_id);
        }
    }

    #[test]
    fn fates_read_back_from_their_bytes((at, history, _) in world()) {
        ledger(&datasets()[at], "O", &history).fold(END, &mut |_, fate| {
            let mut bytes = Vec::new();
            fate.encode(&mut bytes);
            assert_eq!(&Fate::decode(&bytes).unwrap(), fate);
            for short in 0..bytes.len() {
                assert!(Fate::decode(&bytes[..short]).is_err());
            }
        });
    }

    #[test]
    fn requests_read_back_from_their_stored_form(history in history(MOST)) {
        for Accepted { request, .. } in &history {
            let stored = request.to_json();
            let read = Request::from_json(&stored).unwrap();
            prop_assert_eq!(&read, request);
            prop_assert_eq!(read.digest(), request.digest());
        }
        let different: HashSet<_> = history.iter().map(|a| a.request.digest()).collect();
        let distinct: HashSet<_> = history.iter().map(|a| a.request.id.clone()).collect();
        prop_assert_eq!(different.len(), distinct.len());
    }
}

fn told(node: Node<'_>) -> (String, String) {
    match node {
        Node::Org => ("org".to_owned(), String::new()),
        Node::Record(key) => ("record".to_owned(), key.to_owned()),
        Node::Id { field, id } => (format!("id {field}"), id.to_owned()),
    }
}

/// The histories are worth their while: each kind of thing comes up often.
#[test]
fn histories_hold_what_they_are_for() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = (history(MOST), rows(&datasets()[0]));
    let (mut final_only, mut late, mut cleared, mut erased, mut changed, mut kept) = (0, 0, 0, 0, 0, 0);
    for _ in 0..400 {
        let (history, rows) = strategy.new_tree(&mut runner).unwrap().current();
        let dataset = &datasets()[0];
        let all = requests(&history);
        for row in &rows {
            let settled = settled(dataset, &history, END_OF_BATCHES, row);
            let naive = naive(dataset, &all, row);
            final_only += usize::from(settled.is_none() && naive.is_some());
            erased += usize::from(settled.is_none());
            kept += usize::from(settled.as_ref() == Some(row));
            let nulls = |row: &OracleRow| row.ids.values().filter(|id| id.is_none()).count();
            cleared += usize::from(settled.as_ref().is_some_and(|s| nulls(s) > nulls(row)));
            changed += usize::from(settled.is_some() && settled.as_ref() != Some(row));
        }
        late += history.iter().filter(|a| is_late(dataset, &history, a)).count();
        assert!(all.iter().all(|r| !matches!(&r.op, Op::Convert { from, to, .. } if from == to)));
    }
    for (what, count) in
        [("final", final_only), ("late", late), ("cleared", cleared), ("erased", erased), ("changed", changed), ("kept", kept)]
    {
        assert!(count >= 15, "{what}: {count}");
    }
}

const END_OF_BATCHES: BatchNumber = BatchNumber(BATCHES);
