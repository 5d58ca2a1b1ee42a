//! Records of a shard's partitions, gathered from a reader until they are handed to the decoders.
//!
//! A record that the shard has taken already (a reader may give records again) is dropped; so `no_duplicate_row` does not
//! depend on what the cluster or its client repeats.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use alluvium_core::{KafkaStanding, Kind, LastTaken, Offset, Result, Tombstones};
use alluvium_lake::Machine;

use crate::source::{Messages, Polled, Reader, Record};

/// An open reader and what it gave that was not handed on yet.
pub(super) struct Gathering {
    reader: Box<dyn Reader>,
    topic: String,
    /// Whether the declaration asks for something around the value.
    around: bool,
    tombstones: Tombstones,
    place: Place,
    /// When the first record of the batch came, in the clock's microseconds.
    pub(super) since_micros: Option<i64>,
    /// When the reader last gave something.
    last_heard: Duration,
    machine: Arc<dyn Machine>,
}

/// Where the reading stands, apart from the reader.
struct Place {
    /// Where each partition stands behind what was gathered.
    standing: BTreeMap<i32, KafkaStanding>,
    /// The last records taken before, which the reader is expected to show first.
    known: BTreeMap<i32, LastTaken>,
    /// Partitions that showed another record in such a place.
    made_anew: BTreeSet<i32>,
    /// Partitions whose end was seen, with nothing after.
    ended: BTreeSet<i32>,
    /// Some partition wants a record that is not there.
    out_of_range: bool,
    messages: BTreeMap<i32, Messages>,
    /// Records of the batch so far, handed on or not, tombstones included.
    records: u64,
    /// Their bytes.
    bytes: u64,
    skipped: u64,
}

impl Gathering {
    /// Gathers what `reader` gives behind `standing`; it was put at the last record taken, where that is still there.
    pub(super) fn new(
        reader: Box<dyn Reader>,
        topic: &str,
        around: bool,
        tombstones: Tombstones,
        standing: &BTreeMap<i32, KafkaStanding>,
        machine: &Arc<dyn Machine>,
    ) -> Self {
        let known = standing.iter().filter_map(|(p, s)| Some((*p, s.last?))).collect();
        let place = Place {
            standing: standing.clone(),
            known,
            made_anew: BTreeSet::new(),
            ended: BTreeSet::new(),
            out_of_range: false,
            messages: BTreeMap::new(),
            records: 0,
            bytes: 0,
            skipped: 0,
        };
        let last_heard = machine.elapsed();
        Self {
            machine: machine.clone(),
            reader,
            topic: topic.to_owned(),
            around,
            tombstones,
            place,
            since_micros: None,
            last_heard,
        }
    }

    /// The machine's time.
    pub(super) fn elapsed(&self) -> Duration {
        self.machine.elapsed()
    }

    /// For how long the reader has given nothing.
    pub(super) fn silent_for(&self) -> Duration {
        self.machine.elapsed().saturating_sub(self.last_heard)
    }

