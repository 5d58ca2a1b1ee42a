//! The live files of a table.

use alluvium_core::{BatchNumber, Error, Kind, Result, TxnVersion};
use arrow::array::RecordBatch;
use deltalake_core::DeltaTableError;
use deltalake_core::kernel::{EagerSnapshot, LogicalFileView};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use xxhash_rust::xxh3::Xxh3;

use super::table::DeltaLog;
use crate::blocking::Away;
use crate::store::store_error;

/// Rows of a small table that are decoded at a time.
const ROWS_AT_ONCE: usize = 8192;

/// A file that is part of a table's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFile {
    /// Its path as stored, relative to the table.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its rows, if the log says how many.
    pub rows: Option<u64>,
    /// What tells the deletion vector that it has, if it has one, from others.
    pub mark: Option<String>,
}

/// A digest of a table's live files, their paths and the marks of their deletion vectors, in any order.
#[must_use]
pub fn live_files_digest(files: impl Iterator<Item = (String, Option<String>)>) -> String {
    let mut sorted: Vec<(String, Option<String>)> = files.collect();
    sorted.sort_unstable();
    let mut hash = Xxh3::new();
    for (path, mark) in sorted {
        for text in [path, mark.unwrap_or_default()] {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
    }
    format!("{:032x}", hash.digest128())
}

fn live_file(f: &LogicalFileView) -> LiveFile {
    LiveFile {
        path: f.path().into_owned(),
        size: f.size().unsigned_abs(),
        rows: f.num_records().map(|n| n as u64),
        mark: f.deletion_vector_descriptor().map(|v| mark_of(v.storage_type.as_ref(), &v.path_or_inline_dv, v.offset)),
    }
}

/// The one value that a file's statistics allow in a column of texts.
fn only_value(stats: &str, column: &str) -> Option<String> {
    let stats: serde_json::Value = serde_json::from_str(stats).ok()?;
    let (least, most) = (stats["minValues"][column].as_str()?, stats["maxValues"][column].as_str()?);
    let is_tight = stats["tightBounds"].as_bool().unwrap_or(true);
    (is_tight && least == most && stats["nullCount"][column].as_u64() == Some(0)).then(|| least.to_owned())
}

/// Between which numbers the values of a column are, by a file's statistics.
fn bounds(stats: &str, column: &str) -> Option<(i64, i64)> {
    let stats: serde_json::Value = serde_json::from_str(stats).ok()?;
    Some((stats["minValues"][column].as_i64()?, stats["maxValues"][column].as_i64()?))
}

/// What tells a deletion vector from others, as the log's replay does.
pub(crate) fn mark_of(storage_type: &str, path_or_inline: &str, offset: Option<i32>) -> String {
    match offset {
        Some(offset) => format!("{storage_type}{path_or_inline}@{offset}"),
        None => format!("{storage_type}{path_or_inline}"),
    }
}

/// The same for a vector as the log spells it.
pub(super) fn mark_of_logged(vector: &serde_json::Value) -> String {
    let text = |key: &str| vector.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
    let offset = vector.get("offset").and_then(serde_json::Value::as_i64).and_then(|o| i32::try_from(o).ok());
    mark_of(text("storageType"), text("pathOrInlineDv"), offset)
}

impl DeltaLog {
    /// The files of a version (the newest, without one).
    ///
    /// # Errors
    /// As [`DeltaLog::state`]; [`Kind::NotFound`] if there is no table.
    pub async fn live_files(&self, version: Option<u64>) -> Result<Vec<LiveFile>> {
        let snapshot = self.snapshot(version).await?;
        Ok(snapshot.log_data().iter().map(|f| live_file(&f)).collect())
    }

    /// The files of the newest version, each with the value that all its rows have in a column of texts, as far as the statistics in the
    /// log tell.
    ///
    /// # Errors
    /// As [`DeltaLog::live_files`].
    pub async fn live_files_by(&self, column: &str) -> Result<Vec<(LiveFile, Option<String>)>> {
        let snapshot = self.snapshot(None).await?;
        let only = |f: &LogicalFileView| only_value(&f.stats()?, column);
        Ok(snapshot.log_data().iter().map(|f| (live_file(&f), only(&f))).collect())
    }

    /// The files of a version that carries `batch` of an application, or a later one, each with the bounds of a column of numbers, as far as the
    /// statistics in the log tell. The batch is finished, so a log that does not tell of it is one that the store lists late: it is read again.
    ///
    /// # Errors
    /// As [`DeltaLog::live_files`]; [`Kind::Corrupt`] if the log does not carry the batch at all.
    pub async fn live_files_with(
        &self,
        app_id: &str,
        batch: BatchNumber,
        column: &str,
    ) -> Result<Vec<(LiveFile, Option<(i64, i64)>)>> {
        let lacks = || {
            Error::new(Kind::Corrupt, format!("table {} does not carry batch {}, which was finished", self.root(), batch.0))
                .hint("the table was restored to an older version or replaced; bring back the newest version of its _delta_log")
        };
        self.looking_again(|| async {
            let state = self.state(app_id).await?.ok_or_else(lacks)?;
            match state.txn().and_then(TxnVersion::key) {
                Some(carried) if carried.batch >= batch => {
                    let snapshot = self.snapshot(Some(state.version())).await?;
                    let bounds = |f: &LogicalFileView| bounds(&f.stats()?, column);
                    Ok(snapshot.log_data().iter().map(|f| (live_file(&f), bounds(&f))).collect())
                }
                _ => Err(lacks()),
            }
        })
        .await
    }

    /// The digest of the live files of a version.
    ///
    /// # Errors
    /// As [`DeltaLog::live_files`].
    pub(super) async fn live_files_digest(&self, version: u64) -> Result<String> {
        let files = self.live_files(Some(version)).await?;
        Ok(live_files_digest(files.into_iter().map(|f| (f.path, f.mark))))
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

    /// Some columns of a live file of one of our small tables, a few thousand rows at a time; the file itself is in memory.
    ///
    /// # Errors
    /// As [`DeltaLog::read_file`].
    pub async fn read_columns(&self, name: &str, columns: &[&str]) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send> {
        let path = self.data_path(name);
        let corrupt = move || {
            Error::new(Kind::Corrupt, format!("the data file {path} is gone or damaged"))
                .hint("restore it from a backup of the storage")
        };
        let bytes = self.store().get(&self.data_path(name)).await?.ok_or_else(&corrupt)?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|e| corrupt().source(e))?;
        let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
        let reader = builder.with_projection(mask).with_batch_size(ROWS_AT_ONCE).build().map_err(|e| corrupt().source(e))?;
        Ok(reader.map(move |rows| rows.map_err(|e| corrupt().source(e))))
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
