//! Where a file waits until it is whole: in memory while it is small, then in a temporary file without a name, which the system
//! removes with the process however that ends.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};

use crate::store::Store;

/// More than this is not kept in memory.
pub(super) const IN_MEMORY_BYTES: usize = 16 << 20;
/// So much is gathered for a write to the temporary file.
const WRITE_BYTES: usize = 1 << 20;

/// Bytes that were appended.
#[derive(Debug)]
pub(super) struct Spool {
    memory: Vec<u8>,
    file: Option<File>,
    in_file: u64,
    in_memory_bytes: usize,
    store: Store,
}

/// All that was appended.
#[derive(Debug)]
pub(super) enum Spooled {
    Memory(Vec<u8>),
    /// The file and its length.
    File(Arc<File>, u64),
}

impl Spool {
    /// A spool of what is put into `store`, that keeps so much in memory at the most.
    pub(super) fn new(store: &Store, in_memory_bytes: usize) -> Self {
        Self { memory: Vec::new(), file: None, in_file: 0, in_memory_bytes, store: store.clone() }
    }

    pub(super) fn len(&self) -> u64 {
        self.in_file + self.memory.len() as u64
    }

    /// Appends bytes. May block on the disk.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.memory.extend_from_slice(bytes);
        let most = if self.file.is_some() { WRITE_BYTES } else { self.in_memory_bytes };
        if self.memory.len() > most { self.spill().map_err(temporary_failed) } else { Ok(()) }
    }

    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.store.temporary_file()?),
        };
        file.write_all(&self.memory)?;
        self.in_file += self.memory.len() as u64;
        self.memory.clear();
        self.memory.shrink_to(WRITE_BYTES);
        Ok(())
    }

    /// All that was appended. May block on the disk.
    pub(super) fn finish(mut self) -> Result<Spooled> {
        if self.file.is_some() {
            self.spill().map_err(temporary_failed)?;
        }
        Ok(match self.file {
            Some(file) => Spooled::File(Arc::new(file), self.in_file),
            None => Spooled::Memory(self.memory),
        })
    }
}

fn temporary_failed(error: io::Error) -> Error {
    Error::new(Kind::Unavailable, "writing a temporary file")
        .hint("the disk is full or cannot be written to: that of the storage, if it is a directory, else that of temporary files (TMPDIR names another)")
        .source(error)
}
