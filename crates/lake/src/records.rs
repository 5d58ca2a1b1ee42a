//! The records of a chain: what its batches intend, and which are finished. The forms are in `docs/formats/batch-record.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, BatchRecord, BatchSpan, ChainFile, ChainId, DoneMark, Error, Incarnation, Kind,
    RECORD_FORMAT, Range, RecordBody, Resolver, Result,
};
use bytes::Bytes;
use object_store::path::Path;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::store::{PutNew, Store};

/// One chain's directory.
#[derive(Debug, Clone)]
pub struct ChainStore {
    store: Store,
    resolver: Resolver,
    chain: ChainId,
    /// What the record that this process wrote last says was read: what stands at a record's name never changes.
    last_written: Arc<Mutex<Option<(BatchKey, RecordedRange)>>>,
}

/// What stands in a chain's directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChainListing {
    /// The attempts recorded for each batch, ascending.
    pub records: BTreeMap<BatchNumber, BTreeSet<Attempt>>,
    /// The finished batches.
    pub done: BTreeSet<BatchNumber>,
    /// The segments of taken files.
    pub taken: Vec<BatchSpan>,
}

impl ChainListing {
    /// The newest record.
    #[must_use]
    pub fn newest(&self) -> Option<BatchKey> {
        let (batch, attempts) = self.records.last_key_value()?;
        attempts.last().map(|attempt| BatchKey { batch: *batch, attempt: *attempt })
    }

    /// The records and marks of the batches before one.
    #[must_use]
    pub fn before(&self, batch: BatchNumber) -> Vec<ChainFile> {
        let record = |(batch, attempts): (&BatchNumber, &BTreeSet<Attempt>)| {
            let batch = *batch;
            attempts.iter().map(move |attempt| ChainFile::Record(BatchKey { batch, attempt: *attempt })).collect::<Vec<_>>()
        };
        let marks = self.done.range(..batch).map(|done| ChainFile::Done(*done));
        self.records.range(..batch).flat_map(record).chain(marks).collect()
    }

    /// The newest finished batch.
    #[must_use]
    pub fn newest_done(&self) -> Option<BatchNumber> {
        self.done.last().copied()
    }
}

/// When the oldest record was put whose batch may be under way, of all chains of a life of the namespace, in milliseconds since 1970 by the store's
/// clock; `None`: there is none. What is void is not under way.
///
/// # Errors
/// [`Kind::Unavailable`] if the store failed, otherwise as [`ChainStore::record`].
pub async fn unfinished_since(store: &Store, resolver: &Resolver, incarnation: &Incarnation) -> Result<Option<i64>> {
    let mut done: BTreeMap<String, BatchNumber> = BTreeMap::new();
    let mut recorded: Vec<(String, BatchNumber, Path, i64)> = Vec::new();
    for found in store.list(&Path::from(resolver.chains_dir()).join(incarnation.0.as_str()), None).await? {
        let Some((directory, name)) = found.path.as_ref().rsplit_once('/') else { continue };
        match ChainFile::parse(name) {
            Some(ChainFile::Done(batch)) => {
                let last = done.entry(directory.to_owned()).or_insert(batch);
                *last = batch.max(*last);
            }
            Some(ChainFile::Record(key)) => {
                recorded.push((directory.to_owned(), key.batch, found.path.clone(), found.modified_ms));
            }
            Some(ChainFile::Taken { .. }) | None => {}
        }
    }
    let mut since: Option<i64> = None;
    for (directory, batch, path, recorded_ms) in recorded {
        if done.get(&directory).is_some_and(|last| *last >= batch) || since.is_some_and(|since| since <= recorded_ms) {
            continue;
        }
        // One that is gone was dropped because its batch is long finished.
        let Some(bytes) = store.get(&path).await? else { continue };
        let record: BatchRecord = read_versioned(&bytes, RECORD_FORMAT, path.as_ref())?;
        if record.body != RecordBody::Void {
            since = Some(recorded_ms);
        }
    }
    Ok(since)
}

impl ChainStore {
    /// The chain's directory in the namespace of `resolver`.
    #[must_use]
    pub fn new(store: &Store, resolver: &Resolver, chain: ChainId) -> Self {
        Self { store: store.clone(), resolver: resolver.clone(), chain, last_written: Arc::default() }
    }

    /// The chain.
    #[must_use]
    pub fn chain(&self) -> &ChainId {
        &self.chain
    }

