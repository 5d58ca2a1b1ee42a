//! Requests: taken in like events, exactly once, by one chain whose batches are the positions of the ledger.

mod counting;
mod ids;
mod open;
mod show;
mod states;
mod table;
mod taking;

pub(crate) use counting::{BYTES_OF_A_HIT, Counting, Matched};
pub(crate) use ids::RequestIds;
pub(crate) use open::{RequestsTried, Retries};
pub use show::{ChangedBy, RequestState, RequestStatus};
pub(crate) use states::{NewRequest, StateWriter, mutation_of};
pub(crate) use table::{Accepted, TakenHere, replaced_rows};
pub(crate) use taking::{RequestTaking, Taken};
