//! Reads and stages the next batch, up to its record.

use alluvium_core::{
    BatchKey, BatchRecord, Error, FileCursor, FoundFile, Kind, RECORD_FORMAT, Range, RecordBody, Recorded, Result, TableSpec,
};
use alluvium_lake::{StageSettings, Stager, Sweep, in_place};
use tokio::runtime::Handle;

use super::dead_letters::DeadLetters;
use super::read::{Read, Reading};
use super::run::Ingest;
use crate::source::Decoder;

/// How many finished files may wait to be put.
const FILES_IN_FLIGHT: usize = 16;

/// A batch that is staged and not recorded.
pub(super) struct Staged {
    pub(super) record: BatchRecord,
    /// What takes the files away if the record is never written.
    pub(super) sweeps: Vec<Sweep>,
}

impl Ingest<'_> {
    /// Reads and stages a batch; `None` if there was nothing to read, or the user asked to stop. What was staged of a batch
    /// that will not be recorded is deleted.
    pub(super) async fn stage(&mut self, key: BatchKey) -> Result<Option<Staged>> {
        let spec = TableSpec::data(self.dataset);
        let staged_at_micros = self.engine.clock.now_micros();
        let settings = |org: Option<String>| StageSettings {
            chain: self.chain.chain().clone(),
            key,
            now_ms: staged_at_micros.div_euclid(1000),
            org,
            files_in_flight: FILES_IN_FLIGHT,
        };
        let rows = Stager::new(&self.engine.log_of(&spec), &spec, settings(Some(self.dataset.org.clone())));
        let letters_spec = TableSpec::dead_letters();
        let letters = Stager::new(&self.engine.log_of(&letters_spec), &letters_spec, settings(None));
        let sweeps = vec![rows.sweep(), letters.sweep()];
        let read = self.read(key, staged_at_micros, rows, letters).await;
        if let Ok(Some(recorded)) = read {
            let record = BatchRecord {
                format: RECORD_FORMAT,
                chain: self.chain.chain().clone(),
                batch: key.batch,
                attempt: key.attempt,
                body: RecordBody::Intent(Box::new(recorded)),
            };
            return Ok(Some(Staged { record, sweeps }));
        }
        for sweep in sweeps {
            sweep.run().await;
        }
        read.map(|_| None)
    }

    async fn read(&mut self, key: BatchKey, staged_at_micros: i64, rows: Stager, letters: Stager) -> Result<Option<Recorded>> {
        let mut refused = DeadLetters::new(letters, self.dataset.name.clone(), key, staged_at_micros, self.engine.memory_bytes);
        let first_from: Option<FileCursor> = self.taken.partial.as_ref().and_then(|p| p.to);
        let queue = self.queue.as_mut().ok_or_else(|| Error::new(Kind::Internal, "reading a batch before listing"))?;
        let decoder = Decoder::new(self.dataset);
        let runtime = Handle::current();
        let read: Read = in_place(|| {
            Reading {
                dataset: self.dataset,
                inbox: &self.inbox,
                decoder: &decoder,
                rows: &rows,
                refused: &mut refused,
                memory_bytes: self.engine.memory_bytes,
                staged_at_micros,
                stop: &self.engine.stop,
                observer: self.engine.observer.as_ref(),
                runtime: &runtime,
            }
            .read(queue, first_from)
        })?;
        if read.stopped || read.ranges.is_empty() {
            return Ok(None);
        }
        let letters = in_place(|| refused.into_stager())?;
        let (data, counts) = rows.finish().await?;
        let (dead_letters, _) = letters.finish().await?;
        if let Some(unfinished) = read.ranges.last().filter(|r| r.to.is_some()) {
            let file = FoundFile { path: unfinished.path.clone(), size: unfinished.size, stamp: unfinished.stamp };
            queue.push_front(file);
        }
        Ok(Some(Recorded { range: Range::Files(read.ranges), data, dead_letters, counts, skipped: 0, staged_at_micros }))
    }
}
