//! Leases: who goes first. They save work and keep nothing safe: every commit is fenced by the tables' own logs.
//!
//! A lease is a row of numbered records, put-if-absent. The holder writes the next number before its time to live is over; a
//! waiter that has watched one number stand still for that long, by its own clock, writes the next and is the holder. No two
//! machines' clocks are compared. A holder that is a dead process of the waiter's own machine is overtaken at once. The form is in
//! `docs/formats/lease.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use alluvium_core::{Error, Kind, Resolver, Result};
use bytes::Bytes;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::process::ProcessId;
use crate::records::read_versioned;
use crate::store::{PutNew, Store};

/// The version of the stored form that this program writes and the newest it reads.
pub const LEASE_FORMAT: u32 = 1;
/// Records kept behind the newest, for those who look.
const RECORDS_KEPT: u64 = 4;
/// Old records that are deleted at a time, at most.
const MOST_DELETED: usize = 64;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct LeaseRecord {
    format: u32,
    holder: String,
    ttl_ms: u64,
    released: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process: Option<ProcessId>,
}

impl LeaseRecord {
    /// Somebody's, as far as can be told; it runs out if nobody renews it.
    fn unreadable(ttl: Duration) -> Self {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self { format: LEASE_FORMAT, holder: String::new(), ttl_ms, released: false, process: None }
    }
}

/// A lease that this process may wait for.
#[derive(Debug)]
pub struct LeaseWatch {
    place: Place,
    ttl: Duration,
    /// The newest number seen, and since when it has stood still.
    seen: Option<(u64, Duration)>,
}

/// Who holds a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// It is free.
    Nobody,
    /// A process that lives: one of this machine, or one that was seen to renew.
    Alive,
    /// A process of which it cannot be told yet.
    Unknown,
}

#[derive(Debug, Clone)]
struct Place {
    store: Store,
    resolver: Resolver,
    name: String,
}

/// A held lease. Renewed in the background until it is released, dropped or lost.
#[derive(Debug)]
pub struct Lease {
    place: Place,
    record: LeaseRecord,
    newest: Arc<AtomicU64>,
    lost: Arc<AtomicBool>,
    renewal: JoinHandle<()>,
}

impl LeaseWatch {
    /// The lease of that name in the namespace of `resolver`.
    #[must_use]
    pub fn new(store: &Store, resolver: &Resolver, name: &str, ttl: Duration) -> Self {
        Self { place: Place { store: store.clone(), resolver: resolver.clone(), name: name.to_owned() }, ttl, seen: None }
    }

    /// Takes the lease if it is free, released, or has stood still for its time to live since it was first seen here.
    /// `None`: somebody holds it; ask again in a while.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn try_acquire(&mut self) -> Result<Option<Lease>> {
        let looked = self.now();
        let (newest, older) = self.place.newest(self.ttl).await?;
        let next = match &newest {
            None => 1,
            Some((number, record)) => {
                if !self.free(*number, record) {
                    return Ok(None);
                }
                number + 1
            }
        };
        let record = LeaseRecord {
            format: LEASE_FORMAT,
            holder: self.place.store.machine().fresh_id().simple().to_string(),
            ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            released: false,
            process: self.place.store.machine().process(),
        };
        if self.place.put(next, &record).await? == PutNew::Exists {
            return Ok(None);
        }
        // Whoever stood still since it looked may have found a name free that others had used and deleted.
        let was_slow = self.now().saturating_sub(looked) >= self.ttl;
        if was_slow && matches!(self.place.newest(self.ttl).await?.0, Some((there, _)) if there > next) {
            return Ok(None);
        }
        let lease = Lease::held(self.place.clone(), record, next, self.ttl);
        for old in older.into_iter().rev().filter(|number| number + RECORDS_KEPT <= next).take(MOST_DELETED) {
            self.place.delete(old).await;
        }
        Ok(Some(lease))
    }

    /// Who holds the lease, as far as can be told by now.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn holder(&mut self) -> Result<Holder> {
        let before = self.seen.map(|(number, _)| number);
        Ok(match self.place.newest(self.ttl).await?.0 {
            None => Holder::Nobody,
            Some((number, record)) if self.free(number, &record) => Holder::Nobody,
            Some((_, record)) if record.process.as_ref().and_then(ProcessId::is_alive) == Some(true) => Holder::Alive,
            Some((number, _)) if before.is_some_and(|seen| seen < number) => Holder::Alive,
            Some(_) => Holder::Unknown,
        })
    }

    fn now(&self) -> Duration {
        self.place.store.machine().elapsed()
    }

    fn free(&mut self, number: u64, record: &LeaseRecord) -> bool {
        if record.released || record.process.as_ref().and_then(ProcessId::is_alive) == Some(false) {
            return true;
        }
        match self.seen {
            Some((seen, since)) if seen == number => self.now().saturating_sub(since) >= Duration::from_millis(record.ttl_ms),
            _ => {
                self.seen = Some((number, self.now()));
                false
            }
        }
    }
}

