//! A fair share of many leases: how many of them a process should hold, when others want some too.
//!
//! Each process that works on something holds a *seat*, a lease of its own among a fixed number. Who looks at all seats knows how
//! many processes there are, and which of them it is itself; so all agree how many leases each should hold, without a word
//! between them. A process without a seat holds none. Nothing depends on it being right: as all leases, seats save work.

use std::time::Duration;

use alluvium_core::{Resolver, Result};

use crate::lease::{Holder, Lease, LeaseWatch};
use crate::store::Store;

/// The seats of one piece of work.
#[derive(Debug)]
pub struct Seats {
    watches: Vec<LeaseWatch>,
    own: Option<(usize, Lease)>,
}

/// Which of so many processes this one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// How many with a lower seat there are.
    pub rank: u32,
    /// How many there are.
    pub of: u32,
}

impl Share {
    /// How many of `items` are this process's part.
    #[must_use]
    pub fn part(&self, items: u32) -> u32 {
        let of = self.of.max(1);
        items / of + u32::from(self.rank < items % of)
    }
}

impl Seats {
    /// The most seats: so many processes can share a piece of work.
    pub const MAX: u32 = 32;

    /// `count` seats, [`Seats::MAX`] at most, each the lease `<name>.<number>`.
    #[must_use]
    pub fn new(store: &Store, resolver: &Resolver, name: &str, count: u32, ttl: Duration) -> Self {
        let watch = |seat: u32| LeaseWatch::new(store, resolver, &format!("{name}.{seat}"), ttl);
        Self { watches: (0..count.clamp(1, Self::MAX)).map(watch).collect(), own: None }
    }

    /// Takes a seat if this process has none and one is free, and looks at the others. `None`: all are taken.
    ///
    /// # Errors
    /// [`alluvium_core::Kind::Unavailable`] if the store failed.
    pub async fn look(&mut self) -> Result<Option<Share>> {
        if self.own.as_ref().is_some_and(|(_, lease)| lease.is_lost()) {
            self.own = None;
        }
        let (mut taken, mut rank) = (0, None);
        for (seat, watch) in self.watches.iter_mut().enumerate() {
            if self.own.is_none()
                && let Some(lease) = watch.try_acquire().await?
            {
                self.own = Some((seat, lease));
            }
            if self.own.as_ref().is_some_and(|(own, _)| *own == seat) {
                rank = Some(taken);
                taken += 1;
            } else if watch.holder().await? != Holder::Nobody {
                taken += 1;
            }
        }
        Ok(rank.map(|rank| Share { rank, of: taken }))
    }

    /// Gives the seat back, if there is one.
    ///
    /// # Errors
    /// [`alluvium_core::Kind::Unavailable`] if the store failed; then the seat runs out by itself.
    pub async fn release(&mut self) -> Result<()> {
        match self.own.take() {
            Some((_, lease)) => lease.release().await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use alluvium_core::Namespace;
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn parts_add_up_to_all_items_and_differ_by_one_at_most() {
        for of in 1..=7 {
            let parts: Vec<u32> = (0..of).map(|rank| Share { rank, of }.part(6)).collect();
            assert_eq!(parts.iter().sum::<u32>(), 6, "{parts:?}");
            assert!(parts.iter().max().unwrap() - parts.iter().min().unwrap() <= 1, "{parts:?}");
        }
    }

    #[tokio::test]
    async fn processes_take_a_seat_each_and_know_how_many_they_are() {
        let (store, resolver) = (Store::over(Arc::new(InMemory::new())), Resolver::new(Namespace::default()));
        let seats = || Seats::new(&store, &resolver, "ingest.edit.seat", 2, Duration::from_secs(10));
        let (mut first, mut second, mut third) = (seats(), seats(), seats());
        assert_eq!(first.look().await.unwrap(), Some(Share { rank: 0, of: 1 }));
        assert_eq!(second.look().await.unwrap(), Some(Share { rank: 1, of: 2 }));
        assert_eq!(third.look().await.unwrap(), None);
        assert_eq!(first.look().await.unwrap(), Some(Share { rank: 0, of: 2 }));
        first.release().await.unwrap();
        assert_eq!(second.look().await.unwrap(), Some(Share { rank: 0, of: 1 }));
        assert_eq!(third.look().await.unwrap(), Some(Share { rank: 0, of: 2 }));
    }
}
