//! The requests of which no row of a dataset was seen: those that wait, and those that did too often. Read from the table `retries`.
//!
//! A data file there holds requests of one dataset in one state, which its statistics in the log tell. A batch of a mutation that tries
//! what waits writes all of it anew and takes the files away that held it, so of each request that waits one row is live. Files of
//! requests that were given up, and of those whose rows came at last, stay; they are not read but by those who look for some ids.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use alluvium_core::{DatasetName, Error, Kind, Result, TableName, parse_data_file};
use alluvium_lake::DeltaLog;
use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use xxhash_rust::xxh3::xxh3_128;

use super::states::{APPLIED, UNMATCHED, WAITING};
use crate::engine::Engine;

/// Files that are read at the same time, at most.
const FILES_AT_ONCE: usize = 4;

/// A request of which no row was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) org: Arc<str>,
    pub(crate) attempts: u64,
    /// Whether it is tried again.
    pub(crate) waits: bool,
}

/// Requests by their ids.
pub(crate) type Retries = BTreeMap<String, Retry>;

/// Which rows of a file are wanted, by the hashes of their requests' ids; without, all are.
type Asked = Option<Arc<HashSet<u128>>>;

/// The requests of one dataset that have rows in `retries`.
pub(crate) struct RequestsTried {
    log: DeltaLog,
    dataset: DatasetName,
    files: Vec<TriedFile>,
}

struct TriedFile {
    path: String,
    /// The state of all its requests. Only another program writes files that hold several, or requests of several datasets.
    state: Option<String>,
}

impl TriedFile {
    fn may_hold(&self, state: &str) -> bool {
        self.state.as_deref().is_none_or(|only| only == state)
    }
}

impl Engine {
    /// The requests of the dataset that were tried without a row.
    ///
    /// # Errors
    /// As reading a table.
    pub(crate) async fn requests_tried(&self, dataset: &DatasetName) -> Result<RequestsTried> {
        let log = self.log(&TableName::RETRIES);
        let files = if log.exists().await? { log.live_files_by("state").await? } else { Vec::new() };
        let is_of = |path: &str| parse_data_file(path).is_none_or(|name| name.chain.dataset == *dataset);
        let files = files
            .into_iter()
            .filter(|(file, _)| is_of(&file.path))
            .map(|(file, state)| TriedFile { state: state.filter(|_| parse_data_file(&file.path).is_some()), path: file.path })
            .collect();
        Ok(RequestsTried { log, dataset: dataset.clone(), files })
    }
}

impl RequestsTried {
    /// Whether any may wait.
    pub(crate) fn any_waits(&self) -> bool {
        self.files.iter().any(|file| file.state.as_deref() == Some(WAITING))
    }

    /// The files that hold nothing but requests that wait.
    pub(crate) fn files_of_waiting(&self) -> Vec<String> {
        let all = self.files.iter().filter(|file| file.state.as_deref() == Some(WAITING));
        all.map(|file| file.path.clone()).collect()
    }

