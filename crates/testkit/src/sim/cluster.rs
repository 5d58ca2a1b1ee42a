//! The Kafka cluster of a world: one in memory, where waiting for records takes the world's time.

use std::time::Duration;

use alluvium_core::{Offset, Result};
use alluvium_engine::{Broker, Polled, Reader, ReaderSettings, TopicFacts, Watermarks};

use super::world::World;
use crate::kafka::MemoryCluster;

/// The topic that worlds read.
pub(super) const TOPIC: &str = "events";

/// The cluster as processes see it.
#[derive(Clone)]
pub(super) struct SimBroker {
    cluster: MemoryCluster,
    world: World,
}

impl SimBroker {
    pub(super) fn new(cluster: &MemoryCluster, world: &World) -> Self {
        Self { cluster: cluster.clone(), world: world.clone() }
    }
}

impl Broker for SimBroker {
    fn topic(&self, topic: &str) -> Result<TopicFacts> {
        self.cluster.topic(topic)
    }

    fn watermarks(&self, topic: &str, partition: i32) -> Result<Watermarks> {
        self.cluster.watermarks(topic, partition)
    }

    fn offset_at(&self, topic: &str, partition: i32, time_ms: i64) -> Result<Option<Offset>> {
        self.cluster.offset_at(topic, partition, time_ms)
    }

    fn reader(&self, settings: &ReaderSettings<'_>) -> Result<Box<dyn Reader>> {
        Ok(Box::new(SimReader { inner: self.cluster.reader(settings)?, world: self.world.clone() }))
    }

    #[cfg(feature = "plants")]
    fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<Offset> {
        self.cluster.committed(group, topic, partition).map(Offset)
    }
}

struct SimReader {
    inner: Box<dyn Reader>,
    world: World,
}

impl Reader for SimReader {
    /// All processes stand still while one of them polls, so nothing comes while it waits: its time passes at once.
    fn poll(&mut self, wait: Duration, take: &mut dyn FnMut(Polled<'_>)) -> Result<bool> {
        let polled = self.inner.poll(wait, take);
        if !matches!(polled, Ok(true)) {
            self.world.pass(wait);
        }
        polled
    }

    fn commit(&mut self, next: &[(i32, Offset)]) -> Result<()> {
        self.inner.commit(next)
    }
}
