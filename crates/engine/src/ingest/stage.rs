//! Reads and stages the next batch, up to its record.

use alluvium_core::{
    BatchKey, BatchRecord, DatePartitionCount, RECORD_FORMAT, Range, RecordBody, Recorded, Result, TableFiles, TableSpec,
};
use alluvium_lake::{StageIndex, StageSettings, Stager, Sweep, in_place};

use super::dead_letters::DeadLetters;
use super::read::{Feed, Read, Reading};
use super::work::ChainWork;
use crate::source::Decoder;

/// How many finished files may wait to be put.
const FILES_IN_FLIGHT: usize = 16;

/// What a feed gave, staged and not recorded.
pub(super) struct Staged {
    pub(super) data: TableFiles,
    pub(super) dead_letters: TableFiles,
    pub(super) counts: Vec<DatePartitionCount>,
    pub(super) staged_at_micros: i64,
    /// What takes the files away if the record is never written.
    pub(super) sweeps: Vec<Sweep>,
}

impl Staged {
    /// A batch without rows.
    pub(super) fn nothing(staged_at_micros: i64) -> Self {
        Self {
            data: TableFiles::default(),
            dead_letters: TableFiles::default(),
            counts: Vec::new(),
            staged_at_micros,
            sweeps: Vec::new(),
        }
    }
}

impl ChainWork<'_> {
    /// Stages what `feed` gives; `None` if the user asked to stop. What was staged of a batch that will not be recorded is
    /// deleted.
    pub(super) async fn stage(&self, key: BatchKey, feed: &mut dyn Feed) -> Result<Option<Staged>> {
        let spec = TableSpec::data(self.dataset);
        let staged_at_micros = self.engine.clock.now_micros();
        let index = StageIndex { resolver: self.engine.resolver.clone(), fields: self.dataset.indexed_fields() };
        let settings = |org: Option<String>, index: Option<StageIndex>| StageSettings {
            chain: self.chain.chain().clone(),
            key,
            now_ms: staged_at_micros.div_euclid(1000),
            org,
            files_in_flight: FILES_IN_FLIGHT,
            index,
        };
        let rows = Stager::new(&self.engine.log_of(&spec), &spec, settings(Some(self.dataset.org.clone()), Some(index)));
        let letters_spec = TableSpec::dead_letters();
        let letters = Stager::new(&self.engine.log_of(&letters_spec), &letters_spec, settings(None, None));
        let sweeps = vec![rows.sweep(), letters.sweep()];
        let read = self.read(key, staged_at_micros, rows, letters, feed).await;
        match read {
            Ok(Some(staged)) => Ok(Some(Staged { sweeps, ..staged })),
            failed => {
                for sweep in sweeps {
                    sweep.run().await;
                }
                failed
            }
        }
    }

    async fn read(
        &self,
        key: BatchKey,
        staged_at_micros: i64,
        rows: Stager,
        letters: Stager,
        feed: &mut dyn Feed,
    ) -> Result<Option<Staged>> {
        let mut refused = DeadLetters::new(letters, self.dataset.name.clone(), key, staged_at_micros, self.engine.memory_bytes);
        let decoder = Decoder::new(self.dataset);
        let read = in_place(|| {
            Reading {
                dataset: self.dataset,
                decoder: &decoder,
                rows: &rows,
                refused: &mut refused,
                memory_bytes: self.engine.memory_bytes,
                staged_at_micros,
                stop: &self.engine.stop,
                observer: self.engine.observer.as_ref(),
            }
            .read(feed)
        })?;
        if read == Read::Stopped {
            return Ok(None);
        }
        let letters = in_place(|| refused.into_stager())?;
        let (data, counts) = rows.finish().await?;
        let (dead_letters, _) = letters.finish().await?;
        Ok(Some(Staged { data, dead_letters, counts, staged_at_micros, sweeps: Vec::new() }))
    }

    /// The record of what was staged of a range.
    pub(super) fn record_of(&self, key: BatchKey, range: Range, skipped: u64, staged: Staged) -> (BatchRecord, Vec<Sweep>) {
        let Staged { data, dead_letters, counts, staged_at_micros, sweeps } = staged;
        let recorded = Recorded { range, data, dead_letters, counts, skipped, staged_at_micros };
        let record = BatchRecord {
            format: RECORD_FORMAT,
            chain: self.chain.chain().clone(),
            batch: key.batch,
            attempt: key.attempt,
            body: RecordBody::Intent(Box::new(recorded)),
        };
        (record, sweeps)
    }
}
