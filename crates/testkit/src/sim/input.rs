//! The records that a world takes in, and what must become of each: the oracle. It shares no code with the product.

use std::collections::BTreeMap;
use std::fs::{self, FileTimes};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use chrono::DateTime;

use super::dice::{Dice, hash};
use super::plan::Plan;
use crate::check::Landed;
use crate::oracle::OracleRow;
use crate::table::{Fault, Row};

pub(super) const ORGS: [&str; 3] = ["a/b c", "b%20", "ç"];
/// 2026-01-01T00:00:00Z.
pub(super) const FIRST_DAY_MICROS: i64 = 1_767_225_600_000_000;
const DAY_MICROS: i64 = 86_400_000_000;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// It fits.
    Fits,
    /// It fits, and has a field that nobody declared.
    Rescued,
    /// A field does not fit; the mended declaration takes it.
    Refused,
    /// No declaration makes a row of it.
    Hopeless,
}

/// A file of a source, or a partition of a topic.
#[derive(Debug, Clone)]
pub(super) struct SourceFile {
    pub(super) name: String,
    pub(super) records: Vec<Sort>,
    /// When it comes, in milliseconds; of a partition, when its first record does.
    pub(super) comes_ms: u64,
    /// Of a partition: after so many records comes an offset that holds none; 0: never.
    pub(super) gap_after: usize,
    /// Tells its records from those of another file, or partition, of the same name.
    pub(super) mark: &'static str,
    /// Its records hold ids that requests are about.
    pub(super) people: bool,
}

/// What must have come of a file.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) file: SourceFile,
    /// Of each record, whether it must be a row or a dead letter; else it must be neither.
    pub(super) taken: Vec<bool>,
}

impl Expected {
    pub(super) fn all(file: &SourceFile) -> Self {
        Self { file: file.clone(), taken: vec![true; file.records.len()] }
    }
}

/// The declaration that ingest goes by, and the mended one that replays do.
pub(super) fn declaration(plan: &Plan, mended: bool) -> String {
    let (source, max_rows, requests) = (plan.source(), plan.max_rows, plan.requests.as_ref());
    let vacuum_after_ms = plan.vacuum_after_ms;
    let by = requests.map_or("org", |requests| requests.partition_by);
    let (people, identities, more) = match requests {
        None => ("", "identities: [lead]", ""),
        Some(_) => (
            ", who: string, dev: string, note: string",
            "key: lead\n    identities: [who, { field: dev, on_erase: clear, clear: [note] }]",
            "requests: { source: { files: { path: ./asked, format: json } }, max_attempts: 2 }\n",
        ),
    };
    let n = if mended { "n: { type: long, from: number }, n_text: { type: string, from: n }" } else { "n: long" };
    format!(
        "project: sim
storage: ./lake
durability: process
datasets:
  edit:
    source: {{ {source} }}
    org: org
    event_time: at
    fields: {{ org: string, at: timestamp, {n}, lead: string{people} }}
    {identities}
    layout: {{ partition_by: [{by}] }}
    batch: {{ max_rows: {max_rows} }}
maintenance: {{ vacuum_after: {vacuum_after_ms}ms }}
{more}"
    )
}

impl SourceFile {
    pub(super) fn roll(dice: &mut Dice, number: usize, most_records: u64, comes_ms: u64) -> Self {
        let count = dice.between(0, most_records);
        let sort = |dice: &mut Dice| match dice.below(10) {
            0..=5 => Sort::Fits,
            6 => Sort::Rescued,
            7 | 8 => Sort::Refused,
            _ => Sort::Hopeless,
        };
        let records = (0..count).map(|_| sort(dice)).collect();
        // Names need not sort as the files come.
        Self { name: format!("{:02}-{number}.json", dice.below(100)), records, comes_ms, gap_after: 0, mark: "", people: false }
    }

    /// The partition in its place once the topic was made anew.
    pub(super) fn roll_anew(&self, dice: &mut Dice, comes_ms: u64) -> Self {
        let later_ms = dice.of_any_size(0, 0, 14);
        let fresh = Self::roll(dice, 0, 12, comes_ms + later_ms);
        Self { name: self.name.clone(), gap_after: dice.one_of(&[0, 0, 1, 3]), mark: "+", ..fresh }
    }

