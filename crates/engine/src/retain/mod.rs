//! Retain: rows whose event is older than they are kept for go.
//!
//! One chain a dataset. A batch drops all rows that are past their retention at one moment: whole files by what the log says of them, where it says
//! enough, and rows of others by a splice. It leaves the table at its position of the ledger and commits if every file that it replaces
//! still stands; if one does not, the same moment is planned again. Invariants: `tables_agree`, `fenced`. What comes in already past its
//! retention is not written by ingest, with the same rule ([`past_rows`]).

mod file;
mod rows;
mod run;

pub(crate) use rows::past_rows;
pub use run::WouldDrop;
