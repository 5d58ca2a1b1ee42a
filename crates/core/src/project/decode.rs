//! Reads declarations from nodes with serde, and goes on after an error.
//!
//! Serde stops at the first error. Here the node that caused it is noted as broken, and reading begins anew without that
//! node, until it succeeds; so one run reports every problem. Unknown keys are noted on the way and passed over.

mod access;
mod error;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, IntoDeserializer, Unexpected, Visitor};

use self::access::{Entries, Items, Located};
use self::error::{DecodeError, Plain};
use super::node::{Body, Node, join};
use super::problem::{Place, Problem, suggest};

/// The name under which `At` and its kin ask for a value's place, shape and spelling beside the value.
pub(super) const LOCATED: &str = "$located";
const HINT: &str = "\nhint: ";
const MAX_PROBLEMS: usize = 100;

const TRUTH: &str = "true or false";
const NUMBER: &str = "a whole number, 0 or more";
const LIST: &str = "a list";
const MAPPING: &str = "a mapping of keys to values";
const WORD: &str = "a word";
const EXAMPLES: [(&str, &str); 5] = [
    (TRUTH, "write true or false, without quotes"),
    (NUMBER, "write digits only, without quotes"),
    (LIST, "write [a, b], or - and an item on lines of their own"),
    (MAPPING, "write { key: value }, or keys on lines of their own, indented"),
    (WORD, "write one word"),
];

/// What was read, what was wrong, and the keys whose values had to be left out.
pub(super) struct Decoded<T> {
    pub value: Option<T>,
    pub problems: Vec<Problem>,
    pub broken: BTreeSet<String>,
}

/// Reads a `T` from `root`, without the nodes that do not fit.
pub(super) fn decode<'de, T: Deserialize<'de>>(root: &'de Node, notes: &'de Notes) -> Decoded<T> {
    let mut value = None;
    while notes.problems.borrow().len() < MAX_PROBLEMS {
        let before = notes.broken.borrow().len();
        match T::deserialize(Decoder { node: root, key: None, path: String::new(), notes }) {
            Ok(read) => {
                value = Some(read);
                break;
            }
            Err(_) if notes.broken.borrow().contains("") || notes.broken.borrow().len() == before => break,
            Err(_) => {}
        }
    }
    Decoded { value, problems: notes.problems.borrow().clone(), broken: notes.broken.borrow().clone() }
}

/// An error that carries a hint through serde.
pub(super) fn refuse<E: de::Error>(message: impl fmt::Display, hint: impl fmt::Display) -> E {
    E::custom(format!("{message}{HINT}{hint}"))
}

/// What was found so far.
pub(super) struct Notes {
    problems: RefCell<Vec<Problem>>,
    broken: RefCell<BTreeSet<String>>,
}

impl Notes {
    /// Notes that begin with values known to be broken.
    pub(super) fn new(broken: BTreeSet<String>) -> Self {
        Self { broken: RefCell::new(broken), problems: RefCell::default() }
    }

    fn add(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}

#[derive(Clone)]
struct Decoder<'de> {
    node: &'de Node,
    key: Option<Place>,
    path: String,
    notes: &'de Notes,
}

impl<'de> Decoder<'de> {
    /// Where the value stands: a scalar itself, anything longer at its key.
    fn place(&self) -> Place {
        match self.node.body {
            Body::Scalar { .. } => self.node.place,
            _ => self.key.unwrap_or(self.node.place),
        }
    }

    /// Notes an error that comes up from the node, and the node as broken.
    fn guard<T>(&self, result: Result<T, DecodeError>) -> Result<T, DecodeError> {
        if let Err(DecodeError::New { message, hint, missing }) = result {
            // A misspelled key was noted already; that the right one is missing is no news.
            let wanted = missing.map(|field| format!("did you mean {field:?}?"));
            let refused = missing.is_some_and(|field| self.is_broken(&join(&self.path, field)));
            let said = refused
                || self.notes.problems.borrow().iter().any(|p| p.key == self.path && p.hint.is_some() && p.hint == wanted);
            if !said {
                self.notes.add(Problem::new(self.place(), &self.path, message, hint));
            }
            self.notes.broken.borrow_mut().insert(self.path.clone());
            return Err(DecodeError::Noted);
        }
        result
    }

