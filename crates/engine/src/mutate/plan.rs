//! One attempt at moving a table: every file that may hold what changed is looked at, what is to be rewritten is staged.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use alluvium_core::{
    AddedFile, BatchKey, BatchNumber, BatchRecord, DatasetName, DatePartitionCount, Error, Kind, LedgerPosition, LedgerShape,
    Mutation, PlannedOn, RECORD_FORMAT, Range, RecordBody, Recorded, Request, Resolver, Result, RewriteWork, TableFiles,
    TableName, TableSpec, parse_data_file,
};
use alluvium_lake::{
    ChangedFile, IndexReader, Rewrites, RewrittenFile, SpliceSettings, StageSettings, Stager, Store, Sweep, blocking,
    live_files_digest,
};
use arrow::array::RecordBatch;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::earlier::{Earlier, identity};
use super::file::{Candidate, Looked, Looking, Rewrite, deciding};
use super::run::{Mutating, WouldChange};
use super::wanted::WantedNodes;
use crate::engine::Engine;
use crate::ledger::DatasetLedger;
use crate::requests::{Counting, NewRequest, RequestsTried, Retries, StateWriter, mutation_of};

/// Files that are looked at at the same time, at most.
const FILES_AT_ONCE: usize = 6;
/// How many finished files may wait to be put.
const FILES_IN_FLIGHT: usize = 16;

/// A move of a table that is to be planned.
pub(super) struct Move {
    pub(super) from: LedgerPosition,
    pub(super) to: LedgerPosition,
    /// The ledger at `to`.
    pub(super) ledger: DatasetLedger,
    /// Where the table is.
    pub(super) version: u64,
    /// Its files, with the statistics that the log has of each.
    pub(super) standing: Vec<(ChangedFile, Option<String>)>,
    /// The declaration that its rows were resolved for.
    pub(super) shape: Option<LedgerShape>,
    /// Whether it has a change data feed.
    pub(super) feed: bool,
    /// How far requests were taken in.
    pub(super) taken: LedgerPosition,
    /// So many requests that have no state yet get one, at most, but those of one batch at least.
    pub(super) most_told: u64,
    /// Whether requests that wait are tried though the table does not move.
    pub(super) tries: bool,
    /// Another attempt at the batch was recorded, so there is something to do.
    pub(super) fixed: bool,
    /// What of that attempt still holds.
    pub(super) earlier: Option<Earlier>,
    /// The last batch that is finished; 0: there is none.
    pub(super) after: BatchNumber,
}

/// What a move will look through, and for what.
struct Prepared {
    looking: Arc<Looking>,
    candidates: Vec<Candidate>,
    /// The requests that have no state yet.
    new: Vec<NewRequest>,
    tried: RequestsTried,
    tries: bool,
    /// Up to which position every request has a state then.
    tells_to: LedgerPosition,
    planned_on: PlannedOn,
    foreign: Vec<String>,
    earlier: Option<Earlier>,
}

