//! What must hold at the end of an oracle run: nothing here but reading what engines tell uses the product's code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium_core::{BatchNumber, Dataset, Op, Request, Scope};
use alluvium_engine::{Engine, RequestState};
use alluvium_lake::Store;
use alluvium_testkit::{Accepted, AtPosition, Lab, OracleRow, Place, Row, Settling, TableReader, Walk, is_late};
use chrono::DateTime;
use object_store::ObjectStore;
use serde_json::Value;

use crate::oracle_changes::check_changes;
use crate::oracle_history::{DATASETS, Event, History, Sent, is_number, value_of};

/// Requests whose lateness is asked for: each takes a walk through all.
const LATE_SAMPLES: usize = 12;
/// Attempts of a request, as the project says.
const MAX_ATTEMPTS: u64 = 3;

/// What the oracle makes of one event.
struct Judged<'h> {
    event: &'h Event,
    at: Vec<AtPosition>,
}

/// Fails with the first thing that does not hold.
pub async fn check(history: &History, lab: &Lab, store: &Arc<dyn ObjectStore>) {
    let project = lab.project();
    let engine = lab.engine(&Store::over(store.clone()));
    let accepted = taken_in(history, store).await;
    check_refused_events(history, store).await;
    let last = accepted.iter().map(|a| a.batch).max().unwrap();
    let mut expected = BTreeMap::new();
    for (at, dataset) in project.datasets.iter().enumerate() {
        let walk = Walk::of(store, DATASETS[at]).await.unwrap_or_else(|fault| panic!("{fault}"));
        assert!(walk.versions.last().unwrap().position >= last.0, "{}: not all requests were applied", DATASETS[at]);
        let last = BatchNumber(walk.versions.last().unwrap().position);
        let settling = Settling::new(dataset, &accepted, last);
        let of_dataset = history.events.iter().filter(|event| event.dataset == at);
        let judged: BTreeMap<Place, Judged<'_>> =
            of_dataset.map(|event| (event.place.clone(), Judged { event, at: settling.at_each(&event.row) })).collect();
        check_versions(&walk, at, &judged);
        check_notifications(&walk, store, DATASETS[at]).await;
        check_changes(&walk, &engine, dataset).await;
        expected.insert(DATASETS[at], expected_states(&walk, &judged));
        check_outcomes(&walk, &judged, store, at, &accepted).await;
    }
    check_states(&engine, &accepted, &expected, store).await;
    check_late(&engine, &project.datasets, &accepted).await;
}

async fn rows(store: &Arc<dyn ObjectStore>, table: &str) -> Vec<Row> {
    let rows = TableReader::new(store, &format!("default/{table}")).rows().await;
    rows.unwrap_or_else(|fault| panic!("{table}: {fault}"))
}

/// What `retries` ever told, also where later batches wrote it anew.
async fn retries_ever(store: &Arc<dyn ObjectStore>) -> Vec<Row> {
    let rows = TableReader::new(store, "default/retries").rows_ever().await;
    rows.unwrap_or_else(|fault| panic!("retries: {fault}"))
}

fn place(row: &Row, source: &str, position: &str) -> Place {
    (row[source].clone(), row[position].parse().unwrap())
}

/// Every line that was sent is an accepted request, one that was accepted before, or a dead letter; each id is accepted once.
async fn taken_in(history: &History, store: &Arc<dyn ObjectStore>) -> Vec<Accepted> {
    let sent: BTreeMap<&Place, &Sent> = history.sent.iter().map(|s| (&s.place, s)).collect();
    let mut accepted: BTreeMap<String, (Place, Accepted)> = BTreeMap::new();
    for row in rows(store, "requests").await {
        let place = place(&row, "_source", "_offset");
        let request = sent[&place].request.clone().unwrap_or_else(|| panic!("{place:?} is no request and was accepted"));
        assert_eq!(Request::from_json(&row["request"]).unwrap(), request, "{place:?}");
        let batch = BatchNumber(row["batch_id"].parse().unwrap());
        let one = Accepted { request, batch };
        assert!(accepted.insert(row["request_id"].clone(), (place, one)).is_none(), "{} was accepted twice", row["request_id"]);
    }
    let mut letters: BTreeSet<Place> = BTreeSet::new();
    for row in rows(store, "dead_letters").await.into_iter().filter(|row| row["dataset"] == "requests") {
        let place = place(&row, "source", "position");
        let in_file = sent[&place].in_file;
        assert!(letters.insert(place.clone()) || !in_file, "{place:?} is a dead letter twice");
    }
    for sent in &history.sent {
        let wrong = match &sent.request {
            None => true,
            Some(request) => {
                let (_, there) = accepted.get(&sent.id).unwrap_or_else(|| panic!("{} was lost", sent.id));
                there.request != *request
            }
        };
        assert_eq!(letters.contains(&sent.place), wrong, "{:?}", sent.place);
    }
    let mut accepted: Vec<Accepted> = accepted.into_values().map(|(_, one)| one).collect();
    accepted.sort_by_key(|a| a.batch);
    accepted
}

