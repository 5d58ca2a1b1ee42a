//! What the log says of a data file's rows without opening it.

use alluvium_core::{parse_date, parse_timestamp};
use alluvium_lake::ChangedFile;
use serde_json::Value;

use super::file::Counts;

/// Other writers cut the greatest time down to whole milliseconds.
const CUT_MICROS: i64 = 999;

/// Delta's statistics of a file.
pub(crate) struct Statistics(Value);

impl Statistics {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }

    /// The event times, in microseconds since 1970, that all rows lie between, both included; `None` if one may have none.
    pub(crate) fn times(&self, column: &str) -> Option<(i64, i64)> {
        let (least, greatest) = self.bounds(column)?;
        Some((parse_timestamp(least).ok()?, parse_timestamp(greatest).ok()?.saturating_add(CUT_MICROS)))
    }

    /// The one day that all rows are of, in days since 1970.
    fn day(&self, column: &str) -> Option<i32> {
        let (least, greatest) = self.bounds(column)?;
        (least == greatest).then(|| parse_date(least).ok()).flatten()
    }

    fn bounds(&self, column: &str) -> Option<(&str, &str)> {
        let Self(all) = self;
        let (least, greatest) = (all["minValues"][column].as_str()?, all["maxValues"][column].as_str()?);
        (all["nullCount"][column].as_u64() == Some(0)).then_some((least, greatest))
    }
}

/// That all rows of a file go, as a notification counts them; `None` if the log does not tell of which days they are, or how many.
pub(crate) fn all_gone(file: &ChangedFile, org: &str, statistics: Option<&Statistics>) -> Option<Counts> {
    let of_partition = || parse_date(file.partition_value("event_date")?).ok();
    let day = of_partition().or_else(|| statistics?.day("event_date"))?;
    let gone = file.deleted.as_ref().map_or(0, alluvium_lake::DeletedRows::count);
    let rows = file.rows?.checked_sub(gone)?;
    Some(Counts::from([((org.to_owned(), day), (0, rows))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(least: &str, greatest: &str, nulls: u64) -> Option<Statistics> {
        let text = serde_json::json!({
            "numRecords": 3, "minValues": { "at": least }, "maxValues": { "at": greatest }, "nullCount": { "at": nulls },
        });
        Statistics::parse(&text.to_string())
    }

    #[test]
    fn times_and_days_are_told_where_every_row_has_one() {
        let of = statistics("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z", 0);
        assert_eq!(of.and_then(|of| of.times("at")), Some((1_000, 2_999)));
        let with_nulls = statistics("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z", 1);
        assert_eq!(with_nulls.and_then(|of| of.times("at")), None);
        let of_a_day = statistics("1970-01-03", "1970-01-03", 0);
        assert_eq!(of_a_day.as_ref().and_then(|of| of.day("at")), Some(2));
        assert_eq!(of_a_day.and_then(|of| of.day("other")), None);
        assert_eq!(statistics("1970-01-03", "1970-01-04", 0).and_then(|of| of.day("at")), None);
        assert!(Statistics::parse("{").is_none());
    }
}