    /// What stands in the directory now.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn listing(&self) -> Result<ChainListing> {
        let directory = Path::from(self.resolver.chain_dir(&self.chain));
        let mut listing = ChainListing::default();
        for found in self.store.list(&directory, None).await? {
            match found.path.filename().and_then(ChainFile::parse) {
                Some(ChainFile::Record(key)) => {
                    listing.records.entry(key.batch).or_default().insert(key.attempt);
                }
                Some(ChainFile::Done(batch)) => {
                    listing.done.insert(batch);
                }
                Some(ChainFile::Taken { from, to }) => {
                    listing.taken.extend(BatchSpan::new(BatchNumber(from.0.saturating_sub(1)), to));
                }
                None => {}
            }
        }
        Ok(listing)
    }

    /// The record at `key`.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if it cannot be read or is another chain's, [`Kind::Unsupported`] if a newer program wrote it.
    pub async fn record(&self, key: BatchKey) -> Result<Option<BatchRecord>> {
        let path = self.resolver.record(&self.chain, key);
        let record: Option<BatchRecord> = self.read(&path).await?;
        record.map(|r| if r.chain == self.chain && r.key() == key { Ok(r) } else { Err(misplaced(&path)) }).transpose()
    }

    /// What the attempt of the record at `key` read; `None` if nothing stands there, or it is void. Costs less memory than
    /// [`ChainStore::record`], which holds the names and statistics of all files.
    ///
    /// # Errors
    /// As [`ChainStore::record`].
    pub async fn recorded_range(&self, key: BatchKey) -> Result<Option<RecordedRange>> {
        if let Some((_, range)) = self.last_written().as_ref().filter(|(last, _)| *last == key) {
            return Ok(Some(range.clone()));
        }
        let path = self.resolver.record(&self.chain, key);
        match self.read::<RangeOfRecord>(&path).await? {
            None => Ok(None),
            Some(r) if r.chain != self.chain || (r.batch, r.attempt) != (key.batch, key.attempt) => Err(misplaced(&path)),
            Some(r) => Ok(match r.body {
                RangeOfBody::Void => None,
                RangeOfBody::Intent(range) => Some(range),
            }),
        }
    }

    /// The mark that `batch` is finished.
    ///
    /// # Errors
    /// As [`ChainStore::record`].
    pub async fn done_mark(&self, batch: BatchNumber) -> Result<Option<DoneMark>> {
        self.read(&self.resolver.done_mark(&self.chain, batch)).await
    }

    /// Writes a record where none stands. On [`PutNew::Created`] the batch is inevitable, and its range fixed.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed: the record may be there or not; read the chain again.
    pub async fn write(&self, record: &BatchRecord) -> Result<PutNew> {
        let bytes = serde_json::to_vec(record).map_err(|e| Error::new(Kind::Internal, "writing a batch record").source(e))?;
        let put = self.store.put_new(&Path::from(self.resolver.record(&self.chain, record.key())), Bytes::from(bytes)).await?;
        if let (PutNew::Created, RecordBody::Intent(recorded)) = (put, &record.body) {
            *self.last_written() = Some((record.key(), RecordedRange { range: recorded.range.clone() }));
        }
        Ok(put)
    }

    fn last_written(&self) -> MutexGuard<'_, Option<(BatchKey, RecordedRange)>> {
        self.last_written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a batch as finished. Durable on return: a lost mark costs a look at the tables, but one of which a power cut leaves the name
    /// alone is no mark that can be read.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn mark_done(&self, mark: &DoneMark) -> Result<()> {
        let bytes = serde_json::to_vec(mark).map_err(|e| Error::new(Kind::Internal, "marking a batch as done").source(e))?;
        let path = Path::from(self.resolver.done_mark(&self.chain, mark.batch));
        let _who_marked_it_first_does_not_matter = self.store.put_new(&path, Bytes::from(bytes)).await?;
        Ok(())
    }

    /// The bytes of a segment of taken files.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn taken_segment(&self, span: BatchSpan) -> Result<Option<Bytes>> {
        self.store.get(&self.segment_path(span)).await
    }

    /// Writes a segment of taken files. Durable on return.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn write_taken_segment(&self, span: BatchSpan, bytes: Bytes) -> Result<()> {
        let _all_writers_write_the_same = self.store.put_new(&self.segment_path(span), bytes).await?;
        Ok(())
    }

    fn segment_path(&self, span: BatchSpan) -> Path {
        Path::from(self.resolver.taken_segment(&self.chain, span.from.next(), span.to))
    }

    /// Deletes files of the chain's directory in this order; those that are not there are fine.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn delete(&self, files: &[ChainFile]) -> Result<()> {
        let path = |file: &ChainFile| match *file {
            ChainFile::Record(key) => self.resolver.record(&self.chain, key),
            ChainFile::Done(batch) => self.resolver.done_mark(&self.chain, batch),
            ChainFile::Taken { from, to } => self.resolver.taken_segment(&self.chain, from, to),
        };
        self.store.delete_all(files.iter().map(|file| Path::from(path(file))).collect()).await
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let Some(bytes) = self.store.get(&Path::from(path)).await? else { return Ok(None) };
        read_versioned(&bytes, RECORD_FORMAT, path).map(Some)
    }
}

