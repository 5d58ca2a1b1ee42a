//! `run vacuum`: each table of the namespace loses the files that no version needs which somebody may still read.

use std::time::Duration;

use alluvium_core::{Error, Incarnation, NextVersion, ReadKind, Result, TableName};
use alluvium_lake::{ConsumerStore, DeltaLog, Floor, PutBefore, Removed, Vacuum};

use crate::engine::Engine;
use crate::turn::give_back;

/// Of files that other programs put, only age tells that they are about to publish them: so much at least, as Delta has it.
const LEAST_AGE_OF_FOREIGN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

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
        let after = self.project.maintenance.vacuum_after.max(log.deleted_file_retention().await?.unwrap_or_default());
        let before = PutBefore { ours_ms: ago(now_ms, after), foreign_ms: ago(now_ms, after.max(LEAST_AGE_OF_FOREIGN)) };
        let vacuum = Vacuum::new(&log, &self.resolver, incarnation, table);
        let found = vacuum.find(before).await?;
        self.check_life(incarnation).await?;
        if found.is_empty() {
            let Kept { from, .. } = self.kept_for_all(incarnation, table, &log, before.ours_ms).await?;
            let (removed, kept_for) = (Removed::default(), Vec::new());
            return Ok(Some(VacuumReport { table: table.clone(), removed, kept_from: from, kept_for }));
        }
        let fenced = if dry_run { found.would_fence().await? } else { found.fence().await? };
        let mut kept = self.kept_for_all(incarnation, table, &log, before.ours_ms).await?;
        if !dry_run {
            // Who registers from now on sees the floor; who has registered so far is seen.
            Floor::new(&self.store, &self.resolver, table).raise(kept.from, now_ms).await?;
            let seen = self.kept_for_all(incarnation, table, &log, before.ours_ms).await?;
            if seen.from < kept.from {
                kept = seen;
            }
        }
        let foreign_from = log.kept_since(before.foreign_ms).await?;
        let condemned = fenced.condemn(kept.from, foreign_from).await?;
        let removed = if dry_run {
            condemned.sum()
        } else {
            self.check_life(incarnation).await?;
            condemned.remove().await?
        };
        Ok(Some(VacuumReport { table: table.clone(), removed, kept_from: kept.from, kept_for: kept.for_consumers }))
    }

    /// Which versions are kept for who looks back to `since_ms`, and for the named readers that have not come so far.
    async fn kept_for_all(&self, incarnation: &Incarnation, table: &TableName, log: &DeltaLog, since_ms: i64) -> Result<Kept> {
        let mut kept = Kept { from: log.kept_since(since_ms).await?, for_consumers: Vec::new() };
        // A reader below the floor is told to start over; nothing is kept for it.
        let floor = Floor::new(&self.store, &self.resolver, table).kept_from().await?;
        let mut from = kept.from;
        for consumer in ConsumerStore::new(&self.store, &self.resolver, incarnation).list().await? {
            let kind = match *table == TableName::NOTIFICATIONS {
                true => ReadKind::Partitions,
                false if TableName::from(&consumer.record.dataset) == *table => ReadKind::Rows,
                false => continue,
            };
            let reached = consumer.reached(kind);
            // To one that was given nothing, the rows that stand are as good as their history.
            if reached.begun && reached.next >= floor && reached.next < kept.from {
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
