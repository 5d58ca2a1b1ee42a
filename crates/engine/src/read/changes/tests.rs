//! Plans and comparisons, by hand.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::Arc;

use alluvium_lake::{Store, VersionChanges};
use arrow::array::{ArrayRef, Int64Array, StringArray};
use object_store::memory::InMemory;
use object_store::path::Path;

use super::plan::{Piece, plan_version, remarked};
use super::tell::{ChangeType, CommitTold, Telling};
use super::*;

/// What an entry with these lines changed.
async fn entry(lines: &[&str]) -> Result<VersionChanges> {
    let store = Store::over(Arc::new(InMemory::new()));
    let log = DeltaLog::new(&store, Path::from("default/edit"));
    let path = Path::from("default/edit/_delta_log/00000000000000000007.json");
    let _new = store.put_new(&path, lines.join("\n").into()).await.unwrap();
    log.version_changes(7).await.map(|changes| changes.unwrap())
}

fn add(path: &str, more: &str) -> String {
    format!(r#"{{"add":{{"path":"{path}","partitionValues":{{}},"size":9,"modificationTime":5,"dataChange":true{more}}}}}"#)
}

fn remove(path: &str, more: &str) -> String {
    format!(r#"{{"remove":{{"path":"{path}","deletionTimestamp":5,"dataChange":true{more}}}}}"#)
}

/// Row 34 of a hundred thousand is deleted, as the protocol's own example has it inline.
const VECTOR: &str = r#","deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6}"#;

async fn planned(lines: &[String]) -> Vec<String> {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let names = |parts: &[super::plan::Part]| parts.iter().map(|p| p.file.name.clone()).collect::<Vec<_>>().join("+");
    let shown = |piece: &Piece| match piece {
        Piece::Inserted(part) => format!("insert {}", part.file.name),
        Piece::Deleted(part) => format!("delete {}", part.file.name),
        Piece::Rewritten(file) => format!("rewritten {}", file.old.name),
        Piece::Recorded(files) => format!("recorded {}", files.len()),
        Piece::Compared { gone, came } => format!("compare {} with {}", names(gone), names(came)),
    };
    let changes = entry(&lines).await.unwrap();
    let log = DeltaLog::new(&Store::over(Arc::new(InMemory::new())), Path::from("default/edit"));
    let mut differ = HashMap::new();
    for (name, was, is) in remarked(&changes) {
        differ.insert(name.to_owned(), log.marks_differ(was, is).await.unwrap());
    }
    plan_version(changes, &differ, None).iter().map(shown).collect()
}

/// Deletion vectors of the rows 1, 2, 5; 3, 4, 5; 0, 1, 2, 6; 1, 2: made by hand from the protocol's description of a bitmap array
/// of one bitmap of one array container, spelled in Z85.
const VECTORS: [(&str, usize, usize); 4] = [
    (r"^Bg9^0rr910000000000iXQKl0rr91000625c8Xg0rrf31POJ5", 38, 3),
    (r"^Bg9^0rr910000000000iXQKl0rr91000625c8Xg0@@D71POJ5", 38, 3),
    (r"^Bg9^0rr910000000000iXQKl0rr91000935c8Xg000310SSA8", 40, 4),
    (r"^Bg9^0rr910000000000iXQKl0rr91000315c8Xg0rrf3", 36, 2),
];

fn vector((text, bytes, rows): (&str, usize, usize)) -> String {
    format!(r#","deletionVector":{{"storageType":"i","pathOrInlineDv":"{text}","sizeInBytes":{bytes},"cardinality":{rows}}}"#)
}

#[tokio::test]
async fn files_that_come_are_inserts_and_files_that_go_are_deletes() {
    assert_eq!(planned(&[add("b", ""), add("a", "")]).await, ["insert b", "insert a"]);
    assert_eq!(planned(&[remove("b", ""), remove("a", "")]).await, ["delete a", "delete b"]);
    assert_eq!(planned(&[remove("a", ""), add("b", "")]).await, ["compare a with b"]);
    assert!(planned(&[r#"{"commitInfo":{"timestamp":5}}"#.to_owned()]).await.is_empty());
}

#[tokio::test]
async fn what_changes_no_data_is_left_out() {
    let quiet = [remove("a", ""), add("b", "")].map(|line| line.replace("\"dataChange\":true", "\"dataChange\":false"));
    assert!(planned(&quiet).await.is_empty());
}

#[tokio::test]
async fn a_change_data_feed_tells_all_by_itself() {
    let cdc = r#"{"cdc":{"path":"_change_data/c","partitionValues":{},"size":3,"dataChange":false}}"#.to_owned();
    assert_eq!(planned(&[remove("a", ""), add("b", ""), cdc]).await, ["recorded 1"]);
}

#[tokio::test]
async fn rows_newly_marked_as_deleted_are_deletes_and_a_restore_is_inserts() {
    assert_eq!(planned(&[remove("a", ""), add("a", VECTOR)]).await, ["delete a"]);
    assert_eq!(planned(&[remove("a", VECTOR), add("a", "")]).await, ["insert a"]);
    assert!(planned(&[remove("a", VECTOR), add("a", VECTOR)]).await.is_empty());
    assert_eq!(planned(&[remove("a", ""), add("a", VECTOR), add("b", "")]).await, ["compare a with b"]);
}

#[tokio::test]
async fn rows_that_one_vector_marks_and_the_other_does_not_are_told_either_way() {
    let [few, other, more, fewer] = VECTORS.map(vector);
    assert_eq!(planned(&[remove("a", &few), add("a", &other)]).await, ["compare a with a"]);
    assert_eq!(planned(&[remove("a", &other), add("a", &more)]).await, ["compare a with a"]);
    assert_eq!(planned(&[remove("a", &fewer), add("a", &few)]).await, ["delete a"]);
    assert_eq!(planned(&[remove("a", &few), add("a", &fewer)]).await, ["insert a"]);
    let log = DeltaLog::new(&Store::over(Arc::new(InMemory::new())), Path::from("default/edit"));
    for (was, is, expected) in [(&few, &other, (2, 2)), (&other, &more, (4, 3)), (&fewer, &few, (1, 0)), (&few, &few, (0, 0))] {
        let changes = entry(&[&remove("a", was), &add("a", is)]).await.unwrap();
        let marks = |files: &[alluvium_lake::ChangedFile]| files[0].deleted.clone().unwrap();
        let differ = log.marks_differ(&marks(&changes.removes), &marks(&changes.adds)).await.unwrap();
        assert_eq!((differ.gone, differ.came), expected);
    }
}

#[tokio::test]
async fn names_are_decoded_once_and_files_outside_the_table_are_refused() {
    let line = add("org_id=a%20b/p%2525.parquet", "");
    assert_eq!(entry(&[&line]).await.unwrap().adds[0].name, "org_id=a b/p%25.parquet");
    for outside in ["file:///elsewhere/p.parquet", "/elsewhere/p.parquet"] {
        assert_eq!(entry(&[&add(outside, "")]).await.unwrap_err().kind(), Kind::Unsupported);
    }
    assert_eq!(entry(&["no JSON"]).await.unwrap_err().kind(), Kind::Corrupt);
}

#[tokio::test]
async fn a_commit_is_as_old_as_its_writer_says() {
    let at = |lines: Vec<String>| async move {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        entry(&lines).await.unwrap().committed_at_ms
    };
    let info = |text: &str| format!(r#"{{"commitInfo":{{{text}}}}}"#);
    assert_eq!(at(vec![info(r#""timestamp":7"#), add("a", "")]).await, 7);
    assert_eq!(at(vec![info(r#""timestamp":7,"inCommitTimestamp":8"#)]).await, 8);
    assert_eq!(at(vec![add("a", "")]).await, 5);
}

#[test]
fn notifications_are_told_of_one_dataset_and_only_when_they_came() {
    let names: ArrayRef = Arc::new(StringArray::from(vec![Some("edit"), Some("visit"), None, Some("edit")]));
    let counts: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
    let rows = super::compare::batch_of(vec![("table_name", names), ("inserted", counts)]);
    let telling = Telling::new(ReadKind::Partitions, &rows.schema(), &DatasetName("edit".to_owned())).unwrap();
    let commit = CommitTold { version: 1, committed_at_ms: 1 };
    let told = telling.all(&rows, ChangeType::Insert, commit).unwrap();
    assert_eq!(told.column(1).as_ref(), &Int64Array::from(vec![1, 4]) as &dyn arrow::array::Array);
    assert_eq!(telling.all(&rows, ChangeType::Delete, commit).unwrap().num_rows(), 0);
    let some = [ChangeType::Insert, ChangeType::Insert, ChangeType::Insert, ChangeType::Delete];
    assert_eq!(telling.mixed(&rows, &some, commit).unwrap().num_rows(), 1);
}

#[test]
fn a_column_with_one_of_our_names_is_refused_for_rows_alone() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let schema = super::compare::batch_of(vec![("_commit_version", column)]).schema();
    let edit = DatasetName("edit".to_owned());
    let error = Telling::new(ReadKind::Rows, &schema, &edit).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(Telling::new(ReadKind::Partitions, &schema, &edit).is_ok());
}
