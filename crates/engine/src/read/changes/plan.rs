//! Plans what to read for one version, from what its log entry says. Pure.
//!
//! | the entry has, of files that change data | rows |
//! |---|---|
//! | files of Delta's change data feed | what they hold, and nothing else |
//! | files that come | inserts |
//! | files that go, rows newly marked as deleted | deletes |
//! | both | compared as multisets: rows on both sides are none; of one identity, an update; the others, deletes and inserts |
//!
//! Rewrites of our own that keep bitmaps of the rows they changed will be a case of their own, before the last.

use std::collections::HashMap;

use alluvium_lake::{ChangedFile, DeletedRows, Rows, VersionChanges};

/// Rows of one file that came or went.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) file: ChangedFile,
    pub(super) rows: Rows,
}

impl Part {
    fn live(file: ChangedFile) -> Self {
        Self { file, rows: Rows::Live }
    }

    /// How many rows at most, if the log says so.
    pub(super) fn row_count(&self) -> Option<u64> {
        match &self.rows {
            Rows::Live => {
                let gone = self.file.deleted.as_ref().map_or(0, DeletedRows::count);
                self.file.rows.map(|rows| rows.saturating_sub(gone))
            }
            Rows::Marked { of, .. } => Some(of.count()),
        }
    }
}

/// What to read, in the order in which rows are told.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    /// Rows that came.
    Inserted(Part),
    /// Rows that went.
    Deleted(Part),
    /// What the writer recorded.
    Recorded(Vec<ChangedFile>),
    /// The difference of two multisets of rows.
    Compared { gone: Vec<Part>, came: Vec<Part> },
}

impl Piece {
    /// The files that must be there.
    pub(super) fn files(&self) -> Vec<&ChangedFile> {
        match self {
            Self::Inserted(part) | Self::Deleted(part) => vec![&part.file],
            Self::Recorded(files) => files.iter().collect(),
            Self::Compared { gone, came } => gone.iter().chain(came).map(|p| &p.file).collect(),
        }
    }
}

/// The pieces of a version.
pub(super) fn plan_version(changes: VersionChanges) -> Vec<Piece> {
    let VersionChanges { adds, removes, recorded, .. } = changes;
    if !recorded.is_empty() {
        return vec![Piece::Recorded(recorded)];
    }
    let (mut gone, mut came) = (Vec::new(), Vec::new());
    let mut before: HashMap<String, ChangedFile> = removes.into_iter().map(|f| (f.name.clone(), f)).collect();
    for after in adds {
        match before.remove(&after.name) {
            Some(before) => marked(before, after, &mut gone, &mut came),
            None => came.push(Part::live(after)),
        }
    }
    let mut left: Vec<ChangedFile> = before.into_values().collect();
    left.sort_by(|a, b| a.name.cmp(&b.name));
    gone.extend(left.into_iter().map(Part::live));
    match (gone.is_empty(), came.is_empty()) {
        (_, true) => gone.into_iter().map(Piece::Deleted).collect(),
        (true, false) => came.into_iter().map(Piece::Inserted).collect(),
        (false, false) => vec![Piece::Compared { gone, came }],
    }
}

/// A file that stays, with other rows marked as deleted.
fn marked(before: ChangedFile, after: ChangedFile, gone: &mut Vec<Part>, came: &mut Vec<Part>) {
    let (was, is) = (before.deleted.clone(), after.deleted.clone());
    if was == is {
        return;
    }
    if let Some(of) = is.clone() {
        gone.push(Part { file: before, rows: Rows::Marked { of, without: was.clone() } });
    }
    // Deletion vectors grow, but for a restore: then fewer rows are marked than before.
    let restored = was.as_ref().map_or(0, DeletedRows::count) > is.as_ref().map_or(0, DeletedRows::count);
    if let Some(of) = was.filter(|_| restored) {
        came.push(Part { file: after, rows: Rows::Marked { of, without: is } });
    }
}
