//! The oracle at every position of the ledger at once: the same walk, for less work than asking for one position after another.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use alluvium_core::{BatchNumber, Dataset, Request};

use super::{Accepted, OracleRow, Purged, clear_again, keep_source, place, purged, walk_in_order};

/// What a row is at one position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtPosition {
    /// The row, as [`super::settled`] has it.
    pub row: Option<OracleRow>,
    /// The ids of the requests up to the position that match it on its way, as [`super::matched`] has them.
    pub matched: Vec<String>,
    /// Whether it is what the requests up to the position make of it, nothing final: what was erased or cleared before makes no difference.
    pub as_requested: bool,
}

/// All accepted requests, ordered once.
#[derive(Debug)]
pub struct Settling<'a> {
    dataset: &'a Dataset,
    by_org: BTreeMap<&'a str, Vec<&'a Accepted>>,
    last: BatchNumber,
    /// What is purged by the requests of an organisation up to a batch, once it was asked.
    purged: Mutex<BTreeMap<(String, u64), Purged>>,
}

impl<'a> Settling<'a> {
    /// Over these requests, each id once, for positions up to `last`.
    #[must_use]
    pub fn new(dataset: &'a Dataset, accepted: &'a [Accepted], last: BatchNumber) -> Self {
        let mut by_org: BTreeMap<&str, Vec<&Accepted>> = BTreeMap::new();
        for one in accepted.iter().filter(|a| a.batch <= last) {
            by_org.entry(&one.request.org).or_default().push(one);
        }
        for of_org in by_org.values_mut() {
            of_org.sort_by_key(|a| place(&a.request));
        }
        Self { dataset, by_org, last, purged: Mutex::default() }
    }

    fn purged_at(&self, org: &str, batch: u64, up_to: &[&Request]) -> Purged {
        let mut known = self.purged.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry((org.to_owned(), batch)).or_insert_with(|| purged(self.dataset, up_to)).clone()
    }

    /// The row at each position from 0 on.
    #[must_use]
    pub fn at_each(&self, row: &OracleRow) -> Vec<AtPosition> {
        let of_org = self.by_org.get(row.org.as_str()).map_or(&[][..], Vec::as_slice);
        let (mut cleared, mut erased, mut gone) = (BTreeMap::new(), false, Purged::new());
        let mut all: Vec<AtPosition> = Vec::new();
        for batch in 0..=self.last.0 {
            if let Some(before) = all.last()
                && of_org.iter().all(|a| a.batch.0 != batch)
            {
                all.push(before.clone());
                continue;
            }
            let up_to: Vec<&Request> = of_org.iter().filter(|a| a.batch.0 <= batch).map(|a| &a.request).collect();
            let gone_now = self.purged_at(&row.org, batch, &up_to);
            gone.extend(gone_now.iter().cloned());
            let mut way = walk_in_order(self.dataset, up_to.into_iter(), row);
            erased |= way.erased;
            let matched = std::mem::take(&mut way.matched);
            for (field, by) in &way.cleared {
                let last = cleared.entry(field.clone()).or_insert_with(|| by.clone());
                if *last < *by {
                    last.clone_from(by);
                }
            }
            let became = way.row.clone();
            keep_source(&gone_now, row, &mut way);
            let requested = std::mem::replace(&mut way.row, became);
            keep_source(&gone, row, &mut way);
            clear_again(self.dataset, &cleared, &mut way);
            let as_requested = way.erased == erased && (erased || way.row == requested);
            all.push(AtPosition { row: (!erased).then_some(way.row), matched, as_requested });
        }
        all
    }
}
