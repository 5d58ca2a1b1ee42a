//! One JSON record into cells.
//!
//! Keys are matched by their spelling: the bytes from a key's quote to its colon are compared with those that followed the same
//! key last time, which nearly always hit; only a miss parses the key and looks it up. Values are converted where they stand.

use std::collections::HashMap;

use alluvium_core::{DataType, Field, StructField, TimeUnit};

use super::cell::{Cell, Slots};
use super::convert::{Kind, Unfit};
use super::plan::{Entry, Plan};
use super::rescue::{Path, Step};
use super::scan::{MAX_DEPTH, Scanner, Syntax, unescape};

/// How many spellings of keys are remembered for one object; the keys beyond are parsed each time.
const MAX_SPELLINGS: usize = 1024;

/// Why a record was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is not JSON.
    Syntax(Syntax),
    /// It is JSON, but no object.
    NotAnObject,
    /// A key that counts stands twice in one object: to be read again without those before the last.
    KeyTwice,
}

impl From<Syntax> for Stop {
    fn from(syntax: Syntax) -> Self {
        Self::Syntax(syntax)
    }
}

/// Reads records of one dataset; remembers only how keys are spelled.
#[derive(Debug)]
pub(crate) struct JsonReader<'p> {
    plan: &'p Plan,
    spellings: Vec<Spellings>,
}

/// The known keys of one object and which followed which.
#[derive(Debug, Default)]
struct Spellings {
    known: Vec<Spelling>,
    by_text: HashMap<Box<str>, usize>,
    first: usize,
}

#[derive(Debug)]
struct Spelling {
    /// From the opening quote to the colon.
    text: Box<str>,
    entry: Option<usize>,
    /// The key that followed last time.
    next: usize,
}

/// A value's place while it is read.
#[derive(Clone, Copy)]
struct Place<'t> {
    data_type: &'t DataType,
    unit: Option<TimeUnit>,
    /// Open objects and arrays around it.
    depth: u32,
}

impl<'p> JsonReader<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Self {
        Self { plan, spellings: plan.nodes.iter().map(|_| Spellings::default()).collect() }
    }

    /// Reads one record into empty slots.
    pub(crate) fn record<'a>(&mut self, text: &'a str, slots: &mut Slots<'a>) -> Result<(), Stop> {
        let mut scanner = Scanner::new(text);
        if scanner.peek()? != b'{' {
            scanner.skip(0)?;
            scanner.finish()?;
            return Err(Stop::NotAnObject);
        }
        self.object(0, &mut scanner, slots, &mut Vec::new(), true)?;
        scanner.finish()?;
        Ok(())
    }

    /// Reads the object at the scanner; `way` holds the keys that led to it, `rescue` says whether its unknown keys are kept.
    fn object<'a>(
        &mut self,
        node: usize,
        scanner: &mut Scanner<'a>,
        slots: &mut Slots<'a>,
        way: &mut Vec<&'a str>,
        rescue: bool,
    ) -> Result<(), Stop> {
        let plan = self.plan;
        let depth = u32::try_from(way.len()).unwrap_or(MAX_DEPTH) + 1;
        scanner.bump();
        if scanner.peek()? == b'}' {
            scanner.bump();
            return Ok(());
        }
        let mut guess = self.spellings[node].first;
        let mut before = None;
        loop {
            let start = scanner.at();
            let entry = self.key(node, scanner, &mut guess, &mut before)?;
            match entry.map(|e| &plan.nodes[node].entries[e]) {
                Some(entry) if slots.cells[entry.cell] != Cell::Missing => return Err(Stop::KeyTwice),
                Some(Entry { columns, node: None, .. }) => self.columns(columns, depth, scanner, slots)?,
                Some(Entry { columns, node: Some(inner), cell }) => {
                    let is_object = scanner.peek()? == b'{';
                    let value = scanner.at();
                    if !columns.is_empty() {
                        self.columns(columns, depth, scanner, slots)?;
                    }
                    if is_object {
                        scanner.go_to(value);
                        if columns.is_empty() {
                            slots.cells[*cell] = Cell::Null;
                        }
                        way.push(raw_key(scanner, start));
                        self.object(*inner, scanner, slots, way, rescue && columns.is_empty())?;
                        slots.rescued.leave(way.len());
                        way.pop();
                    } else if columns.is_empty() {
                        slots.cells[*cell] = Cell::Null;
                        if scanner.peek()? == b'n' {
                            scanner.literal("null")?;
                        } else {
                            keep(scanner, start, depth, rescue, slots, way)?;
                        }
                    }
                }
                None => keep(scanner, start, depth, rescue, slots, way)?,
            }
            match scanner.peek()? {
                b',' => {
                    scanner.bump();
                    scanner.peek()?;
                }
                b'}' => {
                    scanner.bump();
                    return Ok(());
                }
                _ => return Err(scanner.error("no comma or end where one must stand").into()),
            }
        }
    }

    /// Passes over the key at the scanner and its colon; gives its entry.
    #[inline]
    fn key(
        &mut self,
        node: usize,
        scanner: &mut Scanner<'_>,
        guess: &mut usize,
        before: &mut Option<usize>,
    ) -> Result<Option<usize>, Syntax> {
        let spellings = &mut self.spellings[node];
        if let Some(guessed) = spellings.known.get(*guess)
            && scanner.rest().starts_with(guessed.text.as_bytes())
        {
            scanner.go_to(scanner.at() + guessed.text.len());
            *before = Some(*guess);
            *guess = guessed.next;
            return Ok(guessed.entry);
        }
        let start = scanner.at();
        let key = scanner.key()?;
        let text = scanner.since(start);
        let known = match spellings.by_text.get(text) {
            Some(&known) => known,
            None => {
                let entry = if key.escaped {
                    let mut plain = String::new();
                    unescape(key.raw, &mut plain)?;
                    self.plan.nodes[node].entry(&plain)
                } else {
                    self.plan.nodes[node].entry(key.raw)
                };
                let known = spellings.known.len();
                if known == MAX_SPELLINGS {
                    return Ok(entry);
                }
                spellings.known.push(Spelling { text: text.into(), entry, next: 0 });
                spellings.by_text.insert(text.into(), known);
                known
            }
        };
        match *before {
            Some(before) => spellings.known[before].next = known,
            None => spellings.first = known,
        }
        *before = Some(known);
        *guess = spellings.known[known].next;
        Ok(spellings.known[known].entry)
    }

    /// Reads the value at the scanner once for each of the columns.
    #[inline]
    fn columns<'a>(&self, columns: &[usize], depth: u32, scanner: &mut Scanner<'a>, slots: &mut Slots<'a>) -> Result<(), Stop> {
        scanner.peek()?;
        let start = scanner.at();
        for &column in columns {
            scanner.go_to(start);
            slots.cells[column] = column_value(&self.plan.columns[column], depth, scanner, slots)?;
        }
        Ok(())
    }
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