impl Mutating<'_> {
    /// Finds out which files a move will look through; `None` if there is nothing to do.
    async fn prepare(&self, a_move: Move) -> Result<Option<Prepared>> {
        let Move { from, to, ledger, version, standing, shape, feed, taken, most_told, tries, fixed, earlier, after } = a_move;
        let spec = TableSpec::data(self.dataset);
        let log = self.engine.log_of(&spec);
        let newest = mutation_of(&self.chain, after).await?;
        let told = newest.as_ref().map_or(LedgerPosition::BEGINNING, |mutation| mutation.told);
        // Of a table that was made at a late position many requests may have no state yet.
        let tells_to = self.engine.batches_at_once(&self.incarnation, BatchNumber(told.0), BatchNumber(to.0), most_told).await?;
        let tells_to = LedgerPosition(tells_to.0).max(told);
        // With another budget it may have told of fewer requests, and looked for no others.
        let earlier = earlier.filter(|earlier| earlier.told == tells_to);
        // An attempt comes with every move, and once a run without; of a move that takes several batches, with the last.
        let tries = (tries || from != to) && tells_to == to && to == taken;
        // Rows that were resolved for another declaration are all looked at again.
        let redeclared = !from.is_beginning() && shape != Some(ledger.shape());
        let covered: HashSet<String> = newest.map(|m| m.foreign.into_iter().collect()).unwrap_or_default();
        let is_foreign = |name: &str| parse_data_file(name).is_none_or(|f| f.chain.incarnation != self.incarnation);
        let foreign: Vec<String> = standing.iter().map(|(f, _)| f.name.clone()).filter(|name| is_foreign(name)).collect();
        let new_foreign: HashSet<&str> = foreign.iter().map(String::as_str).filter(|name| !covered.contains(*name)).collect();
        let resolves_foreign = !new_foreign.is_empty() && to > LedgerPosition::BEGINNING;
        let is_due = from != to || told < to || resolves_foreign || redeclared || fixed;
        if !is_due && !tries {
            return Ok(None);
        }
        let tried = self.engine.requests_tried(&self.dataset.name).await?;
        if !is_due && !tried.any_waits() {
            return Ok(None);
        }
        let partitioned = spec.partition_by.contains(&self.dataset.org);
        let changed_from = if redeclared { LedgerPosition::BEGINNING } else { from };
        let nothing = WantedNodes::new(self.dataset, partitioned);
        let (new, wanted) = wanted_since(&ledger, changed_from, told, tells_to, nothing).await?;
        let mut wanted_of_foreign = WantedNodes::new(self.dataset, partitioned);
        if resolves_foreign {
            let all = LedgerPosition::BEGINNING;
            ledger.changed_since(all, &mut |org, node, up_to| wanted_of_foreign.add(org, node, up_to)).await?;
            ledger.requests_since(all, to, &mut |request| wanted_of_foreign.add_request(&request)).await?;
        }
        let live = standing.iter().map(|(f, _)| identity(f));
        let planned_on = PlannedOn { version, live_files: live_files_digest(live) };
        let schema = log.stored_schema().await?;
        let looking = Arc::new(Looking {
            log: log.clone(),
            dataset: self.dataset.clone(),
            settings: SpliceSettings::new(&spec, &schema),
            schema,
            feed,
            deciding: deciding(&spec, self.dataset, &ledger),
            ledger,
            index: IndexReader::new(&self.engine.store, &self.engine.resolver, spec.name.clone()),
            spec,
            wanted,
            wanted_of_foreign,
            redeclared,
        });
        let candidates: Vec<Candidate> = standing
            .into_iter()
            .filter(|(file, _)| earlier.as_ref().is_none_or(|earlier| !earlier.knew(file)))
            .map(|(file, stats)| {
                let foreign = new_foreign.contains(file.name.as_str());
                Candidate { file, stats, foreign, told: Vec::new() }
            })
            .filter(|candidate| looking.may_hold(candidate))
            .collect();
        let candidates = looking.indexed(candidates).await?;
        Ok(Some(Prepared { looking, candidates, new, tried, tries, tells_to, planned_on, foreign, earlier }))
    }

    /// What a move would do, without doing it.
    pub(super) async fn would(&self, a_move: Move) -> Result<WouldChange> {
        let mut would = WouldChange::default();
        let Some(Prepared { looking, candidates, new, .. }) = self.prepare(a_move).await? else { return Ok(would) };
        would.requests = new.len() as u64;
        would.files_opened = candidates.len() as u64;
        let looks = candidates.into_iter().map(|candidate| looking.would(candidate));
        let mut looks = stream::iter(looks).buffer_unordered(FILES_AT_ONCE);
        while let Some((updated, deleted)) = looks.try_next().await? {
            would.files_rewritten += u64::from(updated + deleted > 0);
            would.updated += updated;
            would.deleted += deleted;
        }
        Ok(would)
    }

    /// The record of an attempt that makes a move; `None` if there is nothing to do. Requests that wait are tried with a batch that moves
    /// the table, and where the move says so.
    pub(super) async fn plan(&self, key: BatchKey, a_move: Move) -> Result<Option<(BatchRecord, Vec<Sweep>)>> {
        let (from, to) = (a_move.from, a_move.to);
        let Some(prepared) = Box::pin(self.prepare(a_move)).await? else { return Ok(None) };
        let Prepared { looking, candidates, new, tried, tries, tells_to, planned_on, foreign, earlier } = prepared;
        let Looking { log, spec, schema, .. } = looking.as_ref();
        let now_micros = self.engine.clock.now_micros();
        let settings = StageSettings {
            chain: self.chain.chain().clone(),
            key,
            now_ms: now_micros.div_euclid(1000),
            org: None,
            files_in_flight: FILES_IN_FLIGHT,
            index: Some(self.engine.index_of(self.dataset)),
        };
        let mut work = earlier.as_ref().map_or_else(RewriteWork::default, |earlier| earlier.work);
        work.files_opened += candidates.len() as u64;
        let stager = Stager::of_schema(log, spec, schema, settings.clone());
        let feed = Feed::new(Stager::of_feed(log, spec, schema, settings.clone()), self.engine.memory_bytes / 16);
        let sweeps = vec![stager.sweep(), feed.stager.sweep()];
        let staged = async {
            let begun = self.begun(&looking, stager, feed, earlier);
            let (files, counting, counts) = Box::pin(self.rewrite(&looking, candidates, begun, &mut work)).await?;
            // The last files are on their way while the states are told.
            let Engine { store, resolver, .. } = self.engine;
            let files = tokio::spawn(files.finish(store.clone(), resolver.clone(), spec.name.clone(), settings.clone()));
            let states = Box::pin(self.tell(Telling { counting, new, tried, tries }, &settings));
            let (files, states) = futures::future::join(files, states).await;
            let (data, rewrites) = files.map_err(|e| Error::new(Kind::Internal, "staging files").source(e))??;
            Ok((data, rewrites, states?, counts))
        };
        let (data, rewrites, (retries, outcomes), counts) = match staged.await {
            Ok(staged) => staged,
            Err(e) => {
                for sweep in sweeps {
                    sweep.run().await;
                }
                return Err(e);
            }
        };
        let recorded = Recorded {
            range: Range::Ledger { from, to },
            data,
            dead_letters: TableFiles::default(),
            retries,
            outcomes,
            ledger: from,
            shape: Some(looking.ledger.shape()),
            mutation: Some(Mutation { to, planned_on, foreign, rewrites, told: tells_to, work }),
            counts,
            skipped: 0,
            staged_at_micros: now_micros,
        };
        let record = BatchRecord {
            format: RECORD_FORMAT,
            chain: self.chain.chain().clone(),
            batch: key.batch,
            attempt: key.attempt,
            body: RecordBody::Intent(Box::new(recorded)),
        };
        Ok(Some((record, sweeps)))
    }

    /// Stages what becomes of requests: rows of `retries`, and the outcomes of what rows matched.
    async fn tell(&self, telling: Telling, settings: &StageSettings) -> Result<(TableFiles, TableFiles)> {
        let Telling { counting, new, tried, tries } = telling;
        let mut matched = counting.finish().await?;
        let (seen, unseen): (Vec<NewRequest>, Vec<NewRequest>) =
            new.into_iter().partition(|request| matched.contains_key(&request.id));
        let mut open = Retries::new();
        let seen: HashSet<String> = seen.into_iter().map(|request| request.id).collect();
        if seen.len() < matched.len() {
            let others: Vec<&str> = matched.keys().map(String::as_str).filter(|id| !seen.contains(*id)).collect();
            open = tried.among(&others).await?;
            matched.retain(|id, _| seen.contains(id) || open.contains_key(id));
        }
        drop(seen);
        let matched_before = self.engine.matched_at_ingest(&self.dataset.name, &unseen).await?;
        let mut states = StateWriter::new(self.engine, &self.dataset.name, settings);
        for NewRequest { id, org } in unseen.into_iter().filter(|request| !matched_before.contains(&request.id)) {
            states = states.unseen(id, org, 1).await?;
        }
        for (id, retry) in open {
            states = states.seen(id, retry.org, retry.attempts).await?;
        }
        if tries {
            let mut waiting = tried.waiting().await?;
            while let Some(of_file) = waiting.try_next().await? {
                for (id, retry) in of_file.into_iter().filter(|(id, _)| !matched.contains_key(id)) {
                    states = states.unseen(id, retry.org, retry.attempts + 1).await?;
                }
            }
        }
        let (mut retries, outcomes) = states.finish(&matched).await?;
        // What waits was written anew.
        retries.removes = if tries { tried.files_of_waiting() } else { Vec::new() };
        Ok((retries, outcomes))
    }

    /// What a table becomes before the first candidate is looked at: what an earlier attempt made of it.
    fn begun(&self, looking: &Looking, stager: Stager, feed: Feed, earlier: Option<Earlier>) -> Begun {
        let mut counting = Counting::new(self.engine, &looking.ledger, &looking.dataset);
        let mut files = RewrittenTable { stager, feed, data: TableFiles::default(), rewrites: Rewrites::default() };
        let mut counts = BTreeMap::new();
        if let Some(Earlier { data, rewrites, matched, counts: of_earlier, .. }) = earlier {
            (files.data, files.rewrites) = (data, rewrites);
            counting.count_in(matched);
            counts = of_earlier.into_iter().map(|c| ((c.org, c.event_date), (c.updated, c.deleted))).collect();
        }
        Begun { files, counting, counts }
    }

    /// Looks at the candidates and stages what stands in their places.
    async fn rewrite(
        &self,
        looking: &Arc<Looking>,
        candidates: Vec<Candidate>,
        begun: Begun,
        work: &mut RewriteWork,
    ) -> Result<(RewrittenTable, Counting, Vec<DatePartitionCount>)> {
        let Begun { files, mut counting, mut counts } = begun;
        let RewrittenTable { mut stager, mut feed, mut data, mut rewrites } = files;
        let room = Room::new(self.engine.bytes_of_files_at_once());
        let looks = candidates.into_iter().map(|candidate| {
            let (looking, room) = (looking.clone(), room.clone());
            async move {
                let held = room.of(candidate.file.size.unwrap_or(looking.spec.target_file_bytes)).await?;
                let looked = tokio::spawn(async move { looking.look(candidate).await });
                let looked = looked.await.map_err(|e| Error::new(Kind::Internal, "looking at a data file").source(e))?;
                looked.map(|looked| (looked, held))
            }
        });
        let mut looks = stream::iter(looks).buffer_unordered(FILES_AT_ONCE);
        while let Some((looked, held)) = looks.try_next().await? {
            let Looked { file, rewrite, hits: of_file } = looked;
            counting.add(of_file).await?;
            let Some(Rewrite { spliced, moved, images, positions, counts: of_file, ids }) = rewrite else { continue };
            feed = feed.with(images).await?;
            let mut ids = ids.filter(|_| spliced.files.len() == 1);
            let values: Vec<(String, Option<String>)> = looking
                .spec
                .partition_by
                .iter()
                .map(|column| (column.clone(), file.partition_value(column).map(str::to_owned)))
                .collect();
            work.files_rewritten += 1;
            work.bytes_copied += spliced.bytes_copied;
            work.bytes_encoded += spliced.bytes_encoded;
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
                rewritten.new.push(stager.adopt(&values, file, ids.take(), held.clone()).await?);
            }
            drop(held);
            rewrites.files.push(rewritten);
            if let Some(rows) = moved {
                stager = blocking("staging rows of another partition", move || stager.stage(vec![rows]).map(|()| stager)).await?;
            }
            for (partition, (updated, deleted)) in of_file {
                work.updated += updated;
                work.deleted += deleted;
                let sum = counts.entry(partition).or_default();
                *sum = (sum.0 + updated, sum.1 + deleted);
            }
            if let Some(deleted) = &file.deleted {
                data.marks.insert(file.name.clone(), deleted.as_logged());
            }
            data.removes.push(log_spelling(&file, &self.dataset.name)?);
        }
        let counts = counts
            .into_iter()
            .map(|((org, event_date), (updated, deleted))| DatePartitionCount { org, event_date, inserted: 0, updated, deleted })
            .collect();
        Ok((RewrittenTable { stager, feed, data, rewrites }, counting, counts))
    }
}

