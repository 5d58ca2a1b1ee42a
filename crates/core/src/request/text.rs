//! Texts of a request that may tell of people: ids and values. Their debug output never shows them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// An id as the text of its column: never empty, never null. Debug output is a short hash, for logs and errors.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(Arc<str>);

impl Id {
    /// The id of that text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text. Not for logs, errors or metrics.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Id {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id#{:08x}", xxh3_64(self.0.as_bytes()) >> 32)
    }
}

/// A JSON value in one spelling: no spaces, keys in the order of their bytes, strings escaped only where they must be, numbers as they were
/// written. Debug output is a short hash.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JsonText(Arc<str>);

impl JsonText {
    pub(crate) fn canonical(text: &str) -> Self {
        Self(text.into())
    }

    /// The value that a JSON text spells, if it is one; a key that stands in an object twice is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        super::json::canonical(serde_json::from_str(text).ok()?).ok()
    }

    /// JSON's null.
    #[must_use]
    pub fn null() -> Self {
        Self("null".into())
    }

    /// The JSON text. Not for logs, errors or metrics.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is JSON's null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        &*self.0 == "null"
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() { f.write_str("json null") } else { write!(f, "json#{:08x}", xxh3_64(self.0.as_bytes()) >> 32) }
    }
}
