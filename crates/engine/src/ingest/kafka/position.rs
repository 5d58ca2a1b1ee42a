//! How far a topic was read, for those who ask: positions from the chains, the rest from the cluster. Nothing is written.

use alluvium_core::{
    BatchNumber, Dataset, Error, Incarnation, Job, KafkaPositions, KafkaSource, Kind, Offset, OffsetLoss, Range, Result, Shard,
    partitions_of,
};
use alluvium_lake::{blocking, source_shards};

use super::look::look;
use super::opening::topic_name;
use crate::engine::Engine;
use crate::ingest::work::ChainWork;

/// A chain whose old records are being deleted meanwhile is read again so many times.
const MAX_LOOKS: u32 = 5;

/// How far a topic was read.
#[derive(Debug)]
pub struct TopicPosition {
    /// The topic as the cluster knows it.
    pub topic: String,
    /// In how many shards it is read; `None`: not fixed yet.
    pub shards: Option<u32>,
    /// Its partitions, ascending: those that the chains know and those that the cluster has.
    pub partitions: Vec<PartitionPosition>,
    /// What was lost and accepted as lost, with the shard.
    pub losses: Vec<(Shard, OffsetLoss)>,
    /// Why the cluster could not tell what it holds.
    pub unknown: Option<Error>,
}

/// How far a partition was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionPosition {
    /// The partition.
    pub partition: i32,
    /// The offset of the next record wanted, if that was fixed.
    pub next: Option<Offset>,
    /// The first offset that is still there and the one behind the last committed record.
    pub held: Option<(Offset, Offset)>,
}

impl PartitionPosition {
    /// Offsets that wait to be read; not all of them need hold a record.
    #[must_use]
    pub fn lag(&self) -> Option<u64> {
        let (low, high) = self.held?;
        let next = self.next.unwrap_or(low);
        Some(u64::try_from(high.0.saturating_sub(next.0)).unwrap_or(0))
    }
}

impl TopicPosition {
    /// Offsets that wait to be read in all partitions; `None` if the cluster does not tell.
    #[must_use]
    pub fn lag(&self) -> Option<u64> {
        if self.unknown.is_some() {
            return None;
        }
        self.partitions.iter().map(PartitionPosition::lag).sum()
    }
}

impl Engine {
    /// How far the chains of a dataset have read their topic.
    pub(in crate::ingest) async fn topic_position(
        &self,
        dataset: &Dataset,
        source: &KafkaSource,
        incarnation: Option<&Incarnation>,
    ) -> Result<TopicPosition> {
        let topic = topic_name(self, source)?;
        let shards = source_shards(&self.store, &self.resolver, &dataset.name).await?.map(|cut| cut.shards);
        let mut position = TopicPosition { topic, shards, partitions: Vec::new(), losses: Vec::new(), unknown: None };
        if let (Some(incarnation), Some(shards)) = (incarnation, shards) {
            for shard in (0..shards).map(Shard) {
                let Some(at) = self.shard_positions(dataset, incarnation, shard).await? else { continue };
                let known =
                    at.partitions.iter().map(|(p, s)| PartitionPosition { partition: *p, next: Some(s.next), held: None });
                position.partitions.extend(known);
                position.losses.extend(at.losses.into_iter().map(|loss| (shard, loss)));
            }
        }
        let broker = self.broker.clone();
        let name = position.topic.clone();
        match blocking("looking at a topic", move || look(broker.as_ref(), &name, Shard::WHOLE, 1)).await {
            Ok(look) => {
                for partition in partitions_of(Shard::WHOLE, 1, look.partitions) {
                    let held = look.watermarks.get(&partition).copied();
                    match position.partitions.iter_mut().find(|p| p.partition == partition) {
                        Some(known) => known.held = held,
                        None => position.partitions.push(PartitionPosition { partition, next: None, held }),
                    }
                }
            }
            Err(e) => position.unknown = Some(e.context(format!("dataset {}", dataset.name))),
        }
        position.partitions.sort_unstable_by_key(|p| p.partition);
        Ok(position)
    }

    /// Where a shard's chain stands; `None` before its first batch is finished.
    async fn shard_positions(
        &self,
        dataset: &Dataset,
        incarnation: &Incarnation,
        shard: Shard,
    ) -> Result<Option<KafkaPositions>> {
        let work = ChainWork::new(self, dataset, incarnation, shard);
        for _ in 0..MAX_LOOKS {
            let listing = work.chain.listing().await?;
            let Some(newest) = listing.newest() else { return Ok(None) };
            let finished = if listing.done.contains(&newest.batch) { newest.batch } else { BatchNumber(newest.batch.0 - 1) };
            if finished.0 == 0 {
                return Ok(None);
            }
            match work.range_of(&listing, finished).await {
                Ok(Some(Range::Kafka(range))) => return Ok(Some(KafkaPositions::after(&range))),
                Ok(Some(_)) => return Ok(None),
                Ok(None) => {}
                Err(e) if e.kind() == Kind::Unavailable => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::new(
            Kind::Corrupt,
            format!("the record of the last finished batch of {} {} is gone", Job::Ingest, dataset.name),
        )
        .hint("restore _alluvium/chains from a backup of the storage"))
    }
}
