//! What may have become of a partition whose topic was deleted and made again: the oracle.
//!
//! Offsets of the new topic begin at 0 again, and where the cluster tells no ids, a job can only know it by the end of the
//! partition, or by the last record it took being another one.

use super::come::TOPIC_IDS;
use super::input::{ByPlace, Expected, SourceFile};
use super::topic::{Loss, Standing};

/// A partition of the topic that was deleted, and the one that took its place.
pub(super) struct Remade<'a> {
    pub(super) partition: usize,
    pub(super) before: &'a SourceFile,
    pub(super) after: &'a SourceFile,
    /// Behind the last offset of the new one.
    pub(super) high: i64,
    /// What was accepted as lost of it.
    pub(super) losses: Vec<Loss>,
}

/// How sure a job can be that a partition is not the one it read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shows {
    Not,
    /// Only where another partition of the shard is read on.
    Maybe,
    Surely,
}

/// What must have been taken of all partitions of both topics. `refused`: a job that does not accept losses says that the topic was made
/// anew; else one has come to its end.
pub(super) fn expected(
    all: &[Remade<'_>],
    there: &ByPlace<'_>,
    standing: &Standing,
    refused: bool,
) -> Result<Vec<Expected>, String> {
    let mut expected = Vec::new();
    let mut shows = Shows::Not;
    for remade in all {
        let (before, after) = (there.taken(remade.before), there.taken(remade.after));
        let at =
            |what: &str| Err(format!("partition {} {what}: {before:?}, then {after:?}, {:?}", remade.partition, remade.losses));
        let first = before.iter().take_while(|taken| **taken).count();
        if before[first..].contains(&true) {
            return at("has a hole in what was taken of the deleted topic");
        }
        match remade.losses.as_slice() {
            [] => {
                let shown = remade.shows(&after, standing);
                shows = shows.max(shown);
                if shown == Shows::Surely && after.contains(&true) {
                    return at("was taken from the new topic as if it were the old one");
                }
                if !goes_on(remade, first, &after, refused) {
                    return at("does not go on in the new topic where the old one ended, or not to its end");
                }
            }
            [loss] => {
                let upto = |i: usize| i64::try_from(remade.before.offset(i)).is_ok_and(|offset| offset < loss.from);
                if (first > 0 && !upto(first - 1)) || (first < before.len() && upto(first)) {
                    return at("was taken otherwise than its loss says");
                }
                let begun = after.iter().take_while(|taken| **taken).count();
                if after[begun..].contains(&true) || (!refused && begun < after.len()) {
                    return at("of the new topic was not taken from the beginning, or not to its end");
                }
            }
            _ => return at("was lost twice"),
        }
        expected.push(Expected { file: remade.before.clone(), taken: before });
        expected.push(Expected { file: remade.after.clone(), taken: after });
    }
    match (refused, shows) {
        (false, Shows::Surely) => Err("the topic was made anew, and the job did not find it out".to_owned()),
        (true, Shows::Not) => Err("the job takes the topic for made anew, and has nothing to know it by".to_owned()),
        _ => Ok(expected),
    }
}

impl Remade<'_> {
    fn shows(&self, after: &[bool], standing: &Standing) -> Shows {
        let Some(stands) = standing.now(self.partition) else { return Shows::Not };
        let read_as = i64::try_from(self.partition).ok().and_then(|p| standing.topic_ids.get(&p)).and_then(Option::as_deref);
        if read_as == Some(TOPIC_IDS[0]) {
            return Shows::Surely;
        }
        // One that was taken from already looks like the one that it is.
        if read_as == Some(TOPIC_IDS[1]) || after.contains(&true) {
            return Shows::Not;
        }
        let is_there = |offset: i64| (0..after.len()).any(|i| i64::try_from(self.after.offset(i)) == Ok(offset));
        match stands.last {
            _ if stands.next > self.high => Shows::Surely,
            Some(last) if is_there(last) && stands.next < self.high => Shows::Surely,
            Some(last) if is_there(last) => Shows::Maybe,
            _ => Shows::Not,
        }
    }
}

