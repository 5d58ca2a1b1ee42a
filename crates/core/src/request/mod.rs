//! Requests: what one is, how it is read from what came in, and how it is stored.
//!
//! Place in the flow: taking requests in hands each line to [`read_request`]; what is refused goes to the dead letters with the
//! [`Refusal`]; what is taken is stored as [`Request::to_json`] in `requests`, and the ledger folds it. The contract's grammar is
//! read in `parse`, held against the declarations in `check`. Stored form: `docs/formats/request.md`.
//!
//! Invariants: two requests are the same content exactly when their [`Request::digest`]s are equal, however they were spelled. A
//! reason never quotes an id or a value. Deliberately not here: whether an id of a request is known already, and attempts.

mod check;
mod codec;
mod json;
mod parse;
mod stored;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use check::as_column_text;
pub use check::read_request;
pub use stored::{REQUEST_FORMAT, RequestDigest};
pub use text::{Id, JsonText};

use crate::dataset::DatasetName;

/// The most bytes one request may have as it comes in.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;
/// The most bytes of a request's id.
pub const MAX_REQUEST_ID_BYTES: usize = 256;
/// The most bytes of an organisation in a request.
pub const MAX_REQUEST_ORG_BYTES: usize = 1024;
/// The most bytes of an id or a record's key in a request.
pub const MAX_ID_BYTES: usize = 8192;
/// The most subjects of one delete.
pub const MAX_SUBJECTS: usize = 1000;

/// One instruction to change the rows of an organisation, stored ones and those to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its id: the same id is the same request.
    pub id: String,
    /// The organisation, as the text of its column.
    pub org: String,
    /// The one dataset it holds for; `None`: every dataset that has what it names.
    pub dataset: Option<DatasetName>,
    /// When it was meant, in microseconds since 1970: it orders and bounds, and never delays.
    pub execution_time: i64,
    /// What to do.
    pub op: Op,
}

/// What a request does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Rows whose identity field is `from` get `to`, whatever their event time.
    Convert {
        /// The identity field.
        field: String,
        /// The id that goes.
        from: Id,
        /// The id that comes; another.
        to: Id,
    },
    /// Rows are erased.
    Delete(Delete),
    /// Rows whose identity field is `id` and whose event time is not after the execution time get new values.
    Update {
        /// The identity field.
        field: String,
        /// The id.
        id: Id,
        /// The columns and their values; at least one.
        set: BTreeMap<String, JsonText>,
    },
}

/// An erasure of rows whose event time is not after the request's bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// Which rows.
    pub scope: Scope,
    /// Bounds the event time, inclusive, in the place of the execution time; microseconds since 1970.
    pub until: Option<i64>,
    /// Whether it is carried on to purging and a receipt.
    pub privacy: bool,
}

/// Which rows a delete is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Those that hold one of these ids; at least one. What goes is the row or the id, as the field's `on_erase` says.
    Subject(BTreeSet<Subject>),
    /// All of the organisation.
    Org,
    /// The record with this key.
    Record(Id),
    /// Those with an event time before this; microseconds since 1970.
    Before(i64),
}

/// An id in an identity field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// The identity field.
    pub field: String,
    /// The id.
    pub id: Id,
}

/// A request's place in the order of its organisation: by execution time, and at equal times by the bytes of the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderKey<'r> {
    /// The execution time, in microseconds since 1970.
    pub execution_time: i64,
    /// The request's id.
    pub request_id: &'r str,
}

impl Request {
    /// The place in the order of its organisation.
    #[must_use]
    pub fn order_key(&self) -> OrderKey<'_> {
        OrderKey { execution_time: self.execution_time, request_id: &self.id }
    }

    /// The last event time (inclusive, microseconds since 1970) of rows it can match; `None`: any.
    #[must_use]
    pub fn last_event_time(&self) -> Option<i64> {
        match &self.op {
            Op::Convert { .. } => None,
            Op::Update { .. } => Some(self.execution_time),
            Op::Delete(delete) => Some(delete.last_event_time(self.execution_time)),
        }
    }
}

impl Delete {
    /// The last event time (inclusive, microseconds since 1970) of rows that a delete of this execution time can match.
    #[must_use]
    pub fn last_event_time(&self, execution_time: i64) -> i64 {
        let bound = self.until.unwrap_or(execution_time);
        match self.scope {
            Scope::Before(before) => bound.min(before.saturating_sub(1)),
            Scope::Subject(_) | Scope::Org | Scope::Record(_) => bound,
        }
    }
}

/// Why a request was not taken, for its dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In plain words; quotes no id and no value.
    pub reason: String,
    /// The key of the request that is wrong; empty where it is the request as a whole.
    pub field: String,
}

impl Refusal {
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}
