//! What a move of the ledger looks for in a table: the ids, records and organisations whose rows may become something else.

use std::collections::{BTreeMap, HashMap, HashSet};

use alluvium_core::{BatchNumber, Dataset, Delete, Op, Request, Scope};
use alluvium_lake::SortedKey;

use crate::ledger::{NodeFate, OwnedNode};

/// What is looked for, by organisation.
#[derive(Debug, Default)]
pub(super) struct WantedNodes {
    orgs: HashMap<String, OfOrg>,
}

/// What is looked for in the rows of one organisation.
#[derive(Debug, Default)]
pub(super) struct OfOrg {
    /// All of its rows.
    pub(super) all: bool,
    /// Ids, by identity field.
    pub(super) ids: HashMap<String, HashSet<String>>,
    /// Keys of records.
    pub(super) records: HashSet<String>,
}

impl WantedNodes {
    /// The nodes whose fates changed, and those that new requests are about: a request matches rows also where another has the last
    /// word on them.
    pub(super) fn new(changed: &BTreeMap<SortedKey, NodeFate>, requests: &[(Request, BatchNumber)]) -> Self {
        let mut wanted = Self::default();
        for NodeFate { org, node, .. } in changed.values() {
            let of_org = wanted.orgs.entry(org.clone()).or_default();
            match node {
                OwnedNode::Org => of_org.all = true,
                OwnedNode::Record(key) => {
                    of_org.records.insert(key.clone());
                }
                OwnedNode::Id { field, id } => {
                    of_org.ids.entry(field.clone()).or_default().insert(id.clone());
                }
            }
        }
        for (request, _) in requests {
            let of_org = wanted.orgs.entry(request.org.clone()).or_default();
            let mut id = |field: &String, id: &str| {
                of_org.ids.entry(field.clone()).or_default().insert(id.to_owned());
            };
            match &request.op {
                Op::Convert { field, from, .. } => id(field, from.as_str()),
                Op::Update { field, id: of, .. } => id(field, of.as_str()),
                Op::Delete(Delete { scope: Scope::Subject(subjects), .. }) => {
                    for subject in subjects {
                        id(&subject.field, subject.id.as_str());
                    }
                }
                Op::Delete(Delete { scope: Scope::Record(key), .. }) => {
                    of_org.records.insert(key.as_str().to_owned());
                }
                Op::Delete(_) => of_org.all = true,
            }
        }
        wanted
    }

    pub(super) fn is_empty(&self) -> bool {
        self.orgs.is_empty()
    }

    /// What is looked for in a file all of whose rows are of that organisation.
    pub(super) fn of_org(&self, org: &str) -> Option<&OfOrg> {
        self.orgs.get(org)
    }

    /// The organisations all of whose rows are looked for.
    pub(super) fn whole_orgs(&self) -> HashSet<&str> {
        self.orgs.iter().filter(|(_, of)| of.all).map(|(org, _)| org.as_str()).collect()
    }

    /// All ids of a field that are looked for, whatever their organisation.
    pub(super) fn ids(&self, field: &str) -> HashSet<&str> {
        self.orgs.values().filter_map(|of| of.ids.get(field)).flatten().map(String::as_str).collect()
    }

    /// All keys of records that are looked for.
    pub(super) fn records(&self) -> HashSet<&str> {
        self.orgs.values().flat_map(|of| &of.records).map(String::as_str).collect()
    }

    /// The identity fields in which something is looked for.
    pub(super) fn fields<'d>(&self, dataset: &'d Dataset) -> Vec<&'d str> {
        let named = |field: &str| self.orgs.values().any(|of| of.ids.contains_key(field));
        dataset.identities.iter().map(|i| i.field.as_str()).filter(|field| named(field)).collect()
    }
}
