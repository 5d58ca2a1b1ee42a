//! The engine's operations over stores that fail, wait and are shared.

#![allow(clippy::unwrap_used)]

mod common;
mod concurrent;
mod crash_sweep;
mod kafka;
mod lives;
mod pitfalls;
mod races;
mod replay;
mod void;
