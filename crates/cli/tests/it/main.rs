//! The program as a user runs it: processes, exit codes, real input, other readers.

#![allow(clippy::unwrap_used)]

mod feed;
mod kafka;
mod kills;
#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod memory;
mod read;
mod real_data;
mod requests;
mod retain;
mod site;
mod snapshots;
mod spark;
mod stores;
mod vacuum;
mod values;
