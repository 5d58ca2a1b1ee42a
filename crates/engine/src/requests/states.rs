//! What became of requests: which matched rows of a dataset, and which still wait for some. As rows of `retries` and `_alluvium/outcomes`.
//!
//! | a request that counts for the dataset | `retries` | state |
//! |---|---|---|
//! | matched a row when its batch was applied | nothing | applied |
//! | matched none | a row, one more with each later batch that still sees none | waiting, after the last attempt unmatched |
//! | matched one later, that ingest took in or another request led to | a last row | applied |

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use alluvium_core::{
    BatchKey, Dataset, DatasetName, Error, Incarnation, Job, Kind, LedgerPosition, Mutation, RecordBody, Result, Shard,
    TableFiles, TableName, TableSpec, parse_data_file,
};
use alluvium_lake::{ChainStore, StageSettings, Stager, arrow_schema, blocking};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};

use super::counting::Matched;
use super::open::Retries;
use crate::engine::Engine;

/// A request's state in a dataset, as `retries` spells it.
pub(crate) const WAITING: &str = "waiting";
pub(crate) const UNMATCHED: &str = "unmatched";
pub(crate) const APPLIED: &str = "applied";

/// So many states are made into a file at a time.
const STATES_AT_ONCE: usize = 1 << 18;

/// A request that has no state in the dataset yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewRequest {
    pub(crate) id: String,
    pub(crate) org: Arc<str>,
}

/// Rows of `retries` and `_alluvium/outcomes` that a batch adds.
#[derive(Debug, Default)]
pub(crate) struct StateChanges<'r> {
    /// Request, organisation, attempts; by state.
    retries: BTreeMap<&'static str, Vec<(&'r str, &'r str, u64)>>,
    matched: Matched,
}

impl<'r> StateChanges<'r> {
    pub(crate) fn is_empty(&self) -> bool {
        self.retries.is_empty() && self.matched.is_empty()
    }

    /// What a batch says of requests: those of `new` had no state in the dataset yet, though some may have matched rows on their way in; `open` are those that wait, or did too often.
    /// Without `tries`, those that still match nothing are left as they are.
    pub(crate) fn plan(
        new: &'r [NewRequest],
        matched_before: &HashSet<String>,
        open: &'r Retries,
        matched: Matched,
        tries: bool,
        max_attempts: u64,
    ) -> Self {
        let mut retries: BTreeMap<&'static str, Vec<_>> = BTreeMap::new();
        let attempted = |attempts: u64| if attempts >= max_attempts { UNMATCHED } else { WAITING };
        let was_seen = |id: &String| matched.contains_key(id) || matched_before.contains(id);
        for NewRequest { id, org } in new.iter().filter(|request| !was_seen(&request.id)) {
            retries.entry(attempted(1)).or_default().push((id.as_str(), &**org, 1));
        }
        for (id, retry) in open {
            if matched.contains_key(id) {
                retries.entry(APPLIED).or_default().push((id, &retry.org, retry.attempts));
            } else if tries && retry.waits {
                let attempts = retry.attempts + 1;
                retries.entry(attempted(attempts)).or_default().push((id, &retry.org, attempts));
            }
        }
        Self { retries, matched }
    }

    /// Stages the rows for a batch.
    pub(crate) async fn stage(
        self,
        engine: &Engine,
        dataset: &DatasetName,
        settings: &StageSettings,
    ) -> Result<(TableFiles, TableFiles)> {
        let now_micros = settings.now_ms * 1000;
        let job = settings.chain.job;
        let retries = async {
            if self.retries.is_empty() {
                return Ok(TableFiles::default());
            }
            // A file holds requests of one state.
            let parts: Vec<_> =
                self.retries.iter().flat_map(|(state, all)| all.chunks(STATES_AT_ONCE).map(|some| (*state, some))).collect();
            let rows = |part: usize| retry_rows(parts[part].1, parts[part].0, dataset, job, settings.key, now_micros);
            stage(engine, &TableSpec::retries(), settings, parts.len(), &rows).await
        };
        let outcomes = async {
            if self.matched.is_empty() {
                return Ok(TableFiles::default());
            }
            let rows = |_| outcome_rows(&self.matched, dataset, job, settings.key, now_micros);
            stage(engine, &TableSpec::outcomes(), settings, 1, &rows).await
        };
        futures::future::try_join(retries, outcomes).await
    }
}

/// A file for each of so many parts.
async fn stage(
    engine: &Engine,
    spec: &TableSpec,
    settings: &StageSettings,
    parts: usize,
    rows: &(dyn Fn(usize) -> Result<RecordBatch> + Sync),
) -> Result<TableFiles> {
    let settings = StageSettings { org: None, index: None, ..settings.clone() };
    let mut stager = Stager::new(&engine.log_of(spec), spec, settings);
    for part in 0..parts {
        let rows = rows(part)?;
        stager = blocking("encoding states of requests", move || stager.stage(vec![rows]).map(|()| stager)).await?;
    }
    Ok(stager.finish().await?.0)
}

