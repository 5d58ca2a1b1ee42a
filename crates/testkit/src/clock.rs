//! A clock that only tests move.

use std::sync::atomic::{AtomicI64, Ordering};

use alluvium_engine::Clock;

/// A clock that goes on by a fixed step every time it is read, so that runs are repeatable and no two times are equal.
#[derive(Debug)]
pub struct StepClock {
    now_micros: AtomicI64,
    step_micros: i64,
}

impl StepClock {
    /// 2026-01-01T00:00:00Z, in microseconds since 1970.
    pub const START_MICROS: i64 = 1_767_225_600_000_000;

    /// A clock that stands at [`StepClock::START_MICROS`] and goes on by a millisecond a look.
    #[must_use]
    pub fn new() -> Self {
        Self { now_micros: AtomicI64::new(Self::START_MICROS), step_micros: 1000 }
    }

    /// Moves the clock on.
    pub fn advance_micros(&self, micros: i64) {
        self.now_micros.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Default for StepClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for StepClock {
    fn now_micros(&self) -> i64 {
        self.now_micros.fetch_add(self.step_micros, Ordering::SeqCst)
    }
}
