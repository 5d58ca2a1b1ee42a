//! The records of a chunk of text, one by one, for readers that know no columns.

use crate::source::split::{Chunk, Content, MAX_RECORD_BYTES};

/// A record as it came.
pub(crate) enum RawRecord<'c> {
    /// Its text.
    Text(&'c str),
    /// No value: a Kafka tombstone.
    Tombstone,
    /// What is no text of an acceptable length, and why.
    Unreadable(&'c [u8], &'static str),
}

impl Chunk {
    /// Hands every record over with its number; lines in which nothing stands are passed over.
    pub(crate) fn each_record(&self, mut take: impl FnMut(u64, RawRecord<'_>)) {
        match &self.content {
            Content::JsonLines(bytes) => {
                for (record, whole) in (self.first_record()..).zip(bytes.split_inclusive(|b| *b == b'\n')) {
                    let line = whole.strip_suffix(b"\n").unwrap_or(whole);
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    if whole.len() > MAX_RECORD_BYTES {
                        take(record, RawRecord::Unreadable(&whole[..MAX_RECORD_BYTES], "the record is too long"));
                    } else if !line.iter().all(u8::is_ascii_whitespace) {
                        take(record, text(line));
                    }
                }
            }
            Content::Messages(messages) => {
                for message in messages.iter() {
                    let record = message.offset.cast_unsigned();
                    match message.value {
                        None => take(record, RawRecord::Tombstone),
                        Some(value) => take(record, text(value)),
                    }
                }
            }
            Content::TooLong { beginning, .. } => {
                take(self.first_record(), RawRecord::Unreadable(beginning, "the record is too long"));
            }
            // Requests are read as JSON only.
            Content::Csv { .. } | Content::Batch(_) => {}
        }
    }
}

fn text(bytes: &[u8]) -> RawRecord<'_> {
    match std::str::from_utf8(bytes) {
        Ok(text) => RawRecord::Text(text),
        Err(_) => RawRecord::Unreadable(bytes, "not UTF-8"),
    }
}