fn retry_rows(
    retries: &[(&str, &str, u64)],
    state: &str,
    dataset: &DatasetName,
    job: Job,
    key: BatchKey,
    now_micros: i64,
) -> Result<RecordBatch> {
    let rows = retries.len();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(retries.iter().map(|r| r.0))),
        Arc::new(StringArray::from_iter_values(retries.iter().map(|r| r.1))),
        Arc::new(StringArray::from(vec![dataset.0.as_str(); rows])),
        Arc::new(Int64Array::from_iter_values(retries.iter().map(|r| r.2.cast_signed()))),
        // With the next batch.
        Arc::new(TimestampMicrosecondArray::from(vec![(state == WAITING).then_some(now_micros); rows]).with_timezone("UTC")),
        Arc::new(StringArray::from(vec![state; rows])),
        Arc::new(StringArray::from(vec![job.name(); rows])),
        Arc::new(Int64Array::from(vec![key.batch.0.cast_signed(); rows])),
        Arc::new(TimestampMicrosecondArray::from(vec![now_micros; rows]).with_timezone("UTC")),
    ];
    RecordBatch::try_new(arrow_schema(&TableSpec::retries()), columns).map_err(internal)
}

fn outcome_rows(matched: &Matched, dataset: &DatasetName, job: Job, key: BatchKey, now_micros: i64) -> Result<RecordBatch> {
    let rows = matched.len();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(matched.keys())),
        Arc::new(StringArray::from_iter_values(matched.values().map(|(org, _)| org))),
        Arc::new(StringArray::from(vec![dataset.0.as_str(); rows])),
        Arc::new(StringArray::from(vec![job.name(); rows])),
        Arc::new(Int64Array::from(vec![key.batch.0.cast_signed(); rows])),
        Arc::new(Int64Array::from_iter_values(matched.values().map(|(_, rows)| rows.cast_signed()))),
        Arc::new(TimestampMicrosecondArray::from(vec![now_micros; rows]).with_timezone("UTC")),
    ];
    RecordBatch::try_new(arrow_schema(&TableSpec::outcomes()), columns).map_err(internal)
}

fn internal(error: arrow::error::ArrowError) -> Error {
    Error::new(Kind::Internal, "collecting states of requests").source(error)
}

impl Engine {
    /// Up to which position of the ledger every request has a state in the dataset.
    pub(crate) async fn requests_told(&self, incarnation: &Incarnation, dataset: &Dataset) -> Result<LedgerPosition> {
        let chain = self.chain(incarnation, Job::Mutate, dataset, Shard::WHOLE);
        Ok(newest_mutation(&chain).await?.map_or(LedgerPosition::BEGINNING, |mutation| mutation.told))
    }

    /// The requests that a batch's files of outcomes tell of.
    pub(crate) async fn told_in(&self, outcomes: &TableFiles) -> Result<HashSet<String>> {
        let log = self.log(&TableName::OUTCOMES);
        let mut told = HashSet::new();
        for file in &outcomes.adds {
            for rows in log.read_file(&file.path).await? {
                take_ids(&rows, None, &mut told)?;
            }
        }
        Ok(told)
    }

    /// The requests of which rows of the dataset were matched on their way in.
    pub(crate) async fn matched_at_ingest(&self, dataset: &DatasetName) -> Result<HashSet<String>> {
        let log = self.log(&TableName::OUTCOMES);
        let mut matched = HashSet::new();
        if !log.exists().await? {
            return Ok(matched);
        }
        for file in log.live_files(None).await? {
            if parse_data_file(&file.path).is_some_and(|name| name.chain.job != Job::Ingest || name.chain.dataset != *dataset) {
                continue;
            }
            for rows in log.read_columns(&file.path, &["request_id", "dataset"]).await? {
                take_ids(&rows?, Some(dataset), &mut matched)?;
            }
        }
        Ok(matched)
    }
}

fn take_ids(rows: &RecordBatch, of: Option<&DatasetName>, ids: &mut HashSet<String>) -> Result<()> {
    let corrupt = || Error::new(Kind::Corrupt, "what is remembered of requests cannot be read");
    let text = |name: &str| rows.column_by_name(name).and_then(|c| c.as_string_opt::<i32>()).ok_or_else(corrupt);
    let (named, datasets) = (text("request_id")?, text("dataset")?);
    for row in 0..rows.num_rows() {
        if named.is_valid(row) && of.is_none_or(|of| datasets.is_valid(row) && datasets.value(row) == of.0) {
            ids.insert(named.value(row).to_owned());
        }
    }
    Ok(())
}

/// What the newest finished batch of a chain of mutations did.
pub(crate) async fn newest_mutation(chain: &ChainStore) -> Result<Option<Mutation>> {
    let listing = chain.listing().await?;
    let Some(batch) = listing.newest_done() else { return Ok(None) };
    for attempt in listing.records.get(&batch).into_iter().flatten().rev() {
        let record = chain.record(BatchKey { batch, attempt: *attempt }).await?;
        if let Some(RecordBody::Intent(recorded)) = record.map(|r| r.body) {
            // All attempts at a batch go to the same position, and tell of the same requests.
            return Ok(recorded.mutation);
        }
    }
    Ok(None)
}
