//! How far a dataset's source was read, and what waits there.

use alluvium_core::{BatchNumber, Dataset, FileRange, Incarnation, Kind, Range, Result, Shard, Source};
use alluvium_lake::ChainStore;

use super::backlog::Inbox;
use super::kafka::TopicPosition;
use super::taken::{Taken, range_of};
use crate::engine::Engine;

/// A chain that is being folded meanwhile is read again so many times.
const MAX_LOOKS: u32 = 5;

/// How far a source was read.
#[derive(Debug)]
pub enum SourcePosition {
    /// A directory of files.
    Files(FilePosition),
    /// A Kafka topic.
    Kafka(TopicPosition),
}

/// How far a source of files was read.
#[derive(Debug, Clone, Default)]
pub struct FilePosition {
    /// The rest of the last file of the newest finished batch, if that batch ended within it.
    pub partial: Option<FileRange>,
    /// The last file that the newest finished batch took.
    pub last_file: Option<String>,
    /// Files that wait to be taken, the partly taken one included.
    pub waiting_files: u64,
    /// Their bytes, as they lie there.
    pub waiting_bytes: u64,
    /// Files that changed after they were taken, and are not read again.
    pub changed_files: u64,
    /// Files that cannot be taken, for example because their names are not UTF-8.
    pub unusable_files: u64,
    /// The directory is not there.
    pub missing: bool,
}

impl Engine {
    /// How far the source of `dataset` was read by the finished batches of its chains, and what waits.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the source cannot be listed, [`Kind::Conflict`] if the partly taken file is not what it was.
    pub(crate) async fn source_position(&self, dataset: &Dataset, incarnation: Option<&Incarnation>) -> Result<SourcePosition> {
        if let Source::Kafka(source) = &dataset.source {
            return self.topic_position(dataset, source, incarnation).await.map(SourcePosition::Kafka);
        }
        let inbox = Inbox::new(self, dataset)?;
        let (taken, last_file) = match incarnation {
            Some(incarnation) => self.taken(dataset, incarnation).await?,
            None => (Taken::new(), None),
        };
        let (plan, notes) = inbox.plan(&taken).await.map_err(|e| e.context(format!("dataset {}", dataset.name)))?;
        Ok(SourcePosition::Files(FilePosition {
            last_file,
            waiting_files: plan.next.len() as u64,
            waiting_bytes: plan.next.iter().map(|f| f.size).sum(),
            changed_files: plan.changed.len() as u64,
            unusable_files: notes.unusable_count,
            missing: notes.missing,
            partial: taken.partial,
        }))
    }

    /// What a run of ingest would take of `dataset`: nothing is written.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the source cannot be listed, [`Kind::Conflict`] if the partly taken file is not what it was or the namespace is being deleted.
    pub async fn waiting(&self, dataset: &Dataset) -> Result<SourcePosition> {
        let incarnation = self.existing_incarnation().await?;
        self.source_position(dataset, incarnation.as_ref()).await
    }

    /// What the finished batches of the chain took, and the last file of the newest.
    async fn taken(&self, dataset: &Dataset, incarnation: &Incarnation) -> Result<(Taken, Option<String>)> {
        let chain = self.chain(incarnation, dataset.intake_job(), dataset, Shard::WHOLE);
        let mut looks = 0;
        loop {
            looks += 1;
            match taken_so_far(&chain).await {
                // A run that goes on meanwhile folds records into a segment and deletes them.
                Err(e) if looks < MAX_LOOKS && matches!(e.kind(), Kind::Corrupt | Kind::Unavailable) => {}
                looked => return looked,
            }
        }
    }
}

async fn taken_so_far(chain: &ChainStore) -> Result<(Taken, Option<String>)> {
    let listing = chain.listing().await?;
    let newest = listing.newest().map_or(BatchNumber(0), |key| key.batch);
    let finished = if listing.done.contains(&newest) { newest } else { BatchNumber(newest.0.saturating_sub(1)) };
    let mut taken = Taken::new();
    taken.catch_up(chain, &listing, finished).await?;
    if finished.0 == 0 || !listing.records.contains_key(&finished) {
        return Ok((taken, None));
    }
    let last_file = match range_of(chain, &listing, finished).await?.range {
        Range::Files(files) => files.into_iter().next_back().map(|f| f.path),
        Range::DeadLetters { .. } | Range::Kafka(_) | Range::Ledger { .. } | Range::Retention(_) => None,
    };
    Ok((taken, last_file))
}
