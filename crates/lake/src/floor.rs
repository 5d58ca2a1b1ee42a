//! Floors: from which version on a table's changes are kept. The form is in `docs/formats/consumer.md`.
//!
//! Place in the flow: whoever deletes files or log entries that changes could be read from (vacuum, log cleanup, a purge) first
//! raises the floor of the table, then reads the consumers, then deletes. A reader registers as a consumer, then reads the floor, then
//! the files. So either the deleter sees the reader, or the reader sees the floor. Invariant: a floor never goes down.

use alluvium_core::{Error, Kind, NextVersion, Resolver, Result, TableName};
use bytes::Bytes;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use crate::consumer::record_number;
use crate::records::read_versioned;
use crate::store::{PutNew, Store};

/// The version of the stored form that this program writes and the newest it reads.
pub const FLOOR_FORMAT: u32 = 1;
/// A floor is given up, loudly, after losing this many races.
const MAX_TRIES: u32 = 100;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FloorRecord {
    format: u32,
    /// The first version whose changes are kept.
    kept_from: u64,
    written_at_ms: i64,
}

/// The floor of one table.
#[derive(Debug, Clone)]
pub struct Floor {
    store: Store,
    directory: Path,
}

impl Floor {
    /// The floor of a table in the namespace of `resolver`.
    #[must_use]
    pub fn new(store: &Store, resolver: &Resolver, table: &TableName) -> Self {
        Self { store: store.clone(), directory: Path::from(resolver.floor_dir(table)) }
    }

    /// The first version whose changes are kept: a reader that has not got an earlier one will never get it.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed, [`Kind::Corrupt`] and [`Kind::Unsupported`] for a record that cannot be read.
    pub async fn kept_from(&self) -> Result<NextVersion> {
        Ok(NextVersion(self.newest().await?.map_or(0, |(_, record)| record.kept_from)))
    }

    /// Raises the floor to `kept_from`; one that is there or higher stays. Durable on return, and only then may anything older be
    /// deleted, after a look at the consumers. May be repeated.
    ///
    /// # Errors
    /// As [`Floor::kept_from`]; [`Kind::Unavailable`] if every race was lost.
    pub async fn raise(&self, kept_from: NextVersion, now_ms: i64) -> Result<()> {
        for _ in 0..MAX_TRIES {
            let newest = self.newest().await?;
            let (number, there) = newest.map_or((0, 0), |(number, record)| (number, record.kept_from));
            if there >= kept_from.0 {
                return Ok(());
            }
            let record = FloorRecord { format: FLOOR_FORMAT, kept_from: kept_from.0, written_at_ms: now_ms };
            let bytes = serde_json::to_vec(&record).map_err(|e| Error::new(Kind::Internal, "writing a floor").source(e))?;
            // Records are never deleted: there are few, and the name of one is never free again.
            if self.store.put_new(&self.path(number + 1), Bytes::from(bytes)).await? == PutNew::Created {
                return Ok(());
            }
        }
        Err(Error::new(Kind::Unavailable, format!("raising the floor at {}: {MAX_TRIES} races lost", self.directory))
            .hint("run again later"))
    }

    async fn newest(&self) -> Result<Option<(u64, FloorRecord)>> {
        let found = self.store.list(&self.directory, None).await?;
        let Some(number) = found.iter().rev().find_map(|f| f.path.filename().and_then(record_number)) else { return Ok(None) };
        let path = self.path(number);
        let gone = || Error::new(Kind::Corrupt, format!("{path} is gone")).hint("restore it from a backup of the storage");
        let bytes = self.store.get(&path).await?.ok_or_else(gone)?;
        Ok(Some((number, read_versioned(&bytes, FLOOR_FORMAT, path.as_ref())?)))
    }

    fn path(&self, number: u64) -> Path {
        self.directory.clone().join(format!("{number:020}.json"))
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

    #[test]
    fn the_golden_file_reads_and_writes_as_it_is() {
        let golden = include_str!("../tests/golden/floor-v1.json").trim_end();
        let record: FloorRecord = read_versioned(golden.as_bytes(), FLOOR_FORMAT, "floor").unwrap();
        assert_eq!(record, FloorRecord { format: 1, kept_from: 120, written_at_ms: 1_795_965_978_528 });
        assert_eq!(serde_json::to_string(&record).unwrap(), golden);
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
        let path = floor(&store).path(1);
        assert_eq!(store.put_new(&path, Bytes::from_static(b"{\"format\":2}")).await.unwrap(), PutNew::Created);
        assert_eq!(floor(&store).kept_from().await.unwrap_err().kind(), Kind::Unsupported);
    }
}
