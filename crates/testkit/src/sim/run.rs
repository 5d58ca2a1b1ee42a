//! A world from its beginning to its verdict.

use std::path::Path as FsPath;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alluvium_core::{Error, Kind, Project, Resolver};
use alluvium_engine::{Engine, EngineSettings, IngestOptions, Mode, RunSummary, Silent, Stop};
use alluvium_lake::{Machine, Store};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use super::actors;
use super::asked::make_place;
use super::cluster::SimBroker;
use super::dice::{Dice, hash};
use super::input::declaration;
use super::machine::SimMachine;
use super::plan::{Plan, ProcessPlan, Role, Without};
use super::readers::Deliveries;
use super::store::SimStore;
use super::topic::{Expired, Standing, TopicPlan, check_told, told_losses};
use super::world::{Hit, World};
use crate::aside::OwnLeases;
use crate::kafka::MemoryCluster;

/// A process that failed, or died, begins again within this time.
const MAX_RESTART_MS: u64 = 20_000;

/// A process of the next life looks so often, this long apart, whether the former one has ended.
const MAX_WAITS: u32 = 300;
const WAIT: Duration = Duration::from_millis(300);

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
        expired: Arc::default(),
        deliveries: Deliveries::default(),
        deleted: Arc::default(),
    };
    // Not all futures of the engine are known to be fit for several threads; here is one.
    let tasks = LocalSet::new();
    let violation = tasks.block_on(&runtime, async {
        let whole = tokio::task::spawn_local(async move { stage.whole().await });
        tokio::select! {
            biased;
            end = whole => end.unwrap_or_else(|panicked| Some(format!("a panic: {panicked}"))),
            why = cannot_go_on => Some(why.unwrap_or_else(|_| "the world ended".to_owned())),
        }
    });
    let simulated = Duration::from_nanos(world.now());
    let (hits, story) = world.finish();
    drop(tasks);
    runtime.shutdown_background();
    let inner = world.inner();
    let state: Vec<(String, &[u8])> =
        inner.bucket.list(None, inner.now).map(|(path, o)| (path.to_string(), o.bytes.as_ref())).collect();
    let digest = hash(&(story.digest, state));
    Ok(Verdict { violation, hits, told: story.told.unwrap_or_default(), digest, operations: story.operations, simulated })
}

/// A world and all that is in it; clones are the same.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) plan: Arc<Plan>,
    pub(super) without: Without,
    pub(super) directory: Arc<FsPath>,
    pub(super) cluster: MemoryCluster,
    expired: Arc<Mutex<Vec<Expired>>>,
    pub(super) deliveries: Deliveries,
    /// The namespace was deleted.
    deleted: Arc<AtomicBool>,
}

