//! Checks what must hold of a dataset's tables, with [`TableReader`] alone: `no_duplicate_row`, `tables_agree`, and that the
//! chain is finished.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::table::{Fault, Row, TableReader};

/// The content of a dataset's tables, in an order of its own, without the times at which things happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landed {
    /// The rows, without `_ingested_at`, ordered by source and offset.
    pub rows: Vec<Row>,
    /// The dead letters of the dataset, without `failed_at`, ordered by source and position.
    pub dead_letters: Vec<Row>,
    /// The notifications of the dataset, without `modified_time`, ordered by batch, organisation and date. `table_version` is
    /// left out, too: it differs with what else was committed, and was compared with the versions.
    pub notifications: Vec<Row>,
    /// The commits to the data table that carry a batch.
    pub commits: usize,
}

impl Landed {
    /// The same without the numbers of batches, for runs that may cut them otherwise: notifications are summed.
    #[must_use]
    pub fn without_batches(mut self) -> Self {
        for row in &mut self.dead_letters {
            row.remove("batch_id");
        }
        let mut sums: BTreeMap<Row, u64> = BTreeMap::new();
        for mut row in self.notifications {
            row.remove("batch_id");
            let inserted = row.remove("inserted").and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            *sums.entry(row).or_default() += inserted;
        }
        self.notifications = sums
            .into_iter()
            .map(|(mut row, inserted)| {
                row.insert("inserted".to_owned(), inserted.to_string());
                row
            })
            .collect();
        self.commits = 0;
        self
    }
}

/// A dataset whose tables are looked at.
#[derive(Debug, Clone)]
pub struct DatasetCheck {
    store: Arc<dyn ObjectStore>,
    namespace: String,
    dataset: String,
    org: String,
    /// Two records may have stood in the same place: what tells their rows apart.
    apart: Option<String>,
}

impl DatasetCheck {
    /// The dataset of a namespace, whose organisations are in the column `org`.
    #[must_use]
    pub fn new(store: &Arc<dyn ObjectStore>, namespace: &str, dataset: &str, org: &str) -> Self {
        Self {
            store: store.clone(),
            namespace: namespace.to_owned(),
            dataset: dataset.to_owned(),
            org: org.to_owned(),
            apart: None,
        }
    }

    /// The same of a dataset whose topic was made anew: records of both topics may have stood in the same places. The column `apart`
    /// tells their rows apart.
    #[must_use]
    pub fn of_topic_made_anew(self, apart: &str) -> Self {
        Self { apart: Some(apart.to_owned()), ..self }
    }

    /// A table of the namespace.
    #[must_use]
    pub fn table(&self, name: &str) -> TableReader {
        TableReader::new(&self.store, &format!("{}/{name}", self.namespace))
    }

