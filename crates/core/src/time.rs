//! Dates and times: text to days and microseconds since 1970-01-01T00:00:00Z, in the proleptic Gregorian calendar.
//!
//! Place in the flow: event times of input and times of requests are read here and nowhere else, so that both know the same
//! spellings: `YYYY-MM-DD` (midnight), or a date, one of `T`, `t` and a space, `HH:MM:SS`, perhaps `.` and digits, perhaps a zone:
//! `Z`, `z`, ` UTC`, `±hh:mm`, ` ±hh:mm`. Without a zone it is UTC. Leap seconds are times but have no value of the type: refused.

use std::fmt::{self, Write as _};

/// Why a text is no date or no time that we can keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeFault {
    /// Not `YYYY-MM-DD`.
    NotADate,
    /// None of the spellings.
    NotATime,
    /// A second 60.
    LeapSecond,
    /// Digits beyond microseconds that are not zero.
    TooFine,
    /// A year before 0001 or after 9999.
    YearOutOfRange,
}

impl fmt::Display for TimeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotADate => "the text is not exactly a date, YYYY-MM-DD",
            Self::NotATime => "the text is not exactly a time",
            Self::LeapSecond => "a leap second cannot be kept",
            Self::TooFine => "the time is finer than microseconds",
            Self::YearOutOfRange => "the year is not in 0001 to 9999",
        })
    }
}

impl std::error::Error for TimeFault {}

/// Microseconds of a day.
pub const MICROS_PER_DAY: i64 = 86_400_000_000;
/// 0001-01-01T00:00:00Z.
const FIRST_MICROS: i64 = -719_162 * MICROS_PER_DAY;
/// 9999-12-31T23:59:59.999999Z.
const LAST_MICROS: i64 = 2_932_897 * MICROS_PER_DAY - 1;

/// `micros`, when its year is in 0001 to 9999.
///
/// # Errors
/// Another year.
pub const fn timestamp_in_range(micros: i64) -> Result<i64, TimeFault> {
    if FIRST_MICROS <= micros && micros <= LAST_MICROS { Ok(micros) } else { Err(TimeFault::YearOutOfRange) }
}

/// `days`, when its year is in 0001 to 9999.
///
/// # Errors
/// Another year.
pub const fn day_in_range(days: i32) -> Result<i32, TimeFault> {
    if -719_162 <= days && days <= 2_932_896 { Ok(days) } else { Err(TimeFault::YearOutOfRange) }
}

/// The UTC day of an instant.
#[inline]
#[must_use]
pub fn day_of_micros(micros: i64) -> i32 {
    i32::try_from(micros.div_euclid(MICROS_PER_DAY)).unwrap_or(if micros < 0 { i32::MIN } else { i32::MAX })
}

/// `YYYY-MM-DD` as days since 1970-01-01.
///
/// # Errors
/// Anything but a date of the years 0001 to 9999.
pub fn parse_date(text: &str) -> Result<i32, TimeFault> {
    match text.as_bytes() {
        bytes @ [_, _, _, _, _, _, _, _, _, _] => day(bytes).ok_or(TimeFault::NotADate).and_then(day_in_range),
        _ => Err(TimeFault::NotADate),
    }
}

/// An instant as microseconds since 1970-01-01T00:00:00Z.
///
/// # Errors
/// Anything but one of the spellings, and what the type cannot hold.
#[inline]
pub fn parse_timestamp(text: &str) -> Result<i64, TimeFault> {
    let Some((first, rest)) = text.as_bytes().split_at_checked(10) else { return Err(TimeFault::NotATime) };
    let days = i64::from(day(first).ok_or(TimeFault::NotATime).and_then(day_in_range)?);
    let [b'T' | b't' | b' ', h1, h2, b':', m1, m2, b':', s1, s2, rest @ ..] = rest else {
        return if rest.is_empty() { Ok(days * MICROS_PER_DAY) } else { Err(TimeFault::NotATime) };
    };
    let hour = two(*h1, *h2).filter(|&h| h < 24).ok_or(TimeFault::NotATime)?;
    let minute = two(*m1, *m2).filter(|&m| m < 60).ok_or(TimeFault::NotATime)?;
    let second = two(*s1, *s2).filter(|&s| s <= 60).ok_or(TimeFault::NotATime)?;
    let (micros, rest) = fraction(rest)?;
    let offset_minutes = zone(rest)?;
    if second == 60 {
        return Err(TimeFault::LeapSecond);
    }
    let seconds = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second - offset_minutes * 60);
    timestamp_in_range(seconds * 1_000_000 + i64::from(micros))
}