fn misplaced(path: &str) -> Error {
    Error::new(Kind::Corrupt, format!("{path} holds the record of another batch"))
        .hint("it was copied there: restore _alluvium/chains from a backup of the storage")
}

/// Reads one of our JSON files, which all have a `format` number.
pub(crate) fn read_versioned<T: DeserializeOwned>(bytes: &[u8], newest_format: u32, path: &str) -> Result<T> {
    let corrupt = |e: serde_json::Error| {
        Error::new(Kind::Corrupt, format!("{path} is damaged")).hint("restore it from a backup of the storage").source(e)
    };
    // Not by way of a `Value`: a record may name thousands of files, and as a tree they take many times their text.
    let Formatted { format } = serde_json::from_slice(bytes).map_err(corrupt)?;
    match format {
        Some(format) if format > u64::from(newest_format) => {
            Err(Error::new(Kind::Unsupported, format!("{path} has format {format}, this program reads up to {newest_format}"))
                .hint("a newer alluvium wrote here: use that version or a newer one"))
        }
        _ => serde_json::from_slice(bytes).map_err(corrupt),
    }
}

/// The part of all our JSON files that tells how to read the rest.
#[derive(Deserialize)]
struct Formatted {
    format: Option<u64>,
}

/// What a record says was read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RecordedRange {
    /// The range of source positions.
    pub range: Range,
}

/// A [`BatchRecord`] without what it stages.
#[derive(Deserialize)]
struct RangeOfRecord {
    #[serde(flatten)]
    chain: ChainId,
    batch: BatchNumber,
    attempt: Attempt,
    body: RangeOfBody,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RangeOfBody {
    Void,
    Intent(RecordedRange),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use alluvium_core::{DatasetName, Incarnation, Job, Namespace, Shard};
    use object_store::memory::InMemory;

    use super::*;

    const GOLDEN: &str = include_str!("../../core/tests/golden/batch-record-v1.json");
    const VOID: &str = include_str!("../../core/tests/golden/batch-record-void-v1.json");

    fn chain_of(incarnation: &str, shard: Shard) -> ChainStore {
        let incarnation = Incarnation(incarnation.to_owned());
        let chain = ChainId { incarnation, job: Job::Ingest, dataset: DatasetName("edit".to_owned()), shard };
        ChainStore::new(&Store::over(Arc::new(InMemory::new())), &Resolver::new(Namespace::default()), chain)
    }

    /// What is read back of a record that stands in the chain as `text`.
    async fn range_of(chain: &ChainStore, text: &str) -> Result<Option<RecordedRange>> {
        let key = BatchKey { batch: BatchNumber(7), attempt: Attempt(1) };
        let path = Path::from(chain.resolver.record(&chain.chain, key));
        assert_eq!(chain.store.put_new(&path, Bytes::from(text.to_owned())).await.unwrap(), PutNew::Created);
        chain.recorded_range(key).await
    }

    #[tokio::test]
    async fn the_range_of_a_record_is_read_without_the_rest() {
        let chain = chain_of("0123456789abcdef0123456789abcdef", Shard::WHOLE);
        let Range::Files(files) = range_of(&chain, GOLDEN).await.unwrap().unwrap().range else { panic!("not of files") };
        let found: Vec<_> = files.iter().map(|f| (f.path.as_str(), f.from.record, f.to.map(|to| to.record))).collect();
        assert_eq!(found, [("2026/a.json.gz", 10, None), ("2026/b.json", 0, Some(3))]);
    }

    #[tokio::test]
    async fn a_void_record_has_no_range_and_that_of_another_chain_is_refused() {
        assert_eq!(range_of(&chain_of("another", Shard::WHOLE), GOLDEN).await.unwrap_err().kind(), Kind::Corrupt);
        let written: BatchRecord = serde_json::from_str(VOID).unwrap();
        let void = VOID.replace("\"batch\": 1", "\"batch\": 7").replace("\"attempt\": 0", "\"attempt\": 1");
        assert_eq!(range_of(&chain_of(&written.chain.incarnation.0, written.chain.shard), &void).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_record_of_a_newer_format_or_a_damaged_one_is_refused() {
        let chain = || chain_of("0123456789abcdef0123456789abcdef", Shard::WHOLE);
        let newer = r#"{"format": 2, "all": ["else", {"is": "different"}]}"#;
        assert_eq!(range_of(&chain(), newer).await.unwrap_err().kind(), Kind::Unsupported);
        for damaged in ["", "{", "[]", r#"{"format": 1}"#, &GOLDEN[..GOLDEN.len() - 20]] {
            assert_eq!(range_of(&chain(), damaged).await.unwrap_err().kind(), Kind::Corrupt, "{damaged}");
        }
    }
}
