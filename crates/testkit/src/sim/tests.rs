//! What a simulation must be itself: one seed, one history, one end; faults happen; and what does not hold is found.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::input::{Expected, Sort, SourceFile, check};
use super::*;
use crate::check::Landed;

#[test]
fn one_seed_is_one_history_and_one_end() {
    for seed in 1..=12 {
        let (one, two) = (simulate(seed).unwrap(), simulate(seed).unwrap());
        assert_eq!((one.digest, one.operations, one.faults), (two.digest, two.operations, two.faults), "seed {seed}");
    }
}

#[test]
fn offsets_of_a_partition_with_gaps_leave_one_out_after_each_so_many() {
    let partition =
        SourceFile { name: "t/0".to_owned(), records: vec![Sort::Fits; 6], comes_ms: 0, gap_after: 2, mark: "", people: false };
    assert_eq!((0..6).map(|i| partition.offset(i)).collect::<Vec<_>>(), [0, 1, 3, 4, 6, 7]);
}

#[test]
fn another_seed_is_another_history() {
    let digests: BTreeSet<u64> = (1..=6).map(|seed| simulate(seed).unwrap().digest).collect();
    assert_eq!(digests.len(), 6);
}

#[test]
fn two_threads_find_what_one_finds() {
    let upto = |seed: u64, _: usize| seed > 8;
    let (one, two) = (hunt(1, 1, upto).unwrap(), hunt(1, 2, upto).unwrap());
    assert_eq!((one.seeds, one.operations, one.faults), (two.seeds, two.operations, two.faults));
    assert!(one.faults > 0, "something goes wrong in these worlds");
}

fn landed_of(file: &SourceFile) -> Landed {
    let rows = (0..file.records.len()).filter(|i| file.records[*i] == Sort::Fits).map(|i| file.row(i)).collect();
    Landed { rows, dead_letters: Vec::new(), notifications: Vec::new(), commits: 1 }
}

#[test]
fn a_row_that_is_lost_or_changed_or_was_never_there_is_told() {
    let file = SourceFile {
        name: "a.json".to_owned(),
        records: vec![Sort::Fits; 3],
        comes_ms: 0,
        gap_after: 0,
        mark: "",
        people: false,
    };
    let files = [Expected::all(&file)];
    let whole = landed_of(&file);
    assert_eq!(check(&files, &whole, false), Ok(()));
    let mut lost = whole.clone();
    lost.rows.pop();
    assert!(check(&files, &lost, false).unwrap_err().contains("no_lost_row"));
    let mut changed = whole.clone();
    changed.rows[1].insert("n".to_owned(), "7".to_owned());
    assert!(check(&files, &changed, false).unwrap_err().contains("should be"));
    assert!(check(&[], &whole, false).unwrap_err().contains("never there"));
    let one_lost = Expected { file: file.clone(), taken: vec![true, false, true] };
    assert!(check(std::slice::from_ref(&one_lost), &whole, false).unwrap_err().contains("counts as lost"));
    let mut without = whole;
    without.rows.remove(1);
    assert_eq!(check(&[one_lost], &without, false), Ok(()));
}