    /// Checks all that must hold whenever no batch is under way, and gives what the tables hold.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub async fn landed(&self) -> Result<Landed, Fault> {
        let log = self.table(&self.dataset).log().await?;
        let data = self.table(&self.dataset);
        let mut rows = Vec::new();
        let mut told = self.notifications().await?;
        let mut commits = 0;
        let mut seen = BTreeSet::new();
        TableReader::live(&log)?;
        for (version, entry) in log.iter().enumerate() {
            commits += usize::from(!entry.txns.is_empty());
            if !entry.removes.is_empty() {
                return Err(format!("version {version} of {} removes files; ingest never does", self.dataset));
            }
            let mut made: BTreeMap<(String, String), u64> = BTreeMap::new();
            for add in &entry.adds {
                for row in data.rows_of(add).await? {
                    let apart = self.apart.as_ref().and_then(|name| row.get(name)).cloned();
                    let at = (column(&row, "_source")?, column(&row, "_offset")?, apart);
                    if !seen.insert(at.clone()) {
                        return Err(format!("the row {at:?} of {} is there twice, again in version {version}", self.dataset));
                    }
                    *made.entry((column(&row, &self.org)?, column(&row, "event_date")?)).or_default() += 1;
                    rows.push(row);
                }
            }
            let notified = told.by_version.remove(&version.to_string()).unwrap_or_default();
            if notified != made {
                return Err(format!("version {version} of {} made {made:?}, the notifications say {notified:?}", self.dataset));
            }
        }
        if let Some((version, of)) = told.by_version.first_key_value() {
            return Err(format!("notifications tell of version {version} of {}, which is not there: {of:?}", self.dataset));
        }
        let dead_letters = self.dead_letters().await?;
        for letter in &dead_letters {
            let at = (column(letter, "source")?, column(letter, "position")?, None);
            if seen.contains(&at) {
                return Err(format!("the record {at:?} of {} is a row and a dead letter", self.dataset));
            }
        }
        rows.iter_mut().for_each(|row| {
            row.remove("_ingested_at");
        });
        sort_by_place(&mut rows, "_source", "_offset");
        self.chains_are_finished(&[("ingest", &self.dataset)]).await?;
        Ok(Landed { rows, dead_letters, notifications: told.rows, commits })
    }

    pub(crate) async fn dead_letters(&self) -> Result<Vec<Row>, Fault> {
        let mut letters = Vec::new();
        let mut seen = BTreeSet::new();
        for mut row in self.table("dead_letters").rows().await? {
            if row.get("dataset") != Some(&self.dataset) {
                continue;
            }
            let apart = self.apart.as_ref().and_then(|_| row.get("raw")).cloned();
            let at = (column(&row, "source")?, column(&row, "position")?, apart);
            if !seen.insert(at.clone()) {
                return Err(format!("the dead letter {at:?} of {} is there twice", self.dataset));
            }
            row.remove("failed_at");
            letters.push(row);
        }
        sort_by_place(&mut letters, "source", "position");
        Ok(letters)
    }

    async fn notifications(&self) -> Result<Told, Fault> {
        let mut told = Told::default();
        let mut seen = BTreeSet::new();
        for mut row in self.table("notifications").rows().await? {
            if row.get("table_name") != Some(&self.dataset) {
                continue;
            }
            let (org, date) = (column(&row, "org_id")?, column(&row, "event_date")?);
            if !seen.insert((column(&row, "table_version")?, org.clone(), date.clone())) {
                return Err(format!("a notification of {} is there twice: {row:?}", self.dataset));
            }
            let inserted = column(&row, "inserted")?.parse::<u64>().map_err(|e| e.to_string())?;
            let version = row.remove("table_version").ok_or("a notification without table_version")?;
            *told.by_version.entry(version).or_default().entry((org, date)).or_default() += inserted;
            row.remove("modified_time");
            told.rows.push(row);
        }
        told.rows.sort_by_key(|r| (number(r, "batch_id"), r.get("org_id").cloned(), r.get("event_date").cloned()));
        Ok(told)
    }

    /// The newest record of each chain of these jobs and datasets has its mark. Chains of former lives of the namespace are nobody's.
    pub(crate) async fn chains_are_finished(&self, chains: &[(&str, &str)]) -> Result<(), Fault> {
        let file = Path::from(format!("{}/_alluvium/namespace.json", self.namespace));
        let file = self.store.get(&file).await.map_err(|e| e.to_string())?.bytes().await.map_err(|e| e.to_string())?;
        let file: serde_json::Value = serde_json::from_slice(&file).map_err(|e| e.to_string())?;
        let life = file["incarnation"].as_str().ok_or("a namespace's file without incarnation")?;
        let directory = Path::from(format!("{}/_alluvium/chains/{life}", self.namespace));
        let found: Vec<_> = self.store.list(Some(&directory)).try_collect().await.map_err(|e| e.to_string())?;
        let ours: Vec<String> = chains.iter().map(|(job, dataset)| format!("/{job}/{dataset}/")).collect();
        let of_chain = |path: &&str| ours.iter().any(|ours| path.contains(ours)) && path.ends_with(".json");
        let paths: BTreeSet<&str> = found.iter().map(|f| f.location.as_ref()).filter(of_chain).collect();
        // By chain: records and marks begin with the batch's number in twenty digits.
        let mut newest: BTreeMap<&str, &str> = BTreeMap::new();
        for path in &paths {
            let (chain, name) = path.rsplit_once('/').ok_or("a file without a directory")?;
            let batch = name.get(..20).ok_or_else(|| format!("{path} is not a chain's file"))?;
            let known = newest.entry(chain).or_default();
            *known = batch.max(*known);
        }
        match newest.into_iter().find(|(chain, batch)| !paths.contains(format!("{chain}/{batch}.done.json").as_str())) {
            Some((chain, batch)) => Err(format!("batch {batch} of {chain} is not marked as done")),
            None => Ok(()),
        }
    }
}

#[derive(Default)]
struct Told {
    rows: Vec<Row>,
    /// By version, organisation and date: the rows inserted.
    by_version: BTreeMap<String, BTreeMap<(String, String), u64>>,
}

fn column(row: &Row, name: &str) -> Result<String, Fault> {
    row.get(name).cloned().ok_or_else(|| format!("a row without {name}: {row:?}"))
}

fn number(row: &Row, name: &str) -> u64 {
    row.get(name).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn sort_by_place(rows: &mut [Row], source: &str, position: &str) {
    rows.sort_by_key(|r| (r.get(source).cloned(), number(r, position)));
}