    /// Where record `i` stands: its number in a file, its offset in a partition.
    pub(super) fn offset(&self, i: usize) -> usize {
        i + i.checked_div(self.gap_after).unwrap_or(0)
    }

    /// What no other record has.
    pub(super) fn lead(&self, i: usize) -> String {
        format!("{}{}-{i}", self.name, self.mark)
    }

    /// The dead letter's bytes that record `i` becomes, if it becomes one.
    pub(super) fn raw(&self, i: usize) -> String {
        self.line(i).bytes().map(|b| format!("{b:02x}")).collect()
    }

    /// Record `i` as it is written.
    pub(super) fn line(&self, i: usize) -> String {
        let (org, day) = (ORGS[i % 3], 1 + i % 2);
        let lead = self.lead(i);
        let mut more = String::new();
        if let Some(OracleRow { ids, values, .. }) = self.people.then(|| self.source_row(i)) {
            for (field, id) in ids {
                more += &id.map_or_else(|| format!(r#","{field}":null"#), |id| format!(r#","{field}":"{id}""#));
            }
            more.extend(values.iter().map(|(column, value)| format!(r#","{column}":{value}"#)));
        }
        match self.records[i] {
            Sort::Fits => format!(r#"{{"org":"{org}","at":"2026-01-0{day}T23:59:59.5Z","n":{i},"lead":"{lead}"{more}}}"#),
            Sort::Rescued => {
                format!(r#"{{"org":"{org}","at":"2026-01-0{day}T23:59:59.5Z","n":{i},"lead":"{lead}"{more},"mood":"good"}}"#)
            }
            Sort::Refused => {
                format!(r#"{{"org":"{org}","at":"2026-01-0{day}T23:59:59.5Z","n":"many","lead":"{lead}"{more}}}"#)
            }
            Sort::Hopeless => format!("no json {lead}"),
        }
    }

    /// What the oracle of requests asks of record `i`, of a file whose records hold ids.
    pub(super) fn source_row(&self, i: usize) -> OracleRow {
        let some = |field: &str, most: u64| match hash(&(&self.name, i, field)) % (most + 1) {
            0 => None,
            number => Some(format!("{}{number}", &field[..1])),
        };
        OracleRow {
            org: ORGS[i % 3].to_owned(),
            ids: BTreeMap::from([("who".to_owned(), some("who", 4)), ("dev".to_owned(), some("dev", 2))]),
            key: Some(self.lead(i)),
            event_time: FIRST_DAY_MICROS + i64::from(i % 2 == 1) * DAY_MICROS + DAY_MICROS - 500_000,
            values: BTreeMap::from([("note".to_owned(), format!("\"note {}\"", i % 2))]),
        }
    }

    /// The row that record `i` must become, but for ids that requests are about.
    pub(super) fn row(&self, i: usize) -> Row {
        let (org, day) = (ORGS[i % 3], 1 + i % 2);
        let mut row = BTreeMap::from([
            ("org".to_owned(), org.to_owned()),
            ("at".to_owned(), format!("2026-01-0{day}T23:59:59.500000Z")),
            ("event_date".to_owned(), format!("2026-01-0{day}")),
            ("lead".to_owned(), self.lead(i)),
            ("_source".to_owned(), self.name.clone()),
            ("_offset".to_owned(), self.offset(i).to_string()),
        ]);
        match self.records[i] {
            Sort::Refused => {
                row.insert("n_text".to_owned(), "many".to_owned());
            }
            sort => {
                row.insert("n".to_owned(), i.to_string());
                if sort == Sort::Rescued {
                    row.insert("_rescued".to_owned(), r#"{"mood":"good"}"#.to_owned());
                }
            }
        }
        row
    }

    /// Puts the file into the inbox, whole, with a time that is the same in every run.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let text: String = (0..self.records.len()).map(|i| self.line(i) + "\n").collect();
        put_file(&directory.join("inbox"), &self.name, &text, self.comes_ms)
    }
}

/// Puts a file into a directory, whole, with a time that is the same in every run.
pub(super) fn put_file(directory: &Path, name: &str, text: &str, comes_ms: u64) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let unfinished = directory.join(format!("{name}.tmp"));
    fs::write(&unfinished, text)?;
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_225_600_000 + comes_ms);
    fs::File::options().write(true).open(&unfinished)?.set_times(FileTimes::new().set_modified(time))?;
    fs::rename(unfinished, directory.join(name))
}

/// A time as the tables' reader prints it.
pub(super) fn time(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).map_or_else(String::new, |at| at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

/// The rows and dead letters of a world, by source, place, and what tells records of one place apart.
pub(super) struct ByPlace<'a> {
    rows: BTreeMap<(&'a str, String, &'a str), &'a Row>,
    letters: BTreeMap<(&'a str, String, &'a str), &'a Row>,
}

impl<'a> ByPlace<'a> {
    pub(super) fn of(landed: &'a Landed) -> Self {
        let by = |rows: &'a [Row], source: &str, place: &str, apart: &str| {
            let of = |row: &'a Row, name: &str| row.get(name).map_or("", String::as_str);
            rows.iter().map(|row| ((of(row, source), of(row, place).to_owned(), of(row, apart)), row)).collect()
        };
        Self {
            rows: by(&landed.rows, "_source", "_offset", "lead"),
            letters: by(&landed.dead_letters, "source", "position", "raw"),
        }
    }

    /// Takes out the row and the dead letter of record `i`.
    fn take(&mut self, file: &'a SourceFile, i: usize, lead: &'a str, raw: &'a str) -> (Option<&'a Row>, Option<&'a Row>) {
        let place = file.offset(i).to_string();
        (self.rows.remove(&(&file.name, place.clone(), lead)), self.letters.remove(&(&file.name, place, raw)))
    }

    /// Of each record, whether it is a row or a dead letter.
    pub(super) fn taken(&self, file: &SourceFile) -> Vec<bool> {
        let is = |i: usize| {
            let (place, lead, raw) = (file.offset(i).to_string(), file.lead(i), file.raw(i));
            let of: &str = &file.name;
            self.rows.keys().any(|(source, at, apart)| *source == of && *at == place && *apart == lead)
                || self.letters.keys().any(|(source, at, apart)| *source == of && *at == place && *apart == raw)
        };
        (0..file.records.len()).map(is).collect()
    }
}

/// Every record that must have been taken is exactly one row with the values its line says, or exactly one dead letter with the
/// whole line, and nothing else is there. `replayed`: what the mended declaration takes must have become rows.
pub(super) fn check(files: &[Expected], landed: &Landed, replayed: bool) -> Result<(), Fault> {
    let apart: Vec<Vec<(String, String)>> =
        files.iter().map(|f| (0..f.taken.len()).map(|i| (f.file.lead(i), f.file.raw(i))).collect()).collect();
    let mut there = ByPlace::of(landed);
    for (Expected { file, taken }, apart) in files.iter().zip(&apart) {
        for (i, (sort, taken)) in file.records.iter().zip(taken).enumerate() {
            let is_letter = *sort == Sort::Hopeless || (*sort == Sort::Refused && !replayed);
            let at = || format!("record {i} of {}{}", file.name, file.mark);
            match (taken, is_letter, there.take(file, i, &apart[i].0, &apart[i].1)) {
                (true, false, (Some(row), None)) if *row == file.row(i) => {}
                (true, true, (None, Some(_))) | (false, _, (None, None)) => {}
                (true, false, (Some(row), None)) => {
                    return Err(format!("{} should be {:?}, it is {row:?}", at(), file.row(i)));
                }
                (true, _, (None, None)) => {
                    return Err(format!("no_lost_row: {} is neither row nor dead letter", at()));
                }
                (taken, _, (row, letter)) => {
                    let (row, letter) = (row.is_some(), letter.is_some());
                    let must = if *taken { "must be taken" } else { "counts as lost" };
                    return Err(format!("{} ({sort:?}) {must}: is a row {row}, a dead letter {letter}", at()));
                }
            }
        }
    }
    let mut left: Vec<_> = there.rows.into_keys().chain(there.letters.into_keys()).collect();
    left.sort();
    match left.first() {
        Some((file, i, apart)) => Err(format!("record {i} of {file} ({apart}) landed and was never there, or is not as it was")),
        None => Ok(()),
    }
}
