//! Numbers that only rise, each in a row of numbered records: from which version on a table's changes are kept, and up to which requests a table
//! is purged. The forms are in `docs/formats/consumer.md` and `docs/formats/purge.md`.
//!
//! Place in the flow: whoever deletes files or log entries that changes could be read from (vacuum, log cleanup, a purge) first
//! raises the floor of the table, then reads the consumers, then deletes. A reader registers as a consumer, then reads the floor, then
//! the files. So either the deleter sees the reader, or the reader sees the floor. Invariant: such a number never goes down.

use std::marker::PhantomData;

use alluvium_core::{Error, Kind, LedgerPosition, NextVersion, Resolver, Result, TableName};
use bytes::Bytes;
use object_store::path::Path;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::consumer::record_number;
use crate::records::read_versioned;
use crate::store::{PutNew, Store};

/// The version of the stored form of a floor that this program writes and the newest it reads.
pub const FLOOR_FORMAT: u32 = 1;
/// The version of the stored form of how far a table is purged that this program writes and the newest it reads.
pub const PURGED_FORMAT: u32 = 1;
/// A number is given up, loudly, after losing this many races.
const MAX_TRIES: u32 = 100;

/// A record of what only rises.
trait Record: Serialize + DeserializeOwned + Clone + PartialEq {
    const FORMAT: u32;
    const WHAT: &'static str;

    /// This one, with whatever is higher in the one that stands.
    fn over(self, standing: &Self) -> Self;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FloorRecord {
    format: u32,
    /// The first version whose changes are kept.
    kept_from: u64,
    written_at_ms: i64,
}

impl Record for FloorRecord {
    const FORMAT: u32 = FLOOR_FORMAT;
    const WHAT: &'static str = "the floor";

