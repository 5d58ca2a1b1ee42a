//! What pseudonyms are made with, as far as it lies in the lake: which key it is, and the salts of organisations. The forms are in
//! `docs/formats/pseudonym.md`.
//!
//! Place in the flow: a purge of requests writes down the salts it needs, then commits; who reads requests takes the salts of the purges that the
//! table tells of. Salts of one number are those that whoever came first wrote.

use alluvium_core::{Error, Kind, OrgSalt, Resolver, Result};
use bytes::Bytes;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use crate::consumer::record_number;
use crate::records::read_versioned;
use crate::store::{PutNew, Store};

/// The version of the stored forms that this program writes and the newest it reads.
pub const ERASURE_FORMAT: u32 = 1;

/// Which key a namespace's pseudonyms are made with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// [`ERASURE_FORMAT`].
    pub format: u32,
    /// The check value, in hexadecimal digits.
    pub check: String,
    /// The key itself, in hexadecimal digits, where it is kept in the lake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When it was first used, in milliseconds since 1970.
    pub written_at_ms: i64,
}

impl std::fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRecord").field("check", &self.check).finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct SaltsRecord {
    format: u32,
    salts: Vec<SaltOfOrg>,
}

#[derive(Serialize, Deserialize)]
struct SaltOfOrg {
    org: String,
    /// 32 hexadecimal digits.
    salt: String,
}

/// The place of what pseudonyms are made with.
#[derive(Debug, Clone)]
pub struct ErasureStore {
    store: Store,
    key: Path,
    salts: Path,
}

impl ErasureStore {
    /// That of the namespace of `resolver`.
    #[must_use]
    pub fn new(store: &Store, resolver: &Resolver) -> Self {
        let directory = Path::from(resolver.erasure_dir());
        Self { store: store.clone(), key: directory.clone().join("key.json"), salts: directory.join("salts") }
    }

    /// Which key it is; `None`: none was ever used.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed, [`Kind::Corrupt`] and [`Kind::Unsupported`] for a record that cannot be read.
    pub async fn key(&self) -> Result<Option<KeyRecord>> {
        match self.store.get(&self.key).await? {
            Some(bytes) => read_versioned(&bytes, ERASURE_FORMAT, self.key.as_ref()).map(Some),
            None => Ok(None),
        }
    }

    /// Writes down which key it is, unless that stands there.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn put_key(&self, record: &KeyRecord) -> Result<()> {
        let _what_stands_there_is_read = self.put(&self.key, record).await?;
        Ok(())
    }

    /// The numbers of the purges that gave organisations their salts, ascending.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn numbers(&self) -> Result<Vec<u64>> {
        let found = self.store.list(&self.salts, None).await?;
        Ok(found.iter().filter_map(|f| f.path.filename().and_then(record_number)).collect())
    }

    /// The salts that the purge of that number gave.
    ///
    /// # Errors
    /// As [`ErasureStore::key`]; [`Kind::Corrupt`] if they are not there.
    pub async fn salts(&self, number: u64) -> Result<Vec<(String, OrgSalt)>> {
        let path = self.path(number);
        let gone = || Error::new(Kind::Corrupt, format!("{path} is gone")).hint("restore it from a backup of the storage");
        let bytes = self.store.get(&path).await?.ok_or_else(gone)?;
        let record: SaltsRecord = read_versioned(&bytes, ERASURE_FORMAT, path.as_ref())?;
        let damaged = || Error::new(Kind::Corrupt, format!("{path} is damaged")).hint("restore it from a backup of the storage");
        let salt = |of: SaltOfOrg| Ok((of.org, OrgSalt(from_hex(&of.salt).ok_or_else(damaged)?)));
        record.salts.into_iter().map(salt).collect()
    }

    /// Gives salts to organisations under that number, unless some stand there.
    ///
    /// # Errors
    /// As [`ErasureStore::put_key`].
    pub async fn give_salts(&self, number: u64, orgs: &[&str]) -> Result<()> {
        let machine = self.store.machine();
        let salt = |org: &&str| SaltOfOrg { org: (*org).to_owned(), salt: to_hex(machine.fresh_id().as_bytes()) };
        let record = SaltsRecord { format: ERASURE_FORMAT, salts: orgs.iter().map(salt).collect() };
        let _what_stands_there_is_read = self.put(&self.path(number), &record).await?;
        Ok(())
    }

    async fn put(&self, path: &Path, record: &impl Serialize) -> Result<PutNew> {
        let bytes = serde_json::to_vec(record).map_err(|e| Error::new(Kind::Internal, "writing a record").source(e))?;
        self.store.put_new(path, Bytes::from(bytes)).await
    }

    fn path(&self, number: u64) -> Path {
        self.salts.clone().join(format!("{number:020}.json"))
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As many bytes as hexadecimal digits spell; `None`: they do not.
#[must_use]
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}