    /// Waits at most `wait` for one more thing; whether there was one. A broker that is away for a moment gave nothing.
    pub(super) fn poll(&mut self, wait: Duration, now_micros: impl FnOnce() -> i64) -> Result<bool> {
        let (place, topic, around, tombstones) = (&mut self.place, &self.topic, self.around, self.tombstones);
        let before = place.records;
        let polled = self.reader.poll(wait, &mut |polled| match polled {
            Polled::Record(record) => place.take(&record, topic, around, tombstones),
            Polled::End { partition, upto } => {
                place.ended.insert(partition);
                if let (Some(upto), Some(standing)) = (upto, place.standing.get_mut(&partition)) {
                    standing.next = standing.next.max(upto);
                }
            }
            Polled::OutOfRange => place.out_of_range = true,
        });
        match polled {
            Ok(some) => {
                if some {
                    self.last_heard = self.machine.elapsed();
                }
                if self.place.records > before && self.since_micros.is_none() {
                    self.since_micros = Some(now_micros());
                }
                Ok(some)
            }
            Err(e) if e.kind() == Kind::Unavailable => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The records of some partition, if they fill a chunk; or those of the partition that has most of them.
    pub(super) fn hand_on(&mut self, chunk_bytes: u64, all: bool) -> Option<Messages> {
        let largest = self.place.messages.iter().max_by_key(|(_, m)| m.memory_bytes());
        let partition = largest.filter(|(_, m)| !m.is_empty() && (all || m.memory_bytes() >= chunk_bytes)).map(|(p, _)| *p)?;
        self.place.messages.remove(&partition)
    }

    /// Bytes that were not handed on yet.
    pub(super) fn held_bytes(&self) -> u64 {
        self.place.messages.values().map(Messages::memory_bytes).sum()
    }

    pub(super) const fn records(&self) -> u64 {
        self.place.records
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.place.bytes
    }

    pub(super) const fn skipped(&self) -> u64 {
        self.place.skipped
    }

    /// Where each partition stands behind what was gathered.
    pub(super) const fn standing(&self) -> &BTreeMap<i32, KafkaStanding> {
        &self.place.standing
    }

    /// Whether every partition has reached its end among `ends`, or showed that it has nothing more.
    pub(super) fn reached(&self, ends: &BTreeMap<i32, Offset>) -> bool {
        ends.iter().all(|(partition, end)| {
            let at = self.place.standing.get(partition).map(|s| s.next);
            at.is_none_or(|next| next >= *end) || self.place.ended.contains(partition)
        })
    }

    /// Whether every partition stands at its end among `ends`, or behind it. One that showed that it has nothing more may not: what
    /// is left are offsets without records, or a replica that is behind the one that told where the end is.
    pub(super) fn stands_at(&self, ends: &BTreeMap<i32, Offset>) -> bool {
        ends.iter().all(|(partition, end)| self.place.standing.get(partition).is_none_or(|s| s.next >= *end))
    }

    /// Whether the cluster must be looked at: what was wanted is not there, or something else is.
    pub(super) fn is_doubtful(&self) -> bool {
        self.place.out_of_range || !self.place.made_anew.is_empty()
    }

    /// The partitions whose last taken record is another one now.
    pub(super) const fn made_anew(&self) -> &BTreeSet<i32> {
        &self.place.made_anew
    }

    /// The batch was recorded: what comes now belongs to the next.
    pub(super) fn begin_next(&mut self) {
        self.place.records = 0;
        self.place.bytes = 0;
        self.place.skipped = 0;
        self.since_micros = None;
    }

    /// Tells the cluster how far we are.
    pub(super) fn commit(&mut self) -> Result<()> {
        let next: Vec<(i32, Offset)> = self.place.standing.iter().map(|(p, s)| (*p, s.next)).collect();
        self.reader.commit(&next)
    }
}

impl Place {
    fn take(&mut self, record: &Record<'_>, topic: &str, around: bool, tombstones: Tombstones) {
        let Some(standing) = self.standing.get_mut(&record.partition) else { return };
        let this = LastTaken {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms.unwrap_or(-1),
            value_bytes: record.value.map_or(0, |v| v.len() as u64),
        };
        if record.offset < standing.next {
            if let Some(known) = self.known.get(&record.partition).filter(|k| k.offset == record.offset)
                && *known != this
            {
                self.made_anew.insert(record.partition);
            }
            return;
        }
        self.known.remove(&record.partition);
        self.ended.remove(&record.partition);
        *standing = KafkaStanding { next: record.offset.next(), last: Some(this) };
        self.records += 1;
        let headers: usize = record.headers.iter().map(|(n, v)| n.len() + v.map_or(0, <[u8]>::len)).sum();
        self.bytes += (record.value.map_or(0, <[u8]>::len) + record.key.map_or(0, <[u8]>::len) + headers) as u64;
        if record.value.is_none() && tombstones == Tombstones::Skip {
            self.skipped += 1;
            return;
        }
        let messages = self.messages.entry(record.partition).or_insert_with(|| Messages::new(topic, record.partition));
        messages.push(record, around);
    }
}
