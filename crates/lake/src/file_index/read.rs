//! Asks the indexes which live files may hold some ids.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use alluvium_core::{Error, IndexFile, Kind, Resolver, Result, TableName, parse_data_file};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use rayon::prelude::*;

use super::build::FileIds;
use super::format::{Directory, Footer, SectionPlace, corrupt};
use super::hash::{IdHash, SortedHashes};
use crate::blocking::in_place;
use crate::store::Store;

/// So much of an index's end is read at first; of a small one that is all.
const END_BYTES: u64 = 256 << 10;
/// Indexes that stay open, at most.
const OPEN_INDEXES: usize = 32;
/// Indexes that are read at a time.
const INDEXES_IN_FLIGHT: usize = 8;
/// Sections this far apart are read with what lies between them.
const GAP_BYTES: u64 = 64 << 10;
/// Several sections are read at once up to this size; one alone may be larger.
const FETCH_BYTES: u64 = 4 << 20;

/// Whether a file may hold one of the ids that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MayHold {
    /// It holds none of them.
    No,
    /// It may hold the ids of these hashes, ascending: it holds them, or others of the same hash (about one in 2^48 for each pair of an id
    /// asked for and an id in the file).
    Maybe(Vec<IdHash>),
    /// Nothing tells: another program wrote the file, or its index is lost or without the field.
    Unknown,
}

/// The indexes of one table's files.
#[derive(Debug, Clone)]
pub struct IndexReader {
    store: Store,
    resolver: Resolver,
    table: TableName,
    opened: Arc<Mutex<BTreeMap<Path, Arc<OpenIndex>>>>,
}

/// A field, and the ids that are looked for in it.
pub type Question<'q> = (&'q str, &'q SortedHashes);

/// A file that an index tells of: which of the live files it is, and its number in the index.
type Told = (usize, u32);

impl IndexReader {
    /// The indexes of the files of `table`.
    #[must_use]
    pub fn new(store: &Store, resolver: &Resolver, table: TableName) -> Self {
        Self { store: store.clone(), resolver: resolver.clone(), table, opened: Arc::default() }
    }

