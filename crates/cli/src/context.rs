//! From arguments to an engine: the project file is found and read, the namespace chosen, the storage opened.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_core::{Durability, Error, Kind, Namespace, Project, Result};
use alluvium_engine::{Engine, EngineSettings, Observer, RdBroker, Stop, SystemClock};
use alluvium_lake::Store;

use crate::args::Global;

/// The name of the project file.
pub const PROJECT_FILE: &str = "alluvium.yaml";

/// Reads the project and opens its storage, which is made if it is not there.
pub fn engine(global: &Global, memory_bytes: u64, observer: Arc<dyn Observer>, stop: Stop) -> Result<Engine> {
    engine_over(global, memory_bytes, observer, stop, Store::open)
}

/// As [`engine`], for commands that only read: makes nothing, and storage that is not there is empty.
pub fn reading_engine(global: &Global, memory_bytes: u64, observer: Arc<dyn Observer>, stop: Stop) -> Result<Engine> {
    engine_over(global, memory_bytes, observer, stop, Store::open_to_read)
}

fn engine_over(
    global: &Global,
    memory_bytes: u64,
    observer: Arc<dyn Observer>,
    stop: Stop,
    open: fn(&str, &Path, Durability) -> Result<Store>,
) -> Result<Engine> {
    let (project, directory) = project(&global.project)?;
    let namespace = match &global.namespace {
        Some(name) => Some(Namespace::parse(name).map_err(|e| Error::new(Kind::Invalid, format!("--namespace: {e}")))?),
        None => None,
    };
    let resolver = project.resolver(namespace).map_err(|e| Error::new(Kind::Invalid, e.render(PROJECT_FILE)))?;
    for warning in &project.warnings {
        observer.warning(&warning.render(PROJECT_FILE));
    }
    let broker = Arc::new(RdBroker::new(&project.kafka));
    let store = open(&project.storage, &directory, project.durability)?;
    Ok(Engine::new(EngineSettings {
        project,
        directory,
        resolver,
        store,
        memory_bytes,
        clock: Arc::new(SystemClock),
        observer,
        stop,
        broker,
    }))
}

/// Reads the project file in `directory` (or the file itself).
pub fn project(directory: &Path) -> Result<(Project, PathBuf)> {
    let file = if directory.is_file() { directory.to_owned() } else { directory.join(PROJECT_FILE) };
    let text = fs::read_to_string(&file).map_err(|e| {
        Error::new(Kind::Invalid, format!("reading the project file {}: {e}", file.display()))
            .hint("make one with: alluvium init, or name its directory with --project DIR")
    })?;
    let env = |name: &str| std::env::var(name).ok();
    let project = Project::parse(&text, &env).map_err(|e| Error::new(Kind::Invalid, e.render(&file.display().to_string())))?;
    let directory = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    Ok((project, directory))
}
