//! Files that go whole with their organisation: told by the log alone, and not opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use alluvium_core::{BatchNumber, Ending, Fate, Node, OrgLedger, Result, RowGroup};
use alluvium_lake::{ChangedFile, KeyMap, MayHold};

use super::file::{Candidate, Looking};
use crate::resolve::{HitRow, SourceDays};
use crate::rewrite::{Counts, Statistics, all_gone};

/// A file of which all rows go.
pub(super) struct Whole {
    pub(super) file: ChangedFile,
    pub(super) counts: Counts,
    /// Its rows, as requests matched them.
    pub(super) hits: HitRow,
}

/// What is known of organisations that requests are about as a whole.
struct Orgs {
    fates: KeyMap<Fate>,
    ledgers: BTreeMap<String, OrgLedger>,
}

impl Looking {
    /// Those of the files that go whole, as far as the log tells, and the others.
    pub(super) async fn whole(&self, candidates: Vec<Candidate>) -> Result<(Vec<Whole>, Vec<Candidate>)> {
        let may_go: Vec<bool> = candidates.iter().map(|candidate| self.may_go_whole(candidate)).collect();
        let mut nodes = Vec::new();
        for (candidate, _) in candidates.iter().zip(&may_go).filter(|(_, may_go)| **may_go) {
            nodes.extend(self.rewriter.org_of(&candidate.file).map(|org| self.ledger.key_of(org, Node::Org)));
        }
        if nodes.is_empty() {
            return Ok((Vec::new(), candidates));
        }
        nodes.sort_unstable();
        nodes.dedup();
        let orgs = Orgs { fates: self.ledger.fates(nodes.clone()).await?, ledgers: self.ledger.around(nodes).await? };
        let (mut whole, mut others) = (Vec::new(), Vec::new());
        for (candidate, may_go) in candidates.into_iter().zip(may_go) {
            match may_go.then(|| self.goes_whole(&candidate, &orgs)).flatten() {
                Some((counts, hits)) => whole.push(Whole { file: candidate.file, counts, hits }),
                None => others.push(candidate),
            }
        }
        Ok((whole, others))
    }

    /// Whether nothing but the organisation decides on the rows of a file, and nobody must be told of each row. Where rows move between
    /// partitions, those of whole files would be compared with them when somebody asks for changes.
    fn may_go_whole(&self, candidate: &Candidate) -> bool {
        let fixed = |column: &String| *column == self.rewriter.dataset.org || column == SourceDays::COLUMN;
        let of = self.wanted.of_file(self.rewriter.org_of(&candidate.file));
        !self.redeclared
            && !self.rewriter.feed
            && !candidate.foreign
            && self.rewriter.is_partitioned()
            && self.rewriter.spec.partition_by.iter().all(fixed)
            && of.is_some_and(|of| {
                of.all_up_to.is_some()
                    && candidate.told.len() == self.wanted.asked(of).count()
                    && candidate.told.iter().all(|told| *told == MayHold::No)
            })
    }

    fn goes_whole(&self, candidate: &Candidate, orgs: &Orgs) -> Option<(Counts, HitRow)> {
        let org = self.rewriter.org_of(&candidate.file)?;
        let statistics = Statistics::parse(candidate.stats.as_deref()?)?;
        let (least, greatest) = statistics.times(&self.rewriter.dataset.event_time)?;
        let first = orgs.fates.get(&self.ledger.key_of(org, Node::Org))?.pieces().first()?;
        if first.ending != Ending::Erased || first.up_to < greatest {
            return None;
        }
        let ledger = orgs.ledgers.get(org)?;
        let ids = vec![None; self.rewriter.dataset.identities.len()];
        let matching = |event_time| {
            let row = RowGroup { ids: &ids, key: None, event_time, rows: 1 };
            ledger.attribute(BatchNumber(self.ledger.position().0), std::iter::once(row))
        };
        // A request matches an organisation's rows up to one time, so those between the first and the last are matched as they are.
        if matching(least) != matching(greatest) {
            return None;
        }
        let counts = all_gone(&candidate.file, org, Some(&statistics))?;
        let rows = counts.values().map(|(_, deleted)| deleted).sum();
        let ids = vec![None; self.rewriter.dataset.identities.len()];
        Some((counts, HitRow { org: Arc::from(org), ids, key: None, event_time: least, rows }))
    }
}
