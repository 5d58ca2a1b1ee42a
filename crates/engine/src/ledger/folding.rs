//! How the files of a dataset's ledger are made: of batches of requests, span by span, each beside the requests before it; and few of many.

use alluvium_core::{BatchNumber, BatchSpan, Error, FateChange, Incarnation, Kind, OrgLedger, Pseudonyms, Result};
use alluvium_lake::{MergeMode, SortedKey, SortedWriter, Store, in_place};
use object_store::path::Path;
use rayon::prelude::*;
use tokio::task::JoinHandle;

use super::dataset::DatasetLedger;
use super::entry::{NodeFate, encode_request, keys_of};
use super::named::Named;
use super::series::{LOOK_INTERVAL, MAX_LOOKS, Series};
use crate::engine::Engine;
use crate::requests::Accepted;

/// The files of so many of the newest spans are left as they are: who resolves rows at a position of a moment ago asks for them.
const SPANS_APART: usize = 8;

/// What goes on beside.
type Task<T> = JoinHandle<Result<T>>;
/// Entries of a sorted file.
type Entries = Vec<(SortedKey, Vec<u8>)>;

impl DatasetLedger {
    /// Folds what was not folded yet of the batches up to `finished`: a span is read and folded while the fates of the one before are packed,
    /// and files merged. Of what was before, only the requests are asked for.
    pub(super) async fn fold_up_to(
        &mut self,
        engine: &Engine,
        incarnation: &Incarnation,
        finished: BatchNumber,
        at: BatchNumber,
    ) -> Result<()> {
        let (mut writing, mut merging) = (None, None);
        let folded = self.fold_spans(engine, incarnation, (finished, at), (&mut writing, &mut merging)).await;
        let (written, merged) = (joined(writing).await, merged_from(merging).await);
        let has_merged = *folded.as_ref().unwrap_or(&false) || !merged.is_empty();
        let left = self.leave(&engine.store, merged, finished).await;
        folded?;
        written?;
        left?;
        self.extend(finished).await?;
        if !self.find(&engine.store, finished, finished).await? {
            return Err(not_there());
        }
        // What a merge on the way left is merged by who folds next.
        if !has_merged {
            self.merge_small(at).await;
        }
        Ok(())
    }

    /// Leaves what is still on its way in `writing` and `merging`, with what a merge was made of. Whether files were merged by then.
    async fn fold_spans(
        &mut self,
        engine: &Engine,
        incarnation: &Incarnation,
        (finished, at): (BatchNumber, BatchNumber),
        (writing, merging): (&mut Option<Task<()>>, &mut Option<JoinHandle<Vec<Path>>>),
    ) -> Result<bool> {
        let generation = Some(self.pseudonyms.generation());
        let next = async |from: BatchNumber| {
            // What changed since the table's position is asked for, and is not in a file that begins before it.
            let end = if from < at { at } else { finished };
            let to = engine.batches_at_once(incarnation, from, end, engine.requests_folded_at_once()).await?;
            let Some(span) = BatchSpan::new(from, to) else { return Ok(None) };
            Ok::<_, Error>(Some((span, engine.accepted(incarnation, span, generation).await?)))
        };
        let mut has_merged = false;
        let mut read = next(self.fates.to()).await?;
        while let Some((span, accepted)) = read.take() {
            self.find_requests(&engine.store, span.from, finished).await?;
            let (ledger, store) = (self.clone(), engine.store.clone());
            let mut folding = Some(tokio::spawn(async move { ledger.fold(&store, span, accepted).await }));
            let read_next = next(span.to).await;
            let fates = joined(folding.take()).await?.unwrap_or_default();
            joined(writing.take()).await?;
            *writing = Some(tokio::spawn(write(engine.store.clone(), self.fates.path(span), fates, String::new())));
            read = read_next?;
            if read.is_some() && merging.as_ref().is_none_or(JoinHandle::is_finished) {
                let merged = merged_from(merging.take()).await;
                has_merged |= !merged.is_empty();
                // Nobody here reads them now.
                self.leave(&engine.store, merged, finished).await?;
                let mut ledger = self.clone();
                *merging = Some(tokio::spawn(async move { ledger.merge_beside(at).await }));
            }
        }
        Ok(has_merged)
    }

