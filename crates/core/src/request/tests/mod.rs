//! Requests: what is taken, what is refused and why, and the stored form.

#![allow(clippy::unwrap_used)]

mod good;
mod refused;
mod stored;

use super::{Refusal, Request, read_request};
use crate::dataset::{Dataset, Field};
use crate::project::Project;

const PROJECT: &str = "
project: requests
storage: ./lake
datasets:
  call:
    source: { files: { path: ./inbox/call, format: json } }
    key: call_id
    org: org_id
    event_time: at
    fields:
      call_id: string
      org_id: string
      at: timestamp
      lead: string
      account: long
      cadence: string
      name: string
      note: { type: string, nullable: false }
      size: long
    identities: [lead, account]
    normalize: { cadence: { id: cadence, fields: [name] } }
  page:
    source: { files: { path: ./inbox/page, format: json } }
    org: org
    event_time: at
    fields: { org: integer, at: timestamp, lead: string, account: short, name: string, size: string, other: double }
    identities: [lead, account, { field: other_id, on_erase: clear }]
";

fn datasets() -> Vec<Dataset> {
    let text = PROJECT.replace("other: double }", "other: double, other_id: string }");
    Project::parse(&text, &|_| None).unwrap().datasets
}

/// Numbers fit long, all else fits all other types: a stand-in for the decoder's rule.
fn fits(field: &Field, value: &str) -> Result<(), String> {
    let number = value.parse::<i64>().is_ok();
    if field.data_type == crate::types::DataType::Long && !number {
        Err("the text is not exactly a number".to_owned())
    } else {
        Ok(())
    }
}

fn read(json: &str) -> Result<Request, Refusal> {
    read_request(json, &datasets(), &fits)
}

/// A request with these members behind the ones that all have.
fn with(members: &str) -> String {
    format!(r#"{{"request_id":"r1","org_id":"17","execution_time":"2026-01-02T03:04:05Z",{members}}}"#)
}
