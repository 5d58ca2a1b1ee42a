//! The ledger of one dataset: sorted files of fates and of requests, made from the batches of requests as they come.

use std::sync::Arc;

use alluvium_core::{
    BatchNumber, Dataset, Error, FOLD_RULES, Fate, Incarnation, Kind, LedgerPosition, LedgerShape, Node, Pseudonyms, Request,
    Result, Shape,
};
use alluvium_lake::{KeyMap, SortedKey, in_place};
use futures::future::try_join_all;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::entry::{ENTRY_FORMAT, NodeFate, decode_first, node_key};
use super::named::Named;
use super::series::Series;
use crate::engine::Engine;

/// Fewer keys are not looked up by several threads.
const LEAST_KEYS_A_PART: usize = 4096;

/// What requests make of a dataset's rows, up to a position.
#[derive(Debug, Clone)]
pub(crate) struct DatasetLedger {
    pub(super) shape: Arc<Shape>,
    /// What tells declarations apart that fold differently.
    digest: LedgerShape,
    pub(super) pseudonyms: Arc<Pseudonyms>,
    pub(super) fates: Series,
    /// They may go further than the fates: each says by which batch it was accepted.
    pub(super) requests: Series,
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
        loop {
            let pseudonyms = engine.pseudonyms(incarnation).await?;
            match Self::known_by(&pseudonyms, engine, incarnation, dataset, position, table).await {
                Err(_) if engine.have_gone_on(incarnation, &pseudonyms).await? => {}
                ledger => return ledger,
            }
        }
    }

    /// The same, of one generation of pseudonyms.
    async fn known_by(
        pseudonyms: &Arc<Pseudonyms>,
        engine: &Engine,
        incarnation: &Incarnation,
        dataset: &Dataset,
        position: LedgerPosition,
        table: Option<LedgerPosition>,
    ) -> Result<Self> {
        let finished = BatchNumber(position.0);
        let at = BatchNumber(table.unwrap_or(LedgerPosition::BEGINNING).0).min(finished);
        let mut ledger = Self::open(pseudonyms, engine, incarnation, dataset, position, at).await?;
        if !ledger.find(&engine.store, BatchNumber(0), finished).await? {
            ledger.write_requests(engine, incarnation, finished).await?;
        }
        if ledger.fates.to() < finished {
            ledger.fold_up_to(engine, incarnation, finished, at).await?;
        }
        Ok(ledger)
    }

    /// The ledger at exactly this position, if all of it stands folded.
    pub(crate) async fn folded_at(
        engine: &Engine,
        incarnation: &Incarnation,
        dataset: &Dataset,
        position: LedgerPosition,
    ) -> Result<Option<Self>> {
        let pseudonyms = engine.pseudonyms(incarnation).await?;
        let ledger = Self::open(&pseudonyms, engine, incarnation, dataset, position, BatchNumber(position.0)).await?;
        let finished = BatchNumber(position.0);
        Ok(Some(ledger).filter(|ledger| ledger.fates.to() == finished && ledger.requests.to() >= finished))
    }

    /// What was folded of the batches up to a position, with no file from before `through` to behind it.
    async fn open(
        pseudonyms: &Arc<Pseudonyms>,
        engine: &Engine,
        incarnation: &Incarnation,
        dataset: &Dataset,
        position: LedgerPosition,
        through: BatchNumber,
    ) -> Result<Self> {
        let up_to = BatchNumber(position.0);
        let (resolver, purge) = (&engine.resolver, pseudonyms.generation());
        let shape = Shape::of(dataset);
        let digest = digest(&shape);
        let fates = resolver.fates_dir(incarnation, purge, &dataset.name, &digest.to_string());
        let requests = resolver.requests_by_node_dir(incarnation, purge, &dataset.name, &digest.to_string());
        Ok(Self {
            shape: Arc::new(shape),
            digest,
            pseudonyms: pseudonyms.clone(),
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

    /// Whether no request was ever folded.
    pub(crate) fn is_empty(&self) -> bool {
        self.fates.is_empty()
    }

    /// The key of a node.
    pub(crate) fn key_of(&self, org: &str, node: Node<'_>) -> SortedKey {
        node_key(&self.pseudonyms, org, node)
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

/// Sorted keys in parts for each core, but no small ones; a part begins only at a key before which `may_part` says yes.
pub(super) fn parts_of(keys: &[SortedKey], may_part: impl Fn(&SortedKey, &SortedKey) -> bool) -> Vec<&[SortedKey]> {
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

/// The digest of a dataset's declaration, as far as the ledger asks.
pub(crate) fn shape_of(dataset: &Dataset) -> LedgerShape {
    digest(&Shape::of(dataset))
}

fn digest(shape: &Shape) -> LedgerShape {
    LedgerShape::new(xxh3_64(format!("{FOLD_RULES} {ENTRY_FORMAT} {shape:?}").as_bytes()))
}
