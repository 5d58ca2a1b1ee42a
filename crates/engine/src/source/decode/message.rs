//! Messages of a Kafka partition into rows and refusals: the value is one JSON record, other columns come from around it.

use alluvium_core::{DataType, Field, MessagePart, TimeUnit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::cell::{Cell, Slots};
use super::convert::{Kind, Unfit};
use super::json::JsonReader;
use super::plan::Plan;
use super::rows::Rows;
use super::text::json_message;
use crate::source::kafka::{self, Message, Messages};

/// What stands around one message's value, and the columns that take it.
pub(crate) struct Around<'m> {
    plan: &'m Plan,
    messages: &'m Messages,
    message: Message<'m>,
}

/// Decodes messages.
pub(crate) fn messages(plan: &Plan, messages: &Messages, rows: &mut Rows<'_>) {
    let mut reader = JsonReader::new(plan);
    let mut slots = Slots::new(plan.cells);
    for message in messages.iter() {
        let record = message.offset.cast_unsigned();
        let raw = message.value.unwrap_or_default();
        let around = (!plan.message.is_empty()).then_some(Around { plan, messages, message });
        let refusal = match (message.value, std::str::from_utf8(raw)) {
            (None, _) => Some(("a tombstone: the message has no value".to_owned(), None)),
            (_, Err(_)) => Some(("not UTF-8".to_owned(), None)),
            (_, Ok(text)) if text.bytes().all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')) => {
                Some(("the message is empty".to_owned(), None))
            }
            (_, Ok(text)) => json_message(&mut reader, record, text, around.as_ref(), &mut slots, rows),
        };
        if let Some(refusal) = refusal {
            let context = around.as_ref().and_then(Around::context);
            rows.refuse_with(record, raw, refusal, context);
        }
    }
}

impl<'m> Around<'m> {
    /// Puts the columns that come from around the value into their cells.
    pub(super) fn fill(&self, slots: &mut Slots<'_>) {
        for (column, part) in &self.plan.message {
            slots.cells[*column] = self.cell(&self.plan.columns[*column], part, slots);
        }
    }

    fn cell<'s>(&self, field: &Field, part: &MessagePart, slots: &mut Slots<'_>) -> Cell<'s> {
        let around = self.message.around;
        let number = |slots: &mut Slots<'_>, value: i64| text_cell(slots, field, Kind::Number, &value.to_string());
        match part {
            MessagePart::Key => bytes_cell(slots, field, around.and_then(|a| a.key.as_deref())),
            MessagePart::Header(name) => bytes_cell(slots, field, around.and_then(|a| header(a, name))),
            MessagePart::Timestamp => match around.and_then(|a| a.timestamp_ms) {
                Some(ms) => number(slots, ms),
                None => Cell::Null,
            },
            MessagePart::Topic => text_cell(slots, field, Kind::String, &self.messages.topic),
            MessagePart::Partition => number(slots, self.messages.partition.into()),
            MessagePart::Offset => number(slots, self.message.offset),
        }
    }

    /// What the dead letters keep so that the message can be decoded again: only what the declaration asks for.
    fn context(&self) -> Option<String> {
        let around = self.message.around?;
        let wanted = |part: &MessagePart| self.plan.message.iter().any(|(_, p)| p == part);
        let encode = |bytes: &[u8]| STANDARD.encode(bytes);
        let headers = around.headers.iter().filter(|(name, _)| wanted(&MessagePart::Header(name.clone())));
        let context = Context {
            timestamp_ms: around.timestamp_ms,
            key: around.key.as_deref().filter(|_| wanted(&MessagePart::Key)).map(encode),
            headers: headers.map(|(name, value)| (name.clone(), value.as_deref().map(encode))).collect(),
        };
        serde_json::to_string(&context).ok()
    }
}

/// What of a message the dead letters keep beside its value: bytes in base64.
#[derive(Debug, Serialize, Deserialize)]
struct Context {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timestamp_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, Option<String>)>,
}

/// What stood around a message, from what the dead letters kept of it; `None` if that cannot be read.
pub(crate) fn around_of(context: &str) -> Option<kafka::Around> {
    let Context { timestamp_ms, key, headers } = serde_json::from_str(context).ok()?;
    let decode = |text: String| STANDARD.decode(text).ok();
    let key = match key {
        Some(text) => Some(decode(text)?),
        None => None,
    };
    let mut all = Vec::new();
    for (name, value) in headers {
        let value = match value {
            Some(text) => Some(decode(text)?),
            None => None,
        };
        all.push((name, value));
    }
    Some(kafka::Around { timestamp_ms, key, headers: all })
}

/// The last header of that name.
fn header<'a>(around: &'a kafka::Around, name: &str) -> Option<&'a [u8]> {
    around.headers.iter().rev().find(|(n, _)| n == name).and_then(|(_, value)| value.as_deref())
}

/// Bytes are the value of a binary column as they are; for other types they are text.
fn bytes_cell<'s>(slots: &mut Slots<'_>, field: &Field, bytes: Option<&[u8]>) -> Cell<'s> {
    let Some(bytes) = bytes else { return Cell::Null };
    if field.data_type == DataType::Binary {
        let start = slots.bytes.len();
        slots.bytes.extend_from_slice(bytes);
        return Cell::Bytes { start, end: slots.bytes.len() };
    }
    match std::str::from_utf8(bytes) {
        Ok("") if field.data_type != DataType::String => Cell::Null,
        Ok(text) => text_cell(slots, field, Kind::String, text),
        Err(_) => Cell::Unfit(Unfit::NotUtf8),
    }
}

fn text_cell<'s>(slots: &mut Slots<'_>, field: &Field, kind: Kind, text: &str) -> Cell<'s> {
    let start = slots.unescaped.len();
    slots.unescaped.push_str(text);
    let unit = if kind == Kind::Number { Some(TimeUnit::Milliseconds) } else { field.unit };
    // What stands in the store of texts is borrowed from nothing.
    match slots.simple_unescaped(&field.data_type, unit, kind, start) {
        Cell::Unescaped { start, end } => Cell::Unescaped { start, end },
        Cell::Scalar(scalar) => Cell::Scalar(scalar),
        Cell::Bytes { start, end } => Cell::Bytes { start, end },
        Cell::Unfit(unfit) => Cell::Unfit(unfit),
        _ => Cell::Null,
    }
}
