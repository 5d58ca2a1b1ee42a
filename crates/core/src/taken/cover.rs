//! Which segments to read, and which to write next.
//!
//! Invariants: a name is rewritten only into a segment of at least twice the size of the one it was in, so at most
//! log2(names) times; what was merged stays until the merged segment is durable, so a reader may find both and must choose.

use std::cmp::Reverse;

use crate::chain::BatchNumber;

/// The batches `(from, to]` of a chain; never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchSpan {
    /// The last batch before; 0 before the first.
    pub from: BatchNumber,
    /// The last batch in it.
    pub to: BatchNumber,
}

impl BatchSpan {
    /// `None` if it would be empty.
    #[must_use]
    pub fn new(from: BatchNumber, to: BatchNumber) -> Option<Self> {
        (from < to).then_some(Self { from, to })
    }

    /// How many batches it has.
    #[must_use]
    pub const fn batches(self) -> u64 {
        self.to.0 - self.from.0
    }

    /// Whether every batch of `other` is in it.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

/// A segment that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredSegment {
    /// Its batches.
    pub span: BatchSpan,
    /// How many names it holds.
    pub names: u64,
}

/// How to know all names up to a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cover {
    /// The segments to read, in order; few and wide. Two may overlap: their names are then in both.
    pub segments: Vec<BatchSpan>,
    /// The batches in no segment, in order: their records have to be read.
    pub records: Vec<BatchSpan>,
    /// Segments that tell nothing the ones to read do not tell; they may be deleted.
    pub redundant: Vec<BatchSpan>,
}

/// Chooses, of any set of segments, those to read in order to know all names of the batches up to `newest`.
#[must_use]
pub fn cover_segments(stored: &[BatchSpan], newest: BatchNumber) -> Cover {
    let mut cover = Cover::default();
    let mut reached = BatchNumber(0);
    loop {
        let reaching = stored.iter().filter(|s| s.from <= reached && s.to > reached);
        if let Some(widest) = reaching.max_by_key(|s| (s.to, Reverse(s.from))) {
            cover.segments.push(*widest);
            reached = widest.to;
            continue;
        }
        let next = stored.iter().map(|s| s.from).filter(|from| *from > reached).min();
        cover.records.extend(BatchSpan::new(reached, next.unwrap_or(newest).min(newest)));
        match next {
            Some(from) => reached = from,
            None => break,
        }
    }
    cover.redundant = stored.iter().filter(|s| !cover.segments.contains(s)).copied().collect();
    cover
}

/// A segment to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentPlan {
    /// Its batches.
    pub span: BatchSpan,
    /// The stored segments whose names go into it, in order.
    pub merges: Vec<BatchSpan>,
    /// The batches whose records' names go into it.
    pub records: BatchSpan,
    /// The stored segments that may be deleted once it is durable.
    pub replaces: Vec<BatchSpan>,
}

/// A segment is written for this many batches,
const MIN_BATCHES: u64 = 16;
/// or this many names, whichever comes first.
const MIN_NAMES: u64 = 4096;

