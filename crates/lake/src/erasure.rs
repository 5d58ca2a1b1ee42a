//! What pseudonyms are made with, as far as it lies in the lake: which key it is, and the salts of organisations. The forms are in
//! `docs/formats/pseudonym.md`.
//!
//! Place in the flow: a purge of requests writes down all salts there are by then, then commits; who reads requests takes the salts of the last purge that the
//! table tells of. Salts of one number are those that whoever came first wrote, and hold those of the number before.

use std::collections::BTreeMap;

use alluvium_core::{Error, Incarnation, Kind, OrgSalt, Resolver, Result};
use bytes::Bytes;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

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
    pub fn new(store: &Store, resolver: &Resolver, incarnation: &Incarnation) -> Self {
        let directory = Path::from(resolver.erasure_dir(incarnation));
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

    /// The salts of organisations as of the purge of that number; before the first there are none.
    ///
    /// # Errors
    /// As [`ErasureStore::key`]; [`Kind::Corrupt`] if they are not there.
    pub async fn salts(&self, number: u64) -> Result<BTreeMap<String, OrgSalt>> {
        if number == 0 {
            return Ok(BTreeMap::new());
        }
        let path = self.path(number);
        let gone = || Error::new(Kind::Corrupt, format!("{path} is gone")).hint("restore it from a backup of the storage");
        let bytes = self.store.get(&path).await?.ok_or_else(gone)?;
        let record: SaltsRecord = read_versioned(&bytes, ERASURE_FORMAT, path.as_ref())?;
        let damaged = || Error::new(Kind::Corrupt, format!("{path} is damaged")).hint("restore it from a backup of the storage");
        let salt = |of: SaltOfOrg| Ok((of.org, OrgSalt(from_hex(&of.salt).ok_or_else(damaged)?)));
        record.salts.into_iter().map(salt).collect()
    }

    /// The salts as of the purge of that number, which it will commit with: those of the number before, and of these organisations; unless others
    /// stand there.
    ///
    /// # Errors
    /// As [`ErasureStore::salts`].
    pub async fn give_salts(&self, number: u64, orgs: impl Iterator<Item = &str> + Send) -> Result<BTreeMap<String, OrgSalt>> {
        let mut salts = self.salts(number - 1).await?;
        let machine = self.store.machine();
        for org in orgs {
            if !salts.contains_key(org) {
                salts.insert(org.to_owned(), OrgSalt(*machine.fresh_id().as_bytes()));
            }
        }
        let salts = salts.into_iter().map(|(org, salt)| SaltOfOrg { org, salt: to_hex(&salt.0) });
        let record = SaltsRecord { format: ERASURE_FORMAT, salts: salts.collect() };
        let _what_stands_there_counts = self.put(&self.path(number), &record).await?;
        self.salts(number).await
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use alluvium_core::Namespace;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn salts_are_those_of_whoever_came_first_and_hold_those_of_before() {
        let store = Store::over(Arc::new(InMemory::new()));
        let of = |life: &str| ErasureStore::new(&store, &Resolver::new(Namespace::default()), &Incarnation(life.to_owned()));
        let erasure = of("a");
        assert_eq!(erasure.salts(0).await.unwrap(), BTreeMap::new());
        assert_eq!(erasure.salts(1).await.unwrap_err().kind(), Kind::Corrupt);
        let first = erasure.give_salts(1, ["x", "y"].into_iter()).await.unwrap();
        assert_ne!(first["x"], first["y"]);
        assert_eq!(erasure.give_salts(1, ["x", "z"].into_iter()).await.unwrap(), first);
        let second = erasure.give_salts(2, ["x", "z"].into_iter()).await.unwrap();
        assert_eq!((second.len(), &second["x"], &second["y"]), (3, &first["x"], &first["y"]));
        assert_ne!(of("b").give_salts(1, ["x"].into_iter()).await.unwrap()["x"], first["x"]);
    }

    #[tokio::test]
    async fn the_first_key_counts_and_is_not_shown() {
        let store = Store::over(Arc::new(InMemory::new()));
        let erasure = ErasureStore::new(&store, &Resolver::new(Namespace::default()), &Incarnation("a".to_owned()));
        assert_eq!(erasure.key().await.unwrap(), None);
        let key = |digit: &str| {
            let key = Some(digit.repeat(64));
            KeyRecord { format: ERASURE_FORMAT, check: "c".to_owned(), key, written_at_ms: 7 }
        };
        erasure.put_key(&key("1")).await.unwrap();
        erasure.put_key(&key("2")).await.unwrap();
        assert_eq!(erasure.key().await.unwrap(), Some(key("1")));
        assert!(!format!("{:?}", key("1")).contains("11"));
    }

    #[test]
    fn hexadecimal_digits_read_back_and_others_do_not() {
        assert_eq!(from_hex(&to_hex(&[0, 9, 10, 255])), Some([0, 9, 10, 255]));
        assert_eq!(from_hex::<2>("00f"), None);
        assert_eq!(from_hex::<2>("00fg"), None);
        assert_eq!(from_hex::<2>("+1+1"), None);
    }
}
