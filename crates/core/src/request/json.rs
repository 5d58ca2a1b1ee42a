//! JSON objects key by key, with numbers as they were written, and values in one spelling.
//!
//! `serde_json::Value` would round long numbers and keep only the last of a key given twice; a request with either must not be
//! taken for another one.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use super::text::JsonText;

/// How deep values may be nested.
const MAX_DEPTH: usize = 64;

/// What was found wrong with a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    NotJson,
    NotAnObject,
    KeyTwice,
    TooDeep,
}

/// The members of an object in the order of their keys, each once.
pub(super) type Members<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// An object's members in their order, keys given twice included.
struct Entries<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    entries.push((key, value));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A key, borrowed where it holds no escape.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// The members of the object that `text` is.
pub(super) fn members(text: &str) -> Result<Members<'_>, Fault> {
    let Entries(mut entries) = serde_json::from_str(text).map_err(|_| {
        let other = serde_json::from_str::<&RawValue>(text).is_ok_and(|value| !value.get().starts_with('{'));
        if other { Fault::NotAnObject } else { Fault::NotJson }
    })?;
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    if entries.windows(2).any(|pair| pair[0].0 == pair[1].0) { Err(Fault::KeyTwice) } else { Ok(entries) }
}

/// The items of the array that `value` is.
pub(super) fn items(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// The one spelling of a value.
pub(super) fn canonical(value: &RawValue) -> Result<JsonText, Fault> {
    let mut text = String::with_capacity(value.get().len());
    push_canonical(value.get(), 0, &mut text)?;
    Ok(JsonText::canonical(&text))
}

fn push_canonical(value: &str, depth: usize, to: &mut String) -> Result<(), Fault> {
    if depth == MAX_DEPTH {
        return Err(Fault::TooDeep);
    }
    match value.as_bytes().first() {
        Some(b'{') => {
            to.push('{');
            for (at, (key, member)) in members(value)?.into_iter().enumerate() {
                if at > 0 {
                    to.push(',');
                }
                push_string(&key, to);
                to.push(':');
                push_canonical(member.get(), depth + 1, to)?;
            }
            to.push('}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(value).map_err(|_| Fault::NotJson)?;
            to.push('[');
            for (at, item) in items.into_iter().enumerate() {
                if at > 0 {
                    to.push(',');
                }
                push_canonical(item.get(), depth + 1, to)?;
            }
            to.push(']');
        }
        Some(b'"') => push_string(&string(value).ok_or(Fault::NotJson)?, to),
        _ => to.push_str(value),
    }
    Ok(())
}

/// The string that the JSON text `value` spells, if it is one.
pub(super) fn string(value: &str) -> Option<String> {
    if let Some(plain) = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'))
        && plain.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\')
    {
        return Some(plain.to_owned());
    }
    serde_json::from_str(value).ok()
}

/// Appends `text` as a JSON string.
pub(super) fn push_string(text: &str, to: &mut String) {
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        to.push('"');
        to.push_str(text);
        to.push('"');
        return;
    }
    // A string always has a spelling.
    to.push_str(&serde_json::to_string(text).unwrap_or_default());
}
