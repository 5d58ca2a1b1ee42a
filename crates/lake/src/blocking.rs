//! Work that blocks, on threads where it may. Work for all cores blocks, too: the pool's threads may be waiting for the store, and so for
//! the very runtime that would wait for them.
//!
//! Each thread counts what it has sent away and not got back, so that a simulation, which runs all its processes on one thread,
//! knows when nothing moves by itself any more. Elsewhere nobody looks at the count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium_core::{Error, Kind, Result};
use tokio::runtime::{Handle, RuntimeFlavor};

thread_local! {
    static OUTSTANDING: Arc<AtomicUsize> = Arc::default();
}

/// Work that goes on away from the thread that began it. Dropped by whoever waits for it, when it has ended.
#[derive(Debug)]
pub struct Away(Arc<AtomicUsize>);

impl Away {
    /// Something begins that this thread does not do itself.
    #[must_use]
    pub fn begin() -> Self {
        let outstanding = OUTSTANDING.with(Arc::clone);
        outstanding.fetch_add(1, Ordering::SeqCst);
        Self(outstanding)
    }

    /// How much of what this thread began is still going on.
    #[must_use]
    pub fn outstanding() -> usize {
        OUTSTANDING.with(|count| count.load(Ordering::SeqCst))
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `work`, which may block, on a thread for it; `doing` names it, should it fall.
///
/// # Errors
/// What `work` returns; [`Kind::Internal`] if it panicked.
///
/// # Cancel safety
/// Cancelled, the work goes on to its end and nobody hears of it.
pub async fn blocking<T: Send + 'static>(doing: &str, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let _away = Away::begin();
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::new(Kind::Internal, doing.to_owned()).source(e))?
}

/// Runs `work`, which may block and needs not outlive the caller: here, while other tasks move to other threads; where a
/// runtime has one thread only, as in a simulation, on a thread beside it, while all its tasks stand still.
///
/// # Panics
/// If `work` does.
pub fn in_place<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let runtime = Handle::current();
    if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
        return tokio::task::block_in_place(work);
    }
    let beside = || {
        let _within = runtime.enter();
        work()
    };
    match std::thread::scope(|scope| scope.spawn(beside).join()) {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn work_is_outstanding_from_its_begin_until_it_was_waited_for_or_given_up() {
        assert_eq!(blocking("counting", || Ok(Away::outstanding())).await.unwrap(), 0, "another thread has its own count");
        assert_eq!(Away::outstanding(), 0);
        let away = Away::begin();
        assert_eq!(Away::outstanding(), 1);
        std::thread::spawn(move || drop(away)).join().unwrap();
        assert_eq!(Away::outstanding(), 0);
    }

    #[tokio::test]
    async fn a_panic_is_an_internal_error_that_says_what_was_done() {
        let fallen = blocking("reading a table", || -> Result<()> { panic!("the test wants this") }).await.unwrap_err();
        assert_eq!(fallen.kind(), Kind::Internal);
        assert!(fallen.to_string().contains("reading a table"), "{fallen}");
    }

    async fn borrowed_sum() -> u64 {
        let (numbers, runtime) = (vec![1_u64, 2, 3], Handle::current());
        in_place(|| runtime.block_on(async { numbers.iter().sum() }))
    }

    #[tokio::test]
    async fn borrowed_work_may_block_on_a_runtime_of_one_thread() {
        assert_eq!(borrowed_sum().await, 6);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn borrowed_work_may_block_on_a_runtime_of_many_threads() {
        assert_eq!(borrowed_sum().await, 6);
    }
}
