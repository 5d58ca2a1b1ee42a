//! The session that a query runs in: its memory, its place to spill, and the two schemas.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use tempfile::TempDir;

use super::schema::{Shape, Tables, TablesOfShape};
use crate::engine::Engine;

/// The catalogue that both schemas are in.
pub(super) const CATALOG: &str = "alluvium";
/// The schema of names without one: datasets as declared.
pub(super) const LAKE: &str = "lake";
/// The schema of tables as stored.
pub(super) const RAW: &str = "raw";
/// So many of the greediest operators are named when memory runs out.
const CONSUMERS_NAMED: NonZeroUsize = NonZeroUsize::MIN;

/// With less memory, sorts merge smaller pieces on fewer threads, so that what they spill still fits when it is read back.
const SMALL_MEMORY_BYTES: u64 = 1 << 30;
/// So much memory is worth a thread, where there is little.
const BYTES_A_PARTITION: u64 = 256 << 20;
/// Rows that go through a query at once, where there is little memory.
const SMALL_BATCH_ROWS: usize = 1024;

/// A DataFusion session over the tables of a namespace, and the directory that it spills to, which goes with it.
pub(super) struct Session {
    pub(super) context: SessionContext,
    pub(super) tables: Arc<Tables>,
    pub(super) spill: Option<TempDir>,
}

impl Session {
    pub(super) fn new(engine: &Engine) -> Result<Self> {
        let internal = |e| Error::new(Kind::Internal, "making a session for a query").source(e);
        // Without a directory to spill to, a query that fits in memory still runs.
        let spill = tempfile::Builder::new().prefix("alluvium-query-").tempdir().ok();
        let runtime = runtime(engine.memory_bytes, spill.as_ref().map(|d| d.path().to_owned())).map_err(internal)?;
        let mut config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, LAKE)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true);
        if engine.memory_bytes < SMALL_MEMORY_BYTES {
            let partitions = usize::try_from(engine.memory_bytes / BYTES_A_PARTITION).unwrap_or(1).max(1);
            let partitions = partitions.min(config.target_partitions());
            config = config.with_target_partitions(partitions).with_batch_size(SMALL_BATCH_ROWS);
        }
        // Names are taken as written, so that columns such as isRobot need no quotes.
        config.options_mut().sql_parser.enable_ident_normalization = false;
        let context = SessionContext::new_with_config_rt(config, runtime.clone());
        let tables = Arc::new(Tables::new(engine));
        tables.register_store(&runtime);
        let catalog = Arc::new(MemoryCatalogProvider::new());
        for (name, shape) in [(LAKE, Shape::Declared), (RAW, Shape::Stored)] {
            catalog.register_schema(name, Arc::new(TablesOfShape::new(tables.clone(), shape))).map_err(internal)?;
        }
        context.register_catalog(CATALOG, catalog);
        Ok(Self { context, tables, spill })
    }
}

fn runtime(memory_bytes: u64, spill: Option<PathBuf>) -> datafusion::error::Result<Arc<RuntimeEnv>> {
    let pool = FairSpillPool::new(usize::try_from(memory_bytes).unwrap_or(usize::MAX));
    let mode = spill.map_or(DiskManagerMode::Disabled, |directory| DiskManagerMode::Directories(vec![directory]));
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(TrackConsumersPool::new(pool, CONSUMERS_NAMED)))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode))
        .build_arc()
}
