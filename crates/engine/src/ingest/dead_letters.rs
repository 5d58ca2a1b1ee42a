//! Refused records on their way to the table `dead_letters`.

use std::sync::Arc;

use alluvium_core::{BatchKey, DatasetName, Error, Kind, Result, TableSpec};
use alluvium_lake::{Stager, arrow_schema};
use arrow::array::{ArrayRef, BinaryBuilder, Int64Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder};

use crate::source::Refused;

/// Collects refused records and stages them when they fill their part of the memory budget.
pub(super) struct DeadLetters {
    stager: Stager,
    dataset: DatasetName,
    key: BatchKey,
    failed_at_micros: i64,
    max_bytes: usize,
    bytes: usize,
    letters: Vec<Letter>,
}

/// A refused record of one source.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) source: String,
    pub(super) context: Option<String>,
    pub(super) refused: Refused,
}

impl DeadLetters {
    pub(super) fn new(stager: Stager, dataset: DatasetName, key: BatchKey, failed_at_micros: i64, memory_bytes: u64) -> Self {
        let max_bytes = usize::try_from(memory_bytes / 16).unwrap_or(usize::MAX);
        Self { stager, dataset, key, failed_at_micros, max_bytes, bytes: 0, letters: Vec::new() }
    }

    /// Takes refused records of one source; blocks while some are encoded.
    pub(super) fn push(&mut self, source: &str, context: Option<&str>, refused: Vec<Refused>) -> Result<()> {
        for mut refused in refused {
            let context = refused.context.take().or_else(|| context.map(str::to_owned));
            let letter = Letter { source: source.to_owned(), context, refused };
            self.push_letter(letter)?;
        }
        Ok(())
    }

    /// Takes one refused record.
    pub(super) fn push_letter(&mut self, letter: Letter) -> Result<()> {
        self.bytes += letter.refused.raw.len() + letter.refused.reason.len() + letter.source.len() + 64;
        self.letters.push(letter);
        if self.bytes >= self.max_bytes { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        let letters = std::mem::take(&mut self.letters);
        if letters.is_empty() {
            return Ok(());
        }
        self.stager.stage(vec![self.rows(&letters)?])
    }

    fn rows(&self, letters: &[Letter]) -> Result<RecordBatch> {
        let (mut dataset, mut source, mut context) = (StringBuilder::new(), StringBuilder::new(), StringBuilder::new());
        let (mut position, mut batch_id, mut raw) = (Int64Builder::new(), Int64Builder::new(), BinaryBuilder::new());
        let (mut reason, mut field) = (StringBuilder::new(), StringBuilder::new());
        let mut failed_at = TimestampMicrosecondBuilder::new().with_timezone("UTC");
        for letter in letters {
            dataset.append_value(&self.dataset.0);
            source.append_value(&letter.source);
            position.append_value(letter.refused.record.cast_signed());
            raw.append_value(&letter.refused.raw);
            context.append_option(letter.context.as_deref());
            reason.append_value(&letter.refused.reason);
            field.append_option(letter.refused.field.as_deref());
            batch_id.append_value(self.key.batch.0.cast_signed());
            failed_at.append_value(self.failed_at_micros);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(dataset.finish()),
            Arc::new(source.finish()),
            Arc::new(position.finish()),
            Arc::new(raw.finish()),
            Arc::new(context.finish()),
            Arc::new(reason.finish()),
            Arc::new(field.finish()),
            Arc::new(batch_id.finish()),
            Arc::new(failed_at.finish()),
        ];
        RecordBatch::try_new(arrow_schema(&TableSpec::dead_letters()), columns)
            .map_err(|e| Error::new(Kind::Internal, "collecting dead letters").source(e))
    }

    /// Encodes what is left and gives back the stager, to be finished.
    pub(super) fn into_stager(mut self) -> Result<Stager> {
        self.flush()?;
        Ok(self.stager)
    }
}