    /// Of each of `live`, data files by their paths, in their order, whether it may hold one of `hashes` in `field`, as its current value or the original one.
    ///
    /// # Errors
    /// As [`IndexReader::files_that_may_hold_any`].
    pub async fn files_that_may_hold<F: AsRef<str>>(
        &self,
        live: &[F],
        field: &str,
        hashes: &SortedHashes,
    ) -> Result<Vec<MayHold>> {
        let asked = [(field, hashes)];
        let live: Vec<(&str, &[Question<'_>])> = live.iter().map(|file| (file.as_ref(), &asked[..])).collect();
        Ok(self.files_that_may_hold_any(&live).await?.into_iter().map(|mut answers| answers.swap_remove(0)).collect())
    }

    /// As [`IndexReader::files_that_may_hold`], with questions of its own for each file; for each file an answer to each. Reads the indexes of
    /// `live` only, and of large ones only the sections that are asked about; holds some 40 MiB at most, however many there are. A damaged
    /// index is as good as a lost one.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if a newer program wrote an index; [`Kind::Unavailable`] if the store failed.
    pub async fn files_that_may_hold_any(&self, live: &[(&str, &[Question<'_>])]) -> Result<Vec<Vec<MayHold>>> {
        let mut answers: Vec<Vec<MayHold>> = live.iter().map(|(_, asked)| vec![MayHold::Unknown; asked.len()]).collect();
        let mut indexes: BTreeMap<String, Vec<Told>> = BTreeMap::new();
        for (number, (file, _)) in live.iter().enumerate() {
            if let Some(name) = parse_data_file(file) {
                let index: IndexFile = name.index();
                indexes.entry(self.resolver.file_index(&self.table, &index)).or_default().push((number, name.seq));
            }
        }
        let mut told = stream::iter(indexes)
            .map(|(path, files)| async move {
                let path = Path::from(path);
                match self.ask(&path, &files, live).await {
                    Err(damaged) if damaged.kind() == Kind::Corrupt => {
                        tracing::warn!(error = %damaged.chain_text(), "an index of data files is damaged; its files are opened");
                        Ok(Vec::new())
                    }
                    told => told,
                }
            })
            .buffer_unordered(INDEXES_IN_FLIGHT);
        while let Some(told) = told.try_next().await? {
            for (file, question, answer) in told {
                answers[file][question] = answer;
            }
        }
        Ok(answers)
    }

    /// What the index tells of one data file, in these fields, to be added to what is told of a file made from it; `None` if nothing
    /// tells of all of them.
    ///
    /// # Errors
    /// As [`IndexReader::files_that_may_hold_any`].
    pub async fn ids_of(&self, file: &str, fields: &[String]) -> Result<Option<FileIds>> {
        let Some(name) = parse_data_file(file) else { return Ok(None) };
        let path = Path::from(self.resolver.file_index(&self.table, &name.index()));
        match self.read_ids(&path, name.seq, fields).await {
            Err(damaged) if damaged.kind() == Kind::Corrupt => Ok(None),
            read => read,
        }
    }

    async fn read_ids(&self, path: &Path, seq: u32, fields: &[String]) -> Result<Option<FileIds>> {
        let Some(index) = self.open(path).await? else { return Ok(None) };
        let mut ids = FileIds::new(fields);
        for field in fields {
            let Some(place) = index.directory.place(seq, field).cloned() else { return Ok(None) };
            let bytes = index.bytes(&self.store, place.bytes.clone()).await?;
            let _is_sound = place.read(&bytes, path.as_ref())?;
            ids.begin_with(field, bytes);
        }
        Ok(Some(ids))
    }

    /// The index at `path`, opened once as long as not too many others are.
    async fn open(&self, path: &Path) -> Result<Option<Arc<OpenIndex>>> {
        let known = self.opened.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let Some(index) = OpenIndex::open(&self.store, path).await?.map(Arc::new) else { return Ok(None) };
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.len() >= OPEN_INDEXES {
            opened.pop_first();
        }
        opened.insert(path.clone(), index.clone());
        Ok(Some(index))
    }

    /// What the index at `path` says of `files`: live file, question, answer.
    async fn ask(&self, path: &Path, files: &[Told], live: &[(&str, &[Question<'_>])]) -> Result<Vec<(usize, usize, MayHold)>> {
        let Some(index) = self.open(path).await? else { return Ok(Vec::new()) };
        let mut wanted: Vec<(usize, usize, SectionPlace)> = Vec::new();
        for (file, seq) in files {
            for (question, (field, _)) in live[*file].1.iter().enumerate() {
                wanted.extend(index.directory.place(*seq, field).map(|place| (*file, question, place.clone())));
            }
        }
        wanted.sort_by_key(|(file, question, place)| (place.bytes.start, *file, *question));
        let (mut answers, mut rest) = (Vec::with_capacity(wanted.len()), wanted.as_slice());
        while let Some((_, _, first)) = rest.first() {
            let mut fetch = first.bytes.clone();
            let near = |(_, _, next): &&(usize, usize, SectionPlace)| {
                let near = next.bytes.start.saturating_sub(fetch.end) <= GAP_BYTES
                    && (next.bytes.end <= fetch.end || next.bytes.end - fetch.start <= FETCH_BYTES);
                if near {
                    fetch.end = fetch.end.max(next.bytes.end);
                }
                near
            };
            let together = rest.iter().take_while(near).count().max(1);
            let bytes = index.bytes(&self.store, fetch.clone()).await?;
            let answer = |(file, question, place): &(usize, usize, SectionPlace)| {
                let section = within(&bytes, &fetch, &place.bytes).ok_or_else(|| corrupt(path.as_ref(), "it is cut short"))?;
                let hits = place.read(section, path.as_ref())?.hits(live[*file].1[*question].1.as_slice());
                Ok((*file, *question, if hits.is_empty() { MayHold::No } else { MayHold::Maybe(hits) }))
            };
            let told: Vec<(usize, usize, MayHold)> = in_place(|| rest[..together].par_iter().map(answer).collect::<Result<_>>())?;
            answers.extend(told);
            rest = &rest[together..];
        }
        Ok(answers)
    }
}

/// An index whose directory was read.
#[derive(Debug)]
struct OpenIndex {
    path: Path,
    /// The end of the file, and where it begins.
    end: Bytes,
    end_offset: u64,
    directory: Directory,
}

impl OpenIndex {
    async fn open(store: &Store, path: &Path) -> Result<Option<Self>> {
        let Some((size, end)) = store.end_of(path, END_BYTES).await? else { return Ok(None) };
        let footer = Footer::decode(&end, size, path.as_ref())?;
        let end_offset = size - end.len() as u64;
        let directory = match within(&end, &(end_offset..size), &footer.directory) {
            Some(directory) => Directory::decode(directory, &footer, path.as_ref())?,
            None => match store.range_of(path, footer.directory.clone()).await? {
                Some(directory) => Directory::decode(&directory, &footer, path.as_ref())?,
                None => return Ok(None),
            },
        };
        Ok(Some(Self { path: path.clone(), end, end_offset, directory }))
    }

    async fn bytes(&self, store: &Store, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let have = self.end_offset..self.end_offset + self.end.len() as u64;
        if let Some(there) = within(&self.end, &have, &range) {
            return Ok(self.end.slice_ref(there));
        }
        let gone = || Error::new(Kind::Corrupt, format!("the file index {} is gone", self.path));
        store.range_of(&self.path, range).await?.ok_or_else(gone)
    }
}

/// The bytes of `range`, out of `bytes`, which are those of `have`.
fn within<'a>(bytes: &'a [u8], have: &Range<u64>, range: &Range<u64>) -> Option<&'a [u8]> {
    let from = usize::try_from(range.start.checked_sub(have.start)?).ok()?;
    bytes.get(from..)?.get(..usize::try_from(range.end.checked_sub(range.start)?).ok()?)
}