/// Bounds what files that are looked at, and those in their places that are on their way to the store, take of memory.
#[derive(Clone)]
struct Room {
    free: Arc<Semaphore>,
    all: u32,
}

impl Room {
    /// The bytes of a permit.
    const UNIT: u64 = 1 << 20;

    fn new(bytes: u64) -> Self {
        let all = u32::try_from(bytes / Self::UNIT).unwrap_or(u32::MAX).clamp(1, 1 << 20);
        Self { free: Arc::new(Semaphore::new(all as usize)), all }
    }

    /// Room for a file of that size, once there is some; a file for which there never is enough has all of it.
    async fn of(&self, size: u64) -> Result<OwnedSemaphorePermit> {
        // Beside the new file, one column or two are decoded.
        let wanted = u32::try_from((size + size / 2) / Self::UNIT).unwrap_or(u32::MAX).clamp(1, self.all);
        let room = self.free.clone().acquire_many_owned(wanted).await;
        room.map_err(|e| Error::new(Kind::Internal, "waiting for memory").source(e))
    }
}

/// What a batch needs to tell of requests.
struct Telling {
    counting: Counting,
    new: Vec<NewRequest>,
    tried: RequestsTried,
    tries: bool,
}

/// What a batch begins with.
struct Begun {
    files: RewrittenTable,
    counting: Counting,
    /// Rows changed and gone, by organisation and event date.
    counts: BTreeMap<(String, i32), (u64, u64)>,
}

