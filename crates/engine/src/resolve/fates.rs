//! Rows held against fates: what the ledger makes of each, and which nodes had a hand in it.

use std::collections::{BTreeMap, HashMap};

use alluvium_core::{Dataset, Fate as LedgerFate, Node, Outcome, Result, resolve};
use alluvium_lake::SortedKey;

use super::edits::{EditPlanner, Fate, RowEdits, json_of_id};
use super::original::Original;
use super::rows::SourceRows;
use crate::ledger::node_key;

/// Rows that requests may have matched, by what they hang on, with how many they are. For each, the ids (and the key) that a request
/// names; others are left out.
pub(crate) type Hits = BTreeMap<HitRow, u64>;

/// What a row hangs on that requests name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HitRow {
    pub(crate) org: String,
    /// In the order of the declared identities.
    pub(crate) ids: Vec<Option<String>>,
    pub(crate) key: Option<String>,
    pub(crate) event_time: i64,
}

impl HitRow {
    /// The keys of the nodes it hangs on.
    pub(crate) fn keys<'h>(&'h self, dataset: &'h Dataset) -> impl Iterator<Item = SortedKey> + 'h {
        let ids = dataset
            .identities
            .iter()
            .zip(&self.ids)
            .filter_map(|(identity, id)| Some(Node::Id { field: &identity.field, id: id.as_deref()? }));
        let nodes = ids.chain(self.key.as_deref().map(Node::Record)).chain([Node::Org]);
        nodes.map(|node| node_key(&self.org, node))
    }
}

/// The nodes a row hangs on, as its source gave it, with their keys: its organisation, its record, its ids.
pub(crate) fn nodes_of_row(
    rows: &SourceRows<'_>,
    row: usize,
    original: &Original,
    dataset: &Dataset,
    mut visit: impl FnMut(usize, Node<'_>),
) {
    visit(ORG_PLACE, Node::Org);
    if let Some(key) = rows.key(row) {
        visit(RECORD_PLACE, Node::Record(key));
    }
    for (at, (identity, id)) in dataset.identities.iter().zip(rows.source_ids(row, original)).enumerate() {
        if let Some(id) = id {
            visit(FIRST_ID_PLACE + at, Node::Id { field: &identity.field, id: &id });
        }
    }
}

const ORG_PLACE: usize = 0;
const RECORD_PLACE: usize = 1;
const FIRST_ID_PLACE: usize = 2;

/// Plans what must change in the rows so that they are what the fates say. Nodes that are not in `fates` leave rows as they are; a request
/// may still name them (`is_named`) and match rows that end where they began.
pub(crate) fn plan_edits(
    rows: &SourceRows<'_>,
    dataset: &Dataset,
    fates: &HashMap<SortedKey, LedgerFate>,
    is_named: &dyn Fn(&SortedKey) -> bool,
    hits: &mut Hits,
) -> Result<RowEdits> {
    let mut planner = EditPlanner::new(dataset);
    let mut found: Vec<Option<&LedgerFate>> = Vec::new();
    let mut named: Vec<bool> = Vec::new();
    for row in 0..rows.len() {
        let original = rows.original(row)?;
        found.clear();
        found.resize(FIRST_ID_PLACE + dataset.identities.len(), None);
        named.clear();
        named.resize(found.len(), false);
        let (org, time) = (rows.org(row), rows.event_time_micros(row));
        nodes_of_row(rows, row, &original, dataset, |place, node| {
            let key = node_key(org, node);
            found[place] = fates.get(&key);
            named[place] = found[place].is_some() || is_named(&key);
        });
        if named.contains(&true) || rows.original_text(row).is_some() {
            let ids = vec![None; dataset.identities.len()];
            let mut hit = HitRow { org: org.to_owned(), ids, key: None, event_time: time };
            nodes_of_row(rows, row, &original, dataset, |place, node| {
                if !named[place] {
                    return;
                }
                match node {
                    Node::Org => {}
                    Node::Record(key) => hit.key = Some(key.to_owned()),
                    Node::Id { id, .. } => hit.ids[place - FIRST_ID_PLACE] = Some(id.to_owned()),
                }
            });
            *hits.entry(hit).or_default() += 1;
        }
        let fate = match resolve(time, found[ORG_PLACE], found[RECORD_PLACE], &found[FIRST_ID_PLACE..]) {
            Outcome::Unchanged => Fate::Unchanged,
            Outcome::Erased => Fate::Erased,
            Outcome::Changed(changed) => {
                let ids = changed
                    .ids
                    .iter()
                    .map(|(at, id)| (dataset.identities[*at].field.clone(), json_of_id(id.as_ref().map(|id| id.as_str()))));
                let columns = changed.columns.iter().map(|(column, value)| ((*column).to_owned(), value.as_str().to_owned()));
                Fate::Changed(ids.chain(columns).collect())
            }
        };
        planner.row(rows, row, &original, fate)?;
    }
    Ok(planner.finish())
}
