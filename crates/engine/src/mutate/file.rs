//! One data file on its way from one position of the ledger to another: which rows are looked at, what becomes of them, and the file in
//! its place.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use alluvium_core::{Dataset, Ending, Fate, Result, TableSpec};
use alluvium_lake::{ChangedFile, FieldHasher, IdSet, KeyMap, MayHold, Question, SortedHashes, SpliceFile, Wanted, arrow_schema};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};

use super::wanted::{OfOrg, WantedNodes};
use crate::ledger::DatasetLedger;
use crate::resolve::{HitRow, NamedNodes, ORIGINAL, RowEdits, SourceDays, SourceRows, deciding_columns, plan_edits};
use crate::rewrite::{Counts, Rewrite, Rewriter, Statistics};

/// A file that may hold what is looked for.
pub(super) struct Candidate {
    pub(super) file: ChangedFile,
    /// Its statistics in the log.
    pub(super) stats: Option<String>,
    /// Whether another program wrote it since the last move.
    pub(super) foreign: bool,
    /// What the indexes tell of each field in which something is looked for; nothing, if they were not asked.
    pub(super) told: Vec<MayHold>,
}

/// Ids of a field that a file is known to hold.
struct Held<'a> {
    hasher: &'a FieldHasher,
    ids: IdSet,
}

impl Wanted for Held<'_> {
    fn has(&self, id: &str) -> bool {
        self.ids.contains(&self.hasher.hash(id))
    }

    fn are_there(&self) -> bool {
        true
    }
}

/// What all files of a table are looked at with.
pub(super) struct Looking {
    pub(super) rewriter: Rewriter,
    /// What of a row tells which requests match it, as far as any request asks.
    pub(super) deciding: SchemaRef,
    pub(super) ledger: DatasetLedger,
    pub(super) wanted: WantedNodes,
    /// For files that other programs wrote since the last move: everything any request is about.
    pub(super) wanted_of_foreign: WantedNodes,
    /// The rows were resolved for another declaration: all that were ever changed are looked at.
    pub(super) redeclared: bool,
}

/// Rows of a file that requests match, and what becomes of them.
struct Found {
    opened: SpliceFile,
    positions: Vec<u64>,
    /// Of each position what decides, and what may change.
    rows: RecordBatch,
    edits: RowEdits,
}

/// What became of a file.
pub(super) struct Looked {
    pub(super) file: ChangedFile,
    /// What stands in its place; `None`: the file stays.
    pub(super) rewrite: Option<Rewrite>,
    pub(super) hits: Vec<HitRow>,
}

impl Looking {
    /// Whether a file may hold what is looked for, as far as the log tells.
    pub(super) fn may_hold(&self, candidate: &Candidate) -> bool {
        let of = self.wanted_in(candidate.foreign).of_file(self.rewriter.org_of(&candidate.file));
        self.redeclared || of.is_some_and(|of| of.asks_for_ids() || self.is_asked_whole(of, candidate))
    }

    /// Whether a file may hold rows that are looked for as the organisation's, whatever their ids.
    fn is_asked_whole(&self, of: &OfOrg, candidate: &Candidate) -> bool {
        let least = || Some(Statistics::parse(candidate.stats.as_deref()?)?.times(&self.rewriter.dataset.event_time)?.0);
        of.all_up_to.is_some_and(|up_to| least().is_none_or(|least| least <= up_to))
    }

