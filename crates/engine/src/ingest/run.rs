//! The rounds of a run: finish what is recorded, else take the next range.

use std::collections::VecDeque;
use std::time::Duration;

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, BatchOutcome, Dataset, Error, Incarnation, Kind, RecordBody, Result, Shard, Source,
};
use alluvium_lake::{ChainListing, Lease, LeaseWatch};

use super::backlog::Inbox;
use super::files::FileIntake;
use super::kafka::{KafkaIntake, Opening};
use super::spread::Spread;
use super::work::{ChainWork, Resumed};
use crate::engine::Engine;

/// How long a follower waits before it looks for new files again.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// How long a follower waits before it looks for new records again: the client fetches them meanwhile.
const RECORDS_INTERVAL: Duration = Duration::from_millis(50);
/// How long a run waits before it asks again whether another process still works on the same.
const LEASE_INTERVAL: Duration = Duration::from_millis(100);
/// How long a follower waits before it tries a dataset again that failed in a way that may pass; doubled each time, up to
/// [`MAX_FAILURE_INTERVAL`].
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);
const MAX_FAILURE_INTERVAL: Duration = Duration::from_secs(60);
/// How long a run waits before it asks a broker again that did not answer.
const BROKER_INTERVAL: Duration = Duration::from_secs(1);

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// When nothing is left that was there at the start.
    #[default]
    UntilIdle,
    /// After one batch a chain.
    Once,
    /// When it is stopped.
    Follow,
}

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IngestOptions {
    /// When it ends.
    pub mode: Mode,
    /// Whether it goes on behind records that the source has lost, and writes down that it did.
    pub accept_loss: bool,
}

impl From<Mode> for IngestOptions {
    fn from(mode: Mode) -> Self {
        Self { mode, accept_loss: false }
    }
}

/// What a run did.
#[derive(Debug, Default)]
pub struct RunSummary {
    /// Batches finished.
    pub batches: u64,
    /// What they did together.
    pub outcome: BatchOutcome,
    /// The datasets that failed, and why. The others went on.
    pub failed: Vec<(String, Error)>,
}

impl RunSummary {
    /// Adds what another run did.
    pub(crate) fn add(&mut self, other: Self) {
        self.batches += other.batches;
        self.outcome += other.outcome;
        self.failed.extend(other.failed);
    }
}

/// Who takes a turn in a run.
struct Turn<'a> {
    dataset: &'a Dataset,
    work: Task<'a>,
    /// There is nothing to do before this.
    rests_until: Duration,
    /// How often in a row it failed in a way that may pass.
    failures: u32,
}

/// What is done in a turn.
enum Task<'a> {
    /// Finding out how a topic is cut into shards.
    Open(Box<Opening<'a>>),
    /// A round of a chain.
    Chain(Box<Ingest<'a>>),
}

/// One chain's part in a run.
struct Ingest<'a> {
    work: ChainWork<'a>,
    intake: Intake,
    watch: LeaseWatch,
    lease: Option<Lease>,
    /// How the dataset's shards are shared, if it has several.
    spread: Option<Spread>,
}

/// The source of a chain.
enum Intake {
    Files(Box<FileIntake>),
    Kafka(Box<KafkaIntake>),
}

/// What a round did.
pub(super) enum Round {
    /// A batch was finished.
    Batch(BatchOutcome),
    /// Something else happened, or another process was quicker with the record: look again.
    Again,
    /// Another process has the chain's lease.
    Waiting,
    /// The broker does not answer.
    Away,
    /// There is nothing to take.
    Idle,
    /// The user asked to stop.
    Stopped,
}

