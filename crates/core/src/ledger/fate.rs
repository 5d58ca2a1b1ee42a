//! A fate: what becomes of every row that hangs on one node, by its event time.

use std::sync::Arc;

use crate::request::{Id, JsonText, OrderKey};

/// What a node makes of rows, as a step function of their event time. One spelling for one meaning: neighbouring pieces differ, the last
/// piece reaches to the end of time, columns stand in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    pieces: Vec<Piece>,
}

/// What becomes of rows whose event time is after the piece before and not after `up_to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The last event time of the piece, inclusive, in microseconds since 1970; `i64::MAX` in the last piece.
    pub up_to: i64,
    /// What becomes of them.
    pub ending: Ending,
}

/// What becomes of a row, as far as one node says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It is gone.
    Erased,
    /// It stays.
    Live(Live),
}

/// What a row becomes that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// The field's id at the end.
    pub id: FinalId,
    /// The columns that are set, each once.
    pub columns: Vec<SetColumn>,
}

/// An identity field's value at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinalId {
    /// What the source gave.
    Source,
    /// Null: it was cleared.
    Null,
    /// This id, which is not the source's.
    Is(Id),
}

/// A column that is set, and by which request: of several nodes' the latest in the order counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetColumn {
    /// The column.
    pub column: Arc<str>,
    /// Its value; null where it was cleared or set to null.
    pub value: JsonText,
    /// The request that set it.
    pub order: Order,
}

/// The place of a request in the order of its organisation; compares as [`OrderKey`] does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// The execution time, in microseconds since 1970.
    pub execution_time: i64,
    /// The request's id.
    pub request_id: Arc<str>,
}

impl Order {
    /// The key it compares by.
    #[must_use]
    pub fn key(&self) -> OrderKey<'_> {
        OrderKey { execution_time: self.execution_time, request_id: &self.request_id }
    }
}

impl Ending {
    /// That nothing becomes of a row.
    pub(super) const UNTOUCHED: Self = Self::Live(Live { id: FinalId::Source, columns: Vec::new() });
}

impl Fate {
    /// The pieces in the order of time; never empty.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// What becomes of a row of this event time, in microseconds since 1970.
    #[must_use]
    pub fn at(&self, event_time: i64) -> &Ending {
        let at = self.pieces.partition_point(|piece| piece.up_to < event_time);
        &self.pieces[at].ending
    }

    /// The last event time (inclusive, in microseconds since 1970) of rows that it does not leave as the source gave them.
    #[must_use]
    pub fn last_changed(&self) -> i64 {
        match &self.pieces[..] {
            [.., before, last] if last.ending == Ending::UNTOUCHED => before.up_to,
            [last] if last.ending == Ending::UNTOUCHED => i64::MIN,
            _ => i64::MAX,
        }
    }

    /// Whether it leaves every row as the source gave it. Such fates need not be stored.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        matches!(&self.pieces[..], [Piece { ending: Ending::Live(Live { id: FinalId::Source, columns }), .. }] if columns.is_empty())
    }

    /// Rows up to an event time are gone, later ones are left alone.
    pub(super) fn erased_up_to(up_to: i64) -> Self {
        let mut fate = Pieces::new();
        fate.push(up_to, Ending::Erased);
        fate.finish(Ending::UNTOUCHED)
    }
}

/// A fate while it is put together, from the earliest event times on.
pub(super) struct Pieces(Vec<Piece>);

impl Pieces {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds the piece after those before; one that says the same as the last lengthens it.
    pub(super) fn push(&mut self, up_to: i64, ending: Ending) {
        match self.0.last_mut() {
            Some(last) if last.ending == ending => last.up_to = up_to,
            _ => self.0.push(Piece { up_to, ending }),
        }
    }

    /// The fate with its last piece.
    pub(super) fn finish(mut self, ending: Ending) -> Fate {
        self.push(i64::MAX, ending);
        Fate { pieces: self.0 }
    }

    /// The fate, if the pieces are one: ascending, to the end of time, neighbours differing.
    pub(super) fn checked(self) -> Option<Fate> {
        let ascending = self.0.windows(2).all(|w| w[0].up_to < w[1].up_to && w[0].ending != w[1].ending);
        let whole = self.0.last().is_some_and(|last| last.up_to == i64::MAX);
        (ascending && whole).then_some(Fate { pieces: self.0 })
    }

    /// Adds a piece as it was read.
    pub(super) fn read(&mut self, piece: Piece) {
        self.0.push(piece);
    }
}
