//! What every operation works with.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alluvium_core::{ChainId, Dataset, Error, Incarnation, Job, Kind, Project, Resolver, Result, Shard, TableName, TableSpec};
use alluvium_lake::{
    ChainStore, DeltaLog, Location, Machine, StageIndex, Store, ThisMachine, open_namespace, open_or_create_namespace,
};
use tokio::sync::Notify;

use crate::erase::KnownPseudonyms;
use crate::observe::Observer;
use crate::requests::TakenHere;
use crate::source::{Broker, FileSet};

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970-01-01T00:00:00Z.
    fn now_micros(&self) -> i64;

    /// Milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> i64 {
        self.now_micros().div_euclid(1000)
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}

/// A request to stop, shared by all who may ask and all who must heed it.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    inner: Arc<Asking>,
}

#[derive(Debug, Default)]
struct Asking {
    asked: AtomicBool,
    told: Notify,
    /// By whose time is slept.
    machine: OnceLock<Arc<dyn Machine>>,
}

impl Stop {
    /// Asks everybody to stop at the next safe point.
    pub fn ask(&self) {
        self.inner.asked.store(true, Ordering::SeqCst);
        self.inner.told.notify_waiters();
    }

    /// Whether somebody asked.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.inner.asked.load(Ordering::SeqCst)
    }

    /// Returns after `time`, or as soon as somebody asks to stop.
    pub async fn sleep(&self, time: Duration) {
        let asked = self.inner.told.notified();
        tokio::pin!(asked);
        asked.as_mut().enable();
        if !self.asked() {
            let over = self.inner.machine.get_or_init(|| Arc::new(ThisMachine)).sleep(time);
            let _either = futures::future::select(asked, over).await;
        }
    }

    /// Sleeps by the time of that machine from now on, unless another was named before.
    fn keep_time_of(&self, machine: &Arc<dyn Machine>) {
        let _the_first_stays = self.inner.machine.set(machine.clone());
    }
}

/// How an [`Engine`] is made.
pub struct EngineSettings {
    /// The project.
    pub project: Project,
    /// The project file's directory, which relative paths start from.
    pub directory: PathBuf,
    /// The names of the namespace to work in.
    pub resolver: Resolver,
    /// The project's storage.
    pub store: Store,
    /// How much memory operations may use, in bytes.
    pub memory_bytes: u64,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The listener to progress.
    pub observer: Arc<dyn Observer>,
    /// The stop signal.
    pub stop: Stop,
    /// The Kafka cluster that sources read.
    pub broker: Arc<dyn Broker>,
}

/// About what a process takes that does nothing yet: code, threads, what libraries keep.
const PROCESS_BYTES: u64 = 40 << 20;
/// About the memory that a request takes while it is taken in and folded.
const BYTES_TO_TAKE_A_REQUEST: u64 = 3072;
/// About the memory that a request takes while it is applied.
const BYTES_TO_APPLY_A_REQUEST: u64 = 1536;
/// So many requests are taken in and applied at a time, however little memory there is.
const LEAST_REQUESTS: u64 = 10_000;
/// A row that requests matched is counted with the requests around it, beside everything else that is in memory then.
const BYTES_TO_COUNT_A_HIT: u64 = 4096;

/// A project in one namespace, ready for operations.
pub struct Engine {
    pub(crate) project: Project,
    pub(crate) directory: PathBuf,
    pub(crate) resolver: Resolver,
    pub(crate) store: Store,
    pub(crate) memory_bytes: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) stop: Stop,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) taken_here: TakenHere,
    pub(crate) known_pseudonyms: KnownPseudonyms,
}

/// What a budget leaves beside the process itself.
fn beside_the_process(memory_bytes: u64) -> u64 {
    memory_bytes.saturating_sub(PROCESS_BYTES).max(memory_bytes / 4)
}

impl Engine {
    /// An engine over these settings. Nothing is read or written yet.
    #[must_use]
    pub fn new(settings: EngineSettings) -> Self {
        let EngineSettings { mut project, directory, resolver, store, memory_bytes, clock, observer, stop, broker } = settings;
        stop.keep_time_of(store.machine());
        let limits = &mut project.requests.intake.batch;
        limits.max_rows = limits.max_rows.min((beside_the_process(memory_bytes) / BYTES_TO_TAKE_A_REQUEST).max(LEAST_REQUESTS));
        let (taken_here, known_pseudonyms) = (TakenHere::default(), KnownPseudonyms::default());
        Self { project, directory, resolver, store, memory_bytes, clock, observer, stop, broker, taken_here, known_pseudonyms }
    }

    /// The project.
    #[must_use]
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// How many requests a batch that applies them may be about, unless those that one batch took in are more.
    pub(crate) fn requests_at_once(&self) -> u64 {
        (beside_the_process(self.memory_bytes) / BYTES_TO_APPLY_A_REQUEST).max(LEAST_REQUESTS)
    }

