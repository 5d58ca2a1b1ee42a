//! A cluster in memory, for what real ones do only now and then: records that come again, gaps, partitions in any order, topics
//! made anew with other records in the same places, brokers that are away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alluvium_core::{Error, Kind, Offset, Result};
use alluvium_engine::{Broker, Polled, Reader, ReaderSettings, Record, TopicFacts, Watermarks};

/// A cluster in memory; clones are the same cluster.
#[derive(Clone, Default)]
pub struct MemoryCluster {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    topics: BTreeMap<String, Topic>,
    /// Nobody answers.
    away: bool,
    /// Readers give each record again after so many others; 0: never.
    repeat_after: usize,
    committed: BTreeMap<(String, String, i32), Offset>,
    /// Topics made so far: records of different ones have different times.
    made: i64,
}

#[derive(Default)]
struct Topic {
    id: Option<String>,
    made: i64,
    partitions: Vec<Partition>,
}

#[derive(Default)]
struct Partition {
    low: i64,
    /// Readers do not see offsets from this one on, as those of a replica that is behind.
    unseen_from: Option<i64>,
    /// By offset; `None` is an offset without a record.
    log: Vec<Option<Kept>>,
}

#[derive(Clone)]
struct Kept {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp_ms: i64,
}

impl MemoryCluster {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a topic, in the place of one of that name; `id`, if the cluster tells ids.
    pub fn create(&self, topic: &str, partitions: usize, id: Option<&str>) {
        let partitions = (0..partitions).map(|_| Partition::default()).collect();
        let mut inner = self.lock();
        let made = inner.made;
        inner.made += 1;
        inner.topics.insert(topic.to_owned(), Topic { id: id.map(str::to_owned), made, partitions });
    }

    /// Deletes a topic.
    pub fn delete(&self, topic: &str) {
        self.lock().topics.remove(topic);
    }

    /// Adds or takes away partitions until there are so many.
    ///
    /// # Panics
    /// If there is no such topic.
    pub fn resize(&self, topic: &str, partitions: usize) {
        self.lock().topics.get_mut(topic).expect("the topic is there").partitions.resize_with(partitions, Partition::default);
    }

    /// Appends a record: its offset.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn send(&self, topic: &str, partition: usize, value: Option<&str>) -> i64 {
        let mut inner = self.lock();
        let topic = inner.topics.get_mut(topic).expect("the topic is there");
        let log = &mut topic.partitions[partition].log;
        let offset = i64::try_from(log.len()).expect("a small log");
        let value = value.map(|v| v.as_bytes().to_vec());
        log.push(Some(Kept { key: None, value, timestamp_ms: 1_767_225_600_000 + 3_600_000 * topic.made + offset }));
        offset
    }

    /// Appends offsets that hold no record, as an aborted or control record does.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn gap(&self, topic: &str, partition: usize, offsets: usize) {
        let mut inner = self.lock();
        let log = &mut inner.topics.get_mut(topic).expect("the topic is there").partitions[partition].log;
        log.extend(std::iter::repeat_n(None, offsets));
    }

    /// Drops all records before an offset.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn expire(&self, topic: &str, partition: usize, before: i64) {
        self.lock().topics.get_mut(topic).expect("the topic is there").partitions[partition].low = before;
    }

    /// The first offset of a partition that is there, and the one behind its last; `None` if there is no such partition.
    #[must_use]
    pub fn bounds(&self, topic: &str, partition: usize) -> Option<(i64, i64)> {
        let inner = self.lock();
        let of = inner.topics.get(topic)?.partitions.get(partition)?;
        Some((of.low, of.high()))
    }

    /// Lets readers see nothing from an offset on, though the watermarks tell of it; `None`: they see all.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn lag(&self, topic: &str, partition: usize, unseen_from: Option<i64>) {
        self.lock().topics.get_mut(topic).expect("the topic is there").partitions[partition].unseen_from = unseen_from;
    }

    /// Whether anybody answers from now on.
    pub fn set_away(&self, away: bool) {
        self.lock().away = away;
    }

    /// Lets readers opened from now on give each record again after so many others.
    pub fn repeat_after(&self, records: usize) {
        self.lock().repeat_after = records;
    }

    /// The offset that was committed for a group.
    #[must_use]
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        self.lock().committed.get(&(group.to_owned(), topic.to_owned(), partition)).map(|o| o.0)
    }
}

impl Inner {
    fn topic(&self, topic: &str) -> Result<&Topic> {
        if self.away {
            return Err(Error::new(Kind::Unavailable, format!("reading the topic {topic}: nobody answers")));
        }
        self.topics.get(topic).ok_or_else(|| Error::new(Kind::NotFound, format!("the cluster has no topic {topic}")))
    }

