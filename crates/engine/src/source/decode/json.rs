//! One JSON record into cells.
//!
//! Keys are matched by their spelling: the bytes from a key's quote to its colon are compared with those that followed the same
//! key last time, which nearly always hit; only a miss parses the key and looks it up.

use std::collections::HashMap;

use super::cell::{Cell, Slots};
use super::plan::{Entry, Plan};
use super::scan::{MAX_DEPTH, Scanner, Syntax, unescape};
use super::value::column_value;

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
