//! What the cluster holds of a shard's partitions.

use std::collections::BTreeMap;

use alluvium_core::{KafkaStart, Offset, Result, Shard, TopicLook, partitions_of};

use crate::source::Broker;

/// Asks for a topic's partitions and the watermarks of those of a shard. Blocks.
pub(super) fn look(broker: &dyn Broker, topic: &str, shard: Shard, shards: u32) -> Result<TopicLook> {
    let facts = broker.topic(topic)?;
    let mut watermarks = BTreeMap::new();
    for partition in partitions_of(shard, shards, facts.partitions) {
        let marks = broker.watermarks(topic, partition)?;
        watermarks.insert(partition, (marks.low, marks.high));
    }
    Ok(TopicLook { id: facts.id, partitions: facts.partitions, watermarks })
}

/// Where each partition begins that was never read. Blocks.
pub(super) fn starts(broker: &dyn Broker, topic: &str, start: KafkaStart, look: &TopicLook) -> Result<BTreeMap<i32, Offset>> {
    let mut starts = BTreeMap::new();
    for (&partition, &(low, high)) in &look.watermarks {
        let at = match start {
            KafkaStart::Earliest => low,
            KafkaStart::Latest => high,
            // Nothing is as late as that yet: what comes next is.
            KafkaStart::At(time_ms) => broker.offset_at(topic, partition, time_ms)?.unwrap_or(high).clamp(low, high.max(low)),
        };
        starts.insert(partition, at);
    }
    Ok(starts)
}
