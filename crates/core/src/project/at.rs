//! Building blocks of the declarations: values with their place, short forms, and entries in order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::decode::{LOCATED, refuse};
use super::problem::Place;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub place: Place,
    pub value: T,
}

/// What the decoder tells of a value beside the value.
pub(super) struct Facts {
    pub place: Place,
    pub scalar: bool,
    pub spelling: String,
}

impl Facts {
    fn read<'de, A: SeqAccess<'de>>(seq: &mut A) -> Result<Self, A::Error> {
        let place = Place { line: part(seq)?, column: part(seq)?, from_environment: part(seq)? };
        Ok(Self { place, scalar: part(seq)?, spelling: part(seq)? })
    }
}

/// The next part of a located value; after the facts it is the value itself.
pub(super) fn part<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(seq: &mut A) -> Result<T, A::Error> {
    seq.next_element()?.ok_or_else(|| A::Error::custom("a project file is read with its places"))
}

struct Located<T>(PhantomData<T>);

/// What is made of a located value.
pub(super) trait FromLocated<'de>: Sized {
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

/// Asks the deserializer for a value together with what is known of it.
pub(super) fn located<'de, T: FromLocated<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
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
