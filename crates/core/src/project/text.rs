//! Texts with a grammar of their own: durations, sizes, types, paths. Each says what to write when it is refused.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, SeqAccess};

use super::at::{Facts, FromLocated, located, part};
use super::decode::refuse;
use super::problem::suggest;
use crate::dataset::TakenPolicy;
use crate::project::EraseKey;
use crate::types::{DataType, TypeParseError};
use crate::units::{parse_duration, parse_size};

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
    /// Where a key is kept.
    KeyText(EraseKey),
    |text: &str| match (text, text.split_once(':').map(|(kind, name)| (kind, name.trim()))) {
        ("lake", _) => Ok(EraseKey::Lake),
        (_, Some(("env", name))) if !name.is_empty() => Ok(EraseKey::Env(name.to_owned())),
        (_, Some(("file", path))) if !path.is_empty() => Ok(EraseKey::File(path.to_owned())),
        _ => Err((format!("{text:?} is not known here"), "write lake, env:NAME, or file:PATH".to_owned())),
    },
    { "type": "string", "pattern": "^(lake|env:.+|file:.+)$" }
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
