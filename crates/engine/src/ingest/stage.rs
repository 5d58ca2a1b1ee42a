//! Reads and stages the next batch, up to its record.

use std::collections::HashSet;
use std::time::Duration;

use alluvium_core::{
    BatchKey, BatchNumber, BatchRecord, Dataset, DatePartitionCount, Job, LedgerPosition, LedgerShape, RECORD_FORMAT, Range,
    RecordBody, Recorded, Request, Result, TableFiles, TableSpec, app_id,
};
use alluvium_lake::{Holder, LeaseWatch, StageSettings, Stager, Sweep, in_place};

use super::dead_letters::DeadLetters;
use super::read::{Feed, Read, Reading, Taking};
use super::resolving::{EventTaking, Resolving};
use super::work::ChainWork;
use crate::ledger::DatasetLedger;
use crate::requests::{Matched, RequestIds, RequestTaking, StateWriter};

/// How many finished files may wait to be put.
const FILES_IN_FLIGHT: usize = 16;
/// How often a batch looks whether a mutation still has the floor before it goes on all the same, and how long it waits between.
const MAX_LOOKS_AT_FLOOR: u32 = 600;
const FLOOR_INTERVAL: Duration = Duration::from_millis(100);

/// The lease of a mutation that lost to appends too often: appends wait while it is held.
pub(crate) fn floor_lease_name(dataset: &Dataset) -> String {
    format!("{}.{}.first", Job::Mutate, dataset.name)
}

/// What a feed gave, staged and not recorded.
pub(super) struct Staged {
    pub(super) data: TableFiles,
    pub(super) dead_letters: TableFiles,
    pub(super) retries: TableFiles,
    pub(super) outcomes: TableFiles,
    /// What the rows were resolved at.
    pub(super) ledger: LedgerPosition,
    pub(super) shape: Option<LedgerShape>,
    pub(super) counts: Vec<DatePartitionCount>,
    /// Records that were passed over while they were taken.
    pub(super) skipped: u64,
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
            retries: TableFiles::default(),
            outcomes: TableFiles::default(),
            ledger: LedgerPosition::BEGINNING,
            shape: None,
            counts: Vec::new(),
            skipped: 0,
            staged_at_micros,
            sweeps: Vec::new(),
        }
    }
}

