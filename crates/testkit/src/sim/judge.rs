//! What must have come of records and requests together: the oracle walks through all requests for every row, at every version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium_core::{BatchNumber, Id, Op, Project, Request, Scope, Subject, is_pseudonym};
use object_store::ObjectStore;
use object_store::path::Path;
use serde_json::Value;

use super::asked::RequestsPlan;
use super::input::{Sort, SourceFile};
use super::run::Stage;
use crate::check::DatasetCheck;
use crate::oracle::{Accepted, AtPosition, OracleRow, Settling};
use crate::table::{Fault, Row, TableReader};
use crate::walk::{Place, Walk};

/// A record that fits, and what requests make of it at each position of the ledger.
struct Judged<'a> {
    file: &'a SourceFile,
    record: usize,
    source: OracleRow,
    at: Vec<AtPosition>,
}

impl Stage {
    /// Every version's rows are what the requests up to its position make of the records that came; whatever else is a dead letter; and
    /// the notifications of a version are what it changed.
    pub(super) async fn check_with_requests(
        &self,
        requests: &RequestsPlan,
        whole: &Arc<dyn ObjectStore>,
        dataset: &DatasetCheck,
        replayed: bool,
    ) -> Result<(), Fault> {
        let accepted = accepted(requests, &dataset.table("requests")).await?;
        let walk = Walk::of(whole, "edit").await?;
        let last = accepted.iter().map(|a| a.batch.0).max().unwrap_or(0);
        let stands = walk.versions.last().map_or(last, |version| version.position);
        if stands < last {
            return Err(format!("the table stands at position {stands}, and {last} batches of requests were taken in"));
        }
        let project = Project::parse(&self.declaration(false), &|_| None).map_err(|e| e.render("alluvium.yaml"))?;
        let settling = Settling::new(&project.datasets[0], &accepted, BatchNumber(stands));
        let letters: BTreeSet<(String, String)> =
            dataset.dead_letters().await?.iter().map(|row| (text(row, "source"), text(row, "position"))).collect();
        let mut judged: BTreeMap<Place, Judged<'_>> = BTreeMap::new();
        let mut refused: BTreeSet<(String, String)> = BTreeSet::new();
        for (_, file) in self.files() {
            for (record, sort) in file.records.iter().enumerate() {
                let offset = file.offset(record);
                if *sort == Sort::Hopeless || (*sort == Sort::Refused && !replayed) {
                    refused.insert((file.name.clone(), offset.to_string()));
                    continue;
                }
                let source = file.source_row(record);
                let at = settling.at_each(&source);
                judged.insert((file.name.clone(), offset as u64), Judged { file, record, source, at });
            }
        }
        if letters != refused {
            return Err(format!("the dead letters are {letters:?}, they should be {refused:?}"));
        }
        check_versions(&walk, &judged)?;
        check_notifications(&walk, dataset).await?;
        self.check_live(dataset).await?;
        dataset.chains_are_finished(&[("ingest", "edit"), ("mutate", "edit"), ("mutate", "requests")]).await
    }

    /// The files of the newest version are there.
    async fn check_live(&self, dataset: &DatasetCheck) -> Result<(), Fault> {
        let live = TableReader::live(&dataset.table("edit").log().await?)?;
        let inner = self.world.inner();
        let root = Path::from("default/edit");
        let gone = live.iter().find(|add| inner.bucket.get(&root.clone().join(add.path.as_str())).is_none());
        gone.map_or(Ok(()), |add| Err(format!("the live file {} is gone", add.path)))
    }
}

