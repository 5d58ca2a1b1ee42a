//! A JSON value, nested or not, into the cell of a declared type.
//!
//! Values are converted where they stand. One that does not fit is read to its end all the same: its record may still turn out
//! not to be JSON at all, or give the key again.

use alluvium_core::{DataType, Field, StructField, TimeUnit};

use super::cell::{Cell, Slots};
use super::convert::{Kind, Unfit};
use super::json::Stop;
use super::rescue::{Path, Step};
use super::scan::{Scanner, Syntax, unescape};

/// A value's place while it is read.
#[derive(Clone, Copy)]
struct Place<'t> {
    data_type: &'t DataType,
    unit: Option<TimeUnit>,
    /// Open objects and arrays around it.
    depth: u32,
}

/// Reads the value at the scanner as a column's.
#[inline]
pub(crate) fn column_value<'a>(
    column: &Field,
    depth: u32,
    scanner: &mut Scanner<'a>,
    slots: &mut Slots<'a>,
) -> Result<Cell<'a>, Stop> {
    let path = Path { parent: None, step: Step::Column(&column.from) };
    value(Place { data_type: &column.data_type, unit: column.unit, depth }, &path, scanner, slots)
}

/// Reads the value at the scanner as the type of its place. A value that does not fit is passed over and gives its reason.
#[inline]
fn value<'a>(place: Place<'_>, path: &Path<'_>, scanner: &mut Scanner<'a>, slots: &mut Slots<'a>) -> Result<Cell<'a>, Stop> {
    let (kind, text) = match scanner.peek()? {
        b'"' => {
            let quoted = scanner.string()?;
            if quoted.escaped {
                let start = slots.unescaped.len();
                unescape(quoted.raw, &mut slots.unescaped)?;
                return Ok(slots.simple_unescaped(place.data_type, place.unit, Kind::String, start));
            }
            (Kind::String, quoted.raw)
        }
        b'-' | b'0'..=b'9' => (Kind::Number, scanner.number()?),
        b't' => {
            scanner.literal("true")?;
            (Kind::Boolean, "true")
        }
        b'f' => {
            scanner.literal("false")?;
            (Kind::Boolean, "false")
        }
        b'n' => {
            scanner.literal("null")?;
            return Ok(Cell::Null);
        }
        b'{' => return braces(place, path, scanner, slots),
        b'[' => return brackets(place, path, scanner, slots),
        _ => return Err(scanner.error("no value where one must stand").into()),
    };
    Ok(slots.simple(place.data_type, place.unit, kind, text))
}

fn braces<'a>(place: Place<'_>, path: &Path<'_>, scanner: &mut Scanner<'a>, slots: &mut Slots<'a>) -> Result<Cell<'a>, Stop> {
    match place.data_type {
        DataType::Struct(fields) => structure(fields, place, path, scanner, slots),
        DataType::Map(key, of) => map(key, of, place, path, scanner, slots),
        _ => {
            scanner.skip(place.depth)?;
            Ok(Cell::Unfit(Unfit::Given("an object")))
        }
    }
}

fn brackets<'a>(place: Place<'_>, path: &Path<'_>, scanner: &mut Scanner<'a>, slots: &mut Slots<'a>) -> Result<Cell<'a>, Stop> {
    let DataType::Array(element) = place.data_type else {
        scanner.skip(place.depth)?;
        return Ok(Cell::Unfit(Unfit::Given("an array")));
    };
    let pending = slots.pending.len();
    let mut unfit = None;
    scanner.bump();
    if scanner.peek()? == b']' {
        scanner.bump();
    } else {
        for at in 0.. {
            let path = Path { parent: Some(path), step: Step::Item(at) };
            let item = value(Place { data_type: element, depth: place.depth + 1, ..place }, &path, scanner, slots)?;
            unfit = unfit.or(item.unfit());
            slots.pending.push(item);
            if !another(scanner, b']')? {
                break;
            }
        }
    }
    let (start, end) = slots.settle(pending);
    Ok(unfit.map_or(Cell::Array { start, end }, Cell::Unfit))
}

fn structure<'a>(
    fields: &[StructField],
    place: Place<'_>,
    path: &Path<'_>,
    scanner: &mut Scanner<'a>,
    slots: &mut Slots<'a>,
) -> Result<Cell<'a>, Stop> {
    let pending = slots.pending.len();
    slots.pending.resize(pending + fields.len(), Cell::Missing);
    let mut unfit = None;
    let mut guess = 0;
    scanner.bump();
    if scanner.peek()? == b'}' {
        scanner.bump();
    } else {
        loop {
            let key = scanner.key()?;
            let mut plain = String::new();
            let name = if key.escaped {
                unescape(key.raw, &mut plain)?;
                plain.as_str()
            } else {
                key.raw
            };
            let found = match fields.get(guess) {
                Some(field) if field.name == name => Some(guess),
                _ => fields.iter().position(|f| f.name == name),
            };
            if let Some(at) = found {
                if slots.pending[pending + at] != Cell::Missing {
                    return Err(Stop::KeyTwice);
                }
                let path = Path { parent: Some(path), step: Step::Key(key.raw) };
                let place = Place { data_type: &fields[at].data_type, depth: place.depth + 1, ..place };
                let cell = value(place, &path, scanner, slots)?;
                unfit = unfit.or(cell.unfit());
                slots.pending[pending + at] = cell;
                guess = at + 1;
            } else {
                scanner.peek()?;
                let start = scanner.at();
                scanner.skip(place.depth + 1)?;
                slots.rescued.dotted(path, key.raw, scanner.since(start));
            }
            if !another(scanner, b'}')? {
                break;
            }
        }
    }
    let (start, _) = slots.settle(pending);
    Ok(unfit.map_or(Cell::Struct { start }, Cell::Unfit))
}

fn map<'a>(
    key_type: &DataType,
    value_type: &DataType,
    place: Place<'_>,
    path: &Path<'_>,
    scanner: &mut Scanner<'a>,
    slots: &mut Slots<'a>,
) -> Result<Cell<'a>, Stop> {
    let pending = slots.pending.len();
    let mut unfit = None;
    scanner.bump();
    if scanner.peek()? == b'}' {
        scanner.bump();
    } else {
        loop {
            let key = scanner.key()?;
            let key_cell = if key.escaped {
                let start = slots.unescaped.len();
                unescape(key.raw, &mut slots.unescaped)?;
                slots.simple_unescaped(key_type, place.unit, Kind::String, start)
            } else {
                slots.simple(key_type, place.unit, Kind::String, key.raw)
            };
            let path = Path { parent: Some(path), step: Step::Key(key.raw) };
            let value_cell = value(Place { data_type: value_type, depth: place.depth + 1, ..place }, &path, scanner, slots)?;
            unfit = unfit.or(key_cell.unfit()).or(value_cell.unfit());
            slots.pending.extend([key_cell, value_cell]);
            if !another(scanner, b'}')? {
                break;
            }
        }
    }
    if unfit.is_none() && slots.has_key_twice(pending) {
        return Err(Stop::KeyTwice);
    }
    let (start, end) = slots.settle(pending);
    Ok(unfit.map_or(Cell::Map { start, end }, Cell::Unfit))
}

/// Whether another member follows, after a comma; passes over `closing` otherwise.
#[inline]
pub(super) fn another(scanner: &mut Scanner<'_>, closing: u8) -> Result<bool, Syntax> {
    let next = scanner.peek()?;
    if next == b',' || next == closing {
        scanner.bump();
        Ok(next == b',')
    } else {
        Err(scanner.error("no comma or end where one must stand"))
    }
}