impl ChainWork<'_> {
    /// Stages what `feed` gives; `None` if the user asked to stop. What was staged of a batch that will not be recorded is
    /// deleted.
    pub(super) async fn stage(&self, key: BatchKey, feed: &mut dyn Feed) -> Result<Option<Staged>> {
        if self.dataset.is_requests() {
            let ids = RequestIds::open(self.engine, &self.incarnation, BatchNumber(key.batch.0 - 1)).await?;
            let taking = RequestTaking::new(&self.engine.project.datasets, ids, key.batch);
            let Some(mut staged) = self.stage_as(key, &taking, feed).await? else { return Ok(None) };
            staged.skipped = taking.repeated();
            if let Some(accepted) = taking.into_accepted() {
                let files = staged.data.adds.iter().map(|add| add.path.clone()).collect();
                self.engine.taken_here.remember(files, accepted);
            }
            return Ok(Some(staged));
        }
        self.let_a_move_pass().await?;
        let taking = EventTaking::new(self.engine, self.dataset, self.ledger().await?);
        let Some(staged) = self.stage_as(key, &taking, feed).await? else { return Ok(None) };
        self.with_states(key, staged, taking.into_resolving(), &Matched::new()).await.map(Some)
    }

    /// The ledger at the position of the data table, as this process saw it last: that it has moved meanwhile shows when the batch
    /// is published.
    pub(super) async fn ledger(&self) -> Result<DatasetLedger> {
        let log = self.engine.log_of(&TableSpec::data(self.dataset));
        let seen = log.ledger_seen(&app_id(self.chain.chain())).await?;
        #[cfg(feature = "plants")]
        let seen = seen.filter(|_| !alluvium_lake::Plant::IngestUnderNewestLedger.grows());
        if let Some(seen) = seen {
            match DatasetLedger::folded_at(self.engine, &self.incarnation, self.dataset, seen).await {
                Ok(Some(ledger)) => return Ok(ledger),
                Ok(None) => {}
                Err(e) if e.may_pass() => {}
                Err(e) => return Err(e),
            }
        }
        // Nobody made the table, or it has moved on since so far that what was folded for its position then is gone.
        let (mut position, mut table) = self.position_now().await?;
        loop {
            match DatasetLedger::at(self.engine, &self.incarnation, self.dataset, position, table).await {
                Err(e) if e.may_pass() => {
                    // What others have merged meanwhile tells of later positions only.
                    let now = self.position_now().await?;
                    if now.0 == position {
                        return Err(e);
                    }
                    (position, table) = now;
                }
                ledger => return ledger,
            }
        }
    }

    /// The position of the ledger that rows are to be resolved at, and that of the table, if it is there: else it will be made at the newest.
    async fn position_now(&self) -> Result<(LedgerPosition, Option<LedgerPosition>)> {
        let log = self.engine.log_of(&TableSpec::data(self.dataset));
        let table = log.state(&app_id(self.chain.chain())).await?.map(|state| state.ledger());
        #[cfg(feature = "plants")]
        let table = table.filter(|_| !alluvium_lake::Plant::IngestUnderNewestLedger.grows());
        let position = match table {
            Some(position) => position,
            None => LedgerPosition(self.engine.requests_taken(&self.incarnation).await?.0),
        };
        Ok((position, table))
    }

    /// Adds what resolving the rows says of requests that waited for such rows.
    /// `told_before`: of those it was told by an earlier attempt.
    pub(super) async fn with_states(
        &self,
        key: BatchKey,
        mut staged: Staged,
        resolving: Resolving<'_>,
        told_before: &Matched,
    ) -> Result<Staged> {
        staged.ledger = resolving.position();
        staged.shape = Some(resolving.shape()).filter(|_| !staged.ledger.is_beginning());
        staged.skipped += resolving.left_out();
        let (ledger, mut matched) = resolving.into_matched().await?;
        matched.retain(|id, _| !told_before.contains_key(id));
        if matched.is_empty() {
            return Ok(staged);
        }
        let tried = self.engine.requests_tried(&self.dataset.name).await?;
        let open = tried.among(&matched.keys().map(String::as_str).collect::<Vec<_>>()).await?;
        // Those that were applied before are told of no more: the source goes on sending what was converted long ago. Those that have no state
        // yet are given none, but what they did.
        let told = self.engine.requests_told(&self.incarnation, self.dataset).await?;
        let mut new: HashSet<String> = HashSet::new();
        let mut tell = |request: Request| {
            if matched.contains_key(&request.id) {
                new.insert(request.id);
            }
        };
        if told < ledger.position() {
            ledger.requests_since(told, ledger.position(), &mut tell).await?;
        }
        matched.retain(|id, _| open.contains_key(id) || new.contains(id));
        if !matched.is_empty() {
            let settings = self.stage_settings(key, staged.staged_at_micros, None);
            let mut states = StateWriter::new(self.engine, &self.dataset.name, &settings);
            for (id, retry) in open {
                states = states.seen(id, retry.org, retry.attempts).await?;
            }
            let (retries, outcomes) = states.finish(&matched).await?;
            staged.retries.adds.extend(retries.adds);
            staged.outcomes.adds.extend(outcomes.adds);
        }
        Ok(staged)
    }

    /// Waits, but not for ever, while a mutation has the floor that has lost to appends too often.
    async fn let_a_move_pass(&self) -> Result<()> {
        if !self.requests_came {
            return Ok(());
        }
        let name = floor_lease_name(self.dataset);
        let mut watch = LeaseWatch::new(&self.engine.store, &self.engine.resolver, &name, self.engine.project.lease_ttl);
        for _ in 0..MAX_LOOKS_AT_FLOOR {
            if self.engine.stop.asked() || matches!(watch.holder().await?, Holder::Nobody) {
                return Ok(());
            }
            self.engine.stop.sleep(FLOOR_INTERVAL).await;
        }
        Ok(())
    }

    /// How files are staged for a batch; with an organisation's column, those of the data table.
    pub(super) fn stage_settings(&self, key: BatchKey, staged_at_micros: i64, org: Option<String>) -> StageSettings {
        let index = org.as_ref().map(|_| self.engine.index_of(self.dataset));
        StageSettings {
            chain: self.chain.chain().clone(),
            key,
            now_ms: staged_at_micros.div_euclid(1000),
            org,
            files_in_flight: FILES_IN_FLIGHT,
            index,
        }
    }

    async fn stage_as(&self, key: BatchKey, taking: &dyn Taking, feed: &mut dyn Feed) -> Result<Option<Staged>> {
        let spec = TableSpec::deciding(self.dataset);
        let staged_at_micros = self.engine.clock.now_micros();
        let org = (!self.dataset.is_requests()).then(|| self.dataset.org.clone());
        let rows = Stager::new(&self.engine.log_of(&spec), &spec, self.stage_settings(key, staged_at_micros, org));
        let letters_spec = TableSpec::dead_letters();
        let settings = self.stage_settings(key, staged_at_micros, None);
        let letters = Stager::new(&self.engine.log_of(&letters_spec), &letters_spec, settings);
        let sweeps = vec![rows.sweep(), letters.sweep()];
        let read = self.read(key, staged_at_micros, taking, rows, letters, feed).await;
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
        taking: &dyn Taking,
        rows: Stager,
        letters: Stager,
        feed: &mut dyn Feed,
    ) -> Result<Option<Staged>> {
        let mut refused = DeadLetters::new(letters, self.dataset.name.clone(), key, staged_at_micros, self.engine.memory_bytes);
        let reading = Reading {
            dataset: self.dataset,
            taking,
            rows: &rows,
            refused: &mut refused,
            memory_bytes: self.engine.memory_bytes,
            staged_at_micros,
            stop: &self.engine.stop,
            observer: self.engine.observer.as_ref(),
        };
        if reading.read(feed).await? == Read::Stopped {
            return Ok(None);
        }
        let letters = in_place(|| refused.into_stager())?;
        let (data, counts) = rows.finish().await?;
        let (dead_letters, _) = letters.finish().await?;
        Ok(Some(Staged { data, dead_letters, counts, ..Staged::nothing(staged_at_micros) }))
    }

    /// The record of what was staged of a range.
    pub(super) fn record_of(&self, key: BatchKey, range: Range, skipped: u64, staged: Staged) -> (BatchRecord, Vec<Sweep>) {
        let sweeps = staged.sweeps;
        let recorded = Recorded {
            range,
            data: staged.data,
            dead_letters: staged.dead_letters,
            retries: staged.retries,
            outcomes: staged.outcomes,
            ledger: staged.ledger,
            shape: staged.shape,
            mutation: None,
            rewrite: None,
            counts: staged.counts,
            skipped: skipped + staged.skipped,
            staged_at_micros: staged.staged_at_micros,
        };
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