/// The requests as they were taken in: each once, with what it says, and by which batch.
async fn accepted(requests: &RequestsPlan, table: &TableReader) -> Result<Vec<Accepted>, Fault> {
    let mut sent = requests.all();
    let mut accepted = Vec::new();
    for row in table.rows().await? {
        let id = text(&row, "request_id");
        let request = sent.remove(id.as_str()).ok_or_else(|| format!("the request {id} was accepted twice, or never sent"))?;
        if !Request::from_json(&text(&row, "request")).is_ok_and(|stored| says_the_same(&stored, request)) {
            return Err(format!("the request {id} was accepted as something else: {row:?}"));
        }
        let batch = text(&row, "batch_id").parse().map_err(|e| format!("{row:?}: {e}"))?;
        accepted.push(Accepted { request: request.clone(), batch: BatchNumber(batch) });
    }
    match sent.first_key_value() {
        Some((id, _)) => Err(format!("the request {id} was lost")),
        None => Ok(accepted),
    }
}

/// Whether a stored request is the one that was sent, but for ids that pseudonyms stand for.
fn says_the_same(stored: &Request, sent: &Request) -> bool {
    let same = |stored: &Id, sent: &Id| stored == sent || is_pseudonym(stored.as_str());
    let op = match (&stored.op, &sent.op) {
        (Op::Convert { field, from, to }, Op::Convert { field: of, from: was, to: into }) => {
            field == of && same(from, was) && same(to, into)
        }
        (Op::Update { field, id, set }, Op::Update { field: of, id: was, set: to }) => field == of && set == to && same(id, was),
        (Op::Delete(stored), Op::Delete(sent)) => match (&stored.scope, &sent.scope) {
            (Scope::Subject(now), Scope::Subject(then)) => {
                let fields = |subjects: &BTreeSet<Subject>| subjects.iter().map(|s| s.field.clone()).collect::<Vec<_>>();
                let spelled = |subject: &&Subject| !is_pseudonym(subject.id.as_str());
                fields(now) == fields(then)
                    && now.iter().filter(spelled).all(|subject| then.contains(subject))
                    && (stored.until, stored.privacy) == (sent.until, sent.privacy)
            }
            _ => stored == sent,
        },
        _ => false,
    };
    op && (&stored.id, &stored.org, &stored.dataset, stored.execution_time)
        == (&sent.id, &sent.org, &sent.dataset, sent.execution_time)
}

/// At every version every live row is what the oracle says at the table's position; what is missing is erased; and rows come by
/// ingest alone.
fn check_versions(walk: &Walk, judged: &BTreeMap<Place, Judged<'_>>) -> Result<(), Fault> {
    let mut live: BTreeMap<&Place, &Arc<Row>> = BTreeMap::new();
    let mut seen: BTreeSet<&Place> = BTreeSet::new();
    let mut position = 0;
    for (number, version) in walk.versions.iter().enumerate() {
        let job = version.batch.as_ref().map(|(job, _)| job.as_str());
        let told = |what: &str, place: &Place| {
            format!("version {number}, {job:?}, at position {}: the row {place:?} {what}", version.position)
        };
        for (place, (before, after)) in &version.changed {
            let by = if before.is_none() { "ingest" } else { "mutate" };
            if job != Some(by) {
                return Err(told(&format!("comes, goes or changes, which is for {by}"), place));
            }
            match after {
                Some(_) if before.is_none() && !seen.insert(place) => return Err(told("comes again", place)),
                Some(row) => live.insert(place, row),
                None => live.remove(place),
            };
            let at_place = judged.get(place).ok_or_else(|| told("comes, and nobody sent it", place))?;
            let erased = at_place.at(version.position).is_some_and(|at| at.row.is_none());
            if after.is_none() && !erased {
                return Err(told("goes, and should not", place));
            }
            if before.as_ref().zip(after.as_ref()).is_some_and(|(b, a)| text(b, "_ingested_at") != text(a, "_ingested_at")) {
                return Err(told("gets another time of its coming", place));
            }
        }
        for (place, row) in &live {
            if version.position != position || version.changed.contains_key(*place) {
                let at_place = judged.get(*place).ok_or_else(|| told("is there, and nobody sent it", place))?;
                at_place.check(row, version.position).map_err(|fault| told(&fault, place))?;
            }
        }
        position = version.position;
    }
    for (place, at_place) in judged {
        let wanted = at_place.at(position).is_some_and(|at| at.row.is_some());
        match (live.contains_key(place), wanted) {
            (false, true) => return Err(format!("no_lost_row: the row {place:?} is not there at the end")),
            (true, false) => return Err(format!("the row {place:?} is there at the end, and should be erased")),
            _ => {}
        }
    }
    Ok(())
}

