//! Staging: rows become Parquet files that no reader sees until their batch is published.

mod encode;
mod group;
mod partition_value;
mod stager;
mod statistics;

pub(crate) use encode::{Encoder, MAX_ROW_GROUP_ROWS, has_nan, leaf_count};
pub use group::Arranged;
pub(crate) use partition_value::partition_value;
pub use stager::{CHANGE_TYPE, StageIndex, StageSettings, Stager, Sweep};
pub(crate) use statistics::{Found, column_statistics};
