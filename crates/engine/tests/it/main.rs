//! The engine's operations over stores that fail, wait and are shared.

#![allow(clippy::unwrap_used)]

mod common;
mod concurrent;
mod consumer_sweep;
mod crash_sweep;
mod intake;
mod kafka;
mod lives;
mod mutate_sweep;
mod oracle;
mod oracle_cases;
mod oracle_changes;
mod oracle_check;
mod oracle_history;
mod overtaken;
mod pitfalls;
mod races;
mod replay;
mod retain;
mod vacuum;
mod void;
mod whole_org;