    /// Those that wait, the requests of one file at a time. Of what another program left mixed in one file nothing waits.
    pub(crate) async fn waiting(&self) -> Result<impl Stream<Item = Result<Vec<(String, Retry)>>> + Send + Unpin + 'static> {
        let mut applied: HashSet<u128> = HashSet::new();
        for file in self.files.iter().filter(|file| file.may_hold(APPLIED)) {
            let rows = read(&self.log, &file.path, &self.dataset, true, None).await?;
            applied.extend(rows.iter().map(|(id, _)| hash(id)));
        }
        let (log, dataset, applied) = (self.log.clone(), self.dataset.clone(), Arc::new(applied));
        let reads = self.files_of_waiting().into_iter().map(move |path| {
            let (log, dataset, applied) = (log.clone(), dataset.clone(), applied.clone());
            async move {
                let mut waiting = read(&log, &path, &dataset, false, None).await?;
                waiting.retain(|(id, _)| !applied.contains(&hash(id)));
                Ok(waiting)
            }
            .boxed()
        });
        Ok(stream::iter(reads).buffered(1))
    }

    /// How many wait.
    ///
    /// # Errors
    /// As reading a table.
    pub(crate) async fn count_waiting(&self) -> Result<u64> {
        self.waiting().await?.try_fold(0, |sum, of_file| async move { Ok(sum + of_file.len() as u64) }).await
    }

    /// Those of some requests of which no row was seen so far.
    ///
    /// # Errors
    /// As reading a table.
    pub(crate) async fn among(&self, ids: &[&str]) -> Result<Retries> {
        let asked: HashSet<u128> = ids.iter().map(|id| hash(id)).collect();
        if asked.is_empty() || self.files.is_empty() {
            return Ok(Retries::new());
        }
        let asked = Some(Arc::new(asked));
        let mut open = self.read(WAITING, asked.clone()).await?;
        open.extend(self.read(UNMATCHED, asked.clone()).await?);
        for id in self.read(APPLIED, asked).await?.keys() {
            open.remove(id);
        }
        Ok(open)
    }

    /// The requests in the files that may hold a state: of `applied` those that have it, else those of which a row says that no row was
    /// seen. Of several rows of a request the one with the most attempts counts.
    async fn read(&self, state: &'static str, asked: Asked) -> Result<Retries> {
        let files: Vec<String> = self.files.iter().filter(|file| file.may_hold(state)).map(|file| file.path.clone()).collect();
        let reads = files.into_iter().map(|path| {
            let (log, dataset, asked) = (self.log.clone(), self.dataset.clone(), asked.clone());
            async move {
                let read = tokio::spawn(async move { read(&log, &path, &dataset, state == APPLIED, asked.as_deref()).await });
                read.await.map_err(|e| Error::new(Kind::Internal, "reading what was tried").source(e))?
            }
        });
        let mut reads = stream::iter(reads).buffer_unordered(FILES_AT_ONCE);
        let mut all: Vec<(String, Retry)> = Vec::new();
        while let Some(mut of_file) = reads.try_next().await? {
            all.append(&mut of_file);
        }
        // The newest of each first.
        all.sort_unstable_by(|(a, of_a), (b, of_b)| a.cmp(b).then((of_b.attempts, of_b.waits).cmp(&(of_a.attempts, of_a.waits))));
        all.dedup_by(|(a, _), (b, _)| a == b);
        Ok(all.into_iter().collect())
    }
}

async fn read(
    log: &DeltaLog,
    path: &str,
    dataset: &DatasetName,
    applied: bool,
    asked: Option<&HashSet<u128>>,
) -> Result<Vec<(String, Retry)>> {
    let corrupt = || {
        Error::new(Kind::Corrupt, "the table retries holds what is no retry")
            .hint("another program wrote to it; restore it from a backup")
    };
    let (mut found, mut known_orgs) = (Vec::new(), HashSet::<Arc<str>>::new());
    for rows in log.read_columns(path, &["request_id", "org_id", "dataset", "attempts", "state"]).await? {
        let rows: RecordBatch = rows?;
        let text = |name: &str| -> Result<&StringArray> {
            rows.column_by_name(name).and_then(|c| c.as_string_opt::<i32>()).ok_or_else(corrupt)
        };
        let (ids, orgs, datasets, states) = (text("request_id")?, text("org_id")?, text("dataset")?, text("state")?);
        let attempts: &Int64Array =
            rows.column_by_name("attempts").and_then(|c| c.as_primitive_opt::<Int64Type>()).ok_or_else(corrupt)?;
        for row in 0..rows.num_rows() {
            let (id, state) = (ids.value(row), states.value(row));
            if datasets.value(row) != dataset.0 || (state == APPLIED) != applied || asked.is_some_and(|a| !a.contains(&hash(id)))
            {
                continue;
            }
            if !known_orgs.contains(orgs.value(row)) {
                known_orgs.insert(orgs.value(row).into());
            }
            let org = known_orgs.get(orgs.value(row)).cloned().ok_or_else(corrupt)?;
            let retry = Retry { org, attempts: attempts.value(row).unsigned_abs(), waits: state == WAITING };
            found.push((id.to_owned(), retry));
        }
    }
    Ok(found)
}

fn hash(id: &str) -> u128 {
    xxh3_128(id.as_bytes())
}
