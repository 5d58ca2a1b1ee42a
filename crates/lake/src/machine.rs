//! The machine that the lake runs on, as far as it decides anything: fresh ids, time that passes, which process this is.
//!
//! Injected with the [`crate::Store`], so that a simulated machine can stand in and a run be repeated exactly. Clocks that only
//! tell people when something happened are not here.

use std::fmt;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use uuid::Uuid;

use crate::process::ProcessId;

/// What the lake asks of its machine.
pub trait Machine: fmt::Debug + Send + Sync {
    /// An id that nobody has ever used.
    fn fresh_id(&self) -> Uuid;

    /// Time since a moment that stays the same as long as the process lives; it never goes back.
    fn elapsed(&self) -> Duration;

    /// Ends when `time` has passed.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;

    /// This process, where the machine can tell whether it lives.
    fn process(&self) -> Option<ProcessId>;
}

/// The machine that this program runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisMachine;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Machine for ThisMachine {
    fn fresh_id(&self) -> Uuid {
        Uuid::new_v4()
    }

    fn elapsed(&self) -> Duration {
        START.elapsed()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(time).boxed()
    }

    fn process(&self) -> Option<ProcessId> {
        ProcessId::own()
    }
}
