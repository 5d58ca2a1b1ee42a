//! A store that fails at the n-th put, as a process does that is killed there.
//!
//! Invariants: puts are numbered from 1 in the order they begin; what happens to one follows from its number alone, so a
//! run that makes its puts in the same order meets the same fault. Deliberately not here: chance and clocks.

mod store;
mod upload;

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use object_store::path::Path;
use object_store::{ObjectStore, Result};

/// What is to go wrong. Puts count from 1, over the whole life of the [`FaultStore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The n-th put does nothing; it and all that comes after it fail.
    DieBefore(u64),
    /// The n-th put takes effect; its caller and all that comes after it get errors.
    DieAfter(u64),
    /// The n-th put takes effect, its caller gets an error, and life goes on.
    ErrorAfterSuccess(u64),
}

/// The source of every error that a [`FaultStore`] makes up; see [`injected`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injected {
    /// The process is dead: nothing works any more.
    Dead,
    /// The put took effect, though it reports an error.
    ErrorAfterSuccess,
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dead => "the store is dead on command",
            Self::ErrorAfterSuccess => "the put reports an error on command",
        })
    }
}

impl StdError for Injected {}

impl From<Injected> for object_store::Error {
    fn from(injected: Injected) -> Self {
        Self::Generic { store: "FaultStore", source: Box::new(injected) }
    }
}

/// The [`Injected`] below `error`, however deep; `None` if the error is a real one.
#[must_use]
pub fn injected(error: &(dyn StdError + 'static)) -> Option<Injected> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(found) = error.downcast_ref::<Injected>() {
            return Some(*found);
        }
        at = error.source();
    }
    None
}

/// How an object came or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutKind {
    /// By `put_opts`.
    Put,
    /// By the completion of a multipart upload.
    Multipart,
    /// By `copy_opts`.
    Copy,
    /// By `rename_opts`; counts as one step, also over a store that copies and deletes.
    Rename,
    /// By `delete_stream`, where deletions count.
    Delete,
}

/// A put that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// How.
    pub kind: PutKind,
    /// What was to come (or, for a deletion, to go).
    pub path: Path,
}

/// A store that counts the puts that reach it and fails on command. Clones share count, log and fate.
///
/// Puts are all that changes what readers see: `put_opts`, completed multipart uploads, copies, renames, and deletions
/// if [`FaultStore::counting_deletes`]. Parts of an upload do not count, as nobody sees them. A put counts when it begins,
/// whether or not the store below then carries it out.
#[derive(Debug, Clone)]
pub struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    fault: Option<Fault>,
    counts_deletes: bool,
    dead: bool,
    log: Vec<Put>,
}

/// What becomes of a put that the store below answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Tell,
    Die,
    Fail,
}

impl FaultStore {
    /// Passes everything on to `inner` until a fault is armed.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, state: Arc::default() }
    }

    /// With the fault armed.
    #[must_use]
    pub fn with_fault(self, fault: Fault) -> Self {
        self.arm(fault);
        self
    }

    /// With every deletion counted as a put.
    #[must_use]
    pub fn counting_deletes(self) -> Self {
        self.state().counts_deletes = true;
        self
    }

    /// Arms the fault in place of the one before. A put that has begun already is not touched; a dead store stays dead.
    pub fn arm(&self, fault: Fault) {
        self.state().fault = Some(fault);
    }

    /// How many puts have begun.
    #[must_use]
    pub fn put_count(&self) -> u64 {
        self.state().log.len() as u64
    }

    /// The puts that have begun, in order; the last one may be that before which the store died.
    #[must_use]
    pub fn log(&self) -> Vec<Put> {
        self.state().log.clone()
    }

    /// Whether the process is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// The store below, which a fresh process would see.
    #[must_use]
    pub fn inner(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> Result<()> {
        if self.is_dead() { Err(Injected::Dead.into()) } else { Ok(()) }
    }

    /// Numbers a put and says what is to become of it once the store below has answered.
    fn begin(&self, kind: PutKind, path: &Path) -> Result<After> {
        let mut state = self.state();
        if state.dead {
            return Err(Injected::Dead.into());
        }
        state.log.push(Put { kind, path: path.clone() });
        let number = state.log.len() as u64;
        match state.fault {
            Some(Fault::DieBefore(n)) if number >= n => {
                state.dead = true;
                Err(Injected::Dead.into())
            }
            Some(Fault::DieAfter(n)) if number > n => {
                state.dead = true;
                Err(Injected::Dead.into())
            }
            Some(Fault::DieAfter(n)) if number == n => Ok(After::Die),
            Some(Fault::ErrorAfterSuccess(n)) if number == n => Ok(After::Fail),
            _ => Ok(After::Tell),
        }
    }

    fn end<T>(&self, after: After, answer: Result<T>) -> Result<T> {
        match after {
            After::Tell => answer,
            After::Die => {
                self.state().dead = true;
                Err(Injected::Dead.into())
            }
            // What the store refused by itself keeps its own error.
            After::Fail => answer.and_then(|_| Err(Injected::ErrorAfterSuccess.into())),
        }
    }
}

#[cfg(test)]
mod tests;
