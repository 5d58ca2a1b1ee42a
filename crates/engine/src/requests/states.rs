//! What became of requests: which matched rows of a dataset, and which still wait for some. As rows of `retries` and `_alluvium/outcomes`.
//!
//! | a request that counts for the dataset | `retries` | state |
//! |---|---|---|
//! | matched a row when its batch was applied | nothing | applied |
//! | matched none | a row; each later batch that tries it and still sees none puts another in its place | waiting, after the last attempt unmatched |
//! | matched one later, that ingest took in or another request led to | a further row, which stays | applied |

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, Dataset, DatasetName, Error, Incarnation, Job, Kind, LedgerPosition, Mutation, RecordBody,
    Result, Shard, TableFiles, TableName, TableSpec, parse_data_file,
};
use alluvium_lake::{ChainStore, StageSettings, Stager, arrow_schema, blocking, in_place};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;
use rayon::prelude::*;

use super::counting::Matched;
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

/// A request, its organisation, its attempts.
type Tried = (String, Arc<str>, u64);

/// Writes what a batch says of requests: rows of `retries` and `_alluvium/outcomes`.
pub(crate) struct StateWriter<'a> {
    engine: &'a Engine,
    dataset: &'a DatasetName,
    settings: StageSettings,
    /// Of `retries`.
    stager: Stager,
    max_attempts: u64,
    /// By state, as a file holds requests of one.
    states: BTreeMap<&'static str, Vec<Tried>>,
}

impl<'a> StateWriter<'a> {
    pub(crate) fn new(engine: &'a Engine, dataset: &'a DatasetName, settings: &StageSettings) -> Self {
        let settings = StageSettings { org: None, index: None, ..settings.clone() };
        let spec = TableSpec::retries();
        let stager = Stager::new(&engine.log_of(&spec), &spec, settings.clone());
        let max_attempts = engine.project.requests.max_attempts;
        Self { engine, dataset, settings, stager, max_attempts, states: BTreeMap::new() }
    }

    /// No row of a request was seen, in so many attempts.
    pub(crate) async fn unseen(self, id: String, org: Arc<str>, attempts: u64) -> Result<Self> {
        let state = if attempts >= self.max_attempts { UNMATCHED } else { WAITING };
        self.push(state, id, org, attempts).await
    }

    /// A row of a request was seen, after so many attempts without.
    pub(crate) async fn seen(self, id: String, org: Arc<str>, attempts: u64) -> Result<Self> {
        self.push(APPLIED, id, org, attempts).await
    }

    async fn push(mut self, state: &'static str, id: String, org: Arc<str>, attempts: u64) -> Result<Self> {
        let of_state = self.states.entry(state).or_default();
        of_state.push((id, org, attempts));
        if of_state.len() < STATES_AT_ONCE {
            return Ok(self);
        }
        self.flush(state).await
    }

    async fn flush(mut self, state: &'static str) -> Result<Self> {
        let of_state = self.states.remove(state).unwrap_or_default();
        let rows = retry_rows(&of_state, state, self.dataset, &self.settings)?;
        let stager = self.stager;
        self.stager = blocking("encoding states of requests", move || stager.stage(vec![rows]).map(|()| stager)).await?;
        Ok(self)
    }

    /// The files: of `retries`, and of the outcomes of what rows matched.
    pub(crate) async fn finish(mut self, matched: &Matched) -> Result<(TableFiles, TableFiles)> {
        for state in [WAITING, UNMATCHED, APPLIED] {
            if self.states.contains_key(state) {
                self = self.flush(state).await?;
            }
        }
        let (retries, _) = self.stager.finish().await?;
        if matched.is_empty() {
            return Ok((retries, TableFiles::default()));
        }
        let spec = TableSpec::outcomes();
        let stager = Stager::new(&self.engine.log_of(&spec), &spec, self.settings.clone());
        let rows = outcome_rows(matched, self.dataset, &self.settings)?;
        let stager = blocking("encoding outcomes of requests", move || stager.stage(vec![rows]).map(|()| stager)).await?;
        Ok((retries, stager.finish().await?.0))
    }
}

fn retry_rows(retries: &[Tried], state: &str, dataset: &DatasetName, settings: &StageSettings) -> Result<RecordBatch> {
    let (rows, now_micros) = (retries.len(), settings.now_ms * 1000);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(retries.iter().map(|r| &r.0))),
        Arc::new(StringArray::from_iter_values(retries.iter().map(|r| &*r.1))),
        Arc::new(StringArray::from(vec![dataset.0.as_str(); rows])),
        Arc::new(Int64Array::from_iter_values(retries.iter().map(|r| r.2.cast_signed()))),
        // With the next batch.
        Arc::new(TimestampMicrosecondArray::from(vec![(state == WAITING).then_some(now_micros); rows]).with_timezone("UTC")),
        Arc::new(StringArray::from(vec![state; rows])),
        Arc::new(StringArray::from(vec![settings.chain.job.name(); rows])),
        Arc::new(Int64Array::from(vec![settings.key.batch.0.cast_signed(); rows])),
        Arc::new(TimestampMicrosecondArray::from(vec![now_micros; rows]).with_timezone("UTC")),
    ];
    RecordBatch::try_new(arrow_schema(&TableSpec::retries()), columns).map_err(internal)
}

