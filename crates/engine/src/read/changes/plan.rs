//! Plans what to read for one version, from what its log entry says. Pure.
//!
//! | the entry has, of files that change data | rows |
//! |---|---|
//! | files of Delta's change data feed | what they hold, and nothing else |
//! | files that come | inserts |
//! | files that go, rows newly marked as deleted | deletes |
//! | rows no longer marked as deleted | inserts |
//! | both | compared as multisets: rows on both sides are none; of one identity, an update; the others, deletes and inserts |
//!
//! | files that go and files that come, of a commit of our own that kept the positions | the rows at these positions; of rows that moved to another partition, the last case |

use std::collections::HashMap;

use alluvium_lake::{ChangedFile, DeletedRows, MarksDiffer, Rewrites, Rows, VersionChanges};

use super::rewritten::Rewritten;

/// Rows of one file that came or went.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) file: ChangedFile,
    pub(super) rows: Rows,
    /// How many rows, if that is known.
    pub(super) row_count: Option<u64>,
}

impl Part {
    /// The rows of a file that are not deleted.
    pub(super) fn live(file: ChangedFile) -> Self {
        let gone = file.deleted.as_ref().map_or(0, DeletedRows::count);
        Self { row_count: file.rows.map(|rows| rows.saturating_sub(gone)), file, rows: Rows::Live }
    }

    fn marked(file: ChangedFile, of: DeletedRows, without: Option<DeletedRows>, row_count: u64) -> Self {
        Self { file, rows: Rows::Marked { of, without }, row_count: Some(row_count) }
    }
}

/// What to read, in the order in which rows are told.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    /// Rows that came.
    Inserted(Part),
    /// Rows that went.
    Deleted(Part),
    /// Rows of a file that a commit of our own rewrote.
    Rewritten(Rewritten),
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
            Self::Rewritten(file) => std::iter::once(&file.old).chain(&file.new).collect(),
            Self::Recorded(files) => files.iter().collect(),
            Self::Compared { gone, came } => gone.iter().chain(came).map(|p| &p.file).collect(),
        }
    }
}

/// The files that have one deletion vector in place of another now: the name, the former and the present one.
pub(super) fn remarked(changes: &VersionChanges) -> Vec<(&str, &DeletedRows, &DeletedRows)> {
    if !changes.recorded.is_empty() {
        return Vec::new();
    }
    let before: HashMap<&str, &DeletedRows> =
        changes.removes.iter().filter_map(|f| Some((f.name.as_str(), f.deleted.as_ref()?))).collect();
    let pairs = changes.adds.iter().filter_map(|after| {
        let was = before.get(after.name.as_str()).copied()?;
        Some((after.name.as_str(), was, after.deleted.as_ref()?))
    });
    pairs.filter(|(_, was, is)| was != is).collect()
}

/// The pieces of a version. `differ` says how the vectors of the files differ that [`remarked`] names.
pub(super) fn plan_version(
    changes: VersionChanges,
    differ: &HashMap<String, MarksDiffer>,
    rewrites: Option<Rewrites>,
) -> Vec<Piece> {
    let VersionChanges { adds, removes, recorded, .. } = changes;
    if !recorded.is_empty() {
        return vec![Piece::Recorded(recorded)];
    }
    let (mut gone, mut came) = (Vec::new(), Vec::new());
    let (rewritten, removes, adds) = match rewrites {
        Some(rewrites) => rewritten(rewrites, removes, adds, &mut gone),
        None => (Vec::new(), removes, adds),
    };
    let mut before: HashMap<String, ChangedFile> = removes.into_iter().map(|f| (f.name.clone(), f)).collect();
    for after in adds {
        match before.remove(&after.name) {
            Some(before) => marked(before, after, differ, &mut gone, &mut came),
            None => came.push(Part::live(after)),
        }
    }
    let mut left: Vec<ChangedFile> = before.into_values().collect();
    left.sort_by(|a, b| a.name.cmp(&b.name));
    gone.extend(left.into_iter().map(Part::live));
    let others: Vec<Piece> = match (gone.is_empty(), came.is_empty()) {
        (_, true) => gone.into_iter().map(Piece::Deleted).collect(),
        (true, false) => came.into_iter().map(Piece::Inserted).collect(),
        (false, false) => vec![Piece::Compared { gone, came }],
    };
    rewritten.into_iter().map(Piece::Rewritten).chain(others).collect()
}

/// The files whose changed rows are known by their positions, and the removes and adds that are left. Rows that moved are among those
/// gone.
fn rewritten(
    rewrites: Rewrites,
    removes: Vec<ChangedFile>,
    adds: Vec<ChangedFile>,
    gone: &mut Vec<Part>,
) -> (Vec<Rewritten>, Vec<ChangedFile>, Vec<ChangedFile>) {
    let mut removed: HashMap<String, ChangedFile> = removes.into_iter().map(|f| (f.name.clone(), f)).collect();
    let mut added: HashMap<String, ChangedFile> = adds.into_iter().map(|f| (f.name.clone(), f)).collect();
    let mut files = Vec::new();
    for file in rewrites.files {
        let is_whole = removed.contains_key(&file.old) && file.new.iter().all(|name| added.contains_key(name));
        let Some(old) = removed.remove(&file.old).filter(|_| is_whole) else { continue };
        let new = file.new.iter().filter_map(|name| added.remove(name)).collect();
        if !file.moved.is_empty() {
            let row_count = Some(file.moved.len() as u64);
            gone.push(Part { file: old.clone(), rows: Rows::At(file.moved), row_count });
        }
        if !file.updated.is_empty() || !file.deleted.is_empty() {
            files.push(Rewritten { old, new, updated: file.updated, now: file.now, deleted: file.deleted });
        }
    }
    let sorted = |files: HashMap<String, ChangedFile>| {
        let mut files: Vec<ChangedFile> = files.into_values().collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files
    };
    (files, sorted(removed), sorted(added))
}

/// A file that stays, with other rows marked as deleted.
fn marked(
    before: ChangedFile,
    after: ChangedFile,
    differ: &HashMap<String, MarksDiffer>,
    gone: &mut Vec<Part>,
    came: &mut Vec<Part>,
) {
    match (before.deleted.clone(), after.deleted.clone()) {
        (None, None) => {}
        (None, Some(is)) => {
            let count = is.count();
            gone.push(Part::marked(before, is, None, count));
        }
        (Some(was), None) => {
            let count = was.count();
            came.push(Part::marked(after, was, None, count));
        }
        (Some(was), Some(is)) => {
            // None: it is the same vector.
            let Some(differ) = differ.get(&after.name) else { return };
            if differ.gone > 0 {
                gone.push(Part::marked(before, is.clone(), Some(was.clone()), differ.gone));
            }
            if differ.came > 0 {
                came.push(Part::marked(after, was, Some(is), differ.came));
            }
        }
    }
}
