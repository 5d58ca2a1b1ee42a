//! Requests: taken in like events, exactly once, by one chain whose batches are the positions of the ledger.

mod ids;
mod table;
mod taking;

pub(crate) use ids::RequestIds;
pub(crate) use table::Accepted;
pub(crate) use taking::RequestTaking;