    fn mismatch<T>(&self, expected: &'static str) -> Result<T, DecodeError> {
        let found = match &self.node.body {
            Body::List(_) => Unexpected::Seq,
            Body::Mapping(_) => Unexpected::Map,
            Body::Scalar { text, plain: true } => match Plain::of(text) {
                Plain::Null => Unexpected::Unit,
                Plain::Bool(b) => Unexpected::Bool(b),
                Plain::Unsigned(_) | Plain::Signed(_) | Plain::Float(_) => Unexpected::Float(0.0),
                Plain::Text => Unexpected::Str(""),
            },
            Body::Scalar { .. } => Unexpected::Str(""),
        };
        let mut error = <DecodeError as de::Error>::invalid_type(found, &expected);
        if let (DecodeError::New { hint, .. }, Some((_, example))) = (&mut error, EXAMPLES.iter().find(|(e, _)| *e == expected)) {
            (*example).clone_into(hint);
        }
        self.guard(Err(error))
    }

    /// The scalar as it may be read as a number or truth value: without quotes, or from the environment.
    fn plain(&self) -> Option<Plain> {
        match &self.node.body {
            Body::Scalar { text, plain } if *plain || self.node.place.from_environment => Some(Plain::of(text)),
            _ => None,
        }
    }

    fn is_broken(&self, path: &str) -> bool {
        self.notes.broken.borrow().contains(path)
    }
}

impl<'de> Deserializer<'de> for Decoder<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let result = match &self.node.body {
            Body::List(_) => return self.deserialize_seq(visitor),
            Body::Mapping(_) => return self.deserialize_map(visitor),
            Body::Scalar { text, .. } => match self.plain().unwrap_or(Plain::Text) {
                Plain::Null => visitor.visit_unit(),
                Plain::Bool(value) => visitor.visit_bool(value),
                Plain::Unsigned(value) => visitor.visit_u64(value),
                Plain::Signed(value) => visitor.visit_i64(value),
                Plain::Float(value) => visitor.visit_f64(value),
                Plain::Text => visitor.visit_str(text),
            },
        };
        self.guard(result)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.body {
            Body::Scalar { text, plain }
                if !plain || self.node.place.from_environment || matches!(Plain::of(text), Plain::Text) =>
            {
                self.guard(visitor.visit_str(text))
            }
            _ => self.mismatch("text"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.plain() {
            Some(Plain::Bool(value)) => self.guard(visitor.visit_bool(value)),
            _ => self.mismatch(TRUTH),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.plain() {
            Some(Plain::Unsigned(value)) => self.guard(visitor.visit_u64(value)),
            _ => self.mismatch(NUMBER),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if let Some(Plain::Null) = self.plain() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        if name == LOCATED {
            let result = visitor.visit_seq(Located { decoder: self.clone(), next: 0 });
            return self.guard(result);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let Body::List(items) = &self.node.body else { return self.mismatch(LIST) };
        let result = visitor.visit_seq(Items { decoder: &self, items: items.iter().enumerate() });
        self.guard(result)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let Body::Mapping(entries) = &self.node.body else { return self.mismatch(MAPPING) };
        let result = visitor.visit_map(Entries { decoder: &self, entries: entries.iter(), known: None, value: None });
        self.guard(result)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let Body::Mapping(entries) = &self.node.body else { return self.mismatch(MAPPING) };
        let result = visitor.visit_map(Entries { decoder: &self, entries: entries.iter(), known: Some(fields), value: None });
        self.guard(result)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let Body::Scalar { text, .. } = &self.node.body else { return self.mismatch(WORD) };
        if variants.contains(&text.as_str()) {
            return self.guard(visitor.visit_enum(text.as_str().into_deserializer()));
        }
        let error = refuse(format!("{text:?} is not known here"), suggest(text, variants.iter().copied(), "write one of"));
        self.guard(Err(error))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}
