//! Rewriting files of a table: what the jobs share that change stored rows or drop them.
//!
//! Place in the flow: a job says which rows of a file change or go; here the file in its place is made and staged, with what tells of it
//! downstream, and the batch is recorded and finished. Invariants: `tables_agree`, `bounded_memory`. Deliberately not here: why rows change.

mod chain;
mod feed;
mod file;
mod room;
mod statistics;
mod table;

pub(crate) use chain::{Resumed, RewriteChain, rewrite_lease_name};
pub(crate) use file::{Counts, Rewrite, Rewriter, internal};
pub(crate) use room::{FILES_AT_ONCE, Room};
pub(crate) use statistics::{Statistics, all_gone};
pub(crate) use table::{RewrittenFiles, RewrittenTable};
