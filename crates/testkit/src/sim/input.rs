//! The records that a world takes in, and what must become of each: the oracle. It shares no code with the product.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, FileTimes};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::dice::Dice;
use crate::check::Landed;
use crate::table::{Fault, Row};

const ORGS: [&str; 3] = ["a/b c", "b%20", "ç"];

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
}

/// The declaration that ingest goes by, and the mended one that replays do.
pub(super) fn declaration(source: &str, max_rows: u64, mended: bool) -> String {
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
    fields: {{ org: string, at: timestamp, {n}, lead: string }}
    identities: [lead]
    layout: {{ partition_by: [org] }}
    batch: {{ max_rows: {max_rows} }}
"
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
        Self { name: format!("{:02}-{number}.json", dice.below(100)), records, comes_ms, gap_after: 0 }
    }

    /// Where record `i` stands: its number in a file, its offset in a partition.
    pub(super) fn offset(&self, i: usize) -> usize {
        i + i.checked_div(self.gap_after).unwrap_or(0)
    }

    /// Record `i` as it is written.
    pub(super) fn line(&self, i: usize) -> String {
        let (org, day) = (ORGS[i % 3], 1 + i % 2);
        let lead = format!("{}-{i}", self.name);
        match self.records[i] {
            Sort::Fits => format!(r#"{{"org":"{org}","at":"2026-01-0{day}T23:59:59.5Z","n":{i},"lead":"{lead}"}}"#),
            Sort::Rescued => {
                format!(r#"{{"org":"{org}","at":"2026-01-0{day}T23:59:59.5Z","n":{i},"lead":"{lead}","mood":"good"}}"#)
            }
            Sort::Refused => format!(r#"{{"org":"{org}","at":"2026-01-0{day}T23:59:59.5Z","n":"many","lead":"{lead}"}}"#),
            Sort::Hopeless => format!("no json {lead}"),
        }
    }

    /// The row that record `i` must become.
    pub(super) fn row(&self, i: usize) -> Row {
        let (org, day) = (ORGS[i % 3], 1 + i % 2);
        let mut row = BTreeMap::from([
            ("org".to_owned(), org.to_owned()),
            ("at".to_owned(), format!("2026-01-0{day}T23:59:59.500000Z")),
            ("event_date".to_owned(), format!("2026-01-0{day}")),
            ("lead".to_owned(), format!("{}-{i}", self.name)),
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
        let inbox = directory.join("inbox");
        fs::create_dir_all(&inbox)?;
        let text: String = (0..self.records.len()).map(|i| self.line(i) + "\n").collect();
        let unfinished = inbox.join(format!("{}.tmp", self.name));
        fs::write(&unfinished, text)?;
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_225_600_000 + self.comes_ms);
        fs::File::options().write(true).open(&unfinished)?.set_times(FileTimes::new().set_modified(time))?;
        fs::rename(unfinished, inbox.join(&self.name))
    }
}

/// Every record of `files` is exactly one row with the values its line says, or exactly one dead letter with the whole line.
/// `replayed`: what the mended declaration takes must have become rows.
pub(super) fn check(files: &[SourceFile], landed: &Landed, replayed: bool) -> Result<(), Fault> {
    let mut rows: BTreeMap<(String, String), &Row> = BTreeMap::new();
    for row in &landed.rows {
        rows.insert((row["_source"].clone(), row["_offset"].clone()), row);
    }
    let mut letters: BTreeMap<(String, String), &Row> = BTreeMap::new();
    for letter in &landed.dead_letters {
        letters.insert((letter["source"].clone(), letter["position"].clone()), letter);
    }
    for file in files {
        for (i, sort) in file.records.iter().enumerate() {
            let at = (file.name.clone(), file.offset(i).to_string());
            let is_letter = *sort == Sort::Hopeless || (*sort == Sort::Refused && !replayed);
            match (is_letter, rows.remove(&at), letters.remove(&at)) {
                (false, Some(row), None) if *row == file.row(i) => {}
                (true, None, Some(letter)) => {
                    let raw: String = file.line(i).bytes().map(|b| format!("{b:02x}")).collect();
                    if letter.get("raw") != Some(&raw) {
                        return Err(format!("the dead letter of record {i} of {} is not its line: {letter:?}", file.name));
                    }
                }
                (false, Some(row), None) => {
                    return Err(format!("record {i} of {} should be {:?}, it is {row:?}", file.name, file.row(i)));
                }
                (_, None, None) => {
                    return Err(format!("no_lost_row: record {i} of {} is neither row nor dead letter", file.name));
                }
                (_, row, letter) => {
                    let (row, letter) = (row.is_some(), letter.is_some());
                    return Err(format!("record {i} of {} ({sort:?}): is a row {row}, a dead letter {letter}", file.name));
                }
            }
        }
    }
    let left: BTreeSet<_> = rows.into_keys().chain(letters.into_keys()).collect();
    match left.first() {
        Some((file, i)) => Err(format!("record {i} of {file} landed and was never there")),
        None => Ok(()),
    }
}
