//! Writes a sorted file: entries come in order, and the file is in the store when it is whole.

use alluvium_core::{Error, Kind, Result};
use bytes::Bytes;
use object_store::path::Path;

use super::block::{self, Packer};
use super::filter::FilterBuilder;
use super::format::{BlockPlace, Tail, encode_tail};
use super::spool::{IN_MEMORY_BYTES, Spool, Spooled};
use super::{BLOCK_BYTES, MAX_META_BYTES, SortedKey};
use crate::store::{PutNew, Store};

/// How much was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortedSize {
    /// Entries.
    pub entries: u64,
    /// Different keys.
    pub keys: u64,
    /// Bytes in the store.
    pub bytes: u64,
}

/// A sorted file that is being written. Takes the memory of its index and its filter (about 1.7 bytes an entry) and up to 16 MiB
/// more; a larger file waits in a temporary file without a name.
pub struct SortedWriter {
    store: Store,
    path: Path,
    spool: Spool,
    packer: Packer,
    block: Vec<u8>,
    block_first: SortedKey,
    blocks: Vec<BlockPlace>,
    filter: FilterBuilder,
    last: Option<SortedKey>,
    entries: u64,
    keys: u64,
}

impl SortedWriter {
    /// A file that will be at `path`: a name that nobody else writes to, with an id of the writer's own in it. Nothing is at
    /// `path` before [`SortedWriter::finish`].
    ///
    /// # Errors
    /// [`Kind::Internal`] if there is no memory to compress with.
    pub fn new(store: &Store, path: Path) -> Result<Self> {
        Self::spooling(store, path, IN_MEMORY_BYTES)
    }

    pub(super) fn spooling(store: &Store, path: Path, in_memory_bytes: usize) -> Result<Self> {
        Ok(Self {
            store: store.clone(),
            path,
            spool: Spool::new(store, in_memory_bytes),
            packer: Packer::default(),
            block: Vec::with_capacity(2 * BLOCK_BYTES),
            block_first: SortedKey::LEAST,
            blocks: Vec::new(),
            filter: FilterBuilder::default(),
            last: None,
            entries: 0,
            keys: 0,
        })
    }

    /// Appends an entry, whose key is not below the last one's. May block on the disk for a moment.
    ///
    /// # Errors
    /// [`Kind::Internal`] for a key below the last one or a value beyond [`super::MAX_SORTED_VALUE_BYTES`]; [`Kind::Unavailable`] if the
    /// temporary file cannot be written.
    pub fn push(&mut self, key: SortedKey, value: &[u8]) -> Result<()> {
        match self.last {
            Some(last) if key < last => {
                return Err(Error::new(Kind::Internal, format!("entries of {} come out of order", self.path)));
            }
            Some(last) if key == last => {}
            _ => {
                self.filter.add(key);
                self.keys += 1;
                self.last = Some(key);
            }
        }
        if self.block.is_empty() {
            self.block_first = key;
        }
        block::append(&mut self.block, key, value)?;
        self.entries += 1;
        if self.block.len() >= BLOCK_BYTES { self.close_block() } else { Ok(()) }
    }

    fn close_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let too_long = |e| Error::new(Kind::Internal, "a block of a sorted file is too long").source(e);
        let (stored, checksum) = self.packer.pack(&self.block)?;
        self.blocks.push(BlockPlace {
            first: self.block_first,
            offset: self.spool.len(),
            stored_bytes: u32::try_from(stored.len()).map_err(too_long)?,
            block_bytes: u32::try_from(self.block.len()).map_err(too_long)?,
            checksum,
        });
        self.spool.append(stored)?;
        self.block.clear();
        Ok(())
    }

    /// Puts the file into the store, with a note of the caller's that is read back as it is. Durable on return.
    ///
    /// # Errors
    /// [`Kind::Conflict`] if something else stands at the path; [`Kind::Internal`] for a note of more than 64 KiB;
    /// [`Kind::Unavailable`] if the store or the temporary file failed.
    ///
    /// # Cancel safety
    /// Cancelled, the file is there, whole, or it is not there.
    pub async fn finish(mut self, meta: &str) -> Result<SortedSize> {
        if meta.len() > MAX_META_BYTES {
            return Err(Error::new(Kind::Internal, format!("the note in {} has {} bytes", self.path, meta.len())));
        }
        self.close_block()?;
        let tail = Tail {
            filter: self.filter.finish(),
            blocks: self.blocks,
            meta: meta.to_owned(),
            entries: self.entries,
            keys: self.keys,
            last: self.last.unwrap_or(SortedKey::LEAST),
        };
        self.spool.append(&tail.filter.groups)?;
        self.spool.append(&encode_tail(&tail))?;
        drop(tail);
        let size = SortedSize { entries: self.entries, keys: self.keys, bytes: self.spool.len() };
        let put = match self.spool.finish()? {
            Spooled::Memory(bytes) => self.store.put_new(&self.path, Bytes::from(bytes)).await?,
            Spooled::File(file, length) => self.store.put_own_file(&self.path, file, length).await?,
        };
        match put {
            PutNew::Created => Ok(size),
            PutNew::Exists => {
                Err(Error::new(Kind::Conflict, format!("writing {}: a file of that name is there already", self.path))
                    .hint("another process wrote it; if it does not pass, it is a fault of ours: report it"))
            }
        }
    }
}
