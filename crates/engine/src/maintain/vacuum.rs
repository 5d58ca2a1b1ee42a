//! `run vacuum`: each table of the namespace loses the files that no version needs which somebody may still read.

use std::time::Duration;

use alluvium_core::{Error, Incarnation, NextVersion, ReadKind, Result, TableName, TableSpec};
use alluvium_lake::{ConsumerStore, DeltaLog, Floor, PutBefore, Removed, Vacuum};

use super::purge::Purge;
use crate::engine::Engine;
use crate::turn::give_back;

/// Of files that other programs put, only age tells that they are about to publish them: so much at least, as Delta has it.
const LEAST_AGE_OF_FOREIGN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long who follows waits between vacuums.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// What a vacuum did to a table, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VacuumReport {
    /// The table.
    pub table: TableName,
    /// What went.
    pub removed: Removed,
    /// The first version whose changes are still kept.
    pub kept_from: NextVersion,
    /// The named readers for which more is kept than their retention asks for.
    pub kept_for: Vec<String>,
}

/// What a vacuum did.
#[derive(Debug, Default)]
pub struct VacuumSummary {
    /// The tables that were looked at.
    pub tables: Vec<VacuumReport>,
    /// The tables that failed, and why. The others went on.
    pub failed: Vec<(String, Error)>,
}

impl VacuumSummary {
    /// What went from all tables.
    #[must_use]
    pub fn removed(&self) -> Removed {
        let mut sum = Removed::default();
        self.tables.iter().for_each(|report| sum += report.removed);
        sum
    }
}

/// What is looked at to tell which versions of a table are kept.
#[derive(Clone, Copy)]
struct Past<'p> {
    /// Somebody may look back to then.
    since_ms: i64,
    purge: Option<&'p Purge>,
    now_ms: i64,
    /// Who is below it has been told to start over.
    floor: NextVersion,
}

/// Which versions of a table are kept, and for whom.
struct Kept {
    from: NextVersion,
    for_consumers: Vec<String>,
}