impl Engine {
    /// Takes in what the sources of `datasets` hold. Their chains take turns, a batch each; a dataset that fails does not stop the
    /// others.
    ///
    /// # Errors
    /// Only what concerns all datasets, such as a namespace that is being deleted; the rest is in [`RunSummary::failed`].
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the next run goes on where this one was.
    pub async fn ingest(&self, datasets: &[&Dataset], options: impl Into<IngestOptions>) -> Result<RunSummary> {
        let options = options.into();
        let incarnation = self.incarnation().await?;
        let mut summary = RunSummary::default();
        let mut turns: VecDeque<Turn<'_>> = VecDeque::new();
        for &dataset in datasets {
            let work = match &dataset.source {
                Source::Files(_) => Ingest::of_files(self, dataset, &incarnation).map(|i| Task::Chain(Box::new(i))),
                Source::Kafka(source) => Opening::new(self, dataset, source, options).map(|o| Task::Open(Box::new(o))),
            };
            match work {
                Ok(work) => turns.push_back(Turn { dataset, work, rests_until: self.elapsed(), failures: 0 }),
                Err(e) => summary.failed.push((dataset.name.0.clone(), e)),
            }
        }
        while let Some(mut turn) = self.next_turn(&mut turns).await {
            if self.stop.asked() {
                turn.work.release().await;
                continue;
            }
            let round = match &mut turn.work {
                Task::Chain(ingest) => Box::pin(ingest.turn()).await,
                Task::Open(opening) => match opening.turn().await {
                    Ok(Some(intakes)) => {
                        let spread = Spread::new(self, turn.dataset, u32::try_from(intakes.len()).unwrap_or(u32::MAX));
                        let chain = |intake: KafkaIntake| {
                            let ingest = Ingest::of_kafka(self, turn.dataset, &incarnation, intake, spread.clone());
                            let work = Task::Chain(Box::new(ingest));
                            Turn { dataset: turn.dataset, work, rests_until: self.elapsed(), failures: 0 }
                        };
                        turns.extend(intakes.into_iter().map(chain));
                        continue;
                    }
                    Ok(None) => Ok(Round::Away),
                    Err(e) => Err(e),
                },
            };
            let round = match round {
                Err(e) if options.mode == Mode::Follow && e.may_pass() => {
                    let rest = FAILURE_INTERVAL.saturating_mul(1 << turn.failures.min(6)).min(MAX_FAILURE_INTERVAL);
                    self.observer.warning(&format!("{}; trying again in {} s", e.chain_text(), rest.as_secs()));
                    turn.failures += 1;
                    turn.work.begin_anew().await;
                    turn.rests_until = self.elapsed() + rest;
                    turns.push_back(turn);
                    continue;
                }
                round => round,
            };
            if round.is_ok() {
                turn.failures = 0;
            }
            let rest = match round {
                Ok(Round::Batch(outcome)) => {
                    summary.batches += 1;
                    summary.outcome += outcome;
                    if options.mode == Mode::Once { None } else { Some(Duration::ZERO) }
                }
                Ok(Round::Again) => Some(Duration::ZERO),
                Ok(Round::Waiting) => Some(turn.work.wait_interval()),
                Ok(Round::Away) => Some(BROKER_INTERVAL),
                Ok(Round::Idle) if options.mode == Mode::Follow => Some(turn.work.idle()),
                Ok(Round::Idle | Round::Stopped) => None,
                Err(e) => {
                    if options.mode == Mode::Follow && !turns.is_empty() {
                        self.observer.warning(&format!("{e}; dataset {} is not followed any more", turn.dataset.name));
                    }
                    summary.failed.push((turn.dataset.name.0.clone(), e));
                    // The dataset's other shards are left to other processes, if there are any.
                    let of_dataset: Vec<Turn<'_>>;
                    (of_dataset, turns) = split(turns, |t| t.dataset.name == turn.dataset.name);
                    for turn in of_dataset {
                        turn.work.release().await;
                    }
                    None
                }
            };
            match rest {
                Some(rest) => {
                    turn.rests_until = self.elapsed() + rest;
                    turns.push_back(turn);
                }
                None => turn.work.release().await,
            }
        }
        Ok(summary)
    }

    /// The next who has something to do; waits until somebody has.
    async fn next_turn<'a>(&self, turns: &mut VecDeque<Turn<'a>>) -> Option<Turn<'a>> {
        let earliest = turns.iter().map(|turn| turn.rests_until).min()?;
        let now = self.elapsed();
        if earliest > now {
            self.stop.sleep(earliest - now).await;
        }
        let now = self.elapsed();
        let ready = turns.iter().position(|turn| turn.rests_until <= now).unwrap_or(0);
        turns.remove(ready)
    }
}

