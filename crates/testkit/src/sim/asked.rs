//! Requests of a world: who asks for what, and when.
//!
//! Few ids, few times, in any order: what executes early may come late, deletes before what they follow, and some come twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use alluvium_core::{Delete, Id, JsonText, Op, Request, Scope, Subject};
use serde_json::{Value, json};

use super::dice::Dice;
use super::input::{FIRST_DAY_MICROS, ORGS, SourceFile, time};

const HALF_DAY_MICROS: i64 = 43_200_000_000;
/// Requests that come together, at most.
const MOST_TOGETHER: u64 = 4;

/// Requests, and how they come.
#[derive(Debug, Clone)]
pub(super) struct RequestsPlan {
    pub(super) bundles: Vec<Bundle>,
    /// As files of a source; else processes submit them.
    pub(super) in_files: bool,
    /// By what the table is partitioned.
    pub(super) partition_by: &'static str,
}

/// Requests that come together.
#[derive(Debug, Clone)]
pub(super) struct Bundle {
    pub(super) name: String,
    pub(super) comes_ms: u64,
    pub(super) requests: Vec<Request>,
}

impl RequestsPlan {
    /// Requests about the records of `files`. `moves`: rows may be moved to other partitions by them.
    pub(super) fn roll(dice: &mut Dice, files: &[SourceFile], moves: bool) -> Self {
        let in_files = dice.thousandths(400);
        let partition_by = if moves { dice.one_of(&["org", "org", "who"]) } else { "org" };
        let spread_ms = dice.one_of(&[1_000, 10_000, 20_000]);
        let mut bundles: Vec<Bundle> = Vec::new();
        let mut number = 0;
        for at in 0..dice.between(3, 8) {
            let mut requests = Vec::new();
            for _ in 0..dice.between(1, MOST_TOGETHER) {
                number += 1;
                let before = bundles.last().and_then(|b| b.requests.first()).filter(|_| dice.thousandths(100));
                requests.push(before.cloned().unwrap_or_else(|| request(dice, number, files)));
            }
            bundles.push(Bundle {
                name: format!("{:02}-{at}.json", dice.below(100)),
                comes_ms: dice.between(0, spread_ms),
                requests,
            });
        }
        bundles.sort_by_key(|bundle| bundle.comes_ms);
        Self { bundles, in_files, partition_by }
    }

    /// Every request once, by its id.
    pub(super) fn all(&self) -> BTreeMap<&str, &Request> {
        self.bundles.iter().flat_map(|bundle| &bundle.requests).map(|request| (request.id.as_str(), request)).collect()
    }
}

impl Bundle {
    /// Its requests, a line each.
    pub(super) fn lines(&self) -> String {
        self.requests.iter().map(|request| line(request) + "\n").collect()
    }

    /// Puts the requests where their source looks for them.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let inbox = directory.join("asked");
        super::input::put_file(&inbox, &self.name, &self.lines(), self.comes_ms)
    }
}

/// There is a place to look for requests, whether or not any come there.
pub(super) fn make_place(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory.join("asked"))
}

fn request(dice: &mut Dice, number: u64, files: &[SourceFile]) -> Request {
    let field = dice.one_of(&["who", "who", "dev"]);
    let (id, other) = (id(dice, field), id(dice, field));
    let op = match dice.below(20) {
        0..=9 if id != other => Op::Convert { field: field.to_owned(), from: Id::new(&id), to: Id::new(&other) },
        0..=13 => {
            let value = dice.one_of(&["null", "\"x\"", "\"y\""]);
            let set = BTreeMap::from([("note".to_owned(), JsonText::read(value).unwrap_or_else(JsonText::null))]);
            Op::Update { field: field.to_owned(), id: Id::new(&id), set }
        }
        of_delete => {
            let file = &files[usize::try_from(dice.below(files.len() as u64)).unwrap_or(0)];
            let record = usize::try_from(dice.below(file.records.len().max(1) as u64)).unwrap_or(0);
            let scope = match of_delete {
                14 | 15 => Scope::Record(Id::new(&file.lead(record))),
                16 if dice.thousandths(300) => Scope::Before(hours(dice)),
                16 if dice.thousandths(200) => Scope::Org,
                _ => Scope::Subject(BTreeSet::from([Subject { field: field.to_owned(), id: Id::new(&id) }])),
            };
            let until = dice.thousandths(300).then(|| hours(dice));
            let privacy = matches!(scope, Scope::Subject(_) | Scope::Org);
            Op::Delete(Delete { scope, until, privacy })
        }
    };
    Request {
        // Of equal times the order is that of ids, which is not that of arrival.
        id: format!("q{:02}-{number}", dice.below(100)),
        org: dice.one_of(&ORGS).to_owned(),
        dataset: None,
        execution_time: hours(dice),
        op,
    }
}

fn id(dice: &mut Dice, field: &str) -> String {
    let most = if field == "who" { 4 } else { 2 };
    format!("{}{}", &field[..1], dice.between(1, most))
}

fn hours(dice: &mut Dice) -> i64 {
    FIRST_DAY_MICROS + dice.between(0, 5).cast_signed() * HALF_DAY_MICROS
}

/// A request as it is sent.
fn line(request: &Request) -> String {
    let mut object = json!({ "request_id": request.id, "org_id": request.org, "execution_time": time(request.execution_time) });
    let mut put = |name: &str, value: Value| object[name] = value;
    match &request.op {
        Op::Convert { field, from, to } => {
            put("op", "convert".into());
            put("field", field.as_str().into());
            put("from", from.as_str().into());
            put("to", to.as_str().into());
        }
        Op::Update { field, id, set } => {
            put("op", "update".into());
            put("field", field.as_str().into());
            put("id", id.as_str().into());
            let set =
                set.iter().map(|(column, value)| (column.clone(), serde_json::from_str(value.as_str()).unwrap_or_default()));
            put("set", Value::Object(set.collect()));
        }
        Op::Delete(Delete { scope, until, .. }) => {
            put("op", "delete".into());
            if let Some(until) = until {
                put("until", time(*until).into());
            }
            match scope {
                Scope::Org => put("scope", "org".into()),
                Scope::Before(before) => {
                    put("scope", "before".into());
                    put("before", time(*before).into());
                }
                Scope::Record(key) => {
                    put("scope", "record".into());
                    put("id", key.as_str().into());
                }
                Scope::Subject(subjects) => {
                    put("scope", "subject".into());
                    put("subjects", subjects.iter().map(|s| json!({ "field": s.field, "id": s.id.as_str() })).collect());
                }
            }
        }
    }
    object.to_string()
}
