//! The ledger of one dataset: sorted files of fates and of requests, made from the batches of requests as they come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium_core::{
    BatchNumber, BatchSpan, Dataset, Error, Fate, FateChange, Incarnation, Kind, LedgerBuilder, LedgerPosition, LedgerShape,
    Node, Op, OrgLedger, Request, Result, Shape,
};
use alluvium_lake::{KeyMap, KeySet, MergeMode, SortedKey, SortedWriter, Store, in_place};
use futures::future::try_join_all;
use object_store::path::Path;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use xxhash_rust::xxh3::xxh3_64;

use super::entry::{ENTRY_FORMAT, NodeFate, decode_first, decode_request, encode_request, keys_of, node_key, nodes_of, org_key};
use super::series::{LOOK_INTERVAL, MAX_LOOKS, Series};
use crate::engine::Engine;
use crate::requests::Accepted;

/// Requests of an organisation are found by following ids from one to the next so often; beyond it all of the organisation are read.
const MAX_HOPS: u32 = 24;
/// The files of so many of the newest spans are left as they are: who resolves rows at a position of a moment ago asks for them.
const SPANS_APART: usize = 8;
/// Fewer keys are not looked up by several threads.
const LEAST_KEYS_A_PART: usize = 4096;

/// What goes on beside.
type Task<T> = JoinHandle<Result<T>>;
/// Entries of a sorted file.
type Entries = Vec<(SortedKey, Vec<u8>)>;

/// What requests make of a dataset's rows, up to a position.
#[derive(Debug, Clone)]
pub(crate) struct DatasetLedger {
    shape: Arc<Shape>,
    /// What tells declarations apart that fold differently.
    digest: LedgerShape,
    fates: Series,
    /// They may go further than the fates: each says by which batch it was accepted.
    requests: Series,
}

impl DatasetLedger {
    /// The ledger at exactly this position, whose batches of requests are finished. What was not folded yet is folded. `table` is where the
    /// dataset's table is, if it is there.
    pub(crate) async fn at(
        engine: &Engine,
        incarnation: &Incarnation,
        dataset: &Dataset,
        position: LedgerPosition,
        table: Option<LedgerPosition>,
    ) -> Result<Self> {
        let finished = BatchNumber(position.0);
        let at = BatchNumber(table.unwrap_or(LedgerPosition::BEGINNING).0).min(finished);
        let mut ledger = Self::open(engine, incarnation, dataset, position, at).await?;
        if !ledger.find(&engine.store, BatchNumber(0), finished).await? {
            ledger.write_requests(engine, incarnation, finished).await?;
        }
        if ledger.fates.to() < finished {
            ledger.fold_up_to(engine, incarnation, finished, at).await?;
        }
        Ok(ledger)
    }

    /// Folds what was not folded yet of the batches up to `finished`: a span is read and folded while the fates of the one before are packed,
    /// and files merged. Of what was before, only the requests are asked for.
    async fn fold_up_to(
        &mut self,
        engine: &Engine,
        incarnation: &Incarnation,
        finished: BatchNumber,
        at: BatchNumber,
    ) -> Result<()> {
        let (mut writing, mut merging) = (None, None);
        let folded = self.fold_spans(engine, incarnation, (finished, at), (&mut writing, &mut merging)).await;
        let (written, merged) = (joined(writing).await, merged_from(merging).await);
        let has_merged = folded?;
        written?;
        self.extend(finished).await?;
        self.fates.remove(merged).await?;
        if !self.find(&engine.store, finished, finished).await? {
            return Err(not_there());
        }
        // What a merge on the way left is merged by who folds next.
        if has_merged { Ok(()) } else { self.merge_small(at).await }
    }

