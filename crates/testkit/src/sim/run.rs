//! A world from its beginning to its verdict.

use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use alluvium_core::{Error, Kind, Project, Resolver};
use alluvium_engine::{Engine, EngineSettings, Mode, RunSummary, Silent, Stop};
use alluvium_lake::Store;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Builder;

use super::actors;
use super::cluster::{SimBroker, TOPIC};
use super::dice::{Dice, hash};
use super::input::{self, SourceFile, declaration};
use super::machine::SimMachine;
use super::plan::{Plan, ProcessPlan, Role, TopicPlan, Without};
use super::store::SimStore;
use super::world::{Hit, World};
use crate::aside::OwnLeases;
use crate::check::DatasetCheck;
use crate::kafka::MemoryCluster;
use crate::table::TableReader;

/// When all that was late has landed.
const AFTERMATH: Duration = Duration::from_secs(100);
/// A process that failed, or died, begins again within this time.
const MAX_RESTART_MS: u64 = 20_000;
/// Replays that may follow on each other before nothing must be left.
const MAX_REPLAYS: u32 = 5;

/// How a world came out.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    /// What did not hold.
    pub(super) violation: Option<String>,
    pub(super) hits: Vec<Hit>,
    /// The story's lines, if they were wanted.
    pub(super) told: Vec<String>,
    /// Of the final state and of all that happened.
    pub(super) digest: u64,
    pub(super) operations: u64,
    pub(super) simulated: Duration,
}

/// Runs a world in `directory`, which is empty.
pub(super) fn run(
    plan: &Plan,
    without: &Without,
    directory: &FsPath,
    tell: bool,
    progress: &Arc<AtomicU64>,
) -> std::io::Result<Verdict> {
    let (world, cannot_go_on) = World::new(plan.seed, plan.weather, without.only_faults.clone(), tell, progress.clone());
    let parking = world.clone();
    let runtime = Builder::new_current_thread().enable_all().on_thread_park(move || parking.on_park()).build()?;
    let stage = Stage {
        world: world.clone(),
        plan: Arc::new(plan.clone()),
        without: without.clone(),
        directory: directory.into(),
        cluster: MemoryCluster::default(),
    };
    let violation = runtime.block_on(async {
        let whole = tokio::spawn(async move { stage.whole().await });
        tokio::select! {
            biased;
            end = whole => end.unwrap_or_else(|panicked| Some(format!("a panic: {panicked}"))),
            why = cannot_go_on => Some(why.unwrap_or_else(|_| "the world ended".to_owned())),
        }
    });
    let simulated = Duration::from_nanos(world.now());
    let (hits, story) = world.finish();
    runtime.shutdown_background();
    let inner = world.inner();
    let state: Vec<(String, &[u8])> =
        inner.bucket.list(None, inner.now).map(|(path, o)| (path.to_string(), o.bytes.as_ref())).collect();
    let digest = hash(&(story.digest, state));
    Ok(Verdict { violation, hits, told: story.told.unwrap_or_default(), digest, operations: story.operations, simulated })
}

#[derive(Clone)]
struct Stage {
    world: World,
    plan: Arc<Plan>,
    without: Without,
    directory: Arc<FsPath>,
    cluster: MemoryCluster,
}

impl Stage {
    /// All of it; what did not hold.
    async fn whole(&self) -> Option<String> {
        match self.plan.topic {
            None => self.files_come(),
            Some(topic) => self.records_come(topic),
        }
        let processes: Vec<_> = (0..self.plan.processes.len()).filter(|i| !self.without.processes.contains(i)).collect();
        let lives = processes.into_iter().map(|process| {
            let stage = self.clone();
            tokio::spawn(async move { stage.lives(process).await })
        });
        let ends = futures::future::join_all(lives.collect::<Vec<_>>()).await;
        for end in ends {
            match end {
                Ok(Ok(())) => {}
                Ok(Err(violation)) => return Some(violation),
                Err(panicked) => return Some(format!("a panic: {panicked}")),
            }
        }
        let rest = Duration::from_millis(self.plan.all_there_ms()).saturating_sub(Duration::from_nanos(self.world.now()));
        self.world.wait(None, rest, 0).await;
        self.settled().await.err()
    }

    fn files_come(&self) {
        for (number, file) in self.files() {
            let (file, directory) = (file.clone(), self.directory.clone());
            self.world.later(Duration::from_millis(file.comes_ms), hash(&("file", number)), move |_| {
                let _a_file_that_did_not_come_is_missed_later = file.write(&directory);
            });
        }
    }

