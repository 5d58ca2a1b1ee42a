//! What each version of a table changed: the files of its log entry that count for a reader of changes.
//!
//! Place in the flow: `alluvium-engine` plans from this which files to read for a version, and reads their rows through
//! `rows`. Entries are those of any writer. Files that a commit says change no data are left out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use arrow::datatypes::SchemaRef;
use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use deltalake_core::kernel::{Add, AddCDCFile, EagerSnapshot, Remove, Snapshot};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};
use serde::Deserialize;

use super::table::DeltaLog;
use crate::blocking::Away;
use crate::store::store_error;

/// Up to so many files are asked for one by one; for more, the table's directory is listed.
const ASKED_ONE_BY_ONE: usize = 256;
/// Files asked for at the same time.
const ASKED_AT_ONCE: usize = 16;
/// Reader features under which rows can be read file by file.
const READER_FEATURES: [&str; 4] = ["deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "timestampNtz"];

/// A data file as a log entry names it.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedFile {
    /// Its name relative to the table, decoded.
    pub name: String,
    /// Where it is in the store.
    pub(crate) path: Path,
    /// Its size in bytes, if the log says so.
    pub size: Option<u64>,
    /// Its rows, deleted ones included, if the log says how many.
    pub rows: Option<u64>,
    /// When it was written, in milliseconds since 1970; 0 if the log does not say.
    pub modified_ms: i64,
    pub(crate) partition_values: Arc<HashMap<String, Option<String>>>,
    /// Which of its rows are deleted.
    pub deleted: Option<DeletedRows>,
}

/// A deletion vector: rows of a file that another program marked as deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct DeletedRows(pub(crate) DeletionVectorDescriptor);

impl ChangedFile {
    /// The value that the log says for all rows in a column that the table is partitioned by, in Delta's spelling; `None`: null, or it is
    /// no such column.
    #[must_use]
    pub fn partition_value(&self, column: &str) -> Option<&str> {
        self.partition_values.get(column).and_then(Option::as_deref).filter(|value| !value.is_empty())
    }
}

impl DeletedRows {
    /// How many rows are deleted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.cardinality.unsigned_abs()
    }

    /// What tells it from other vectors of the same file.
    #[must_use]
    pub fn mark(&self) -> String {
        self.0.unique_id()
    }

    /// As the log spells it.
    #[must_use]
    pub fn as_logged(&self) -> serde_json::Value {
        let DeletionVectorDescriptor { storage_type, path_or_inline_dv, offset, size_in_bytes, cardinality } = &self.0;
        let mut logged = serde_json::json!({
            "storageType": storage_type.to_string(), "pathOrInlineDv": path_or_inline_dv,
            "sizeInBytes": size_in_bytes, "cardinality": cardinality,
        });
        if let Some(offset) = offset {
            logged["offset"] = (*offset).into();
        }
        logged
    }
}

/// What one version changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VersionChanges {
    /// The version.
    pub version: u64,
    /// When it was committed, in milliseconds since 1970, as its writer says.
    pub committed_at_ms: i64,
    /// Files that came.
    pub adds: Vec<ChangedFile>,
    /// Files that went.
    pub removes: Vec<ChangedFile>,
    /// Files of Delta's change data feed; if there are any, they alone tell what changed.
    pub recorded: Vec<ChangedFile>,
    /// The name of our own file that says which rows changed in the files that were replaced.
    pub rewrites: Option<String>,
}

/// A version with its columns, and what it holds if that was asked for.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The version.
    pub version: u64,
    /// The columns, partition columns included.
    pub schema: SchemaRef,
    /// Those of them that files are partitioned by.
    pub partition_columns: Vec<String>,
    /// The id in the table's metadata.
    pub table_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    add: Option<Add>,
    remove: Option<Remove>,
    cdc: Option<AddCDCFile>,
    commit_info: Option<CommitInfo>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommitInfo {
    timestamp: Option<i64>,
    in_commit_timestamp: Option<i64>,
    alluvium: Option<OfOurs>,
}

/// What our own commits say of themselves.
#[derive(Deserialize)]
struct OfOurs {
    rewrites: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    num_records: Option<u64>,
}

impl DeltaLog {
    /// The newest version and its columns; `None` if there is no table.
    ///
    /// # Errors
    /// As [`DeltaLog::state`]; [`Kind::Unsupported`] if rows cannot be read file by file.
    pub async fn standing(&self) -> Result<Option<Standing>> {
        if !self.stands().await? {
            return Ok(None);
        }
        let snapshot = self
            .looking_again(|| async {
                let _delta_rs_reads_on_threads_of_its_own = Away::begin();
                Snapshot::try_new(self.reader().as_ref(), None).await.map_err(|e| self.delta_error(e))
            })
            .await?;
        let mapped = snapshot.metadata().configuration().get("delta.columnMapping.mode").is_some_and(|m| m != "none");
        let features: Vec<String> =
            snapshot.protocol().reader_features().iter().flat_map(|f| f.iter()).map(ToString::to_string).collect();
        let unknown = features.iter().find(|f| !READER_FEATURES.contains(&f.as_str()) && f.as_str() != "columnMapping");
        if mapped || unknown.is_some() {
            let feature = unknown.map_or("columnMapping", String::as_str);
            return Err(Error::new(
                Kind::Unsupported,
                format!("reading changes of table {}: another program gave it the feature {feature}", self.root()),
            )
            .hint("changes can be read of tables without it; read the table itself with another reader"));
        }
        let metadata = snapshot.metadata();
        Ok(Some(Standing {
            version: snapshot.version(),
            schema: snapshot.arrow_schema(),
            partition_columns: metadata.partition_columns().to_vec(),
            table_id: metadata.id().to_owned(),
        }))
    }

