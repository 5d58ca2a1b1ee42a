//! What befalls the topic of a world, and where the chains say that they stand in it.
//!
//! Where a chain stands is read from its records in the bucket, as their format's page says, and with all that the bucket ever
//! held: so it is known whether a loss that a process told of was one.

use std::collections::BTreeMap;

use alluvium_core::{Error, Kind};
use serde_json::Value;

use super::bucket::{Bucket, Instant};
use super::dice::Dice;
use super::input::SourceFile;

/// A topic and its cluster.
#[derive(Debug, Clone)]
pub(super) struct TopicPlan {
    pub(super) shards: u64,
    /// A reader gives a record again after so many others; 0: never.
    pub(super) repeat_after: usize,
    /// From when on nobody answers, and for how long, in milliseconds.
    pub(super) away: Option<(u64, u64)>,
    /// Between two records of a partition.
    pub(super) pace_ms: u64,
    /// Records that go, read or not.
    pub(super) expiries: Vec<Expiry>,
    /// The topic is deleted, and another one made of the same name.
    pub(super) anew: Option<Anew>,
    /// Whether the cluster tells ids of topics.
    pub(super) tells_ids: bool,
}

/// The oldest records of a partition go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expiry {
    pub(super) partition: usize,
    pub(super) at_ms: u64,
    /// So many thousandths of what is there.
    pub(super) part: u64,
}

/// A topic is deleted and made again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anew {
    pub(super) at_ms: u64,
    /// For so long there is none.
    pub(super) missing_ms: u64,
}

impl TopicPlan {
    /// Decides what goes: old records, or the whole topic. It goes while records come.
    pub(super) fn roll_losses(&mut self, seed: u64, partitions: &[SourceFile]) {
        let mut dice = Dice::of(seed, &"losses");
        let case = dice.below(10);
        if case < 8 {
            self.pace_ms = dice.one_of(&[10, 500, 2_000]);
        }
        match case {
            0..=4 => {
                for _ in 0..dice.between(1, 4) {
                    let partition = usize::try_from(dice.below(partitions.len() as u64)).unwrap_or(0);
                    let file = &partitions[partition];
                    let after = self.pace_ms * dice.between(0, file.records.len() as u64) + dice.of_any_size(0, 4, 13);
                    let part = dice.one_of(&[300, 700, 1000]);
                    self.expiries.push(Expiry { partition, at_ms: file.comes_ms + after, part });
                }
            }
            5..=7 => {
                let missing_ms = dice.one_of(&[0, 0, 50, 3_000]);
                self.anew = Some(Anew { at_ms: dice.of_any_size(2_000, 12, 15), missing_ms });
                self.tells_ids = dice.thousandths(400);
            }
            _ => {}
        }
    }

    /// Whether records are lost in this world before they are read.
    pub(super) fn loses(&self) -> bool {
        !self.expiries.is_empty() || self.anew.is_some()
    }
}

/// That the first record of a partition became another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expired {
    pub(super) at: Instant,
    pub(super) partition: i64,
    pub(super) low: i64,
}

/// A piece of a partition that is told to be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) partition: i64,
    pub(super) from: i64,
    /// `None`: all that follows.
    pub(super) to: Option<i64>,
}

impl Loss {
    pub(super) fn holds(&self, partition: usize, offset: usize) -> bool {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        i64::try_from(partition) == Ok(self.partition) && offset >= self.from && self.to.is_none_or(|to| offset < to)
    }
}

/// What an error says is lost; `None` if it tells of something else. The text is the contract with whoever reads it.
pub(super) fn told_losses(error: &Error) -> Option<Vec<Loss>> {
    let text = error.chain_text();
    let (_, list) = text.split_once("no longer holds records that were not taken in: ")?;
    let loss = |text: &str| {
        let mut words = text.strip_prefix("partition ")?.split_whitespace();
        let partition = words.next()?.strip_suffix(':')?.parse().ok()?;
        let numbers: Vec<i64> = words.take_while(|w| !w.starts_with('(')).filter_map(|w| w.parse().ok()).collect();
        Some(Loss { partition, from: *numbers.first()?, to: numbers.get(1).map(|last| last + 1) })
    };
    Some(list.split("; ").filter_map(loss).collect())
}

/// Where a chain stood in a partition, from when on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stood {
    pub(super) since: Instant,
    pub(super) next: i64,
    /// The offset of the last record taken.
    pub(super) last: Option<i64>,
}

impl Stood {
    /// Whether a partition was there from here on when that was written down, or a moment before.
    pub(super) fn could_begin(&self, partition: usize, expired: &[Expired]) -> bool {
        let was = |e: &Expired| usize::try_from(e.partition) == Ok(partition) && e.low == self.next && e.at <= self.since;
        self.next == 0 || expired.iter().any(was)
    }
}

/// Where the chains stood in each partition, as time went; and the topic that each took itself to read.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) partitions: BTreeMap<i64, Vec<Stood>>,
    pub(super) topic_ids: BTreeMap<i64, Option<String>>,
}

