//! What befalls an operation on the store.

use std::fmt;
use std::time::Duration;

use super::dice::{Dice, hash};

/// What a process does with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Verb {
    Put,
    Get,
    List,
    Delete,
}

impl Verb {
    fn writes(self) -> bool {
        matches!(self, Self::Put | Self::Delete)
    }
}

/// One operation among all of a world.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Site {
    /// The process, and which of its lives.
    pub(super) process: usize,
    pub(super) life: u32,
    pub(super) verb: Verb,
    /// The path with what is random in it left out.
    pub(super) place: String,
    /// How many like it the process did before in this life.
    pub(super) nth: u32,
}

/// Takes out of a path what is random in it: words of 32 hexadecimal digits.
pub(super) fn place(path: &str) -> String {
    let is_id = |word: &str| word.len() == 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
    path.split('/')
        .map(|part| part.split('-').map(|w| if is_id(w) { "*" } else { w }).collect::<Vec<_>>().join("-"))
        .collect::<Vec<_>>()
        .join("/")
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing is done, and the caller is told so.
    Refused,
    /// It is done, and the caller is told that it failed.
    AnswerLost,
    /// The caller is told that it failed; it is done so much later.
    Late(Duration),
    /// The process dies and nothing was done.
    DiesBefore,
    /// It is done and the process dies.
    DiesAfter,
    /// The process dies; it is done so much later.
    DiesLate(Duration),
    /// The process stands still for so long before it asks.
    PausedBefore(Duration),
    /// The process stands still for so long before it hears the answer.
    PausedAfter(Duration),
    /// A listing shows what was there so much earlier.
    Stale(Duration),
}

impl Fault {
    /// Whether the process may fail of it.
    pub(super) fn may_fail(self) -> bool {
        !matches!(self, Self::PausedBefore(_) | Self::PausedAfter(_))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => write!(f, "fails, nothing done"),
            Self::AnswerLost => write!(f, "is done, the answer lost"),
            Self::Late(by) => write!(f, "fails, and is done {} ms later", by.as_millis()),
            Self::DiesBefore => write!(f, "is not done, the process dies"),
            Self::DiesAfter => write!(f, "is done, the process dies"),
            Self::DiesLate(by) => write!(f, "the process dies, and it is done {} ms later", by.as_millis()),
            Self::PausedBefore(by) => write!(f, "the process stands still for {} ms before it", by.as_millis()),
            Self::PausedAfter(by) => write!(f, "the process stands still for {} ms after it", by.as_millis()),
            Self::Stale(by) => write!(f, "shows what was there {} ms earlier", by.as_millis()),
        }
    }
}

/// How often each kind of fault happens, in thousandths. Every world leaves some kinds out altogether.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    refused: u64,
    answer_lost: u64,
    late: u64,
    dies: u64,
    dies_late: u64,
    paused: u64,
    stale: u64,
    slow: u64,
    leaves: u64,
}

impl Weather {
    #[cfg(test)]
    pub(super) const CALM: Self =
        Self { refused: 0, answer_lost: 0, late: 0, dies: 0, dies_late: 0, paused: 0, stale: 0, slow: 0, leaves: 0 };

    pub(super) fn of(dice: &mut Dice) -> Self {
        let mut some = |times: &[u64]| dice.one_of(times);
        let (refused, answer_lost, late, dies) =
            (some(&[0, 0, 4, 15]), some(&[0, 0, 10, 40]), some(&[0, 0, 8, 30]), some(&[0, 5, 15, 30]));
        Self {
            refused,
            answer_lost,
            late,
            dies,
            dies_late: dies / 2,
            paused: some(&[0, 0, 5, 20]),
            stale: some(&[0, 0, 10, 50]),
            slow: some(&[0, 20, 100]),
            leaves: 0,
        }
    }

    /// The same where every put is carried out when it is answered, and listings show what is there.
    pub(super) const fn prompt(self) -> Self {
        Self { late: 0, stale: 0, dies_late: 0, ..self }
    }