    /// Leaves what is still on its way in `writing` and `merging`, with what the merge was made of. Whether there was a merge.
    async fn fold_spans(
        &mut self,
        engine: &Engine,
        incarnation: &Incarnation,
        (finished, at): (BatchNumber, BatchNumber),
        (writing, merging): (&mut Option<Task<()>>, &mut Option<Task<Vec<Path>>>),
    ) -> Result<bool> {
        let next = async |from: BatchNumber| {
            // What changed since the table's position is asked for, and is not in a file that begins before it.
            let end = if from < at { at } else { finished };
            let to = engine.batches_at_once(incarnation, from, end, engine.requests_folded_at_once()).await?;
            let Some(span) = BatchSpan::new(from, to) else { return Ok(None) };
            Ok::<_, Error>(Some((span, engine.accepted(incarnation, span).await?)))
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
                self.extend(finished).await?;
                // Nobody here reads them now.
                self.fates.remove(merged).await?;
                let mut ledger = self.clone();
                *merging = Some(tokio::spawn(async move { ledger.merge_beside(at).await }));
                has_merged = true;
            }
        }
        Ok(has_merged)
    }

    /// Opens what came since.
    async fn extend(&mut self, finished: BatchNumber) -> Result<()> {
        self.requests.extend(finished).await?;
        self.fates.extend(finished).await
    }

    /// The ledger at exactly this position, if all of it stands folded.
    pub(crate) async fn folded_at(
        engine: &Engine,
        incarnation: &Incarnation,
        dataset: &Dataset,
        position: LedgerPosition,
    ) -> Result<Option<Self>> {
        let ledger = Self::open(engine, incarnation, dataset, position, BatchNumber(position.0)).await?;
        let finished = BatchNumber(position.0);
        Ok(Some(ledger).filter(|ledger| ledger.fates.to() == finished && ledger.requests.to() >= finished))
    }

    /// Looks until the fates up to `to` are there, and where there are fates, the requests they come from: a listing that does not show
    /// them is late, and what was folded without them would be wrong for good. `false` if they do not come.
    async fn find(&mut self, store: &Store, to: BatchNumber, finished: BatchNumber) -> Result<bool> {
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
    async fn write_requests(&mut self, engine: &Engine, incarnation: &Incarnation, finished: BatchNumber) -> Result<()> {
        while self.requests.to() < self.fates.to() {
            let from = self.requests.to();
            let to = engine.batches_at_once(incarnation, from, self.fates.to(), engine.requests_folded_at_once()).await?;
            let Some(span) = BatchSpan::new(from, to) else { break };
            let mut accepted = engine.accepted(incarnation, span).await?;
            self.keep_own(&mut accepted);
            let (entries, named) = in_place(|| by_node(&accepted));
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

    /// What was folded of the batches up to a position, with no file from before `through` to behind it.
    async fn open(
        engine: &Engine,
        incarnation: &Incarnation,
        dataset: &Dataset,
        position: LedgerPosition,
        through: BatchNumber,
    ) -> Result<Self> {
        let up_to = BatchNumber(position.0);
        let resolver = &engine.resolver;
        let shape = Shape::of(dataset);
        let digest = digest(&shape);
        let fates = resolver.fates_dir(incarnation, &dataset.name, &digest.to_string());
        let requests = resolver.requests_by_node_dir(incarnation, &dataset.name, &digest.to_string());
        Ok(Self {
            shape: Arc::new(shape),
            digest,
            fates: Series::open_through(&engine.store, fates, through, up_to).await?,
            requests: Series::open_covering(&engine.store, requests, up_to).await?,
        })
    }

    /// The declaration that it was folded for.
    pub(crate) const fn shape(&self) -> LedgerShape {
        self.digest
    }

    /// The position it tells of.
    pub(crate) fn position(&self) -> LedgerPosition {
        LedgerPosition(self.fates.to().0)
    }

    /// The fates that the requests of a span change. The requests themselves are written.
    async fn fold(&self, store: &Store, span: BatchSpan, mut accepted: Vec<Accepted>) -> Result<Entries> {
        self.keep_own(&mut accepted);
        let (entries, named) = in_place(|| by_node(&accepted));
        let mut nodes: Vec<SortedKey> = entries.iter().map(|entry| entry.0).collect();
        nodes.dedup();
        // Packed while the fold goes on.
        let requests = tokio::spawn(write(store.clone(), self.requests.path(span), entries, named.note()));
        let gathered = self.gather_all(accepted, nodes, span.from).await?;
        let changes_of = |(org, ledger): (&String, &OrgLedger)| {
            let mut entries: Entries = Vec::new();
            ledger.changed(span.from, span.to, &mut |FateChange { node, new: now, .. }| {
                entries.push((node_key(org, node), NodeFate::encode(org, node, now)));
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

    /// The requests of batches up to `up_to` that are about `nodes`, which are sorted, and those that share nodes with them, however far
    /// around, and the `accepted`, whose nodes are among them. By organisation.
    async fn gather_all(
        &self,
        mut accepted: Vec<Accepted>,
        nodes: Vec<SortedKey>,
        up_to: BatchNumber,
    ) -> Result<BTreeMap<String, OrgLedger>> {
        // Organisations have nothing to do with each other.
        let org_of = |key: &SortedKey| key.0.first_chunk::<8>().copied();
        let mut gathers = Vec::new();
        for part in parts_of(&nodes, |a, b| org_of(a) != org_of(b)) {
            let last = part.last().and_then(org_of);
            let of_part = |accepted: &mut Accepted| Some(org_key(&accepted.request.org)) <= last;
            let own: Vec<Accepted> = accepted.extract_if(.., of_part).collect();
            let (ledger, part) = (self.clone(), part.to_vec());
            let gather = tokio::spawn(async move { ledger.gather(own, part, up_to).await });
            gathers.push(async { gather.await.map_err(|e| Error::new(Kind::Internal, "reading requests by node").source(e))? });
        }
        Ok(try_join_all(gathers).await?.into_iter().flatten().collect())
    }

    /// The same, of some organisations.
    async fn gather(
        &self,
        accepted: Vec<Accepted>,
        nodes: Vec<SortedKey>,
        up_to: BatchNumber,
    ) -> Result<BTreeMap<String, OrgLedger>> {
        let mut gathered = Gathered::new(self.shape.clone());
        for accepted in accepted {
            gathered.push(&accepted.request, accepted.batch);
        }
        let mut frontier = nodes;
        frontier.retain(|key| self.requests.may_contain(key));
        let mut seen = KeySet::default();
        let mut hops = 0;
        while !frontier.is_empty() {
            hops += 1;
            seen.extend(frontier.iter().copied());
            let mut next: BTreeSet<SortedKey> = BTreeSet::new();
            let mut take = |value: &[u8]| -> Result<()> {
                let (request, batch) = decode_request(value)?;
                if batch > up_to {
                    return Ok(());
                }
                // Only a convert joins nodes.
                if matches!(request.op, Op::Convert { .. }) {
                    next.extend(keys_of(&request).into_iter().filter(|key| !seen.contains(key)));
                }
                gathered.push(&request, batch);
                Ok(())
            };
            if hops > MAX_HOPS {
                let orgs: BTreeSet<[u8; 8]> = frontier.iter().filter_map(|key| key.0.first_chunk().copied()).collect();
                for org in orgs {
                    self.requests.scan_prefix(&org, &mut take).await?;
                }
                break;
            }
            // One that is told of again counts once.
            self.requests.get_all(&frontier, |(): &mut (), _, value| take(value)).await?;
            frontier = next.into_iter().filter(|key| self.requests.may_contain(key)).collect();
        }
        Ok(in_place(|| gathered.builders.into_par_iter().map(|(org, builder)| (org, builder.build())).collect()))
    }

    /// Makes few files of many, those up to `at`, where the table is, apart from those behind it. Another process may do the same.
    pub(crate) async fn merge_small(&mut self, at: BatchNumber) -> Result<()> {
        let merged = self.merge_beside(at).await?;
        self.fates.remove(merged).await
    }

    /// As [`Self::merge_small`], but the files that others were made of stay, for who reads them; they are told.
    async fn merge_beside(&mut self, at: BatchNumber) -> Result<Vec<Path>> {
        let mut requests = self.requests.clone();
        let merge = async move {
            let merged = requests.merge_beside(MergeMode::KeepAll, at, SPANS_APART, Named::united).await;
            merged.map(|merged| (requests, merged))
        };
        let merge = tokio::spawn(merge);
        let fates = self.fates.merge_beside(MergeMode::NewestWins, at, SPANS_APART, |_| String::new()).await;
        let requests = merge.await.map_err(|e| Error::new(Kind::Internal, "merging files of the folded ledger").source(e))?;
        let requests = requests.map(|(requests, merged)| {
            self.requests = requests;
            merged
        });
        let mut all = Vec::new();
        for merged in [requests, fates] {
            match merged {
                // Another process merges them.
                Err(e) if e.kind() == Kind::NotFound => {}
                merged => all.extend(merged?),
            }
        }
        Ok(all)
    }

    /// The requests that may have matched rows which hang on these nodes, by organisation.
    pub(crate) async fn around(&self, mut nodes: Vec<SortedKey>) -> Result<BTreeMap<String, OrgLedger>> {
        in_place(|| nodes.par_sort_unstable());
        nodes.dedup();
        self.gather_all(Vec::new(), nodes, self.fates.to()).await
    }

    /// Whether a request came after a delete, by then applied, that executes later and had removed what it would have changed.
    pub(crate) async fn is_late(&self, request: &Request) -> Result<bool> {
        // A delete of what is older, or of the organisation, removes whatever else the request is about.
        let mut nodes = keys_of(request);
        nodes.push(node_key(&request.org, Node::Org));
        let around = self.around(nodes).await?;
        let Some(ledger) = around.get(&request.org) else { return Ok(false) };
        let late = ledger.late(self.fates.to());
        Ok(ledger.requests().zip(late).any(|(other, late)| late && other.order.request_id == request.id))
    }

    /// Whether no request was ever folded.
    pub(crate) fn is_empty(&self) -> bool {
        self.fates.is_empty()
    }

    /// Whether a request may name a node. Nodes that none names have no fate.
    pub(crate) fn is_named(&self, key: &SortedKey) -> bool {
        self.requests.may_contain(key)
    }

    /// The fates of these nodes; those that are not told of leave rows as they are.
    pub(crate) async fn fates(&self, mut keys: Vec<SortedKey>) -> Result<KeyMap<Fate>> {
        in_place(|| keys.par_sort_unstable());
        keys.dedup();
        let looks = parts_of(&keys, |_, _| true).into_iter().map(|part| {
            let (series, part) = (self.fates.clone(), part.to_vec());
            async move {
                let look = async move { fates(&series, &part).await };
                tokio::spawn(look).await.map_err(|e| Error::new(Kind::Internal, "looking up fates").source(e))?
            }
        });
        let mut parts = try_join_all(looks.collect::<Vec<_>>()).await?.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            all.extend(part);
        }
        Ok(all)
    }

    /// Whether any request is about an id of the field.
    pub(crate) fn names_field(&self, field: &str) -> bool {
        self.requests.files().any(|(_, file)| Named::read(file.meta()).is_none_or(|named| named.fields.contains(field)))
    }

    /// Whether any request is about a record by its key.
    pub(crate) fn names_records(&self) -> bool {
        self.requests.files().any(|(_, file)| Named::read(file.meta()).is_none_or(|named| named.records))
    }

    /// Tells the nodes whose fates are not what they were at `from`, some of them several times, and of rows up to which event time
    /// (inclusive, microseconds since 1970) they may not be. `from` is the beginning or where the table is.
    pub(crate) async fn changed_since(
        &self,
        from: LedgerPosition,
        tell: &mut (dyn FnMut(&str, Node<'_>, i64) + Send),
    ) -> Result<()> {
        for (span, file) in self.fates.files() {
            if span.to.0 <= from.0 {
                continue;
            }
            if span.from.0 < from.0 {
                // It lacks what changed before and is again as it was before that.
                return Err(Error::new(
                    Kind::Internal,
                    format!("what changed since batch {from} is asked of a span from {}", span.from),
                ));
            }
            let mut scan = file.scan();
            while self.fates.read_once(scan.advance().await)? {
                let told = NodeFate::read(scan.value())?;
                // What an organisation's fate has erased stays so: it only ever reaches further.
                let up_to =
                    if told.node == Node::Org { told.fate()?.map_or(i64::MAX, |fate| fate.last_changed()) } else { i64::MAX };
                tell(told.org, told.node, up_to);
            }
        }
        Ok(())
    }

    /// Tells the requests that batches after `from`, up to `to`, took in and that count for the dataset, each once.
    pub(crate) async fn requests_since(
        &self,
        from: LedgerPosition,
        to: LedgerPosition,
        tell: &mut (dyn FnMut(Request) + Send),
    ) -> Result<()> {
        for (span, file) in self.requests.files() {
            if span.to.0 <= from.0 || span.from.0 >= to.0 {
                continue;
            }
            let mut scan = file.scan();
            while self.requests.read_once(scan.advance().await)? {
                if let Some(request) = decode_first(scan.value(), BatchNumber(from.0), BatchNumber(to.0))? {
                    tell(request);
                }
            }
        }
        Ok(())
    }
}

fn not_there() -> Error {
    Error::new(Kind::Unavailable, "the folded ledger was written and is not there").hint("run again")
}

/// Requests under each node that they are about, in order, and what all of them are about.
fn by_node(accepted: &[Accepted]) -> (Entries, Named) {
    let of_one = |Accepted { request, batch, .. }: &Accepted| {
        let keys = keys_of(request).into_iter().enumerate();
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
async fn merged_from(merging: Option<Task<Vec<Path>>>) -> Vec<Path> {
    match joined(merging).await {
        Ok(merged) => merged.unwrap_or_default(),
        Err(error) => {
            tracing::warn!(error = %error.chain_text(), "could not merge files of the folded ledger; there are more to look into, nothing is lost");
            Vec::new()
        }
    }
}

/// Sorted keys in parts for each core, but no small ones; a part begins only at a key before which `may_part` says yes.
fn parts_of(keys: &[SortedKey], may_part: impl Fn(&SortedKey, &SortedKey) -> bool) -> Vec<&[SortedKey]> {
    let most = keys.len().div_ceil(rayon::current_num_threads().max(1)).max(LEAST_KEYS_A_PART);
    let (mut parts, mut rest) = (Vec::new(), keys);
    while rest.len() > most {
        let Some(more) = rest[most - 1..].windows(2).position(|pair| may_part(&pair[0], &pair[1])) else { break };
        let (part, after) = rest.split_at(most + more);
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// The fates of sorted keys.
async fn fates(series: &Series, keys: &[SortedKey]) -> Result<KeyMap<Fate>> {
    series
        .get_all(keys, |fates: &mut KeyMap<Fate>, at, value| {
            // From the oldest file to the newest: what is told later stands.
            match NodeFate::read(value)?.fate()? {
                Some(fate) => fates.insert(keys[at], fate),
                None => fates.remove(&keys[at]),
            };
            Ok(())
        })
        .await
}

/// Requests that are gathered, by organisation.
struct Gathered {
    shape: Arc<Shape>,
    builders: BTreeMap<String, LedgerBuilder>,
}

impl Gathered {
    fn new(shape: Arc<Shape>) -> Self {
        Self { shape, builders: BTreeMap::new() }
    }

    /// Adds a request; one that is there already counts once.
    fn push(&mut self, request: &Request, batch: BatchNumber) {
        if !self.builders.contains_key(&request.org) {
            self.builders.insert(request.org.clone(), LedgerBuilder::new(self.shape.clone()));
        }
        if let Some(builder) = self.builders.get_mut(&request.org) {
            let _counts = builder.push(request, batch);
        }
    }
}

/// What the requests of a file are about: fields of ids, and whether records. The file's note.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    fields: BTreeSet<String>,
    records: bool,
}

impl Named {
    fn by<'r>(requests: impl Iterator<Item = &'r Request>) -> Self {
        let mut named = Self::default();
        for request in requests {
            for node in nodes_of(request) {
                match node {
                    Node::Id { field, .. } if !named.fields.contains(field) => {
                        named.fields.insert(field.to_owned());
                    }
                    Node::Record(_) => named.records = true,
                    Node::Id { .. } | Node::Org => {}
                }
            }
        }
        named
    }

    fn note(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The note of what several files are about.
    fn united(notes: &[&str]) -> String {
        let mut all = Self::default();
        for note in notes {
            let Some(named) = Self::read(note) else { return String::new() };
            all.fields.extend(named.fields);
            all.records |= named.records;
        }
        all.note()
    }

    /// `None`: nothing tells.
    fn read(note: &str) -> Option<Self> {
        serde_json::from_str(note).ok()
    }
}

/// The digest of a dataset's declaration, as far as the ledger asks.
pub(crate) fn shape_of(dataset: &Dataset) -> LedgerShape {
    digest(&Shape::of(dataset))
}

fn digest(shape: &Shape) -> LedgerShape {
    LedgerShape::new(xxh3_64(format!("{ENTRY_FORMAT} {shape:?}").as_bytes()))
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
