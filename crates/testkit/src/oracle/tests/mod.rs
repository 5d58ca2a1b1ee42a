//! The fold against the oracle: on random histories, and on cases worked out by hand.

#![allow(clippy::unwrap_used)]

mod hand;
mod histories;
mod random;

use std::collections::BTreeMap;
use std::sync::Arc;

use alluvium_core::{
    BatchNumber, Dataset, Fates, JsonText, LedgerBuilder, OrgLedger, Outcome, Project, Shape, SourceRow, read_request,
};

use super::{Accepted, OracleRow};

const PROJECT: &str = "
project: oracle
storage: ./lake
datasets:
  call:
    source: { files: { path: ./inbox/call, format: json } }
    key: call_id
    org: org_id
    event_time: at
    fields: { call_id: string, org_id: string, at: timestamp, lead: string, user: string, device: string, ip: string, note: string, size: long }
    identities: [lead, { field: user, on_erase: clear, clear: [ip, note] }, { field: device, on_erase: clear, clear: [note, size] }]
  page:
    source: { files: { path: ./inbox/page, format: json } }
    org: org_id
    event_time: at
    fields: { org_id: string, at: timestamp, lead: string, user: string, ip: string, note: string }
    identities: [{ field: lead, on_erase: clear, clear: [] }, user]
";

/// `call`, with a key and both ways to erase, and `page`, without a key.
fn datasets() -> Vec<Dataset> {
    Project::parse(PROJECT, &|_| None).unwrap().datasets
}

/// A request from the JSON that a user would write, at a second of 1970.
fn request(json: &str) -> alluvium_core::Request {
    read_request(json, &datasets(), &|_, _| Ok(())).unwrap()
}

/// What the fold knows of one organisation.
fn ledger(dataset: &Dataset, org: &str, accepted: &[Accepted]) -> OrgLedger {
    let mut builder = LedgerBuilder::new(Arc::new(Shape::of(dataset)));
    for Accepted { request, batch } in accepted.iter().filter(|a| a.request.org == org) {
        builder.push(request, *batch);
    }
    builder.build()
}

/// What the fold makes of a row.
fn resolved(dataset: &Dataset, fates: &Fates, row: &OracleRow) -> Option<OracleRow> {
    let ids: Vec<Option<&str>> = dataset.identities.iter().map(|i| row.ids[&i.field].as_deref()).collect();
    let source = SourceRow { ids: &ids, key: row.key.as_deref(), event_time: row.event_time };
    let mut row = row.clone();
    match fates.resolve(&source) {
        Outcome::Unchanged => {}
        Outcome::Erased => return None,
        Outcome::Changed(changed) => {
            for (at, id) in changed.ids {
                row.ids.insert(dataset.identities[at].field.clone(), id.map(|id| id.as_str().to_owned()));
            }
            for (column, value) in changed.columns {
                row.values.insert(column.to_owned(), value.as_str().to_owned());
            }
        }
    }
    Some(row)
}

/// A row of the dataset as the source might give it.
fn row(dataset: &Dataset, ids: &[Option<&str>], key: Option<&str>, event_time: i64) -> OracleRow {
    let fields = dataset.identities.iter().zip(ids).map(|(i, id)| (i.field.clone(), id.map(str::to_owned)));
    let values = ["ip", "note", "size"].into_iter().filter(|c| dataset.field(c).is_some());
    OracleRow {
        org: "O".to_owned(),
        ids: fields.collect(),
        key: key.filter(|_| dataset.key.is_some()).map(str::to_owned),
        event_time,
        values: values.map(|column| (column.to_owned(), "\"source\"".to_owned())).collect::<BTreeMap<_, _>>(),
    }
}

fn null() -> String {
    JsonText::null().as_str().to_owned()
}

const END: BatchNumber = BatchNumber(u64::MAX >> 1);