    /// The same where processes mostly die with a batch of rows recorded, which is left to whoever comes next.
    pub(super) const fn leaving(self) -> Self {
        Self { leaves: 300, ..self }
    }

    /// Whether listings may show what is no longer so.
    pub(super) const fn lists_late(&self) -> bool {
        self.stale > 0
    }
}

/// Whether the record of a batch of rows stands in a place.
fn is_record(place: &str) -> bool {
    place.contains("/ingest/") && place.contains("/chains/") && !place.ends_with(".done.json")
}

/// What befalls one operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fate {
    /// On the way there and back.
    pub(super) there: Duration,
    pub(super) back: Duration,
    pub(super) fault: Option<Fault>,
    /// Orders what happens at the same moment.
    pub(super) turn: u64,
}

/// The fate of an operation; `may_die`: whether the process may still die.
pub(super) fn fate(seed: u64, site: &Site, weather: &Weather, may_die: bool) -> Fate {
    let mut dice = Dice::of(seed, site);
    let way = |dice: &mut Dice| {
        let slow = dice.thousandths(weather.slow);
        Duration::from_micros(if slow { dice.between(20_000, 3_000_000) } else { dice.between(500, 15_000) })
    };
    let (there, back) = (way(&mut dice), way(&mut dice));
    let later = Duration::from_millis(dice.of_any_size(1, 3, 15));
    let pause = Duration::from_millis(dice.of_any_size(50, 6, 16));
    let writes = site.verb.writes();
    let kinds = [
        (weather.refused, Fault::Refused),
        (if writes { weather.answer_lost } else { 0 }, Fault::AnswerLost),
        (if writes { weather.late } else { 0 }, Fault::Late(later)),
        (if may_die { weather.dies } else { 0 }, Fault::DiesBefore),
        (if may_die && writes { weather.dies } else { 0 }, Fault::DiesAfter),
        (if may_die && writes { weather.dies_late } else { 0 }, Fault::DiesLate(later)),
        (weather.paused, Fault::PausedBefore(pause)),
        (if writes { weather.paused } else { 0 }, Fault::PausedAfter(pause)),
        (if site.verb == Verb::List { weather.stale } else { 0 }, Fault::Stale(later)),
        (if may_die && site.verb == Verb::Put && is_record(&site.place) { weather.leaves } else { 0 }, Fault::DiesAfter),
    ];
    let mut fault = None;
    for (times, kind) in kinds {
        // Every kind draws, whether or not one before it came up: what is left out leaves the rest as it was.
        if dice.thousandths(times) && fault.is_none() {
            fault = Some(kind);
        }
    }
    Fate { there, back, fault, turn: hash(&(seed, site)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_are_left_out_of_places_and_all_else_stays() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(
            place(&format!("ns/edit/part-ingest-edit-0-{id}-{id}-00000.parquet")),
            "ns/edit/part-ingest-edit-0-*-*-00000.parquet"
        );
        assert_eq!(place("ns/_delta_log/00000000000000000001.json"), "ns/_delta_log/00000000000000000001.json");
    }

    #[test]
    fn a_calm_world_has_no_faults_and_a_fate_is_always_the_same() {
        let mut weather = Weather::CALM;
        for nth in 0..100 {
            let site = Site { process: 1, life: 0, verb: Verb::Put, place: "a".to_owned(), nth };
            assert_eq!(fate(3, &site, &weather, true).fault, None);
        }
        weather.dies = 1000;
        let site = Site { process: 1, life: 0, verb: Verb::Put, place: "a".to_owned(), nth: 0 };
        assert_eq!(fate(3, &site, &weather, true).fault, Some(Fault::DiesBefore));
        assert_eq!(fate(3, &site, &weather, false).fault, None);
        assert_eq!(fate(3, &site, &weather, true).there, fate(3, &site, &Weather { slow: 0, ..weather }, false).there);
    }
}
