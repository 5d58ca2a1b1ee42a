//! Random histories for the oracle run: events of two datasets and requests of all kinds over few ids, cut into files that come in waves.
//!
//! Every value is known three ways: as it is spelled in an event or a request, as JSON that reads back from its column, and as
//! [`alluvium_testkit::TableReader`] prints it.

use std::collections::{BTreeMap, BTreeSet};

use alluvium_core::{DatasetName, Delete, Id, JsonText, Op, Request, Scope, Subject};
use alluvium_testkit::OracleRow;
use chrono::DateTime;
use serde_json::{Value, json};

pub const DATASETS: [&str; 2] = ["call", "page"];
/// 2026-01-01T00:00:00Z; times are whole hours from here on, so that they tie.
const FIRST: i64 = 1_767_225_600_000_000;
const HOUR: i64 = 3_600_000_000;
const HOURS: u64 = 72;
const ORGS: [&str; 3] = ["00D1", "o/2 ü%20", "00D3"];

/// A value of a column: spelled, read back as JSON, printed; `None` is null.
pub struct Known {
    pub spelled: &'static str,
    pub json: &'static str,
    pub text: Option<&'static str>,
}

const fn known(spelled: &'static str, json: &'static str, text: Option<&'static str>) -> Known {
    Known { spelled, json, text }
}

const NULL: Known = known("null", "null", None);
const IPS: [Known; 3] = [NULL, known("\"10.0.0.1\"", "\"10.0.0.1\"", Some("10.0.0.1")), known("\"::1\"", "\"::1\"", Some("::1"))];
const NOTES: [Known; 4] = [
    NULL,
    known("\"\"", "\"\"", Some("")),
    known("\"a b\"", "\"a b\"", Some("a b")),
    known("\"ü☃\\\"q\\\\\"", "\"ü☃\\\"q\\\\\"", Some("ü☃\"q\\")),
];
const SIZES: [Known; 4] = [
    NULL,
    known("0", "0", Some("0")),
    known("-7", "-7", Some("-7")),
    known("9007199254740993", "9007199254740993", Some("9007199254740993")),
];
const METAS: [Known; 4] = [
    NULL,
    known("{\"a\":\"x\",\"b\":1}", "{\"a\":\"x\",\"b\":1}", Some("{a: \"x\", b: 1}")),
    known("{\"a\":\"y\"}", "{\"a\":\"y\",\"b\":null}", Some("{a: \"y\", b: null}")),
    known("{\"b\":2}", "{\"a\":null,\"b\":2}", Some("{a: null, b: 2}")),
];
const DUES: [Known; 2] = [NULL, known("\"2026-02-01\"", "\"2026-02-01\"", Some("2026-02-01"))];
const OKS: [Known; 3] = [NULL, known("true", "true", Some("true")), known("false", "false", Some("false"))];
const STAGES: [Known; 4] = [
    NULL,
    known("\"s 1\"", "\"s 1\"", Some("s 1")),
    known("\"s/2%\"", "\"s/2%\"", Some("s/2%")),
    known("\"ß\"", "\"ß\"", Some("ß")),
];
const SCORES: [Known; 3] = [NULL, known("1.5", "1.5", Some("1.5")), known("-0.250", "-0.25", Some("-0.25"))];
const TAGS: [Known; 4] = [
    NULL,
    known("[]", "[]", Some("[]")),
    known("[\"a\",\"b\"]", "[\"a\",\"b\"]", Some("[\"a\", \"b\"]")),
    known("[null]", "[null]", Some("[null]")),
];

/// The columns of both datasets that an update may set.
pub const COLUMNS: [&[(&str, &[Known])]; 2] = [
    &[("ip", &IPS), ("note", &NOTES), ("size", &SIZES), ("meta", &METAS), ("due", &DUES), ("ok", &OKS)],
    &[("ip", &IPS), ("stage", &STAGES), ("score", &SCORES), ("tags", &TAGS)],
];
pub const FIELDS: [[&str; 3]; 2] = [["lead", "user", "device"], ["lead", "user", "visitor"]];