/// Whether what was taken of the new partition follows in its offsets on the first `taken` records of the old one.
fn goes_on(remade: &Remade<'_>, taken: usize, after: &[bool], refused: bool) -> bool {
    let behind = taken.checked_sub(1).map_or(0, |last| remade.before.offset(last) + 1);
    let from = |offset: usize| (0..after.len()).find(|i| remade.after.offset(*i) >= offset).unwrap_or(after.len());
    // An offset without a record may have been passed.
    [behind, behind + 1].into_iter().any(|offset| {
        let begins = from(offset);
        let count = after[begins..].iter().take_while(|taken| **taken).count();
        let nothing_else = !after[..begins].contains(&true) && !after[begins + count..].contains(&true);
        nothing_else && (refused || begins + count == after.len())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use super::*;
    use crate::check::Landed;
    use crate::sim::input::Sort;
    use crate::sim::topic::Stood;

    const FOUR: fn(&'static str) -> SourceFile = |mark| SourceFile {
        name: "t/0".to_owned(),
        records: vec![Sort::Fits; 4],
        comes_ms: 0,
        gap_after: 0,
        mark,
        people: false,
    };

    /// What comes out if a chain took these records of the old topic, and of the new one.
    fn came_of(old: &[usize], new: &[usize], id: Option<&str>, loss: Option<i64>, refused: bool) -> Result<(), String> {
        let (before, after) = (FOUR(""), FOUR("+"));
        let rows = old.iter().map(|i| before.row(*i)).chain(new.iter().map(|i| after.row(*i))).collect();
        let landed = Landed { rows, dead_letters: Vec::new(), notifications: Vec::new(), commits: 1 };
        let next = old.iter().chain(new).max().map_or(0, |last| i64::try_from(*last).unwrap() + 1);
        let stood = Stood { since: 0, next, last: next.checked_sub(1).filter(|last| *last >= 0) };
        let standing =
            Standing { partitions: BTreeMap::from([(0, vec![stood])]), topic_ids: BTreeMap::from([(0, id.map(str::to_owned))]) };
        let losses = loss.map(|from| Loss { partition: 0, from, to: None }).into_iter().collect();
        let all = [Remade { partition: 0, before: &before, after: &after, high: 4, losses }];
        expected(&all, &ByPlace::of(&landed), &standing, refused).map(|_| ())
    }

    #[test]
    fn job_that_stops_and_one_that_accepts_the_loss_are_right() {
        assert_eq!(came_of(&[0, 1], &[], None, None, true), Ok(()));
        assert_eq!(came_of(&[0, 1], &[], Some(TOPIC_IDS[0]), None, true), Ok(()));
        assert_eq!(came_of(&[0, 1], &[0, 1, 2, 3], None, Some(2), false), Ok(()));
        assert_eq!(came_of(&[0, 1], &[2, 3], None, None, false), Ok(()), "nothing showed it while a batch was read");
    }

    #[test]
    fn job_that_does_not_find_it_out_or_loses_or_doubles_is_told() {
        let fails = |old: &[usize], new: &[usize], id, loss, refused| came_of(old, new, id, loss, refused).unwrap_err();
        assert!(fails(&[0, 1], &[], None, None, false).contains("to its end"));
        assert!(fails(&[0, 1], &[2, 3], Some(TOPIC_IDS[0]), None, true).contains("as if it were the old one"));
        assert!(fails(&[0, 1], &[1, 2, 3], None, None, false).contains("where the old one ended"));
        assert!(fails(&[0, 2], &[], None, None, true).contains("a hole"));
        assert!(fails(&[0, 1], &[1, 2, 3], None, Some(2), false).contains("from the beginning"));
        assert!(fails(&[0, 1], &[0, 1, 2, 3], None, Some(1), false).contains("otherwise than its loss says"));
        assert!(fails(&[], &[], None, None, true).contains("nothing to know it by"));
    }
}
