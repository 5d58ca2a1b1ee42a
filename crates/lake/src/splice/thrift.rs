//! Thrift's compact protocol, as far as it takes to look at bytes before Parquet's reader is let loose on them.
//!
//! Place in the flow: `file` checks footers and page indexes with [`is_plausible`], `pages` reads the headers of pages. Invariant:
//! never panics, never allocates, and takes time in the number of bytes.

/// Structures nest no deeper in anything that Parquet writes.
const MAX_DEPTH: u32 = 24;

/// Whether `bytes` begin with a structure all of whose lengths and counts fit into them. Parquet's reader reserves memory for
/// some lists before it looks whether they can be there.
pub(super) fn is_plausible(bytes: &[u8]) -> bool {
    Compact::new(bytes).skip_struct(MAX_DEPTH).is_some()
}

/// A place in some bytes. All methods give `None` for what is cut or is not Thrift.
#[derive(Debug, Clone)]
pub(super) struct Compact<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A field of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    /// Its number.
    pub(super) id: i16,
    kind: u8,
}

impl<'a> Compact<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The bytes passed so far.
    pub(super) const fn position(&self) -> usize {
        self.at
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        let count = usize::try_from(count).ok()?;
        if count > self.bytes.len() - self.at {
            return None;
        }
        self.at += count;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A length without a sign.
    pub(super) fn length(&mut self) -> Option<u64> {
        self.varint()
    }

    /// A whole number of 32 bits.
    pub(super) fn int(&mut self) -> Option<i32> {
        let value = self.varint()?;
        i32::try_from((value >> 1).cast_signed() ^ -(value & 1).cast_signed()).ok()
    }

    /// The next field of a structure whose last was `last`; the inner `None` is the structure's end.
    pub(super) fn field(&mut self, last: i16) -> Option<Option<Field>> {
        let head = self.byte()?;
        if head & 0x0f == 0 {
            return Some(None);
        }
        let id = match head >> 4 {
            0 => i16::try_from(self.int()?).ok()?,
            step => last.checked_add(i16::from(step))?,
        };
        Some(Some(Field { id, kind: head & 0x0f }))
    }

    /// The whole number of a field, if it is one.
    pub(super) fn int_of(&mut self, field: Field) -> Option<i32> {
        if matches!(field.kind, 4..=6) { self.int() } else { None }
    }

    /// The truth value of a field, if it is one.
    pub(super) const fn bool_of(field: Field) -> Option<bool> {
        match field.kind {
            1 => Some(true),
            2 => Some(false),
            _ => None,
        }
    }

    /// Whether a field is a structure, at which the place then is.
    pub(super) const fn is_struct(field: Field) -> bool {
        field.kind == 12
    }

    /// Passes over the value of a field.
    pub(super) fn skip_field(&mut self, field: Field) -> Option<()> {
        // A field's truth value is in its kind.
        if matches!(field.kind, 1 | 2) { Some(()) } else { self.skip_value(field.kind, MAX_DEPTH) }
    }

    fn skip_struct(&mut self, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut last = 0;
        while let Some(field) = self.field(last)? {
            last = field.id;
            if !matches!(field.kind, 1 | 2) {
                self.skip_value(field.kind, depth)?;
            }
        }
        Some(())
    }

    fn skip_value(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            1..=3 => self.skip(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                self.skip_all(count, &[head & 0x0f], depth)
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                self.skip_all(count, &[kinds >> 4, kinds & 0x0f], depth)
            }
            12 => self.skip_struct(depth),
            13 => self.skip(16),
            _ => None,
        }
    }

    /// Passes over `count` times values of these kinds, each of which takes at least one byte.
    fn skip_all(&mut self, count: u64, kinds: &[u8], depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if count > (self.bytes.len() - self.at) as u64 {
            return None;
        }
        for _ in 0..count {
            for kind in kinds {
                self.skip_value(*kind, depth)?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_with_lists_texts_and_flags_is_plausible_and_cut_anywhere_it_is_not() {
        // By hand after the protocol: 1: i32 = 1, 2: list<i32> [1, 2], 3: binary "ab", 4: true, 5: struct {}, stop.
        let whole = [0x15, 2, 0x19, 0x25, 2, 4, 0x18, 2, b'a', b'b', 0x11, 0x1c, 0, 0];
        assert!(is_plausible(&whole));
        for cut in 0..whole.len() {
            assert!(!is_plausible(&whole[..cut]), "cut at {cut}");
        }
    }

    #[test]
    fn counts_that_cannot_be_there_are_not_plausible() {
        // A list of structures that says it has 2^28 of them.
        assert!(!is_plausible(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0]));
        // A text of 2^63 bytes.
        assert!(!is_plausible(&[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0]));
        // Structures in structures without an end.
        assert!(!is_plausible(&[0x1c; 4096]));
    }

    #[test]
    fn numbers_are_read_with_their_sign_and_field_numbers_by_step_or_whole() {
        let mut compact = Compact::new(&[0x15, 0x01, 0x05, 0x28, 0x80, 0x01, 0]);
        let first = compact.field(0).flatten().expect("a field");
        assert_eq!((first.id, compact.int_of(first)), (1, Some(-1)));
        let second = compact.field(1).flatten().expect("a field");
        assert_eq!((second.id, compact.int_of(second)), (20, Some(64)));
        assert_eq!(compact.field(20), Some(None));
        assert_eq!(compact.position(), 7);
    }
}
