//! How far jobs have come: chains with their last batches, sources with what waits in them, dead letters.
//!
//! Everything comes from listings, small files and logs; rows are read only where a log does not tell how many dead letters of
//! a dataset there are.

use std::collections::BTreeMap;

use alluvium_core::{
    BatchKey, BatchNumber, BatchOutcome, ChainId, Dataset, DatasetName, Error, Incarnation, Job, Kind, Result, Shard, Source,
    TableName, parse_data_file,
};
use alluvium_lake::{ChainStore, source_shards};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;

use super::changes::ConsumerStatus;
use crate::engine::Engine;
use crate::ingest::SourcePosition;
use crate::source::push_time;

/// A mark or record that vanishes between the listing and the look is looked for in a new listing so many times.
const MAX_LOOKS: u32 = 5;

/// How far a namespace's jobs have come.
#[derive(Debug)]
pub struct Status {
    /// The namespace.
    pub namespace: String,
    /// The storage, as the project file names it.
    pub storage: String,
    /// Whether anything was ever written in the namespace.
    pub used: bool,
    /// The datasets, in the order of the project file; after them `requests`, if requests can or did come in.
    pub datasets: Vec<DatasetStatus>,
    /// The named readers of changes.
    pub consumers: Result<Vec<ConsumerStatus>>,
}

/// One dataset.
#[derive(Debug)]
pub struct DatasetStatus {
    /// Its name.
    pub name: DatasetName,
    /// Its source; none for requests that come by submitting alone.
    pub source: Result<Option<SourcePosition>>,
    /// Refused records that are still dead letters.
    pub dead_letters: Result<u64>,
    /// Requests about it that are not settled.
    pub requests: Result<OpenRequests>,
    /// Its chains that have begun.
    pub chains: Result<Vec<ChainStatus>>,
}

/// Requests about a dataset that are not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenRequests {
    /// Accepted, and not yet applied to its table.
    pub pending: u64,
    /// Applied to its table, where no row was seen yet: those in `retries` that are tried again.
    pub waiting: u64,
}

/// One chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainStatus {
    /// The kind of work.
    pub job: Job,
    /// The piece of the source.
    pub shard: Shard,
    /// The newest finished batch.
    pub last: Option<LastBatch>,
    /// A recorded batch that is under way, or waits to be resumed.
    pub unfinished: Option<BatchKey>,
}

/// A finished batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastBatch {
    /// Its number.
    pub batch: BatchNumber,
    /// When it was committed, in milliseconds since 1970.
    pub committed_at_ms: i64,
    /// The version of the dataset's table that carries it.
    pub table_version: u64,
    /// What it did.
    pub outcome: BatchOutcome,
}

impl LastBatch {
    /// When it was committed, as RFC 3339 in UTC.
    #[must_use]
    pub fn committed_at(&self) -> String {
        let mut text = String::new();
        push_time(&mut text, i128::from(self.committed_at_ms) * 1_000_000, false);
        text
    }
}

impl Engine {
    /// How far the jobs of the namespace have come. What concerns one dataset and cannot be told is an error in its place.
    ///
    /// # Errors
    /// [`Kind::Conflict`] if the namespace is being deleted, [`Kind::Unavailable`] if the store failed.
    pub async fn status(&self) -> Result<Status> {
        let incarnation = self.existing_incarnation().await?;
        let letters = self.open_dead_letters().await;
        let mut datasets = Vec::new();
        let requests = &self.project.requests;
        for dataset in self.project.datasets.iter().chain([&requests.intake]) {
            let chains = match &incarnation {
                Some(incarnation) => self.chains(incarnation, dataset).await,
                None => Ok(Vec::new()),
            };
            let has_source = !dataset.is_requests() || requests.has_source;
            if !has_source && chains.as_ref().is_ok_and(Vec::is_empty) {
                continue;
            }
            datasets.push(DatasetStatus {
                name: dataset.name.clone(),
                source: match has_source {
                    true => self.source_position(dataset, incarnation.as_ref()).await.map(Some),
                    false => Ok(None),
                },
                dead_letters: match &letters {
                    Ok(counts) => Ok(counts.get(&dataset.name.0).copied().unwrap_or(0)),
                    Err(e) => Err(Error::new(e.kind(), e.message()).hint(e.hint_text().unwrap_or("see: alluvium tables"))),
                },
                requests: self.unsettled_requests(dataset).await,
                chains,
            });
        }
        Ok(Status {
            namespace: self.resolver.namespace().to_string(),
            storage: self.project.storage.clone(),
            used: incarnation.is_some(),
            datasets,
            consumers: self.consumers().await,
        })
    }

