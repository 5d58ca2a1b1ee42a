//! Waiting for one's turn: work that only one process at a time should do, because two would do it twice.

use std::time::Duration;

use alluvium_core::Result;
use alluvium_lake::{Lease, LeaseWatch};

use crate::engine::Engine;

/// How long to wait before looking again whether another process still works on the same.
const LEASE_INTERVAL: Duration = Duration::from_millis(100);

impl Engine {
    /// The lease of that name, once it is free; `None` if the user asked to stop before.
    ///
    /// # Errors
    /// [`alluvium_core::Kind::Unavailable`] if the store failed.
    pub(crate) async fn turn(&self, name: &str) -> Result<Option<Lease>> {
        let mut watch = LeaseWatch::new(&self.store, &self.resolver, name, self.project.lease_ttl);
        loop {
            match watch.try_acquire().await? {
                Some(lease) => return Ok(Some(lease)),
                None if self.stop.asked() => return Ok(None),
                None => self.stop.sleep(LEASE_INTERVAL).await,
            }
        }
    }
}

/// Ends a turn. One that cannot be given back runs out.
pub(crate) async fn give_back(lease: Lease) {
    if let Err(error) = lease.release().await {
        tracing::warn!(error = %error.chain_text(), "could not give back a lease");
    }
}
