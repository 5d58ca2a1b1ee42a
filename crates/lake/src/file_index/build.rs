//! Builds the index of the files that one writer stages for one record.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use alluvium_core::{Error, Kind, Result};
use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType as ArrowType;
use bytes::Bytes;
use object_store::PutPayload;
use serde_json::Value;

use super::format::{FileSections, encode};
use super::hash::{FieldHasher, IdHash, SortedHashes};
use super::hits::{packed, unpacked};

/// An index that grows by a file at a time; may be used from many threads. Holds six bytes for each different id of each file.
#[derive(Debug)]
pub struct IndexBuilder {
    fields: Vec<String>,
    files: Mutex<Vec<FileSections>>,
    bytes: AtomicU64,
}

impl IndexBuilder {
    /// An index over these fields, each named once.
    #[must_use]
    pub fn new(fields: Vec<String>) -> Self {
        Self { fields, files: Mutex::default(), bytes: AtomicU64::new(0) }
    }

    /// The fields.
    #[must_use]
    pub fn fields(&self) -> &[String] {
        &self.fields
    }

    /// The ids of a file that is about to be made: none yet.
    #[must_use]
    pub fn file(&self) -> FileIds {
        FileIds::new(&self.fields)
    }

    /// Adds a file whose name ends with the number `seq`, with all ids in it.
    pub fn add(&self, seq: u32, ids: FileIds) {
        let sections = ids.sections();
        self.bytes.fetch_add(sections.iter().map(|section| section.len() as u64).sum(), Ordering::Relaxed);
        self.files.lock().unwrap_or_else(PoisonError::into_inner).push(FileSections { seq, sections });
    }

    /// The bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The stored form; `None` if there are no files.
    ///
    /// # Errors
    /// [`Kind::Internal`] if there is more than the form can hold.
    pub fn finish(self) -> Result<Option<PutPayload>> {
        let files = self.files.into_inner().unwrap_or_else(PoisonError::into_inner);
        if files.is_empty() { Ok(None) } else { encode(&self.fields, files).map(Some) }
    }
}

/// The ids in one data file: of each field those in its column and those in `_original`.
#[derive(Debug)]
pub struct FileIds {
    fields: Vec<FieldIds>,
}

#[derive(Debug)]
struct FieldIds {
    name: String,
    hasher: FieldHasher,
    /// A section that was read, as stored.
    stored: Bytes,
    hashes: Vec<IdHash>,
}

impl FieldIds {
    fn section(self) -> Bytes {
        let sorted: SortedHashes = self.hashes.into_iter().collect();
        if sorted.as_slice().is_empty() {
            return self.stored;
        }
        let mut section = Vec::with_capacity(self.stored.len() + sorted.as_slice().len() * IdHash::BYTES);
        let mut stored = self.stored.as_chunks().0;
        for hash in sorted.as_slice().iter().map(|hash| packed(*hash)) {
            let (below, rest) = stored.split_at(stored.partition_point(|stored| *stored < hash));
            section.extend_from_slice(below.as_flattened());
            section.extend_from_slice(&hash);
            stored = rest.split_first().filter(|(same, _)| **same == hash).map_or(rest, |(_, rest)| rest);
        }
        section.extend_from_slice(stored.as_flattened());
        section.into()
    }
}

impl FileIds {
    pub(crate) fn new(fields: &[String]) -> Self {
        let field = |name: &String| FieldIds {
            name: name.clone(),
            hasher: FieldHasher::new(name),
            stored: Bytes::new(),
            hashes: Vec::new(),
        };
        Self { fields: fields.iter().map(field).collect() }
    }

    /// Adds the values of the column `field`: texts or integers; nulls are no ids. A field that is not indexed is passed over.
    ///
    /// # Errors
    /// [`Kind::Internal`] for a column of another type.
    pub fn add_column(&mut self, field: &str, ids: &dyn Array) -> Result<()> {
        match self.field(field) {
            Some(FieldIds { hasher, hashes, .. }) => hasher.hash_array(ids, hashes),
            None => Ok(()),
        }
    }

    /// Adds ids of `field`, as text. A field that is not indexed is passed over.
    pub fn add_texts<'a>(&mut self, field: &str, ids: impl IntoIterator<Item = &'a str>) {
        if let Some(FieldIds { hasher, hashes, .. }) = self.field(field) {
            hashes.extend(ids.into_iter().map(|id| hasher.hash(id)));
        }
    }

    /// Begins with what a section of `field` tells.
    pub(super) fn begin_with(&mut self, field: &str, section: Bytes) {
        if let Some(FieldIds { stored, .. }) = self.field(field) {
            *stored = section;
        }
    }

    /// Adds the ids that the column `_original` holds: texts of JSON objects, whose members of the name of an indexed field are texts,
    /// integers or null.
    ///
    /// # Errors
    /// [`Kind::Internal`] for anything else.
    pub fn add_originals(&mut self, originals: &dyn Array) -> Result<()> {
        let wrong = || Error::new(Kind::Internal, "a row's _original is not as we write it");
        if originals.null_count() == originals.len() {
            return Ok(());
        }
        let originals = cast(originals, &ArrowType::Utf8).map_err(|_| wrong())?;
        let texts = originals.as_string_opt::<i32>().ok_or_else(wrong)?;
        for text in texts.iter().flatten() {
            let members: BTreeMap<String, Value> = serde_json::from_str(text).map_err(|_| wrong())?;
            for FieldIds { name, hasher, hashes, .. } in &mut self.fields {
                match members.get(name) {
                    None | Some(Value::Null) => {}
                    Some(Value::String(id)) => hashes.push(hasher.hash(id)),
                    Some(Value::Number(id)) => hashes.push(hasher.hash(&id.to_string())),
                    Some(_) => return Err(wrong()),
                }
            }
        }
        Ok(())
    }

    /// Adds all that `other`, which has the same fields, holds.
    pub(crate) fn absorb(&mut self, other: Self) {
        for (field, mut other) in self.fields.iter_mut().zip(other.fields) {
            field.hashes.extend(other.stored.as_chunks().0.iter().map(unpacked));
            field.hashes.append(&mut other.hashes);
        }
    }

    fn field(&mut self, name: &str) -> Option<&mut FieldIds> {
        self.fields.iter_mut().find(|field| field.name == name)
    }

    fn sections(self) -> Vec<Bytes> {
        self.fields.into_iter().map(FieldIds::section).collect()
    }
}
