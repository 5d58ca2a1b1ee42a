//! The lake over stores that fail, and logs that were cleaned up or damaged.

#![allow(clippy::unwrap_used)]

mod checkpoint;
mod cleanup;
mod common;
mod known;
mod local_disk;
mod pitfalls;
mod splice;
