//! A chunk of JSON lines into rows and refusals.

use super::cell::Slots;
use super::json::{JsonReader, Stop};
use super::last_keys::last_of_each_key;
use super::message::Around;
use super::plan::Plan;
use super::rows::{Refusal, Rows};
use crate::source::split::MAX_RECORD_BYTES;

/// Decodes JSON lines; `first` is the number of the first. A line is passed over when only white space stands in it.
pub(crate) fn json_lines(plan: &Plan, first: u64, bytes: &[u8], rows: &mut Rows<'_>) {
    let mut reader = JsonReader::new(plan);
    // Nearly always all of a chunk is UTF-8 and is looked at once; else every line for itself.
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            let mut slots = Slots::new(plan.cells);
            let mut record = first;
            let mut start = 0;
            while start < text.len() {
                let end = memchr::memchr(b'\n', &bytes[start..]).map_or(text.len(), |at| start + at);
                let next = text.len().min(end + 1);
                if next - start > MAX_RECORD_BYTES {
                    rows.refuse_too_long(record, &bytes[start..next], (next - start) as u64);
                } else {
                    json_record(&mut reader, record, &text[start..end], &mut slots, rows);
                }
                record += 1;
                start = next;
            }
        }
        Err(_) => {
            for (record, whole) in (first..).zip(bytes.split_inclusive(|&b| b == b'\n')) {
                let line = whole.strip_suffix(b"\n").unwrap_or(whole);
                match std::str::from_utf8(line) {
                    _ if whole.len() > MAX_RECORD_BYTES => rows.refuse_too_long(record, whole, whole.len() as u64),
                    Ok(text) => json_record(&mut reader, record, text, &mut Slots::new(plan.cells), rows),
                    Err(_) => rows.refuse(record, without_return(line), ("not UTF-8".to_owned(), None)),
                }
            }
        }
    }
}

/// Decodes one record.
#[inline]
fn json_record<'a>(reader: &mut JsonReader<'_>, record: u64, line: &'a str, slots: &mut Slots<'a>, rows: &mut Rows<'_>) {
    slots.clear();
    let refusal = match reader.record(line, slots) {
        Ok(()) => rows.append(record, slots).err(),
        Err(stop) => slow_record(reader, record, line, slots.cells.len(), stop, None, rows),
    };
    if let Some(refusal) = refusal {
        rows.refuse(record, without_return(line.as_bytes()), refusal);
    }
}

/// Decodes the value of a Kafka message; what the columns take from around it was found before.
pub(crate) fn json_message<'a>(
    reader: &mut JsonReader<'_>,
    record: u64,
    value: &'a str,
    around: Option<&Around<'_>>,
    slots: &mut Slots<'a>,
    rows: &mut Rows<'_>,
) -> Option<Refusal> {
    slots.clear();
    match reader.record(value, slots) {
        Ok(()) => {
            if let Some(around) = around {
                around.fill(slots);
            }
            rows.append(record, slots).err()
        }
        Err(stop) => slow_record(reader, record, value, slots.cells.len(), stop, around, rows),
    }
}

/// What becomes of a record that was not read to its end at first.
#[cold]
fn slow_record(
    reader: &mut JsonReader<'_>,
    record: u64,
    line: &str,
    cells: usize,
    stop: Stop,
    around: Option<&Around<'_>>,
    rows: &mut Rows<'_>,
) -> Option<Refusal> {
    if line.bytes().all(|b| matches!(b, b' ' | b'\t' | b'\r')) {
        return None;
    }
    let reason = match stop {
        Stop::Syntax(syntax) => syntax.to_string(),
        Stop::NotAnObject => "not a JSON object".to_owned(),
        Stop::KeyTwice => match last_of_each_key(line) {
            Err(syntax) => syntax.to_string(),
            Ok(text) => {
                let mut slots = Slots::new(cells);
                match reader.record(&text, &mut slots) {
                    Ok(()) => {
                        if let Some(around) = around {
                            around.fill(&mut slots);
                        }
                        return rows.append(record, &slots).err();
                    }
                    Err(Stop::Syntax(syntax)) => syntax.to_string(),
                    Err(_) => "a key of a map is given twice".to_owned(),
                }
            }
        },
    };
    Some((reason, None))
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
