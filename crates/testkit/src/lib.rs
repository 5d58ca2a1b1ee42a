//! For tests only: stores that fail on command, and helpers for trees of files.
//!
//! Place in the flow: none; no crate but tests depends on it. A crash sweep runs an operation once over a [`FaultStore`]
//! without a fault to count its puts, then once for every put with the store dying before and after it, and looks at what
//! a fresh process makes of what was left behind.

mod fault;
mod tree;

pub use fault::{Fault, FaultStore, Injected, Put, PutKind, injected};
pub use tree::copy_tree;