/// What is known of a value that an event or a request spelled so.
pub fn value_of(dataset: usize, column: &str, spelled: &str) -> &'static Known {
    let (_, values) = COLUMNS[dataset].iter().find(|(name, _)| *name == column).unwrap();
    values.iter().find(|v| v.spelled == spelled).unwrap()
}

/// Whether an identity's ids are numbers.
pub fn is_number(dataset: usize, field: &str) -> bool {
    DATASETS[dataset] == "page" && field == "user"
}

/// Numbers that follow from a seed. SplitMix64, by Steele, Lea and Flood.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn percent(&mut self, times: usize) -> bool {
        self.below(100) < times
    }

    pub fn one_of<'a, T>(&mut self, options: &'a [T]) -> &'a T {
        &options[self.below(options.len())]
    }
}

/// How large a history is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Events a dataset.
    pub events: usize,
    pub requests: usize,
    pub waves: usize,
}

/// An event that fits.
pub struct Event {
    pub dataset: usize,
    /// File and line.
    pub place: (String, u64),
    pub row: OracleRow,
    /// Whether it has a field that nobody declared.
    pub more: bool,
}

/// A line of a file of requests, or submitted.
pub struct Sent {
    pub place: (String, u64),
    pub id: String,
    /// What it says, if it says anything that can be accepted.
    pub request: Option<Request>,
    /// Whether it is in a file: then it is taken once.
    pub in_file: bool,
}

/// What comes at once.
#[derive(Default)]
pub struct Wave {
    /// Directory in the inbox, name, text.
    pub files: Vec<(String, String, String)>,
    /// Source and lines.
    pub submitted: Vec<(String, String)>,
}

pub struct History {
    pub yaml: String,
    pub waves: Vec<Wave>,
    pub events: Vec<Event>,
    /// Dataset, file and line of events that do not fit.
    pub refused: BTreeSet<(usize, String, u64)>,
    pub sent: Vec<Sent>,
}

fn yaml(dice: &mut Dice, seed: u64) -> String {
    let layouts = ["[lead]", "[]", "[stage]", "[org_id, lead]"];
    let layout = layouts[(seed % 4) as usize];
    format!(
        "project: oracle
storage: ./lake
durability: process
datasets:
  call:
    source: {{ files: {{ path: ./inbox/call, format: json }} }}
    key: call_id
    org: org_id
    event_time: at
    fields:
      call_id: string
      org_id: {{ type: string, nullable: false }}
      at: timestamp
      lead: string
      user: string
      device: string
      ip: string
      note: string
      size: long
      meta: \"struct<a: string, b: long>\"
      due: date
      ok: boolean
    identities: [lead, {{ field: user, on_erase: clear, clear: [ip, note] }}, {{ field: device, on_erase: clear, clear: [note, size, meta] }}]
    layout: {{ partition_by: [org_id] }}
    batch: {{ max_rows: {} }}
  page:
    source: {{ files: {{ path: ./inbox/page, format: json }} }}
    org: org_id
    event_time: at
    fields:
      org_id: {{ type: string, nullable: false }}
      at: timestamp
      lead: string
      user: long
      visitor: string
      ip: string
      stage: string
      score: double
      tags: array<string>
    identities: [{{ field: lead, on_erase: clear, clear: [stage] }}, user, {{ field: visitor, on_erase: clear, clear: [] }}]
    layout: {{ partition_by: {layout} }}
    batch: {{ max_rows: {} }}
requests:
  source: {{ files: {{ path: ./inbox/requests, format: json }} }}
  max_attempts: 3
# All versions are looked at in the end.
erase: {{ purge_after: 400d }}
",
        17 + dice.below(40),
        17 + dice.below(40),
    )
}

