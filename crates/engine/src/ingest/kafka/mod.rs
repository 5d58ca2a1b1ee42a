//! Rounds of a dataset that reads a Kafka topic.
//!
//! A topic is cut into shards once (`opening`); each is a chain of its own. A chain reads on where its newest record says
//! (`intake`): the first record holds the starting offsets and nothing else. What the cluster holds is looked at before anything is
//! read (`look`), records are gathered by partition (`gather`) and handed to the decoders (`feed`). Offsets committed to the
//! broker are never read back. Invariants: `position_never_goes_back`, `no_lost_row`, `no_duplicate_row`.

mod away;
mod feed;
mod gather;
mod intake;
mod look;
mod opening;
mod position;

pub(super) use intake::KafkaIntake;
pub(super) use opening::Opening;
pub use position::{PartitionPosition, TopicPosition};
