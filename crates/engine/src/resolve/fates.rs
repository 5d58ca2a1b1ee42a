//! Rows held against fates: what the ledger makes of each, and which nodes had a hand in it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use alluvium_core::{Dataset, Fate as LedgerFate, Node, Outcome, Result, resolve};
use alluvium_lake::{KeyMap, SortedKey};

use super::edits::{EditPlanner, Fate, RowEdits, json_of_id};
use super::rows::SourceRows;
use crate::ledger::DatasetLedger;

/// A row that requests may have matched, or several alike, by what it hangs on: the ids (and the key) that a request names; others are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HitRow {
    pub(crate) org: Arc<str>,
    /// In the order of the declared identities.
    pub(crate) ids: Vec<Option<String>>,
    pub(crate) key: Option<String>,
    pub(crate) event_time: i64,
    /// How many rows.
    pub(crate) rows: u64,
}

impl HitRow {
    /// The keys of the nodes it hangs on.
    pub(crate) fn keys<'h>(&'h self, dataset: &'h Dataset, ledger: &'h DatasetLedger) -> impl Iterator<Item = SortedKey> + 'h {
        let ids = dataset
            .identities
            .iter()
            .zip(&self.ids)
            .filter_map(|(identity, id)| Some(Node::Id { field: &identity.field, id: id.as_deref()? }));
        let nodes = ids.chain(self.key.as_deref().map(Node::Record)).chain([Node::Org]);
        nodes.map(|node| ledger.key_of(&self.org, node))
    }
}

/// What requests name of that which rows hang on: of each row its organisation, its record, its ids as the source gave them.
#[derive(Debug, Default)]
pub(crate) struct NamedNodes(Vec<NamedNode>);

#[derive(Debug, Clone, Copy)]
struct NamedNode {
    key: SortedKey,
    row: u32,
    /// `ORG_PLACE`, `RECORD_PLACE`, or from `FIRST_ID_PLACE` on that of an identity.
    place: u32,
}

/// About what the fate of a node takes, and the row that hangs on it until it is counted.
const BYTES_OF_A_FATE: usize = 384;

const ORG_PLACE: u32 = 0;
const RECORD_PLACE: u32 = 1;
const FIRST_ID_PLACE: u32 = 2;

impl NamedNodes {
    /// Of all rows; a few that no request names may be among them.
    pub(crate) fn of(rows: &SourceRows<'_>, dataset: &Dataset, ledger: &DatasetLedger) -> Result<Self> {
        let records = ledger.names_records();
        let fields: Vec<bool> = dataset.identities.iter().map(|identity| ledger.names_field(&identity.field)).collect();
        let mut orgs: HashMap<&str, Option<SortedKey>> = HashMap::new();
        let mut named = Vec::new();
        for (row, number) in (0..rows.len()).zip(0_u32..) {
            let org = rows.org(row);
            let mut push = |key: Option<SortedKey>, place| named.extend(key.map(|key| NamedNode { key, row: number, place }));
            let known = |node: Node<'_>| Some(ledger.key_of(org, node)).filter(|key| ledger.is_named(key));
            push(*orgs.entry(org).or_insert_with(|| known(Node::Org)), ORG_PLACE);
            if records && let Some(key) = rows.key(row) {
                push(known(Node::Record(key)), RECORD_PLACE);
            }
            if fields.contains(&true) {
                let original = rows.original(row)?;
                for (place, (identity, is_named)) in (FIRST_ID_PLACE..).zip(dataset.identities.iter().zip(&fields)) {
                    let at = (place - FIRST_ID_PLACE) as usize;
                    if *is_named && let Some(id) = rows.source_id(at, row, &original) {
                        push(known(Node::Id { field: &identity.field, id: &id }), place);
                    }
                }
            }
        }
        Ok(Self(named))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = SortedKey> + '_ {
        self.0.iter().map(|named| named.key)
    }

    /// About what they take of memory once they are looked up.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.len() * (size_of::<NamedNode>() + BYTES_OF_A_FATE)
    }
}

/// Plans what must change in the rows so that they are what the fates of their nodes say. Nodes that are not in `fates` leave rows as they
/// are, and may match rows that end where they began.
pub(crate) fn plan_edits(
    rows: &SourceRows<'_>,
    dataset: &Dataset,
    named: &NamedNodes,
    fates: &KeyMap<LedgerFate>,
    hits: &mut Vec<HitRow>,
) -> Result<RowEdits> {
    let mut planner = EditPlanner::new(dataset);
    let width = FIRST_ID_PLACE as usize + dataset.identities.len();
    let mut found: Vec<Option<&LedgerFate>> = Vec::new();
    let mut orgs: HashMap<&str, Arc<str>> = HashMap::new();
    let mut rest = named.0.as_slice();
    for (row, number) in (0..rows.len()).zip(0_u32..) {
        let (of_row, after) = rest.split_at(rest.iter().take_while(|named| named.row == number).count());
        rest = after;
        if of_row.is_empty() && rows.original_text(row).is_none() {
            continue;
        }
        let original = rows.original(row)?;
        let (org, time) = (rows.org(row), rows.event_time_micros(row));
        found.clear();
        found.resize(width, None);
        let org = orgs.entry(org).or_insert_with(|| Arc::from(org)).clone();
        let mut hit = HitRow { org, ids: vec![None; dataset.identities.len()], key: None, event_time: time, rows: 1 };
        for NamedNode { key, place, .. } in of_row {
            found[*place as usize] = fates.get(key);
            match *place {
                ORG_PLACE => {}
                RECORD_PLACE => hit.key = rows.key(row).map(str::to_owned),
                place => {
                    let at = (place - FIRST_ID_PLACE) as usize;
                    hit.ids[at] = rows.source_id(at, row, &original).map(Cow::into_owned);
                }
            }
        }
        hits.push(hit);
        let of_org = found[ORG_PLACE as usize];
        let fate = match resolve(time, of_org, found[RECORD_PLACE as usize], &found[FIRST_ID_PLACE as usize..]) {
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