/// Microseconds of a fraction, if one stands first, and what follows it.
#[inline]
fn fraction(text: &[u8]) -> Result<(i32, &[u8]), TimeFault> {
    let [b'.', rest @ ..] = text else { return Ok((0, text)) };
    let count = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at(count);
    if digits.is_empty() {
        return Err(TimeFault::NotATime);
    }
    let mut micros = 0;
    for i in 0..6 {
        micros = micros * 10 + i32::from(digits.get(i).map_or(0, |d| d - b'0'));
    }
    if digits.iter().skip(6).any(|&d| d != b'0') {
        // What follows may still show that it is no time at all; either way it does not fit.
        zone(rest)?;
        return Err(TimeFault::TooFine);
    }
    Ok((micros, rest))
}

/// Minutes east of UTC.
#[inline]
fn zone(text: &[u8]) -> Result<i32, TimeFault> {
    match text {
        [] | [b'Z' | b'z'] | b" UTC" => Ok(0),
        [b' ', sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] | [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let hours = two(*h1, *h2).filter(|&h| h < 24).ok_or(TimeFault::NotATime)?;
            let minutes = two(*m1, *m2).filter(|&m| m < 60).ok_or(TimeFault::NotATime)?;
            let minutes = hours * 60 + minutes;
            Ok(if *sign == b'-' { -minutes } else { minutes })
        }
        _ => Err(TimeFault::NotATime),
    }
}

/// Days of a `YYYY-MM-DD` of ten bytes; a day in the year 0000 too.
#[inline]
fn day(text: &[u8]) -> Option<i32> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *text else { return None };
    let (year, month, day) = (two(y1, y2)? * 100 + two(y3, y4)?, two(m1, m2)?, two(d1, d2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    Some(days_from_civil(year, month, day))
}

/// Days since 1970-01-01; Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
const fn days_from_civil(year: i32, month: i32, day: i32) -> i32 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Appends an instant, given in nanoseconds since 1970, as RFC 3339 in UTC; a date at its midnight as `YYYY-MM-DD`.
pub fn push_time(to: &mut String, nanos: i128, is_date: bool) {
    const NANOS_PER_DAY: i128 = MICROS_PER_DAY as i128 * 1000;
    let (days, of_day) = (nanos.div_euclid(NANOS_PER_DAY), nanos.rem_euclid(NANOS_PER_DAY));
    let (year, month, day) = civil_from_days(days);
    write!(to, "{year:04}-{month:02}-{day:02}").unwrap_or_default();
    if is_date && of_day == 0 {
        return;
    }
    let (seconds, fraction) = (of_day / 1_000_000_000, of_day % 1_000_000_000);
    write!(to, "T{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60).unwrap_or_default();
    if fraction > 0 {
        let digits = format!("{fraction:09}");
        write!(to, ".{}", digits.trim_end_matches('0')).unwrap_or_default();
    }
    to.push('Z');
}

/// Year, month and day; Howard Hinnant, the same, `civil_from_days`.
const fn civil_from_days(days: i128) -> (i128, i128, i128) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[inline]
const fn two(tens: u8, ones: u8) -> Option<i32> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    if tens > 9 || ones > 9 { None } else { Some(tens as i32 * 10 + ones as i32) }
}
