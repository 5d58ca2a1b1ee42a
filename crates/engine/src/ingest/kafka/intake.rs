//! One shard of a topic: where its chain stands, and its next batch.

use std::collections::BTreeMap;
use std::time::Duration;

use alluvium_core::{
    BatchKey, BatchNumber, Error, KafkaPositions, KafkaRange, KafkaStanding, KafkaStart, Kind, LossKind, Offset, OffsetLoss,
    Range, RecordBody, Result, Shard, Tombstones, TopicLook, loss_error,
};
use alluvium_lake::{ChainListing, in_place};

use super::away::Away;
use super::feed::{KafkaFeed, has_waited, is_full};
use super::gather::Gathering;
use super::look::{look, starts};
use crate::engine::Engine;
use crate::ingest::run::Round;
use crate::ingest::stage::Staged;
use crate::ingest::work::ChainWork;
use crate::ingest::{IngestOptions, Mode};
use crate::source::{Broker, ReaderSettings};

/// How often a follower looks for new partitions and for what was lost.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// After so long without a record, a follower records that it has come behind offsets that hold none: else, once the cluster
/// deletes them, they would look as if they had been lost.
const SETTLE_AFTER_MICROS: i64 = 60_000_000;

/// A run that is to end asks so often for records that the cluster says it has and does not give.
const MAX_DOUBTS: u32 = 30;

/// What all shards of a topic share.
#[derive(Debug, Clone)]
pub(super) struct Topic {
    /// As the cluster knows it.
    pub(super) name: String,
    pub(super) group: String,
    pub(super) shards: u32,
    pub(super) start: KafkaStart,
    pub(super) tombstones: Tombstones,
}

/// One shard of a topic.
pub(in crate::ingest) struct KafkaIntake {
    topic: Topic,
    shard: Shard,
    options: IngestOptions,
    /// Where the chain stands, once that was read.
    at: Option<At>,
    /// Where reading ends: what was there at the start of a run that is to end. A follower's batch does not end before what
    /// the last look found, unless nothing comes.
    ends: Option<BTreeMap<i32, Offset>>,
    /// The first offsets that are still there, as the last look found.
    lows: BTreeMap<i32, Offset>,
    gathering: Option<Gathering>,
    away: Away,
    /// When to look at the cluster again.
    looks_at: Option<Duration>,
    commit_warned: bool,
    /// How often in a row nothing stood where it was wanted, though the cluster says that nothing is lost.
    doubts: u32,
    /// Since when a follower stands behind what the newest record tells, without a record read.
    ahead_since_micros: Option<i64>,
}

/// The newest finished batch, and the positions behind it.
struct At {
    batch: BatchNumber,
    /// `None`: nothing was fixed yet.
    positions: Option<KafkaPositions>,
}

impl KafkaIntake {
    pub(super) fn new(topic: Topic, shard: Shard, options: IngestOptions) -> Self {
        Self {
            topic,
            shard,
            options,
            at: None,
            ends: None,
            lows: BTreeMap::new(),
            gathering: None,
            away: Away::default(),
            looks_at: None,
            commit_warned: false,
            doubts: 0,
            ahead_since_micros: None,
        }
    }

    pub(in crate::ingest) const fn shard(&self) -> Shard {
        self.shard
    }

    /// Forgets where the chain stands, and what was read and not recorded.
    pub(in crate::ingest) fn forget(&mut self) {
        self.at = None;
        self.gathering = None;
    }

    /// Whether a run that is to end has nothing to do here, as the process that has the lease has come as far as the topic went
    /// when this run began.
    pub(in crate::ingest) async fn is_done_elsewhere(&mut self, work: &ChainWork<'_>) -> Result<bool> {
        if self.options.mode == Mode::Follow {
            return Ok(false);
        }
        if self.ends.is_none() {
            let broker = work.engine.broker.as_ref();
            match in_place(|| look(broker, &self.topic.name, self.shard, self.topic.shards)) {
                Ok(look) => self.ends = Some(ends_of(&look)),
                // Who has the lease waits for the broker, too.
                Err(e) if e.kind() == Kind::Unavailable => return Ok(false),
                Err(e) => return Err(e.context(format!("dataset {}", work.dataset.name))),
            }
        }
        let listing = work.chain.listing().await?;
        let Some(newest) = listing.newest().filter(|key| listing.done.contains(&key.batch)) else { return Ok(false) };
        let Ok(Some(Range::Kafka(range))) = work.range_of(&listing, newest.batch).await else { return Ok(false) };
        let at = KafkaPositions::after(&range);
        let ends = self.ends.iter().flatten();
        Ok(ends.into_iter().all(|(p, end)| at.partitions.get(p).is_some_and(|s| s.next >= *end)))
    }

