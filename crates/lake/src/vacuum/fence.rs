//! The second step: what is known of the batches that files belong to, and will never change.

use std::collections::{HashMap, HashSet};

use alluvium_core::{
    BatchKey, BatchNumber, BatchRecord, ChainId, IndexFile, RECORD_FORMAT, RecordBody, Recorded, Result, TableName, TxnVersion,
    app_id, parse_data_file,
};

use super::Vacuum;
use super::listing::{Candidate, Object};
use crate::records::ChainStore;

/// What is known of a file's batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Its attempt is void or does not list it, or the batch is finished: if no version needs it, none ever will.
    Dead,
    /// It is recorded and may still be published.
    Inevitable,
    /// It is of a batch that may still be recorded.
    Young,
    /// It is of no batch of ours.
    Foreign,
}

/// What an attempt's record lists.
#[derive(Debug, Default)]
struct Listed {
    files: HashSet<String>,
    indexes: HashSet<IndexFile>,
    rewrites: Option<String>,
}

impl Listed {
    fn of(recorded: &Recorded) -> Self {
        let mut listed = Self::default();
        for files in [&recorded.data, &recorded.dead_letters, &recorded.retries, &recorded.outcomes] {
            for file in files.adds.iter().chain(&files.changes) {
                listed.files.insert(file.path.clone());
                listed.indexes.extend(parse_data_file(&file.path).map(|name| name.index()));
            }
        }
        listed.rewrites = recorded.rewrites().map(str::to_owned);
        listed
    }

    fn has(&self, object: &Object) -> bool {
        match object {
            Object::File { name, .. } => self.files.contains(name),
            Object::Index(index) => self.indexes.contains(index),
            Object::Rewrites { name, .. } => self.rewrites.as_ref() == Some(name),
            Object::Foreign => false,
        }
    }
}

/// Looks up each batch once.
pub(super) struct Claims<'a> {
    vacuum: &'a Vacuum,
    /// The last finished batch of each chain, as far as the table tells.
    settled: HashMap<ChainId, BatchNumber>,
    attempts: HashMap<(ChainId, BatchKey), Listed>,
    seen: u64,
}

impl<'a> Claims<'a> {
    pub(super) fn new(vacuum: &'a Vacuum) -> Self {
        Self { vacuum, settled: HashMap::new(), attempts: HashMap::new(), seen: 0 }
    }

    /// The newest version that was seen.
    pub(super) const fn seen(&self) -> u64 {
        self.seen
    }

    /// What is known of the batch of a file. With `fences`, an attempt of which there is no record is void afterwards.
    pub(super) async fn of(&mut self, candidate: &Candidate, fences: bool) -> Result<Claim> {
        let Some((chain, key)) = candidate.object.batch() else { return Ok(Claim::Foreign) };
        if self.settled(chain).await? >= key.batch {
            return Ok(Claim::Dead);
        }
        // What notifications will hold follows from the record, which does not list their files.
        if self.vacuum.table == TableName::NOTIFICATIONS {
            return Ok(Claim::Inevitable);
        }
        if candidate.is_young {
            return Ok(Claim::Young);
        }
        let listed = self.listed(chain, key, fences).await?.has(&candidate.object);
        Ok(if listed { Claim::Inevitable } else { Claim::Dead })
    }

    async fn settled(&mut self, chain: &ChainId) -> Result<BatchNumber> {
        if let Some(settled) = self.settled.get(chain) {
            return Ok(*settled);
        }
        // Once a batch is marked as done, every table has of it what it will ever have.
        let done = self.chain(chain).listing().await?.newest_done();
        let state = self.vacuum.log.state(&app_id(chain)).await?;
        self.seen = self.seen.max(state.as_ref().map_or(0, |state| state.version()));
        let carried = state.and_then(|state| state.txn()).and_then(TxnVersion::key).map(|key| key.batch);
        let settled = done.max(carried).unwrap_or(BatchNumber(0));
        self.settled.insert(chain.clone(), settled);
        Ok(settled)
    }

    async fn listed(&mut self, chain: &ChainId, key: BatchKey, fences: bool) -> Result<&Listed> {
        let at = (chain.clone(), key);
        if !self.attempts.contains_key(&at) {
            let listed = self.recorded(chain, key, fences).await?;
            self.attempts.insert(at.clone(), listed);
        }
        Ok(&self.attempts[&at])
    }

    async fn recorded(&self, chain: &ChainId, key: BatchKey, fences: bool) -> Result<Listed> {
        let records = self.chain(chain);
        loop {
            match records.record(key).await? {
                Some(BatchRecord { body: RecordBody::Intent(recorded), .. }) => return Ok(Listed::of(&recorded)),
                Some(BatchRecord { body: RecordBody::Void, .. }) => return Ok(Listed::default()),
                None if !fences => return Ok(Listed::default()),
                None => {
                    let (format, BatchKey { batch, attempt }) = (RECORD_FORMAT, key);
                    let void = BatchRecord { format, chain: chain.clone(), batch, attempt, body: RecordBody::Void };
                    let _what_stands_there_is_read = records.write(&void).await?;
                }
            }
        }
    }

    fn chain(&self, chain: &ChainId) -> ChainStore {
        ChainStore::new(self.vacuum.store(), &self.vacuum.resolver, chain.clone())
    }
}
