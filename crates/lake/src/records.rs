//! The records of a chain: what its batches intend, and which are finished. The forms are in `docs/formats/batch-record.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, BatchRecord, BatchSpan, ChainFile, ChainId, DoneMark, Error, Kind, RECORD_FORMAT, RecordBody,
    Resolver, Result,
};
use bytes::Bytes;
use object_store::path::Path;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::store::{PutNew, Store};

/// One chain's directory.
#[derive(Debug, Clone)]
pub struct ChainStore {
    store: Store,
    resolver: Resolver,
    chain: ChainId,
    /// The record this process wrote or read last: what stands at a record's name never changes.
    last: Arc<Mutex<Option<BatchRecord>>>,
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

    /// The newest finished batch.
    #[must_use]
    pub fn newest_done(&self) -> Option<BatchNumber> {
        self.done.last().copied()
    }
}

impl ChainStore {
    /// The chain's directory in the namespace of `resolver`.
    #[must_use]
    pub fn new(store: &Store, resolver: &Resolver, chain: ChainId) -> Self {
        Self { store: store.clone(), resolver: resolver.clone(), chain, last: Arc::default() }
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
        let directory = Path::from(self.resolver.chain_dir(self.chain.job, &self.chain.dataset, self.chain.shard));
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

    /// The record at `key`. One that a former incarnation of the namespace left there is void: its files are gone.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if it cannot be read, [`Kind::Unsupported`] if a newer program wrote it.
    pub async fn record(&self, key: BatchKey) -> Result<Option<BatchRecord>> {
        if let Some(last) = self.last().as_ref().filter(|r| r.key() == key) {
            return Ok(Some(last.clone()));
        }
        let record: Option<BatchRecord> = self.read(&self.resolver.record(&self.chain, key)).await?;
        let record = record.map(|r| if r.chain == self.chain { r } else { BatchRecord { body: RecordBody::Void, ..r } });
        if record.is_some() {
            *self.last() = record.clone();
        }
        Ok(record)
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
        if put == PutNew::Created {
            *self.last() = Some(record.clone());
        }
        Ok(put)
    }

    fn last(&self) -> MutexGuard<'_, Option<BatchRecord>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a batch as finished. A lost mark costs a look at the tables, no more; so it is not synced.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn mark_done(&self, mark: &DoneMark) -> Result<()> {
        let bytes = serde_json::to_vec(mark).map_err(|e| Error::new(Kind::Internal, "marking a batch as done").source(e))?;
        let path = Path::from(self.resolver.done_mark(&self.chain, mark.batch));
        let _who_marked_it_first_does_not_matter = self.store.stage(&path, Bytes::from(bytes)).await?;
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

/// Reads one of our JSON files, which all have a `format` number.
pub(crate) fn read_versioned<T: DeserializeOwned>(bytes: &[u8], newest_format: u32, path: &str) -> Result<T> {
    let corrupt = |e: serde_json::Error| {
        Error::new(Kind::Corrupt, format!("{path} is damaged")).hint("restore it from a backup of the storage").source(e)
    };
    let value: Value = serde_json::from_slice(bytes).map_err(corrupt)?;
    match value.get("format").and_then(Value::as_u64) {
        Some(format) if format > u64::from(newest_format) => {
            Err(Error::new(Kind::Unsupported, format!("{path} has format {format}, this program reads up to {newest_format}"))
                .hint("a newer alluvium wrote here: use that version or a newer one"))
        }
        _ => serde_json::from_value(value).map_err(corrupt),
    }
}