impl Standing {
    /// Reads it from all records that were ever put.
    pub(super) fn of(bucket: &Bucket) -> Self {
        let mut all: Vec<(Instant, Value)> = bucket
            .ever("default/_alluvium/chains")
            .filter(|(path, _)| path.contains("/ingest/edit/") && path.ends_with(".json") && !path.ends_with(".done.json"))
            .filter_map(|(_, object)| Some((object.put_at, serde_json::from_slice(&object.bytes).ok()?)))
            .collect();
        all.sort_by_key(|(at, record)| (*at, record["batch"].as_u64(), record["attempt"].as_u64()));
        let mut standing = Self::default();
        for (since, record) in &all {
            let range = &record["body"]["intent"]["range"]["kafka"];
            for partition in range["partitions"].as_array().into_iter().flatten() {
                let (Some(number), Some(next)) = (partition["partition"].as_i64(), partition["to"].as_i64()) else { continue };
                let last = partition["last"]["offset"].as_i64();
                standing.partitions.entry(number).or_default().push(Stood { since: *since, next, last });
                standing.topic_ids.insert(number, range["topic_id"].as_str().map(str::to_owned));
            }
        }
        standing
    }

    /// Whether a chain stood where the loss begins when the records up to its end had gone already.
    pub(super) fn had(&self, loss: &Loss, expired: &[Expired]) -> bool {
        let stood = self.partitions.get(&loss.partition).map_or(&[][..], Vec::as_slice);
        let went_on = stood.iter().filter(|s| s.next > loss.from).map(|s| s.since).min().unwrap_or(Instant::MAX);
        let gone = |e: &&Expired| e.partition == loss.partition && Some(e.low) == loss.to && e.at <= went_on;
        stood.iter().any(|s| s.next == loss.from) && expired.iter().any(|e| gone(&e))
    }

    /// Where the chain of a partition began.
    pub(super) fn first(&self, partition: usize) -> Option<Stood> {
        self.partitions.get(&i64::try_from(partition).ok()?)?.first().copied()
    }

    /// Where the chain of a partition stands now.
    pub(super) fn now(&self, partition: usize) -> Option<Stood> {
        self.partitions.get(&i64::try_from(partition).ok()?)?.last().copied()
    }
}

/// Whether a job may end so because of what befell the topic. `expired`: what has gone so far.
pub(super) fn check_told(
    error: &Error,
    topic: &TopicPlan,
    standing: &Standing,
    expired: &[Expired],
    lists_late: bool,
) -> Result<bool, String> {
    let Some(losses) = told_losses(error) else {
        let no_topic = error.kind() == Kind::NotFound && error.chain_text().contains("has no topic");
        return Ok(no_topic && topic.anew.is_some_and(|a| a.missing_ms > 0));
    };
    let text = error.chain_text();
    if losses.is_empty() {
        return Err(format!("it does not say what is lost: {text}"));
    }
    if topic.anew.is_some() {
        return if error.kind() == Kind::Corrupt { Ok(true) } else { Err(format!("{:?}: {text}", error.kind())) };
    }
    if error.kind() != Kind::Unavailable || error.may_pass() {
        return Err(format!("{:?}, may pass {}: {text}", error.kind(), error.may_pass()));
    }
    // Who is shown an old listing may take for unread what others have read.
    match losses.iter().find(|loss| !lists_late && !standing.had(loss, expired)) {
        Some(loss) => Err(format!("it tells of a loss that is none ({loss:?}): {text}")),
        None => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stood(all: &[(Instant, i64)]) -> Standing {
        let stood = all.iter().map(|(since, next)| Stood { since: *since, next: *next, last: None }).collect();
        Standing { partitions: BTreeMap::from([(3, stood)]), topic_ids: BTreeMap::new() }
    }

    #[test]
    fn losses_are_read_from_what_an_error_says_and_other_errors_say_of_none() {
        let text = "dataset edit: the topic t no longer holds records that were not taken in: partition 3: offsets 4 to 6 have \
                    expired; partition 12: offsets from 9 on (the topic was made anew, or cut: other records stand there)";
        let expected = [Loss { partition: 3, from: 4, to: Some(7) }, Loss { partition: 12, from: 9, to: None }];
        assert_eq!(told_losses(&Error::new(Kind::Unavailable, text)).as_deref(), Some(&expected[..]));
        assert_eq!(told_losses(&Error::new(Kind::Unavailable, "partition 3: offsets 4 to 6")), None);
    }

    #[test]
    fn loss_is_one_only_where_a_chain_stood_before_what_had_gone() {
        let expired = [Expired { at: 50, partition: 3, low: 7 }];
        let loss = Loss { partition: 3, from: 4, to: Some(7) };
        assert!(stood(&[(10, 4)]).had(&loss, &expired));
        assert!(stood(&[(10, 4), (60, 9)]).had(&loss, &expired));
        assert!(!stood(&[(10, 4), (40, 9)]).had(&loss, &expired), "it had gone on before");
        assert!(!stood(&[(10, 5)]).had(&loss, &expired), "it never stood there");
        assert!(!stood(&[(10, 4)]).had(&Loss { to: Some(8), ..loss }, &expired), "offset 7 is there");
    }
}