    fn over(self, standing: &Self) -> Self {
        if self.kept_from > standing.kept_from { self } else { standing.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PurgedRecord {
    format: u32,
    #[serde(flatten)]
    purged: Purged,
    written_at_ms: i64,
}

impl Record for PurgedRecord {
    const FORMAT: u32 = PURGED_FORMAT;
    const WHAT: &'static str = "how far a table is purged";

    fn over(self, standing: &Self) -> Self {
        let (new, old) = (self.purged, standing.purged);
        let purged = Purged { to: new.to.max(old.to), erased_until: new.erased_until.max(old.erased_until) };
        if purged == old { standing.clone() } else { Self { purged, ..self } }
    }
}

/// How far a table is purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Purged {
    /// The last batch of requests whose erasures for privacy left nothing in the table's files.
    pub to: LedgerPosition,
    /// The latest execution time of those erasures, in microseconds since 1970; `None`: there was none.
    pub erased_until: Option<i64>,
}

#[derive(Debug, Clone)]
struct Rising<R> {
    store: Store,
    directory: Path,
    record: PhantomData<fn() -> R>,
}

impl<R: Record> Rising<R> {
    fn new(store: &Store, directory: String) -> Self {
        Self { store: store.clone(), directory: Path::from(directory), record: PhantomData }
    }

    async fn raise(&self, record: R) -> Result<()> {
        for _ in 0..MAX_TRIES {
            let newest = self.newest().await?;
            let (number, record) = match newest {
                None => (0, record.clone()),
                Some((number, standing)) => match record.clone().over(&standing) {
                    same if same == standing => return Ok(()),
                    higher => (number, higher),
                },
            };
            let bytes = serde_json::to_vec(&record).map_err(|e| Error::new(Kind::Internal, "writing a record").source(e))?;
            // Records are never deleted: there are few, and the name of one is never free again.
            if self.store.put_new(&self.path(number + 1), Bytes::from(bytes)).await? == PutNew::Created {
                return Ok(());
            }
        }
        Err(Error::new(Kind::Unavailable, format!("raising {} at {}: {MAX_TRIES} races lost", R::WHAT, self.directory))
            .hint("run again later"))
    }

    async fn newest(&self) -> Result<Option<(u64, R)>> {
        let found = self.store.list(&self.directory, None).await?;
        let Some(number) = found.iter().rev().find_map(|f| f.path.filename().and_then(record_number)) else { return Ok(None) };
        let path = self.path(number);
        let gone = || Error::new(Kind::Corrupt, format!("{path} is gone")).hint("restore it from a backup of the storage");
        let bytes = self.store.get(&path).await?.ok_or_else(gone)?;
        Ok(Some((number, read_versioned(&bytes, R::FORMAT, path.as_ref())?)))
    }

    fn path(&self, number: u64) -> Path {
        self.directory.clone().join(format!("{number:020}.json"))
    }
}

/// The floor of one table: from which version on its changes are kept.
#[derive(Debug, Clone)]
pub struct Floor(Rising<FloorRecord>);

impl Floor {
    /// The floor of a table in the namespace of `resolver`.
    #[must_use]
    pub fn new(store: &Store, resolver: &Resolver, table: &TableName) -> Self {
        Self(Rising::new(store, resolver.floor_dir(table)))
    }

    /// The first version whose changes are kept: a reader that has not got an earlier one will never get it.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed, [`Kind::Corrupt`] and [`Kind::Unsupported`] for a record that cannot be read.
    pub async fn kept_from(&self) -> Result<NextVersion> {
        Ok(NextVersion(self.0.newest().await?.map_or(0, |(_, record)| record.kept_from)))
    }

    /// Raises the floor to `kept_from`; one that is there or higher stays. Durable on return, and only then may anything older be
    /// deleted, after a look at the consumers. May be repeated.
    ///
    /// # Errors
    /// As [`Floor::kept_from`]; [`Kind::Unavailable`] if every race was lost.
    pub async fn raise(&self, kept_from: NextVersion, now_ms: i64) -> Result<()> {
        self.0.raise(FloorRecord { format: FLOOR_FORMAT, kept_from: kept_from.0, written_at_ms: now_ms }).await
    }
}

/// How far one table is purged.
#[derive(Debug, Clone)]
pub struct PurgedTo(Rising<PurgedRecord>);

impl PurgedTo {
    /// Of a table in the namespace of `resolver`.
    #[must_use]
    pub fn new(store: &Store, resolver: &Resolver, table: &TableName) -> Self {
        Self(Rising::new(store, resolver.purged_dir(table)))
    }

    /// How far it is.
    ///
    /// # Errors
    /// As [`Floor::kept_from`].
    pub async fn get(&self) -> Result<Purged> {
        Ok(self.0.newest().await?.map_or_else(Purged::default, |(_, record)| record.purged))
    }

    /// Says that it is so far. Durable on return; may be repeated.
    ///
    /// # Errors
    /// As [`Floor::raise`].
    pub async fn raise(&self, purged: Purged, now_ms: i64) -> Result<()> {
        self.0.raise(PurgedRecord { format: PURGED_FORMAT, purged, written_at_ms: now_ms }).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use alluvium_core::Namespace;
    use object_store::memory::InMemory;

    use super::*;

    fn floor(store: &Store) -> Floor {
        Floor::new(store, &Resolver::new(Namespace::default()), &TableName::NOTIFICATIONS)
    }

    fn reads_and_writes<R: Record + std::fmt::Debug>(golden: &str, wanted: &R) {
        let golden = golden.trim_end();
        let record: R = read_versioned(golden.as_bytes(), R::FORMAT, "record").unwrap();
        assert_eq!(&record, wanted);
        assert_eq!(serde_json::to_string(&record).unwrap(), golden);
    }

    #[test]
    fn the_golden_files_read_and_write_as_they_are() {
        let floor = FloorRecord { format: 1, kept_from: 120, written_at_ms: 1_795_965_978_528 };
        reads_and_writes(include_str!("../tests/golden/floor-v1.json"), &floor);
        let purged = PurgedRecord {
            format: 1,
            purged: Purged { to: LedgerPosition(17), erased_until: Some(1_796_083_100_000_000) },
            written_at_ms: 1_796_083_200_000,
        };
        reads_and_writes(include_str!("../tests/golden/purged-v1.json"), &purged);
    }

    #[tokio::test]
    async fn a_floor_goes_up_and_never_down() {
        let store = Store::over(Arc::new(InMemory::new()));
        assert_eq!(floor(&store).kept_from().await.unwrap(), NextVersion(0));
        for (to, then) in [(7, 7), (3, 7), (7, 7), (120, 120)] {
            floor(&store).raise(NextVersion(to), 1).await.unwrap();
            assert_eq!(floor(&store).kept_from().await.unwrap(), NextVersion(then));
        }
    }

    #[tokio::test]
    async fn a_floor_of_a_newer_format_is_unsupported() {
        let store = Store::over(Arc::new(InMemory::new()));
        let path = floor(&store).0.path(1);
        assert_eq!(store.put_new(&path, Bytes::from_static(b"{\"format\":2}")).await.unwrap(), PutNew::Created);
        assert_eq!(floor(&store).kept_from().await.unwrap_err().kind(), Kind::Unsupported);
    }
}
