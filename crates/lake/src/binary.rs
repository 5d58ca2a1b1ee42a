//! What our binary stored forms have in common: big-endian numbers, and an end that says which form it is and of which version.
//!
//! The last twelve bytes, format and magic, keep their meaning in every version of every form.

use alluvium_core::{Error, Kind, Result};

/// Format and magic.
pub(crate) const LASTING_BYTES: usize = 12;

/// A binary stored form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// What a file of it is called in messages.
    pub(crate) what: &'static str,
    /// Its last eight bytes.
    pub(crate) magic: [u8; 8],
    /// The version that this program writes and the newest it reads.
    pub(crate) newest: u32,
    /// What can be done about a damaged file.
    pub(crate) hint: &'static str,
}

impl Form {
    /// Format and magic, as they end a file.
    pub(crate) fn lasting(&self) -> [u8; LASTING_BYTES] {
        let ([a, b, c, d], [e, f, g, h, i, j, k, l]) = (self.newest.to_be_bytes(), self.magic);
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Looks whether a file that ends with `end` is of this form and one of its versions that this program reads.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if it is of another form, [`Kind::Unsupported`] if it is of a newer version.
    pub(crate) fn check(&self, end: &[u8], path: &str) -> Result<()> {
        let (_, lasting) = end.split_last_chunk::<LASTING_BYTES>().ok_or_else(|| self.corrupt(path, "it is too short"))?;
        let mut lasting = FromFront(lasting);
        let format = lasting.u32().unwrap_or_default();
        if lasting.0 != self.magic {
            return Err(self.corrupt(path, "it does not end as one"));
        }
        match format {
            0 => Err(self.corrupt(path, "its format is none that ever was")),
            newer if newer > self.newest => Err(Error::new(
                Kind::Unsupported,
                format!("the {} {path} has format {newer}, this program reads up to {}", self.what, self.newest),
            )
            .hint("a newer alluvium wrote here: use that version or a newer one")),
            _ => Ok(()),
        }
    }

    /// The error for a damaged file.
    pub(crate) fn corrupt(&self, path: &str, why: &str) -> Error {
        Error::new(Kind::Corrupt, format!("the {} {path} is damaged: {why}", self.what)).hint(self.hint)
    }
}

/// Bytes that are read from the front.
pub(crate) struct FromFront<'a>(pub(crate) &'a [u8]);

impl<'a> FromFront<'a> {
    pub(crate) fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(|bytes| u16::from_be_bytes(*bytes))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(|bytes| u32::from_be_bytes(*bytes))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(|bytes| u64::from_be_bytes(*bytes))
    }
}
