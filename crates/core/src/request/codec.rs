//! Requests as bytes, for the sorted files of the ledger, which read each of them several times. Described in `docs/formats/ledger.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{Id, JsonText};
use super::{Delete, Op, Request, Scope, Subject};
use crate::bytes::{Reader, number, text, time};
use crate::dataset::DatasetName;
use crate::error::{Error, Kind, Result};

const CONVERT: u8 = 0;
const UPDATE: u8 = 1;
const DELETE_SUBJECT: u8 = 2;
const DELETE_ORG: u8 = 3;
const DELETE_RECORD: u8 = 4;
const DELETE_BEFORE: u8 = 5;

const HAS_DATASET: u8 = 1;
const HAS_UNTIL: u8 = 2;
const IS_PRIVACY: u8 = 4;

impl Request {
    /// Appends the request's bytes. The same request has the same bytes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let (kind, until, privacy) = match &self.op {
            Op::Convert { .. } => (CONVERT, None, false),
            Op::Update { .. } => (UPDATE, None, false),
            Op::Delete(Delete { scope, until, privacy }) => {
                let kind = match scope {
                    Scope::Subject(_) => DELETE_SUBJECT,
                    Scope::Org => DELETE_ORG,
                    Scope::Record(_) => DELETE_RECORD,
                    Scope::Before(_) => DELETE_BEFORE,
                };
                (kind, *until, *privacy)
            }
        };
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        to.push(kind);
        to.push(flag(self.dataset.is_some(), HAS_DATASET) | flag(until.is_some(), HAS_UNTIL) | flag(privacy, IS_PRIVACY));
        text(&self.id, to);
        text(&self.org, to);
        time(self.execution_time, to);
        if let Some(dataset) = &self.dataset {
            text(&dataset.0, to);
        }
        if let Some(until) = until {
            time(until, to);
        }
        match &self.op {
            Op::Convert { field, from, to: into } => {
                text(field, to);
                text(from.as_str(), to);
                text(into.as_str(), to);
            }
            Op::Update { field, id, set } => {
                text(field, to);
                text(id.as_str(), to);
                number(set.len() as u64, to);
                for (column, value) in set {
                    text(column, to);
                    text(value.as_str(), to);
                }
            }
            Op::Delete(delete) => match &delete.scope {
                Scope::Subject(subjects) => {
                    number(subjects.len() as u64, to);
                    for subject in subjects {
                        text(&subject.field, to);
                        text(subject.id.as_str(), to);
                    }
                }
                Scope::Org => {}
                Scope::Record(key) => text(key.as_str(), to),
                Scope::Before(before) => time(*before, to),
            },
        }
    }

    /// Reads a request from the bytes that [`Self::encode`] wrote, all of them.
    ///
    /// # Errors
    /// `Corrupt` for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        request(&mut reader).filter(|_| reader.is_empty()).ok_or_else(|| {
            Error::new(Kind::Corrupt, "reading a request of the folded ledger: its bytes are not what they must be")
                .hint("remove the folded ledger; it is made again from the requests")
        })
    }
}

fn request(from: &mut Reader<'_>) -> Option<Request> {
    let (kind, flags) = (from.byte()?, from.byte()?);
    let is_delete = (DELETE_SUBJECT..=DELETE_BEFORE).contains(&kind);
    if flags & !(HAS_DATASET | HAS_UNTIL | IS_PRIVACY) != 0 || (flags & (HAS_UNTIL | IS_PRIVACY) != 0 && !is_delete) {
        return None;
    }
    let (id, org, execution_time) = (from.text()?.to_owned(), from.text()?.to_owned(), from.time()?);
    let dataset = if flags & HAS_DATASET == 0 { None } else { Some(DatasetName(from.text()?.to_owned())) };
    let until = if flags & HAS_UNTIL == 0 { None } else { Some(from.time()?) };
    let delete = |scope| Op::Delete(Delete { scope, until, privacy: flags & IS_PRIVACY != 0 });
    let op = match kind {
        CONVERT => Op::Convert { field: from.text()?.to_owned(), from: Id::new(from.text()?), to: Id::new(from.text()?) },
        UPDATE => {
            let (field, id) = (from.text()?.to_owned(), Id::new(from.text()?));
            let mut set: BTreeMap<String, JsonText> = BTreeMap::new();
            for _ in 0..from.number()? {
                let (column, value) = (from.text()?.to_owned(), JsonText::canonical(from.text()?));
                if set.last_key_value().is_some_and(|(last, _)| *last >= column) {
                    return None;
                }
                set.insert(column, value);
            }
            if set.is_empty() {
                return None;
            }
            Op::Update { field, id, set }
        }
        DELETE_SUBJECT => {
            let mut subjects = BTreeSet::new();
            for _ in 0..from.number()? {
                let subject = Subject { field: from.text()?.to_owned(), id: Id::new(from.text()?) };
                if subjects.last().is_some_and(|last| *last >= subject) {
                    return None;
                }
                subjects.insert(subject);
            }
            if subjects.is_empty() {
                return None;
            }
            delete(Scope::Subject(subjects))
        }
        DELETE_ORG => delete(Scope::Org),
        DELETE_RECORD => delete(Scope::Record(Id::new(from.text()?))),
        DELETE_BEFORE => delete(Scope::Before(from.time()?)),
        _ => return None,
    };
    Some(Request { id, org, dataset, execution_time, op })
}
