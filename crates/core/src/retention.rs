//! How long rows are kept by the time of their event, and which are past that. Pure: the moment is given.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long the rows of a dataset are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retention {
    /// Those of organisations that are not named; `None`: for ever.
    pub others: Option<Duration>,
    /// Those of single organisations.
    pub by_org: BTreeMap<String, Duration>,
}

/// Which rows are past their retention at one moment: those whose event time is before a bound, in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RetentionBounds {
    /// That of organisations that are not named; `None`: their rows are kept for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    others: Option<i64>,
    /// Those of single organisations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    by_org: BTreeMap<String, i64>,
}

/// How many rows of a file are past their retention, as far as can be told without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastRetention {
    /// None.
    None,
    /// Some may be.
    Some,
    /// All.
    All,
}

impl Retention {
    /// Whether no row ever goes.
    #[must_use]
    pub fn is_forever(&self) -> bool {
        self.others.is_none() && self.by_org.is_empty()
    }

    /// What is past at that moment, in microseconds since 1970.
    #[must_use]
    pub fn bounds(&self, now_micros: i64) -> RetentionBounds {
        let before = |kept: &Duration| now_micros.saturating_sub(i64::try_from(kept.as_micros()).unwrap_or(i64::MAX));
        RetentionBounds {
            others: self.others.as_ref().map(before),
            by_org: self.by_org.iter().map(|(org, kept)| (org.clone(), before(kept))).collect(),
        }
    }
}

impl RetentionBounds {
    /// The bound of an organisation (exclusive); `None`: its rows are kept for ever.
    #[must_use]
    pub fn of(&self, org: &str) -> Option<i64> {
        self.by_org.get(org).copied().or(self.others)
    }

    /// The latest bound of all organisations: no row of this event time or later is past. `None`: no row ever is.
    #[must_use]
    pub fn latest(&self) -> Option<i64> {
        self.by_org.values().copied().chain(self.others).max()
    }

    /// What is past of a file's rows, all of that organisation (`None`: of any), between these event times, both included, in microseconds since
    /// 1970 (`None`: at any).
    #[must_use]
    pub fn of_file(&self, org: Option<&str>, times: Option<(i64, i64)>) -> PastRetention {
        let (all_before, none_from) = match org {
            Some(org) => (self.of(org), self.of(org)),
            // A row of an organisation that is not named may be among them.
            None => (self.others.map(|others| self.by_org.values().copied().fold(others, i64::min)), self.latest()),
        };
        let Some(none_from) = none_from else { return PastRetention::None };
        match (times, all_before) {
            (Some((least, _)), _) if least >= none_from => PastRetention::None,
            (Some((_, greatest)), Some(all_before)) if greatest < all_before => PastRetention::All,
            _ => PastRetention::Some,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000_000;

    fn days(days: u64) -> Duration {
        Duration::from_secs(days * 86_400)
    }

    fn bounds(others: Option<u64>, by_org: &[(&str, u64)]) -> RetentionBounds {
        let by_org = by_org.iter().map(|(org, kept)| ((*org).to_owned(), days(*kept))).collect();
        Retention { others: others.map(days), by_org }.bounds(100 * DAY)
    }

    #[test]
    fn an_organisation_has_its_own_bound_or_that_of_all_others() {
        let both = bounds(Some(30), &[("a", 7), ("b", 60)]);
        assert_eq!([both.of("a"), both.of("b"), both.of("c")], [Some(93 * DAY), Some(40 * DAY), Some(70 * DAY)]);
        assert_eq!(both.latest(), Some(93 * DAY));
        let one = bounds(None, &[("a", 7)]);
        assert_eq!([one.of("a"), one.of("c"), one.latest()], [Some(93 * DAY), None, Some(93 * DAY)]);
        assert!(Retention::default().is_forever());
        assert_eq!(bounds(None, &[]).latest(), None);
        assert_eq!(bounds(Some(u64::MAX / 86_400), &[]).of("a"), Some(100 * DAY - i64::MAX), "longer than there is time");
    }

    #[test]
    fn a_file_is_told_by_its_organisation_and_its_times() {
        use PastRetention::{All, None as Nothing, Some as Part};
        let both = bounds(Some(30), &[("a", 7), ("b", 60)]);
        let times = |least: i64, greatest: i64| Some((least * DAY, greatest * DAY));
        for (org, times, wanted) in [
            (Some("a"), times(80, 92), All),
            (Some("a"), times(80, 93), Part),
            (Some("a"), times(93, 99), Nothing),
            (Some("b"), times(40, 99), Nothing),
            (Some("c"), times(10, 69), All),
            (Some("c"), None, Part),
            // Of any organisation: all go only where even the rows that are kept longest do.
            (None, times(10, 39), All),
            (None, times(10, 40), Part),
            (None, times(92, 99), Part),
            (None, times(93, 99), Nothing),
        ] {
            assert_eq!(both.of_file(org, times), wanted, "{org:?} {times:?}");
        }
        let one = bounds(None, &[("a", 7)]);
        assert_eq!(one.of_file(None, times(1, 2)), Part, "others are kept for ever");
        assert_eq!(one.of_file(Some("c"), times(1, 2)), Nothing);
        assert_eq!(bounds(None, &[]).of_file(None, None), Nothing);
    }
}
