//! Durations and sizes as people write them: `500ms`, `24h`, `64MiB`.
//!
//! Used for the project file, command-line flags and output. A duration always has a unit (`ms s m h d`); a size counts in
//! 1024s (`KiB MiB GiB`) or in bytes (`B`, or no unit at all). Whole numbers only, nothing between number and unit, so that
//! every text means one value. Invariant: what is printed reads back as the same value.

use std::time::Duration;

use crate::error::TextError;

const MILLIS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const BYTES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
const DURATION_HINT: &str = "write a whole number and a unit without a space: ms, s, m, h or d, as in 90s or 30d";
const SIZE_HINT: &str = "write a whole number and a unit without a space: B, KiB, MiB or GiB (1024s), as in 256MiB";

/// Reads a duration: a whole number and `ms`, `s`, `m`, `h` or `d`.
///
/// # Errors
/// Anything else, and what does not fit in 2^64 milliseconds; the error says what to write.
pub fn parse_duration(text: &str) -> Result<Duration, TextError> {
    parse(text, "duration", &MILLIS, DURATION_HINT).map(Duration::from_millis)
}

/// Prints a duration in the largest unit that divides it, as [`parse_duration`] reads it. What is finer than a millisecond is
/// left out.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 { "0s".to_owned() } else { format(millis, &MILLIS) }
}

/// Reads a size in bytes: a whole number and `B`, `KiB`, `MiB`, `GiB` or nothing.
///
/// # Errors
/// Anything else, and what does not fit in 2^64 bytes; the error says what to write.
pub fn parse_size(text: &str) -> Result<u64, TextError> {
    match text.parse() {
        Ok(bytes) if text.starts_with(|c: char| c.is_ascii_digit()) => Ok(bytes),
        _ => parse(text, "size", &BYTES, SIZE_HINT),
    }
}

/// Prints a size in the largest unit that divides it, as [`parse_size`] reads it.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    if bytes == 0 { "0B".to_owned() } else { format(bytes, &BYTES) }
}

fn parse(text: &str, what: &str, units: &[(&str, u64)], hint: &str) -> Result<u64, TextError> {
    let error = |message: String| TextError::new(message, hint);
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(error(format!("{text:?} is not a {what}")));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let problem = if unit.is_empty() { "has no unit" } else { "has an unknown unit" };
        return Err(error(format!("the {what} {text:?} {problem}")));
    };
    let value = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*factor));
    value.ok_or_else(|| error(format!("the {what} {text:?} is too large")))
}

fn format(value: u64, units: &[(&str, u64)]) -> String {
    let fits = units.iter().rev().find(|(_, factor)| value.is_multiple_of(*factor));
    let (name, factor) = fits.copied().unwrap_or(units[0]);
    format!("{}{name}", value / factor)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_of_every_unit_read_and_print() {
        for (text, millis) in
            [("0s", 0), ("1ms", 1), ("1s", 1000), ("90s", 90_000), ("3m", 180_000), ("7h", 25_200_000), ("30d", 2_592_000_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(format_duration(Duration::from_secs(86_400)), "1d");
        assert_eq!(format_duration(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn sizes_of_every_unit_read_and_print() {
        for (text, bytes) in [("0B", 0), ("17B", 17), ("1KiB", 1024), ("64MiB", 67_108_864), ("3GiB", 3_221_225_472)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(format_size(bytes), text);
        }
        assert_eq!(parse_size("1000000"), Ok(1_000_000));
        assert_eq!(format_size(1536), "1536B");
    }

    #[test]
    fn bad_durations_say_what_to_write() {
        for (text, message) in [
            ("", "\"\" is not a duration"),
            ("d", "\"d\" is not a duration"),
            ("-1s", "\"-1s\" is not a duration"),
            ("30", "the duration \"30\" has no unit"),
            ("1.5h", "the duration \"1.5h\" has an unknown unit"),
            ("5 s", "the duration \"5 s\" has an unknown unit"),
            ("1w", "the duration \"1w\" has an unknown unit"),
            ("1D", "the duration \"1D\" has an unknown unit"),
            ("18446744073709551616ms", "the duration \"18446744073709551616ms\" is too large"),
            ("213503982335d", "the duration \"213503982335d\" is too large"),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert_eq!(error.message(), message);
            assert!(error.hint().contains("30d"), "{error}");
        }
    }

    #[test]
    fn bad_sizes_say_what_to_write() {
        for (text, message) in [
            ("MiB", "\"MiB\" is not a size"),
            ("+5", "\"+5\" is not a size"),
            ("64MB", "the size \"64MB\" has an unknown unit"),
            ("64M", "the size \"64M\" has an unknown unit"),
            ("64 MiB", "the size \"64 MiB\" has an unknown unit"),
            ("1.5GiB", "the size \"1.5GiB\" has an unknown unit"),
            ("17179869184GiB", "the size \"17179869184GiB\" is too large"),
        ] {
            let error = parse_size(text).unwrap_err();
            assert_eq!(error.message(), message);
            assert!(error.hint().contains("256MiB"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn printed_values_read_back(value in any::<u64>(), shift in 0u32..63) {
            let value = value >> shift;
            prop_assert_eq!(parse_size(&format_size(value)), Ok(value));
            prop_assert_eq!(parse_duration(&format_duration(Duration::from_millis(value))), Ok(Duration::from_millis(value)));
        }
    }
}