/// What becomes of a table's files; the last of them may be on their way to the store.
struct RewrittenTable {
    stager: Stager,
    feed: Feed,
    /// What is known of them beside what the stagers have.
    data: TableFiles,
    rewrites: Rewrites,
}

impl RewrittenTable {
    /// Waits until all of it is in the store. Returns the files, and the name of what tells which rows were rewritten, if any were.
    async fn finish(
        self,
        store: Store,
        resolver: Resolver,
        table: TableName,
        settings: StageSettings,
    ) -> Result<(TableFiles, Option<String>)> {
        let Self { stager, feed, mut data, mut rewrites } = self;
        data.removes.sort_unstable();
        rewrites.files.sort_unstable_by(|a, b| a.old.cmp(&b.old));
        data.adds.extend(stager.finish().await?.0.adds);
        data.adds.sort_by(|a, b| a.path.cmp(&b.path));
        data.changes.extend(feed.finish().await?);
        let in_place: HashSet<&String> = rewrites.files.iter().flat_map(|file| &file.new).collect();
        rewrites.moved = data.adds.iter().map(|add| &add.path).filter(|path| !in_place.contains(path)).cloned().collect();
        if rewrites.files.is_empty() {
            return Ok((data, None));
        }
        let name = rewrites.stage(&store, &resolver, &table, &settings.chain, settings.key).await?;
        Ok((data, Some(name)))
    }
}

