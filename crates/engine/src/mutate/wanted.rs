//! What a move of the ledger looks for in a table: the ids, records and organisations whose rows may become something else.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use alluvium_core::{Dataset, Node, Op, Request, is_pseudonym};
use alluvium_lake::{FieldHasher, IdSet};

use crate::ledger::nodes_of;

/// What is looked for, by organisation. Of ids and keys it holds hashes: a row too many is looked at if two of them are the same.
#[derive(Debug, Clone)]
pub(super) struct WantedNodes {
    /// The identity fields, then the key's, if there is one.
    fields: Vec<(String, FieldHasher)>,
    has_key: bool,
    orgs: HashMap<String, OfOrg>,
    /// All that is looked for, whatever its organisation, where files hold rows of several.
    anywhere: Option<OfOrg>,
}

/// What is looked for in the rows of one organisation.
#[derive(Debug, Clone)]
pub(super) struct OfOrg {
    /// All of its rows up to this event time (inclusive, microseconds since 1970).
    pub(super) all_up_to: Option<i64>,
    /// Ids and keys, in the order of the fields.
    ids: Vec<IdSet>,
}

impl WantedNodes {
    /// Nothing yet. `partitioned`: a file holds rows of one organisation alone.
    pub(super) fn new(dataset: &Dataset, partitioned: bool) -> Self {
        let names = dataset.identities.iter().map(|identity| &identity.field).chain(&dataset.key);
        let fields: Vec<(String, FieldHasher)> = names.map(|name| (name.clone(), FieldHasher::new(name))).collect();
        let anywhere = (!partitioned).then(|| OfOrg::new(fields.len()));
        Self { fields, has_key: dataset.key.is_some(), orgs: HashMap::new(), anywhere }
    }

    /// Adds a node whose fate changed for rows up to an event time (inclusive, microseconds since 1970).
    pub(super) fn add(&mut self, org: &str, node: Node<'_>, up_to: i64) {
        let (field, id) = match node {
            Node::Org => (None, ""),
            // A field may be an identity and the key; of the two the key is the last.
            Node::Record(key) => (self.fields.len().checked_sub(1).filter(|_| self.has_key), key),
            Node::Id { field, id } => (self.fields.iter().position(|(name, _)| name == field), id),
        };
        if field.is_none() && !matches!(node, Node::Org) {
            return;
        }
        // Of an id that no request spells any more, which rows have it only looking at all of them tells.
        let (hash, up_to) = match field.filter(|_| !is_pseudonym(id)) {
            Some(field) => (Some((field, self.fields[field].1.hash(id))), up_to),
            None if field.is_some() => (None, i64::MAX),
            None => (None, up_to),
        };
        let fields = self.fields.len();
        if !self.orgs.contains_key(org) {
            self.orgs.insert(org.to_owned(), OfOrg::new(fields));
        }
        for of_org in self.orgs.get_mut(org).into_iter().chain(&mut self.anywhere) {
            match hash {
                Some((field, hash)) => {
                    of_org.ids[field].insert(hash);
                }
                None => of_org.all_up_to = of_org.all_up_to.max(Some(up_to)),
            }
        }
    }

    /// Adds what a new request is about: it matches rows also where another has the last word on them.
    pub(super) fn add_request(&mut self, request: &Request) {
        for node in nodes_of(request) {
            // Rows that hold what others are converted to stay as they are.
            if matches!((&request.op, node), (Op::Convert { from, .. }, Node::Id { id, .. }) if id != from.as_str()) {
                continue;
            }
            self.add(&request.org, node, request.last_event_time().unwrap_or(i64::MAX));
        }
    }

    /// Adds all that `other`, over the same dataset, looks for.
    pub(super) fn absorb(&mut self, other: Self) {
        for (org, nodes) in other.orgs {
            match self.orgs.entry(org) {
                Entry::Occupied(mut of_org) => of_org.get_mut().absorb(nodes),
                Entry::Vacant(none) => {
                    none.insert(nodes);
                }
            }
        }
        if let (Some(all), Some(other)) = (&mut self.anywhere, other.anywhere) {
            all.absorb(other);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.orgs.is_empty()
    }

    /// What is looked for in a file all of whose rows are of that organisation, if there is one.
    pub(super) fn of_file(&self, org: Option<&str>) -> Option<&OfOrg> {
        match &self.anywhere {
            Some(anywhere) => Some(anywhere),
            None => self.of_org(org?),
        }
    }

    /// What is looked for in the rows of that organisation.
    pub(super) fn of_org(&self, org: &str) -> Option<&OfOrg> {
        self.orgs.get(org)
    }

    /// Whether all rows of the organisation are looked for.
    pub(super) fn has_whole_org(&self, org: &str) -> bool {
        self.of_org(org).is_some_and(|of| of.all_up_to.is_some())
    }

    /// The fields in which something of `of` is looked for, with the hashes.
    pub(super) fn asked<'w>(&'w self, of: &'w OfOrg) -> impl Iterator<Item = (&'w str, &'w FieldHasher, &'w IdSet)> {
        let all = self.fields.iter().zip(&of.ids).filter(|(_, ids)| !ids.is_empty());
        all.map(|((field, hasher), ids)| (field.as_str(), hasher, ids))
    }

    /// Whether this id of an identity, by its place, is looked for.
    pub(super) fn has_id(&self, of: &OfOrg, identity: usize, id: &str) -> bool {
        !of.ids[identity].is_empty() && of.ids[identity].contains(&self.fields[identity].1.hash(id))
    }
}

impl OfOrg {
    fn new(fields: usize) -> Self {
        Self { all_up_to: None, ids: vec![IdSet::default(); fields] }
    }

    /// Whether any id or key is looked for.
    pub(super) fn asks_for_ids(&self) -> bool {
        self.ids.iter().any(|ids| !ids.is_empty())
    }

    fn absorb(&mut self, other: Self) {
        self.all_up_to = self.all_up_to.max(other.all_up_to);
        for (ids, mut other) in self.ids.iter_mut().zip(other.ids) {
            if ids.len() < other.len() {
                std::mem::swap(ids, &mut other);
            }
            ids.extend(other);
        }
    }
}