    async fn chains(&self, incarnation: &Incarnation, dataset: &Dataset) -> Result<Vec<ChainStatus>> {
        let mut chains = Vec::new();
        if !dataset.is_requests() {
            for shard in self.shards(dataset).await? {
                chains.extend(chain_status(&self.chain(incarnation, Job::Ingest, dataset, shard)).await?);
            }
        }
        for job in [Job::Mutate, Job::Retain] {
            chains.extend(chain_status(&self.chain(incarnation, job, dataset, Shard::WHOLE)).await?);
        }
        Ok(chains)
    }

    async fn unsettled_requests(&self, dataset: &Dataset) -> Result<OpenRequests> {
        if dataset.is_requests() {
            return Ok(OpenRequests::default());
        }
        let waiting = self.requests_tried(&dataset.name).await?.count_waiting().await?;
        Ok(OpenRequests { pending: self.requests_to_apply(dataset).await?, waiting })
    }

    /// The shards of a dataset's ingest, the replay of dead letters included.
    pub(crate) async fn shards(&self, dataset: &Dataset) -> Result<Vec<Shard>> {
        let cut = match &dataset.source {
            Source::Files(_) => None,
            Source::Kafka(_) => source_shards(&self.store, &self.resolver, &dataset.name).await?,
        };
        Ok((0..cut.map_or(1, |cut| cut.shards)).map(Shard).chain([Shard::REPLAY]).collect())
    }

    /// How many refused records of each dataset are dead letters now.
    async fn open_dead_letters(&self) -> Result<BTreeMap<String, u64>> {
        let Some(contents) = self.log(&TableName::DEAD_LETTERS).contents().await? else { return Ok(BTreeMap::new()) };
        let mut counts = BTreeMap::new();
        for file in &contents.files {
            match (file.rows, dataset_of(&file.path)) {
                (Some(rows), Some(dataset)) => *counts.entry(dataset).or_default() += rows,
                // Another program wrote this file, and only its rows tell whose they are.
                _ => return self.count_dead_letters().await,
            }
        }
        Ok(counts)
    }

    async fn count_dead_letters(&self) -> Result<BTreeMap<String, u64>> {
        let sql = "SELECT CAST(dataset AS VARCHAR), count(*) FROM raw.dead_letters WHERE dataset IS NOT NULL GROUP BY dataset";
        let mut rows = self.query(sql).await?;
        let mut counts = BTreeMap::new();
        while let Some(batch) = rows.next().await? {
            let names = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Utf8)
                .map_err(|e| Error::new(Kind::Internal, "counting dead letters").source(e))?;
            for (name, count) in names.as_string::<i32>().iter().zip(batch.column(1).as_primitive::<Int64Type>().iter()) {
                if let (Some(name), Some(count)) = (name, count) {
                    counts.insert(name.to_owned(), count.unsigned_abs());
                }
            }
        }
        Ok(counts)
    }
}

/// The dataset whose chain wrote a file of `dead_letters`: all its rows are that dataset's.
fn dataset_of(path: &str) -> Option<String> {
    let ChainId { job, dataset, .. } = parse_data_file(path)?.chain;
    (job == Job::Ingest || dataset.0 == Dataset::REQUESTS).then_some(dataset.0)
}

/// How far a chain has come; `None` if it has not begun.
async fn chain_status(chain: &ChainStore) -> Result<Option<ChainStatus>> {
    for _ in 0..MAX_LOOKS {
        let listing = chain.listing().await?;
        let Some(newest) = listing.newest() else { return Ok(None) };
        let unfinished = (!listing.done.contains(&newest.batch)).then_some(newest);
        let finished = if unfinished.is_some() { newest.batch.0 - 1 } else { newest.batch.0 };
        let mut status = ChainStatus { job: chain.chain().job, shard: chain.chain().shard, last: None, unfinished };
        if finished == 0 {
            return Ok(Some(status));
        }
        let mark = match chain.done_mark(BatchNumber(finished)).await {
            // Marks are not synced: a power cut may leave their names, which are what counts, without their bytes.
            Err(e) if e.kind() == Kind::Corrupt => return Ok(Some(status)),
            mark => mark?,
        };
        if let Some(mark) = mark {
            status.last = Some(LastBatch {
                batch: mark.batch,
                committed_at_ms: mark.committed_at_ms,
                table_version: mark.table_version,
                outcome: mark.outcome,
            });
            return Ok(Some(status));
        }
    }
    Err(Error::new(Kind::Corrupt, format!("the mark of the last finished batch of {} is gone", chain.chain().dataset))
        .hint("restore _alluvium/chains from a backup of the storage"))
}
