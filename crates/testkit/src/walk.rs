//! A data table from version to version, as its log and files tell without any code of the product.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;

use crate::table::{Fault, Row, TableReader};

/// Source and offset: which row it is.
pub type Place = (String, u64);
/// What a row was, and is.
pub type Change = (Option<Arc<Row>>, Option<Arc<Row>>);

/// A version of a table.
#[derive(Debug, Clone)]
pub struct Version {
    /// The ledger's position.
    pub position: u64,
    /// Whose commit it is: job and batch.
    pub batch: Option<(String, u64)>,
    /// The rows that are not what they were one version before.
    pub changed: BTreeMap<Place, Change>,
}

/// All versions of a table.
#[derive(Debug, Clone)]
pub struct Walk {
    /// From version 0 on.
    pub versions: Vec<Version>,
}

impl Walk {
    /// Reads the table of the default namespace. It needs all files that any version had.
    ///
    /// # Errors
    /// A row that is there twice at any version, a transaction that goes back, a file without rows, and what [`TableReader`] finds.
    pub async fn of(store: &Arc<dyn ObjectStore>, dataset: &str) -> Result<Self, Fault> {
        let table = TableReader::new(store, &format!("default/{dataset}"));
        let log = table.log().await?;
        TableReader::live(&log).map_err(|fault| format!("{dataset}: {fault}"))?;
        let mut files: BTreeMap<&str, BTreeMap<Place, Arc<Row>>> = BTreeMap::new();
        let mut txns: BTreeMap<&str, i64> = BTreeMap::new();
        let (mut versions, mut position) = (Vec::new(), 0);
        for (number, entry) in log.iter().enumerate() {
            let told = |what: String| format!("{dataset} version {number}: {what}");
            let mut batch = None;
            for (app, version) in &entry.txns {
                let before = txns.insert(app, *version);
                let at = u64::try_from(*version).map_err(|e| told(format!("{app} at {version}: {e}")))?;
                if app.ends_with("/ledger") {
                    if before.is_some_and(|before| before > *version) {
                        return Err(told(format!("{app} goes back")));
                    }
                    position = at;
                } else if let [_, _, job, _, _] = app.split('/').collect::<Vec<_>>()[..] {
                    if before.is_some_and(|before| before >= *version) {
                        return Err(told(format!("{app} does not go on")));
                    }
                    if batch.replace((job.to_owned(), at / 1024)).is_some() {
                        return Err(told("it carries two batches".to_owned()));
                    }
                }
            }
            let mut changed: BTreeMap<Place, Change> = BTreeMap::new();
            for path in &entry.removes {
                for (place, row) in files.remove(path.as_str()).unwrap_or_default() {
                    changed.insert(place, (Some(row), None));
                }
            }
            for add in &entry.adds {
                let mut rows = BTreeMap::new();
                for row in table.rows_of(add).await? {
                    let place = place(&row).map_err(told)?;
                    let row = Arc::new(row);
                    let change = changed.entry(place.clone()).or_default();
                    let twice = change.1.replace(row.clone()).is_some()
                        || (change.0.is_none() && files.values().any(|rows| rows.contains_key(&place)));
                    if twice {
                        return Err(told(format!("the row {place:?} is there twice")));
                    }
                    rows.insert(place, row);
                }
                if rows.is_empty() {
                    return Err(told(format!("the empty file {} is added", add.path)));
                }
                files.insert(&add.path, rows);
            }
            changed.retain(|_, (before, after)| before != after);
            versions.push(Version { position, batch, changed });
        }
        Ok(Self { versions })
    }

    /// The rows of the newest version.
    #[must_use]
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

fn place(row: &Row) -> Result<Place, Fault> {
    let offset = row.get("_offset").and_then(|text| text.parse().ok());
    row.get("_source").cloned().zip(offset).ok_or_else(|| format!("a row without its place: {row:?}"))
}
