//! The grammar of a request: which keys each operation has, and what stands in them.
//!
//! Nothing here knows a declaration; ids are texts as they were given. Used for what comes in and for what was stored.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use super::json::{self, Fault, Members};
use super::text::{Id, JsonText};
use super::{
    Delete, MAX_ID_BYTES, MAX_REQUEST_ID_BYTES, MAX_REQUEST_ORG_BYTES, MAX_SUBJECTS, Op, Refusal, Request, Scope, Subject,
};
use crate::dataset::DatasetName;
use crate::time::parse_timestamp;

const KEYS: [&str; 17] = [
    "request_id",
    "org_id",
    "op",
    "dataset",
    "execution_time",
    "field",
    "from",
    "to",
    "scope",
    "id",
    "subjects",
    "before",
    "until",
    "privacy",
    "follow",
    "redact",
    "set",
];

/// What is taken out of a request's keys; what is left at the end is too much.
pub(super) struct Keys<'a> {
    members: Members<'a>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, Refusal> {
        let members = json::members(text).map_err(|fault| match fault {
            Fault::NotJson | Fault::TooDeep => Refusal::new("", "the request is not JSON"),
            Fault::NotAnObject => Refusal::new("", "the request is JSON, but not an object"),
            Fault::KeyTwice => Refusal::new("", "a key of the request stands in it twice"),
        })?;
        Ok(Self { members })
    }

    /// The value at `key`, unless it is absent or null.
    pub(super) fn take(&mut self, key: &str) -> Option<&'a RawValue> {
        let at = self.find(key)?;
        Some(self.members.remove(at).1).filter(|value| value.get() != "null")
    }

    fn has(&self, key: &str) -> bool {
        self.find(key).is_some_and(|at| self.members[at].1.get() != "null")
    }

    fn find(&self, key: &str) -> Option<usize> {
        self.members.binary_search_by(|(known, _)| (**known).cmp(key)).ok()
    }

    fn required(&mut self, key: &str) -> Result<&'a RawValue, Refusal> {
        self.take(key).ok_or_else(|| Refusal::new(key, format!("{key} is missing")))
    }

    /// A text that must be there and not be empty; numbers and booleans are taken as they are written.
    fn text(&mut self, key: &str, max_bytes: usize) -> Result<String, Refusal> {
        text(key, self.required(key)?, max_bytes)
    }

    fn word(&mut self, key: &str) -> Result<String, Refusal> {
        string(key, self.required(key)?)
    }

    fn id(&mut self, key: &str) -> Result<Id, Refusal> {
        self.text(key, MAX_ID_BYTES).map(|text| Id::new(&text))
    }

    fn time(&mut self, key: &str) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let text = string(key, value)?;
        parse_timestamp(&text).map(Some).map_err(|fault| Refusal::new(key, format!("{key} is not a time: {fault}")))
    }

    fn flag(&mut self, key: &str) -> Result<Option<bool>, Refusal> {
        match self.take(key).map(RawValue::get) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(Refusal::new(key, format!("{key} is neither true nor false"))),
        }
    }

    /// That nothing is left that would mean something.
    fn finish(self, of: &str) -> Result<(), Refusal> {
        for (key, value) in self.members {
            if !KEYS.contains(&&*key) {
                return Err(Refusal::new(shown(&key), "a request has no such key"));
            }
            if value.get() != "null" {
                return Err(Refusal::new(&*key, format!("{key} does not belong to {of}")));
            }
        }
        Ok(())
    }
}

/// A key as given, as far as it may be a key and not a value that slipped into its place.
fn shown(key: &str) -> &str {
    let plain = key.len() <= 64 && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if plain { key } else { "" }
}

fn string(key: &str, value: &RawValue) -> Result<String, Refusal> {
    json::string(value.get()).ok_or_else(|| Refusal::new(key, format!("{key} is not a string")))
}

fn text(key: &str, value: &RawValue, max_bytes: usize) -> Result<String, Refusal> {
    let text = match value.get().as_bytes().first() {
        Some(b'{' | b'[') => return Err(Refusal::new(key, format!("{key} is not a string"))),
        Some(b'"') => string(key, value)?,
        _ => value.get().to_owned(),
    };
    if text.is_empty() {
        return Err(Refusal::new(key, format!("{key} is empty")));
    }
    if text.len() > max_bytes {
        return Err(Refusal::new(key, format!("{key} has more than {max_bytes} bytes")));
    }
    Ok(text)
}

