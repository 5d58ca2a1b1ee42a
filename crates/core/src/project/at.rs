//! Building blocks of the declarations: values with their place, short forms, entries in order, and texts with a grammar.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::decode::{LOCATED, refuse};
use super::problem::{Place, suggest};
use crate::dataset::TakenPolicy;
use crate::types::{DataType, TypeParseError};
use crate::units::{parse_duration, parse_size};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub place: Place,
    pub value: T,
}

/// What the decoder tells of a value beside the value.
struct Facts {
    place: Place,
    scalar: bool,
    spelling: String,
}

impl Facts {
    fn read<'de, A: SeqAccess<'de>>(seq: &mut A) -> Result<Self, A::Error> {
        let place = Place { line: part(seq)?, column: part(seq)?, from_environment: part(seq)? };
        Ok(Self { place, scalar: part(seq)?, spelling: part(seq)? })
    }
}

fn part<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(seq: &mut A) -> Result<T, A::Error> {
    seq.next_element()?.ok_or_else(|| A::Error::custom("a project file is read with its places"))
}

struct Located<T>(PhantomData<T>);

/// What is made of a located value.
trait FromLocated<'de>: Sized {
    fn from_located<A: SeqAccess<'de>>(facts: Facts, seq: &mut A) -> Result<Self, A::Error>;
}

impl<'de, T: FromLocated<'de>> Visitor<'de> for Located<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value with its place")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<T, A::Error> {
        let facts = Facts::read(&mut seq)?;
        T::from_located(facts, &mut seq)
    }
}

fn located<'de, T: FromLocated<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_newtype_struct(LOCATED, Located(PhantomData))
}

impl<'de, T: Deserialize<'de>> FromLocated<'de> for At<T> {
    fn from_located<A: SeqAccess<'de>>(facts: Facts, seq: &mut A) -> Result<Self, A::Error> {
        Ok(Self { place: facts.place, value: part(seq)? })
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        located(deserializer)
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A scalar for the common case, or a mapping that says more.
#[derive(Debug, Clone)]
pub(super) enum Short<S, L> {
    Short(S),
    Long(L),
}

impl<'de, S: Deserialize<'de>, L: Deserialize<'de>> FromLocated<'de> for Short<S, L> {
    fn from_located<A: SeqAccess<'de>>(facts: Facts, seq: &mut A) -> Result<Self, A::Error> {
        Ok(if facts.scalar { Self::Short(part(seq)?) } else { Self::Long(part(seq)?) })
    }
}

impl<'de, S: Deserialize<'de>, L: Deserialize<'de>> Deserialize<'de> for Short<S, L> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        located(deserializer)
    }
}

impl<S: JsonSchema, L: JsonSchema> JsonSchema for Short<S, L> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}Or{}", S::schema_name(), L::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (short, long) = (generator.subschema_for::<S>(), generator.subschema_for::<L>());
        json_schema!({ "anyOf": [short, long] })
    }
}

/// A mapping whose keys the user names, in the order of the file.
#[derive(Debug, Clone)]
pub(super) struct Entries<T>(pub Vec<(At<String>, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of names to values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        <BTreeMap<String, T>>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <BTreeMap<String, T>>::json_schema(generator)
    }
}

/// Any scalar, as it is spelled. Debug output hides it: it may be a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Setting(pub String);

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Setting(..)")
    }
}

impl<'de> FromLocated<'de> for Setting {
    fn from_located<A: SeqAccess<'de>>(facts: Facts, _seq: &mut A) -> Result<Self, A::Error> {
        if facts.scalar {
            Ok(Self(facts.spelling))
        } else {
            Err(refuse("expected one value", "a setting is text, a number or true or false"))
        }
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        located(deserializer)
    }
}

impl JsonSchema for Setting {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Setting".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

/// A type whose text has a grammar of its own: read from text, described by a pattern.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident($inner:ty), $parse:expr, $schema:tt) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub(super) struct $name(pub $inner);