    /// Gathers what has come for a follower; a round if there is no reason yet to look at the chain.
    pub(in crate::ingest) fn look_before_round(&mut self, work: &ChainWork<'_>) -> Result<Option<Round>> {
        let clock = work.engine.clock.as_ref();
        let (limits, hold) = (&work.dataset.batch, hold_bytes(work.engine, self.topic.shards));
        let Some(gathering) = self.gathering.as_mut().filter(|_| self.options.mode == Mode::Follow) else { return Ok(None) };
        let due = |g: &Gathering| is_full(g, limits) || g.is_doubtful() || g.held_bytes() >= hold;
        in_place(|| -> Result<()> {
            while !due(gathering) && gathering.poll(Duration::ZERO, || clock.now_micros())? {}
            Ok(())
        })?;
        let recorded = self.at.as_ref().and_then(|at| at.positions.as_ref());
        let is_ahead = gathering.records() == 0 && recorded.is_some_and(|recorded| is_behind(recorded, gathering));
        let since = is_ahead.then(|| self.ahead_since_micros.unwrap_or_else(|| clock.now_micros()));
        self.ahead_since_micros = since;
        let settles = since.is_some_and(|since| clock.now_micros().saturating_sub(since) >= SETTLE_AFTER_MICROS);
        let must_look = self.looks_at.is_none_or(|at| at <= work.engine.elapsed());
        let due = settles || due(gathering) || has_waited(gathering, limits, clock) || must_look;
        Ok((!due).then_some(Round::Idle))
    }

    /// Reads the next range, stages it, records it and finishes it.
    pub(in crate::ingest) async fn next_batch(
        &mut self,
        work: &mut ChainWork<'_>,
        listing: &ChainListing,
        key: BatchKey,
    ) -> Result<Round> {
        let round = self.try_next_batch(work, listing, key).await;
        let doubtful = self.gathering.as_ref().is_some_and(Gathering::is_doubtful);
        let keeps = matches!(round, Ok(Round::Batch(_) | Round::Idle)) || (round.is_ok() && doubtful);
        if !keeps {
            // What was gathered belongs to no record: it is read again.
            self.gathering = None;
        }
        round
    }

    async fn try_next_batch(&mut self, work: &mut ChainWork<'_>, listing: &ChainListing, key: BatchKey) -> Result<Round> {
        let name = work.dataset.name.0.clone();
        let finished = BatchNumber(key.batch.0 - 1);
        if self.at.as_ref().is_none_or(|at| at.batch != finished) {
            self.gathering = None;
            let positions = self.positions(work, listing, finished).await?;
            self.at = Some(At { batch: finished, positions });
        }
        let doubtful = self.gathering.as_ref().is_some_and(Gathering::is_doubtful);
        let must_look = self.gathering.is_none() || doubtful || self.looks_at.is_none_or(|at| at <= work.engine.elapsed());
        if must_look {
            let asked = in_place(|| self.look_at_cluster(work.engine.broker.as_ref()));
            let look = match asked {
                Ok(look) => look,
                Err(e) if e.kind() == Kind::Unavailable => {
                    self.away.note(work.engine, &name, self.options.mode, e)?;
                    return Ok(Round::Away);
                }
                Err(e) => return Err(e.context(format!("dataset {name}"))),
            };
            self.away.over(work.engine, &name);
            if let Some(round) = self.settle_positions(work, listing, key, &look).await? {
                return Ok(round);
            }
        }
        work.prepare(listing).await?;
        work.drop_old_records(listing, finished).await?;
        self.read_batch(work, key).await
    }