/// The request that the keys tell.
pub(super) fn request(mut keys: Keys<'_>) -> Result<Request, Refusal> {
    let id = keys.text("request_id", MAX_REQUEST_ID_BYTES)?;
    if id.chars().any(char::is_control) {
        return Err(Refusal::new("request_id", "request_id holds a control character"));
    }
    let org = keys.text("org_id", MAX_REQUEST_ORG_BYTES)?;
    let op = keys.word("op")?;
    let dataset = match keys.take("dataset") {
        None => None,
        Some(value) => Some(DatasetName(string("dataset", value)?)),
    };
    let time = keys.time("execution_time")?;
    let execution_time = time.ok_or_else(|| Refusal::new("execution_time", "execution_time is missing"))?;
    let (op, of) = match op.as_str() {
        "convert" => {
            let (field, from, to) = (keys.word("field")?, keys.id("from")?, keys.id("to")?);
            (Op::Convert { field, from, to }, "a convert")
        }
        "update" => {
            let (field, id) = (keys.word("field")?, keys.id("id")?);
            (Op::Update { field, id, set: set(keys.required("set")?)? }, "an update")
        }
        "delete" => delete(&mut keys)?,
        _ => return Err(Refusal::new("op", "op is none of convert, delete and update")),
    };
    keys.finish(of)?;
    Ok(Request { id, org, dataset, execution_time, op })
}

fn delete(keys: &mut Keys<'_>) -> Result<(Op, &'static str), Refusal> {
    let (scope, of, private) = match keys.word("scope")?.as_str() {
        "subject" => (Scope::Subject(subjects(keys)?), "a delete of a subject", true),
        "org" => (Scope::Org, "a delete of an organisation", true),
        "record" => (Scope::Record(keys.id("id")?), "a delete of a record", false),
        "before" => {
            let before = keys.time("before")?.ok_or_else(|| Refusal::new("before", "before is missing"))?;
            (Scope::Before(before), "a delete of what is older", false)
        }
        _ => return Err(Refusal::new("scope", "scope is none of subject, org, record and before")),
    };
    let until = keys.time("until")?;
    let privacy = keys.flag("privacy")?.unwrap_or(private);
    if keys.flag("follow")? == Some(true) {
        return Err(Refusal::new("follow", "following what an id became is not built yet"));
    }
    if keys.take("redact").is_some() {
        return Err(Refusal::new("redact", "redacting fields is not built yet"));
    }
    Ok((Op::Delete(Delete { scope, until, privacy }), of))
}

fn subjects(keys: &mut Keys<'_>) -> Result<BTreeSet<Subject>, Refusal> {
    let Some(list) = keys.take("subjects") else {
        let (field, id) = (keys.word("field")?, keys.id("id")?);
        return Ok(BTreeSet::from([Subject { field, id }]));
    };
    if keys.has("field") || keys.has("id") {
        return Err(Refusal::new("subjects", "subjects stands beside field or id"));
    }
    let items = json::items(list).ok_or_else(|| Refusal::new("subjects", "subjects is not an array"))?;
    if items.is_empty() {
        return Err(Refusal::new("subjects", "subjects is empty"));
    }
    if items.len() > MAX_SUBJECTS {
        return Err(Refusal::new("subjects", format!("subjects has more than {MAX_SUBJECTS} entries")));
    }
    let mut all = BTreeSet::new();
    for item in items {
        let members = json::members(item.get())
            .map_err(|_| Refusal::new("subjects", "an entry of subjects is not an object with field and id, each once"))?;
        let mut entry = Keys { members };
        let inside = |refusal: Refusal| Refusal { field: "subjects".to_owned(), ..refusal };
        let field = entry.word("field").map_err(inside)?;
        let id = entry.id("id").map_err(inside)?;
        if !entry.members.is_empty() {
            return Err(Refusal::new("subjects", "an entry of subjects has more than field and id"));
        }
        all.insert(Subject { field, id });
    }
    Ok(all)
}

fn set(value: &RawValue) -> Result<BTreeMap<String, JsonText>, Refusal> {
    let members = json::members(value.get()).map_err(|fault| match fault {
        Fault::KeyTwice => Refusal::new("set", "a column stands in set twice"),
        Fault::NotJson | Fault::NotAnObject | Fault::TooDeep => Refusal::new("set", "set is not an object"),
    })?;
    if members.is_empty() {
        return Err(Refusal::new("set", "set is empty"));
    }
    let mut columns = BTreeMap::new();
    for (column, value) in members {
        let value = json::canonical(value).map_err(|fault| match fault {
            Fault::KeyTwice => Refusal::new("set", "a value of set is an object with a key that stands in it twice"),
            Fault::TooDeep => Refusal::new("set", "a value of set is nested too deep"),
            Fault::NotJson | Fault::NotAnObject => Refusal::new("set", "a value of set is not JSON"),
        })?;
        columns.insert(column.into_owned(), value);
    }
    Ok(columns)
}