    /// Opens what came since, and removes the files that others were made of, once none of them is among those that are open.
    async fn leave(&mut self, store: &Store, merged: Vec<Path>, finished: BatchNumber) -> Result<()> {
        for _ in 0..MAX_LOOKS {
            self.extend(finished).await?;
            if !merged.iter().any(|path| self.fates.has(path) || self.requests.has(path)) {
                remove(&self.fates, merged).await;
                return Ok(());
            }
            store.machine().sleep(LOOK_INTERVAL).await;
        }
        // The listing is very late; they are merged another time.
        Ok(())
    }

    /// Opens what came since.
    async fn extend(&mut self, finished: BatchNumber) -> Result<()> {
        self.requests.extend(finished).await?;
        self.fates.extend(finished).await
    }

    /// Looks until the fates up to `to` are there, and where there are fates, the requests they come from: a listing that does not show
    /// them is late, and what was folded without them would be wrong for good. `false` if they do not come.
    pub(super) async fn find(&mut self, store: &Store, to: BatchNumber, finished: BatchNumber) -> Result<bool> {
        for _ in 0..MAX_LOOKS {
            if self.fates.to() >= to && self.requests.to() >= self.fates.to() {
                return Ok(true);
            }
            store.machine().sleep(LOOK_INTERVAL).await;
            self.extend(finished).await?;
        }
        Ok(false)
    }

    /// Writes the requests that the fates come from, of batches of which no file tells.
    pub(super) async fn write_requests(
        &mut self,
        engine: &Engine,
        incarnation: &Incarnation,
        finished: BatchNumber,
    ) -> Result<()> {
        while self.requests.to() < self.fates.to() {
            let from = self.requests.to();
            let to = engine.batches_at_once(incarnation, from, self.fates.to(), engine.requests_folded_at_once()).await?;
            let Some(span) = BatchSpan::new(from, to) else { break };
            let mut accepted = engine.accepted(incarnation, span, Some(self.pseudonyms.generation())).await?;
            self.keep_own(&mut accepted);
            let (entries, named) = in_place(|| by_node(&self.pseudonyms, &accepted));
            write(engine.store.clone(), self.requests.path(span), entries, named.note()).await?;
            self.find_requests(&engine.store, to, finished).await?;
        }
        Ok(())
    }

    /// Looks until the requests up to `to` are there, which are written.
    async fn find_requests(&mut self, store: &Store, to: BatchNumber, finished: BatchNumber) -> Result<()> {
        for _ in 0..MAX_LOOKS {
            if self.requests.to() >= to {
                return Ok(());
            }
            self.requests.extend(finished).await?;
            if self.requests.to() < to {
                store.machine().sleep(LOOK_INTERVAL).await;
            }
        }
        if self.requests.to() >= to { Ok(()) } else { Err(not_there()) }
    }

    /// Leaves out what no row of the dataset can match.
    fn keep_own(&self, accepted: &mut Vec<Accepted>) {
        accepted.retain(|accepted| !self.shape.nodes(&accepted.request).is_empty());
    }

    /// The fates that the requests of a span change. The requests themselves are written.
    async fn fold(&self, store: &Store, span: BatchSpan, mut accepted: Vec<Accepted>) -> Result<Entries> {
        self.keep_own(&mut accepted);
        let (entries, named) = in_place(|| by_node(&self.pseudonyms, &accepted));
        let mut nodes: Vec<SortedKey> = entries.iter().map(|entry| entry.0).collect();
        nodes.dedup();
        // Packed while the fold goes on.
        let requests = tokio::spawn(write(store.clone(), self.requests.path(span), entries, named.note()));
        let gathered = self.gather_all(accepted, nodes, span.from).await?;
        let changes_of = |(org, ledger): (&String, &OrgLedger)| {
            let mut entries: Entries = Vec::new();
            ledger.changed(span.from, span.to, &mut |FateChange { node, new: now, .. }| {
                entries.push((self.key_of(org, node), NodeFate::encode(org, node, now)));
            });
            entries
        };
        let entries = in_place(|| {
            let mut entries: Entries = gathered.par_iter().flat_map_iter(changes_of).collect();
            entries.par_sort_by_key(|entry| entry.0);
            entries
        });
        // Where there are fates there are the requests they come from.
        requests.await.map_err(|e| Error::new(Kind::Internal, "writing requests by node").source(e))??;
        Ok(entries)
    }

