//! One data file: which of its rows are past their retention, and what stands in its place without them.

use std::sync::Arc;

use alluvium_core::{PastRetention, Result, RetentionBounds};
use alluvium_lake::{ChangedFile, SpliceFile, Wanted};
use arrow::array::UInt64Array;
use arrow::compute::take_record_batch;
use arrow::datatypes::{Schema, SchemaRef};

use super::rows::past_rows;
use crate::resolve::{RowEdits, SourceDays, column, event_times, texts};
use crate::rewrite::{Counts, Rewrite, Rewriter, Statistics, all_gone, internal};

/// Rows that are looked at at a time.
const ROWS_AT_ONCE: usize = 1 << 18;

/// What all files of a table are looked at with.
pub(super) struct Expiring {
    pub(super) rewriter: Rewriter,
    pub(super) bounds: RetentionBounds,
    /// What tells of a row whether it is past its retention, and how it is counted.
    pub(super) deciding: SchemaRef,
}

/// A file as the log has it.
pub(super) struct Candidate {
    pub(super) file: ChangedFile,
    pub(super) stats: Option<String>,
}

/// What is known of a file without opening it.
pub(super) enum Told {
    /// All rows stay.
    Stays,
    /// All rows go, so many.
    Goes(Counts),
    /// It is to be opened.
    Open,
}

/// What becomes of a file that was opened.
pub(super) enum Looked {
    /// All rows stay.
    Stays,
    /// All rows go, so many.
    Goes(Counts),
    /// Another stands in its place.
    Rewritten(Box<Rewrite>),
}

/// Rows of a file that are past their retention.
struct Found {
    /// Ascending.
    positions: Vec<u64>,
    counts: Counts,
}

impl Expiring {
    pub(super) fn new(rewriter: Rewriter, bounds: RetentionBounds) -> Self {
        let dataset = &rewriter.dataset;
        let names = [dataset.org.as_str(), dataset.event_time.as_str(), SourceDays::COLUMN];
        let fields: Vec<_> = names.iter().filter_map(|name| rewriter.schema.field_with_name(name).ok().cloned()).collect();
        Self { deciding: Arc::new(Schema::new(fields)), rewriter, bounds }
    }

    /// What the log tells of a file.
    pub(super) fn told(&self, candidate: &Candidate) -> Told {
        let statistics = candidate.stats.as_deref().and_then(Statistics::parse);
        let org = self.rewriter.org_of(&candidate.file);
        let times = statistics.as_ref().and_then(|all| all.times(&self.rewriter.dataset.event_time));
        match self.bounds.of_file(org, times) {
            PastRetention::None => Told::Stays,
            // The feed tells of every row.
            PastRetention::All if !self.rewriter.feed => {
                let counts = org.and_then(|org| all_gone(&candidate.file, org, statistics.as_ref()));
                counts.map_or(Told::Open, Told::Goes)
            }
            PastRetention::All | PastRetention::Some => Told::Open,
        }
    }

    /// Opens a file, and rewrites it if some of its rows stay and others go.
    pub(super) async fn look(&self, candidate: Candidate) -> Result<(ChangedFile, Looked)> {
        let Candidate { file, stats } = candidate;
        let opened = SpliceFile::open(&self.rewriter.log, &file).await?;
        let Found { positions, counts } = self.find(&opened).await?;
        let standing = opened.rows() - opened.deleted_rows().len() as u64;
        if positions.is_empty() && standing > 0 {
            return Ok((file, Looked::Stays));
        }
        if positions.len() as u64 == standing && !self.rewriter.feed {
            return Ok((file, Looked::Goes(counts)));
        }
        let edits = RowEdits { erased: (0..positions.len()).collect(), ..RowEdits::default() };
        let rewrite = self.rewriter.rewrite(&opened, stats.as_deref(), &positions, &edits, counts).await?;
        Ok((file, Looked::Rewritten(Box::new(rewrite))))
    }

    /// How many rows of a file would go.
    pub(super) async fn would(&self, candidate: Candidate) -> Result<u64> {
        let opened = SpliceFile::open(&self.rewriter.log, &candidate.file).await?;
        Ok(self.find(&opened).await?.positions.len() as u64)
    }

    async fn find(&self, opened: &SpliceFile) -> Result<Found> {
        let mut found = Found { positions: Vec::new(), counts: Counts::new() };
        let looked_for = self.looked_for(opened).await?;
        let mut rest = looked_for.as_slice();
        while !rest.is_empty() {
            let (some, after) = rest.split_at(rest.len().min(ROWS_AT_ONCE));
            rest = after;
            self.find_among(opened, some, &mut found).await?;
        }
        Ok(found)
    }

    /// The positions of rows of organisations whose rows are not kept for ever.
    async fn looked_for(&self, opened: &SpliceFile) -> Result<Vec<u64>> {
        let org = &self.rewriter.dataset.org;
        let goes = |org: &str| self.bounds.of(org).is_some();
        if self.rewriter.org_of(opened.file()).is_none() && !goes("") && opened.has_column(org) {
            let wanted: &dyn Wanted = &goes;
            return opened.matching(org, wanted).await;
        }
        let gone = opened.deleted_rows();
        Ok((0..opened.rows()).filter(|position| gone.binary_search(position).is_err()).collect())
    }

    async fn find_among(&self, opened: &SpliceFile, positions: &[u64], found: &mut Found) -> Result<()> {
        let dataset = &self.rewriter.dataset;
        let rows = opened.rows_at(&self.deciding, positions).await?;
        let past = past_rows(&rows, dataset, &self.bounds)?;
        found.positions.extend(past.iter().map(|row| positions[*row]));
        let rows =
            take_record_batch(&rows, &UInt64Array::from_iter_values(past.iter().map(|row| *row as u64))).map_err(internal)?;
        let (orgs, times) = (texts(column(&rows, &dataset.org)?)?, event_times(column(&rows, &dataset.event_time)?)?);
        let days = SourceDays::of(&rows);
        for (row, micros) in times.iter().enumerate() {
            let partition = (orgs.value(row).to_owned(), days.day(row, *micros));
            found.counts.entry(partition).or_default().1 += 1;
        }
        Ok(())
    }
}