impl Task<'_> {
    /// Nothing was found; how long to rest before looking again.
    fn idle(&mut self) -> Duration {
        match self {
            Self::Open(_) => BROKER_INTERVAL,
            Self::Chain(ingest) => match &mut ingest.intake {
                Intake::Files(files) => {
                    files.list_again();
                    FOLLOW_INTERVAL
                }
                Intake::Kafka(_) => RECORDS_INTERVAL,
            },
        }
    }

    /// How long to wait before looking again at a lease that another process has.
    fn wait_interval(&self) -> Duration {
        match self {
            Self::Chain(ingest) => ingest.spread.as_ref().map_or(LEASE_INTERVAL, |spread| spread.look_interval),
            Self::Open(_) => LEASE_INTERVAL,
        }
    }

    async fn release(self) {
        if let Self::Chain(ingest) = self {
            ingest.release().await;
        }
    }

    /// Forgets what was known and gives back what was held, after a failure.
    async fn begin_anew(&mut self) {
        if let Self::Chain(ingest) = self {
            ingest.forget();
            ingest.give_back().await;
        }
    }
}

impl<'a> Ingest<'a> {
    fn of_files(engine: &'a Engine, dataset: &'a Dataset, incarnation: &Incarnation) -> Result<Self> {
        let intake = Intake::Files(Box::new(FileIntake::new(Inbox::new(engine, dataset)?)));
        Ok(Self::new(engine, dataset, incarnation, Shard::WHOLE, intake, &lease_name(dataset)))
    }

    fn of_kafka(
        engine: &'a Engine,
        dataset: &'a Dataset,
        incarnation: &Incarnation,
        intake: KafkaIntake,
        spread: Spread,
    ) -> Self {
        let shard = intake.shard();
        let name = shard_lease_name(dataset, shard);
        let ingest = Self::new(engine, dataset, incarnation, shard, Intake::Kafka(Box::new(intake)), &name);
        Self { spread: Some(spread), ..ingest }
    }

    fn new(
        engine: &'a Engine,
        dataset: &'a Dataset,
        incarnation: &Incarnation,
        shard: Shard,
        intake: Intake,
        lease: &str,
    ) -> Self {
        let work = ChainWork::new(engine, dataset, incarnation, shard);
        let watch = LeaseWatch::new(&engine.store, &engine.resolver, lease, engine.project.lease_ttl);
        Self { work, intake, watch, lease: None, spread: None }
    }

    /// A round, if this process has the chain's lease or gets it.
    async fn turn(&mut self) -> Result<Round> {
        if self.lease.as_ref().is_some_and(Lease::is_lost) {
            return Err(Error::new(
                Kind::Fenced,
                format!("dataset {}: another process took over while this one stood still", self.work.dataset.name),
            )
            .hint("nothing is lost and nothing to do: the other process goes on"));
        }
        if let Some(round) = self.share().await? {
            return Ok(round);
        }
        if self.lease.is_none() {
            let Some(lease) = self.watch.try_acquire().await? else { return self.wait().await };
            self.lease = Some(lease);
            if let Some(spread) = &self.spread {
                spread.took().await;
            }
        }
        if let Intake::Kafka(kafka) = &mut self.intake
            && let Some(round) = kafka.look_before_round(&self.work)?
        {
            return Ok(round);
        }
        self.round().await
    }

    /// Gives the lease back, or does not ask for it, where other processes are to have it.
    async fn share(&mut self) -> Result<Option<Round>> {
        let Some(spread) = self.spread.clone() else { return Ok(None) };
        let room = spread.room().await?;
        match self.lease.take() {
            Some(lease) if room < 0 => {
                self.lease = Some(lease);
                self.forget();
                self.give_back().await;
                Ok(Some(Round::Waiting))
            }
            None if room <= 0 => {
                // One that stands still is only known to do so if it is looked at.
                let _who = self.watch.holder().await?;
                self.wait().await.map(Some)
            }
            lease => {
                self.lease = lease;
                Ok(None)
            }
        }
    }

    /// Another process has the lease; it may have done all there is to do.
    async fn wait(&mut self) -> Result<Round> {
        if let Intake::Kafka(kafka) = &mut self.intake
            && kafka.is_done_elsewhere(&self.work).await?
        {
            return Ok(Round::Idle);
        }
        Ok(Round::Waiting)
    }

