//! Ingest: records of the sources become rows, exactly once.
//!
//! One chain a dataset that reads files, several for one that reads Kafka. Each round finishes what the chain's newest record intends, or reads the next range, stages it, records
//! it and publishes it. Invariants: `no_lost_row`, `no_duplicate_row`, `position_never_goes_back`, `fenced`.

mod again;
mod backlog;
mod dead_letters;
mod files;
mod finish;
mod kafka;
mod letters;
mod notify;
mod position;
mod read;
mod read_files;
mod replay;
mod replay_requests;
mod resolving;
mod run;
mod spread;
mod stage;
mod submit;
mod taken;
mod work;

pub(crate) use finish::{Finished, Finishing};
pub use kafka::{PartitionPosition, TopicPosition};
pub use letters::{DeadLetter, DeadLetterList};
pub use position::{FilePosition, SourcePosition};
pub(crate) use read::{Made, Open, Origin, Taking};
pub use run::{IngestOptions, Mode, RunSummary};
pub(crate) use run::{lease_name, replay_lease_name, shard_lease_name};
pub(crate) use stage::floor_lease_name;
pub(crate) use work::drop_old_records;
