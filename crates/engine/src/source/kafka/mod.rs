//! Kafka as a source: what is asked of a cluster, and librdkafka's way to answer it.
//!
//! Place in the flow: first, as `files` is; `ingest::kafka` decides where to read on, what is lost and when a batch ends, and
//! asks a [`Broker`] for no more than facts and records. Invariants: a reader is put at offsets explicitly, never by a consumer
//! group; only committed records are read; committed offsets of the group are written and never read. A cluster that
//! repeats, reorders across partitions, expires or goes away needs no more than another [`Broker`].

mod broker;
mod client;
mod messages;
mod reader;

pub use broker::{Broker, Polled, Reader, ReaderSettings, Record, TopicFacts, Watermarks};
pub use client::RdBroker;
pub(crate) use messages::{Around, Message, Messages};
