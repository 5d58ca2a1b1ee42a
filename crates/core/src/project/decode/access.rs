//! How serde walks the parts of a node: the facts of a located value, the items of a list, the entries of a mapping.

use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess};

use super::error::DecodeError;
use super::{Body, Decoder, Node, Problem, join, suggest};

/// A value's line, column, whether it is from the environment, whether it is a scalar, its spelling, and itself.
pub(super) struct Located<'de> {
    pub decoder: Decoder<'de>,
    pub next: u8,
}

impl<'de> SeqAccess<'de> for Located<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        let place = self.decoder.place();
        self.next += 1;
        match (self.next, &self.decoder.node.body) {
            (1, _) => seed.deserialize(place.line.into_deserializer()),
            (2, _) => seed.deserialize(place.column.into_deserializer()),
            (3, _) => seed.deserialize(place.from_environment.into_deserializer()),
            (4, body) => seed.deserialize(matches!(body, Body::Scalar { .. }).into_deserializer()),
            (5, Body::Scalar { text, .. }) => seed.deserialize(text.as_str().into_deserializer()),
            (5, _) => seed.deserialize("".into_deserializer()),
            (6, _) => seed.deserialize(self.decoder.clone()),
            _ => return Ok(None),
        }
        .map(Some)
    }
}

/// The items of a list that are not broken.
pub(super) struct Items<'a, 'de> {
    pub decoder: &'a Decoder<'de>,
    pub items: std::iter::Enumerate<std::slice::Iter<'de, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        for (i, node) in self.items.by_ref() {
            let path = format!("{}[{i}]", self.decoder.path);
            if !self.decoder.is_broken(&path) {
                let item = Decoder { node, key: None, path, notes: self.decoder.notes };
                return item.clone().guard(seed.deserialize(item)).map(Some);
            }
        }
        Ok(None)
    }
}

/// The entries of a mapping that are known and not broken.
pub(super) struct Entries<'a, 'de> {
    pub decoder: &'a Decoder<'de>,
    pub entries: std::slice::Iter<'de, (Node, Node)>,
    pub known: Option<&'static [&'static str]>,
    pub value: Option<Decoder<'de>>,
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        for (key, node) in self.entries.by_ref() {
            let Decoder { path, notes, .. } = self.decoder;
            if let Some(known) = self.known.filter(|known| !known.contains(&key.text())) {
                let hint = suggest(key.text(), known.iter().copied(), "the keys here are");
                notes.add(Problem::new(key.place, path, format!("unknown key {:?}", key.text()), hint));
                continue;
            }
            let inner = join(path, key.text());
            if self.decoder.is_broken(&inner) {
                continue;
            }
            let this = Decoder { node: key, key: None, path: inner.clone(), notes };
            self.value = Some(Decoder { node, key: Some(key.place), path: inner, notes });
            return seed.deserialize(this).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let value = self.value.take().expect("serde asks for a key before its value");
        value.clone().guard(seed.deserialize(value))
    }
}
