//! The shards of one dataset among the processes that run it: each holds its part of their leases, no more.

use std::sync::Arc;
use std::time::Duration;

use alluvium_core::{Dataset, Result};
use alluvium_lake::{Machine, Seats};
use tokio::sync::Mutex;

use super::run::lease_name;
use crate::engine::Engine;

/// What the chains of one dataset share in a run.
#[derive(Clone)]
pub(super) struct Spread {
    inner: Arc<Mutex<Inner>>,
    /// How often leases that this process should not hold are looked at all the same, so that one that stands still is known.
    pub(super) look_interval: Duration,
}

struct Inner {
    seats: Seats,
    shards: u32,
    /// How many leases this process should hold.
    part: u32,
    held: u32,
    /// Chains of this run that have not ended.
    chains: u32,
    /// In the machine's time.
    looks_at: Duration,
    machine: Arc<dyn Machine>,
    seat_interval: Duration,
}

impl Spread {
    pub(super) fn new(engine: &Engine, dataset: &Dataset, shards: u32) -> Self {
        let ttl = engine.project.lease_ttl;
        let name = format!("{}.seat", lease_name(dataset));
        let inner = Inner {
            seats: Seats::new(&engine.store, &engine.resolver, &name, shards, ttl),
            shards,
            part: 0,
            held: 0,
            chains: shards,
            looks_at: engine.elapsed(),
            machine: engine.store.machine().clone(),
            seat_interval: ttl / 4,
        };
        Self { inner: Arc::new(Mutex::new(inner)), look_interval: ttl / 5 }
    }

    /// How many leases more this process may take; less than none: how many it should give back.
    pub(super) async fn room(&self) -> Result<i64> {
        let mut inner = self.inner.lock().await;
        if inner.looks_at <= inner.machine.elapsed() {
            let share = inner.seats.look().await?;
            inner.part = share.map_or(0, |share| share.part(inner.shards));
            inner.looks_at = inner.machine.elapsed() + inner.seat_interval;
        }
        Ok(i64::from(inner.part) - i64::from(inner.held))
    }

    /// This process took a lease.
    pub(super) async fn took(&self) {
        self.inner.lock().await.held += 1;
    }

    /// This process gave a lease back, or lost it.
    pub(super) async fn gave(&self) {
        let mut inner = self.inner.lock().await;
        inner.held = inner.held.saturating_sub(1);
    }

    /// A chain of this run has ended; after the last, others need not count with this process.
    pub(super) async fn ended(&self) {
        let mut inner = self.inner.lock().await;
        inner.chains = inner.chains.saturating_sub(1);
        if inner.chains == 0
            && let Err(error) = inner.seats.release().await
        {
            tracing::warn!(error = %error.chain_text(), "could not give back a seat");
        }
    }
}
