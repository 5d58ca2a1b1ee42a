//! A strict scanner of JSON texts (RFC 8259) that hands out slices of the text it reads.
//!
//! Place in the flow: below [`super::json`], which knows the dataset; this file knows only the grammar. It exists because
//! records must be cut into *raw* pieces: numbers and undeclared values are kept as they are written.
//!
//! Invariants: nothing that is not JSON is passed over in silence (bare control characters, unknown escapes, lone surrogates,
//! numbers like `01` or `1.`); no recursion, so no text can exhaust the stack; nothing is copied but by [`unescape`].

use std::fmt;

/// How deep objects and arrays may stand in each other, the record itself included. As deep as common JSON readers go, so that
/// what is kept in `_rescued` can be read again.
pub(crate) const MAX_DEPTH: u32 = 128;

/// Why a text is not JSON as we take it, and the byte it was seen at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Syntax {
    what: &'static str,
    at: usize,
}

impl fmt::Display for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not JSON: {} at byte {}", self.what, self.at)
    }
}

/// The inside of a JSON string as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quoted<'a> {
    /// The text between the quotes.
    pub raw: &'a str,
    /// Whether `raw` holds escapes (all of them right).
    pub escaped: bool,
}

/// Reads one text from the front.
#[derive(Debug, Clone)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The place of the next byte.
    #[inline]
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Goes to a place that [`Self::at`] gave.
    #[inline]
    pub(crate) const fn go_to(&mut self, at: usize) {
        self.at = at;
    }

    /// What was read since `start`, a place that [`Self::at`] gave.
    #[inline]
    pub(crate) fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    /// What has not been read.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// An error at the next byte.
    #[cold]
    pub(crate) const fn error(&self, what: &'static str) -> Syntax {
        Syntax { what, at: self.at }
    }

    /// The next byte that is not white space; it stays the next.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<u8, Syntax> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                _ => return Ok(byte),
            }
        }
        Err(self.error("it ends too early"))
    }

    /// Passes over the next byte, known from [`Self::peek`].
    #[inline]
    pub(crate) const fn bump(&mut self) {
        self.at += 1;
    }

    /// Passes over `byte` after white space.
    #[inline]
    pub(crate) fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Syntax> {
        if self.peek()? == byte {
            self.at += 1;
            Ok(())
        } else {
            Err(self.error(what))
        }
    }

    /// Only white space may follow.
    pub(crate) fn finish(&mut self) -> Result<(), Syntax> {
        match self.peek() {
            Err(_) => Ok(()),
            Ok(_) => Err(self.error("something follows the end of the record")),
        }
    }

    /// The string whose opening quote is the next byte.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Quoted<'a>, Syntax> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at = plain_until(self.text.as_bytes(), self.at);
            match self.text.as_bytes().get(self.at) {
                Some(b'"') => {
                    let raw = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(Quoted { raw, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.error("a bare control character in a string")),
                None => return Err(self.error("a string without an end")),
            }
        }
    }

    /// The key whose opening quote is next after white space, and its colon.
    pub(crate) fn key(&mut self) -> Result<Quoted<'a>, Syntax> {
        if self.peek()? != b'"' {
            return Err(self.error("no key where one must stand"));
        }
        let key = self.string()?;
        self.expect(b':', "no colon after a key")?;
        Ok(key)
    }

    /// The number that begins at the next byte, as written.
    #[inline]
    pub(crate) fn number(&mut self) -> Result<&'a str, Syntax> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        if bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.error("no digit where one must stand")),
        }
        if bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = bytes.get(self.at) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(self.since(start))
    }

    fn some_digits(&mut self) -> Result<(), Syntax> {
        let start = self.at;
        self.digits();
        if self.at == start { Err(self.error("no digit where one must stand")) } else { Ok(()) }
    }

    #[inline]
    fn digits(&mut self) {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    /// `true`, `false` or `null`, which must begin at the next byte.
    #[inline]
    pub(crate) fn literal(&mut self, word: &'static str) -> Result<(), Syntax> {
        if self.rest().starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            Err(self.error("a word that is not true, false or null"))
        }
    }

    /// Passes over one value, which stands in `depth` open objects and arrays.
    pub(crate) fn skip(&mut self, depth: u32) -> Result<(), Syntax> {
        // One bit an open container, the innermost lowest: 1 for an object.
        let mut objects: u128 = 0;
        let mut open = 0_u32;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'-' | b'0'..=b'9' => {
                    self.number()?;
                }
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                b'n' => self.literal("null")?,
                opening @ (b'{' | b'[') => {
                    if depth + open >= MAX_DEPTH {
                        return Err(self.error("values nested too deep"));
                    }
                    self.at += 1;
                    let (object, closing) = if opening == b'{' { (true, b'}') } else { (false, b']') };
                    if self.peek()? == closing {
                        self.at += 1;
                    } else {
                        objects = objects << 1 | u128::from(object);
                        open += 1;
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                _ => return Err(self.error("no value where one must stand")),
            }
            loop {
                if open == 0 {
                    return Ok(());
                }
                let object = objects & 1 == 1;
                match (self.peek()?, object) {
                    (b',', _) => {
                        self.at += 1;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    (b'}', true) | (b']', false) => {
                        self.at += 1;
                        objects >>= 1;
                        open -= 1;
                    }
                    _ => return Err(self.error("no comma or end where one must stand")),
                }
            }
        }
    }

    /// The character of the escape that begins at the next byte, a backslash.
    fn escape(&mut self) -> Result<char, Syntax> {
        let letter = self.text.as_bytes().get(self.at + 1).copied();
        let plain = match letter {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(),
            _ => return Err(self.error("an escape that does not exist")),
        };
        self.at += 2;
        Ok(plain)
    }

    fn code_point(&mut self) -> Result<char, Syntax> {
        const LONE: &str = "half of a surrogate pair";
        let first = self.code_unit()?;
        let code = match first {
            0xD800..=0xDBFF => match self.code_unit() {
                Ok(second @ 0xDC00..=0xDFFF) => 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00),
                _ => return Err(self.error(LONE)),
            },
            other => other,
        };
        char::from_u32(code).ok_or_else(|| self.error(LONE))
    }

    /// The number of a `\uXXXX`.
    fn code_unit(&mut self) -> Result<u32, Syntax> {
        let digits = match self.rest() {
            [b'\\', b'u', digits @ ..] if digits.len() >= 4 => &digits[..4],
            _ => return Err(self.error("an escape that does not exist")),
        };
        let mut unit = 0;
        for &digit in digits {
            let value = char::from(digit).to_digit(16).ok_or_else(|| self.error("an escape that does not exist"))?;
            unit = unit << 4 | value;
        }
        self.at += 6;
        Ok(unit)
    }
}

/// Appends what a string's inside, found right by [`Scanner::string`], means.
pub(crate) fn unescape(raw: &str, to: &mut String) -> Result<(), Syntax> {
    let mut scanner = Scanner::new(raw);
    while let Some(plain) = memchr::memchr(b'\\', scanner.rest()) {
        let start = scanner.at;
        scanner.at += plain;
        to.push_str(scanner.since(start));
        to.push(scanner.escape()?);
    }
    to.push_str(&raw[scanner.at..]);
    Ok(())
}

/// The place of the first quote, backslash or control character at or after `at`; the end when there is none.
///
/// Eight bytes at a time; the classic test for a zero byte in a word, whose lowest hit is exact.
#[inline]
fn plain_until(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*word);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        let hits = (quote.wrapping_sub(ONES) & !quote
            | backslash.wrapping_sub(ONES) & !backslash
            | word.wrapping_sub(ONES * 0x20) & !word)
            & HIGHS;
        if hits != 0 {
            return at + hits.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|&b| b >= 0x20 && b != b'"' && b != b'\\') {
        at += 1;
    }
    at
}
