//! Deletes of organisations whose files hold rows of no other: files that go whole are not opened.

use std::collections::BTreeMap;

use alluvium_core::ReadKind;
use alluvium_engine::{ChangesRequest, Mode};
use alluvium_lake::Store;
use alluvium_testkit::TableReader;
use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;

use crate::mutate_sweep::put;
use crate::retain::{BY_ORG, BY_ORG_AND_DAY, Lake, kept_for_ever, told};

fn delete(id: &str, execution_time: &str, rest: &str) -> String {
    let scope = if rest.is_empty() { r#""scope":"org""#.to_owned() } else { format!(r#""scope":"before","before":"{rest}""#) };
    format!(r#"{{"request_id":"{id}","org_id":"short","op":"delete",{scope},"execution_time":"{execution_time}"}}"#) + "\n"
}

/// How many rows each request changed or deleted.
async fn outcomes(lake: &Lake) -> BTreeMap<String, u64> {
    let mut outcomes = BTreeMap::new();
    for row in TableReader::new(&lake.shared(), "default/_alluvium/outcomes").rows().await.unwrap() {
        *outcomes.entry(row["request_id"].clone()).or_default() += row["rows"].parse::<u64>().unwrap();
    }
    outcomes
}

/// How many rows `changes --rows` tells as deleted.
async fn deletes_told(lake: &Lake) -> usize {
    let engine = lake.lab.engine(&Store::over(lake.shared()));
    let request = ChangesRequest { kind: ReadKind::Rows, consumer: None, since: None, snapshot: false };
    let mut reader = engine.changes(engine.datasets(&[]).unwrap()[0], &request).await.unwrap();
    let (mut changes, mut deletes) = (reader.read().await.unwrap(), 0);
    while let Some(rows) = changes.next().await.unwrap() {
        let kinds = cast(rows.column_by_name("_change_type").unwrap(), &DataType::Utf8).unwrap();
        deletes += kinds.as_string::<i32>().iter().filter(|kind| *kind == Some("delete")).count();
    }
    deletes
}

/// What a mutation would do and what it does: files opened and replaced, rows deleted.
async fn mutate(lake: &Lake, requests: &str) -> (u64, u64, u64) {
    put(lake.dir.path(), "requests", "1.json", requests);
    let engine = lake.lab.engine(&Store::over(lake.shared()));
    engine.ingest(&[engine.requests_intake()], Mode::UntilIdle).await.unwrap();
    let would = engine.would_mutate(engine.datasets(&[]).unwrap()[0]).await.unwrap();
    let work = lake.mutate().await.outcome.work;
    let done = (work.files_opened, work.files_rewritten, work.deleted);
    assert_eq!((would.files_opened, would.files_rewritten, would.deleted), done, "a dry run says what is done");
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_an_organisation_that_leaves_are_not_opened() {
    let lake = Lake::begun(BY_ORG_AND_DAY).await;
    assert_eq!(mutate(&lake, &delete("r1", "2026-01-05T00:00:00Z", "")).await, (0, 6, 6));
    assert!(lake.ids().await.iter().all(|id| !id.starts_with("short")));
    let wanted = (26..32).map(|day| (("short".to_owned(), format!("2025-12-{day}")), (0, 1))).collect();
    assert_eq!(told(&lake.shared(), "mutate").await, wanted);
    assert_eq!(outcomes(&lake).await, BTreeMap::from([("r1".to_owned(), 6)]));
    assert_eq!(lake.ids().await.len(), 12);
    assert_eq!(deletes_told(&lake).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_files_of_an_organisation_go_without_being_opened() {
    let lake = Lake::begun(BY_ORG_AND_DAY).await;
    let day = |day: i64| (chrono::DateTime::UNIX_EPOCH + chrono::Duration::days(day)).format("%Y-%m-%d");
    let line = |i: i64| format!(r#"{{"id":"{i}","org":"long","at":"{}T00:00:00Z","lead":"l{i}"}}"#, day(i)) + "\n";
    put(lake.dir.path(), "call", "2.json", &(0..1000).map(line).collect::<String>());
    let forever = lake.lab.with_yaml(&kept_for_ever(BY_ORG_AND_DAY));
    let lake = Lake { lab: forever, ..lake };
    assert_eq!(lake.ingest().await.outcome.inserted, 1000);
    let leaves = delete("r1", "2026-01-05T00:00:00Z", "").replace("short", "long");
    assert_eq!(mutate(&lake, &leaves).await, (0, 1006, 1006));
    assert_eq!(outcomes(&lake).await, BTreeMap::from([("r1".to_owned(), 1006)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_log_does_not_tell_is_looked_up() {
    // Two deletes that match different days of one file; rows after the second stay.
    let lake = Lake::begun(BY_ORG).await;
    let both = delete("r1", "2025-12-29T00:00:00Z", "2025-12-28") + &delete("r2", "2025-12-30T00:00:00Z", "");
    assert_eq!(mutate(&lake, &both).await, (1, 1, 4));
    assert_eq!(outcomes(&lake).await, BTreeMap::from([("r1".to_owned(), 2), ("r2".to_owned(), 2)]));

    // One file a day: a day that is partly over is opened, and so is one with an id that another request is about.
    let lake = Lake::begun(BY_ORG_AND_DAY).await;
    let convert = r#"{"request_id":"r1","org_id":"short","op":"convert","field":"lead","from":"l27","to":"c27","execution_time":"2025-12-29T00:00:00Z"}"#;
    let requests = format!("{convert}\n{}", delete("r2", "2025-12-30T06:00:00Z", ""));
    assert_eq!(mutate(&lake, &requests).await, (1, 4, 4), "the 26th, 28th and 29th are told by the log");
    assert_eq!(outcomes(&lake).await, BTreeMap::from([("r1".to_owned(), 1), ("r2".to_owned(), 4)]));
}