/// The inside of the key that begins at `start`.
fn raw_key<'a>(scanner: &Scanner<'a>, start: usize) -> &'a str {
    let mut again = scanner.clone();
    again.go_to(start);
    again.string().map_or("", |key| key.raw)
}

/// Passes over a value that no column takes and keeps it with its key, which begins at `start`.
fn keep<'a>(
    scanner: &mut Scanner<'a>,
    start: usize,
    depth: u32,
    rescue: bool,
    slots: &mut Slots<'a>,
    way: &[&'a str],
) -> Result<(), Stop> {
    scanner.peek()?;
    let value = scanner.at();
    scanner.skip(depth)?;
    if rescue {
        slots.rescued.member(way, raw_key(scanner, start), scanner.since(value));
    }
    Ok(())
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
fn another(scanner: &mut Scanner<'_>, closing: u8) -> Result<bool, Syntax> {
    let next = scanner.peek()?;
    if next == b',' || next == closing {
        scanner.bump();
        Ok(next == b',')
    } else {
        Err(scanner.error("no comma or end where one must stand"))
    }
}

/// The record with only the last of each key in each of its objects.
pub(crate) fn last_of_each_key(text: &str) -> Result<String, Syntax> {
    let mut scanner = Scanner::new(text);
    let mut out = String::with_capacity(text.len());
    last_keys(&mut scanner, 0, &mut out)?;
    Ok(out)
}

fn last_keys(scanner: &mut Scanner<'_>, depth: u32, out: &mut String) -> Result<(), Syntax> {
    let first = scanner.peek()?;
    let start = scanner.at();
    if first != b'{' && first != b'[' {
        scanner.skip(depth)?;
        out.push_str(scanner.since(start));
        return Ok(());
    }
    if depth >= MAX_DEPTH {
        return Err(scanner.error("values nested too deep"));
    }
    scanner.bump();
    out.push(char::from(first));
    if first == b'[' {
        if scanner.peek()? == b']' {
            scanner.bump();
        } else {
            loop {
                last_keys(scanner, depth + 1, out)?;
                if !another(scanner, b']')? {
                    break;
                }
                out.push(',');
            }
        }
        out.push(']');
        return Ok(());
    }
    let mut members = Vec::new();
    let mut last = HashMap::new();
    if scanner.peek()? == b'}' {
        scanner.bump();
    } else {
        loop {
            let key = scanner.key()?;
            let mut plain = String::new();
            unescape(key.raw, &mut plain)?;
            let mut member = String::new();
            last_keys(scanner, depth + 1, &mut member)?;
            last.insert(plain.clone(), members.len());
            members.push((plain, key.raw, member));
            if !another(scanner, b'}')? {
                break;
            }
        }
    }
    let kept = members.iter().enumerate().filter(|(i, (plain, ..))| last.get(plain) == Some(i));
    for (written, (_, (_, raw, member))) in kept.enumerate() {
        out.push_str(if written > 0 { ",\"" } else { "\"" });
        out.push_str(raw);
        out.push_str("\":");
        out.push_str(member);
    }
    out.push('}');
    Ok(())
}