    fn records_come(&self, topic: TopicPlan) {
        self.cluster.create(TOPIC, self.plan.files.len(), Some("the topic"));
        self.cluster.repeat_after(topic.repeat_after);
        for (partition, file) in self.files() {
            for i in 0..file.records.len() {
                let (cluster, line, gap_after) = (self.cluster.clone(), file.line(i), file.gap_after);
                let at = Duration::from_millis(file.comes_ms + topic.pace_ms * i as u64);
                // Records of one partition keep their order whatever comes at the same moment.
                let turn = ((partition as u64) << 32) + i as u64;
                self.world.later(at, turn, move |_| {
                    cluster.send(TOPIC, partition, Some(&line));
                    if gap_after > 0 && (i + 1) % gap_after == 0 {
                        cluster.gap(TOPIC, partition, 1);
                    }
                });
            }
        }
        if let Some((from, away)) = topic.away {
            for (at, gone) in [(from, true), (from + away, false)] {
                let cluster = self.cluster.clone();
                self.world.later(Duration::from_millis(at), hash(&("away", at)), move |_| cluster.set_away(gone));
            }
        }
    }

    /// The files, or partitions, of the world that were not left out.
    fn files(&self) -> impl Iterator<Item = (usize, &SourceFile)> {
        self.plan.files.iter().enumerate().filter(|(i, _)| !self.without.files.contains(i))
    }

    /// A process, from life to life.
    async fn lives(&self, process: usize) -> Result<(), String> {
        let plan = &self.plan.processes[process];
        let turn = |life: u32| hash(&("life", self.plan.seed, process, life));
        let mut dice = Dice::of(self.plan.seed, &("lives", process));
        self.world.wait(None, Duration::from_millis(plan.starts_ms), turn(0)).await;
        for life in 0..plan.lives {
            let (number, died) = self.world.begin_life(process, life + 1 < plan.lives);
            let stage = self.clone();
            let role = plan.role;
            let mut living = tokio::spawn(async move { stage.life(process, number, role).await });
            self.world.tell(|| format!("p{process} begins as {role:?}"), hash(&(process, life)));
            let end = tokio::select! {
                biased;
                end = &mut living => Some(end.map_err(|panicked| format!("p{process} panicked: {panicked}"))?),
                _ = died => None,
            };
            let faults = self.world.end_life(process);
            match end {
                None => {
                    living.abort();
                    let _it_is_gone = living.await;
                }
                Some(errors) => {
                    for error in &errors {
                        self.world.tell(|| format!("p{process} fails: {}", error.chain_text()), hash(&error.kind().exit_code()));
                        let cluster_failed = self.plan.topic.is_some_and(|t| t.away.is_some());
                        check_error(process, error, faults, cluster_failed)?;
                    }
                    if errors.is_empty() {
                        return Ok(());
                    }
                }
            }
            self.world.wait(None, Duration::from_millis(dice.between(1, MAX_RESTART_MS)), turn(life + 1)).await;
        }
        Ok(())
    }

    /// One life; what it failed with.
    async fn life(&self, process: usize, life: u32, role: Role) -> Vec<Error> {
        let (store, machine) = self.store(process, life, true);
        let mut dice = Dice::of(self.plan.seed, &("role", process, life));
        match role {
            Role::UntilIdle | Role::Once | Role::Follow { .. } | Role::Replay => {
                let stop = Stop::default();
                if let Role::Follow { until_ms } = role {
                    let left = Duration::from_millis(until_ms).saturating_sub(Duration::from_nanos(self.world.now()));
                    let stop = stop.clone();
                    self.world.later(left, hash(&("stop", process)), move |_| stop.ask());
                }
                let engine = self.engine(store, machine, stop, role == Role::Replay);
                errors(ingest(&engine, role).await)
            }
            Role::Vacuum => {
                for _ in 0..dice.between(1, 4) {
                    let retain = Duration::from_millis(dice.one_of(&[0, 100, 5_000]));
                    if let Err(error) = actors::vacuum(&self.world, &store, &resolver(), retain).await {
                        return vec![error];
                    }
                    store.machine().sleep(Duration::from_millis(dice.between(10, 8_000))).await;
                }
                Vec::new()
            }
            Role::Cleanup => {
                let calm = Store::over(Arc::new(SimStore::new(&self.world, process, life, false)));
                for _ in 0..dice.between(3, 30) {
                    store.machine().sleep(Duration::from_millis(dice.of_any_size(10, 4, 13))).await;
                    actors::clean_up(&self.world, &calm, &mut dice).await;
                }
                Vec::new()
            }
        }
    }

    fn store(&self, process: usize, life: u32, faults: bool) -> (Store, Arc<SimMachine>) {
        let skew = self.plan.processes.get(process).map_or(0, |p: &ProcessPlan| p.skew_micros);
        let machine = Arc::new(SimMachine::new(&self.world, process, life, skew));
        (Store::over(Arc::new(SimStore::new(&self.world, process, life, faults))).on(machine.clone()), machine)
    }

    fn engine(&self, store: Store, clock: Arc<SimMachine>, stop: Stop, mended: bool) -> Engine {
        let text = declaration(&self.plan.source(), self.plan.max_rows, mended);
        let project = Project::parse(&text, &|_| None).unwrap_or_else(|e| panic!("{}", e.render("alluvium.yaml")));
        let store = if self.plan.shared_leases { store } else { store.layered(|inner| Arc::new(OwnLeases::new(inner))) };
        Engine::new(EngineSettings {
            project,
            directory: self.directory.to_path_buf(),
            resolver: resolver(),
            store,
            memory_bytes: 64 << 20,
            clock,
            observer: Arc::new(Silent),
            stop,
            broker: Arc::new(SimBroker::new(&self.cluster, &self.world)),
        })
    }

