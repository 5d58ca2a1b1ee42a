//! Errors on their way through serde, and how plain scalars read.

use std::fmt;

use serde::de::{self, Unexpected};

use super::{HINT, refuse};

/// An error that serde carries up to the node it belongs to.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// Not noted yet.
    New { message: String, hint: String, missing: Option<&'static str> },
    /// Noted.
    Noted,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New { message, .. } => f.write_str(message),
            Self::Noted => f.write_str("noted"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        let text = text.to_string();
        let (message, hint) = text.split_once(HINT).unwrap_or((&text, ""));
        Self::New { message: message.to_owned(), hint: hint.to_owned(), missing: None }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let (found, hint) = match found {
            Unexpected::Bool(_) => ("true or false", "put it in quotes if it is text"),
            Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => {
                ("a number", "put it in quotes if it is text")
            }
            Unexpected::Unit => ("nothing", "write a value, or leave the key out"),
            Unexpected::Seq => ("a list", "write one value"),
            Unexpected::Map => ("a mapping", "write one value"),
            _ => ("text", ""),
        };
        refuse(format!("expected {expected}, found {found}"), hint)
    }

    fn missing_field(field: &'static str) -> Self {
        let hint = format!("add {field} here; alluvium schema describes every key");
        Self::New { message: format!("the key {field:?} is missing"), hint, missing: Some(field) }
    }
}

/// How a scalar without quotes reads by YAML's core schema.
pub(super) enum Plain {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text,
}

impl Plain {
    pub(super) fn of(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "true" | "True" | "TRUE" => return Self::Bool(true),
            "false" | "False" | "FALSE" => return Self::Bool(false),
            _ => {}
        }
        let number = text.trim_start_matches(['+', '-']).trim_start_matches('.');
        if !number.starts_with(|c: char| c.is_ascii_digit()) {
            return Self::Text;
        }
        if let Ok(value) = text.parse() {
            return Self::Unsigned(value);
        }
        if let Ok(value) = text.parse() {
            return Self::Signed(value);
        }
        text.parse().map_or(Self::Text, Self::Float)
    }
}