    /// The versions from `first` on whose entries are in the log now, ascending, by a fresh listing.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn versions_from(&self, first: u64) -> Result<Vec<u64>> {
        self.versions(first.checked_sub(1)).await
    }

    /// What `version` changed; `None` if its entry is not in the log.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if the entry cannot be read, [`Kind::Unsupported`] if it names files outside the table.
    pub async fn version_changes(&self, version: u64) -> Result<Option<VersionChanges>> {
        let Some(bytes) = self.read_entry(version).await? else { return Ok(None) };
        self.changes_in(version, &bytes, |changes_data| changes_data).map(Some)
    }

    /// All that a version's entry names, also what a commit says changes no data.
    pub(super) fn all_changes_in(&self, version: u64, entry: &[u8]) -> Result<VersionChanges> {
        self.changes_in(version, entry, |_| true)
    }

    /// What an entry names, as far as it counts: `counts` is given whether it says that it changes data.
    fn changes_in(&self, version: u64, entry: &[u8], counts: impl Fn(bool) -> bool) -> Result<VersionChanges> {
        let mut changes = VersionChanges { version, ..VersionChanges::default() };
        let (mut told_ms, mut written_ms) = (None, 0);
        for line in self.lines(version, entry)? {
            if let Some(info) = line.commit_info {
                told_ms = info.in_commit_timestamp.or(info.timestamp).or(told_ms);
                changes.rewrites = info.alluvium.and_then(|ours| ours.rewrites).or(changes.rewrites);
            }
            if let Some(add) = line.add {
                written_ms = written_ms.max(add.modification_time);
                if counts(add.data_change) {
                    changes.adds.push(self.added(add)?);
                }
            }
            if let Some(remove) = line.remove.filter(|r| counts(r.data_change)) {
                changes.removes.push(self.removed(remove)?);
            }
            if let Some(cdc) = line.cdc {
                let values = cdc.partition_values;
                changes.recorded.push(self.changed(cdc.path, Some(cdc.size), values, None)?);
            }
        }
        changes.committed_at_ms = told_ms.unwrap_or(written_ms);
        Ok(changes)
    }

    /// The same changes, with the values of `columns`, by which the table is partitioned, of files that went: a log need not repeat
    /// them, and then they are those with which the file came.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the log does not tell any more, otherwise as [`DeltaLog::version_changes`].
    pub async fn with_partition_values(&self, mut changes: VersionChanges, columns: &[String]) -> Result<VersionChanges> {
        let lacks = |file: &ChangedFile| columns.iter().any(|c| !file.partition_values.contains_key(c));
        let mut lacking: HashMap<String, &mut ChangedFile> =
            changes.removes.iter_mut().filter(|f| lacks(f)).map(|f| (f.name.clone(), f)).collect();
        for version in (0..=changes.version).rev() {
            if lacking.is_empty() {
                break;
            }
            let Some(bytes) = self.read_entry(version).await? else { break };
            for add in self.lines(version, &bytes)?.into_iter().filter_map(|line| line.add) {
                let known = self.added(add)?;
                // A file that stays has its values in the same entry.
                if !lacks(&known)
                    && let Some(file) = lacking.remove(&known.name)
                {
                    file.partition_values = known.partition_values;
                }
            }
        }
        if lacking.is_empty() {
            return Ok(changes);
        }
        Err(Error::new(
            Kind::Unsupported,
            format!(
                "changes of table {}: version {} removes a file without saying which partition it was of, and the log no longer \
                 tells how it came",
                self.root(),
                changes.version
            ),
        )
        .hint("another program wrote it; begin with the table as it stands: --snapshot"))
    }

    /// The columns as the log has them now.
    ///
    /// # Errors
    /// As [`DeltaLog::state`]; [`Kind::NotFound`] if there is no table.
    pub async fn stored_schema(&self) -> Result<SchemaRef> {
        let gone = || Error::new(Kind::NotFound, format!("table {} is gone", self.root()));
        Ok(self.standing().await?.ok_or_else(gone)?.schema)
    }

    /// The files of `version`, oldest first, each with the statistics that the log has of it.
    ///
    /// # Errors
    /// As [`DeltaLog::state`].
    pub async fn standing_files_with_statistics(&self, version: u64) -> Result<Vec<(ChangedFile, Option<String>)>> {
        let snapshot = self.snapshot(Some(version)).await?;
        let mut statistics: HashMap<String, String> = HashMap::new();
        for file in snapshot.log_data().iter() {
            statistics.extend(file.stats().map(|stats| (file.path().into_owned(), stats)));
        }
        let files = self.files_of(&snapshot)?;
        Ok(files
            .into_iter()
            .map(|file| {
                let stats = statistics.remove(&file.name);
                (file, stats)
            })
            .collect())
    }

    /// The files of `version`, oldest first.
    ///
    /// # Errors
    /// As [`DeltaLog::state`].
    pub async fn standing_files(&self, version: u64) -> Result<Vec<ChangedFile>> {
        self.files_of(&self.snapshot(Some(version)).await?)
    }

    fn files_of(&self, snapshot: &EagerSnapshot) -> Result<Vec<ChangedFile>> {
        let mut files = Vec::new();
        for file in snapshot.log_data().iter() {
            let deleted = file.deletion_vector_descriptor();
            let mut changed = self.changed(file.path().into_owned(), Some(file.size()), file.partition_values_map(), deleted)?;
            changed.rows = file.num_records().map(|n| n as u64);
            changed.modified_ms = file.modification_time();
            files.push(changed);
        }
        files.sort_by(|a, b| (a.modified_ms, &a.name).cmp(&(b.modified_ms, &b.name)));
        Ok(files)
    }

    /// The first of these files that is not in the store.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn first_missing<'a>(&self, files: &'a [ChangedFile]) -> Result<Option<&'a ChangedFile>> {
        let paths = files.iter().map(|file| file.path.clone()).collect();
        Ok(self.missing(paths).await?.map(|at| &files[at]))
    }

    /// Whether all files of these names are in the store.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn are_there(&self, names: &[String]) -> Result<bool> {
        let paths = names.iter().map(|name| self.data_path(name)).collect();
        Ok(self.missing(paths).await?.is_none())
    }

    /// Which is the first that is not in the store.
    async fn missing(&self, paths: Vec<Path>) -> Result<Option<usize>> {
        if paths.len() > ASKED_ONE_BY_ONE {
            let listed = self.store().list(self.root(), None).await?;
            let there: HashSet<&Path> = listed.iter().map(|f| &f.path).collect();
            return Ok(paths.iter().position(|path| !there.contains(path)));
        }
        let store = self.store().object_store();
        let mut asked = futures::stream::iter(paths.into_iter().enumerate().map(|(at, path)| {
            let store = store.clone();
            async move {
                match store.head(&path).await {
                    Ok(_) => Ok(None),
                    Err(StoreError::NotFound { .. }) => Ok(Some(at)),
                    Err(e) => Err(store_error(e, "looking for", path.as_ref())),
                }
            }
        }))
        .buffered(ASKED_AT_ONCE);
        while let Some(missing) = asked.try_next().await? {
            if missing.is_some() {
                return Ok(missing);
            }
        }
        Ok(None)
    }

    fn lines(&self, version: u64, entry: &[u8]) -> Result<Vec<Line>> {
        let corrupt = |e: serde_json::Error| {
            Error::new(
                Kind::Corrupt,
                format!("reading version {version} of table {}: the log entry is not what Delta writes", self.root()),
            )
            .hint("restore that file of _delta_log from a backup")
            .source(e)
        };
        let lines = entry.split(|b| *b == b'\n').filter(|l| !l.iter().all(u8::is_ascii_whitespace));
        lines.map(|line| serde_json::from_slice(line).map_err(corrupt)).collect()
    }

    fn added(&self, add: Add) -> Result<ChangedFile> {
        let rows = add.stats.and_then(|s| serde_json::from_str::<Stats>(&s).ok()).and_then(|s| s.num_records);
        let mut file = self.changed(add.path, Some(add.size), add.partition_values, add.deletion_vector)?;
        file.rows = rows;
        file.modified_ms = add.modification_time;
        Ok(file)
    }

    fn removed(&self, remove: Remove) -> Result<ChangedFile> {
        self.changed(remove.path, remove.size, remove.partition_values.unwrap_or_default(), remove.deletion_vector)
    }

    fn changed(
        &self,
        name: String,
        size: Option<i64>,
        partition_values: HashMap<String, Option<String>>,
        deleted: Option<deltalake_core::kernel::DeletionVectorDescriptor>,
    ) -> Result<ChangedFile> {
        if name.contains("://") || name.starts_with('/') {
            return Err(Error::new(
                Kind::Unsupported,
                format!("reading changes of table {}: its log names files outside the table", self.root()),
            )
            .hint("the table is a shallow clone: read the table it was cloned from"));
        }
        let deleted = deleted.map(DeletionVectorDescriptor::try_from).transpose().map_err(|e| self.kernel_error(e))?;
        // Names are the store's own, so they are not encoded again; only what cannot be one is.
        let path = Path::parse(&name).unwrap_or_else(|_| Path::from(name.as_str()));
        Ok(ChangedFile {
            path: self.root().parts().chain(path.parts()).collect(),
            name,
            size: size.map(i64::unsigned_abs),
            rows: None,
            modified_ms: 0,
            partition_values: Arc::new(partition_values),
            deleted: deleted.map(DeletedRows),
        })
    }
}
