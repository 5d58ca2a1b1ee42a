//! The requests of which no row of a dataset was seen: those that wait, and those that did too often. Read from the table `retries`.
//!
//! Place in the flow: a batch of a mutation asks which of them wait and which matched at last; ingest asks for those it matched. Of each
//! request little is in memory until it is asked for, as there may be as many as there are requests.

use std::collections::{BTreeMap, HashMap};

use alluvium_core::{DatasetName, Error, Kind, Result, TableName};
use alluvium_lake::DeltaLog;
use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use xxhash_rust::xxh3::xxh3_128;

use super::states::{APPLIED, WAITING};
use crate::engine::Engine;

/// A request of which no row was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) org: String,
    pub(crate) attempts: u64,
    /// Whether it is tried again.
    pub(crate) waits: bool,
}

/// What the newest row of a request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Newest {
    // An `applied` row counts before all, else the one with the most attempts.
    is_applied: bool,
    attempts: u64,
    waits: bool,
}

/// The requests of one dataset that have rows in `retries`.
pub(crate) struct RequestsTried {
    log: DeltaLog,
    dataset: DatasetName,
    files: Vec<String>,
    /// By the hash of the request's id.
    newest: HashMap<u128, Newest>,
}

impl Engine {
    /// The requests of the dataset that were tried without a row.
    ///
    /// # Errors
    /// As reading a table.
    pub(crate) async fn requests_tried(&self, dataset: &DatasetName) -> Result<RequestsTried> {
        let log = self.log(&TableName::RETRIES);
        let files = if log.exists().await? { log.live_files(None).await? } else { Vec::new() };
        let files = files.into_iter().map(|file| file.path).collect();
        let mut tried = RequestsTried { log, dataset: dataset.clone(), files, newest: HashMap::new() };
        let mut newest = std::mem::take(&mut tried.newest);
        tried
            .each(&mut |row| {
                let there = newest.entry(row.hash()).or_insert(row.says);
                *there = row.says.max(*there);
            })
            .await?;
        tried.newest = newest;
        Ok(tried)
    }
}

impl RequestsTried {
    /// Whether any waits.
    pub(crate) fn any_waits(&self) -> bool {
        self.newest.values().any(|newest| !newest.is_applied && newest.waits)
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.newest.values().filter(|newest| !newest.is_applied && newest.waits).count() as u64
    }

    /// Whether no row of the request was seen so far.
    pub(crate) fn is_open(&self, id: &str) -> bool {
        self.newest.get(&hash(id)).is_some_and(|newest| !newest.is_applied)
    }

    /// Those of which no row was seen so far, as far as they are wanted: by their ids, and whether they wait.
    ///
    /// # Errors
    /// As reading a table.
    pub(crate) async fn open(&self, wanted: &(dyn Fn(&str, bool) -> bool + Sync)) -> Result<BTreeMap<String, Retry>> {
        let mut open = BTreeMap::new();
        if self.newest.values().all(|newest| newest.is_applied) {
            return Ok(open);
        }
        self.each(&mut |row| {
            let says = row.says;
            if !says.is_applied && self.newest.get(&row.hash()) == Some(&says) && wanted(row.id, says.waits) {
                open.insert(row.id.to_owned(), Retry { org: row.org.to_owned(), attempts: says.attempts, waits: says.waits });
            }
        })
        .await?;
        Ok(open)
    }

    async fn each(&self, visit: &mut (dyn FnMut(Row<'_>) + Send)) -> Result<()> {
        for file in &self.files {
            let columns = ["request_id", "org_id", "dataset", "attempts", "state"];
            for rows in self.log.read_columns(file, &columns).await? {
                Row::each(&rows?, &self.dataset, visit)?;
            }
        }
        Ok(())
    }
}

struct Row<'r> {
    id: &'r str,
    org: &'r str,
    says: Newest,
}

impl Row<'_> {
    fn hash(&self) -> u128 {
        hash(self.id)
    }

    fn each(rows: &RecordBatch, dataset: &DatasetName, visit: &mut dyn FnMut(Row<'_>)) -> Result<()> {
        let corrupt = || {
            Error::new(Kind::Corrupt, "the table retries holds what is no retry")
                .hint("another program wrote to it; restore it from a backup")
        };
        let text = |name: &str| -> Result<&StringArray> {
            rows.column_by_name(name).and_then(|c| c.as_string_opt::<i32>()).ok_or_else(corrupt)
        };
        let (ids, orgs, datasets, states) = (text("request_id")?, text("org_id")?, text("dataset")?, text("state")?);
        let attempts: &Int64Array =
            rows.column_by_name("attempts").and_then(|c| c.as_primitive_opt::<Int64Type>()).ok_or_else(corrupt)?;
        for row in (0..rows.num_rows()).filter(|row| datasets.is_valid(*row) && datasets.value(*row) == dataset.0) {
            let state = states.value(row);
            let says =
                Newest { is_applied: state == APPLIED, attempts: attempts.value(row).unsigned_abs(), waits: state == WAITING };
            visit(Row { id: ids.value(row), org: orgs.value(row), says });
        }
        Ok(())
    }
}

fn hash(id: &str) -> u128 {
    xxh3_128(id.as_bytes())
}
