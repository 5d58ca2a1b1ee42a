//! The ledger of one dataset: sorted files of fates and of requests, made from the batches of requests as they come.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use alluvium_core::{
    BatchNumber, BatchSpan, Dataset, Error, Fate, FateChange, Incarnation, Kind, LedgerBuilder, LedgerPosition, LedgerShape, Op,
    OrgLedger, Request, Result, Shape,
};
use alluvium_lake::{SortedKey, SortedWriter};
use xxhash_rust::xxh3::xxh3_64;

use super::entry::{NodeFate, OwnedNode, decode_request, encode_request, node_key, nodes_of};
use super::series::Series;
use crate::engine::Engine;
use crate::requests::Accepted;

/// The batches that are folded at a time, at most: each has a bounded number of requests.
const BATCHES_AT_ONCE: u64 = 4;
/// Requests of an organisation are found by following ids from one to the next so often; beyond it all of the organisation are read.
const MAX_HOPS: u32 = 24;

/// What requests make of a dataset's rows, up to a position.
#[derive(Debug, Clone)]
pub(crate) struct DatasetLedger {
    shape: Arc<Shape>,
    /// What tells declarations apart that fold differently.
    digest: LedgerShape,
    fates: Series,
    requests: Series,
}

impl DatasetLedger {
    /// The ledger at exactly this position, whose batches of requests are finished. What was not folded yet is folded.
    pub(crate) async fn at(
        engine: &Engine,
        incarnation: &Incarnation,
        dataset: &Dataset,
        position: LedgerPosition,
    ) -> Result<Self> {
        let finished = BatchNumber(position.0);
        let mut ledger = Self::open(engine, incarnation, dataset, position).await?;
        while ledger.fates.to() < finished {
            let to = BatchNumber(finished.0.min(ledger.fates.to().0 + BATCHES_AT_ONCE));
            let Some(span) = BatchSpan::new(ledger.fates.to(), to) else { break };
            let accepted = engine.accepted(span).await?;
            ledger.fold(engine, span, &accepted).await?;
            ledger.requests.extend(finished).await?;
            ledger.fates.extend(finished).await?;
            if ledger.fates.to() < to {
                return Err(Error::new(Kind::Unavailable, "the folded ledger was written and is not there").hint("run again"));
            }
        }
        Ok(ledger)
    }

