//! Rows and what requests make of them: which cells change, and what is remembered of the source.
//!
//! Place in the flow: the fold of the ledger says what becomes of a row that the source gave so; here that becomes cells of Arrow
//! columns, for rows on their way in (ingest) and for those that stand in the table (mutate). Invariant: `confluent` — what a row
//! becomes follows from what its source gave, which `_original` keeps, and never from what it was in between.

mod edits;
mod fates;
mod original;
mod rows;

pub(crate) use edits::{RowEdits, edited};
pub(crate) use fates::{HitRow, NamedNodes, plan_edits};
pub(crate) use rows::{ORIGINAL, SourceDays, SourceRows, column, deciding_columns, event_times, texts};
