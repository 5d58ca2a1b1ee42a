//! What becomes of a table's files in a batch: files come in the place of others, or nothing does.

use std::collections::HashSet;
use std::sync::Arc;

use alluvium_core::{
    BatchKey, ChainId, DatasetName, DatePartitionCount, Error, Kind, Resolver, Result, RewriteWork, TableFiles, TableName,
};
use alluvium_lake::{ChangedFile, Rewrites, RewrittenFile, StageSettings, Stager, Store, Sweep, blocking};
use tokio::sync::OwnedSemaphorePermit;

use super::feed::Feed;
use super::file::{Counts, Rewrite, Rewriter};
use crate::engine::Engine;

/// How many finished files may wait to be put.
const FILES_IN_FLIGHT: usize = 16;

/// What becomes of a table's files; the last of them may be on their way to the store.
pub(crate) struct RewrittenTable {
    store: Store,
    resolver: Resolver,
    dataset: DatasetName,
    table: TableName,
    partition_by: Vec<String>,
    settings: StageSettings,
    stager: Stager,
    feed: Feed,
    /// What is known of them beside what the stagers have.
    data: TableFiles,
    rewrites: Rewrites,
    counts: Counts,
    work: RewriteWork,
}

/// The same, all of it in the store.
pub(crate) struct RewrittenFiles {
    pub(crate) data: TableFiles,
    /// The name of what tells which rows of which files changed or went, if any did.
    pub(crate) rewrites: Option<String>,
    pub(crate) counts: Vec<DatePartitionCount>,
    pub(crate) work: RewriteWork,
}

impl RewrittenTable {
    /// Nothing yet, of an attempt at a batch of a chain.
    pub(crate) fn new(engine: &Engine, rewriter: &Rewriter, chain: &ChainId, key: BatchKey, now_micros: i64) -> Self {
        let Rewriter { log, spec, schema, dataset, .. } = rewriter;
        let settings = StageSettings {
            chain: chain.clone(),
            key,
            now_ms: now_micros.div_euclid(1000),
            org: None,
            files_in_flight: FILES_IN_FLIGHT,
            index: Some(engine.index_of(dataset)),
        };
        Self {
            store: engine.store.clone(),
            resolver: engine.resolver.clone(),
            dataset: dataset.name.clone(),
            table: spec.name.clone(),
            partition_by: spec.partition_by.clone(),
            stager: Stager::of_schema(log, spec, schema, settings.clone()),
            feed: Feed::new(Stager::of_feed(log, spec, schema, settings.clone()), engine.memory_bytes / 16),
            settings,
            data: TableFiles::default(),
            rewrites: Rewrites::default(),
            counts: Counts::new(),
            work: RewriteWork::default(),
        }
    }

    pub(crate) fn settings(&self) -> &StageSettings {
        &self.settings
    }

    /// What takes the files away if the record is never written.
    pub(crate) fn sweeps(&self) -> Vec<Sweep> {
        vec![self.stager.sweep(), self.feed.stager.sweep()]
    }

    /// So many files were opened, or will be.
    pub(crate) fn opened(&mut self, files: usize) {
        self.work.files_opened += files as u64;
    }

    /// Begins with what an earlier attempt made of the table.
    pub(crate) fn take_over(&mut self, data: TableFiles, rewrites: Rewrites, counts: Vec<DatePartitionCount>, work: RewriteWork) {
        (self.data, self.rewrites) = (data, rewrites);
        self.counts = counts.into_iter().map(|c| ((c.org, c.event_date), (c.updated, c.deleted))).collect();
        let opened = self.work.files_opened + work.files_opened;
        self.work = RewriteWork { files_opened: opened, ..work };
    }

    /// A file was rewritten.
    pub(crate) async fn with(mut self, file: &ChangedFile, rewrite: Rewrite, held: OwnedSemaphorePermit) -> Result<Self> {
        let Rewrite { spliced, moved, images, positions, counts, ids } = rewrite;
        self.feed = self.feed.with(images).await?;
        let mut ids = ids.filter(|_| spliced.files.len() == 1);
        let value = |column: &String| (column.clone(), file.partition_value(column).map(str::to_owned));
        let values: Vec<(String, Option<String>)> = self.partition_by.iter().map(value).collect();
        self.work.bytes_copied += spliced.bytes_copied;
        self.work.bytes_encoded += spliced.bytes_encoded;
        let mut rewritten = RewrittenFile {
            old: file.name.clone(),
            now: positions.now,
            updated: positions.updated,
            deleted: positions.deleted,
            moved: positions.moved,
            new: Vec::new(),
        };
        let held = Arc::new(held);
        for file in spliced.files {
            rewritten.new.push(self.stager.adopt(&values, file, ids.take(), held.clone()).await?);
        }
        drop(held);
        self.rewrites.files.push(rewritten);
        if let Some(rows) = moved {
            let stager = self.stager;
            self.stager =
                blocking("staging rows of another partition", move || stager.stage(vec![rows]).map(|()| stager)).await?;
        }
        self.without(file, counts)?;
        Ok(self)
    }

    /// A file is not part of the table any more.
    pub(crate) fn without(&mut self, file: &ChangedFile, counts: Counts) -> Result<()> {
        self.work.files_rewritten += 1;
        for (partition, (updated, deleted)) in counts {
            self.work.updated += updated;
            self.work.deleted += deleted;
            let sum = self.counts.entry(partition).or_default();
            *sum = (sum.0 + updated, sum.1 + deleted);
        }
        if let Some(deleted) = &file.deleted {
            self.data.marks.insert(file.name.clone(), deleted.as_logged());
        }
        self.data.removes.push(log_spelling(file, &self.dataset)?);
        Ok(())
    }

    /// Waits until all of it is in the store.
    pub(crate) async fn finish(self) -> Result<RewrittenFiles> {
        let Self { store, resolver, table, settings, stager, feed, mut data, mut rewrites, counts, work, .. } = self;
        let counts = counts
            .into_iter()
            .map(|((org, event_date), (updated, deleted))| DatePartitionCount { org, event_date, inserted: 0, updated, deleted })
            .collect();
        data.removes.sort_unstable();
        rewrites.files.sort_unstable_by(|a, b| a.old.cmp(&b.old));
        data.adds.extend(stager.finish().await?.0.adds);
        data.adds.sort_by(|a, b| a.path.cmp(&b.path));
        data.changes.extend(feed.finish().await?);
        let in_place: HashSet<&String> = rewrites.files.iter().flat_map(|file| &file.new).collect();
        rewrites.moved = data.adds.iter().map(|add| &add.path).filter(|path| !in_place.contains(path)).cloned().collect();
        let name = match rewrites.files.is_empty() {
            true => None,
            false => Some(rewrites.stage(&store, &resolver, &table, &settings.chain, settings.key).await?),
        };
        Ok(RewrittenFiles { data, rewrites: name, counts, work })
    }
}

/// The path of a file as the log spells it. We read it decoded, and what another program may have encoded cannot be told from what it did
/// not; a remove in another spelling would leave the file in the table.
fn log_spelling(file: &ChangedFile, dataset: &DatasetName) -> Result<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/' | b'=');
    if file.name.bytes().all(plain) {
        return Ok(file.name.clone());
    }
    Err(Error::new(
        Kind::Unsupported,
        format!("dataset {dataset}: rows of {} change or go, and its path the log spells with escapes", file.name),
    )
    .hint("another program wrote that file; let it rewrite the file under a plain path, without characters that need escaping"))
}