    /// What was folded of the batches up to a position.
    async fn open(engine: &Engine, incarnation: &Incarnation, dataset: &Dataset, position: LedgerPosition) -> Result<Self> {
        let up_to = BatchNumber(position.0);
        let resolver = &engine.resolver;
        let shape = Shape::of(dataset);
        let digest = digest(&shape);
        let fates = resolver.fates_dir(incarnation, &dataset.name, &digest.to_string());
        let requests = resolver.requests_by_node_dir(incarnation, &dataset.name, &digest.to_string());
        Ok(Self {
            shape: Arc::new(shape),
            digest,
            fates: Series::open(&engine.store, fates, up_to).await?,
            requests: Series::open(&engine.store, requests, up_to).await?,
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

    /// Whether a request is about anything that the dataset has.
    fn counts(&self, request: &Request) -> bool {
        LedgerBuilder::new(self.shape.clone()).push(request, BatchNumber::FIRST)
    }

    /// Writes what the requests of a span change.
    async fn fold(&self, engine: &Engine, span: BatchSpan, accepted: &[Accepted]) -> Result<()> {
        let ours: Vec<&Accepted> = accepted.iter().filter(|a| self.counts(&a.request)).collect();
        let mut entries: Vec<(SortedKey, Vec<u8>)> = Vec::new();
        for accepted in &ours {
            let value = encode_request(&accepted.request, accepted.batch);
            let keys: BTreeSet<SortedKey> =
                nodes_of(&accepted.request).into_iter().map(|node| node_key(&accepted.request.org, node)).collect();
            entries.extend(keys.into_iter().map(|key| (key, value.clone())));
        }
        entries.sort_by_key(|entry| entry.0);
        write(engine, &self.requests, span, &entries).await?;

        let seeds = ours.iter().map(|a| (a.request.clone(), a.batch)).collect();
        let gathered = self.gather(seeds, span.from).await?;
        let mut entries: Vec<(SortedKey, Vec<u8>)> = Vec::new();
        for (org, ledger) in &gathered {
            ledger.changed(span.from, span.to, &mut |FateChange { node, new: now, .. }| {
                entries.push((node_key(org, node), NodeFate::encode(org, node, now)));
            });
        }
        entries.sort_by_key(|entry| entry.0);
        write(engine, &self.fates, span, &entries).await
    }

    /// The requests that share nodes with `seeds`, however far around, of batches up to `up_to`, and the seeds themselves; by
    /// organisation.
    async fn gather(&self, seeds: Vec<(Request, BatchNumber)>, up_to: BatchNumber) -> Result<BTreeMap<String, OrgLedger>> {
        let mut found: HashMap<String, (Request, BatchNumber)> = HashMap::new();
        let mut seen: HashSet<SortedKey> = HashSet::new();
        let mut frontier: BTreeSet<SortedKey> = BTreeSet::new();
        for (request, batch) in seeds {
            frontier.extend(nodes_of(&request).into_iter().map(|node| node_key(&request.org, node)));
            found.insert(request.id.clone(), (request, batch));
        }
        let mut hops = 0;
        while !frontier.is_empty() {
            hops += 1;
            seen.extend(frontier.iter().copied());
            let mut next = BTreeSet::new();
            let mut take = |value: &[u8]| -> Result<()> {
                let (request, batch) = decode_request(value)?;
                if batch > up_to || found.contains_key(&request.id) {
                    return Ok(());
                }
                // Only a convert joins nodes.
                if matches!(request.op, Op::Convert { .. }) {
                    let keys = nodes_of(&request).into_iter().map(|node| node_key(&request.org, node));
                    next.extend(keys.filter(|key| !seen.contains(key)));
                }
                found.insert(request.id.clone(), (request, batch));
                Ok(())
            };
            if hops > MAX_HOPS {
                let orgs: BTreeSet<[u8; 8]> = frontier.iter().filter_map(|key| key.0.first_chunk().copied()).collect();
                for org in orgs {
                    self.requests.scan_prefix(&org, &mut take).await?;
                }
                break;
            }
            let keys: Vec<SortedKey> = frontier.iter().copied().filter(|key| self.requests.may_contain(key)).collect();
            self.requests.get_all(&keys, |_, value| take(value)).await?;
            frontier = next;
        }
        let mut builders: BTreeMap<String, LedgerBuilder> = BTreeMap::new();
        for (request, batch) in found.into_values() {
            let builder = builders.entry(request.org.clone()).or_insert_with(|| LedgerBuilder::new(self.shape.clone()));
            let _counts = builder.push(&request, batch);
        }
        Ok(builders.into_iter().map(|(org, builder)| (org, builder.build())).collect())
    }

    /// The requests that may have matched rows which hang on these nodes, by organisation.
    pub(crate) async fn around(&self, nodes: &[(String, OwnedNode)]) -> Result<BTreeMap<String, OrgLedger>> {
        let mut seeds: HashMap<String, (Request, BatchNumber)> = HashMap::new();
        let mut keys: Vec<SortedKey> = nodes.iter().map(|(org, node)| node_key(org, node.node())).collect();
        keys.sort_unstable();
        keys.dedup();
        self.requests
            .get_all(&keys, |_, value| {
                let (request, batch) = decode_request(value)?;
                seeds.insert(request.id.clone(), (request, batch));
                Ok(())
            })
            .await?;
        self.gather(seeds.into_values().collect(), self.fates.to()).await
    }

    /// Whether a request came after a delete, by then applied, that executes later and had removed what it would have changed.
    pub(crate) async fn is_late(&self, request: &Request) -> Result<bool> {
        // A delete of what is older, or of the organisation, removes whatever else the request is about.
        let nodes = nodes_of(request).into_iter().map(OwnedNode::of).chain([OwnedNode::Org]);
        let nodes: Vec<(String, OwnedNode)> = nodes.map(|node| (request.org.clone(), node)).collect();
        let around = self.around(&nodes).await?;
        let Some(ledger) = around.get(&request.org) else { return Ok(false) };
        let late = ledger.late(self.fates.to());
        Ok(ledger.requests().zip(late).any(|(other, late)| late && other.order.request_id == request.id))
    }

    /// Whether no request was ever folded.
    pub(crate) fn is_empty(&self) -> bool {
        self.fates.is_empty()
    }

    /// Whether a request may name a node.
    pub(crate) fn is_named(&self, key: &SortedKey) -> bool {
        self.requests.may_contain(key)
    }

    /// Whether anything may be known of a node.
    pub(crate) fn may_know(&self, key: &SortedKey) -> bool {
        self.fates.may_contain(key)
    }

    /// The fates of these nodes; those that are not told of leave rows as they are.
    pub(crate) async fn fates(&self, mut keys: Vec<SortedKey>) -> Result<HashMap<SortedKey, Fate>> {
        keys.sort_unstable();
        keys.dedup();
        let mut fates = HashMap::new();
        self.fates
            .get_all(&keys, |at, value| {
                // From the oldest file to the newest: what is told later stands.
                match NodeFate::decode(value)?.fate {
                    Some(fate) => fates.insert(keys[at], fate),
                    None => fates.remove(&keys[at]),
                };
                Ok(())
            })
            .await?;
        Ok(fates)
    }

    /// The nodes whose fates are not what they were at `from`, with what they are now.
    pub(crate) async fn changed_since(&self, from: LedgerPosition) -> Result<BTreeMap<SortedKey, NodeFate>> {
        let mut changed = BTreeMap::new();
        for (span, file) in self.fates.files() {
            if span.to.0 <= from.0 {
                continue;
            }
            let mut scan = file.scan();
            while scan.advance().await? {
                changed.insert(scan.key(), NodeFate::decode(scan.value())?);
            }
        }
        Ok(changed)
    }

    /// The requests that batches after `from` took in and that count for the dataset, with their batches.
    pub(crate) async fn requests_since(&self, from: LedgerPosition) -> Result<Vec<(Request, BatchNumber)>> {
        let mut found: BTreeMap<(BatchNumber, String), Request> = BTreeMap::new();
        for (span, file) in self.requests.files() {
            if span.to.0 <= from.0 {
                continue;
            }
            let mut scan = file.scan();
            while scan.advance().await? {
                let (request, batch) = decode_request(scan.value())?;
                if batch.0 > from.0 {
                    found.insert((batch, request.id.clone()), request);
                }
            }
        }
        Ok(found.into_iter().map(|((batch, _), request)| (request, batch)).collect())
    }
}

/// The digest of a dataset's declaration, as far as the ledger asks.
pub(crate) fn shape_of(dataset: &Dataset) -> LedgerShape {
    digest(&Shape::of(dataset))
}

fn digest(shape: &Shape) -> LedgerShape {
    LedgerShape::new(xxh3_64(format!("{shape:?}").as_bytes()))
}

/// Writes the file of a span; another process may have been quicker with the same.
async fn write(engine: &Engine, series: &Series, span: BatchSpan, entries: &[(SortedKey, Vec<u8>)]) -> Result<()> {
    let mut writer = SortedWriter::new(&engine.store, series.path(span))?;
    for (key, value) in entries {
        writer.push(*key, value)?;
    }
    match writer.finish("").await {
        Err(e) if e.kind() == Kind::Conflict => Ok(()),
        written => written.map(|_size| ()),
    }
}
