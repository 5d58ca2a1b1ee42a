//! A broker that does not answer: waited for, and told of once.

use std::time::Duration;

use alluvium_core::{Error, Result};

use crate::engine::Engine;
use crate::ingest::Mode;

/// How long a run that is to end waits for a broker.
const PATIENCE: Duration = Duration::from_secs(30);

/// Since when a broker has not answered.
#[derive(Debug, Default)]
pub(super) struct Away {
    since: Option<Duration>,
}

impl Away {
    /// The broker did not answer: warns once, and gives the error back when a run that is to end has waited long enough.
    pub(super) fn note(&mut self, engine: &Engine, dataset: &str, mode: Mode, error: Error) -> Result<()> {
        let since = *self.since.get_or_insert_with(|| {
            let until = if mode == Mode::Follow { String::new() } else { format!(", {} s at most", PATIENCE.as_secs()) };
            engine.observer.warning(&format!("dataset {dataset}: {}; waiting for the broker{until}", error.message()));
            engine.elapsed()
        });
        if mode != Mode::Follow && engine.elapsed().saturating_sub(since) >= PATIENCE {
            return Err(error.context(format!("dataset {dataset}: no answer for {} s", PATIENCE.as_secs())));
        }
        Ok(())
    }

    /// The broker answered.
    pub(super) fn over(&mut self, engine: &Engine, dataset: &str) {
        if self.since.take().is_some() {
            engine.observer.warning(&format!("dataset {dataset}: the broker answers again"));
        }
    }
}
