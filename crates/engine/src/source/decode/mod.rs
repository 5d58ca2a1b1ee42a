//! From a chunk of a source file to the rows of a dataset and the records that are refused.
//!
//! Place in the flow: [`super::split`] cuts a file into chunks on one thread; decoders turn chunks into record batches on several.
//! A decoder holds no state between chunks: any cutting of a file gives the same rows.
//!
//! Invariants: every record of a chunk becomes one row or one refusal (`no_lost_row`); no value is changed on the way: what does
//! not fit its declared type refuses its record. What fits is said in `convert` and, for users, in `docs/guide/input.md`.

mod cell;
mod column;
mod columnar;
mod convert;
mod csv;
mod json;
mod last_keys;
mod message;
mod plan;
mod records;
mod render;
mod rescue;
mod rows;
mod scan;
mod schema;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod uuid;
mod value;
mod values;
mod whole;

use alluvium_core::Dataset;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::split::{Chunk, Content};
pub(crate) use message::around_of;
use plan::Plan;
pub(crate) use records::RawRecord;
pub(crate) use render::{push_json, push_plain};
pub(crate) use rescue::push_json_string;
use rows::Rows;
pub use schema::decoded_schema;
pub(crate) use time::push as push_time;
pub(crate) use uuid::{EXTENSION_NAME, UUID_EXTENSION};
pub(crate) use values::values_of;

/// A record that is no row, or a file that could not be read on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The record's number in its file, from 0.
    pub record: u64,
    /// Its bytes without the line's end; for Parquet and Avro a JSON rendering; empty when the file is at fault.
    pub raw: Vec<u8>,
    /// Why; holds no value of the record.
    pub reason: String,
    /// The declared field that is to blame, if one is.
    pub field: Option<String>,
    /// What it needs beside its bytes to be decoded again, if that is the record's own: the parts of a Kafka message that the
    /// declaration asks for.
    pub context: Option<String>,
}

/// What became of a chunk's records.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The rows, in the order of their records; see [`decoded_schema`].
    pub rows: RecordBatch,
    /// The refused records, in their order.
    pub refused: Vec<Refused>,
    /// How many records there were: rows and refused together. Blank lines are no records.
    pub records: u64,
}

/// Decodes chunks of one dataset's files; shared by all decoding threads.
#[derive(Debug)]
pub struct Decoder {
    plan: Plan,
    schema: SchemaRef,
}

impl Decoder {
    /// A decoder for a dataset of a loaded project.
    #[must_use]
    pub fn new(dataset: &Dataset) -> Self {
        Self { plan: Plan::new(dataset), schema: decoded_schema(dataset) }
    }

    /// Turns every record of the chunk into a row or a refusal.
    #[must_use]
    pub fn decode(&self, mut chunk: Chunk) -> Decoded {
        let first = chunk.first_record();
        if let Content::Batch(batch) = &mut chunk.content {
            batch.rows = uuid::spelled(&self.plan, &batch.rows);
        }
        if let Content::Batch(batch) = &chunk.content
            && batch.too_fine.is_empty()
            && let Some(rows) = whole::batch(&self.plan, &self.schema, first, &batch.rows)
        {
            return Decoded { records: rows.num_rows() as u64, rows, refused: Vec::new() };
        }
        let mut rows = Rows::new(&self.plan, usize::try_from(chunk.max_records()).unwrap_or(0));
        match chunk.content {
            Content::JsonLines(bytes) => text::json_lines(&self.plan, first, &bytes, &mut rows),
            Content::Csv { header, bytes } => csv::records(&self.plan, &header, first, &bytes, &mut rows),
            Content::Batch(batch) => columnar::batch(&self.plan, first, &batch.rows, &batch.too_fine, &mut rows),
            Content::Messages(messages) => message::messages(&self.plan, &messages, &mut rows),
            Content::TooLong { beginning, length } => rows.refuse_too_long(first, &beginning, length),
        }
        rows.finish(&self.schema)
    }
}
