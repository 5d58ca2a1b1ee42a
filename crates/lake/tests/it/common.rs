//! A table whose log these tests write to.

use std::sync::{Arc, LazyLock};

use alluvium_core::{AddedFile, Attempt, BatchKey, BatchNumber, Incarnation, TableSpec};
use alluvium_lake::{Commit, DeltaLog, LedgerRule, Published, Store};
use alluvium_testkit::TableReader;
use object_store::ObjectStore;
use object_store::path::Path;

static NO_MARKS: std::collections::BTreeMap<String, serde_json::Value> = std::collections::BTreeMap::new();

pub const TABLE: &str = "default/notifications";
pub static LIFE: LazyLock<Incarnation> = LazyLock::new(|| Incarnation("i".to_owned()));

pub fn log(store: &Arc<dyn ObjectStore>) -> DeltaLog {
    DeltaLog::new(&Store::over(store.clone()), Path::from(TABLE))
}

pub async fn create(store: &Arc<dyn ObjectStore>) -> DeltaLog {
    let log = log(store);
    log.ensure(&TableSpec::notifications(), &LIFE, "app", 0).await.unwrap();
    log
}

pub fn key(batch: u64) -> BatchKey {
    BatchKey { batch: BatchNumber(batch), attempt: Attempt::FIRST }
}

/// A file that the log may name; nobody reads it here.
pub fn file(name: &str) -> AddedFile {
    AddedFile {
        path: format!("{name}.parquet"),
        partition_values: Vec::new(),
        size: 1,
        rows: 1,
        modified_ms: 0,
        stats: r#"{"numRecords":1}"#.to_owned(),
    }
}

/// Publishes a batch of the application with one file that is named after it.
pub async fn publish(log: &DeltaLog, app_id: &str, batch: u64) -> alluvium_core::Result<Published> {
    let adds = [file(&format!("{app_id}-{batch}"))];
    log.publish(&commit(app_id, batch, &adds, &[])).await
}

/// A batch of a table that follows.
pub fn commit<'a>(app_id: &'a str, batch: u64, adds: &'a [AddedFile], removes: &'a [String]) -> Commit<'a> {
    let ledger = LedgerRule::None;
    Commit {
        app_id,
        incarnation: &LIFE,
        key: key(batch),
        adds,
        removes,
        marks: &NO_MARKS,
        changes: &[],
        rewrites: None,
        ledger,
        decides: false,
        resumed: false,
        now_ms: 0,
    }
}

/// How often a batch's file is live, by the log entries alone.
pub async fn live(store: &Arc<dyn ObjectStore>) -> Vec<String> {
    let log = TableReader::new(store, TABLE).log().await.unwrap();
    TableReader::live(&log).unwrap().into_iter().map(|a| a.path).collect()
}
