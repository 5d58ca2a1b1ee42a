//! One record's values between reading and appending.
//!
//! A record's values stand in [`Slots`] until its last byte has been read: a fault anywhere refuses the whole record and nothing
//! has to be taken back from the columns.

use std::collections::HashSet;

use alluvium_core::{DataType, TimeUnit};

use super::convert::{self, Kind, Scalar, Unfit};

/// One value of the declared type of its place. Texts are borrowed from the input (`'a`) where they stand there as they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cell<'a> {
    /// Not in the record.
    Missing,
    /// Null in the record.
    Null,
    /// A simple value.
    Scalar(Scalar),
    /// Text of the input.
    Text(&'a str),
    /// Text that was escaped in the input: a part of [`Slots::unescaped`].
    Unescaped { start: usize, end: usize },
    /// A part of [`Slots::bytes`].
    Bytes { start: usize, end: usize },
    /// The declared fields of a struct, from this place in [`Slots::nested`].
    Struct { start: usize },
    /// The items of an array: a part of [`Slots::nested`].
    Array { start: usize, end: usize },
    /// Keys and values of a map in turn: a part of [`Slots::nested`].
    Map { start: usize, end: usize },
    /// A value that does not fit.
    Unfit(Unfit),
}

impl Cell<'_> {
    /// Whether the record has no value here.
    #[inline]
    pub(crate) const fn is_absent(&self) -> bool {
        matches!(self, Self::Missing | Self::Null)
    }

    /// Why the value does not fit, if it does not.
    #[inline]
    pub(crate) const fn unfit(&self) -> Option<Unfit> {
        match self {
            Self::Unfit(unfit) => Some(*unfit),
            _ => None,
        }
    }
}

/// The values of one record, and the stores that they point into; used again for every record.
#[derive(Debug, Default)]
pub(crate) struct Slots<'a> {
    /// The declared columns, then the objects that are only dug into.
    pub cells: Vec<Cell<'a>>,
    /// Texts without their escapes.
    pub unescaped: String,
    /// Binary values.
    pub bytes: Vec<u8>,
    /// Parts of nested values, those of one value together.
    pub nested: Vec<Cell<'a>>,
    /// Parts of nested values that are still being read.
    pub pending: Vec<Cell<'a>>,
    /// What goes to `_rescued`.
    pub rescued: super::rescue::Rescue,
}

impl<'a> Slots<'a> {
    pub(crate) fn new(cells: usize) -> Self {
        Self { cells: vec![Cell::Missing; cells], ..Self::default() }
    }

    /// Makes room for the next record.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.cells.fill(Cell::Missing);
        self.unescaped.clear();
        self.bytes.clear();
        self.nested.clear();
        self.pending.clear();
        self.rescued.clear();
    }

    /// The same room for records that live shorter or longer.
    pub(crate) fn reuse<'b>(mut self) -> Slots<'b> {
        self.clear();
        // Vectors of a type of the same layout: the standard library keeps the allocation.
        let again = |cells: Vec<Cell<'a>>| -> Vec<Cell<'b>> { cells.into_iter().map(|_| Cell::Missing).collect() };
        Slots {
            cells: again(self.cells),
            unescaped: self.unescaped,
            bytes: self.bytes,
            nested: again(self.nested),
            pending: again(self.pending),
            rescued: self.rescued,
        }
    }

    /// The text of a string's cell; `None` for other cells.
    #[inline]
    pub(crate) fn text<'s>(&'s self, cell: &Cell<'s>) -> Option<&'s str> {
        match *cell {
            Cell::Text(text) => Some(text),
            Cell::Unescaped { start, end } => Some(&self.unescaped[start..end]),
            _ => None,
        }
    }

    /// The cell of a simple type for a text that stands in the input.
    #[inline]
    pub(crate) fn simple(&mut self, data_type: &DataType, unit: Option<TimeUnit>, kind: Kind, text: &'a str) -> Cell<'a> {
        match (data_type, kind) {
            (DataType::String, _) => Cell::Text(text),
            (DataType::Binary, Kind::String) => base64(&mut self.bytes, text),
            _ => scalar(data_type, unit, kind, text),
        }
    }

    /// The cell of a simple type for the text that was written to [`Self::unescaped`] from `start` on.
    pub(crate) fn simple_unescaped(
        &mut self,
        data_type: &DataType,
        unit: Option<TimeUnit>,
        kind: Kind,
        start: usize,
    ) -> Cell<'a> {
        let end = self.unescaped.len();
        match (data_type, kind) {
            (DataType::String, _) => Cell::Unescaped { start, end },
            (DataType::Binary, Kind::String) => base64(&mut self.bytes, &self.unescaped[start..]),
            _ => scalar(data_type, unit, kind, &self.unescaped[start..]),
        }
    }

    /// Whether the map whose keys and values are pending from `start` on has a key twice.
    pub(crate) fn has_key_twice(&self, start: usize) -> bool {
        /// What tells keys of one type apart.
        #[derive(PartialEq, Eq, Hash)]
        enum Key<'k> {
            Bytes(&'k [u8]),
            Spelled(String),
        }
        let keys = self.pending[start..].iter().step_by(2).map(|key| match *key {
            Cell::Bytes { start, end } => Key::Bytes(&self.bytes[start..end]),
            // Zero has two floats that are equal.
            Cell::Scalar(Scalar::Double(value)) => Key::Spelled(format!("{:?}", value + 0.0)),
            _ => self.text(key).map_or_else(|| Key::Spelled(format!("{key:?}")), |text| Key::Bytes(text.as_bytes())),
        });
        let mut seen = HashSet::new();
        start + 2 < self.pending.len() && !keys.into_iter().all(|key| seen.insert(key))
    }

    /// Moves what is pending from `start` on to its place among the nested parts; gives that place.
    pub(crate) fn settle(&mut self, start: usize) -> (usize, usize) {
        let at = self.nested.len();
        self.nested.extend(self.pending.drain(start..));
        (at, self.nested.len())
    }
}

#[inline]
fn scalar<'a>(data_type: &DataType, unit: Option<TimeUnit>, kind: Kind, text: &str) -> Cell<'a> {
    match convert::scalar(data_type, unit, kind, text) {
        Ok(scalar) => Cell::Scalar(scalar),
        Err(unfit) => Cell::Unfit(unfit),
    }
}

fn base64<'a>(bytes: &mut Vec<u8>, text: &str) -> Cell<'a> {
    let start = bytes.len();
    match convert::base64(text, bytes) {
        Ok(()) => Cell::Bytes { start, end: bytes.len() },
        Err(unfit) => Cell::Unfit(unfit),
    }
}