/// Plans the next segment: of the batches after the last segment up to `newest`, which is finished, and which took
/// `names_since` names since that segment; together with the segments before it that are not yet larger by a tier (a power of
/// two). `None` while it is not worth a file.
#[must_use]
pub fn plan_segment(stored: &[StoredSegment], newest: BatchNumber, names_since: u64) -> Option<SegmentPlan> {
    let spans: Vec<BatchSpan> = stored.iter().map(|s| s.span).collect();
    let chosen = cover_segments(&spans, newest).segments;
    let records = BatchSpan::new(chosen.last().map_or(BatchNumber(0), |s| s.to), newest)?;
    if records.batches() < MIN_BATCHES && names_since < MIN_NAMES {
        return None;
    }
    let tier = |names: u64| names.max(1).ilog2();
    let (mut span, mut names, mut merges) = (records, names_since, Vec::new());
    for before in chosen.iter().rev() {
        let size = stored.iter().filter(|s| s.span == *before).map(|s| s.names).max().unwrap_or(0);
        if before.to < span.from || tier(size) > tier(names) {
            break;
        }
        merges.push(*before);
        names += size;
        span.from = span.from.min(before.from);
    }
    merges.reverse();
    let replaces = spans.into_iter().filter(|s| span.contains(*s)).collect();
    Some(SegmentPlan { span, merges, records, replaces })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn span(from: u64, to: u64) -> BatchSpan {
        BatchSpan::new(BatchNumber(from), BatchNumber(to)).unwrap()
    }

    #[test]
    fn nothing_stored_leaves_all_records_to_read() {
        let cover = cover_segments(&[], BatchNumber(9));
        assert_eq!(cover, Cover { records: vec![span(0, 9)], ..Cover::default() });
        assert_eq!(cover_segments(&[], BatchNumber(0)), Cover::default());
    }

    #[test]
    fn the_widest_is_read_and_what_a_crash_left_beside_it_is_redundant() {
        let cover = cover_segments(&[span(0, 16), span(16, 32), span(0, 32), span(32, 48)], BatchNumber(50));
        assert_eq!(cover.segments, [span(0, 32), span(32, 48)]);
        assert_eq!(cover.records, [span(48, 50)]);
        assert_eq!(cover.redundant, [span(0, 16), span(16, 32)]);
    }

    #[test]
    fn a_segment_that_is_missing_leaves_its_batches_records_to_read() {
        let cover = cover_segments(&[span(4, 8), span(10, 12)], BatchNumber(12));
        assert_eq!(cover.segments, [span(4, 8), span(10, 12)]);
        assert_eq!(cover.records, [span(0, 4), span(8, 10)]);
    }

    #[test]
    fn overlapping_segments_of_two_owners_are_used_as_far_as_they_reach() {
        let cover = cover_segments(&[span(0, 20), span(0, 16), span(16, 40)], BatchNumber(40));
        assert_eq!(cover.segments, [span(0, 20), span(16, 40)]);
        assert_eq!(cover.records, []);
    }

    #[test]
    fn few_batches_with_few_names_are_not_worth_a_segment() {
        assert_eq!(plan_segment(&[], BatchNumber(0), 0), None);
        assert_eq!(plan_segment(&[], BatchNumber(15), 4095), None);
        assert_eq!(plan_segment(&[], BatchNumber(16), 1).map(|p| p.span), Some(span(0, 16)));
        assert_eq!(plan_segment(&[], BatchNumber(1), 4096).map(|p| p.span), Some(span(0, 1)));
        let stored = [StoredSegment { span: span(0, 16), names: 100 }];
        assert_eq!(plan_segment(&stored, BatchNumber(16), 0), None);
        assert_eq!(plan_segment(&stored, BatchNumber(31), 100), None);
    }

    #[test]
    fn a_new_segment_takes_in_smaller_ones_and_replaces_what_lies_within() {
        let stored = [
            StoredSegment { span: span(0, 100), names: 100_000 },
            StoredSegment { span: span(100, 120), names: 5000 },
            StoredSegment { span: span(100, 110), names: 4000 },
        ];
        let plan = plan_segment(&stored, BatchNumber(130), 5000).unwrap();
        assert_eq!(plan.span, span(100, 130));
        assert_eq!(plan.merges, [span(100, 120)]);
        assert_eq!(plan.records, span(120, 130));
        assert_eq!(plan.replaces, [span(100, 120), span(100, 110)]);
    }

    #[test]
    fn a_gap_between_segments_is_not_merged_across() {
        let stored = [StoredSegment { span: span(0, 10), names: 10 }, StoredSegment { span: span(20, 30), names: 10 }];
        let plan = plan_segment(&stored, BatchNumber(60), 1000).unwrap();
        assert_eq!(plan.span, span(20, 60));
        assert_eq!(plan.replaces, [span(20, 30)]);
    }

    proptest! {
        #[test]
        fn every_batch_is_in_a_chosen_segment_or_among_the_records_to_read(
            ends in proptest::collection::vec((0u64..40, 1u64..20), 0..12), newest in 0u64..60,
        ) {
            let stored: Vec<BatchSpan> = ends.iter().map(|(from, length)| span(*from, from + length)).collect();
            let cover = cover_segments(&stored, BatchNumber(newest));
            let within = |spans: &[BatchSpan], batch: u64| spans.iter().any(|s| s.from.0 < batch && batch <= s.to.0);
            for batch in 1..=newest {
                prop_assert_eq!(within(&cover.records, batch), !within(&stored, batch));
            }
            for batch in 1..=60 {
                prop_assert_eq!(within(&cover.segments, batch), within(&stored, batch));
            }
        }

        /// A chain lives through many batches, sometimes dying before the replaced segments are deleted.
        #[test]
        fn names_are_rewritten_a_logarithmic_number_of_times_and_segments_stay_few(
            batches in proptest::collection::vec((0u64..6000, proptest::bool::weighted(0.8)), 1..400),
        ) {
            // Each segment with how many times the most rewritten of its names was written.
            let mut stored: Vec<(StoredSegment, u32)> = Vec::new();
            let (mut since, mut total) = (0, 0);
            for (batch, (names, deletes)) in batches.into_iter().enumerate() {
                since += names;
                total += names;
                let infos: Vec<StoredSegment> = stored.iter().map(|(s, _)| *s).collect();
                let Some(plan) = plan_segment(&infos, BatchNumber(batch as u64 + 1), since) else { continue };
                let merged = stored.iter().filter(|(s, _)| plan.merges.contains(&s.span));
                let (sum, writes) = merged.fold((since, 0), |(sum, most), (s, w)| (sum + s.names, most.max(*w)));
                if deletes {
                    stored.retain(|(s, _)| !plan.replaces.contains(&s.span));
                }
                stored.push((StoredSegment { span: plan.span, names: sum }, writes + 1));
                since = 0;
                let log = total.max(1).ilog2();
                prop_assert!(writes <= log, "{writes} rewrites of {total} names");
                let spans: Vec<BatchSpan> = stored.iter().map(|(s, _)| s.span).collect();
                let cover = cover_segments(&spans, plan.span.to);
                prop_assert!(cover.segments.len() as u32 <= log + 1, "{cover:?}");
                let held: u64 = cover.segments.iter().map(|c| names_of(&stored, *c)).sum();
                prop_assert_eq!(held, total);
            }
        }
    }

    fn names_of(stored: &[(StoredSegment, u32)], span: BatchSpan) -> u64 {
        stored.iter().find(|(s, _)| s.span == span).map_or(0, |(s, _)| s.names)
    }
}