impl Lease {
    fn held(place: Place, record: LeaseRecord, number: u64, ttl: Duration) -> Self {
        let (newest, lost) = (Arc::new(AtomicU64::new(number)), Arc::new(AtomicBool::new(false)));
        let renewal = tokio::spawn(renew(place.clone(), record.clone(), newest.clone(), lost.clone(), ttl));
        Self { place, record, newest, lost, renewal }
    }

    /// Whether somebody has overtaken this holder.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Gives the lease back, so that the next need not wait.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed; then the lease runs out by itself.
    pub async fn release(self) -> Result<()> {
        self.renewal.abort();
        if self.is_lost() {
            return Ok(());
        }
        let next = self.newest.load(Ordering::SeqCst) + 1;
        let record = LeaseRecord { released: true, ..self.record.clone() };
        // If somebody has overtaken us, or a renewal was under way, the number is taken: the lease then runs out by itself.
        let _either_way = self.place.put(next, &record).await?;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// Writes the next number three times within a time to live.
async fn renew(place: Place, record: LeaseRecord, newest: Arc<AtomicU64>, lost: Arc<AtomicBool>, ttl: Duration) {
    let now = place.store.machine().elapsed();
    renew_since(now, place, record, newest, lost, ttl).await;
}

async fn renew_since(
    mut renewed: Duration,
    place: Place,
    record: LeaseRecord,
    newest: Arc<AtomicU64>,
    lost: Arc<AtomicBool>,
    ttl: Duration,
) {
    let machine = place.store.machine().clone();
    loop {
        machine.sleep(ttl / 3).await;
        let number = newest.load(Ordering::SeqCst) + 1;
        // Whoever stood still so long may have been overtaken so often that the next number is free again.
        let is_late = machine.elapsed().saturating_sub(renewed) >= ttl;
        if is_late && matches!(place.newest(ttl).await, Ok((Some((there, _)), _)) if there > number) {
            lost.store(true, Ordering::SeqCst);
            return;
        }
        match place.put(number, &record).await {
            Ok(PutNew::Created) => {
                newest.store(number, Ordering::SeqCst);
                renewed = machine.elapsed();
                if let Some(old) = number.checked_sub(RECORDS_KEPT) {
                    place.delete(old).await;
                }
            }
            Ok(PutNew::Exists) => {
                lost.store(true, Ordering::SeqCst);
                return;
            }
            Err(error) => {
                tracing::warn!(lease = place.name, error = %error.chain_text(), "could not renew a lease; trying again")
            }
        }
    }
}

impl Place {
    fn path(&self, number: u64) -> Result<Path> {
        let path = self.resolver.lease(&self.name, number).map_err(|e| Error::new(Kind::Internal, e.to_string()))?;
        Ok(Path::from(path))
    }

    /// The newest record and its number; and the numbers of older ones that still stand there.
    async fn newest(&self, ttl: Duration) -> Result<(Option<(u64, LeaseRecord)>, Vec<u64>)> {
        let first = self.path(0)?;
        let directory: Path = first.parts().take(first.parts().count() - 1).collect();
        let mut numbered: Vec<(u64, Path)> = Vec::new();
        for found in self.store.list(&directory, None).await? {
            let number = found.path.filename().and_then(|n| n.strip_suffix(".json")).and_then(|n| n.parse().ok());
            numbered.extend(number.map(|number| (number, found.path)));
        }
        while let Some((number, path)) = numbered.pop() {
            // One that was deleted since the listing is not the newest any more: its holder went on.
            if let Some(bytes) = self.store.get(&path).await? {
                let record = match read_versioned(&bytes, LEASE_FORMAT, path.as_ref()) {
                    // Leases are not synced: a power cut may leave their names without their bytes.
                    Err(e) if e.kind() == Kind::Corrupt => LeaseRecord::unreadable(ttl),
                    read => read?,
                };
                return Ok((Some((number, record)), numbered.into_iter().map(|(number, _)| number).collect()));
            }
        }
        Ok((None, Vec::new()))
    }

    async fn put(&self, number: u64, record: &LeaseRecord) -> Result<PutNew> {
        let bytes = serde_json::to_vec(record).map_err(|e| Error::new(Kind::Internal, "writing a lease").source(e))?;
        self.store.stage(&self.path(number)?, Bytes::from(bytes)).await
    }

    async fn delete(&self, number: u64) {
        if let Ok(path) = self.path(number) {
            // What is left behind the next holder deletes.
            let _ = self.store.delete(&path).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use alluvium_core::Namespace;
    use object_store::memory::InMemory;
    use tokio::time::Instant;

    use super::*;

    const TTL: Duration = Duration::from_secs(2);

    fn watch(store: &Store) -> LeaseWatch {
        LeaseWatch::new(store, &Resolver::new(Namespace::default()), "ingest.edit", TTL)
    }

    /// Asks until the lease is got or `deadline` has passed.
    async fn acquired_within(watch: &mut LeaseWatch, deadline: Duration) -> Option<Lease> {
        let end = Instant::now() + deadline;
        while Instant::now() < end {
            if let Some(lease) = watch.try_acquire().await.unwrap() {
                return Some(lease);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }

    #[test]
    fn the_golden_file_reads_and_writes_as_it_is() {
        let golden = include_str!("../tests/golden/lease-v1.json").trim_end();
        let record: LeaseRecord = read_versioned(golden.as_bytes(), LEASE_FORMAT, "lease").unwrap();
        assert_eq!((record.holder.as_str(), record.ttl_ms, record.released), ("6f1c0a", 10_000, false));
        assert_eq!(serde_json::to_string(&record).unwrap(), golden);
    }

    #[tokio::test]
    async fn a_held_lease_is_renewed_and_a_released_one_is_free_at_once() {
        let store = Store::over(Arc::new(InMemory::new()));
        let held = watch(&store).try_acquire().await.unwrap().expect("it is free");
        let mut other = watch(&store);
        assert!(acquired_within(&mut other, TTL * 2).await.is_none());
        assert_eq!(other.holder().await.unwrap(), Holder::Alive);
        held.release().await.unwrap();
        assert!(other.try_acquire().await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_holder_that_stands_still_is_overtaken_after_its_time_and_learns_of_it() {
        let store = Store::over(Arc::new(InMemory::new()));
        let lease = watch(&store).try_acquire().await.unwrap().expect("it is free");
        // As a process that is paused: it holds on, but does not renew.
        lease.renewal.abort();
        let (mut other, since) = (watch(&store), Instant::now());
        let taken = acquired_within(&mut other, TTL * 20).await.expect("its time is over");
        assert!(since.elapsed() >= TTL);
        renew(lease.place.clone(), lease.record.clone(), lease.newest.clone(), lease.lost.clone(), TTL).await;
        assert!(lease.is_lost());
        assert!(!taken.is_lost());
    }

    /// Runs that end before they renew their lease leave no more behind than others, and who stood still meanwhile learns of them.
    #[tokio::test]
    async fn after_many_short_runs_few_records_are_left_and_who_stood_still_is_lost() {
        let store = Store::over(Arc::new(InMemory::new()));
        let lease = watch(&store).try_acquire().await.unwrap().expect("it is free");
        lease.renewal.abort();
        let (stood_since, mut other) = (lease.place.store.machine().elapsed(), watch(&store));
        acquired_within(&mut other, TTL * 20).await.expect("its time is over").release().await.unwrap();
        for _ in 0..20 {
            watch(&store).try_acquire().await.unwrap().expect("it is free").release().await.unwrap();
        }
        let left = store.list(&Path::from("default/_alluvium/leases"), None).await.unwrap();
        assert!(left.len() as u64 <= RECORDS_KEPT + 1, "{left:?}");
        assert!(!left.iter().any(|found| found.path == lease.place.path(2).unwrap()), "the next number of the first is free");
        assert!(lease.place.store.machine().elapsed() - stood_since >= TTL);
        renew_since(stood_since, lease.place.clone(), lease.record.clone(), lease.newest.clone(), lease.lost.clone(), TTL).await;
        assert!(lease.is_lost());
    }

    /// As a power cut leaves it: the name without the bytes.
    #[tokio::test]
    async fn a_lease_whose_record_is_empty_runs_out_like_any_other() {
        let store = Store::over(Arc::new(InMemory::new()));
        let path = watch(&store).place.path(7).unwrap();
        assert_eq!(store.stage(&path, Bytes::new()).await.unwrap(), PutNew::Created);
        let (mut watch, since) = (watch(&store), Instant::now());
        assert_eq!(watch.holder().await.unwrap(), Holder::Unknown);
        assert!(acquired_within(&mut watch, TTL * 20).await.is_some());
        assert!(since.elapsed() >= TTL);
    }
}