    /// Of the files, those that may hold what is looked for, as far as the indexes tell.
    pub(super) async fn indexed(&self, mut files: Vec<Candidate>) -> Result<Vec<Candidate>> {
        if self.redeclared || self.wanted.is_empty() {
            return Ok(files);
        }
        let mut asked: BTreeMap<Option<&str>, Vec<(&str, SortedHashes)>> = BTreeMap::new();
        for Candidate { file, .. } in &files {
            let org = self.rewriter.org_of(file);
            asked.entry(org).or_insert_with(|| {
                let of = self.wanted.of_file(org).into_iter();
                of.flat_map(|of| self.wanted.asked(of)).map(|(field, _, ids)| (field, ids.iter().copied().collect())).collect()
            });
        }
        let asked: BTreeMap<Option<&str>, Vec<Question<'_>>> =
            asked.iter().map(|(org, asked)| (*org, asked.iter().map(|(field, hashes)| (*field, hashes)).collect())).collect();
        let live: Vec<(&str, &[Question<'_>])> =
            files.iter().map(|c| (c.file.name.as_str(), asked[&self.rewriter.org_of(&c.file)].as_slice())).collect();
        let told = self.rewriter.index.files_that_may_hold_any(&live).await?;
        for (candidate, told) in files.iter_mut().zip(told).filter(|(candidate, _)| !candidate.foreign) {
            candidate.told = told;
        }
        let may_hold = |candidate: &Candidate| {
            candidate.foreign
                || self.wanted.of_file(self.rewriter.org_of(&candidate.file)).is_some_and(|of| self.is_asked_whole(of, candidate))
                || candidate.told.iter().any(|answer| *answer != MayHold::No)
        };
        files.retain(may_hold);
        Ok(files)
    }

    fn wanted_in(&self, foreign: bool) -> &WantedNodes {
        if foreign { &self.wanted_of_foreign } else { &self.wanted }
    }

    /// Opens a file, finds its rows, and rewrites it if one of them becomes something else.
    pub(super) async fn look(&self, candidate: Candidate) -> Result<Looked> {
        let mut hits = Vec::new();
        let mut rewrite = None;
        if let Some(Found { opened, positions, rows, edits }) = self.find(&candidate, &mut hits).await?
            && !edits.is_empty()
        {
            let (stats, counts) = (candidate.stats.as_deref(), self.counts(&rows, &edits)?);
            rewrite = Some(self.rewriter.rewrite(&opened, stats, &positions, &edits, counts).await?);
        }
        Ok(Looked { file: candidate.file, rewrite, hits })
    }

    /// How many rows of a file would change and go.
    pub(super) async fn would(&self, candidate: Candidate) -> Result<(u64, u64)> {
        let found = self.find(&candidate, &mut Vec::new()).await?;
        Ok(found.map_or((0, 0), |found| (found.edits.changed.len() as u64, found.edits.erased.len() as u64)))
    }

    /// Opens a file and finds its rows and what becomes of them; `None` if it has none.
    async fn find(&self, candidate: &Candidate, hits: &mut Vec<HitRow>) -> Result<Option<Found>> {
        let opened = SpliceFile::open(&self.rewriter.log, &candidate.file).await?;
        let positions = self.positions(&opened, candidate).await?;
        if positions.is_empty() {
            return Ok(None);
        }
        let mut rows = opened.rows_at(&self.deciding, &positions).await?;
        let named = NamedNodes::of(&SourceRows::new(&rows, &self.rewriter.dataset)?, &self.rewriter.dataset, &self.ledger)?;
        let fates = self.ledger.fates(named.keys().collect()).await?;
        let further = further_columns(&rows, &self.rewriter.dataset, &fates)?;
        if further.iter().any(|column| self.deciding.index_of(column).is_err()) {
            let all = self.deciding.fields().iter().map(|f| f.name().as_str()).chain(further.iter().map(String::as_str));
            let all = projected(&arrow_schema(&self.rewriter.spec), all.collect::<BTreeSet<_>>());
            rows = opened.rows_at(&all, &positions).await?;
        }
        let source = SourceRows::new(&rows, &self.rewriter.dataset)?;
        let edits = plan_edits(&source, &self.rewriter.dataset, &named, &fates, hits)?;
        Ok(Some(Found { opened, positions, rows, edits }))
    }

    /// The positions of rows that hang, or hung, on what is looked for.
    async fn positions(&self, opened: &SpliceFile, candidate: &Candidate) -> Result<Vec<u64>> {
        let wanted = self.wanted_in(candidate.foreign);
        let of = wanted.of_file(self.rewriter.org_of(&candidate.file));
        if of.is_none() && !self.redeclared {
            return Ok(Vec::new());
        }
        let mut positions: Vec<u64> = Vec::new();
        if let Some(of) = of {
            let whole = self.is_asked_whole(of, candidate);
            if whole && self.rewriter.is_partitioned() {
                let gone: HashSet<u64> = opened.deleted_rows().iter().copied().collect();
                return Ok((0..opened.rows()).filter(|p| !gone.contains(p)).collect());
            }
            if whole {
                positions
                    .extend(self.matching(opened, &self.rewriter.dataset.org, &|org: &str| wanted.has_whole_org(org)).await?);
            }
            for (at, (field, hasher, ids)) in wanted.asked(of).enumerate() {
                let found = match candidate.told.get(at) {
                    Some(MayHold::No) => continue,
                    Some(MayHold::Maybe(held)) => {
                        let held = Held { hasher, ids: held.iter().copied().collect() };
                        self.matching(opened, field, &held).await?
                    }
                    Some(MayHold::Unknown) | None => {
                        self.matching(opened, field, &|id: &str| ids.contains(&hasher.hash(id))).await?
                    }
                };
                positions.extend(found);
            }
            positions.sort_unstable();
            positions.dedup();
        }
        // Rows that were changed before hang on what their source gave.
        let mut unseen = opened.matching(ORIGINAL, &|_: &str| true).await?;
        unseen.retain(|p| positions.binary_search(p).is_err());
        if !unseen.is_empty() {
            let more = if self.redeclared { unseen } else { self.of_their_source(opened, &unseen, wanted).await? };
            positions.extend(more);
            positions.sort_unstable();
        }
        Ok(positions)
    }

    /// As [`SpliceFile::matching`]; a column by which the table is partitioned may be in the log alone.
    async fn matching(&self, opened: &SpliceFile, column: &str, wanted: &dyn Wanted) -> Result<Vec<u64>> {
        if opened.has_column(column) {
            return opened.matching(column, wanted).await;
        }
        if !opened.file().partition_value(column).is_some_and(|value| wanted.has(value)) {
            return Ok(Vec::new());
        }
        let gone: HashSet<u64> = opened.deleted_rows().iter().copied().collect();
        Ok((0..opened.rows()).filter(|position| !gone.contains(position)).collect())
    }

    /// Those of the rows whose source gave an id that is looked for.
    async fn of_their_source(&self, opened: &SpliceFile, positions: &[u64], wanted: &WantedNodes) -> Result<Vec<u64>> {
        let rows = opened.rows_at(&self.deciding, positions).await?;
        let source = SourceRows::new(&rows, &self.rewriter.dataset)?;
        let mut found = Vec::new();
        for (row, position) in positions.iter().enumerate() {
            let Some(of) = wanted.of_org(source.org(row)) else { continue };
            let original = source.original(row)?;
            let is_wanted = |at| source.source_id(at, row, &original).is_some_and(|id| wanted.has_id(of, at, &id));
            if (0..self.rewriter.dataset.identities.len()).any(is_wanted) {
                found.push(*position);
            }
        }
        Ok(found)
    }

    /// Rows changed and gone, by organisation and event date.
    fn counts(&self, rows: &RecordBatch, edits: &RowEdits) -> Result<Counts> {
        let source = SourceRows::new(rows, &self.rewriter.dataset)?;
        let days = SourceDays::of(rows);
        let date = |row: usize| days.day(row, source.event_time_micros(row));
        let mut counts = Counts::new();
        for row in &edits.changed {
            counts.entry((source.org(*row).to_owned(), date(*row))).or_default().0 += 1;
        }
        for row in &edits.erased {
            counts.entry((source.org(*row).to_owned(), date(*row))).or_default().1 += 1;
        }
        Ok(counts)
    }
}

/// The columns beside the deciding ones that may change: those that fates set and those that were changed before.
fn further_columns(rows: &RecordBatch, dataset: &Dataset, fates: &KeyMap<Fate>) -> Result<BTreeSet<String>> {
    let mut columns: BTreeSet<String> = BTreeSet::new();
    for fate in fates.values() {
        for piece in fate.pieces() {
            if let Ending::Live(live) = &piece.ending {
                columns.extend(live.columns.iter().map(|set| set.column.to_string()));
            }
        }
    }
    let source = SourceRows::new(rows, dataset)?;
    for row in 0..source.len() {
        columns.extend(source.original(row)?.columns().map(str::to_owned));
    }
    Ok(columns)
}

/// The columns that tell which requests of a ledger match a row.
pub(super) fn deciding(spec: &TableSpec, dataset: &Dataset, ledger: &DatasetLedger) -> SchemaRef {
    let is_identity = |name: &str| dataset.identities.iter().any(|identity| identity.field == name);
    let is_key = |name: &str| dataset.key.as_deref() == Some(name);
    let asked = |name: &&str| {
        !(is_identity(name) || is_key(name))
            || (is_identity(name) && ledger.names_field(name))
            || (is_key(name) && ledger.names_records())
    };
    projected(&arrow_schema(spec), deciding_columns(dataset).into_iter().filter(asked))
}

fn projected<'n>(schema: &SchemaRef, names: impl IntoIterator<Item = &'n str>) -> SchemaRef {
    let fields: Vec<_> = names.into_iter().filter_map(|name| schema.field_with_name(name).ok().cloned()).collect();
    Arc::new(Schema::new(fields))
}
