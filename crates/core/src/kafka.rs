//! Where a shard of a Kafka topic reads on, and what was lost: decided from the chain's newest record and what the cluster says.
//!
//! Invariants: `position_never_goes_back` (but where the user accepts that the topic was made anew); `no_lost_row`: a record
//! that can no longer be read is found out and told before anything after it is read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::chain::Shard;
use crate::error::{Error, Kind};
use crate::position::{KafkaRange, LastTaken, LossKind, Offset, OffsetLoss, PartitionRange};

/// The version of the stored form of [`SourceShards`] that this program writes and the newest it reads.
pub const SHARDS_FORMAT: u32 = 1;
/// As many chains share a topic if the project file does not say.
const DEFAULT_SHARDS: u32 = 4;
/// So many losses are told one by one in an error.
const LOSSES_TOLD: usize = 5;
/// So many accepted losses a record carries on, the newest.
const LOSSES_KEPT: usize = 1000;

/// How a dataset's topic is cut into shards. Written once, when the topic is first read: partition `p` belongs to shard
/// `p mod shards` for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceShards {
    /// [`SHARDS_FORMAT`].
    pub format: u32,
    /// The topic as the cluster knows it.
    pub topic: String,
    /// How many chains share its partitions.
    pub shards: u32,
}

/// How many chains share a topic of so many partitions, if nobody says: each costs commits of its own, and as many
/// processes can share the topic.
#[must_use]
pub fn default_shards(partitions: u32) -> u32 {
    partitions.clamp(1, DEFAULT_SHARDS)
}

/// The partitions of a shard, of a topic with so many.
pub fn partitions_of(shard: Shard, shards: u32, partitions: u32) -> impl Iterator<Item = i32> {
    (shard.0..partitions).step_by(shards.max(1) as usize).filter_map(|p| i32::try_from(p).ok())
}

/// Where a shard reads on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaPositions {
    /// The topic's id, where it is known.
    pub topic_id: Option<String>,
    /// Where each partition reads on.
    pub partitions: BTreeMap<i32, KafkaStanding>,
    /// The losses accepted so far.
    pub losses: Vec<OffsetLoss>,
}

/// Where one partition reads on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KafkaStanding {
    /// The offset of the next record wanted.
    pub next: Offset,
    /// The last record taken.
    pub last: Option<LastTaken>,
}

/// What the cluster says of a topic: its id, how many partitions it has, and for those of the shard the first offset that is
/// there and the one behind the last committed record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicLook {
    /// The topic's id, where it is known.
    pub id: Option<String>,
    /// How many partitions the topic has.
    pub partitions: u32,
    /// Low and high by partition.
    pub watermarks: BTreeMap<i32, (Offset, Offset)>,
}

impl KafkaPositions {
    /// The positions before anything is read: each partition at its start.
    #[must_use]
    pub fn beginning(id: Option<String>, starts: impl IntoIterator<Item = (i32, Offset)>) -> Self {
        let standing = |next| KafkaStanding { next, last: None };
        Self { topic_id: id, partitions: starts.into_iter().map(|(p, next)| (p, standing(next))).collect(), losses: Vec::new() }
    }

    /// The positions after a batch.
    #[must_use]
    pub fn after(range: &KafkaRange) -> Self {
        let standing = |p: &PartitionRange| (p.partition, KafkaStanding { next: p.to, last: p.last });
        Self {
            topic_id: range.topic_id.clone(),
            partitions: range.partitions.iter().map(standing).collect(),
            losses: range.losses.clone(),
        }
    }

    /// The range from here to `to`, which has a standing for each partition that was read.
    #[must_use]
    pub fn range_to(&self, topic: &str, to: &BTreeMap<i32, KafkaStanding>) -> KafkaRange {
        let piece = |(partition, from): (&i32, &KafkaStanding)| {
            let KafkaStanding { next, last } = to.get(partition).copied().unwrap_or(*from);
            PartitionRange { partition: *partition, from: from.next, to: next, last }
        };
        KafkaRange {
            topic: topic.to_owned(),
            topic_id: self.topic_id.clone(),
            partitions: self.partitions.iter().map(piece).collect(),
            losses: self.losses.clone(),
        }
    }

    /// What the cluster can no longer give of what follows from here.
    #[must_use]
    pub fn losses(&self, look: &TopicLook) -> Vec<OffsetLoss> {
        let other_topic = matches!((&self.topic_id, &look.id), (Some(ours), Some(theirs)) if ours != theirs);
        let loss = |(&partition, standing): (&i32, &KafkaStanding)| {
            let from = standing.next;
            let gone = |how| Some(OffsetLoss { partition, from, to: None, how });
            match look.watermarks.get(&partition) {
                _ if u32::try_from(partition).is_ok_and(|p| p >= look.partitions) => gone(LossKind::Shrunk),
                _ if other_topic => gone(LossKind::MadeAnew),
                Some((_, high)) if from > *high => gone(LossKind::MadeAnew),
                Some((low, _)) if from < *low => Some(OffsetLoss { partition, from, to: Some(*low), how: LossKind::Expired }),
                _ => None,
            }
        };
        self.partitions.iter().filter_map(loss).collect()
    }

    /// Goes on behind losses that the user accepts, and remembers them.
    pub fn accept(&mut self, losses: &[OffsetLoss], look: &TopicLook) {
        for loss in losses {
            let low = look.watermarks.get(&loss.partition).map(|(low, _)| *low);
            match (loss.how, low) {
                (LossKind::Shrunk, _) | (_, None) => {
                    self.partitions.remove(&loss.partition);
                }
                (_, Some(low)) => {
                    self.partitions.insert(loss.partition, KafkaStanding { next: low, last: None });
                }
            }
        }
        self.topic_id.clone_from(&look.id);
        self.losses.extend(losses);
        let too_many = self.losses.len().saturating_sub(LOSSES_KEPT);
        self.losses.drain(..too_many);
    }