    /// The positions that the chain's newest record tells.
    async fn positions(
        &self,
        work: &ChainWork<'_>,
        listing: &ChainListing,
        finished: BatchNumber,
    ) -> Result<Option<KafkaPositions>> {
        if finished.0 == 0 {
            return Ok(None);
        }
        match work.range_of(listing, finished).await? {
            #[cfg(feature = "plants")]
            Some(Range::Kafka(range)) if alluvium_lake::Plant::ResumeFromBroker.grows() => {
                let mut positions = KafkaPositions::after(&range);
                for (partition, standing) in &mut positions.partitions {
                    let next = work.engine.broker.committed(&self.topic.group, &self.topic.name, *partition);
                    *standing = KafkaStanding { next: next.unwrap_or(Offset(0)), last: None };
                }
                Ok(Some(positions))
            }
            Some(Range::Kafka(range)) => Ok(Some(KafkaPositions::after(&range))),
            // Requests that were handed over before there was a topic.
            Some(Range::Files(files)) if work.dataset.is_requests() && files.is_empty() => Ok(None),
            Some(Range::Files(_)) => Err(Error::new(
                Kind::Conflict,
                format!(
                    "dataset {}: its batches so far were read from files, and the project file says Kafka",
                    work.dataset.name
                ),
            )
            .hint("a dataset keeps its kind of source: give the topic a dataset of its own")),
            Some(Range::DeadLetters { .. } | Range::Ledger { .. } | Range::Retention(_)) | None => Err(Error::new(
                Kind::Corrupt,
                format!("dataset {}: the record of batch {finished} of shard {} is gone", work.dataset.name, self.shard.0),
            )
            .hint("restore _alluvium/chains from a backup of the storage")),
        }
    }

    fn look_at_cluster(&self, broker: &dyn Broker) -> Result<(TopicLook, Option<BTreeMap<i32, Offset>>)> {
        let look = look(broker, &self.topic.name, self.shard, self.topic.shards)?;
        let begins = self.at.as_ref().is_some_and(|at| at.positions.is_none());
        let starts = if begins { Some(starts(broker, &self.topic.name, self.topic.start, &look)?) } else { None };
        Ok((look, starts))
    }

    /// Compares the positions with what the cluster holds. Where they must change before anything is read, that is recorded, and
    /// the round is over.
    async fn settle_positions(
        &mut self,
        work: &mut ChainWork<'_>,
        listing: &ChainListing,
        key: BatchKey,
        (look, starts): &(TopicLook, Option<BTreeMap<i32, Offset>>),
    ) -> Result<Option<Round>> {
        self.looks_at = Some(work.engine.elapsed() + LOOK_INTERVAL);
        if self.options.mode == Mode::Follow || self.ends.is_none() {
            self.ends = Some(ends_of(look));
        }
        self.lows = look.watermarks.iter().map(|(partition, (low, _))| (*partition, *low)).collect();
        let positions = self.at.as_mut().and_then(|at| at.positions.as_mut());
        let Some(positions) = positions else {
            let starts = starts.clone().unwrap_or_default();
            return self.record_positions(work, listing, key, KafkaPositions::beginning(look.id.clone(), starts)).await.map(Some);
        };
        let mut losses = positions.losses(look);
        for partition in self.gathering.iter().flat_map(Gathering::made_anew) {
            let Some(standing) = positions.partitions.get(partition) else { continue };
            if !losses.iter().any(|l| l.partition == *partition) {
                losses.push(OffsetLoss { partition: *partition, from: standing.next, to: None, how: LossKind::MadeAnew });
            }
        }
        #[cfg(feature = "plants")]
        if alluvium_lake::Plant::SilentLoss.grows() && !losses.is_empty() {
            let mut passed = positions.clone();
            passed.accept(&losses, look);
            passed.losses.clear();
            return self.record_positions(work, listing, key, passed).await.map(Some);
        }
        if !losses.is_empty() {
            if !self.options.accept_loss {
                return Err(loss_error(&self.topic.name, &losses).context(format!("dataset {}", work.dataset.name)));
            }
            let mut accepted = positions.clone();
            accepted.accept(&losses, look);
            for loss in &losses {
                work.engine.observer.warning(&format!("dataset {}: accepted as lost: {loss}", work.dataset.name));
            }
            return self.record_positions(work, listing, key, accepted).await.map(Some);
        }
        if positions.topic_id.is_none() {
            positions.topic_id.clone_from(&look.id);
        }
        // New partitions begin with the next record; what a reader gathered before goes on without them once more.
        if positions.take_up_new(look) {
            self.gathering = None;
        }
        if self.gathering.as_ref().is_some_and(Gathering::is_doubtful) {
            self.gathering = None;
        }
        Ok(None)
    }

