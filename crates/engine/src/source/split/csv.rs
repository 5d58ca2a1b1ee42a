//! Where fields and records of comma-separated values begin and end (RFC 4180).
//!
//! Shared by the splitter, which looks for records, and the decoder, which looks for fields. A record ends with a line feed, or
//! a carriage return and a line feed, outside quotes; a carriage return alone is data. A quote inside an unquoted field is data.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::Content;
use super::input::{Blocks, Content as FileContent, ReadFault};
use super::lines::{Framing, Lines, PassState, Taken};
use alluvium_core::FileCursor;

/// The names of a file's columns, in order.
#[derive(Debug)]
pub(crate) struct Header {
    pub names: Vec<String>,
    /// The header line as it stands, without the line's end.
    pub line: String,
}

/// Where a field stands, without its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    pub start: usize,
    pub end: usize,
    pub quoted: bool,
    /// Quotes inside are doubled.
    pub doubled: bool,
}

/// What ends a field, and the place behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Comma(usize),
    Line(usize),
    Input,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Its quotes are not closed before the input ends.
    Open,
    /// Something stands between its closing quote and its end.
    BehindQuote,
}

/// The field at `at` and what ends it.
#[inline]
pub(crate) fn field(bytes: &[u8], at: usize) -> (Result<Field, Broken>, End) {
    if bytes.get(at) != Some(&b'"') {
        let (end, ends) = unquoted_end(bytes, at);
        return (Ok(Field { start: at, end, quoted: false, doubled: false }), ends);
    }
    let start = at + 1;
    let mut from = start;
    let mut doubled = false;
    loop {
        let Some(quote) = memchr::memchr(b'"', bytes.get(from..).unwrap_or_default()) else {
            return (Err(Broken::Open), End::Input);
        };
        let quote = from + quote;
        if bytes.get(quote + 1) == Some(&b'"') {
            doubled = true;
            from = quote + 2;
            continue;
        }
        let (end, ends) = unquoted_end(bytes, quote + 1);
        let field =
            if end == quote + 1 { Ok(Field { start, end: quote, quoted: true, doubled }) } else { Err(Broken::BehindQuote) };
        return (field, ends);
    }
}

/// Where an unquoted text ends, without the line's end, and what ends it.
#[inline]
fn unquoted_end(bytes: &[u8], at: usize) -> (usize, End) {
    let without_return = |end: usize| if end > at && bytes[end - 1] == b'\r' { end - 1 } else { end };
    match memchr::memchr2(b',', b'\n', &bytes[at..]) {
        Some(found) if bytes[at + found] == b',' => (at + found, End::Comma(at + found + 1)),
        Some(found) => (without_return(at + found), End::Line(at + found + 1)),
        None => (without_return(bytes.len()), End::Input),
    }
}

/// Where the record at `at` ends, line's end included, and whether it is a blank line. `None`: it may go on behind the input.
fn record_end(bytes: &[u8], at: usize, ended: bool) -> Option<(usize, bool)> {
    let mut from = at;
    loop {
        match field(bytes, from) {
            (_, End::Comma(next)) => from = next,
            (field, End::Line(next)) => return Some((next, from == at && is_blank(field))),
            (field, End::Input) if ended => return Some((bytes.len(), from == at && is_blank(field))),
            (_, End::Input) => return None,
        }
    }
}

/// Whether a record of this one field is a blank line.
pub(crate) fn is_blank(field: Result<Field, Broken>) -> bool {
    field.is_ok_and(|f| !f.quoted && f.start == f.end)
}

/// Records of a file with this header.
pub(super) struct CsvRecords {
    pub(super) header: Arc<Header>,
}

impl Framing for CsvRecords {
    fn take(&self, bytes: &[u8], max_records: u64, max_bytes: usize, ended: bool) -> Taken {
        let mut taken = Taken { records: 0, bytes: 0 };
        while taken.records < max_records && taken.bytes < bytes.len() {
            let Some((end, blank)) = record_end(bytes, taken.bytes, ended) else { break };
            if end > max_bytes && taken.bytes > 0 {
                break;
            }
            taken.bytes = end;
            taken.records += u64::from(!blank);
        }
        taken
    }

    fn pass(&self, state: &mut PassState, bytes: &[u8]) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                // A doubled quote closes and opens again, which comes to the same.
                b'"' if state.quoted => state.quoted = false,
                b'"' if !state.in_field || state.was_quoted => {
                    state.quoted = true;
                    state.was_quoted = true;
                    state.in_field = true;
                }
                _ if state.quoted => {}
                b'\n' => return Some(at + 1),
                b',' => *state = PassState::default(),
                _ => {
                    state.in_field = true;
                    state.was_quoted = false;
                }
            }
        }
        None
    }

    fn content(&self, bytes: Bytes) -> Content {
        Content::Csv { header: Arc::clone(&self.header), bytes }
    }
}

/// Opens a file: its header is read from its beginning, its records from `from` on.
pub(super) fn open(content: FileContent, from: FileCursor) -> Result<Lines<CsvRecords>, ReadFault> {
    let mut blocks = Blocks::new(content);
    let mut cursor = FileCursor { record: 0, byte: blocks.pass_bom().map_err(ReadFault::Io)? };
    let header = loop {
        let Blocks { block, ended, fault, .. } = &mut blocks;
        match record_end(block, 0, *ended && fault.is_none()) {
            Some((0, _)) => break Header { names: Vec::new(), line: String::new() },
            Some((end, true)) => {
                block.advance(end);
                cursor.byte += end as u64;
            }
            Some((end, false)) => {
                let header = header(&block[..end]).map_err(ReadFault::Content)?;
                block.advance(end);
                cursor.byte += end as u64;
                break header;
            }
            None if *ended => {
                let reason = fault.take().unwrap_or_else(|| "the header line has no end".to_owned());
                return Err(ReadFault::Content(reason));
            }
            None if block.len() > super::MAX_RECORD_BYTES => {
                return Err(ReadFault::Content("the header line is too long".to_owned()));
            }
            None => blocks.read_more(1 << 16).map_err(ReadFault::Io)?,
        }
    };
    if from.byte > cursor.byte {
        blocks.skip(from.byte - cursor.byte)?;
        cursor = from;
    }
    Ok(Lines { blocks, cursor, framing: CsvRecords { header: Arc::new(header) } })
}

fn header(record: &[u8]) -> Result<Header, String> {
    let text = std::str::from_utf8(record).map_err(|_| "the header line is not UTF-8".to_owned())?;
    let mut names = Vec::new();
    let mut seen = HashSet::new();
    let mut at = 0;
    loop {
        let (field, end) = field(record, at);
        let Ok(field) = field else { return Err("the quotes of the header line are broken".to_owned()) };
        let name = &text[field.start..field.end];
        let name = if field.doubled { name.replace("\"\"", "\"") } else { name.to_owned() };
        if name.contains('\r') && !field.quoted {
            return Err("the header line holds a carriage return without a line feed".to_owned());
        }
        if !seen.insert(name.clone()) {
            return Err(format!("the header line names the column {name:?} twice"));
        }
        names.push(name);
        match end {
            End::Comma(next) => at = next,
            End::Line(_) | End::Input => {
                let line = text.trim_end_matches(['\r', '\n']).to_owned();
                return Ok(Header { names, line });
            }
        }
    }
}
