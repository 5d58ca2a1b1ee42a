//! File indexes: which data files can hold an id, answered without opening them.
//!
//! Place in the flow: whoever stages data files for a record also stages, under the same record, one index of the ids in them
//! ([`IndexBuilder`]); whoever looks for ids asks [`IndexReader`] about the live files first. The bytes are described in
//! `docs/formats/file-index.md`.
//!
//! Invariants: an index holds hashes of 48 bits and no ids; a file that holds an id in an indexed field, as its current value or in
//! `_original`, is never said not to; an index says nothing that its files do not, so a lost one costs time and no answer. Deliberately
//! not here: which files of a table are worth asking about (partitions, statistics), and what is done with them.

mod build;
mod format;
mod hash;
mod hits;
mod read;
#[cfg(test)]
mod tests;

pub use build::{FileIds, IndexBuilder};
pub use format::FILE_INDEX_FORMAT;
pub(crate) use hash::Mixed;
pub use hash::{FieldHasher, IdHash, IdSet, SortedHashes};
pub use read::{IndexReader, MayHold, Question};
