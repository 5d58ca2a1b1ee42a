//! Which rows a rewrite of data files changed: positions, kept beside the table, from which readers of changes find the rows in the old and
//! the new files. The bytes are described in `docs/formats/rewrites.md`.
//!
//! Place in the flow: a mutation stages it with its files, under its attempt's key; the commit names it; `changes --rows` reads it. It holds
//! no value of a row. Without it, or where it is gone, the rows of the files are compared.

use std::sync::Arc;

use alluvium_core::{BatchKey, ChainId, Error, Kind, Resolver, Result, TableName, rewrites_name};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use object_store::path::Path;
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use crate::records::read_versioned;
use crate::store::{PutNew, Store};

/// The version of the stored form that this program writes and the newest it reads.
pub const REWRITES_FORMAT: u32 = 1;

/// What one commit rewrote.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rewrites {
    /// The files that went, each with what stands in its place.
    pub files: Vec<RewrittenFile>,
    /// Files that hold rows which moved from one partition into another, and no others.
    pub moved: Vec<String>,
}

/// A file that was rewritten. Positions ascend; the order of rows stays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RewrittenFile {
    /// Its path as the log spells it.
    pub old: String,
    /// The paths of the files in its place, whose rows follow one another.
    pub new: Vec<String>,
    /// Rows that stay with another value in some column.
    pub updated: Vec<u64>,
    /// Where they stand in the files in its place, counted through.
    pub now: Vec<u64>,
    /// Rows that went.
    pub deleted: Vec<u64>,
    /// Rows that stand in one of the files of moved rows.
    pub moved: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    files: Vec<StoredFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moved: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredFile {
    old: String,
    new: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    updated: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    now: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    deleted: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    moved: String,
}

impl Rewrites {
    /// Puts it beside the table, under the key of the attempt that stages it; its name, for the commit. Durable on return.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn stage(
        &self,
        store: &Store,
        resolver: &Resolver,
        table: &TableName,
        chain: &ChainId,
        key: BatchKey,
    ) -> Result<String> {
        let writer = store.machine().fresh_id().simple().to_string();
        let name = rewrites_name(chain, key, &writer);
        let path = Path::from(resolver.rewrites(table, &name));
        match store.put_new(&path, Bytes::from(self.encode()?)).await? {
            PutNew::Created => Ok(name),
            PutNew::Exists => Err(Error::new(Kind::Internal, format!("writing {path}: a file of that name is there already"))),
        }
    }

    /// Reads what a commit names; `None` if it is gone.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if it cannot be read, [`Kind::Unsupported`] if a newer program wrote it.
    pub async fn read(store: &Store, resolver: &Resolver, table: &TableName, name: &str) -> Result<Option<Self>> {
        let path = resolver.rewrites(table, name);
        match store.get(&Path::from(path.as_str())).await? {
            Some(bytes) => Self::decode(&bytes, &path).map(Some),
            None => Ok(None),
        }
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let files = self.files.iter().map(|file| {
            Ok(StoredFile {
                old: file.old.clone(),
                new: file.new.clone(),
                updated: bitmap(&file.updated)?,
                now: bitmap(&file.now)?,
                deleted: bitmap(&file.deleted)?,
                moved: bitmap(&file.moved)?,
            })
        });
        let stored = Stored { format: REWRITES_FORMAT, files: files.collect::<Result<_>>()?, moved: self.moved.clone() };
        serde_json::to_vec(&stored).map_err(|e| Error::new(Kind::Internal, "writing which rows changed").source(e))
    }

    fn decode(bytes: &[u8], path: &str) -> Result<Self> {
        let stored: Stored = read_versioned(bytes, REWRITES_FORMAT, path)?;
        let files = stored.files.into_iter().map(|file| {
            Ok(RewrittenFile {
                updated: positions(&file.updated, path)?,
                now: positions(&file.now, path)?,
                deleted: positions(&file.deleted, path)?,
                moved: positions(&file.moved, path)?,
                old: file.old,
                new: file.new,
            })
        });
        Ok(Self { files: files.collect::<Result<_>>()?, moved: stored.moved })
    }
}

/// A Roaring bitmap of 64-bit positions in its portable form, as base64; nothing for none.
fn bitmap(positions: &[u64]) -> Result<String> {
    if positions.is_empty() {
        return Ok(String::new());
    }
    let internal = || Error::new(Kind::Internal, "positions of changed rows do not ascend");
    let map = RoaringTreemap::from_sorted_iter(positions.iter().copied()).map_err(|_| internal())?;
    let mut bytes = Vec::with_capacity(map.serialized_size());
    map.serialize_into(&mut bytes).map_err(|e| internal().source(e))?;
    Ok(STANDARD.encode(bytes))
}

fn positions(text: &str, path: &str) -> Result<Vec<u64>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let damaged = || Error::new(Kind::Corrupt, format!("{path} is damaged")).hint("delete it: the rows are then compared");
    let bytes = STANDARD.decode(text).map_err(|e| damaged().source(Arc::new(e)))?;
    let map = RoaringTreemap::deserialize_from(bytes.as_slice()).map_err(|e| damaged().source(e))?;
    Ok(map.into_iter().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_damage_is_told() {
        let file = RewrittenFile {
            old: "a.parquet".to_owned(),
            new: vec!["b.parquet".to_owned(), "c.parquet".to_owned()],
            updated: vec![0, 7, 1 << 33],
            now: vec![0, 6, (1 << 33) - 2],
            deleted: vec![3],
            moved: Vec::new(),
        };
        let rewrites = Rewrites { files: vec![file], moved: vec!["d.parquet".to_owned()] };
        let bytes = rewrites.encode().unwrap();
        assert_eq!(Rewrites::decode(&bytes, "x").unwrap(), rewrites);
        let text = String::from_utf8(bytes).unwrap();
        for (damaged, kind) in [
            (text.replace("\"format\":1", "\"format\":2"), Kind::Unsupported),
            (text.replace("\"updated\":\"", "\"updated\":\"!"), Kind::Corrupt),
            (text[..text.len() / 2].to_owned(), Kind::Corrupt),
        ] {
            assert_eq!(Rewrites::decode(damaged.as_bytes(), "x").unwrap_err().kind(), kind);
        }
    }
}
