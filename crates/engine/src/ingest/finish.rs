//! Carries a recorded batch through all its tables, whoever recorded it.

use std::fmt;

use alluvium_core::{
    BatchKey, BatchRecord, Dataset, DoneMark, Error, FileRange, Incarnation, Kind, LedgerShape, Mutation, RECORD_FORMAT, Range,
    RecordBody, Recorded, Result, TableFiles, TableName, TableSpec, TakenPolicy, app_id,
};
#[cfg(feature = "plants")]
use alluvium_lake::Plant;
use alluvium_lake::{ChainStore, Commit, LedgerRule, Published, StageSettings, Stager, blocking};

use super::backlog::Inbox;
use super::notify::{Told, notification_rows};
use crate::engine::Engine;
use crate::ledger::shape_of;
use crate::observe::BatchReport;
use crate::source::Removal;

/// What became of a recorded batch.
pub(crate) enum Finished {
    /// All its tables have it.
    Done(Box<DoneMark>),
    /// It cannot be published as recorded: it takes another attempt.
    Amend(Amend),
}

/// Why a batch takes another attempt over the same range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amend {
    /// Vacuum found no record of it and fenced it.
    Voided,
    /// The table is not what the attempt was made for: at another position of the ledger, or with other files.
    Moved,
}

impl fmt::Display for Amend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Voided => "it was voided",
            Self::Moved => "its table changed before it could be published",
        })
    }
}

/// A batch on its way through the tables.
pub(crate) struct Finishing<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) incarnation: &'a Incarnation,
    pub(crate) dataset: &'a Dataset,
    pub(crate) chain: &'a ChainStore,
    pub(crate) resumed: bool,
}

