//! Names of tables: datasets, normalised entities and the tables every namespace has.

use std::borrow::Cow;
use std::fmt;

use crate::dataset::DatasetName;
use crate::error::TextError;

/// The name of a table in a namespace. Always safe as a part of a path and as an SQL identifier:
/// `[A-Za-z][A-Za-z0-9_-]*`, at most 100 characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName(Cow<'static, str>);

impl TableName {
    /// What batches changed.
    pub const NOTIFICATIONS: Self = Self(Cow::Borrowed("notifications"));
    /// Every accepted request.
    pub const REQUESTS: Self = Self(Cow::Borrowed("requests"));
    /// Requests that wait for their rows.
    pub const RETRIES: Self = Self(Cow::Borrowed("retries"));
    /// What requests did to rows; beside the tables that readers look at, not among them.
    pub const OUTCOMES: Self = Self(Cow::Borrowed("_alluvium/outcomes"));
    /// Refused records.
    pub const DEAD_LETTERS: Self = Self(Cow::Borrowed("dead_letters"));
    /// The tables every namespace has; no dataset or entity may have such a name.
    pub const OURS: [Self; 4] = [Self::NOTIFICATIONS, Self::REQUESTS, Self::RETRIES, Self::DEAD_LETTERS];
    /// The most characters a table's name may have: a data file's name holds it and must fit in 255 bytes.
    pub const MAX_LEN: usize = 100;

    /// Checks the name of a dataset or an entity.
    ///
    /// # Errors
    /// A name that some backend would refuse, cut or have to quote in a path, or that is (but for case) one of
    /// [`TableName::OURS`].
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let hint = "a name begins with a letter and goes on with letters, digits, _ and -, 100 characters at most";
        let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let good = text.len() <= Self::MAX_LEN && text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(inner);
        if !good {
            return Err(TextError::new(format!("{text:?} cannot be the name of a table"), hint));
        }
        if let Some(ours) = Self::OURS.iter().find(|t| t.as_str().eq_ignore_ascii_case(text)) {
            let case = if ours.as_str() == text { "" } else { " (case does not tell names apart)" };
            return Err(TextError::new(
                format!("{text:?} is the name of a table that every namespace has{case}"),
                format!("choose another name; taken are {}", Self::OURS.map(|t| t.to_string()).join(", ")),
            ));
        }
        if is_device(text) {
            return Err(TextError::new(format!("{text:?} is a device on Windows and cannot be a directory there"), hint));
        }
        Ok(Self(Cow::Owned(text.to_owned())))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_device(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let numbered = |prefix: &str| matches!(lower.strip_prefix(prefix).map(str::as_bytes), Some([b'1'..=b'9']));
    matches!(lower.as_str(), "con" | "prn" | "aux" | "nul") || numbered("com") || numbered("lpt")
}

impl From<&DatasetName> for TableName {
    fn from(dataset: &DatasetName) -> Self {
        Self(Cow::Owned(dataset.0.clone()))
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_safe_everywhere_are_taken() {
        let longest = "x".repeat(100);
        for text in ["engagement", "Email", "a", "page_views", "web-2", "con1", "com", "lpt10", longest.as_str()] {
            assert_eq!(TableName::parse(text).map(|t| t.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn names_a_backend_would_refuse_are_refused() {
        let long = "x".repeat(101);
        for (text, part) in [
            ("", "cannot be the name of a table"),
            ("_alluvium", "cannot be the name of a table"),
            ("_delta_log", "cannot be the name of a table"),
            ("1st", "cannot be the name of a table"),
            ("-a", "cannot be the name of a table"),
            ("a.b", "cannot be the name of a table"),
            ("a/b", "cannot be the name of a table"),
            ("a b", "cannot be the name of a table"),
            ("é", "cannot be the name of a table"),
            (long.as_str(), "cannot be the name of a table"),
            ("requests", "\"requests\" is the name of a table that every namespace has"),
            ("Dead_Letters", "every namespace has (case does not tell names apart)"),
            ("NUL", "device on Windows"),
            ("com1", "device on Windows"),
        ] {
            let error = TableName::parse(text).unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
    }
}
