//! What an earlier attempt at a batch staged. Where files have only come since, it is part of the next attempt as it is, and that looks
//! at the files that came.

use std::collections::HashSet;

use alluvium_core::{DatePartitionCount, LedgerPosition, LedgerShape, Recorded, Result, RewriteWork, TableFiles, TableSpec};
use alluvium_lake::{ChangedFile, DeletedRows, Rewrites, live_files_digest};

use super::run::Mutating;
use crate::requests::Matched;

/// A file, and what tells its deletion vector from others.
type Standing = (String, Option<String>);

/// What the next attempt takes over.
pub(super) struct Earlier {
    /// The files that it looked at or passed over. All of them stand.
    files: HashSet<Standing>,
    /// Up to which position it told what became of requests.
    pub(super) told: LedgerPosition,
    pub(super) data: TableFiles,
    pub(super) rewrites: Rewrites,
    pub(super) matched: Matched,
    pub(super) counts: Vec<DatePartitionCount>,
    pub(super) work: RewriteWork,
}

/// What a table is, for which an attempt is made.
pub(super) struct Table<'a> {
    pub(super) standing: &'a [(ChangedFile, Option<String>)],
    pub(super) position: LedgerPosition,
    /// The declaration that rows are resolved for.
    pub(super) shape: LedgerShape,
    /// Whether it has a change data feed.
    pub(super) feed: bool,
}

/// How a file is told from others.
pub(super) fn identity(file: &ChangedFile) -> Standing {
    (file.name.clone(), file.deleted.as_ref().map(DeletedRows::mark))
}

impl Earlier {
    /// Whether the earlier attempt knew a file.
    pub(super) fn knew(&self, file: &ChangedFile) -> bool {
        self.files.contains(&identity(file))
    }
}

impl Mutating<'_> {
    /// What an attempt that was recorded holds of the table as it is now; `None` if a file that it was planned on has gone, or it was made
    /// for another declaration. That it cannot be read is no error: then everything is looked at again.
    pub(super) async fn earlier(&self, recorded: Recorded, table: &Table<'_>) -> Option<Earlier> {
        match self.still_holds(recorded, table).await {
            Ok(earlier) => earlier,
            Err(error) => {
                tracing::debug!(error = %error.chain_text(), "an earlier attempt cannot be read; all files are looked at again");
                None
            }
        }
    }

    async fn still_holds(&self, recorded: Recorded, table: &Table<'_>) -> Result<Option<Earlier>> {
        let Some(mutation) = recorded.mutation else { return Ok(None) };
        let has_feed = !recorded.data.changes.is_empty();
        let rewrote = !recorded.data.removes.is_empty();
        if recorded.ledger != table.position || recorded.shape != Some(table.shape) || rewrote && has_feed != table.feed {
            return Ok(None);
        }
        let spec = TableSpec::data(self.dataset);
        let log = self.engine.log_of(&spec);
        let before = log.standing_files(mutation.planned_on.version).await?;
        let files: HashSet<Standing> = before.iter().map(identity).collect();
        let standing: HashSet<Standing> = table.standing.iter().map(|(file, _)| identity(file)).collect();
        if live_files_digest(files.iter().cloned()) != mutation.planned_on.live_files || !files.is_subset(&standing) {
            return Ok(None);
        }
        // Who cleans up a table by Delta's rules alone knows nothing of records, and takes what no version names and is old.
        let staged: Vec<String> = recorded.data.adds.iter().chain(&recorded.data.changes).map(|file| file.path.clone()).collect();
        if !log.are_there(&staged).await? {
            return Ok(None);
        }
        let rewrites = match &mutation.rewrites {
            None => Rewrites::default(),
            Some(name) => {
                let read = Rewrites::read(&self.engine.store, &self.engine.resolver, &spec.name, name).await?;
                let Some(read) = read else { return Ok(None) };
                read
            }
        };
        Ok(Some(Earlier {
            files,
            told: mutation.told,
            data: recorded.data,
            rewrites,
            matched: self.engine.matched_in(&recorded.outcomes).await?,
            counts: recorded.counts,
            work: mutation.work,
        }))
    }
}
