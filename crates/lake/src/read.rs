//! Reading tables: what stands in them now, and as a table of DataFusion.
//!
//! Place in the flow: `alluvium-engine` lists tables and runs SQL through this; nothing here writes. A table provider is a view of
//! the version that was newest when it was made; files are pruned by partition and by statistics when it is scanned.

use std::sync::Arc;

use alluvium_core::Result;
use datafusion::catalog::TableProvider;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnv;
use deltalake_core::DeltaTableError;
use deltalake_core::delta_datafusion::{DeltaScanConfig, DeltaScanNext};
use deltalake_core::kernel::Snapshot;
use url::Url;

use crate::log::{DeltaLog, LiveFile, mark_of};

/// What a table holds at its newest version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableContents {
    /// The version.
    pub version: u64,
    /// Its files; the rows of each without those that a deletion vector takes away.
    pub files: Vec<LiveFile>,
}

impl DeltaLog {
    /// What the table holds now; `None` if there is no table.
    ///
    /// # Errors
    /// As [`DeltaLog::state`].
    pub async fn contents(&self) -> Result<Option<TableContents>> {
        if !self.exists().await? {
            return Ok(None);
        }
        let snapshot = self.snapshot(None).await?;
        let files = snapshot.log_data();
        let files = files.iter().map(|f| {
            let gone = f.deletion_vector_descriptor().map_or(0, |d| d.cardinality.unsigned_abs());
            LiveFile {
                path: f.path().into_owned(),
                size: f.size().unsigned_abs(),
                rows: f.num_records().map(|rows| (rows as u64).saturating_sub(gone)),
                mark: f.deletion_vector_descriptor().map(|v| mark_of(v.storage_type.as_ref(), &v.path_or_inline_dv, v.offset)),
            }
        });
        Ok(Some(TableContents { version: snapshot.version(), files: files.collect() }))
    }

    /// The newest version as a table of DataFusion, all columns as stored; `None` if there is no table. It can be scanned in
    /// sessions whose runtime [`DeltaLog::register_store`] prepared, and refuses inserts.
    ///
    /// # Errors
    /// As [`DeltaLog::state`].
    pub async fn table_provider(&self) -> Result<Option<Arc<dyn TableProvider>>> {
        if !self.exists().await? {
            return Ok(None);
        }
        let snapshot = Snapshot::try_new(self.reader().as_ref(), None).await.map_err(|e| self.delta_error(e))?;
        // Without dictionaries for partition columns: their 16-bit keys are too few for a column of organisations.
        let config = DeltaScanConfig::new().with_wrap_partition_values(false);
        let scan = DeltaScanNext::new(snapshot, config).map_err(|e| self.scan_error(e))?;
        Ok(Some(Arc::new(scan)))
    }

    /// Lets a DataFusion runtime read the store that this table, and all others of the store, are in.
    pub fn register_store(&self, runtime: &RuntimeEnv) {
        let root = Url::parse("alluvium:///").expect("a constant that is a URL");
        runtime.register_object_store(&root, self.reader().root_object_store(None));
    }

    fn scan_error(&self, error: DataFusionError) -> alluvium_core::Error {
        match error {
            DataFusionError::External(e) => match e.downcast::<DeltaTableError>() {
                Ok(e) => self.delta_error(*e),
                Err(e) => self.delta_error(DeltaTableError::GenericError { source: e }),
            },
            e => self.delta_error(DeltaTableError::GenericError { source: Box::new(e) }),
        }
    }
}
