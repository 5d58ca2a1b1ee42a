//! The splice writer: a data file is written anew with some rows gone and some values changed, and as little as possible decoded.
//!
//! Place in the flow: a mutation opens the files that may hold an id ([`SpliceFile::open`]), finds the rows
//! ([`SpliceFile::matching`]), reads what it must know of them ([`SpliceFile::rows_at`]), decides, and splices
//! ([`SpliceFile::splice`]); it stages what comes out. Nothing here writes to the store.
//!
//! ```text
//! row group without changes          all its column chunks are copied, byte for byte
//! row group with changed values      the changed columns are encoded again, all others copied
//! row group that loses rows          encoded again, column by column, in the file's own types
//! row group that loses all           left out
//! file that loses all                no file
//! what cannot be spliced             all rows read and encoded in the table's types
//! ```
//!
//! Invariants: the order of rows stays (bitmaps of positions rely on it); what was not changed comes through byte for byte, or, in
//! rows that moved together, value for value; beside the file that is being made, a few megabytes are in memory at a time, and one
//! column chunk. Files are those of any writer.

mod change;
mod fallback;
mod file;
mod gather;
mod guard;
mod matching;
mod pages;
mod plan;
mod rows_at;
mod source;
mod statistics;
mod target;
#[cfg(test)]
mod tests;
mod thrift;
mod write;

use alluvium_core::TableSpec;
use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;

pub use self::file::SpliceFile;
pub(crate) use self::file::reader_metadata;
pub use self::matching::Wanted;
use crate::pieces::Pieces;
use crate::stage::Encoder;

/// What is to become of a file's rows. Positions count the file's rows from 0, marked ones included.
#[derive(Debug, Clone, Default)]
pub struct Edits {
    /// Positions of the rows that go, ascending.
    pub deleted: Vec<u64>,
    /// New values, at most one entry for a column.
    pub columns: Vec<ColumnEdit>,
}

/// New values of some rows in one top-level column.
#[derive(Debug, Clone)]
pub struct ColumnEdit {
    /// The column: one of the table, and not one that it is partitioned by.
    pub column: String,
    /// Positions of the rows, ascending. Of those that go nothing is taken.
    pub rows: Vec<u64>,
    /// A value for each of `rows`, in the table's type.
    pub values: ArrayRef,
}

/// How the files of one table are written.
#[derive(Debug)]
pub struct SpliceSettings {
    spec: TableSpec,
    /// The table's columns as its log has them: those that are no longer declared, too.
    schema: SchemaRef,
    encoder: Encoder,
    target_file_bytes: u64,
}

impl SpliceSettings {
    /// Settings for the table that `spec` declares and whose columns are `schema`, as in the log (`Standing::schema`).
    #[must_use]
    pub fn new(spec: &TableSpec, schema: &SchemaRef) -> Self {
        let encoder = Encoder::new(spec, Vec::new());
        Self { spec: spec.clone(), schema: schema.clone(), encoder, target_file_bytes: spec.target_file_bytes }
    }
}

/// What a file became.
#[derive(Debug)]
#[must_use]
pub struct Spliced {
    /// The files in its place, whose rows follow one another; none if no row is left.
    pub files: Vec<SplicedFile>,
    /// Bytes of column chunks that were copied as they were.
    pub bytes_copied: u64,
    /// Bytes of column chunks that were encoded.
    pub bytes_encoded: u64,
    /// Whether the file could not be spliced and all of it was encoded in the table's types.
    pub fell_back: bool,
}

/// A file to be staged.
#[derive(Debug)]
pub struct SplicedFile {
    /// All of it; what was copied is still where it was.
    pub pieces: Pieces,
    /// Its rows.
    pub rows: u64,
    /// Delta's statistics, as the JSON text that the log will hold.
    pub stats: String,
}
