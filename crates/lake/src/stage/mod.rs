//! Staging: rows become Parquet files that no reader sees until their batch is published.

mod encode;
mod group;
mod partition_value;
mod stager;
mod statistics;

pub use group::Arranged;
pub use stager::{StageIndex, StageSettings, Stager, Sweep};
