//! Makes engines for tests: a project from YAML text, over any store.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use alluvium_core::{DatasetName, Project};
use alluvium_engine::{BatchReport, Broker, Clock, Engine, EngineSettings, Observer, RdBroker, Stop};
use alluvium_lake::Store;

use crate::aside::OwnLeases;
use crate::clock::StepClock;

/// A project in a directory, from which every test process gets an engine of its own.
#[derive(Clone)]
pub struct Lab {
    directory: PathBuf,
    yaml: String,
    clock: Arc<dyn Clock>,
    memory_bytes: u64,
    shared_leases: bool,
    broker: Option<Arc<dyn Broker>>,
}

impl Lab {
    /// A lab whose relative paths start from `directory`, with a clock of its own.
    #[must_use]
    pub fn new(directory: &Path, yaml: &str) -> Self {
        Self {
            directory: directory.to_owned(),
            yaml: yaml.to_owned(),
            clock: Arc::new(StepClock::new()),
            memory_bytes: 64 << 20,
            shared_leases: false,
            broker: None,
        }
    }

    /// The same project with other text.
    #[must_use]
    pub fn with_yaml(&self, yaml: &str) -> Self {
        Self { yaml: yaml.to_owned(), ..self.clone() }
    }

    /// The same, but its engines wait for each other's leases. Without it each has leases of its own, see [`OwnLeases`].
    #[must_use]
    pub fn with_shared_leases(&self) -> Self {
        Self { shared_leases: true, ..self.clone() }
    }

    /// The same, but its engines tell the time by this clock.
    #[must_use]
    pub fn with_clock(&self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self.clone() }
    }

    /// The same, but its engines have so much memory.
    #[must_use]
    pub fn with_memory(&self, memory_bytes: u64) -> Self {
        Self { memory_bytes, ..self.clone() }
    }

    /// The same, but its engines read their topics from this cluster.
    #[must_use]
    pub fn with_broker(&self, broker: Arc<dyn Broker>) -> Self {
        Self { broker: Some(broker), ..self.clone() }
    }

    /// The project.
    ///
    /// # Panics
    /// If the text is not a right project file.
    #[must_use]
    pub fn project(&self) -> Project {
        Project::parse(&self.yaml, &|_| None).unwrap_or_else(|e| panic!("{}", e.render("alluvium.yaml")))
    }

    /// An engine over `store` that tells nobody anything.
    #[must_use]
    pub fn engine(&self, store: &Store) -> Engine {
        self.engine_with(store, Arc::new(Listener::default()), Stop::default())
    }

    /// An engine over `store` with its listener and stop signal.
    ///
    /// # Panics
    /// If the project file's namespace is not right.
    #[must_use]
    pub fn engine_with(&self, store: &Store, observer: Arc<dyn Observer>, stop: Stop) -> Engine {
        let project = self.project();
        let broker = self.broker.clone().unwrap_or_else(|| Arc::new(RdBroker::new(&project.kafka)));
        let resolver = project.resolver(None).unwrap_or_else(|e| panic!("{}", e.render("alluvium.yaml")));
        Engine::new(EngineSettings {
            project,
            directory: self.directory.clone(),
            resolver,
            store: if self.shared_leases { store.clone() } else { store.layered(|inner| Arc::new(OwnLeases::new(inner))) },
            memory_bytes: self.memory_bytes,
            clock: self.clock.clone(),
            observer,
            stop,
            broker,
        })
    }
}

/// Remembers what an engine told.
#[derive(Debug, Default)]
pub struct Listener {
    told: Mutex<(Vec<String>, Vec<BatchReport>)>,
}

impl Listener {
    /// The warnings so far.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The batches so far.
    #[must_use]
    pub fn batches(&self) -> Vec<BatchReport> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

impl Observer for Listener {
    fn input(&self, _: &DatasetName, _: u64, _: u64) {}

    fn warning(&self, message: &str) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).0.push(message.to_owned());
    }

    fn batch(&self, report: &BatchReport) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).1.push(report.clone());
    }
}
