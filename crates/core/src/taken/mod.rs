//! Which source files were taken in: the record in memory, its stored segments, and what to take next.
//!
//! Place in the flow: the engine lists a source's files, asks [`FilePlanner`] which of them are new, and after every
//! finished batch adds the batch's names to [`TakenFiles`]. The names live in batch records; segments (see
//! `docs/formats/taken-files.md`) only save reading all records again.
//!
//! Invariants: at most 24.5 bytes a name at rest and at most 32 while names are added; a name is found by the 128-bit hash of its
//! relative path alone. Deliberately not here: reading and writing the segments' files, and their names' making.

mod cover;
mod plan;
mod run;
mod segment;

pub use cover::{BatchSpan, Cover, SegmentPlan, StoredSegment, cover_segments, plan_segment};
pub use plan::{FilePlan, FilePlanner, FoundFile, PartialLost, is_looked_at, plan_files};
pub use segment::{SEGMENT_FORMAT, Segment, decode_segment, encode_segment, names_in_segment_of};

use crate::position::FileStamp;
use run::{Entry, NameHash, Run, sorted};

/// The files that were taken in, each with the stamp it then had.
///
/// A few sorted runs, each at most a quarter as long as the one before it: adding a name costs a logarithmic number of
/// moves, finding one looks into each run once, the longest first.
#[derive(Debug, Clone, Default)]
pub struct TakenFiles {
    /// No two hold the same name.
    runs: Vec<Run>,
}

impl TakenFiles {
    /// No files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The stamp that the file of that relative path had when it was taken in; `None` if it was not.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<FileStamp> {
        let hash = NameHash::of(path);
        self.runs.iter().find_map(|run| run.get(hash))
    }

    /// Adds files by their relative paths. A name that is there already gets the new stamp; of a name given twice, the later
    /// stamp stands.
    pub fn insert_batch<P: AsRef<str>>(&mut self, files: impl IntoIterator<Item = (P, FileStamp)>) {
        let entries = files.into_iter().map(|(path, stamp)| Entry { hash: NameHash::of(path.as_ref()), stamp });
        self.push(sorted(entries.collect()));
    }

    /// Adds all names of a segment. Where both know a name, the segment's stamp stands.
    pub fn absorb(&mut self, segment: Segment) {
        self.push(segment.entries);
    }

    /// All names as one segment of the batches `span`, which the caller vouches for.
    #[must_use]
    pub fn into_segment(mut self, span: BatchSpan) -> Segment {
        while let Some(last) = self.runs.pop() {
            match self.runs.pop() {
                Some(before) => self.runs.push(before.merged(last)),
                None => return Segment { span, entries: last.into_entries() },
            }
        }
        Segment { span, entries: Vec::new() }
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.iter().map(Run::len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The memory held, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.runs.iter().map(Run::memory_bytes).sum::<usize>() + self.runs.capacity() * size_of::<Run>()
    }

    fn push(&mut self, mut new: Vec<Entry>) {
        for older in &mut self.runs {
            older.give_way_to(&mut new);
        }
        new.shrink_to_fit();
        self.runs.push(Run::new(new));
        self.runs.retain(|run| !run.is_empty());
        while let Some((last, before)) = self.pop_uneven() {
            self.runs.push(before.merged(last));
        }
    }

    /// The last two runs, if the last is too long to stand behind the one before it.
    fn pop_uneven(&mut self) -> Option<(Run, Run)> {
        let [.., before, last] = self.runs.as_slice() else { return None };
        if before.tier() > last.tier() {
            return None;
        }
        Some((self.runs.pop()?, self.runs.pop()?))
    }
}

#[cfg(test)]
mod tests;