impl Finishing<'_> {
    /// Publishes the batch to every table that does not have it yet, and marks it as done. May be repeated by anybody.
    ///
    /// # Errors
    /// [`Kind::Fenced`] if the chain has gone on without us, and what publishing returns.
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the next who reads the chain finishes the batch.
    pub(crate) async fn finish(&self, record: &BatchRecord) -> Result<Finished> {
        match self.carry(record).await {
            // Once others have finished the batch, a cleanup may take what it is looked for in.
            Err(e) if e.kind() == Kind::Corrupt => match self.chain.done_mark(record.batch).await? {
                Some(mark) => Ok(Finished::Done(Box::new(mark))),
                None => Err(e),
            },
            carried => carried,
        }
    }

    async fn carry(&self, record: &BatchRecord) -> Result<Finished> {
        let RecordBody::Intent(recorded) = &record.body else { return Ok(Finished::Amend(Amend::Voided)) };
        self.engine.check_life(self.incarnation).await?;
        let app = app_id(self.chain.chain());
        let spec = TableSpec::deciding(self.dataset);
        let log = self.engine.log_of(&spec);
        // A table that is made for its first batch is made at the position of the ledger that its rows were resolved at.
        let now_ms = self.engine.clock.now_ms();
        log.ensure_at(&spec, self.incarnation, &app, now_ms, recorded.ledger, recorded.shape).await?;
        let commit = Commit {
            app_id: &app,
            incarnation: self.incarnation,
            key: record.key(),
            adds: &recorded.data.adds,
            removes: &recorded.data.removes,
            marks: &recorded.data.marks,
            changes: &recorded.data.changes,
            rewrites: recorded.rewrites(),
            ledger: self.ledger_rule(recorded),
            decides: true,
            resumed: self.resumed,
            now_ms: self.engine.clock.now_ms(),
        };
        #[cfg(feature = "plants")]
        if Plant::NotifyFirst.grows()
            && let Some(state) = log.state(&app).await?
        {
            let version = state.version() + 1;
            self.notifications(&app, record.key(), recorded, &spec.name, version, commit.now_ms).await?;
        }
        let (key, version, committed_at_ms) = match log.publish(&commit).await? {
            Published::Committed { version } => (record.key(), version, commit.now_ms),
            Published::AlreadyPublished { key } => {
                let (version, at_ms) = log.version_of(&app, key).await?;
                (key, version, at_ms)
            }
            Published::Fenced { newest } => return Err(self.fenced(record.key(), newest)),
            Published::Refused { .. } | Published::Moved => return Ok(Finished::Amend(Amend::Moved)),
        };
        // The log says which attempt is real; the tables that follow are published from its record.
        let real = if key == record.key() { None } else { Some(self.real_record(key).await?) };
        let recorded = match real.as_ref().map(|r| &r.body) {
            Some(RecordBody::Intent(real)) => real,
            _ => recorded,
        };
        self.follow_with(&TableSpec::dead_letters(), &app, key, &recorded.dead_letters).await?;
        self.follow_with(&TableSpec::outcomes(), &app, key, &recorded.outcomes).await?;
        self.follow_with(&TableSpec::retries(), &app, key, &recorded.retries).await?;
        self.notifications(&app, key, recorded, &spec.name, version, committed_at_ms).await?;
        let mark = DoneMark {
            format: RECORD_FORMAT,
            batch: key.batch,
            attempt: key.attempt,
            table_version: version,
            outcome: recorded.outcome(),
            committed_at_ms,
        };
        self.chain.mark_done(&mark).await?;
        self.engine.observer.batch(&BatchReport {
            job: self.chain.chain().job,
            dataset: self.dataset.name.clone(),
            shard: matches!(recorded.range, Range::Kafka(_)).then_some(self.chain.chain().shard),
            batch: key.batch,
            resumed: self.resumed,
            outcome: mark.outcome,
        });
        Ok(Finished::Done(Box::new(mark)))
    }

    async fn real_record(&self, key: BatchKey) -> Result<BatchRecord> {
        let record = self.chain.record(key).await?;
        record.filter(|r| matches!(r.body, RecordBody::Intent(_))).ok_or_else(|| {
            Error::new(
                Kind::Corrupt,
                format!("the record of batch {key} of {} is gone, though its table carries it", self.dataset.name),
            )
            .hint("restore _alluvium/chains from a backup of the storage")
        })
    }

    /// What the table must be at to take the batch.
    fn ledger_rule<'r>(&self, recorded: &'r Recorded) -> LedgerRule<'r> {
        match &recorded.mutation {
            _ if self.dataset.is_requests() => LedgerRule::None,
            None if recorded.rewrite.is_some() => LedgerRule::Keeps,
            None => LedgerRule::At {
                position: recorded.ledger,
                shape: recorded.shape.unwrap_or(LedgerShape::MIXED),
                declared: shape_of(self.dataset),
            },
            Some(Mutation { to, planned_on, .. }) => LedgerRule::Moves {
                from: recorded.ledger,
                to: *to,
                shape: recorded.shape.unwrap_or(LedgerShape::MIXED),
                planned_on,
            },
        }
    }

    async fn follow_with(&self, spec: &TableSpec, app: &str, key: BatchKey, files: &TableFiles) -> Result<()> {
        if files.is_empty() { Ok(()) } else { self.follow(spec, app, key, files).await }
    }

    async fn notifications(
        &self,
        app: &str,
        key: BatchKey,
        recorded: &Recorded,
        table: &TableName,
        version: u64,
        committed_at_ms: i64,
    ) -> Result<()> {
        if recorded.counts.is_empty() {
            return Ok(());
        }
        let spec = TableSpec::notifications();
        let log = self.engine.log_of(&spec);
        let state = log.ensure(&spec, self.incarnation, app, self.engine.clock.now_ms()).await?;
        let carried = state.txn().and_then(alluvium_core::TxnVersion::key);
        #[cfg(feature = "plants")]
        let carried = carried.filter(|k| !Plant::TxnEquality.grows() || k.batch == key.batch);
        if carried.is_some_and(|k| k.batch >= key.batch) {
            return Ok(());
        }
        let told =
            Told { table, version, committed_at_ms, app_name: &self.engine.project.name, job: self.chain.chain().job, key };
        let rows = notification_rows(&told, &recorded.counts)?;
        let settings = StageSettings {
            chain: self.chain.chain().clone(),
            key,
            now_ms: self.engine.clock.now_ms(),
            org: None,
            files_in_flight: 1,
            index: None,
        };
        let stager = Stager::new(&log, &spec, settings);
        let stager = blocking("encoding notifications", move || stager.stage(vec![rows]).map(|()| stager)).await?;
        let (files, _) = stager.finish().await?;
        self.follow(&spec, app, key, &files).await
    }

    /// Publishes to a table that follows. That it carries a later batch of the chain already means that we are old.
    async fn follow(&self, spec: &TableSpec, app: &str, key: BatchKey, files: &TableFiles) -> Result<()> {
        let log = self.engine.log_of(spec);
        let now_ms = self.engine.clock.now_ms();
        log.ensure(spec, self.incarnation, app, now_ms).await?;
        let mut removes = files.removes.clone();
        loop {
            let commit = Commit {
                app_id: app,
                incarnation: self.incarnation,
                key,
                adds: &files.adds,
                removes: &removes,
                marks: &files.marks,
                changes: &files.changes,
                rewrites: None,
                ledger: LedgerRule::None,
                decides: false,
                resumed: self.resumed,
                now_ms,
            };
            match log.publish(&commit).await? {
                Published::Committed { .. } | Published::AlreadyPublished { .. } => return Ok(()),
                Published::Fenced { newest } => return Err(self.fenced(key, newest)),
                Published::Moved => {
                    return Err(Error::new(Kind::Internal, format!("table {}: it follows and has no ledger", spec.name)));
                }
                // What waited is written anew with the batch, and a request that is taken again is the same request, whatever became of the
                // files that held them.
                Published::Refused { missing } if spec.name == TableName::RETRIES || self.dataset.is_requests() => {
                    removes.retain(|path| *path != missing);
                }
                Published::Refused { missing } => {
                    return Err(Error::new(
                        Kind::Conflict,
                        format!("table {}: the file {missing}, which batch {key} replaces, is no longer there", spec.name),
                    )
                    .hint("another program rewrote that table while the batch was under way; restore that file's version of the table"));
                }
            }
        }
    }

    fn fenced(&self, key: BatchKey, newest: BatchKey) -> Error {
        Error::new(
            Kind::Fenced,
            format!(
                "dataset {}: another process has taken over; it is at batch {newest}, this one was at {key}",
                self.dataset.name
            ),
        )
        .hint("nothing is lost and nothing to do: the other process goes on")
    }

    /// Moves or deletes the files that a finished batch has taken whole. May be repeated.
    pub(super) async fn after(&self, inbox: &Inbox, range: &Range) -> Result<()> {
        let Range::Files(files) = range else { return Ok(()) };
        for FileRange { path, stamp, .. } in files.iter().filter(|f| f.to.is_none()) {
            let removal = match (&inbox.source.after, &inbox.move_to) {
                (TakenPolicy::Keep, _) => return Ok(()),
                (TakenPolicy::Delete, _) => inbox.files.delete(path, *stamp).await?,
                (TakenPolicy::Move(_), Some(target)) => inbox.files.move_to(path, *stamp, target).await?,
                (TakenPolicy::Move(_), None) => return Ok(()),
            };
            let why = match removal {
                Removal::Done | Removal::AlreadyGone => continue,
                Removal::Changed => "it was changed since",
                Removal::Obstructed => "another file has its name there",
            };
            self.engine
                .observer
                .warning(&format!("dataset {}: the taken file {path:?} stays where it is: {why}", self.dataset.name));
        }
        Ok(())
    }
}
