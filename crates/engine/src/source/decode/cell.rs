//! One record's values between reading and appending.
//!
//! A record's values stand in [`Slots`] until its last byte has been read: a fault anywhere refuses the whole record and nothing
//! has to be taken back from the columns.

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

    /// The cell of a simple type for the string that was unescaped from `start` on.
    pub(crate) fn simple_unescaped(&mut self, data_type: &DataType, unit: Option<TimeUnit>, start: usize) -> Cell<'a> {
        let end = self.unescaped.len();
        match data_type {
            DataType::String => Cell::Unescaped { start, end },
            DataType::Binary => base64(&mut self.bytes, &self.unescaped[start..]),
            _ => scalar(data_type, unit, Kind::String, &self.unescaped[start..]),
        }
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
