//! The live files of a table.

use alluvium_core::{Error, Kind, Result};
use arrow::array::RecordBatch;
use deltalake_core::DeltaTableError;
use deltalake_core::kernel::EagerSnapshot;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use xxhash_rust::xxh3::Xxh3;

use super::table::DeltaLog;
use crate::blocking::Away;
use crate::store::store_error;

/// A file that is part of a table's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFile {
    /// Its path as stored, relative to the table.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its rows, if the log says how many.
    pub rows: Option<u64>,
}

/// A digest of the paths of a table's live files, in any order.
#[must_use]
pub fn live_files_digest<'a>(paths: impl Iterator<Item = &'a str>) -> String {
    let mut sorted: Vec<&str> = paths.collect();
    sorted.sort_unstable();
    let mut hash = Xxh3::new();
    for path in sorted {
        hash.update(&(path.len() as u64).to_le_bytes());
        hash.update(path.as_bytes());
    }
    format!("{:032x}", hash.digest128())
}

impl DeltaLog {
    /// The files of a version (the newest, without one).
    ///
    /// # Errors
    /// As [`DeltaLog::state`]; [`Kind::NotFound`] if there is no table.
    pub async fn live_files(&self, version: Option<u64>) -> Result<Vec<LiveFile>> {
        let snapshot = self.snapshot(version).await?;
        Ok(snapshot
            .log_data()
            .iter()
            .map(|f| LiveFile {
                path: f.path().into_owned(),
                size: f.size().unsigned_abs(),
                rows: f.num_records().map(|n| n as u64),
            })
            .collect())
    }

    /// The digest of the live files of a version.
    ///
    /// # Errors
    /// As [`DeltaLog::live_files`].
    pub(super) async fn live_files_digest(&self, version: u64) -> Result<String> {
        let files = self.live_files(Some(version)).await?;
        Ok(live_files_digest(files.iter().map(|f| f.path.as_str())))
    }

    /// The rows of a data file.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if it is gone or is no Parquet.
    pub async fn read_file(&self, name: &str) -> Result<Vec<RecordBatch>> {
        let path = self.data_path(name);
        let corrupt = || {
            Error::new(Kind::Corrupt, format!("the data file {path} is gone or damaged"))
                .hint("restore it from a backup of the storage")
        };
        let bytes = self.store().get(&path).await?.ok_or_else(corrupt)?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|b| b.build()).map_err(|e| corrupt().source(e))?;
        reader.collect::<std::result::Result<_, _>>().map_err(|e| corrupt().source(e))
    }

    /// delta-rs's snapshot of a version (the newest, without one), with its files.
    ///
    /// # Errors
    /// As [`DeltaLog::live_files`].
    pub async fn snapshot(&self, version: Option<u64>) -> Result<EagerSnapshot> {
        self.looking_again(|| async {
            let _delta_rs_reads_on_threads_of_its_own = Away::begin();
            EagerSnapshot::try_new(self.reader().as_ref(), version).await.map_err(|e| self.delta_error(e))
        })
        .await
    }

    /// Our error for delta-rs's.
    pub(crate) fn delta_error(&self, error: DeltaTableError) -> Error {
        match error {
            DeltaTableError::KernelError(e) => self.kernel_error(e),
            DeltaTableError::NotATable(_) => Error::new(Kind::NotFound, format!("there is no table at {}", self.root())),
            DeltaTableError::ObjectStore { source } => store_error(source, "reading table", self.root().as_ref()),
            DeltaTableError::Io { .. } => {
                Error::new(Kind::Unavailable, format!("reading table {}", self.root())).hint("try again later").source(error)
            }
            e => Error::new(Kind::Corrupt, format!("reading table {}", self.root())).source(e),
        }
    }
}