fn outcome_rows(matched: &Matched, dataset: &DatasetName, settings: &StageSettings) -> Result<RecordBatch> {
    let (rows, now_micros) = (matched.len(), settings.now_ms * 1000);
    let mut matched: Vec<(&String, &(Arc<str>, u64))> = matched.iter().collect();
    in_place(|| matched.par_sort_unstable());
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(matched.iter().map(|(id, _)| id))),
        Arc::new(StringArray::from_iter_values(matched.iter().map(|(_, (org, _))| &**org))),
        Arc::new(StringArray::from(vec![dataset.0.as_str(); rows])),
        Arc::new(StringArray::from(vec![settings.chain.job.name(); rows])),
        Arc::new(Int64Array::from(vec![settings.key.batch.0.cast_signed(); rows])),
        Arc::new(Int64Array::from_iter_values(matched.iter().map(|(_, (_, rows))| rows.cast_signed()))),
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
        let newest = chain.listing().await?.newest_done().unwrap_or(BatchNumber(0));
        Ok(mutation_of(&chain, newest).await?.map_or(LedgerPosition::BEGINNING, |mutation| mutation.told))
    }

    /// What a batch's files of outcomes tell.
    pub(crate) async fn matched_in(&self, outcomes: &TableFiles) -> Result<Matched> {
        let log = self.log(&TableName::OUTCOMES);
        let mut matched = Matched::new();
        for file in &outcomes.adds {
            for rows in log.read_file(&file.path).await? {
                let counts = rows.column_by_name("rows").and_then(|c| c.as_primitive_opt::<Int64Type>());
                let (ids, orgs, counts) = (text(&rows, "request_id")?, text(&rows, "org_id")?, counts.ok_or_else(unreadable)?);
                for row in 0..rows.num_rows() {
                    let of_id = matched.entry(ids.value(row).to_owned()).or_insert_with(|| (Arc::from(orgs.value(row)), 0));
                    of_id.1 += counts.value(row).unsigned_abs();
                }
            }
        }
        Ok(matched)
    }

    /// Those of the requests of which rows of the dataset were matched on their way in.
    pub(crate) async fn matched_at_ingest(&self, dataset: &DatasetName, requests: &[NewRequest]) -> Result<HashSet<String>> {
        let log = self.log(&TableName::OUTCOMES);
        let mut matched = HashSet::new();
        if requests.is_empty() || !log.exists().await? {
            return Ok(matched);
        }
        let asked: HashSet<&str> = requests.iter().map(|request| request.id.as_str()).collect();
        for file in log.live_files(None).await? {
            if parse_data_file(&file.path).is_some_and(|name| name.chain.job != Job::Ingest || name.chain.dataset != *dataset) {
                continue;
            }
            for rows in log.read_columns(&file.path, &["request_id", "dataset"]).await? {
                let rows = rows?;
                let (ids, datasets) = (text(&rows, "request_id")?, text(&rows, "dataset")?);
                let of_dataset = |row: &usize| datasets.is_valid(*row) && datasets.value(*row) == dataset.0;
                let told = (0..rows.num_rows()).filter(of_dataset).filter(|row| ids.is_valid(*row)).map(|row| ids.value(row));
                matched.extend(told.filter(|id| asked.contains(id)).map(str::to_owned));
            }
        }
        Ok(matched)
    }
}

fn unreadable() -> Error {
    Error::new(Kind::Corrupt, "what is remembered of requests cannot be read")
}

fn text<'r>(rows: &'r RecordBatch, column: &str) -> Result<&'r StringArray> {
    rows.column_by_name(column).and_then(|c| c.as_string_opt::<i32>()).ok_or_else(unreadable)
}

/// What a finished batch of a chain of mutations did, by the attempt that its table carries: with another memory budget another attempt
/// may have told of fewer requests. Where its mark is lost, by the newest attempt that was no void one. `None` of batch 0.
pub(crate) async fn mutation_of(chain: &ChainStore, batch: BatchNumber) -> Result<Option<Mutation>> {
    if batch.0 == 0 {
        return Ok(None);
    }
    let attempts: Vec<Attempt> = match chain.done_mark(batch).await? {
        Some(mark) => vec![mark.attempt],
        None => chain.listing().await?.records.get(&batch).into_iter().flatten().rev().copied().collect(),
    };
    for attempt in attempts {
        let record = chain.record(BatchKey { batch, attempt }).await?;
        if let Some(RecordBody::Intent(recorded)) = record.map(|record| record.body) {
            return Ok(recorded.mutation);
        }
    }
    Err(Error::new(Kind::Unavailable, format!("batch {batch} of mutations is finished, and its record is gone"))
        .hint("run again; restore _alluvium/chains from a backup if that does not help"))
}
