//! A data table from version to version, as its log and files tell without any code of the product.

use std::collections::BTreeMap;
use std::sync::Arc;

use alluvium_testkit::{Row, TableReader};
use object_store::ObjectStore;

/// Source and offset: which row it is.
pub type Place = (String, u64);
/// What a row was, and is.
pub type Change = (Option<Arc<Row>>, Option<Arc<Row>>);

/// A version of a table.
pub struct Version {
    /// The ledger's position.
    pub position: u64,
    /// Whose commit it is: job and batch.
    pub batch: Option<(String, u64)>,
    /// The rows that are not what they were one version before.
    pub changed: BTreeMap<Place, Change>,
}

/// All versions of a table.
pub struct Walk {
    pub versions: Vec<Version>,
}

impl Walk {
    /// Reads the table. Fails if a row is there twice at any version, or a transaction goes back.
    pub async fn of(store: &Arc<dyn ObjectStore>, dataset: &str) -> Self {
        let table = TableReader::new(store, &format!("default/{dataset}"));
        let log = table.log().await.unwrap_or_else(|fault| panic!("{fault}"));
        TableReader::live(&log).unwrap_or_else(|fault| panic!("{dataset}: {fault}"));
        let mut files: BTreeMap<&str, BTreeMap<Place, Arc<Row>>> = BTreeMap::new();
        let mut txns: BTreeMap<&str, i64> = BTreeMap::new();
        let (mut versions, mut position) = (Vec::new(), 0);
        for (number, entry) in log.iter().enumerate() {
            let mut batch = None;
            for (app, version) in &entry.txns {
                let before = txns.insert(app, *version);
                if app.ends_with("/ledger") {
                    assert!(before.is_none_or(|b| b <= *version), "{dataset} version {number}: {app} goes back");
                    position = u64::try_from(*version).unwrap();
                } else if app.split('/').count() == 5 {
                    assert!(before.is_none_or(|b| b < *version), "{dataset} version {number}: {app} does not go on");
                    let job = app.split('/').nth(2).unwrap();
                    assert!(batch.replace((job.to_owned(), u64::try_from(*version).unwrap() / 1024)).is_none());
                }
            }
            let mut changed: BTreeMap<Place, Change> = BTreeMap::new();
            for path in &entry.removes {
                for (place, row) in files.remove(path.as_str()).unwrap() {
                    changed.insert(place, (Some(row), None));
                }
            }
            for add in &entry.adds {
                let mut rows = BTreeMap::new();
                for row in table.rows_of(add).await.unwrap_or_else(|fault| panic!("{fault}")) {
                    let place = (row["_source"].clone(), row["_offset"].parse().unwrap());
                    let row = Arc::new(row);
                    let change = changed.entry(place.clone()).or_default();
                    let twice = change.1.replace(row.clone()).is_some()
                        || (change.0.is_none() && files.values().any(|rows| rows.contains_key(&place)));
                    assert!(!twice, "{dataset} version {number}: the row {place:?} is there twice");
                    rows.insert(place, row);
                }
                assert!(!rows.is_empty(), "{dataset} version {number} adds the empty file {}", add.path);
                files.insert(&add.path, rows);
            }
            changed.retain(|_, (before, after)| before != after);
            versions.push(Version { position, batch, changed });
        }
        Self { versions }
    }

    /// The rows of the newest version.
    pub fn rows(&self) -> BTreeMap<Place, Arc<Row>> {
        let mut rows = BTreeMap::new();
        for version in &self.versions {
            for (place, (_, after)) in &version.changed {
                match after {
                    Some(row) => rows.insert(place.clone(), row.clone()),
                    None => rows.remove(place),
                };
            }
        }
        rows
    }
}
