//! Another attempt at a batch of rows whose table moved to another position of the ledger: the rows that were staged are resolved again.
//!
//! Nothing is read from the source. What the first attempt erased stays erased, as what is erased at a position is so at every later one.

use std::sync::Arc;

use alluvium_core::{BatchKey, BatchRecord, Error, Kind, RecordBody, Recorded, Result, TableSpec};
use alluvium_lake::{Stager, arrow_schema, blocking};
use arrow::array::{RecordBatch, new_null_array};
use arrow::datatypes::Schema;

use super::resolving::Resolving;
use super::stage::Staged;
use super::work::ChainWork;

/// The rows with all columns that are declared now; those that came since are null.
fn conformed(rows: &RecordBatch, spec: &TableSpec) -> Result<RecordBatch> {
    let internal = |e| Error::new(Kind::Internal, "bringing staged rows into the declared columns").source(e);
    let schema = arrow_schema(spec);
    let mut fields: Vec<_> = rows.schema().fields().iter().cloned().collect();
    let mut columns = rows.columns().to_vec();
    for field in schema.fields() {
        if rows.column_by_name(field.name()).is_none() {
            fields.push(Arc::new(field.as_ref().clone().with_nullable(true)));
            columns.push(new_null_array(field.data_type(), rows.num_rows()));
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(internal)
}

impl ChainWork<'_> {
    /// The record of the next attempt, with the same range, dead letters and skipped records.
    pub(super) async fn resolved_again(&self, intent: &BatchRecord, recorded: &Recorded, key: BatchKey) -> Result<BatchRecord> {
        let spec = TableSpec::data(self.dataset);
        let log = self.engine.log_of(&spec);
        let resolving = Resolving::new(self.engine, self.dataset, self.ledger().await?);
        let staged_at_micros = self.engine.clock.now_micros();
        let mut stager = Stager::new(&log, &spec, self.stage_settings(key, staged_at_micros, Some(self.dataset.org.clone())));
        for file in &recorded.data.adds {
            for rows in log.read_file(&file.path).await? {
                let rows = conformed(&rows, &spec)?;
                let rows = resolving.resolve(&rows).await?;
                if rows.num_rows() > 0 {
                    stager = blocking("staging rows again", move || stager.stage(vec![rows]).map(|()| stager)).await?;
                }
            }
        }
        let (data, counts) = stager.finish().await?;
        // What the first attempt erased is not among its rows, so what it told of requests is told by this one, too.
        let told_before = self.engine.matched_in(&recorded.outcomes).await?;
        let staged = Staged {
            data,
            counts,
            dead_letters: recorded.dead_letters.clone(),
            retries: recorded.retries.clone(),
            outcomes: recorded.outcomes.clone(),
            ..Staged::nothing(staged_at_micros)
        };
        let staged = self.with_states(key, staged, resolving, &told_before).await?;
        let (record, _what_is_recorded_is_not_swept) = self.record_of(key, recorded.range.clone(), recorded.skipped, staged);
        debug_assert_eq!(record.chain, intent.chain);
        Ok(record)
    }

    /// Whether a record's rows must be resolved again before it can be another attempt.
    pub(super) fn intent_of(record: &BatchRecord) -> Option<&Recorded> {
        match &record.body {
            RecordBody::Intent(recorded) => Some(recorded),
            RecordBody::Void => None,
        }
    }
}
