//! The one maker of decorated names: everything a namespace owns is called by a name from here.
//!
//! Place in the flow: `alluvium-lake` and `alluvium-engine` ask the [`Resolver`] for every path, transaction id, file name,
//! topic and label; nothing takes an undecorated name past it. Paths are relative to the storage root, with `/` between
//! parts and none at the end. The stored forms are listed in `docs/formats/file-names.md`.
//!
//! Invariant: two different (namespace, name) pairs never give one decorated name of a kind. Paths begin with the
//! namespace, and no part holds a `/`. Topics and consumer groups stay as they are in the namespace `default` and become
//! `<ns>.<name>` elsewhere, so `a.b` could be asked for twice: by `default` as `a.b`, and by `a` as `b`. That is why `default`
//! refuses a name whose part before the first dot could be a namespace, unless the project says (`reserved_namespaces`) that
//! it will never be one; a resolver of a reserved namespace cannot be made.

mod data_file;
mod index_file;
mod resolver;
mod table;
#[cfg(test)]
mod tests_support;

use std::fmt;

pub use data_file::{DataFile, data_file, parse_data_file};
pub use index_file::{IndexFile, parse_rewrites_name, rewrites_name};
pub use resolver::{ChainFile, Resolver, app_id, ledger_app_id, parse_span_file, shape_app_id, span_file};
pub use table::TableName;

use crate::error::TextError;

/// One isolated copy of everything a project makes: `[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(String);

impl Namespace {
    /// The most characters a namespace may have.
    pub const MAX_LEN: usize = 40;
    const DEFAULT: &'static str = "default";

    /// Reads a namespace.
    ///
    /// # Errors
    /// Anything but 1 to 40 lower-case ASCII letters, digits and dashes, with no dash first or last.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let good = (1..=Self::MAX_LEN).contains(&text.len())
            && text.bytes().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if good {
            return Ok(Self(text.to_owned()));
        }
        let hint = "a namespace has 1 to 40 lower-case letters, digits and dashes, and no dash first or last, as in test-7";
        Err(TextError::new(format!("{text:?} cannot be a namespace"), hint))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether outside names stay as they are.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0 == Self::DEFAULT
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn namespaces_of_the_pattern_are_taken() {
        for text in ["default", "a", "7", "a-b", "x--y", "0123456789012345678901234567890123456789"] {
            assert_eq!(Namespace::parse(text).map(|n| n.to_string()), Ok(text.to_owned()));
        }
        assert!(Namespace::default().is_default());
        assert!(!Namespace::parse("dev").unwrap().is_default());
    }

    #[test]
    fn other_namespaces_are_refused_with_a_hint() {
        for text in ["", "-a", "a-", "A", "a.b", "a_b", "a/b", "ä", "..", "01234567890123456789012345678901234567890"] {
            let error = Namespace::parse(text).unwrap_err();
            assert_eq!(error.message(), format!("{text:?} cannot be a namespace"));
            assert!(error.hint().contains("1 to 40"));
        }
    }
}
