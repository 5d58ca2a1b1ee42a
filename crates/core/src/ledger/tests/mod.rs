//! The shapes of fates, by hand, and their bytes. That they are right for every row is tested against the oracle, in the testkit.

#![allow(clippy::unwrap_used)]

mod bytes;
mod shapes;

use std::sync::Arc;

use super::{Ending, Fate, FinalId, LedgerBuilder, Live, Node, OrgLedger, Piece, SetColumn, Shape};
use crate::chain::BatchNumber;
use crate::project::Project;
use crate::request::{Id, JsonText, read_request};

const PROJECT: &str = "
project: ledger
storage: ./lake
datasets:
  call:
    source: { files: { path: ./inbox/call, format: json } }
    key: call_id
    org: org_id
    event_time: at
    fields: { call_id: string, org_id: string, at: timestamp, lead: string, user: string, ip: string, note: string, size: long }
    identities: [lead, { field: user, on_erase: clear, clear: [ip] }]
";

/// A ledger of requests, each with its batch: `BATCH ID SECOND OP...`, where OP is `convert FIELD FROM TO`, `erase FIELD ID [until SECOND | keep]`
/// (`keep`: not for privacy),
/// `set FIELD ID COLUMN VALUE`, `org`, `record KEY` or `before SECOND`.
fn ledger(lines: &[&str]) -> OrgLedger {
    let datasets = Project::parse(PROJECT, &|_| None).unwrap().datasets;
    let mut builder = LedgerBuilder::new(Arc::new(Shape::of(&datasets[0])));
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let time = |second: &str| format!("1970-01-01T00:00:{:02}Z", second.parse::<u8>().unwrap());
        let op = match words[3..] {
            ["convert", field, from, to] => format!(r#""op":"convert","field":"{field}","from":"{from}","to":"{to}""#),
            ["erase", field, id] => format!(r#""op":"delete","scope":"subject","field":"{field}","id":"{id}""#),
            ["erase", field, id, "until", second] => {
                let until = time(second);
                format!(r#""op":"delete","scope":"subject","field":"{field}","id":"{id}","until":"{until}""#)
            }
            ["erase", field, id, "keep"] => {
                format!(r#""op":"delete","scope":"subject","field":"{field}","id":"{id}","privacy":false"#)
            }
            ["set", field, id, column, value] => {
                format!(r#""op":"update","field":"{field}","id":"{id}","set":{{"{column}":{value}}}"#)
            }
            ["org"] => r#""op":"delete","scope":"org""#.to_owned(),
            ["record", key] => format!(r#""op":"delete","scope":"record","id":"{key}""#),
            ["before", second] => format!(r#""op":"delete","scope":"before","before":"{}""#, time(second)),
            ref other => panic!("{other:?}"),
        };
        let time = time(words[2]);
        let json = format!(r#"{{"request_id":"{}","org_id":"O","execution_time":"{time}",{op}}}"#, words[1]);
        let request = read_request(&json, &datasets, &|_, _| Ok(())).unwrap();
        assert!(builder.push(&request, BatchNumber(words[0].parse().unwrap())), "{line}");
    }
    builder.build()
}

/// All fates, a line each, in the order of their lines: `NODE: UP_TO ENDING; ...`, seconds, `*` for the end of time.
fn told(ledger: &OrgLedger, position: u64) -> Vec<String> {
    let mut lines = Vec::new();
    ledger.fold(BatchNumber(position), &mut |node, fate| lines.push(format!("{}: {}", name(node), pieces(fate))));
    lines.sort();
    lines
}

fn name(node: Node<'_>) -> String {
    match node {
        Node::Org => "org".to_owned(),
        Node::Record(key) => format!("record {key}"),
        Node::Id { field, id } => format!("{field} {id}"),
    }
}

fn pieces(fate: &Fate) -> String {
    let piece = |piece: &Piece| {
        let up_to = match piece.up_to {
            i64::MAX => "*".to_owned(),
            micros if micros % 1_000_000 == 0 => (micros / 1_000_000).to_string(),
            micros => format!("{micros}us"),
        };
        let ending = match &piece.ending {
            Ending::Erased => "erased".to_owned(),
            Ending::Live(Live { id, columns }) => {
                let id = match id {
                    FinalId::Source => "same",
                    FinalId::Null => "null",
                    FinalId::Is(id) => id.as_str(),
                };
                let column = |c: &SetColumn| format!(" {}={}@{}", c.column, c.value.as_str(), c.order.request_id);
                format!("{id}{}", columns.iter().map(column).collect::<String>())
            }
        };
        format!("{up_to} {ending}")
    };
    fate.pieces().iter().map(piece).collect::<Vec<_>>().join("; ")
}