    /// After all processes have ended: what is left is taken in without faults, then everything must hold, and go on holding
    /// when what was late has landed.
    async fn settled(&self) -> Result<(), String> {
        let replays = self.plan.replays(&self.without);
        self.settle(replays).await?;
        self.check(replays).await?;
        self.world.wait(None, AFTERMATH, 0).await;
        if self.plan.topic.is_some() {
            // What was taken in may expire; offsets without a record behind it are not known to have been passed.
            for (partition, file) in self.files() {
                let end = file.records.len().checked_sub(1).map_or(0, |last| file.offset(last) + 1);
                self.cluster.expire(TOPIC, partition, i64::try_from(end).unwrap_or(0));
            }
        }
        if self.settle(replays).await? > 0 {
            return Err("something was left to do after everything was done".to_owned());
        }
        self.check(replays).await
    }

    /// Takes in what is left; how many batches that took.
    async fn settle(&self, replays: bool) -> Result<u64, String> {
        let mut batches = 0;
        let mut roles = vec![Role::UntilIdle];
        if replays {
            roles.push(Role::Replay);
        }
        for role in roles {
            for round in 0.. {
                let process = self.plan.processes.len();
                let (life, _never_dies) = self.world.begin_life(process, false);
                let (store, machine) = self.store(process, life, false);
                let engine = self.engine(store, machine, Stop::default(), role == Role::Replay);
                let summary = ingest(&engine, role).await.map_err(|e| format!("settling: {}", e.chain_text()))?;
                self.world.end_life(process);
                if let Some((_, error)) = summary.failed.first() {
                    return Err(format!("settling: {}", error.chain_text()));
                }
                batches += summary.batches;
                if summary.batches == 0 {
                    break;
                }
                if round > MAX_REPLAYS {
                    return Err(format!("settling: {role:?} never comes to an end"));
                }
            }
        }
        Ok(batches)
    }

    async fn check(&self, replays: bool) -> Result<(), String> {
        let whole = Arc::new(InMemory::new());
        let objects: Vec<_> = {
            let inner = self.world.inner();
            let there = inner.bucket.list(None, inner.now).map(|(path, o)| (path.clone(), o.bytes.clone()));
            there.chain(inner.cleaned.iter().map(|(path, bytes)| (path.clone(), bytes.clone()))).collect()
        };
        for (path, bytes) in objects {
            whole.put(&path, bytes.into()).await.map_err(|e| e.to_string())?;
        }
        let whole: Arc<dyn ObjectStore> = whole;
        let files: Vec<_> = self.files().map(|(_, file)| file.clone()).collect();
        let landed = DatasetCheck::new(&whole, "default", "edit", "org").landed().await?;
        input::check(&files, &landed, replays)?;
        for table in actors::TABLES {
            let log = TableReader::new(&whole, &format!("default/{table}")).log().await?;
            let mut newest = std::collections::BTreeMap::new();
            for (version, (app, number)) in log.iter().enumerate().flat_map(|(v, e)| e.txns.iter().map(move |t| (v, t))) {
                if let Some(before) = newest.insert(app.clone(), *number).filter(|before| before >= number) {
                    return Err(format!("fenced: version {version} of {table} carries {number} of {app}, after {before}"));
                }
            }
        }
        Ok(())
    }
}

fn resolver() -> Resolver {
    Resolver::new(alluvium_core::Namespace::default())
}

async fn ingest(engine: &Engine, role: Role) -> alluvium_core::Result<RunSummary> {
    let datasets = engine.datasets(&[])?;
    match role {
        Role::Replay => engine.replay_dead_letters(&datasets).await,
        Role::Once => engine.ingest(&datasets, Mode::Once).await,
        Role::Follow { .. } => engine.ingest(&datasets, Mode::Follow).await,
        Role::UntilIdle | Role::Vacuum | Role::Cleanup => engine.ingest(&datasets, Mode::UntilIdle).await,
    }
}

fn errors(outcome: alluvium_core::Result<RunSummary>) -> Vec<Error> {
    match outcome {
        Ok(summary) => summary.failed.into_iter().map(|(_, error)| error).collect(),
        Err(error) => vec![error],
    }
}

/// A process may find that it is old. It may find the store failing, if the store did fail.
fn check_error(process: usize, error: &Error, faults: u32, cluster_failed: bool) -> Result<(), String> {
    match error.kind() {
        Kind::Fenced => Ok(()),
        Kind::Unavailable if faults > 0 || cluster_failed => Ok(()),
        kind => Err(format!("p{process} failed as {kind:?} after {faults} faults: {}", error.chain_text())),
    }
}