    /// Lets the next go first, for good.
    async fn release(mut self) {
        self.give_back().await;
        if let Some(spread) = self.spread {
            spread.ended().await;
        }
    }

    /// Lets the next go first. A lease that cannot be given back runs out by itself.
    async fn give_back(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if let Err(error) = lease.release().await {
            tracing::warn!(error = %error.chain_text(), "could not give back a lease");
        }
        if let Some(spread) = &self.spread {
            spread.gave().await;
        }
    }

    /// Forgets what was listed, read and not recorded.
    fn forget(&mut self) {
        match &mut self.intake {
            Intake::Files(files) => files.forget(),
            Intake::Kafka(kafka) => kafka.forget(),
        }
    }

    async fn round(&mut self) -> Result<Round> {
        let listing = self.work.chain.listing().await?;
        self.work.finishing = false;
        match self.round_from(&listing).await {
            // Another process may have taken, moved or folded away what we had just listed: then its absence is no fault.
            Err(e)
                if !self.work.finishing
                    && may_be_overtaken(e.kind())
                    && self.work.chain.listing().await.is_ok_and(|now| now != listing) =>
            {
                self.forget();
                Ok(Round::Again)
            }
            outcome => outcome,
        }
    }

    async fn round_from(&mut self, listing: &ChainListing) -> Result<Round> {
        let Some(newest) = listing.newest() else {
            return self.next_batch(listing, BatchKey { batch: BatchNumber::FIRST, attempt: Attempt::FIRST }).await;
        };
        if listing.done.contains(&newest.batch) {
            return self.next_batch(listing, BatchKey { batch: newest.batch.next(), attempt: Attempt::FIRST }).await;
        }
        match self.work.resume(listing, newest).await? {
            Resumed::Done(outcome, range) => {
                if let (Some(range), Intake::Files(files)) = (range, &mut self.intake) {
                    files.after(&self.work, newest.batch, &range).await?;
                }
                Ok(Round::Batch(outcome))
            }
            Resumed::Again(record) => {
                let written = self.work.write(&record, Vec::new()).await?;
                if let Intake::Files(files) = &mut self.intake {
                    match (&written, &record.body) {
                        (Some(_), RecordBody::Intent(recorded)) => files.after(&self.work, record.batch, &recorded.range).await?,
                        (Some(_), RecordBody::Void) => {}
                        (None, _) => files.list_again(),
                    }
                }
                Ok(written.map_or(Round::Again, Round::Batch))
            }
            Resumed::Anew(key) => self.next_batch(listing, key).await,
        }
    }

    async fn next_batch(&mut self, listing: &ChainListing, key: BatchKey) -> Result<Round> {
        match &mut self.intake {
            Intake::Files(files) => Box::pin(files.next_batch(&mut self.work, listing, key)).await,
            Intake::Kafka(kafka) => Box::pin(kafka.next_batch(&mut self.work, listing, key)).await,
        }
    }
}

/// Those that match, and the others.
fn split<T>(all: VecDeque<T>, matches: impl Fn(&T) -> bool) -> (Vec<T>, VecDeque<T>) {
    let (mut some, mut others) = (Vec::new(), VecDeque::new());
    for one in all {
        if matches(&one) {
            some.push(one);
        } else {
            others.push_back(one);
        }
    }
    (some, others)
}

/// Whether an error can come from nothing but another process having gone on with the chain.
fn may_be_overtaken(kind: Kind) -> bool {
    matches!(kind, Kind::NotFound | Kind::Conflict | Kind::Corrupt | Kind::Unavailable)
}

/// The lease of the ingest of a dataset that reads files.
pub(crate) fn lease_name(dataset: &Dataset) -> String {
    format!("{}.{}", dataset.intake_job(), dataset.name)
}

/// The lease of the replay of a dataset's dead letters.
pub(crate) fn replay_lease_name(dataset: &Dataset) -> String {
    format!("replay.{}", dataset.name)
}

/// The lease of one shard of a dataset that reads Kafka.
pub(crate) fn shard_lease_name(dataset: &Dataset, shard: Shard) -> String {
    format!("{}.{}", lease_name(dataset), shard.0)
}
