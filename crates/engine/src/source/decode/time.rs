//! Dates and times of input: as the core reads them, with the decoder's reasons.

pub(crate) use alluvium_core::{MICROS_PER_DAY, day_of_micros as day_of, push_time as push};
use alluvium_core::{day_in_range as core_day_in_range, parse_date, parse_timestamp, timestamp_in_range};

use super::convert::Unfit;

/// `micros`, when its year is in 0001 to 9999.
pub(crate) fn in_range(micros: i64) -> Result<i64, Unfit> {
    timestamp_in_range(micros).map_err(Unfit::Time)
}

/// `days`, when its year is in 0001 to 9999.
pub(crate) fn day_in_range(days: i32) -> Result<i32, Unfit> {
    core_day_in_range(days).map_err(Unfit::Time)
}

/// `YYYY-MM-DD` as days since 1970-01-01.
pub(crate) fn date(text: &str) -> Result<i32, Unfit> {
    parse_date(text).map_err(Unfit::Time)
}

/// An instant as microseconds since 1970-01-01T00:00:00Z.
#[inline]
pub(crate) fn timestamp(text: &str) -> Result<i64, Unfit> {
    parse_timestamp(text).map_err(Unfit::Time)
}
