//! The program as a user runs it: processes, exit codes, real input, other readers.

#![allow(clippy::unwrap_used)]

mod kafka;
mod kills;
mod read;
mod real_data;
mod site;
mod snapshots;
mod spark;
mod stores;
mod values;
