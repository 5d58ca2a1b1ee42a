//! Cases that the random histories leave out, by hand.

use std::collections::BTreeMap;
use std::fs;

use alluvium_engine::Mode;
use alluvium_lake::Store;
use alluvium_testkit::{Lab, TableReader};

use crate::common::memory;

const YAML: &str = "
project: cases
storage: ./lake
durability: process
datasets:
  call:
    source: { files: { path: ./inbox/call, format: json } }
    org: org
    event_time: at
    fields: { org: string, at: timestamp, user: string, note: string }
    identities: [user]
  page:
    source: { files: { path: ./inbox/page, format: json } }
    org: org
    event_time: at
    fields: { org: string, at: timestamp, user: long, note: string }
    identities: [user]
requests:
  source: { files: { path: ./inbox/requests, format: json } }
";

/// Users of both datasets, by dataset, after rows and requests came in in that order or the other.
async fn users(rows: &[&str], requests: &[&str], requests_first: bool) -> BTreeMap<&'static str, Vec<Option<String>>> {
    let dir = tempfile::tempdir().unwrap();
    let lab = Lab::new(dir.path(), YAML);
    let store = memory();
    let put = |kind: &str, lines: &[&str]| {
        let inbox = dir.path().join("inbox").join(kind);
        fs::create_dir_all(&inbox).unwrap();
        fs::write(inbox.join("1.json"), lines.join("\n")).unwrap();
    };
    let mut halves = vec![vec!["call", "page"], vec!["requests"]];
    if requests_first {
        halves.reverse();
    }
    for half in halves {
        for kind in half {
            put(kind, if kind == "requests" { requests } else { rows });
        }
        let engine = lab.engine(&Store::over(store.clone()));
        let summary = engine.run_all(&engine.datasets(&[]).unwrap(), Mode::UntilIdle).await.unwrap();
        if let Some((dataset, error)) = summary.failed.first() {
            panic!("{dataset}: {}", error.chain_text());
        }
    }
    let mut users = BTreeMap::new();
    for dataset in ["call", "page"] {
        let mut rows = TableReader::new(&store, &format!("default/{dataset}")).rows().await.unwrap();
        rows.sort_by_key(|row| row["_offset"].parse::<u64>().unwrap());
        users.insert(dataset, rows.into_iter().map(|row| row.get("user").cloned()).collect());
    }
    users
}

fn texts(all: &[&str]) -> Vec<Option<String>> {
    all.iter().map(|text| Some((*text).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn id_that_is_no_number_is_about_the_datasets_whose_ids_are_texts_alone() {
    let rows = [r#"{"org":"o","at":"2026-01-01","user":"5"}"#, r#"{"org":"o","at":"2026-01-01","user":"6"}"#];
    let requests = [
        r#"{"request_id":"r1","org_id":"o","op":"convert","field":"user","from":"5","to":"u7","execution_time":"2026-01-02"}"#,
        r#"{"request_id":"r2","org_id":"o","op":"convert","field":"user","from":"6","to":"8","execution_time":"2026-01-02"}"#,
        r#"{"request_id":"r3","org_id":"o","op":"convert","field":"user","from":"u7","to":"9","execution_time":"2026-01-03"}"#,
    ];
    for requests_first in [false, true] {
        let users = users(&rows, &requests, requests_first).await;
        assert_eq!(users["call"], texts(&["9", "8"]), "requests first: {requests_first}");
        assert_eq!(users["page"], texts(&["5", "8"]), "requests first: {requests_first}");
    }
    let until_u7 = users(&rows, &requests[..2], false).await;
    assert_eq!((&until_u7["call"], &until_u7["page"]), (&texts(&["u7", "8"]), &texts(&["5", "8"])));
}
