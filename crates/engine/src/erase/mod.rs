//! What stands for erased people: the key, the salts, and the pseudonyms they make.
//!
//! Place in the flow: who folds requests, or looks their ids up, asks for the pseudonyms of the purges of requests that the table tells of; a purge
//! of requests gives organisations their salts. Invariant: the folded ledger of one generation knows ids by that generation's pseudonyms alone, and
//! stands in directories of its own.

mod key;

use std::sync::{Arc, Mutex, PoisonError};

use alluvium_core::{Dataset, ErasureKey, Error, Incarnation, Job, Kind, Pseudonyms, Result, TableName, parse_data_file};
use alluvium_lake::{ErasureStore, LiveFile, from_hex, to_hex};

use crate::engine::Engine;

/// The pseudonyms that this process knows of.
#[derive(Debug, Default)]
pub(crate) struct KnownPseudonyms(Mutex<Option<Arc<Pseudonyms>>>);

impl KnownPseudonyms {
    fn get(&self) -> Option<Arc<Pseudonyms>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, known: Option<Arc<Pseudonyms>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

impl Engine {
    /// The pseudonyms as this process knows them; a purge may have gone on since.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if ids were replaced and the key is not at hand or another.
    pub(crate) async fn pseudonyms(&self, incarnation: &Incarnation) -> Result<Arc<Pseudonyms>> {
        if let Some(known) = self.known_pseudonyms.get() {
            return Ok(known);
        }
        let erasure = self.erasure(incarnation);
        let loaded = match erasure.key().await? {
            None => Pseudonyms::default(),
            Some(_) => match self.purges_of_requests().await? {
                0 => Pseudonyms::default(),
                generation => {
                    Pseudonyms::new(generation, &self.erasure_key(incarnation).await?, erasure.salts(generation).await?)
                }
            },
        };
        let loaded = Arc::new(loaded);
        self.known_pseudonyms.set(Some(loaded.clone()));
        Ok(loaded)
    }

    /// The pseudonyms are looked up again when they are asked for next.
    pub(crate) fn forget_pseudonyms(&self) {
        self.known_pseudonyms.set(None);
    }

    /// Whether a purge of requests has gone on since those pseudonyms were known; then the new ones are known from now on.
    pub(crate) async fn have_gone_on(&self, incarnation: &Incarnation, since: &Pseudonyms) -> Result<bool> {
        self.forget_pseudonyms();
        Ok(self.pseudonyms(incarnation).await?.generation() != since.generation())
    }

    /// How many purges of requests have been.
    pub(crate) async fn purges_of_requests(&self) -> Result<u64> {
        let log = self.log(&TableName::REQUESTS);
        if !log.exists().await? {
            return Ok(0);
        }
        Ok(generation_of(log.live_files(None).await?.iter()))
    }

    pub(crate) fn erasure(&self, incarnation: &Incarnation) -> ErasureStore {
        ErasureStore::new(&self.store, &self.resolver, incarnation)
    }

    /// The key, if one was used already: it must be the same.
    async fn erasure_key(&self, incarnation: &Incarnation) -> Result<ErasureKey> {
        let gone = || {
            Error::new(Kind::Corrupt, "ids were replaced by pseudonyms, and which key made them is gone")
                .hint("restore key.json below _alluvium/erase from a backup of the storage")
        };
        let record = self.erasure(incarnation).key().await?.ok_or_else(gone)?;
        let key = match (self.project_key()?, &record.key) {
            (Some(key), _) => key,
            (None, Some(hex)) => ErasureKey::new(from_hex(hex).ok_or_else(gone)?),
            (None, None) => {
                return Err(Error::new(
                    Kind::Unavailable,
                    "the key of erased ids is not kept in the lake, and erase.key names no other place",
                )
                .hint("write erase: { key: env:NAME } or file:PATH, with the key that was used before"));
            }
        };
        if to_hex(&key.check_value()) != record.check {
            return Err(Error::new(Kind::Unavailable, "the key of erased ids is not the one that was used before")
                .hint("give the key that was used before: with another one, who was erased would not be known again. If no vacuum has replaced ids yet, delete key.json below _alluvium/erase"));
        }
        Ok(key)
    }

    /// The key; from now on it is the namespace's.
    pub(crate) async fn erasure_key_or_new(&self, incarnation: &Incarnation) -> Result<ErasureKey> {
        if self.erasure(incarnation).key().await?.is_none() {
            self.erasure(incarnation).put_key(&self.new_key_record()?).await?;
        }
        self.erasure_key(incarnation).await
    }
}

/// How many purges of requests these files tell of: each leaves files of its own.
pub(crate) fn generation_of<'f>(files: impl Iterator<Item = &'f LiveFile>) -> u64 {
    let purge = |file: &LiveFile| {
        let name = parse_data_file(&file.path)?;
        (name.chain.dataset.0 == Dataset::REQUESTS && name.chain.job == Job::Vacuum).then_some(name.key.batch.0)
    };
    files.filter_map(purge).max().unwrap_or(0)
}