async fn check_refused_events(history: &History, store: &Arc<dyn ObjectStore>) {
    let mut letters = BTreeSet::new();
    for row in rows(store, "dead_letters").await {
        let Some(dataset) = DATASETS.iter().position(|name| *name == row["dataset"]) else { continue };
        let (source, position) = place(&row, "source", "position");
        assert!(letters.insert((dataset, source, position)), "a dead letter is there twice: {row:?}");
    }
    assert_eq!(letters, history.refused);
}

/// The row as a table must have it, but for `_ingested_at`, and its `_original`.
fn expected_row(dataset: usize, event: &Event, row: &OracleRow) -> (Row, Option<Value>) {
    let at = DateTime::from_timestamp_micros(row.event_time).unwrap();
    let mut columns = BTreeMap::from([
        ("org_id".to_owned(), row.org.clone()),
        ("at".to_owned(), at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()),
        ("event_date".to_owned(), at.format("%Y-%m-%d").to_string()),
        ("_source".to_owned(), event.place.0.clone()),
        ("_offset".to_owned(), event.place.1.to_string()),
    ]);
    columns.extend(row.key.clone().map(|key| ("call_id".to_owned(), key)));
    columns.extend(event.more.then(|| ("_rescued".to_owned(), r#"{"mood":"good"}"#.to_owned())));
    let mut original = serde_json::Map::new();
    for (field, id) in &row.ids {
        columns.extend(id.clone().map(|id| (field.clone(), id)));
        let source = &event.row.ids[field];
        if source != id {
            let source = match source {
                None => Value::Null,
                Some(id) if is_number(dataset, field) => Value::from(id.parse::<i64>().unwrap()),
                Some(id) => Value::from(id.as_str()),
            };
            original.insert(field.clone(), source);
        }
    }
    for (column, spelled) in &row.values {
        let (is, was) = (value_of(dataset, column, spelled), value_of(dataset, column, &event.row.values[column]));
        columns.extend(is.text.map(|text| (column.clone(), text.to_owned())));
        if is.json != was.json {
            original.insert(column.clone(), serde_json::from_str(was.json).unwrap());
        }
    }
    (columns, (!original.is_empty()).then_some(Value::Object(original)))
}

/// At every version every live row is what the oracle says at the table's position, what is missing is erased, and rows come by ingest alone.
fn check_versions(walk: &Walk, dataset: usize, judged: &BTreeMap<Place, Judged<'_>>) {
    let mut live: BTreeMap<&Place, &Arc<Row>> = BTreeMap::new();
    let mut seen: BTreeSet<&Place> = BTreeSet::new();
    let mut position = 0;
    for (number, version) in walk.versions.iter().enumerate() {
        let told = || format!("{} version {number} ({:?}) at position {}", DATASETS[dataset], version.batch, version.position);
        let job = version.batch.as_ref().map(|(job, _)| job.as_str());
        for (place, (before, after)) in &version.changed {
            match (before, after) {
                (None, Some(row)) => {
                    assert_eq!(job, Some("ingest"), "{}: the row {place:?} comes", told());
                    assert!(seen.insert(place), "{}: the row {place:?} comes again", told());
                    live.insert(place, row);
                }
                (Some(_), None) => {
                    assert_eq!(job, Some("mutate"), "{}: the row {place:?} goes", told());
                    let there = &judged[place].at[version.position as usize];
                    assert_eq!(there.row, None, "{}: the row {place:?} went, and should not", told());
                    live.remove(place);
                }
                (Some(before), Some(after)) => {
                    assert_eq!(job, Some("mutate"), "{}: the row {place:?} changes", told());
                    assert_eq!(before["_ingested_at"], after["_ingested_at"], "{}: {place:?}", told());
                    live.insert(place, after);
                }
                (None, None) => {}
            }
        }
        for (place, row) in &live {
            if version.position == position && !version.changed.contains_key(*place) {
                continue;
            }
            let Judged { event, at } = judged.get(*place).unwrap_or_else(|| panic!("{}: nobody sent {place:?}", told()));
            let Some(wanted) = &at[version.position as usize].row else {
                panic!("{}: the row {place:?} is there, and should not be: {row:?}", told());
            };
            let (wanted, original) = expected_row(dataset, event, wanted);
            let mut is = Row::clone(row);
            is.remove("_ingested_at");
            let is_original: Option<Value> = is.remove("_original").map(|text| serde_json::from_str(&text).unwrap());
            assert_eq!(is, wanted, "{}: {place:?}", told());
            assert_eq!(is_original, original, "{}: _original of {place:?}", told());
        }
        position = version.position;
    }
    for (place, Judged { at, .. }) in judged {
        let wanted = at.last().unwrap().row.is_some();
        assert_eq!(live.contains_key(place), wanted, "{}: {place:?} at the end", DATASETS[dataset]);
    }
}

/// The notifications of every version are what that version changed.
async fn check_notifications(walk: &Walk, store: &Arc<dyn ObjectStore>, dataset: &str) {
    let mut told: BTreeMap<usize, BTreeMap<(String, String), [u64; 3]>> = BTreeMap::new();
    for row in rows(store, "notifications").await.into_iter().filter(|row| row["table_name"] == dataset) {
        let version: usize = row["table_version"].parse().unwrap();
        let of = (row["org_id"].clone(), row["event_date"].clone());
        let counts = ["inserted", "updated", "deleted"].map(|name| row[name].parse().unwrap());
        let batch = (row["job"].clone(), row["batch_id"].parse().unwrap());
        assert_eq!(walk.versions[version].batch, Some(batch), "{dataset} version {version}: {row:?}");
        assert!(told.entry(version).or_default().insert(of, counts).is_none(), "a notification is there twice: {row:?}");
    }
    for (number, version) in walk.versions.iter().enumerate() {
        let mut made: BTreeMap<(String, String), [u64; 3]> = BTreeMap::new();
        for (before, after) in version.changed.values() {
            let row = after.as_ref().or(before.as_ref()).unwrap();
            let counts = made.entry((row["org_id"].clone(), row["event_date"].clone())).or_default();
            match (before, after) {
                (None, _) => counts[0] += 1,
                (_, None) => counts[2] += 1,
                _ => counts[1] += 1,
            }
        }
        let told = told.remove(&number).unwrap_or_default();
        assert_eq!(told, made, "{dataset} version {number} ({:?}): told, and made", version.batch);
    }
    assert_eq!(told, BTreeMap::new(), "{dataset}: told of versions that are not there");
}

/// Which requests must have been applied in a dataset, and which may have been: whether a row that never came in was matched
/// depends on when it was left out; a late request makes no difference to one that was cleared for good before; and one that is led
/// elsewhere only to end where it was may go unseen.
#[derive(Default)]
struct Expected {
    must: BTreeSet<String>,
    may: BTreeSet<String>,
}

fn expected_states(walk: &Walk, judged: &BTreeMap<Place, Judged<'_>>) -> Expected {
    let mut expected = Expected::default();
    let positions: BTreeSet<u64> = walk.versions.iter().map(|v| v.position).collect();
    for Judged { at, .. } in judged.values() {
        for position in &positions {
            expected.may.extend(at[*position as usize].matched.iter().cloned());
        }
    }
    for version in &walk.versions {
        for place in version.changed.keys() {
            let at = &judged[place].at[version.position as usize];
            if at.as_requested {
                expected.must.extend(at.matched.iter().cloned());
            }
        }
    }
    expected
}

/// What a batch says of requests that are new to the dataset: how many of the rows that stood there each of them matched, or that it waits.
async fn check_outcomes(
    walk: &Walk,
    judged: &BTreeMap<Place, Judged<'_>>,
    store: &Arc<dyn ObjectStore>,
    dataset: usize,
    accepted: &[Accepted],
) {
    let name = DATASETS[dataset];
    let mut outcomes: BTreeMap<(String, String, u64), u64> = BTreeMap::new();
    for row in rows(store, "_alluvium/outcomes").await.into_iter().filter(|row| row["dataset"] == name) {
        let of = (row["job"].clone(), row["request_id"].clone(), row["batch_id"].parse().unwrap());
        assert!(outcomes.insert(of, row["rows"].parse().unwrap()).is_none(), "an outcome is there twice: {row:?}");
    }
    let mut first_waits: BTreeMap<String, u64> = BTreeMap::new();
    for row in retries_ever(store).await {
        if row["dataset"] == name && row["attempts"] == "1" && row["state"] != "applied" {
            let batch = row["batch_id"].parse().unwrap();
            assert!(first_waits.insert(row["request_id"].clone(), batch).is_none(), "a first attempt is there twice: {row:?}");
        }
    }
    let mut live: BTreeSet<&Place> = BTreeSet::new();
    let mut position = 0;
    for (number, version) in walk.versions.iter().enumerate() {
        let mutate = version.batch.as_ref().filter(|(job, _)| job == "mutate").map(|(_, batch)| *batch);
        if let Some(batch) = mutate {
            // The least, those that changed, and the most.
            let mut rows: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
            for place in &live {
                let at = &judged[*place].at[version.position as usize];
                let is_seen = at.as_requested && version.changed.contains_key(*place);
                for id in &at.matched {
                    let (least, most) = rows.entry(id).or_default();
                    (*least, *most) = (*least + u64::from(is_seen), *most + 1);
                }
            }
            let new = accepted.iter().filter(|a| (position + 1..=version.position).contains(&a.batch.0));
            for request in new.map(|a| &a.request).filter(|request| counts(request, dataset)) {
                let id = &request.id;
                let told = outcomes.get(&("mutate".to_owned(), id.clone(), batch)).copied();
                let (least, most) = rows.get(id.as_str()).copied().unwrap_or_default();
                assert!(
                    (least..=most).contains(&told.unwrap_or(0)),
                    "{name} version {number}, {position} to {}: {least} to {most} rows, told {told:?}: {}",
                    version.position,
                    request.to_json()
                );
                let waits = first_waits.get(id) == Some(&batch);
                // One that rows matched on their way in does not wait, and needs no word.
                let came_in = outcomes.keys().any(|(job, request, _)| job == "ingest" && request == id);
                let is_right = if waits { told.is_none() } else { told.is_some() || came_in };
                assert!(
                    is_right,
                    "{name} version {number}: waits: {waits}, told {told:?}, came in: {came_in}: {}",
                    request.to_json()
                );
            }
            position = version.position;
        }
        for (place, (_, after)) in &version.changed {
            if after.is_some() {
                live.insert(place);
            } else {
                live.remove(place);
            }
        }
    }
}

/// Whether a request is about anything that the dataset has.
fn counts(request: &Request, dataset: usize) -> bool {
    use crate::oracle_history::{COLUMNS, FIELDS};
    let has = |field: &str| FIELDS[dataset].contains(&field);
    let named = request.dataset.as_ref().is_none_or(|name| name.0 == DATASETS[dataset]);
    named
        && match &request.op {
            Op::Convert { field, .. } => has(field),
            Op::Update { field, set, .. } => has(field) && set.keys().any(|c| COLUMNS[dataset].iter().any(|(name, _)| name == c)),
            Op::Delete(delete) => match &delete.scope {
                Scope::Subject(subjects) => subjects.iter().any(|s| has(&s.field)),
                Scope::Record(_) => dataset == 0,
                Scope::Org | Scope::Before(_) => true,
            },
        }
}

/// States as they are told, and the rows of `retries` behind them.
async fn check_states(engine: &Engine, accepted: &[Accepted], expected: &BTreeMap<&str, Expected>, store: &Arc<dyn ObjectStore>) {
    let mut retries: BTreeMap<(String, String), Vec<(u64, String)>> = BTreeMap::new();
    let mut told: BTreeSet<[String; 4]> = BTreeSet::new();
    for row in retries_ever(store).await {
        let by = ["dataset", "request_id", "job", "batch_id"].map(|name| row[name].clone());
        assert!(told.insert(by), "a batch tells of a request twice: {row:?}");
        let of = retries.entry((row["dataset"].clone(), row["request_id"].clone())).or_default();
        of.push((row["attempts"].parse().unwrap(), row["state"].clone()));
    }
    // Of what they tell of a request that found no row, only the last stands.
    let mut standing: BTreeMap<(String, String), String> = BTreeMap::new();
    for row in rows(store, "retries").await.into_iter().filter(|row| row["state"] != "applied") {
        let of = (row["dataset"].clone(), row["request_id"].clone());
        let most = retries[&of].iter().filter(|(_, state)| state != "applied").map(|(n, _)| *n).max();
        assert_eq!(row["attempts"].parse().ok(), most, "an earlier attempt stands: {row:?}");
        assert_eq!(standing.insert(of, row["attempts"].clone()), None, "two attempts stand: {row:?}");
    }
    let listed = engine.list_requests(None).await.unwrap();
    assert_eq!(listed.len(), accepted.len());
    let by_id: BTreeMap<&str, &Accepted> = accepted.iter().map(|a| (a.request.id.as_str(), a)).collect();
    for status in &listed {
        let one = by_id[status.request.id.as_str()];
        assert_eq!((&status.request, status.accepted_by), (&one.request, one.batch));
        let wanted: BTreeSet<&str> = (0..2).filter(|at| counts(&one.request, *at)).map(|at| DATASETS[at]).collect();
        assert_eq!(status.datasets.keys().map(String::as_str).collect::<BTreeSet<_>>(), wanted, "{}", one.request.id);
        for (dataset, state) in &status.datasets {
            let told = || format!("{} in {dataset}, accepted by batch {}", one.request.id, one.batch);
            let Expected { must, may } = &expected[dataset.as_str()];
            let attempts = retries.remove(&(dataset.clone(), one.request.id.clone())).unwrap_or_default();
            let failed: Vec<u64> = attempts.iter().filter(|(_, state)| state != "applied").map(|(n, _)| *n).collect();
            let applied = attempts.len() - failed.len();
            let mut sorted = failed.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (1..=failed.len() as u64).collect::<Vec<_>>(), "{}: attempts {attempts:?}", told());
            for (n, state) in attempts.iter().filter(|(_, state)| state != "applied") {
                assert_eq!(state == "unmatched", *n == MAX_ATTEMPTS, "{}: attempts {attempts:?}", told());
            }
            // Ingest and a mutation may find rows at the same time, each before the other has told of its own.
            assert!(applied <= 2, "{}: applied {applied} times: {attempts:?}", told());
            match state {
                RequestState::Applied => assert!(may.contains(&one.request.id), "{}: applied, and matches no row", told()),
                RequestState::Unmatched => {
                    assert!(!must.contains(&one.request.id), "{}: unmatched, and a row matches", told());
                    assert_eq!((failed.len() as u64, applied), (MAX_ATTEMPTS, 0), "{}", told());
                }
                other => panic!("{}: {other:?} when nothing is left to do", told()),
            }
        }
    }
    assert_eq!(retries, BTreeMap::new(), "retries of requests that nobody accepted");
}

async fn check_late(engine: &Engine, datasets: &[Dataset], accepted: &[Accepted]) {
    for one in accepted.iter().step_by(accepted.len().div_ceil(LATE_SAMPLES)) {
        let of_org: Vec<Accepted> = accepted.iter().filter(|a| a.request.org == one.request.org).cloned().collect();
        let mut about = datasets.iter().enumerate().filter(|(at, _)| counts(&one.request, *at));
        let wanted = about.any(|(_, dataset)| is_late(dataset, &of_dataset(&of_org, dataset), one));
        let status = engine.show_request(&one.request.id).await.unwrap();
        assert_eq!(status.late, wanted, "whether it is late: {} of batch {}", one.request.to_json(), one.batch);
    }
}

fn of_dataset(accepted: &[Accepted], dataset: &Dataset) -> Vec<Accepted> {
    accepted.iter().filter(|a| a.request.dataset.as_ref().is_none_or(|name| *name == dataset.name)).cloned().collect()
}