    /// Records where reading goes on, with nothing read.
    async fn record_positions(
        &mut self,
        work: &mut ChainWork<'_>,
        listing: &ChainListing,
        key: BatchKey,
        positions: KafkaPositions,
    ) -> Result<Round> {
        work.prepare(listing).await?;
        self.gathering = None;
        let range = positions.range_to(&self.topic.name, &BTreeMap::new());
        let staged = Staged::nothing(work.engine.clock.now_micros());
        let (record, sweeps) = work.record_of(key, Range::Kafka(range), 0, staged);
        if work.write(&record, sweeps).await?.is_some() {
            self.at = Some(At { batch: key.batch, positions: Some(positions) });
        } else {
            self.at = None;
        }
        Ok(Round::Again)
    }

    async fn read_batch(&mut self, work: &mut ChainWork<'_>, key: BatchKey) -> Result<Round> {
        let name = work.dataset.name.0.clone();
        let internal = || Error::new(Kind::Internal, "reading a topic before its positions are known");
        let positions = self.at.as_ref().and_then(|at| at.positions.as_ref()).ok_or_else(internal)?;
        let ends = self.ends.as_ref().ok_or_else(internal)?;
        let at_end = positions.partitions.iter().all(|(p, s)| ends.get(p).is_none_or(|end| s.next >= *end));
        if at_end && self.options.mode != Mode::Follow {
            return Ok(Round::Idle);
        }
        if positions.partitions.is_empty() {
            return Ok(Round::Idle);
        }
        if self.gathering.is_none() {
            self.gathering = Some(self.open(work.engine, work, positions)?);
        }
        let Some(gathering) = self.gathering.as_mut() else { return Err(internal()) };
        if gathering.records() == 0 && self.options.mode == Mode::Follow {
            let now_micros = work.engine.clock.now_micros();
            if self.ahead_since_micros.is_some_and(|since| now_micros.saturating_sub(since) >= SETTLE_AFTER_MICROS) {
                let range = positions.range_to(&self.topic.name, gathering.standing());
                return self.record(work, key, range, 0, Staged::nothing(now_micros)).await;
            }
            return Ok(Round::Idle);
        }
        let hold = hold_bytes(work.engine, self.topic.shards);
        let mut feed = KafkaFeed::new(gathering, work.dataset.batch, ends, self.options.mode, work.engine.clock.as_ref(), hold);
        let Some(staged) = work.stage(key, &mut feed).await? else { return Ok(Round::Stopped) };
        let stalled = feed.stalled;
        if gathering.is_doubtful() || stalled {
            for sweep in staged.sweeps {
                sweep.run().await;
            }
            if stalled {
                let error = Error::new(Kind::Unavailable, format!("the topic {} gives nothing more", self.topic.name))
                    .hint("see whether the broker is up and within reach, and run again");
                return Err(error.context(format!("dataset {name}")));
            }
            // With the reader kept, the next round looks at the cluster and finds out what it is.
            if !gathering.made_anew().is_empty() {
                return Ok(Round::Again);
            }
            self.doubts += 1;
            if self.doubts >= MAX_DOUBTS && self.options.mode != Mode::Follow {
                let error =
                    Error::new(Kind::Unavailable, format!("the topic {} gives nothing at the offsets wanted", self.topic.name))
                        .hint("its replicas may be catching up: run again later");
                return Err(error.context(format!("dataset {name}")));
            }
            return Ok(Round::Away);
        }
        // Without records, it is recorded that a run that ends here stands behind offsets that hold none: else they would count as
        // lost when they have expired.
        if gathering.records() == 0 && (self.options.mode == Mode::Follow || !is_behind(positions, gathering)) {
            for sweep in staged.sweeps {
                sweep.run().await;
            }
            return Ok(Round::Idle);
        }
        let range: KafkaRange = positions.range_to(&self.topic.name, gathering.standing());
        let skipped = gathering.skipped();
        self.record(work, key, range, skipped, staged).await
    }