    /// How many rows that requests matched are counted at a time.
    pub(crate) fn hits_counted_at_once(&self) -> usize {
        usize::try_from(beside_the_process(self.memory_bytes) / BYTES_TO_COUNT_A_HIT)
            .unwrap_or(usize::MAX)
            .clamp(1 << 14, 1 << 20)
    }

    /// How many bytes of data files a mutation holds at a time.
    pub(crate) fn bytes_of_files_at_once(&self) -> u64 {
        beside_the_process(self.memory_bytes) / 3
    }

    /// How many requests are read and folded at a time.
    pub(crate) fn requests_folded_at_once(&self) -> u64 {
        beside_the_process(self.memory_bytes) / BYTES_TO_TAKE_A_REQUEST
    }

    /// The datasets of these names, or all.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if the project has no such dataset.
    pub fn datasets(&self, names: &[String]) -> Result<Vec<&Dataset>> {
        if names.is_empty() {
            return Ok(self.project.datasets.iter().collect());
        }
        names
            .iter()
            .map(|name| {
                self.project.dataset(name).ok_or_else(|| {
                    let known: Vec<&str> = self.project.datasets.iter().map(|d| d.name.0.as_str()).collect();
                    Error::new(Kind::Invalid, format!("the project has no dataset {name:?}"))
                        .hint(format!("its datasets are: {}", known.join(", ")))
                })
            })
            .collect()
    }

    /// What takes requests in.
    #[must_use]
    pub fn requests_intake(&self) -> &Dataset {
        &self.project.requests.intake
    }

    /// How an index of a dataset's data files is staged with them.
    pub(crate) fn index_of(&self, dataset: &Dataset) -> StageIndex {
        StageIndex { resolver: self.resolver.clone(), fields: dataset.indexed_fields() }
    }

    /// All that takes records in, of these names or all: the datasets, and the requests under the name `requests`.
    ///
    /// # Errors
    /// As [`Engine::datasets`].
    pub fn sources(&self, names: &[String]) -> Result<Vec<&Dataset>> {
        let of_datasets: Vec<String> = names.iter().filter(|name| *name != Dataset::REQUESTS).cloned().collect();
        let mut sources = if of_datasets.is_empty() && !names.is_empty() { Vec::new() } else { self.datasets(&of_datasets)? };
        if names.is_empty() || names.len() > of_datasets.len() {
            sources.push(&self.project.requests.intake);
        }
        Ok(sources)
    }

    /// Time since a fixed moment; it never goes back.
    pub(crate) fn elapsed(&self) -> Duration {
        self.store.machine().elapsed()
    }

    /// The namespace's incarnation, which is made if the namespace was never used.
    pub(crate) async fn incarnation(&self) -> Result<Incarnation> {
        open_or_create_namespace(&self.store, &self.resolver, self.clock.now_ms()).await
    }

    /// The namespace's incarnation, if it was ever used.
    pub(crate) async fn existing_incarnation(&self) -> Result<Option<Incarnation>> {
        open_namespace(&self.store, &self.resolver).await
    }

    /// Refuses to go on in a namespace that is being deleted, or is another one by now. Whoever publishes a batch asks this once its record
    /// stands, and who deletes a namespace looks for such records once it is marked: one of the two sees the other.
    pub(crate) async fn check_life(&self, incarnation: &Incarnation) -> Result<()> {
        #[cfg(feature = "plants")]
        if alluvium_lake::Plant::ForgetLife.grows() {
            return Ok(());
        }
        let why = match self.existing_incarnation().await {
            Ok(Some(now)) if now == *incarnation => return Ok(()),
            Ok(_) => format!("namespace {} was deleted while a batch was under way", self.resolver.namespace()),
            Err(e) if e.kind() == Kind::Conflict => e.message().to_owned(),
            Err(e) => return Err(e),
        };
        Err(Error::new(Kind::Fenced, why).hint("to take the same in again, run again once it is gone"))
    }

    /// The log of a table of the namespace.
    pub(crate) fn log(&self, table: &TableName) -> DeltaLog {
        DeltaLog::new(&self.store, object_store::path::Path::from(self.resolver.table(table)))
    }

    pub(crate) fn log_of(&self, spec: &TableSpec) -> DeltaLog {
        self.log(&spec.name)
    }

    pub(crate) fn chain(&self, incarnation: &Incarnation, job: Job, dataset: &Dataset, shard: Shard) -> ChainStore {
        let chain = ChainId { incarnation: incarnation.clone(), job, dataset: dataset.name.clone(), shard };
        ChainStore::new(&self.store, &self.resolver, chain)
    }

    /// The files at a place that the project file names: a directory, or the URL of an object store.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if the URL or the environment is not right.
    pub(crate) fn file_set(&self, place: &str) -> Result<FileSet> {
        if Location::is_url(place) {
            return Location::open(place).map(FileSet::at);
        }
        Ok(FileSet::local(self.path(place.strip_prefix("file://").unwrap_or(place))))
    }

    /// A path of the project file, made absolute.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.directory.join(Path::new(path))
    }
}
