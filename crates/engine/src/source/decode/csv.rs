//! A chunk of comma-separated values into rows and refusals.
//!
//! An empty field without quotes is null. An empty field in quotes is an empty string in a `string` column and null in others.
//! Structs, arrays and maps stand as JSON texts.

use alluvium_core::{DataType, Field as Column};

use super::cell::{Cell, Slots};
use super::convert::{Kind, Unfit};
use super::json::Stop;
use super::last_keys::last_of_each_key;
use super::plan::Plan;
use super::rows::{Refusal, Rows};
use super::scan::Scanner;
use super::value::column_value;
use crate::source::split::MAX_RECORD_BYTES;
use crate::source::split::csv::{Broken, End, Header, field, is_blank};

/// The text of a field: a part of the record, or of the texts that had to be changed.
#[derive(Clone, Copy)]
struct Text {
    start: usize,
    end: usize,
    quoted: bool,
    changed: bool,
    /// A JSON text of which only the last of each key is left.
    last_keys: bool,
}

/// Decodes the records of one chunk.
struct CsvReader<'p> {
    plan: &'p Plan,
    header: &'p Header,
    /// The declared columns that take each column of the file.
    takers: Vec<Vec<usize>>,
    texts: Vec<Text>,
    changed: String,
    spare: Slots<'static>,
}

/// Decodes whole records; `first` is the number of the first.
pub(crate) fn records(plan: &Plan, header: &Header, first: u64, bytes: &[u8], rows: &mut Rows<'_>) {
    let from: Vec<String> = plan.columns.iter().map(|c| c.from.join(".")).collect();
    let takers = header.names.iter().map(|name| (0..from.len()).filter(|&c| from[c] == *name).collect()).collect();
    let spare = Slots::new(plan.cells);
    let mut reader = CsvReader { plan, header, takers, texts: Vec::new(), changed: String::new(), spare };
    let all_utf8 = std::str::from_utf8(bytes).ok();
    let mut record = first;
    let mut start = 0;
    while start < bytes.len() {
        let (end, broken) = reader.split(bytes, start);
        if !reader.texts.is_empty() || broken.is_some() {
            let text = match all_utf8 {
                Some(text) => text.get(start..end),
                None => std::str::from_utf8(&bytes[start..end]).ok(),
            };
            let outcome = match (broken, text) {
                _ if end - start > MAX_RECORD_BYTES => {
                    rows.refuse_too_long(record, &bytes[start..end], (end - start) as u64);
                    Ok(())
                }
                (Some(Broken::Open), _) => Err(("a quote is not closed".to_owned(), None)),
                (Some(Broken::BehindQuote), _) => Err(("something stands behind a closing quote".to_owned(), None)),
                (None, None) => Err(("not UTF-8".to_owned(), None)),
                (None, Some(text)) => reader.record(text, record, rows),
            };
            if let Err(refusal) = outcome {
                rows.refuse(record, without_line_end(&bytes[start..end]), refusal);
            }
            record += 1;
        }
        start = end;
    }
}

impl CsvReader<'_> {
    /// Finds the fields of the record at `start`, their places counted from there; gives its end. A blank line has none.
    fn split(&mut self, bytes: &[u8], start: usize) -> (usize, Option<Broken>) {
        self.texts.clear();
        let mut broken = None;
        let mut at = start;
        loop {
            let (found, end) = field(bytes, at);
            match found {
                Ok(f) => self.texts.push(Text {
                    start: f.start - start,
                    end: f.end - start,
                    quoted: f.quoted,
                    changed: f.doubled,
                    last_keys: false,
                }),
                Err(why) => broken = broken.or(Some(why)),
            }
            let end = match end {
                End::Comma(next) => {
                    at = next;
                    continue;
                }
                End::Line(next) => next,
                End::Input => bytes.len(),
            };
            if at == start && is_blank(found) {
                self.texts.clear();
            }
            return (end, broken);
        }
    }

    /// Reads the record `text`, whose fields were found, and appends it.
    fn record(&mut self, text: &str, record: u64, rows: &mut Rows<'_>) -> Result<(), Refusal> {
        if self.texts.len() != self.header.names.len() {
            let reason = format!("the record has {} fields, the header {}", self.texts.len(), self.header.names.len());
            return Err((reason, None));
        }
        self.changed.clear();
        for field in self.texts.iter_mut().filter(|f| f.changed) {
            let start = self.changed.len();
            for (i, part) in text[field.start..field.end].split("\"\"").enumerate() {
                self.changed.push_str(if i > 0 { "\"" } else { "" });
                self.changed.push_str(part);
            }
            (field.start, field.end) = (start, self.changed.len());
        }
        loop {
            let mut slots = std::mem::take(&mut self.spare).reuse();
            let outcome = self.fill(text, &mut slots).map(|()| rows.append(record, &slots));
            self.spare = slots.reuse();
            let field = match outcome {
                Ok(outcome) => return outcome,
                Err(field) => field,
            };
            // The JSON text of this field gives a key twice.
            let json = last_of_each_key(self.text(text, field)).unwrap_or_default();
            let start = self.changed.len();
            self.changed.push_str(&json);
            self.texts[field] = Text { start, end: self.changed.len(), quoted: true, changed: true, last_keys: true };
        }
    }

    fn text<'a>(&'a self, record: &'a str, field: usize) -> &'a str {
        let Text { start, end, changed, .. } = self.texts[field];
        if changed { &self.changed[start..end] } else { &record[start..end] }
    }

    /// Reads all fields into cells; fails with the number of one whose JSON text gives a key twice.
    fn fill<'a>(&'a self, record: &'a str, slots: &mut Slots<'a>) -> Result<(), usize> {
        for (at, takers) in self.takers.iter().enumerate() {
            let Text { quoted, last_keys, .. } = self.texts[at];
            let text = self.text(record, at);
            if takers.is_empty() && (quoted || !text.is_empty()) {
                slots.rescued.text_member(&self.header.names[at], text);
            }
            for &column in takers {
                let cell = self.cell(&self.plan.columns[column], quoted, text, slots);
                slots.cells[column] = match cell {
                    Ok(cell) => cell,
                    Err(Stop::KeyTwice) if !last_keys => return Err(at),
                    Err(Stop::KeyTwice) => Cell::Unfit(Unfit::KeyTwice),
                    Err(Stop::Syntax(_) | Stop::NotAnObject) => Cell::Unfit(Unfit::NotJson),
                };
            }
        }
        Ok(())
    }

    fn cell<'a>(&self, column: &Column, quoted: bool, text: &'a str, slots: &mut Slots<'a>) -> Result<Cell<'a>, Stop> {
        if text.is_empty() {
            return Ok(if quoted && column.data_type == DataType::String { Cell::Text("") } else { Cell::Null });
        }
        if column.data_type.is_primitive() {
            return Ok(slots.simple(&column.data_type, column.unit, Kind::String, text));
        }
        let mut scanner = Scanner::new(text);
        let cell = column_value(column, 0, &mut scanner, slots)?;
        scanner.finish()?;
        Ok(cell)
    }
}

fn without_line_end(record: &[u8]) -> &[u8] {
    match record.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => record,
    }
}
