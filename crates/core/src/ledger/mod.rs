//! The ledger's fold: what the requests of an organisation make of every row of a dataset, past and future.
//!
//! Place in the flow: whoever needs fates gathers the requests of one organisation, or of some of its components, with the
//! intake batch of each ([`LedgerBuilder`]), and asks the [`OrgLedger`] at a position (an intake batch): for all fates (`fold`), for
//! those that a later position changes (`changed`), for requests that came late (`late`), for how many rows each request
//! matched (`attribute`), for the components (`components`). [`resolve`] makes of a row's fates what the row must be.
//!
//! What a row must become: take it as the source gave it, and apply to it, in the order of `(execution_time, request_id)`, every
//! request that matches it at that point. A convert matches whatever the event time; a delete and an update only if the event time is
//! not after their bound. A null id matches nothing. Identity fields are folded each by itself; a column takes the value of the latest
//! request that sets it, through whichever id. An erasure of an id whose field says `on_erase: clear` makes the id null, so that what
//! is later in the order does not match the row by that field, and its listed columns null, which later requests may set again.
//! Requests of other datasets, of fields the dataset lacks, and values of columns an update may not set here do not count.
//!
//! Finality: let E(n) be the rows that the requests of intake batches up to n erase. A row is erased at position n if it is in any
//! of E(1) to E(n). For a field that clears, and its columns: the id is null if it was cleared in any of the positions up to n; the
//! order of the clearing is that of the latest clearing request in any of them, and a listed column stays null unless a
//! request later than that sets it. All else is what the requests up to n make of the row.
//!
//! Purged ids: those that an erasure of a subject for privacy names, and those that led to it at its place in the order, at any position up to n. A row that
//! requests would lead to one of them keeps the id that its source gave.
//!
//! Cost: one pass back over the requests, linear in them, and once more for each batch that brings a request to execute before an erasure
//! of an earlier batch, over the requests of the component where that is so. Memory: see `org`.
//!
//! Invariants: a fate depends on the set of requests with their batches only (`confluent`); a position's fates never come from a
//! later batch. Deliberately not here: files of fates, finding the requests of a component, states and attempts of requests.

mod attribute;
mod codec;
mod components;
mod fate;
mod finality;
mod fold;
mod node;
mod org;
mod path;
mod purged;
mod resolve;
mod shape;
#[cfg(test)]
mod tests;
mod texts;

pub use attribute::RowGroup;
pub use codec::FATE_FORMAT;
pub use fate::{Ending, Fate, FinalId, Live, Order, Piece, SetColumn};
pub use fold::{FateChange, Renamed};
pub use node::{Node, NodeKey};
pub use org::{LedgerBuilder, LedgerRequest, OrgLedger};
pub use resolve::{Changed, Fates, Outcome, SourceRow, resolve};
pub use shape::Shape;

/// The number of the rules by which requests are folded: fates that were folded by others are folded anew.
pub const FOLD_RULES: u32 = 2;
