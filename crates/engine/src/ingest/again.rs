//! Another attempt at a batch of rows whose table moved to another position of the ledger: the rows that were staged are resolved again.
//!
//! Nothing is read from the source. What the first attempt erased stays erased, as what is erased at a position is so at every later one.

use alluvium_core::{BatchKey, BatchRecord, RecordBody, Recorded, Result, TableSpec};
use alluvium_lake::{Stager, blocking};

use super::resolving::Resolving;
use super::stage::Staged;
use super::work::ChainWork;

impl ChainWork<'_> {
    /// The record of the next attempt, with the same range, dead letters and skipped records.
    pub(super) async fn resolved_again(&self, intent: &BatchRecord, recorded: &Recorded, key: BatchKey) -> Result<BatchRecord> {
        let spec = TableSpec::data(self.dataset);
        let log = self.engine.log_of(&spec);
        let resolving = Resolving::new(self.dataset, self.ledger().await?);
        let staged_at_micros = self.engine.clock.now_micros();
        let mut stager = Stager::new(&log, &spec, self.stage_settings(key, staged_at_micros, Some(self.dataset.org.clone())));
        for file in &recorded.data.adds {
            for rows in log.read_file(&file.path).await? {
                resolving.look_up(resolving.nodes(&rows)?).await?;
                let rows = resolving.resolved(&rows)?;
                if rows.num_rows() > 0 {
                    stager = blocking("staging rows again", move || stager.stage(vec![rows]).map(|()| stager)).await?;
                }
            }
        }
        let (data, counts) = stager.finish().await?;
        let staged = Staged { data, counts, dead_letters: recorded.dead_letters.clone(), ..Staged::nothing(staged_at_micros) };
        let staged = self.with_states(key, staged, resolving).await?;
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