impl Engine {
    /// Removes the files that nobody needs any more from the data tables of these datasets, or without names from all tables. With `dry_run`
    /// nothing changes.
    ///
    /// # Errors
    /// Only what concerns all tables; the rest is in [`VacuumSummary::failed`].
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the next run goes on where this one was.
    pub async fn vacuum(&self, names: &[String], dry_run: bool) -> Result<VacuumSummary> {
        let mut tables: Vec<TableName> = self.datasets(names)?.into_iter().map(|d| TableName::from(&d.name)).collect();
        if names.is_empty() {
            tables.extend(TableName::OURS);
            tables.push(TableName::OUTCOMES);
        }
        let mut summary = VacuumSummary::default();
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(summary) };
        for table in tables {
            if self.stop.asked() {
                break;
            }
            match Box::pin(self.vacuum_alone(&incarnation, &table, dry_run)).await {
                Ok(Some(report)) => {
                    self.observer.vacuumed(&report, dry_run);
                    summary.tables.push(report);
                }
                Ok(None) => {}
                Err(e) => summary.failed.push((table.to_string(), e)),
            }
        }
        Ok(summary)
    }

    /// Vacuums now and then, until the user asks to stop. What fails is tried again the next time.
    pub async fn vacuum_now_and_then(&self, names: &[String]) {
        while !self.stop.asked() {
            let failed = match self.vacuum(names, false).await {
                Ok(summary) => summary.failed.into_iter().map(|(_, error)| error).collect(),
                Err(error) => vec![error],
            };
            for error in failed {
                self.observer.warning(&format!("vacuum: {}; trying again later", error.chain_text()));
            }
            self.stop.sleep(FOLLOW_INTERVAL).await;
        }
    }

    async fn vacuum_alone(&self, incarnation: &Incarnation, table: &TableName, dry_run: bool) -> Result<Option<VacuumReport>> {
        if dry_run {
            return self.vacuum_table(incarnation, table, true).await;
        }
        let name = format!("vacuum.{}", table.as_str().replace('/', "."));
        let Some(lease) = self.turn(&name).await? else { return Ok(None) };
        let done = self.vacuum_table(incarnation, table, false).await;
        give_back(lease).await;
        done
    }

    /// `None`: there is no table.
    async fn vacuum_table(&self, incarnation: &Incarnation, table: &TableName, dry_run: bool) -> Result<Option<VacuumReport>> {
        let log = self.log(table);
        // One that a late listing does not show yet has nothing that is old.
        if !log.exists().await? {
            return Ok(None);
        }
        let now_ms = self.clock.now_ms();
        let dataset = self.project.datasets.iter().find(|dataset| TableName::from(&dataset.name) == *table);
        let purge = match dataset {
            Some(dataset) => self.purge_due(incarnation, dataset, &log, now_ms, !dry_run).await?,
            None if *table == TableName::REQUESTS => self.purge_requests(incarnation, &log, now_ms, dry_run).await?,
            None => None,
        };
        let spec = dataset.map_or_else(TableSpec::requests, TableSpec::data);
        let after = self.project.maintenance.vacuum_after.max(log.deleted_file_retention().await?.unwrap_or_default());
        let since_ms = ago(now_ms, after);
        let floor = Floor::new(&self.store, &self.resolver, table);
        let past = Past { since_ms, purge: purge.as_ref(), now_ms, floor: floor.kept_from().await? };
        let kept_for_all = || self.kept_for_all(incarnation, table, &log, past);
        let at_first = kept_for_all().await?.from;
        let ends = purge.as_ref().is_some_and(|purge| purge.gone(at_first).is_some());
        let before = PutBefore {
            // What was staged and not recorded may hold anything. While a purge is held up, nobody need stage again for it.
            ours_ms: if ends { i64::MAX } else { since_ms },
            foreign_ms: ago(now_ms, after.max(LEAST_AGE_OF_FOREIGN)),
            replaced_until: purge.as_ref().map(Purge::version),
        };
        let vacuum = Vacuum::new(&log, &self.resolver, incarnation, table);
        let found = vacuum.find(before).await?;
        self.check_life(incarnation).await?;
        let fenced = if dry_run { found.would_fence().await? } else { found.fence().await? };
        let mut kept = kept_for_all().await?;
        if !dry_run && (!fenced.is_empty() || purge.is_some()) {
            // Who begins from now on sees the floor; who has begun so far is seen.
            floor.raise(kept.from, now_ms).await?;
            let seen = kept_for_all().await?;
            if seen.from < kept.from {
                kept = seen;
            }
        }
        let awaits_batches = fenced.awaits_batches();
        let foreign_from = log.kept_since(before.foreign_ms).await?;
        let condemned = fenced.condemn(kept.from, foreign_from).await?;
        let removed = if dry_run {
            condemned.sum()
        } else {
            self.check_life(incarnation).await?;
            let removed = condemned.remove().await?;
            let applied = purge.as_ref().and_then(|purge| purge.gone(kept.from.min(at_first))).filter(|_| !awaits_batches);
            if *table == TableName::REQUESTS {
                self.drop_old_ledgers(incarnation).await?;
            }
            if let Some(applied) = applied {
                self.purge_log(incarnation, &spec, &log, applied, now_ms).await?;
            }
            removed
        };
        Ok(Some(VacuumReport { table: table.clone(), removed, kept_from: kept.from, kept_for: kept.for_consumers }))
    }

    /// Which versions are kept for who looks back so far, and for the named readers that have not come so far.
    async fn kept_for_all(&self, incarnation: &Incarnation, table: &TableName, log: &DeltaLog, past: Past<'_>) -> Result<Kept> {
        let Past { since_ms, purge, now_ms, floor } = past;
        let mut kept = Kept { from: log.kept_since(since_ms).await?, for_consumers: Vec::new() };
        // A purge asks for no retention; in the end it waits for nobody.
        let behind = |version: Option<u64>| version.map_or(NextVersion(0), |version| NextVersion(version + 1));
        kept.from = kept.from.max(behind(purge.map(Purge::version)));
        let least = behind(purge.and_then(|purge| purge.waits_for_nobody(now_ms)));
        let mut from = kept.from;
        for consumer in ConsumerStore::new(&self.store, &self.resolver, incarnation).list().await? {
            let kind = match *table == TableName::NOTIFICATIONS {
                true => ReadKind::Partitions,
                false if TableName::from(&consumer.record.dataset) == *table => ReadKind::Rows,
                false => continue,
            };
            let reached = consumer.reached(kind);
            // To one that was given nothing, the rows that stand are as good as their history.
            if reached.begun && reached.next >= floor.max(least) && reached.next < kept.from {
                from = from.min(reached.next);
                kept.for_consumers.push(consumer.record.consumer.clone());
            }
        }
        kept.from = from;
        Ok(kept)
    }
}

fn ago(now_ms: i64, time: Duration) -> i64 {
    now_ms.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}
