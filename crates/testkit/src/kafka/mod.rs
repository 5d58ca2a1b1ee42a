//! Kafka for tests: a real broker of one process, and a cluster in memory that does what real ones do only now and then.

mod memory;
mod real;
mod tools;

pub use memory::MemoryCluster;
pub use real::KafkaServer;
pub use tools::{KafkaTools, OpenTransaction, Sent};