    /// Makes few files of many, those up to `at`, where the table is, apart from those behind it. Another process may do the same. Where it
    /// fails there are more files to look into, and nothing is lost.
    pub(crate) async fn merge_small(&mut self, at: BatchNumber) {
        let merged = self.merge_beside(at).await;
        remove(&self.fates, merged).await;
    }

    /// As [`Self::merge_small`], but the files that others were made of stay, for who reads them; they are told.
    async fn merge_beside(&mut self, at: BatchNumber) -> Vec<Path> {
        let mut requests = self.requests.clone();
        let merge = tokio::spawn(async move {
            let merged = requests.merge_beside(MergeMode::KeepAll, at, SPANS_APART, Named::united).await;
            merged.map(|merged| (requests, merged))
        });
        let fates = self.fates.merge_beside(MergeMode::NewestWins, at, SPANS_APART, |_| String::new()).await;
        let requests = joined(Some(merge)).await.map(|of_requests| {
            of_requests.map_or_else(Vec::new, |(requests, merged)| {
                self.requests = requests;
                merged
            })
        });
        let mut all = Vec::new();
        for merged in [requests, fates] {
            match merged {
                Ok(merged) => all.extend(merged),
                // Another process merges them.
                Err(e) if e.kind() == Kind::NotFound => {}
                Err(error) => warn_of_merge(&error),
            }
        }
        all
    }
}

/// Removes files that others were made of.
async fn remove(series: &Series, merged: Vec<Path>) {
    if let Err(error) = series.remove(merged).await {
        warn_of_merge(&error);
    }
}

fn warn_of_merge(error: &Error) {
    tracing::warn!(error = %error.chain_text(), "could not merge files of the folded ledger; there are more to look into, nothing is lost");
}

fn not_there() -> Error {
    Error::new(Kind::Unavailable, "the folded ledger was written and is not there").hint("run again")
}

/// Requests under each node that they are about, in order, and what all of them are about.
fn by_node(pseudonyms: &Pseudonyms, accepted: &[Accepted]) -> (Entries, Named) {
    let of_one = |Accepted { request, batch, .. }: &Accepted| {
        let keys = keys_of(pseudonyms, request).into_iter().enumerate();
        let entry = |(at, key)| (key, encode_request(request, *batch, at == 0));
        keys.map(entry).collect::<Vec<_>>()
    };
    let mut entries: Entries = accepted.par_iter().flat_map_iter(of_one).collect();
    entries.par_sort_by_key(|entry| entry.0);
    (entries, Named::by(accepted.iter().map(|accepted| &*accepted.request)))
}

async fn joined<T>(task: Option<Task<T>>) -> Result<Option<T>> {
    match task {
        Some(task) => task.await.map_err(|e| Error::new(Kind::Internal, "folding the ledger").source(e))?.map(Some),
        None => Ok(None),
    }
}

/// What files a merge was made of, once it has ended.
async fn merged_from(merging: Option<JoinHandle<Vec<Path>>>) -> Vec<Path> {
    match merging {
        Some(merging) => merging.await.unwrap_or_default(),
        None => Vec::new(),
    }
}

/// Writes the file of a span; another process may have been quicker with the same.
async fn write(store: Store, path: Path, entries: Entries, note: String) -> Result<()> {
    let mut writer = SortedWriter::new(&store, path)?;
    for (key, value) in &entries {
        writer.push(*key, value)?;
    }
    drop(entries);
    match writer.finish(&note).await {
        Err(e) if e.kind() == Kind::Conflict => Ok(()),
        written => written.map(|_size| ()),
    }
}