impl Stage {
    /// All of it; what did not hold.
    async fn whole(&self) -> Option<String> {
        match &self.plan.topic {
            None => self.files_come(),
            Some(topic) => self.records_come(topic),
        }
        if let Some(requests) = &self.plan.requests {
            if let Err(error) = make_place(&self.directory) {
                return Some(format!("a directory cannot be made: {error}"));
            }
            self.requests_come(requests);
        }
        let processes: Vec<_> = (0..self.plan.processes.len()).filter(|i| !self.without.processes.contains(i)).collect();
        let lives = processes.into_iter().map(|process| {
            let stage = self.clone();
            tokio::task::spawn_local(async move { stage.lives(process).await })
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

    /// What has gone from the topic so far.
    pub(super) fn expired(&self) -> MutexGuard<'_, Vec<Expired>> {
        self.expired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process, from life to life.
    async fn lives(&self, process: usize) -> Result<(), String> {
        let plan = &self.plan.processes[process];
        let turn = |life: u32| hash(&("life", self.plan.seed, process, life));
        let mut dice = Dice::of(self.plan.seed, &("lives", process));
        self.world.wait(None, Duration::from_millis(plan.starts_ms), turn(0)).await;
        for _ in 0..MAX_WAITS {
            if !plan.next_life || self.deleted.load(Ordering::SeqCst) {
                break;
            }
            self.world.wait(None, WAIT, turn(0)).await;
        }
        for life in 0..plan.lives {
            if plan.next_life && !self.deleted.load(Ordering::SeqCst) {
                return Ok(());
            }
            let (number, died) = self.world.begin_life(process, life + 1 < plan.lives);
            let stage = self.clone();
            let role = plan.role;
            let mut living = tokio::task::spawn_local(async move { stage.life(process, number, role).await });
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
                        self.check_error(process, error, faults)?;
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

    /// A process may find that it is old, or that the topic has lost what it wants. It may find the store failing, if the store did fail.
    fn check_error(&self, process: usize, error: &Error, faults: u32) -> Result<(), String> {
        let topic = self.plan.topic.as_ref();
        if let Some(topic) = topic.filter(|t| t.loses())
            && self.is_of_losses(topic, error).map_err(|e| format!("p{process}: {e}"))?
        {
            let accepts = told_losses(error).is_some() && self.plan.processes[process].accepts_loss;
            return if accepts { Err(format!("p{process} does not accept a loss: {}", error.chain_text())) } else { Ok(()) };
        }
        let cluster_failed = topic.is_some_and(|t| t.away.is_some());
        match error.kind() {
            Kind::Fenced => Ok(()),
            Kind::Unavailable if faults > 0 || cluster_failed => Ok(()),
            // Others clean up at once what is kept for days.
            Kind::NotFound | Kind::Corrupt if self.plan.reads_what_goes(process) => Ok(()),
            // Who finds that what it works on is gone may say so in its own way.
            Kind::Conflict | Kind::NotFound | Kind::Corrupt | Kind::Unavailable if self.plan.deletes() => Ok(()),
            kind => Err(format!("p{process} failed as {kind:?} after {faults} faults: {}", error.chain_text())),
        }
    }

    /// Whether an error comes of what befell the topic; what of it is not so.
    pub(super) fn is_of_losses(&self, topic: &TopicPlan, error: &Error) -> Result<bool, String> {
        let standing = Standing::of(&self.world.inner().bucket);
        check_told(error, topic, &standing, &self.expired(), self.plan.weather.lists_late())
    }

    /// One life; what it failed with.
    async fn life(&self, process: usize, life: u32, role: Role) -> Vec<Error> {
        let (store, machine) = self.store(process, life, true);
        let mut dice = Dice::of(self.plan.seed, &("role", process, life));
        match role {
            Role::UntilIdle | Role::Once | Role::Follow { .. } | Role::Replay | Role::All { .. } => {
                let stop = Stop::default();
                if let Role::Follow { until_ms } | Role::All { until_ms } = role {
                    let left = Duration::from_millis(until_ms).saturating_sub(Duration::from_nanos(self.world.now()));
                    let stop = stop.clone();
                    self.world.later(left, hash(&("stop", process)), move |_| stop.ask());
                }
                let engine = self.engine(store, machine, stop, role == Role::Replay);
                errors(ingest(&engine, role, self.plan.processes[process].accepts_loss).await)
            }
            Role::Mutate => {
                let engine = self.engine(store, machine.clone(), Stop::default(), false);
                for _ in 0..dice.between(2, 5) {
                    let failed = errors(ingest(&engine, role, false).await);
                    if !failed.is_empty() {
                        return failed;
                    }
                    machine.sleep(Duration::from_millis(dice.between(1, 6_000))).await;
                }
                Vec::new()
            }
            Role::Submit => {
                let engine = self.engine(store, machine.clone(), Stop::default(), false);
                self.submits(&engine, machine.as_ref()).await.err().into_iter().collect()
            }
            Role::Vacuum => {
                let engine = self.engine(store, machine.clone(), Stop::default(), false);
                for _ in 0..dice.between(1, 4) {
                    match engine.vacuum(&[], false).await {
                        Ok(summary) if summary.failed.is_empty() => {}
                        Ok(summary) => return summary.failed.into_iter().map(|(_, error)| error).collect(),
                        Err(error) => return vec![error],
                    }
                    machine.sleep(Duration::from_millis(dice.between(10, 8_000))).await;
                }
                Vec::new()
            }
            Role::Reads(reading) => {
                let engine = self.engine(store, machine.clone(), Stop::default(), false);
                let cleans_up = self.plan.cleans_up();
                let read = self.deliveries.reads(&engine, machine.as_ref(), reading, &mut dice, cleans_up).await;
                read.err().into_iter().collect()
            }
            Role::Deletes => {
                let engine = self.engine(store, machine.clone(), Stop::default(), false);
                for _ in 0..dice.between(1, 20) {
                    match engine.delete_namespace().await {
                        Ok(_) => {
                            self.deleted.store(true, Ordering::SeqCst);
                            return Vec::new();
                        }
                        // Somebody is at work there, or nobody was yet.
                        Err(e) if matches!(e.kind(), Kind::Conflict | Kind::NotFound) => {}
                        Err(e) => return vec![e],
                    }
                    machine.sleep(Duration::from_millis(dice.of_any_size(1, 4, 11))).await;
                }
                Vec::new()
            }
            Role::Cleanup => {
                let calm = Store::over(Arc::new(SimStore::new(&self.world, process, life, false)));
                for _ in 0..dice.between(3, 30) {
                    store.machine().sleep(Duration::from_millis(dice.of_any_size(10, 4, 13))).await;
                    actors::clean_up(&self.world, &self.plan, &calm, &mut dice).await;
                }
                Vec::new()
            }
        }
    }

    /// Hands over all requests, each when it comes, or at once if it came before.
    pub(super) async fn submits(&self, engine: &Engine, machine: &dyn Machine) -> alluvium_core::Result<()> {
        for bundle in self.plan.requests.iter().flat_map(|requests| &requests.bundles) {
            let comes = Duration::from_millis(bundle.comes_ms);
            machine.sleep(comes.saturating_sub(Duration::from_nanos(self.world.now()))).await;
            engine.submit_requests(&bundle.name, bundle.lines().into()).await?;
        }
        Ok(())
    }

    pub(super) fn store(&self, process: usize, life: u32, faults: bool) -> (Store, Arc<SimMachine>) {
        let skew = self.plan.processes.get(process).map_or(0, |p: &ProcessPlan| p.skew_micros);
        let machine = Arc::new(SimMachine::new(&self.world, process, life, skew));
        (Store::over(Arc::new(SimStore::new(&self.world, process, life, faults))).on(machine.clone()), machine)
    }

    /// The project file of the world.
    pub(super) fn declaration(&self, mended: bool) -> String {
        declaration(&self.plan, mended)
    }

    pub(super) fn engine(&self, store: Store, clock: Arc<SimMachine>, stop: Stop, mended: bool) -> Engine {
        let project =
            Project::parse(&self.declaration(mended), &|_| None).unwrap_or_else(|e| panic!("{}", e.render("alluvium.yaml")));
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
}

fn resolver() -> Resolver {
    Resolver::new(alluvium_core::Namespace::default())
}

pub(super) async fn ingest(engine: &Engine, role: Role, accept_loss: bool) -> alluvium_core::Result<RunSummary> {
    let datasets = engine.datasets(&[])?;
    let mode = match role {
        Role::Replay => return engine.replay_dead_letters(&datasets).await,
        Role::Mutate => return engine.mutate(&datasets, Mode::UntilIdle).await,
        Role::All { .. } => return engine.run_all(&datasets, IngestOptions { mode: Mode::Follow, accept_loss }).await,
        Role::Once => Mode::Once,
        Role::Follow { .. } => Mode::Follow,
        Role::UntilIdle | Role::Submit | Role::Vacuum | Role::Cleanup | Role::Reads(_) | Role::Deletes => Mode::UntilIdle,
    };
    engine.ingest(&datasets, IngestOptions { mode, accept_loss }).await
}

fn errors(outcome: alluvium_core::Result<RunSummary>) -> Vec<Error> {
    match outcome {
        Ok(summary) => summary.failed.into_iter().map(|(_, error)| error).collect(),
        Err(error) => vec![error],
    }
}
