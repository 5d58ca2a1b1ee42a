//! The named readers of a namespace: where each stands, how far that is behind, and acknowledging, resetting and removing by name.

use std::collections::BTreeMap;

use alluvium_core::{Dataset, DatasetName, Error, Kind, NextVersion, ReadKind, Result, TableName, Token};
use alluvium_lake::{Advanced, ConsumerStore, Floor, Reached};

use super::{no_consumer, table_read};
use crate::engine::Engine;
use crate::source::push_time;

/// A consumer of one dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// Its name.
    pub consumer: String,
    /// The dataset it reads.
    pub dataset: DatasetName,
    /// Where it stands among notifications.
    pub partitions: PositionStatus,
    /// Where it stands among rows.
    pub rows: PositionStatus,
    /// When it was last moved, in milliseconds since 1970.
    pub moved_at_ms: i64,
}

impl ConsumerStatus {
    /// When it was last moved, as RFC 3339 in UTC.
    #[must_use]
    pub fn moved_at(&self) -> String {
        let mut text = String::new();
        push_time(&mut text, i128::from(self.moved_at_ms) * 1_000_000, false);
        text
    }
}

/// Where a consumer stands in one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionStatus {
    /// The first version it has not acknowledged.
    pub next: NextVersion,
    /// How many versions it is behind; `None` if that cannot be told.
    pub lag_versions: Option<u64>,
    /// Whether all it has not read is kept, as far as the log tells; if not, it must start over.
    pub kept: bool,
}

/// The versions a table has, and those that are kept.
#[derive(Debug, Clone, Copy)]
struct Kept {
    next: u64,
    from: u64,
}

impl Engine {
    /// All consumers of the namespace, by name and dataset.
    ///
    /// # Errors
    /// [`Kind::Conflict`] if the namespace is being deleted, [`Kind::Corrupt`] and [`Kind::Unsupported`] for records that cannot be
    /// read, [`Kind::Unavailable`] if the store failed.
    pub async fn consumers(&self) -> Result<Vec<ConsumerStatus>> {
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(Vec::new()) };
        let store = ConsumerStore::new(&self.store, &self.resolver, &incarnation);
        let mut tables: BTreeMap<TableName, Kept> = BTreeMap::new();
        let mut consumers = Vec::new();
        for consumer in store.list().await? {
            let dataset = self.project.dataset(&consumer.record.dataset.0);
            let at = |kind: ReadKind, kept: Option<Kept>| position(consumer.reached(kind), kept);
            let (mut partitions, mut rows) = (None, None);
            if let Some(dataset) = dataset {
                for (kind, to) in [(ReadKind::Partitions, &mut partitions), (ReadKind::Rows, &mut rows)] {
                    let table = table_read(kind, dataset);
                    let known = tables.get(&table).copied();
                    let kept = match known {
                        Some(kept) => kept,
                        None => self.kept(&table).await?,
                    };
                    tables.insert(table, kept);
                    *to = Some(kept);
                }
            }
            consumers.push(ConsumerStatus {
                partitions: at(ReadKind::Partitions, partitions),
                rows: at(ReadKind::Rows, rows),
                consumer: consumer.record.consumer.clone(),
                dataset: consumer.record.dataset.clone(),
                moved_at_ms: consumer.record.written_at_ms,
            });
        }
        Ok(consumers)
    }

    async fn kept(&self, table: &TableName) -> Result<Kept> {
        let floor = Floor::new(&self.store, &self.resolver, table).kept_from().await?;
        let versions = self.log(table).versions_from(0).await?;
        let next = versions.last().map_or(0, |newest| newest + 1);
        Ok(Kept { next, from: floor.0.max(versions.first().copied().unwrap_or(0)) })
    }

    /// Acknowledges what a token stands for. Durable on return; may be repeated with the same token.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a token that is none or is of no dataset of the project, [`Kind::NotFound`] if there is no such
    /// consumer, [`Kind::Conflict`] if the consumer is further already, or another reader moved it since the token was read.
    pub async fn commit_consumer(&self, name: &str, token: &str) -> Result<()> {
        let token = Token::parse(token)?;
        let incarnation = self.existing_incarnation().await?;
        let of = |dataset: &&Dataset| token.is_of(incarnation.as_ref(), &dataset.name);
        let dataset = self.project.datasets.iter().find(of).ok_or_else(|| {
            Error::new(Kind::Invalid, "the token is of no dataset of the project, or of a former life of the namespace")
                .hint("a token is good for the dataset and the namespace that it was printed for")
        })?;
        let Some(incarnation) = &incarnation else { return Err(no_consumer(name)) };
        let store = ConsumerStore::new(&self.store, &self.resolver, incarnation);
        match store.advance(name, &dataset.name, &token, self.clock.now_ms()).await? {
            Advanced::Moved(_) | Advanced::AlreadyThere(_) => Ok(()),
            Advanced::Unknown => Err(no_consumer(name)),
            Advanced::Older(at) => Err(Error::new(
                Kind::Conflict,
                format!(
                    "consumer {name} of dataset {} has acknowledged everything before version {} already; the token is older",
                    dataset.name, at.0
                ),
            )
            .hint("to read again from the beginning: alluvium consumers reset NAME")),
            Advanced::Stale(_) => Err(super::another_reads(name, &dataset.name)),
        }
    }

    /// Puts a consumer back to the beginning, in all datasets that it reads. May be repeated.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is no such consumer, [`Kind::Unavailable`] if the store failed.
    pub async fn reset_consumer(&self, name: &str) -> Result<()> {
        let store = self.consumer_store(name).await?;
        if store.reset(name, self.clock.now_ms()).await? { Ok(()) } else { Err(no_consumer(name)) }
    }

    /// Forgets a consumer, in all datasets that it reads: nothing is kept for it any more. May be repeated.
    ///
    /// # Errors
    /// As [`Engine::reset_consumer`].
    pub async fn remove_consumer(&self, name: &str) -> Result<()> {
        let store = self.consumer_store(name).await?;
        if store.remove(name, self.clock.now_ms()).await? { Ok(()) } else { Err(no_consumer(name)) }
    }

    async fn consumer_store(&self, name: &str) -> Result<ConsumerStore> {
        let incarnation = self.existing_incarnation().await?.ok_or_else(|| no_consumer(name))?;
        Ok(ConsumerStore::new(&self.store, &self.resolver, &incarnation))
    }
}

fn position(reached: &Reached, table: Option<Kept>) -> PositionStatus {
    let next = reached.next;
    PositionStatus {
        next,
        lag_versions: table.map(|t| t.next.saturating_sub(next.0)),
        // To a reader that was given nothing, the rows that stand are as good as their history.
        kept: table.is_none_or(|t| !reached.begun || (next.0 >= t.from && next.0 <= t.next)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_counts_versions_and_what_is_not_kept_is_told() {
        let kept = Some(Kept { next: 10, from: 4 });
        let reached = |next, begun| Reached { next: NextVersion(next), begun, ..Reached::default() };
        let at = |next| position(&reached(next, true), kept);
        assert_eq!((at(10).lag_versions, at(10).kept), (Some(0), true));
        assert_eq!((at(4).lag_versions, at(4).kept), (Some(6), true));
        assert!(!at(3).kept);
        assert!(!at(0).kept);
        assert!(position(&reached(0, false), kept).kept);
        assert!(!at(11).kept);
        assert_eq!(position(&reached(3, true), None).lag_versions, None);
    }
}