impl Judged<'_> {
    fn at(&self, position: u64) -> Option<&AtPosition> {
        self.at.get(usize::try_from(position).ok()?)
    }

    /// Whether a row is what the oracle says at a position.
    fn check(&self, row: &Row, position: u64) -> Result<(), Fault> {
        let Some(wanted) = self.at(position).and_then(|at| at.row.as_ref()) else {
            return Err(format!("is there, and should be erased: {row:?}"));
        };
        let (mut columns, mut original) = (self.file.row(self.record), serde_json::Map::new());
        for (field, id) in &wanted.ids {
            columns.extend(id.clone().map(|id| (field.clone(), id)));
            let source = &self.source.ids[field];
            if source != id {
                original.insert(field.clone(), source.clone().map_or(Value::Null, Value::from));
            }
        }
        for (column, value) in &wanted.values {
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
            columns.extend(read(value).as_str().map(|text| (column.clone(), text.to_owned())));
            let source = &self.source.values[column];
            if source != value {
                original.insert(column.clone(), read(source));
            }
        }
        let original = (!original.is_empty()).then_some(Value::Object(original));
        let mut is = row.clone();
        is.remove("_ingested_at");
        let is_original = is.remove("_original").and_then(|text| serde_json::from_str::<Value>(&text).ok());
        if is != columns {
            return Err(format!("should be {columns:?}, it is {is:?}"));
        }
        if is_original != original {
            return Err(format!("should have {original:?} in _original, it is {is_original:?}: {is:?}"));
        }
        Ok(())
    }
}

/// The notifications of every version are what that version changed.
async fn check_notifications(walk: &Walk, dataset: &DatasetCheck) -> Result<(), Fault> {
    let mut told: BTreeMap<String, BTreeMap<(String, String), [String; 3]>> = BTreeMap::new();
    for row in dataset.table("notifications").rows().await? {
        let of = (text(&row, "org_id"), text(&row, "event_date"));
        let counts = ["inserted", "updated", "deleted"].map(|name| text(&row, name));
        if told.entry(text(&row, "table_version")).or_default().insert(of, counts).is_some() {
            return Err(format!("a notification of edit is there twice: {row:?}"));
        }
    }
    for (number, version) in walk.versions.iter().enumerate() {
        let mut made: BTreeMap<(String, String), [u64; 3]> = BTreeMap::new();
        for (before, after) in version.changed.values() {
            let Some(row) = after.as_ref().or(before.as_ref()) else { continue };
            let counts = made.entry((text(row, "org"), text(row, "event_date"))).or_default();
            let what = match (before, after) {
                (None, _) => 0,
                (Some(_), Some(_)) => 1,
                (Some(_), None) => 2,
            };
            counts[what] += 1;
        }
        let made: BTreeMap<_, _> = made.into_iter().map(|(of, counts)| (of, counts.map(|n| n.to_string()))).collect();
        let notified = told.remove(&number.to_string()).unwrap_or_default();
        if notified != made {
            return Err(format!("version {number} of edit made {made:?}, the notifications say {notified:?}"));
        }
    }
    match told.first_key_value() {
        Some((version, of)) => Err(format!("notifications tell of version {version} of edit, which is not there: {of:?}")),
        None => Ok(()),
    }
}

fn text(row: &Row, column: &str) -> String {
    row.get(column).cloned().unwrap_or_default()
}