    /// Records what was staged of a range, and finishes its batch.
    async fn record(
        &mut self,
        work: &mut ChainWork<'_>,
        key: BatchKey,
        range: KafkaRange,
        skipped: u64,
        staged: Staged,
    ) -> Result<Round> {
        self.ahead_since_micros = None;
        self.doubts = 0;
        let (record, sweeps) = work.record_of(key, Range::Kafka(range), skipped, staged);
        let Some(outcome) = work.write(&record, sweeps).await? else {
            self.at = None;
            return Ok(Round::Again);
        };
        if let RecordBody::Intent(recorded) = &record.body
            && let Range::Kafka(range) = &recorded.range
        {
            self.at = Some(At { batch: key.batch, positions: Some(KafkaPositions::after(range)) });
        }
        self.acknowledge(work.engine, &work.dataset.name.0);
        Ok(Round::Batch(outcome))
    }

    /// Lets tools that watch the group see how far we are.
    fn acknowledge(&mut self, engine: &Engine, name: &str) {
        let Some(gathering) = &mut self.gathering else { return };
        gathering.begin_next();
        if let Err(error) = gathering.commit()
            && !self.commit_warned
        {
            self.commit_warned = true;
            engine.observer.warning(&format!(
                "dataset {name}: the broker does not take the offsets of the group {}: {}; ours are what counts",
                self.topic.group,
                error.message()
            ));
        }
    }

    /// Opens a reader at the last record taken of each partition, to see that it is still the same, or behind it.
    fn open(&self, engine: &Engine, work: &ChainWork<'_>, positions: &KafkaPositions) -> Result<Gathering> {
        let parts: Vec<_> = work.dataset.fields.iter().filter_map(|f| work.dataset.message_part(f)).collect();
        let headers = parts.iter().any(|part| matches!(part, alluvium_core::MessagePart::Header(_)));
        let from: Vec<(i32, Offset)> = positions.partitions.iter().map(|(p, s)| (*p, self.first_wanted(*p, s))).collect();
        let settings = ReaderSettings {
            topic: &self.topic.name,
            from: &from,
            group: &self.topic.group,
            buffer_bytes: buffer_bytes(engine, self.topic.shards),
            headers,
        };
        let reader = in_place(|| engine.broker.reader(&settings))?;
        let machine = engine.store.machine();
        Ok(Gathering::new(reader, &self.topic.name, !parts.is_empty(), self.topic.tombstones, &positions.partitions, machine))
    }

    fn first_wanted(&self, partition: i32, standing: &KafkaStanding) -> Offset {
        let is_there = |offset: &Offset| self.lows.get(&partition).is_some_and(|low| offset >= low);
        standing.last.map(|last| last.offset).filter(is_there).unwrap_or(standing.next)
    }
}

/// Whether some partition was recorded less far than it was read.
fn is_behind(recorded: &KafkaPositions, gathering: &Gathering) -> bool {
    let standing = gathering.standing();
    recorded.partitions.iter().any(|(partition, at)| standing.get(partition).is_some_and(|s| s.next > at.next))
}

/// Where each partition ends now.
fn ends_of(look: &TopicLook) -> BTreeMap<i32, Offset> {
    look.watermarks.iter().map(|(partition, (_, high))| (*partition, *high)).collect()
}

/// What the client of one shard may fetch ahead: all shards together a sixteenth of the budget.
fn buffer_bytes(engine: &Engine, shards: u32) -> u64 {
    engine.memory_bytes / 16 / u64::from(shards.max(1))
}

/// What one shard may hold that was not handed to the decoders.
fn hold_bytes(engine: &Engine, shards: u32) -> u64 {
    (engine.memory_bytes / 16 / u64::from(shards.max(1))).max(1 << 20)
}
