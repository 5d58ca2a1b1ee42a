//! `_original`: what the source gave, of every identity and column of a row that requests changed.
//!
//! A JSON object in the table, null on rows that no request has changed. A key that is there with null means that the source gave
//! null; one that is not there means that the column holds what the source gave. Keys are sorted, so equal contents are equal texts.

use std::collections::BTreeMap;

use alluvium_core::{Error, Kind, Result};
use serde_json::value::RawValue;

/// The source's values by column, each as a text of JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Original(BTreeMap<String, String>);

impl Original {
    /// Reads the column's text.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if it is no JSON object.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let raw: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).map_err(|e| {
            Error::new(Kind::Corrupt, "a row's _original is not what alluvium writes")
                .hint("another program changed it; restore the data file from a backup")
                .source(std::io::Error::other(format!("line {} column {}", e.line(), e.column())))
        })?;
        Ok(Self(raw.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect()))
    }

    /// The value the source gave for a column that was changed.
    pub(crate) fn get(&self, column: &str) -> Option<&str> {
        self.0.get(column).map(String::as_str)
    }

    pub(crate) fn columns(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn insert(&mut self, column: &str, value: String) {
        self.0.insert(column.to_owned(), value);
    }

    /// The column's text; `None` where nothing is changed.
    pub(crate) fn text(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let mut text = String::from("{");
        for (name, value) in &self.0 {
            if text.len() > 1 {
                text.push(',');
            }
            crate::source::push_json_string(&mut text, name);
            text.push(':');
            text.push_str(value);
        }
        text.push('}');
        Some(text)
    }
}

/// The text that a JSON string stands for, or the digits of a number; `None` for null and everything that is no id.
pub(crate) fn id_of_json(json: &str) -> Option<String> {
    match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str(json).ok(),
        Some(b'0'..=b'9' | b'-') => Some(json.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_null_is_a_value() {
        let mut original = Original::default();
        assert_eq!(original.text(), None);
        original.insert("name", "null".to_owned());
        original.insert("lead \"id\"", "\"00Q\\u00e91\"".to_owned());
        let text = original.text().unwrap();
        assert_eq!(text, r#"{"lead \"id\"":"00Q\u00e91","name":null}"#);
        let read = Original::parse(&text).unwrap();
        assert_eq!(read, original);
        assert_eq!((read.get("name"), read.get("other")), (Some("null"), None));
        assert_eq!(id_of_json(read.get("lead \"id\"").unwrap()), Some("00Qé1".to_owned()));
        assert_eq!((id_of_json("17"), id_of_json("null"), id_of_json("{}")), (Some("17".to_owned()), None, None));
        assert_eq!(Original::parse("[]").unwrap_err().kind(), Kind::Corrupt);
    }
}
