//! Numbers and texts as bytes, each in one spelling: what fates and requests are stored with in sorted files.

/// LEB128.
pub(crate) fn number(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// A signed number, zigzag.
pub(crate) fn time(value: i64, to: &mut Vec<u8>) {
    number(((value << 1) ^ (value >> 63)) as u64, to);
}

pub(crate) fn text(value: &str, to: &mut Vec<u8>) {
    number(value.len() as u64, to);
    to.extend_from_slice(value.as_bytes());
}

/// Reads what was written, from the first byte on; `None` for what none of these wrote.
pub(crate) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub(crate) const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all was read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            // The tenth byte has room for one bit; an ending zero would be a second spelling.
            if (shift == 63 && bits > 1) || (byte == 0 && shift > 0) {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn time(&mut self) -> Option<i64> {
        let coded = self.number()?;
        Some((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }

    pub(crate) fn text(&mut self) -> Option<&'b str> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}
