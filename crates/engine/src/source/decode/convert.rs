//! Text to value: the one place that says what fits a declared type. Used by all text formats.
//!
//! Invariant: nothing is rounded, cut or made null. A conversion gives the exact value or says why it does not fit; only `double`
//! and `float` take the nearest value, which is what those types mean. Texts are numbers by JSON's grammar, whatever the format.

use std::fmt;

use alluvium_core::{DataType, TimeFault, TimeUnit};

use super::scan::Scanner;
use super::time;

/// What stands in the input, apart from nested values and null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A string; all that CSV has.
    String,
    /// A number, right by JSON's grammar.
    Number,
    /// `true` or `false`.
    Boolean,
}

/// A value of a simple type other than `string` and `binary`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar {
    /// `boolean`.
    Boolean(bool),
    /// All integer types, `date` in days and `timestamp` in microseconds since 1970.
    Integer(i64),
    /// `double` and `float`.
    Double(f64),
    /// `decimal`, without its point.
    Decimal(i128),
}

/// Why a value does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Something of this kind is given.
    Given(&'static str),
    NotANumber,
    NotWhole,
    OutOfRange,
    BeyondScale,
    NotABoolean,
    /// No date or time that can be kept.
    Time(TimeFault),
    NoUnit,
    NotBase64,
    NotUtf8,
    NotJson,
    KeyTwice,
    NullKey,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given(what) => return write!(f, "{what} is given"),
            Self::Time(fault) => return fault.fmt(f),
            Self::NotANumber => "the text is not exactly a number",
            Self::NotWhole => "the number is not whole",
            Self::OutOfRange => "the number is out of range",
            Self::BeyondScale => "the number has digits beyond the scale",
            Self::NotABoolean => "the text is not exactly true or false",
            Self::NoUnit => "a number is given, and the field has no unit",
            Self::NotBase64 => "the text is not exactly base64",
            Self::NotUtf8 => "the bytes are not UTF-8",
            Self::NotJson => "the text is not JSON",
            Self::KeyTwice => "a key of the map is given twice",
            Self::NullKey => "a key of the map is null",
        })
    }
}

/// The value of `text` as `data_type`, a simple type other than `string` and `binary`.
#[inline]
pub(crate) fn scalar(data_type: &DataType, unit: Option<TimeUnit>, kind: Kind, text: &str) -> Result<Scalar, Unfit> {
    match data_type {
        DataType::Long => integer(kind, text, i64::MIN, i64::MAX),
        DataType::Integer => integer(kind, text, i32::MIN.into(), i32::MAX.into()),
        DataType::Short => integer(kind, text, i16::MIN.into(), i16::MAX.into()),
        DataType::Byte => integer(kind, text, i8::MIN.into(), i8::MAX.into()),
        DataType::Double => number(kind, text).and_then(|text| finite(text.parse().unwrap_or(f64::NAN))),
        DataType::Float => number(kind, text).and_then(|text| finite(f64::from(text.parse().unwrap_or(f32::NAN)))),
        DataType::Boolean => boolean(kind, text),
        DataType::Date => match kind {
            Kind::String => time::date(text).map(|days| Scalar::Integer(days.into())),
            Kind::Number | Kind::Boolean => Err(given(kind)),
        },
        DataType::Timestamp => timestamp(unit, kind, text),
        DataType::Decimal { precision, scale } => {
            let value = decimal(number(kind, text)?, *scale)?;
            within(value, *precision).map(Scalar::Decimal)
        }
        DataType::String | DataType::Binary | DataType::Struct(_) | DataType::Array(_) | DataType::Map(..) => Err(given(kind)),
    }
}

/// That something of this kind was given where nothing of the kind fits.
pub(crate) const fn given(kind: Kind) -> Unfit {
    Unfit::Given(match kind {
        Kind::String => "a string",
        Kind::Number => "a number",
        Kind::Boolean => "a boolean",
    })
}

/// `text` once it is known to be a number: strings are looked at, numbers were by the scanner.
fn number(kind: Kind, text: &str) -> Result<&str, Unfit> {
    match kind {
        Kind::Number => Ok(text),
        Kind::String => {
            let mut scanner = Scanner::new(text);
            match scanner.number() {
                Ok(whole) if whole.len() == text.len() => Ok(text),
                _ => Err(Unfit::NotANumber),
            }
        }
        Kind::Boolean => Err(given(kind)),
    }
}

fn finite(value: f64) -> Result<Scalar, Unfit> {
    if value.is_finite() { Ok(Scalar::Double(value)) } else { Err(Unfit::OutOfRange) }
}

