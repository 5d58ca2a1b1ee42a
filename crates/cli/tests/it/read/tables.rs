//! `alluvium tables`.

use std::fs;

use serde_json::json;

use super::{Tiny, data_files, objects};

#[test]
fn tables_of_an_empty_project_print_nothing_and_make_nothing() {
    let tiny = Tiny::new();
    let said = tiny.run(&["tables", "--output", "json"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    assert!(!tiny.path("lake").exists());
    assert_eq!(tiny.run(&["tables"]).stdout, "");
}

#[test]
fn tables_are_objects_with_rows_files_bytes_and_the_histogram_in_project_order() {
    let tiny = Tiny::with_edits();
    let said = tiny.run(&["tables", "--output", "json"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let tables = objects(&said.stdout);
    let names: Vec<_> = tables.iter().map(|t| t["table"].as_str().unwrap()).collect();
    assert_eq!(names, ["edit", "notifications", "dead_letters"]);
    let edit = &tables[0];
    let lake = tiny.path("lake").canonicalize().unwrap();
    let files = data_files(&lake.join("default/edit"));
    let bytes: u64 = files.iter().map(|f| fs::metadata(f).unwrap().len()).sum();
    assert_eq!(files.len(), 2, "a file for each organisation");
    assert_eq!(edit["path"], json!(lake.join("default/edit")));
    assert_eq!((&edit["rows"], &edit["files"], &edit["bytes"]), (&json!(3), &json!(2), &json!(bytes)));
    assert_eq!(edit["version"], json!(1), "made at version 0, one batch");
    assert_eq!(
        edit["histogram"],
        json!([
            { "below_bytes": 1_048_576, "files": 2 }, { "below_bytes": 4_194_304, "files": 0 },
            { "below_bytes": 16_777_216, "files": 0 }, { "below_bytes": 67_108_864, "files": 0 },
            { "below_bytes": 268_435_456, "files": 0 }, { "below_bytes": null, "files": 0 },
        ])
    );
    assert_eq!(tables[2]["rows"], json!(1));
}

#[test]
fn one_table_is_printed_alone_and_one_not_there_yet_is_nothing() {
    let tiny = Tiny::with_edits();
    let said = tiny.run(&["tables", "dead_letters", "--output", "json"]);
    assert_eq!((said.code, objects(&said.stdout).len()), (0, 1));
    let said = tiny.run(&["tables", "visit", "--output", "json"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
}

#[test]
fn an_unknown_table_is_not_found_and_the_known_ones_are_named() {
    let said = Tiny::new().run(&["tables", "edits"]);
    assert_eq!((said.code, said.stdout.as_str()), (3, ""));
    assert!(said.stderr.contains("edit, visit, notifications"), "{}", said.stderr);
}

#[test]
fn a_broken_table_does_not_hide_the_others() {
    let tiny = Tiny::with_edits();
    tiny.break_table("edit");
    let said = tiny.run(&["tables", "--output", "json"]);
    assert_eq!(said.code, 8, "{}", said.stderr);
    let names: Vec<_> = objects(&said.stdout).iter().map(|t| t["table"].clone()).collect();
    assert_eq!(names, [json!("notifications"), json!("dead_letters")]);
    assert!(said.stderr.contains("default/edit"), "{}", said.stderr);
}