struct Making {
    dice: Dice,
    pool: usize,
    numbers: usize,
}

impl Making {
    fn org(&mut self) -> String {
        (*self.dice.one_of(&ORGS)).to_owned()
    }

    fn hours(&mut self) -> i64 {
        FIRST + self.dice.below(HOURS as usize) as i64 * HOUR
    }

    /// An id of a field; a few of them come often.
    fn id(&mut self, field: &str) -> String {
        let n = if self.dice.percent(30) { self.dice.below(4) } else { self.dice.below(self.pool) };
        match field {
            "user" => n.to_string(),
            "lead" if n % 5 == 4 => format!("L/é %{n}"),
            "lead" => format!("L{n}"),
            "device" => format!("d{n}"),
            _ => format!("v \"{n}\""),
        }
    }

    fn event(&mut self, dataset: usize) -> (OracleRow, bool) {
        let ids = FIELDS[dataset].iter().map(|field| {
            let id = (!self.dice.percent(15)).then(|| self.id(field));
            // Texts that no number spells, and the empty one, which no request may name.
            let id = match id {
                Some(id) if *field == "user" && dataset == 0 && self.dice.percent(20) => Some(format!("u{id}")),
                Some(_) if *field == "device" && self.dice.percent(3) => Some(String::new()),
                id => id,
            };
            ((*field).to_owned(), id)
        });
        let ids = ids.collect();
        self.numbers += 1;
        let values =
            COLUMNS[dataset].iter().map(|(name, values)| ((*name).to_owned(), self.dice.one_of(values).spelled.to_owned()));
        let values = values.collect();
        // Two records may have the same key.
        let key = (dataset == 0).then(|| format!("c{}", self.numbers - usize::from(self.dice.percent(5))));
        (OracleRow { org: self.org(), ids, key, event_time: self.hours(), values }, self.dice.percent(10))
    }

    fn subject(&mut self, dataset: usize) -> Subject {
        let field = *self.dice.one_of(&FIELDS[dataset]);
        Subject { field: field.to_owned(), id: Id::new(&self.id(field)) }
    }

    fn set(&mut self, dataset: usize) -> BTreeMap<String, JsonText> {
        let columns = COLUMNS[dataset];
        (0..1 + self.dice.below(2))
            .map(|_| {
                let (name, values) = self.dice.one_of(columns);
                ((*name).to_owned(), JsonText::read(self.dice.one_of(values).spelled).unwrap())
            })
            .collect()
    }

    fn request(&mut self) -> Request {
        let dataset = match self.dice.below(10) {
            0 => Some(0),
            1 => Some(1),
            _ => None,
        };
        let of = dataset.unwrap_or_else(|| self.dice.below(2));
        let field = *self.dice.one_of(&FIELDS[of]);
        let (id, to) = (self.id(field), self.id(field));
        let op = match self.dice.below(100) {
            0..50 if id != to => Op::Convert { field: field.to_owned(), from: Id::new(&id), to: Id::new(&to) },
            0..74 => Op::Update { field: field.to_owned(), id: Id::new(&id), set: self.set(of) },
            _ => self.delete(dataset),
        };
        self.numbers += 1;
        Request {
            // Of equal times the order is that of ids, which is not that of arrival.
            id: format!("q{:03}-{}", self.dice.below(1000), self.numbers),
            org: self.org(),
            dataset: dataset.map(|at| DatasetName(DATASETS[at].to_owned())),
            execution_time: self.hours(),
            op,
        }
    }