fn boolean(kind: Kind, text: &str) -> Result<Scalar, Unfit> {
    if kind == Kind::Number {
        return Err(given(kind));
    }
    if text.eq_ignore_ascii_case("true") {
        Ok(Scalar::Boolean(true))
    } else if text.eq_ignore_ascii_case("false") {
        Ok(Scalar::Boolean(false))
    } else {
        Err(Unfit::NotABoolean)
    }
}

#[inline]
fn integer(kind: Kind, text: &str, min: i64, max: i64) -> Result<Scalar, Unfit> {
    let value = match short_integer(text) {
        Some(value) if kind != Kind::Boolean => value,
        _ => i64::try_from(decimal(number(kind, text)?, 0)?).map_err(|_| Unfit::OutOfRange)?,
    };
    if (min..=max).contains(&value) { Ok(Scalar::Integer(value)) } else { Err(Unfit::OutOfRange) }
}

/// The fast way for what nearly all integers look like: up to 18 digits, no leading zero, perhaps a sign.
#[inline]
fn short_integer(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    let mut value = 0_i64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

fn timestamp(unit: Option<TimeUnit>, kind: Kind, text: &str) -> Result<Scalar, Unfit> {
    match kind {
        Kind::Boolean => Err(given(kind)),
        Kind::Number => {
            let unit = unit.ok_or(Unfit::NoUnit)?;
            since_1970(decimal(text, 0)?, unit)
        }
        Kind::String => match (time::timestamp(text), unit) {
            (Err(Unfit::Time(TimeFault::NotATime)), Some(unit)) => match number(kind, text) {
                Ok(text) => since_1970(decimal(text, 0)?, unit),
                Err(_) => Err(Unfit::Time(TimeFault::NotATime)),
            },
            (micros, _) => micros.map(Scalar::Integer),
        },
    }
}

fn since_1970(count: i128, unit: TimeUnit) -> Result<Scalar, Unfit> {
    let micros = count.checked_mul(match unit {
        TimeUnit::Seconds => 1_000_000,
        TimeUnit::Milliseconds => 1_000,
        TimeUnit::Microseconds => 1,
    });
    let micros = micros.and_then(|m| i64::try_from(m).ok()).ok_or(Unfit::Time(TimeFault::YearOutOfRange))?;
    time::in_range(micros).map(Scalar::Integer)
}

/// The number `text` (right by JSON's grammar) times ten to the `scale`, which must be whole.
pub(crate) fn decimal(text: &str, scale: u8) -> Result<i128, Unfit> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(e) => (&text[..e], exponent(&text[e + 1..])),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = whole.len() + fraction.len();
    let digit = |i: usize| if i < whole.len() { whole.as_bytes()[i] } else { fraction.as_bytes()[i - whole.len()] } - b'0';
    // How many of the digits stand before the point once it is moved by the exponent and the scale.
    let before_point = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(exponent).saturating_add(scale.into());

    let Some(first) = (0..digits).find(|&i| digit(i) != 0) else { return Ok(0) };
    let kept = usize::try_from(before_point.max(0)).unwrap_or(usize::MAX);
    if (kept.max(first)..digits).any(|i| digit(i) != 0) {
        return Err(if scale == 0 { Unfit::NotWhole } else { Unfit::BeyondScale });
    }
    // All that stands after the last kept digit is zero, and a non-zero digit stands before it.
    if kept - first > 39 {
        return Err(Unfit::OutOfRange);
    }
    let mut value = 0_i128;
    for i in first..kept {
        let next = if i < digits { digit(i) } else { 0 };
        value = value.checked_mul(10).and_then(|v| v.checked_add(next.into())).ok_or(Unfit::OutOfRange)?;
    }
    Ok(if negative { -value } else { value })
}

/// A value of a decimal type, when its digits are no more than `precision`.
pub(crate) fn within(value: i128, precision: u8) -> Result<i128, Unfit> {
    if value.unsigned_abs() < 10_u128.pow(precision.into()) { Ok(value) } else { Err(Unfit::OutOfRange) }
}

/// An exponent as written, held within what any text's digits could make up for.
fn exponent(text: &str) -> i64 {
    const FAR: i64 = 1 << 40;
    let value = text.parse::<i64>().unwrap_or(if text.starts_with('-') { -FAR } else { FAR });
    value.clamp(-FAR, FAR)
}

/// Appends the bytes that `text` spells in base64 (RFC 4648: the standard alphabet, padded, no other characters).
pub(crate) fn base64(text: &str, to: &mut Vec<u8>) -> Result<(), Unfit> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode_vec(text, to).map_err(|_| Unfit::NotBase64)
}