    fn partition(&self, topic: &str, partition: i32) -> Result<&Partition> {
        let of = self.topic(topic)?.partitions.get(usize::try_from(partition).unwrap_or(usize::MAX));
        of.ok_or_else(|| Error::new(Kind::NotFound, format!("the topic {topic} has no partition {partition}")))
    }
}

impl Partition {
    fn high(&self) -> i64 {
        i64::try_from(self.log.len()).unwrap_or(i64::MAX)
    }

    /// Up to where a reader sees.
    fn seen(&self) -> i64 {
        self.unseen_from.map_or(self.high(), |unseen| unseen.min(self.high()))
    }
}

impl Broker for MemoryCluster {
    fn topic(&self, topic: &str) -> Result<TopicFacts> {
        let inner = self.lock();
        let found = inner.topic(topic)?;
        Ok(TopicFacts { id: found.id.clone(), partitions: u32::try_from(found.partitions.len()).unwrap_or(u32::MAX) })
    }

    fn watermarks(&self, topic: &str, partition: i32) -> Result<Watermarks> {
        let inner = self.lock();
        let of = inner.partition(topic, partition)?;
        Ok(Watermarks { low: Offset(of.low), high: Offset(of.high()) })
    }

    fn offset_at(&self, topic: &str, partition: i32, time_ms: i64) -> Result<Option<Offset>> {
        let inner = self.lock();
        let of = inner.partition(topic, partition)?;
        let at = of.log.iter().position(|r| r.as_ref().is_some_and(|r| r.timestamp_ms >= time_ms));
        Ok(at.map(|at| Offset(i64::try_from(at).unwrap_or(i64::MAX))))
    }

    fn reader(&self, settings: &ReaderSettings<'_>) -> Result<Box<dyn Reader>> {
        let inner = self.lock();
        let id = inner.topic(settings.topic)?.id.clone();
        let at = settings.from.iter().map(|(partition, offset)| Place { partition: *partition, next: offset.0, told_end: None });
        Ok(Box::new(MemoryReader {
            cluster: self.clone(),
            topic: settings.topic.to_owned(),
            id,
            group: settings.group.to_owned(),
            places: at.collect(),
            turn: 0,
            given: Vec::new(),
            repeat_after: inner.repeat_after,
        }))
    }
}

/// Reads partitions in turn, a record of each.
struct MemoryReader {
    cluster: MemoryCluster,
    topic: String,
    /// The topic's id when reading began: records are asked for by it, if the cluster tells ids.
    id: Option<String>,
    group: String,
    places: Vec<Place>,
    turn: usize,
    given: Vec<(i32, i64)>,
    repeat_after: usize,
}

struct Place {
    partition: i32,
    next: i64,
    told_end: Option<i64>,
}

impl Reader for MemoryReader {
    fn poll(&mut self, _: Duration, take: &mut dyn FnMut(Polled<'_>)) -> Result<bool> {
        let inner = self.cluster.lock();
        let give = |of: &Partition, partition: i32, offset: i64, take: &mut dyn FnMut(Polled<'_>)| {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            if let Some(Some(kept)) = of.log.get(at) {
                take(Polled::Record(Record {
                    partition,
                    offset: Offset(offset),
                    timestamp_ms: Some(kept.timestamp_ms),
                    key: kept.key.as_deref(),
                    value: kept.value.as_deref(),
                    headers: &[],
                }));
            }
        };
        if inner.topic(&self.topic)?.id != self.id {
            take(Polled::OutOfRange);
            return Ok(true);
        }
        if self.repeat_after > 0 && self.given.len() >= self.repeat_after {
            let (partition, offset) = self.given.remove(0);
            give(inner.partition(&self.topic, partition)?, partition, offset, take);
            self.given.clear();
            return Ok(true);
        }
        for _ in 0..self.places.len() {
            self.turn = (self.turn + 1) % self.places.len();
            let place = &mut self.places[self.turn];
            let of = inner.partition(&self.topic, place.partition)?;
            if place.next < of.low || place.next > of.high() {
                take(Polled::OutOfRange);
                return Ok(true);
            }
            while place.next < of.seen() && of.log.get(usize::try_from(place.next).unwrap_or(0)).is_some_and(Option::is_none) {
                place.next += 1;
            }
            if place.next < of.seen() {
                give(of, place.partition, place.next, take);
                self.given.push((place.partition, place.next));
                place.next += 1;
                return Ok(true);
            }
            if place.told_end != Some(place.next) {
                place.told_end = Some(place.next);
                take(Polled::End { partition: place.partition, upto: Some(Offset(place.next)) });
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn commit(&mut self, next: &[(i32, Offset)]) -> Result<()> {
        let mut inner = self.cluster.lock();
        for (partition, offset) in next {
            inner.committed.insert((self.group.clone(), self.topic.clone(), *partition), *offset);
        }
        Ok(())
    }
}
