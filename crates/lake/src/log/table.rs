//! One table's log in the store.

use std::fmt;
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use bytes::Bytes;
use delta_kernel::Engine;
use deltalake_core::logstore::{LogStore, LogStoreRef, StorageConfig, default_logstore};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use url::Url;

use super::actions::{self, CommitActions};
use super::state::TableState;
use crate::store::Store;
use crate::unescape::UnescapedLog;

/// A Delta table's directory and what is in its log.
#[derive(Clone)]
pub struct DeltaLog {
    store: Store,
    root: Path,
    reader: LogStoreRef,
}

impl fmt::Debug for DeltaLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaLog").field("root", &self.root).finish_non_exhaustive()
    }
}

impl DeltaLog {
    /// The log of the table in directory `root` of the store, which need not exist yet.
    #[must_use]
    pub fn new(store: &Store, root: Path) -> Self {
        Self::read_through(store, root, UnescapedLog::new(store.object_store()))
    }

    /// The same log, for one look at it.
    pub(super) fn for_one_look(&self) -> Self {
        Self::read_through(&self.store, self.root.clone(), UnescapedLog::for_one_look(self.store.object_store()))
    }

    fn read_through(store: &Store, root: Path, view: UnescapedLog) -> Self {
        let whole: Arc<dyn object_store::ObjectStore> = Arc::new(view);
        let prefixed = Arc::new(PrefixStore::new(whole.clone(), root.clone()));
        let reader = default_logstore(prefixed, whole, &table_url(&root), &StorageConfig::default());
        Self { store: store.clone(), root, reader }
    }

    /// The table's directory in the store.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The store the table is in.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The log store that delta-rs reads the table through.
    #[must_use]
    pub fn reader(&self) -> LogStoreRef {
        self.reader.clone()
    }

    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        self.reader.engine(None)
    }

    pub(crate) fn url(&self) -> Url {
        table_url(&self.root)
    }

    /// The versions above `after` (all, without it) whose log entries are there now, by a fresh listing, ascending.
    pub(super) async fn versions(&self, after: Option<u64>) -> Result<Vec<u64>> {
        Ok(self.names(after).await?.iter().filter_map(|name| entry_version(name)).collect())
    }

    /// The names of all that belongs to a version and sorts behind the entry of `after` (all, without it): entries,
    /// checkpoints, compacted entries. A fresh listing, ascending.
    pub(super) async fn names(&self, after: Option<u64>) -> Result<Vec<String>> {
        let directory = self.root.clone().join("_delta_log");
        let offset = after.map(|v| self.entry_path(v));
        let found = self.store.list(&directory, offset.as_ref()).await?;
        let of_a_version = |name: &&str| name.len() > 20 && name.bytes().take(20).all(|b| b.is_ascii_digit());
        Ok(found.iter().filter_map(|f| f.path.filename()).filter(of_a_version).map(str::to_owned).collect())
    }

    /// Whether anything at all is in the log's directory.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn exists(&self) -> Result<bool> {
        self.store.has_any(&self.root.clone().join("_delta_log")).await
    }

    /// The state this process saw last, which may be old.
    pub(super) fn known_state(&self, app_id: &str) -> Option<TableState> {
        self.store.known_states().get(&self.root, app_id)
    }

    pub(super) fn remember(&self, state: &TableState) {
        self.store.known_states().remember(&self.root, state);
    }

    pub(super) fn forget(&self, app_id: &str) {
        self.store.known_states().forget(&self.root, app_id);
    }

    pub(super) async fn read_entry(&self, version: u64) -> Result<Option<Bytes>> {
        self.store.get(&self.entry_path(version)).await
    }

    pub(super) async fn commit_actions(&self, version: u64) -> Result<CommitActions> {
        self.actions_in(version, self.read_entry(version).await?)
    }

    /// What the entries of some versions say.
    pub(super) async fn all_actions(&self, versions: &[u64]) -> Result<Vec<(u64, CommitActions)>> {
        let paths: Vec<Path> = versions.iter().map(|version| self.entry_path(*version)).collect();
        let entries = versions.iter().zip(self.store.get_all(&paths).await?);
        entries.map(|(version, bytes)| Ok((*version, self.actions_in(*version, bytes)?))).collect()
    }

    fn actions_in(&self, version: u64, entry: Option<Bytes>) -> Result<CommitActions> {
        let gone = || format!("reading version {version} of table {}: it was there a moment ago", self.root);
        let bytes = entry.ok_or_else(|| Error::new(Kind::Unavailable, gone()))?;
        actions::parse_commit(self.root.as_ref(), version, &bytes)
    }

    pub(super) fn entry_path(&self, version: u64) -> Path {
        self.root.clone().join("_delta_log").join(format!("{version:020}.json"))
    }

    /// The path in the store of a data file named in the log.
    #[must_use]
    pub fn data_path(&self, name: &str) -> Path {
        self.root.parts().chain(Path::from(name).parts()).collect()
    }
}

/// delta-rs wants a URL; ours names the place inside the store, whatever the store is.
fn table_url(root: &Path) -> Url {
    Url::parse(&format!("alluvium:///{root}/")).expect("a path of the store makes a URL")
}

/// The version of a log entry's name.
pub(super) fn entry_version(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json")?;
    if digits.len() == 20 { digits.parse().ok() } else { None }
}