/// What is staged for the table's change data feed: rows of many files together.
struct Feed {
    stager: Stager,
    images: Vec<RecordBatch>,
    bytes: u64,
    /// Staged when there are so many.
    most_bytes: u64,
}

impl Feed {
    fn new(stager: Stager, most_bytes: u64) -> Self {
        Self { stager, images: Vec::new(), bytes: 0, most_bytes }
    }

    async fn with(mut self, images: Vec<RecordBatch>) -> Result<Self> {
        self.bytes += images.iter().map(|rows| rows.get_array_memory_size() as u64).sum::<u64>();
        self.images.extend(images);
        if self.bytes >= self.most_bytes { self.staged().await } else { Ok(self) }
    }

    async fn staged(mut self) -> Result<Self> {
        (self.bytes, self.images) = match std::mem::take(&mut self.images) {
            images if images.is_empty() => return Ok(self),
            images => {
                let stager = self.stager;
                self.stager = blocking("encoding changes", move || stager.stage(images).map(|()| stager)).await?;
                (0, Vec::new())
            }
        };
        Ok(self)
    }

    async fn finish(self) -> Result<Vec<AddedFile>> {
        Ok(self.staged().await?.stager.finish().await?.0.adds)
    }
}

/// The requests after `told`, up to `tells_to`, and what is looked for: what they are about, and what fates are that changed after `changed_from`.
async fn wanted_since(
    ledger: &DatasetLedger,
    changed_from: LedgerPosition,
    told: LedgerPosition,
    tells_to: LedgerPosition,
    nothing: WantedNodes,
) -> Result<(Vec<NewRequest>, WantedNodes)> {
    let (reader, mut wanted) = (ledger.clone(), nothing.clone());
    let of_requests = tokio::spawn(async move {
        let (mut new, mut orgs) = (Vec::new(), BTreeSet::<Arc<str>>::new());
        let mut tell = |request: Request| {
            wanted.add_request(&request);
            let org = orgs.get(request.org.as_str()).cloned().unwrap_or_else(|| request.org.into());
            orgs.insert(org.clone());
            new.push(NewRequest { id: request.id, org });
        };
        reader.requests_since(told, tells_to, &mut tell).await.map(|()| (new, wanted))
    });
    let mut of_fates = nothing;
    let changed = ledger.changed_since(changed_from, &mut |org, node, up_to| of_fates.add(org, node, up_to)).await;
    let (new, mut wanted) = of_requests.await.map_err(|e| Error::new(Kind::Internal, "reading requests").source(e))??;
    changed?;
    wanted.absorb(of_fates);
    Ok((new, wanted))
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
        format!("dataset {dataset}: a request changes rows of {}, whose path the log spells with escapes", file.name),
    )
    .hint("another program wrote that file; let it rewrite the file under a plain path, without characters that need escaping"))
}
