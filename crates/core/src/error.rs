//! One error type for all crates: few kinds, each a different thing for the caller to do.

use std::error::Error as StdError;
use std::fmt;

/// What the caller can do about an [`Error`]. Each kind has its own exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A fault of ours: report it.
    Internal,
    /// Bad usage or configuration: mend the input.
    Invalid,
    /// Not there, or no longer kept.
    NotFound,
    /// Somebody else holds or made it: decide who is right.
    Conflict,
    /// Another owner has taken over this work: stop.
    Fenced,
    /// The outside is not reachable, full or not readable: try again later.
    Unavailable,
    /// We do not do this (yet), or the other side speaks a newer format.
    Unsupported,
    /// Stored bytes are not what they must be: repair before going on.
    Corrupt,
    /// A check was carried out and said no.
    CheckFailed,
}

impl Kind {
    /// The process exit code of this kind.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Internal => 1,
            Self::Invalid => 2,
            Self::NotFound => 3,
            Self::Conflict => 4,
            Self::Fenced => 5,
            Self::Unavailable => 6,
            Self::Unsupported => 7,
            Self::Corrupt => 8,
            Self::CheckFailed => 9,
        }
    }
}

/// Why a short text (a name, a duration, a size) was refused, and what would be right. Whoever read the text says where it stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    message: String,
    hint: String,
}

impl TextError {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }

    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What would be right.
    #[must_use]
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.hint)
    }
}

impl StdError for TextError {}

/// An error with its kind, what was being done with what, and a hint.
///
/// `Display` prints the message and the hint, never the source: walk [`StdError::source`] for that.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    hint: Option<String>,
    lasting: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// A result with our [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind`; `message` in lower case says what was being done, and with what.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, lasting: false, source: None }
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Marks an error that does not pass by itself, whatever its kind: somebody must decide.
    #[must_use]
    pub const fn lasting(mut self) -> Self {
        self.lasting = true;
        self
    }

    /// Whether the same may well succeed if it is tried again in a while.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self.kind, Kind::Unavailable) && !self.lasting
    }

    /// Adds the error below this one.
    #[must_use]
    pub fn source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Puts `context` before the message and keeps the rest.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// What the caller can do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What the user can do, if we know.
    #[must_use]
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The message alone.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The message and all sources below it, in one line.
    #[must_use]
    pub fn chain_text(&self) -> String {
        let mut text = self.message.clone();
        let mut below = StdError::source(self);
        while let Some(e) = below {
            text.push_str(": ");
            text.push_str(&e.to_string());
            below = e.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}
