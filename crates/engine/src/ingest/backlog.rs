//! The files that wait to be taken.

use std::collections::VecDeque;

use alluvium_core::{
    Dataset, Error, FilePlan, FilePlanner, FileRange, FileSource, FoundFile, Kind, Result, Source, TakenPolicy, is_looked_at,
};

use super::taken::Taken;
use crate::engine::Engine;
use crate::source::{FileSet, ListingNotes};

/// So many file names are told one by one in a warning.
const NAMES_TOLD: usize = 5;

/// The files of a dataset's source, and where they go when they are taken.
#[derive(Debug, Clone)]
pub(super) struct Inbox {
    pub(super) source: FileSource,
    pub(super) files: FileSet,
    pub(super) move_to: Option<FileSet>,
}

impl Inbox {
    /// The inbox of a dataset that reads files.
    pub(super) fn new(engine: &Engine, dataset: &Dataset) -> Result<Self> {
        let Source::Files(source) = &dataset.source else {
            return Err(Error::new(Kind::Internal, format!("dataset {}: it reads no files", dataset.name)));
        };
        let files = engine.file_set(&source.path).map_err(|e| e.context(format!("dataset {}", dataset.name)))?;
        let move_to = match &source.after {
            TakenPolicy::Move(directory) => {
                let target = engine.file_set(directory).map_err(|e| e.context(format!("dataset {}", dataset.name)))?;
                let invalid = |why: &str, hint: &str| {
                    let what = format!("dataset {}: files would be moved to {directory}, {why}", dataset.name);
                    Err(Error::new(Kind::Invalid, what).hint(hint))
                };
                if target.is_within(&files) {
                    return invalid("inside their own source, and taken again", "move them to a directory beside the source");
                }
                if !files.can_move_to(&target) {
                    return invalid("in another store", "move them within one store: after: move: and a URL of the same bucket");
                }
                Some(target)
            }
            TakenPolicy::Keep | TakenPolicy::Delete => None,
        };
        Ok(Self { source: source.clone(), files, move_to })
    }

    /// What is there and was not taken. Of a source in a store that promises it, only what sorts after what the newest batch took is
    /// listed; a disk must be walked either way.
    pub(super) async fn plan(&self, taken: &Taken) -> Result<(FilePlan, ListingNotes)> {
        let mut planner = FilePlanner::new(&taken.files, taken.partial.as_ref());
        let after = taken.newest_name.as_deref().filter(|_| self.source.ordered && self.files.is_in_store());
        let mut notes = self.files.visit(after, |file| planner.see(file)).await?;
        // A store has no directories: one whose objects were all taken and moved is not there any more.
        notes.missing &= !(self.files.is_in_store() && taken.up_to.0 > 0);
        if let Some(partial) = taken.partial.as_ref().filter(|_| after.is_some())
            && let Some(now) = self.files.stat(&partial.path).await?
        {
            planner.see(now);
        }
        Ok((planner.finish()?, notes))
    }

    /// Lists what is there and was not taken, in the order in which it is to be taken, and warns of what cannot be.
    pub(super) async fn list(&self, engine: &Engine, dataset: &Dataset, taken: &Taken) -> Result<VecDeque<FoundFile>> {
        let (plan, notes) = self.plan(taken).await.map_err(|e| e.context(format!("dataset {}", dataset.name)))?;
        let warn = |text: String| engine.observer.warning(&format!("dataset {}: {text}", dataset.name));
        if notes.missing {
            warn(format!("the source directory {} is not there; taken as empty", self.source.path));
        }
        if notes.unusable_count > 0 {
            let names: Vec<String> =
                notes.unusable.iter().take(NAMES_TOLD).map(|u| format!("{:?} ({})", u.name, u.why)).collect();
            warn(format!("{} files cannot be taken: {}", notes.unusable_count, names.join(", ")));
        }
        if !plan.changed.is_empty() {
            let names: Vec<String> = plan.changed.iter().take(NAMES_TOLD).map(|n| format!("{n:?}")).collect();
            warn(format!(
                "{} files changed after they were taken and are not read again: {}; give what is new in them a new name",
                plan.changed.len(),
                names.join(", ")
            ));
        }
        Ok(plan.next.into())
    }
}

/// Leaves in `queue`, an earlier listing, what is still to be taken after other processes went on. The rest of a partly taken
/// file comes first, whether or not that listing knew it: where it begins holds for no other file.
pub(super) fn still_waiting(queue: &mut VecDeque<FoundFile>, taken: &Taken) {
    queue.retain(|f| is_looked_at(&f.path) && taken.files.get(&f.path).is_none());
    if let Some(FileRange { path, size, stamp, .. }) = &taken.partial {
        queue.push_front(FoundFile { path: path.clone(), size: *size, stamp: *stamp });
    }
}
