//! Keeping tables in shape: what is no longer needed goes.
//!
//! Place in the flow: behind everything else; nothing waits for it. Invariants: `no_lost_row` (what a version needs that is kept stays), and
//! what a named reader has not read is kept for it. Deliberately not here: how files are found and fenced, see [`alluvium_lake::Vacuum`].

mod purge;
mod requests;
mod vacuum;

pub use vacuum::{VacuumReport, VacuumSummary};
