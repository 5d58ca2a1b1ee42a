//! Cutting a log: what it says of versions that nobody may read any more goes. The statistics of files that were replaced hold values of rows
//! that were erased.
//!
//! Place in the flow: a purge cuts a table's log at the version that erased, once the files of earlier versions are gone, the floor is raised, and no batch
//! is under way that was recorded before. Invariant: a checkpoint stands at the version that is cut at, and says all that the log said.

use std::collections::{BTreeMap, BTreeSet};

use alluvium_core::{Error, Kind, Result};
use arrow::array::{Array, ArrayRef, AsArray, StructArray};
use arrow::datatypes::{DataType, Int64Type};
use bytes::Bytes;
use object_store::path::Path;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::kept::unescaped;
use super::table::{DeltaLog, entry_version};

/// Entries that are read at a time.
const ENTRIES_AT_ONCE: usize = 16;

/// What a checkpoint must say of a version.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    files: BTreeSet<String>,
    txns: BTreeMap<String, i64>,
    metadata: usize,
    protocols: usize,
    /// How many actions there are.
    rows: usize,
}

impl DeltaLog {
    /// Removes all that the log says of versions before `version`, of which a checkpoint is written if there is none. Returns whether none of it is
    /// left: not where the checkpoint cannot be found in one file. Earlier versions cannot be read any more; their names are free again, so a writer
    /// that stood still must look behind its commit. May be repeated.
    ///
    /// # Errors
    /// [`Kind::Internal`] if the checkpoint does not say what the log says: nothing is removed then. Otherwise as [`DeltaLog::state`].
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the next call goes on.
    pub async fn cut(&self, version: u64) -> Result<bool> {
        let of_version = |name: &String| name.get(..20).and_then(|digits| digits.parse::<u64>().ok());
        let names = self.names(None).await?;
        let before: Vec<&String> = names.iter().filter(|name| of_version(name).is_some_and(|of| of < version)).collect();
        if before.is_empty() {
            return Ok(true);
        }
        let checkpoint = format!("{version:020}.checkpoint.parquet");
        let wanted = self.said_by_entries(version, &names).await?;
        if !names.contains(&checkpoint) {
            self.checkpoint(version).await?;
        }
        let path = self.root().clone().join("_delta_log").join(checkpoint.as_str());
        let Some(bytes) = self.store().get(&path).await? else { return Ok(false) };
        let said = said_by_checkpoint(bytes).map_err(|e| {
            Error::new(Kind::Internal, format!("table {}: the checkpoint of version {version} cannot be read", self.root()))
                .source(e)
        })?;
        let tells_all = wanted.txns.iter().all(|(app, number)| said.txns.get(app) == Some(number));
        if said.files != wanted.files || !tells_all || (said.metadata, said.protocols) != (1, 1) {
            return Err(Error::new(
                Kind::Internal,
                format!("table {}: the checkpoint of version {version} does not say what the log says", self.root()),
            )
            .hint("nothing was removed; please report this"));
        }
        let directory = self.root().clone().join("_delta_log");
        // Readers begin where this points.
        if self.checkpoint_hinted().await?.is_none_or(|hinted| hinted < version) {
            let hint = serde_json::json!({ "version": version, "size": said.rows }).to_string();
            self.store().put_over(&directory.clone().join("_last_checkpoint"), hint.into()).await?;
        }
        // From the first on: what is left has no gap.
        let paths: Vec<Path> = before.into_iter().map(|name| directory.clone().join(name.as_str())).collect();
        self.store().delete_all(paths).await?;
        Ok(true)
    }

    /// What the log says of a version: its files, and what its entries that are there say of applications.
    async fn said_by_entries(&self, version: u64, names: &[String]) -> Result<Said> {
        let files = self.live_files(Some(version)).await?.into_iter().map(|file| unescaped(&file.path)).collect();
        let mut said = Said { files, ..Said::default() };
        // What stands below a gap was put by who stood still while the log was cut before, and counts for nobody.
        let mut versions: Vec<u64> = names.iter().filter_map(|name| entry_version(name)).filter(|v| *v <= version).collect();
        let gap = versions.iter().zip(versions.iter().skip(1)).rposition(|(one, next)| one + 1 < *next);
        versions.drain(..gap.map_or(0, |at| at + 1));
        for some in versions.chunks(ENTRIES_AT_ONCE) {
            for (_, actions) in self.all_actions(some).await? {
                // The newest counts, also where it is less: not all of them only grow.
                said.txns.extend(actions.txns.into_iter().map(|txn| (txn.app_id, txn.version)));
            }
        }
        Ok(said)
    }
}

/// What a checkpoint of one file says.
fn said_by_checkpoint(bytes: Bytes) -> parquet::errors::Result<Said> {
    let mut said = Said::default();
    for rows in ParquetRecordBatchReaderBuilder::try_new(bytes)?.build()? {
        let rows = rows?;
        said.rows += rows.num_rows();
        let part = |name: &str| rows.column_by_name(name).and_then(|column| column.as_struct_opt());
        let present = |part: &StructArray| (0..part.len()).filter(|row| part.is_valid(*row)).count();
        if let Some(adds) = part("add") {
            let paths = texts(adds.column_by_name("path"));
            said.files.extend(
                (0..adds.len()).filter(|row| adds.is_valid(*row)).filter_map(|row| Some(unescaped(paths.get(row)?.as_ref()?))),
            );
        }
        if let Some(txns) = part("txn") {
            let apps = texts(txns.column_by_name("appId"));
            let numbers = txns.column_by_name("version").and_then(|column| column.as_primitive_opt::<Int64Type>());
            for row in (0..txns.len()).filter(|row| txns.is_valid(*row)) {
                if let (Some(Some(app)), Some(numbers)) = (apps.get(row), numbers) {
                    said.txns.insert(app.clone(), numbers.value(row));
                }
            }
        }
        said.metadata += part("metaData").map_or(0, present);
        said.protocols += part("protocol").map_or(0, present);
    }
    Ok(said)
}

/// The values of a column of texts.
fn texts(column: Option<&ArrayRef>) -> Vec<Option<String>> {
    let Some(column) = column.and_then(|column| arrow::compute::cast(column, &DataType::Utf8).ok()) else { return Vec::new() };
    column.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
}