    /// Takes up partitions that the topic has got since, each from its first record on: none of theirs may be missed. Whether
    /// there were any.
    pub fn take_up_new(&mut self, look: &TopicLook) -> bool {
        let before = self.partitions.len();
        for (partition, (low, _)) in &look.watermarks {
            self.partitions.entry(*partition).or_insert(KafkaStanding { next: *low, last: None });
        }
        self.partitions.len() > before
    }
}

/// The error that tells of losses nobody has accepted.
#[must_use]
pub fn loss_error(topic: &str, losses: &[OffsetLoss]) -> Error {
    let mut text = format!("the topic {topic} no longer holds records that were not taken in: ");
    for (i, loss) in losses.iter().take(LOSSES_TOLD).enumerate() {
        let _ = write!(text, "{}{loss}", if i > 0 { "; " } else { "" });
    }
    if losses.len() > LOSSES_TOLD {
        let _ = write!(text, "; and {} partitions more", losses.len() - LOSSES_TOLD);
    }
    let kind = if losses.iter().all(|l| l.how == LossKind::Expired) { Kind::Unavailable } else { Kind::Corrupt };
    Error::new(kind, text).lasting().hint(
        "restore the topic if you can; to go on without these records: alluvium run ingest --accept-loss, which records the loss \
         where alluvium status shows it",
    )
}

impl std::fmt::Display for OffsetLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { partition, from, .. } = self;
        match (self.how, self.to) {
            (LossKind::Expired, Some(to)) => write!(f, "partition {partition}: offsets {from} to {} have expired", to.0 - 1),
            (LossKind::Expired, None) => write!(f, "partition {partition}: offsets from {from} on have expired"),
            (LossKind::MadeAnew, _) => {
                write!(
                    f,
                    "partition {partition}: offsets from {from} on (the topic was made anew, or cut: other records stand there)"
                )
            }
            (LossKind::Shrunk, _) => write!(f, "partition {partition}: offsets from {from} on (the partition is gone)"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn look(partitions: u32, watermarks: &[(i32, i64, i64)]) -> TopicLook {
        let watermarks = watermarks.iter().map(|(p, low, high)| (*p, (Offset(*low), Offset(*high)))).collect();
        TopicLook { id: None, partitions, watermarks }
    }

    fn at(places: &[(i32, i64)]) -> KafkaPositions {
        KafkaPositions::beginning(None, places.iter().map(|(p, o)| (*p, Offset(*o))))
    }

    #[test]
    fn shards_take_every_partition_once_and_new_ones_too() {
        let of = |shard, partitions| partitions_of(Shard(shard), 3, partitions).collect::<Vec<_>>();
        assert_eq!([of(0, 7), of(1, 7), of(2, 7)], [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
        assert_eq!(of(1, 8), [1, 4, 7]);
        assert_eq!(of(2, 1), Vec::<i32>::new());
        assert_eq!([0, 1, 3, 4, 64].map(default_shards), [1, 1, 3, 4, 4]);
    }

    #[test]
    fn positions_within_the_watermarks_lose_nothing_at_either_end() {
        assert_eq!(at(&[(0, 5), (1, 9)]).losses(&look(2, &[(0, 5, 9), (1, 5, 9)])), []);
    }

    #[test]
    fn expired_made_anew_and_shrunk_are_told_apart_and_accepted() {
        let mut at = at(&[(0, 4), (2, 10), (4, 1)]);
        let look = look(4, &[(0, 7, 9), (2, 0, 3)]);
        let losses = at.losses(&look);
        let told: Vec<String> = losses.iter().map(ToString::to_string).collect();
        assert_eq!(told[0], "partition 0: offsets 4 to 6 have expired");
        assert!(told[1].starts_with("partition 2: offsets from 10 on (the topic was made anew"), "{}", told[1]);
        assert_eq!(told[2], "partition 4: offsets from 1 on (the partition is gone)");
        assert_eq!(loss_error("t", &losses[..1]).kind(), Kind::Unavailable);
        assert_eq!(loss_error("t", &losses).kind(), Kind::Corrupt);
        at.accept(&losses, &look);
        assert_eq!(at.partitions.iter().map(|(p, s)| (*p, s.next.0)).collect::<Vec<_>>(), [(0, 7), (2, 0)]);
        assert_eq!(at.losses.len(), 3);
        assert_eq!(at.losses(&look), []);
    }

    #[test]
    fn another_topic_id_loses_every_partition() {
        let mut at = at(&[(0, 2)]);
        at.topic_id = Some("a".to_owned());
        let look = TopicLook { id: Some("b".to_owned()), ..look(1, &[(0, 0, 9)]) };
        assert_eq!(at.losses(&look)[0].how, LossKind::MadeAnew);
        at.accept(&at.losses(&look), &look);
        assert_eq!(at.losses(&look), []);
    }

    #[test]
    fn new_partitions_begin_at_their_first_record() {
        let mut at = at(&[(0, 2)]);
        let look = look(3, &[(0, 0, 9), (2, 3, 8)]);
        assert!(at.take_up_new(&look));
        assert_eq!(at.partitions[&2].next, Offset(3));
        assert!(!at.take_up_new(&look));
    }
}