    fn delete(&mut self, dataset: Option<usize>) -> Op {
        let mut until = if self.dice.percent(25) { Some(self.hours()) } else { None };
        let scope = match self.dice.below(40) {
            // What reaches far would leave nothing to look at.
            0 => {
                until = Some(FIRST + self.dice.below(6) as i64 * HOUR);
                Scope::Org
            }
            1 | 2 => Scope::Before(FIRST + self.dice.below(8) as i64 * HOUR),
            3..10 if dataset != Some(1) => Scope::Record(Id::new(&format!("c{}", 1 + self.dice.below(self.numbers + 1)))),
            _ => {
                let of = dataset.unwrap_or_else(|| self.dice.below(2));
                let subjects = (0..1 + self.dice.below(2)).map(|_| self.subject(of)).collect();
                Scope::Subject(subjects)
            }
        };
        let privacy = self.dice.percent(50);
        Op::Delete(Delete { scope, until, privacy })
    }
}

/// A time as a request or an event may spell it.
fn time(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).unwrap().format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// An event as its line.
fn line_of_event(dataset: usize, row: &OracleRow, more: bool) -> String {
    let mut object = json!({ "org_id": row.org, "at": time(row.event_time) });
    for (field, id) in &row.ids {
        object[field.as_str()] = match id {
            None => Value::Null,
            Some(id) if is_number(dataset, field) => Value::from(id.parse::<i64>().unwrap()),
            Some(id) => Value::from(id.as_str()),
        };
    }
    if let Some(key) = &row.key {
        object["call_id"] = Value::from(key.as_str());
    }
    if more {
        object["mood"] = Value::from("good");
    }
    let mut line = object.to_string();
    line.pop();
    for (column, spelled) in &row.values {
        line.push_str(&format!(",\"{column}\":{spelled}"));
    }
    line + "}"
}

/// A request as its line; `privacy` is spelled where it is not what is meant without it.
fn line_of_request(request: &Request) -> String {
    let mut object = json!({ "request_id": request.id, "org_id": request.org, "execution_time": time(request.execution_time) });
    if let Some(dataset) = &request.dataset {
        object["dataset"] = Value::from(dataset.0.as_str());
    }
    match &request.op {
        Op::Convert { field, from, to } => {
            object["op"] = "convert".into();
            object["field"] = field.as_str().into();
            object["from"] = from.as_str().into();
            object["to"] = to.as_str().into();
        }
        Op::Update { field, id, set } => {
            object["op"] = "update".into();
            object["field"] = field.as_str().into();
            object["id"] = id.as_str().into();
            let set: Vec<String> = set.iter().map(|(column, value)| format!("\"{column}\":{}", value.as_str())).collect();
            let mut line = object.to_string();
            line.pop();
            return format!("{line},\"set\":{{{}}}}}", set.join(","));
        }
        Op::Delete(delete) => {
            object["op"] = "delete".into();
            if let Some(until) = delete.until {
                object["until"] = time(until).into();
            }
            let private = matches!(delete.scope, Scope::Subject(_) | Scope::Org);
            if delete.privacy != private {
                object["privacy"] = delete.privacy.into();
            }
            match &delete.scope {
                Scope::Org => object["scope"] = "org".into(),
                Scope::Before(before) => {
                    object["scope"] = "before".into();
                    object["before"] = time(*before).into();
                }
                Scope::Record(key) => {
                    object["scope"] = "record".into();
                    object["id"] = key.as_str().into();
                }
                Scope::Subject(subjects) => {
                    object["scope"] = "subject".into();
                    if let Some(Subject { field, id }) = subjects.first().filter(|_| subjects.len() == 1) {
                        object["field"] = field.as_str().into();
                        object["id"] = id.as_str().into();
                    } else {
                        let all: Vec<Value> = subjects.iter().map(|s| json!({ "field": s.field, "id": s.id.as_str() })).collect();
                        object["subjects"] = all.into();
                    }
                }
            }
        }
    }
    object.to_string()
}

