//! The requests about some nodes and about those that converts join them with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium_core::{BatchNumber, Error, Kind, LedgerBuilder, Node, Op, OrgLedger, Pseudonyms, Request, Result, Shape};
use alluvium_lake::{KeySet, SortedKey, in_place};
use futures::future::try_join_all;
use rayon::prelude::*;

use super::dataset::{DatasetLedger, parts_of};
use super::entry::{decode_request, keys_of, org_key};
use crate::requests::Accepted;

/// Requests of an organisation are found by following ids from one to the next so often; beyond it all of the organisation are read.
const MAX_HOPS: u32 = 24;
impl DatasetLedger {
    /// The requests of batches up to `up_to` that are about `nodes`, which are sorted, and those that share nodes with them, however far
    /// around, and the `accepted`, whose nodes are among them. By organisation.
    pub(super) async fn gather_all(
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
        let mut gathered = Gathered::new(self.shape.clone(), self.pseudonyms.clone());
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
                    next.extend(keys_of(&self.pseudonyms, &request).into_iter().filter(|key| !seen.contains(key)));
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

    /// The requests that may have matched rows which hang on these nodes, by organisation.
    pub(crate) async fn around(&self, mut nodes: Vec<SortedKey>) -> Result<BTreeMap<String, OrgLedger>> {
        in_place(|| nodes.par_sort_unstable());
        nodes.dedup();
        self.gather_all(Vec::new(), nodes, self.fates.to()).await
    }

    /// What the requests around one say of it.
    pub(crate) async fn told_of(&self, request: &Request) -> Result<ToldOf> {
        // A delete of what is older, or of the organisation, removes whatever else the request is about.
        let mut nodes = keys_of(&self.pseudonyms, request);
        nodes.push(self.key_of(&request.org, Node::Org));
        let (around, at) = (self.around(nodes).await?, self.fates.to());
        let Some(ledger) = around.get(&request.org) else { return Ok(ToldOf::default()) };
        let ids: Vec<&str> = ledger.requests().map(|other| other.order.request_id).collect();
        let Some(place) = ids.iter().position(|id| *id == request.id) else { return Ok(ToldOf::default()) };
        let renamed = ledger.renamed(place, at).map(|renamed| (ids[renamed.by].to_owned(), renamed.now.to_owned()));
        Ok(ToldOf { late: ledger.late(at)[place], renamed })
    }
}

/// What the requests around one say of it.
#[derive(Debug, Default)]
pub(crate) struct ToldOf {
    /// It came after a delete, by then applied, that executes later and had removed what it would have changed.
    pub(crate) late: bool,
    /// The request that had converted its id away before, and what that became.
    pub(crate) renamed: Option<(String, String)>,
}

/// Requests that are gathered, by organisation.
struct Gathered {
    shape: Arc<Shape>,
    pseudonyms: Arc<Pseudonyms>,
    builders: BTreeMap<String, LedgerBuilder>,
}

impl Gathered {
    fn new(shape: Arc<Shape>, pseudonyms: Arc<Pseudonyms>) -> Self {
        Self { shape, pseudonyms, builders: BTreeMap::new() }
    }

    /// Adds a request; one that is there already counts once.
    fn push(&mut self, request: &Request, batch: BatchNumber) {
        if !self.builders.contains_key(&request.org) {
            let of_org = self.pseudonyms.of_org(&request.org).cloned();
            self.builders.insert(request.org.clone(), LedgerBuilder::with_pseudonyms(self.shape.clone(), of_org));
        }
        if let Some(builder) = self.builders.get_mut(&request.org) {
            let _counts = builder.push(request, batch);
        }
    }
}