        impl<'de> FromLocated<'de> for $name {
            fn from_located<A: SeqAccess<'de>>(facts: Facts, seq: &mut A) -> Result<Self, A::Error> {
                // What is no scalar is refused by asking it for text.
                let text = if facts.scalar { facts.spelling } else { part(seq)? };
                let parsed: Result<$inner, (String, String)> = $parse(&text);
                parsed.map(Self).map_err(|(message, hint)| refuse(message, hint))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                located(deserializer)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";

fn duration(text: &str) -> Result<Duration, (String, String)> {
    parse_duration(text).map_err(|e| (e.message().to_owned(), e.hint().to_owned()))
}

text!(
    /// A duration such as `30d`.
    DurationText(Duration), duration, { "type": "string", "pattern": DURATION }
);

text!(
    /// A duration, or `None` for the word `forever`.
    DurationOrForever(Option<Duration>),
    |text| word_or_duration(text, "forever"),
    { "anyOf": [{ "const": "forever" }, { "type": "string", "pattern": DURATION }] }
);

text!(
    /// A duration, or `None` for the word `unknown`.
    DurationOrUnknown(Option<Duration>),
    |text| word_or_duration(text, "unknown"),
    { "anyOf": [{ "const": "unknown" }, { "type": "string", "pattern": DURATION }] }
);

fn word_or_duration(text: &str, word: &str) -> Result<Option<Duration>, (String, String)> {
    if text == word {
        return Ok(None);
    }
    duration(text).map(Some).map_err(|(message, hint)| (message, format!("{hint}; or write {word}")))
}

text!(
    /// A type as Delta spells it.
    TypeText(DataType),
data_type,
    { "type": "string", "examples": ["string", "long", "timestamp", "decimal(10,2)", "struct<a: string, b: long>", "array<string>"] }
);

const TYPES: [&str; 15] = [
    "string",
    "long",
    "integer",
    "short",
    "byte",
    "double",
    "float",
    "boolean",
    "date",
    "timestamp",
    "binary",
    "decimal(p,s)",
    "struct<name: type>",
    "array<type>",
    "map<type, type>",
];

fn data_type(text: &str) -> Result<DataType, (String, String)> {
    text.parse().map_err(|e: TypeParseError| {
        let known = TYPES.map(|t| t.split(['<', '(']).next().unwrap_or(t));
        let word = text.split(['<', '(']).next().unwrap_or(text).trim();
        if known.contains(&word) || text.contains(['<', '(']) {
            return (
                e.0,
                "write it as in \"decimal(10,2)\", \"struct<a: string, b: long>\" or \"map<string, long>\", in quotes".to_owned(),
            );
        }
        (format!("{text:?} is not a type"), suggest(word, known, "the types are"))
    })
}

text!(
    /// What becomes of a file that was taken in.
    AfterText(TakenPolicy),
    |text: &str| match text {
        "keep" => Ok(TakenPolicy::Keep),
        "delete" => Ok(TakenPolicy::Delete),
        _ => match text.strip_prefix("move:").map(str::trim) {
            Some("") | None => Err((format!("{text:?} is not known here"), "write keep, delete, or move:DIR with a directory".to_owned())),
            Some(directory) => Ok(TakenPolicy::Move(directory.to_owned())),
        },
    },
    { "type": "string", "pattern": "^(keep|delete|move:.+)$" }
);

text!(
    /// A dotted path into nested input.
    PathText(Vec<String>),
    |text: &str| {
        let keys: Vec<String> = text.split('.').map(str::to_owned).collect();
        if keys.iter().any(String::is_empty) {
            return Err((format!("the path {text:?} has an empty part"), "write keys with a dot between them, as in meta.time".to_owned()));
        }
        Ok(keys)
    },
    { "type": "string", "pattern": "^[^.]+([.][^.]+)*$" }
);

text!(
    /// A size in bytes, such as `64MiB` or a bare number.
    SizeText(u64),
    |text| parse_size(text).map_err(|e| (e.message().to_owned(), e.hint().to_owned())),
    { "type": ["string", "integer"], "minimum": 1, "pattern": "^[0-9]+(B|KiB|MiB|GiB)?$" }
);