/// Lines that no declaration accepts.
const WRONG: [&str; 5] = [
    r#"{"request_id":"w1","org_id":"00D1","op":"convert","field":"nowhere","from":"1","to":"2","execution_time":"2026-01-01"}"#,
    r#"{"request_id":"w2","org_id":"00D1","op":"convert","field":"lead","from":"L1","to":"L1","execution_time":"2026-01-01"}"#,
    r#"{"request_id":"w3","org_id":"00D1","op":"update","field":"lead","id":"L1","set":{"user":"1"},"execution_time":"2026-01-01"}"#,
    r#"{"request_id":"w4","org_id":"00D1","op":"delete","scope":"record","dataset":"page","id":"c1","execution_time":"2026-01-01"}"#,
    "{\"request_id\":\"w5\"",
];

impl History {
    pub fn new(seed: u64, size: Size) -> Self {
        let mut dice = Dice(seed);
        let yaml = yaml(&mut dice, seed);
        let mut history = Self {
            yaml,
            waves: (0..size.waves).map(|_| Wave::default()).collect(),
            events: Vec::new(),
            refused: BTreeSet::new(),
            sent: Vec::new(),
        };
        let mut making = Making { dice, pool: (size.events / 12).max(8), numbers: 0 };
        for dataset in 0..2 {
            history.events_of(dataset, size, &mut making);
        }
        history.requests(size, &mut making);
        history
    }

    fn events_of(&mut self, dataset: usize, size: Size, making: &mut Making) {
        let (mut left, mut number) = (size.events, 0);
        while left > 0 {
            let lines = (1 + making.dice.below((size.events / 8).clamp(4, 60))).min(left);
            left -= lines;
            number += 1;
            let name = format!("{:04}-{number}.json", making.dice.below(10_000));
            let mut text = String::new();
            for offset in 0..lines as u64 {
                let (row, more) = making.event(dataset);
                let line = line_of_event(dataset, &row, more);
                if making.dice.percent(3) {
                    text.push_str(&line.replacen("\"org_id\"", "\"org\"", 1));
                    self.refused.insert((dataset, name.clone(), offset));
                } else {
                    text.push_str(&line);
                    self.events.push(Event { dataset, place: (name.clone(), offset), row, more });
                }
                text.push('\n');
            }
            // The last wave brings requests alone.
            let wave = making.dice.below(size.waves - 1);
            self.waves[wave].files.push((DATASETS[dataset].to_owned(), name, text));
        }
    }

    fn requests(&mut self, size: Size, making: &mut Making) {
        let (mut left, mut number) = (size.requests, 0);
        while left > 0 {
            let lines = (1 + making.dice.below((size.requests / 12).clamp(3, 60))).min(left);
            left -= lines;
            number += 1;
            let in_file = making.dice.percent(70);
            let name = format!("{:04}-{number}.json", making.dice.below(10_000));
            let mut text = String::new();
            for offset in 0..lines as u64 {
                let (line, id, request) = self.line(in_file, making);
                text.push_str(&line);
                text.push('\n');
                self.sent.push(Sent { place: (name.clone(), offset), id, request, in_file });
            }
            let wave = making.dice.below(size.waves);
            let wave = &mut self.waves[wave];
            if in_file {
                wave.files.push(("requests".to_owned(), name, text));
            } else {
                wave.submitted.push((name, text));
            }
        }
    }

    /// A line, its request's id, and the request if it is one: mostly new, sometimes one that was sent before, in files sometimes another
    /// of the same id, or none.
    fn line(&mut self, in_file: bool, making: &mut Making) -> (String, String, Option<Request>) {
        if in_file && making.dice.percent(3) {
            let wrong = *making.dice.one_of(&WRONG);
            return (wrong.to_owned(), String::new(), None);
        }
        let mut request = making.request();
        if !self.sent.is_empty() && making.dice.percent(5) {
            let before = making.dice.one_of(&self.sent).request.clone();
            if let Some(before) = before {
                if in_file && making.dice.percent(30) {
                    request.id = before.id;
                } else {
                    request = before;
                }
            }
        }
        (line_of_request(&request), request.id.clone(), Some(request))
    }
}
