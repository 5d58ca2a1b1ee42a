//! What a command prints, where, and with which exit code. What differs from run to run is written as `<dir>`, `<time>`, `<size>`.

use std::fs;
use std::process::Command;

use crate::site::{Site, test_data};

const YAML: &str = "project: snap
storage: ./lake
durability: process
datasets:
  edit:
    source: { files: { path: ./inbox/edit, format: json } }
    org: org
    event_time: at
    fields: { org: string, at: timestamp, n: long }
  view:
    source: { files: { path: ./inbox/view, format: json } }
    org: org
    event_time: at
    fields: { org: string, at: timestamp, n: long }
";

const GOOD: &str = r#"{"org":"a","at":"2026-01-01T00:00:00Z","n":1}"#;
const BAD: &str = r#"{"org":"a","at":"2026-01-01T00:00:00Z","n":"x"}"#;

fn site() -> Site {
    let site = Site::new(YAML);
    for dataset in ["edit", "view"] {
        site.write(&format!("inbox/{dataset}/a.json"), format!("{GOOD}\n{BAD}\n"));
    }
    site
}

/// Replaces numbers before units, JSON's times and sizes, and the site's directory.
fn normalised(site: &Site, text: &[u8]) -> String {
    let text = String::from_utf8(text.to_vec()).unwrap().replace(site.path("").to_str().unwrap(), "<dir>/");
    let mut words: Vec<String> = Vec::new();
    for word in text.split_inclusive([' ', '\n', '(', ',', '}']) {
        let number = |w: &str| w.trim_end().parse::<f64>().is_ok();
        let unit = word.trim_end_matches([' ', '\n', ')', ',']);
        if let Some(before) = words.last_mut().filter(|w| number(w)) {
            if ["B", "KiB", "MiB"].contains(&unit) {
                *before = "<size> ".to_owned();
            } else if unit == "s" {
                *before = "<time> ".to_owned();
            }
        }
        let word = match word.split_once(':') {
            Some(("\"elapsed_ms\"", rest)) => {
                format!("\"elapsed_ms\":<time>{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
            }
            Some(("\"bytes_encoded\"", rest)) if !rest.starts_with('0') => {
                format!("\"bytes_encoded\":<size>{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
            }
            _ => word.to_owned(),
        };
        words.push(word);
    }
    words.concat()
}

/// Runs the program and compares exit code, stdout and stderr.
#[track_caller]
fn prints(site: &Site, args: &[&str], code: i32, stdout: &str, stderr: &str) {
    let output = site.run(args);
    let got = (output.status.code(), normalised(site, &output.stdout), normalised(site, &output.stderr));
    assert_eq!(got, (Some(code), stdout.to_owned(), stderr.to_owned()), "alluvium {}", args.join(" "));
}

/// As [`prints`], of which `stderr` need only be a part.
#[track_caller]
fn fails(site: &Site, args: &[&str], code: i32, stderr: &str) {
    let output = site.run(args);
    let told = normalised(site, &output.stderr);
    assert_eq!(output.status.code(), Some(code), "alluvium {}: {told}", args.join(" "));
    assert!(told.contains(stderr), "alluvium {}: {told}", args.join(" "));
}

#[test]
fn ingest_tells_batches_and_the_sum() {
    let site = site();
    prints(
        &site,
        &["run", "ingest"],
        0,
        "ingest edit batch 1: 1 rows in 1 files (<size> KiB), 1 dead letters
ingest view batch 1: 1 rows in 1 files (<size> KiB), 1 dead letters
2 rows, 2 dead letters in 2 batches, <time> s
",
        "",
    );
    prints(&site, &["run", "ingest"], 0, "", "nothing to do\n");
}

#[test]
fn ingest_in_json_tells_one_object_a_batch_and_a_summary() {
    let site = site();
    prints(
        &site,
        &["run", "ingest", "edit", "--output", "json"],
        0,
        "{\"batch_id\":1,\"bytes_copied\":0,\"bytes_encoded\":<size>,\"dataset\":\"edit\",\"dead_letters\":1,\"deleted\":0,\"files_opened\":0,\
         \"files_rewritten\":0,\"inserted\":1,\"job\":\"ingest\",\"outcome\":\"committed\",\"skipped\":0,\"updated\":0}
{\"batches\":1,\"bytes_copied\":0,\"bytes_encoded\":<size>,\"dead_letters\":1,\"deleted\":0,\"elapsed_ms\":<time>,\"failed\":[],\
         \"files_opened\":0,\"files_rewritten\":0,\"inserted\":1,\"skipped\":0,\"summary\":true,\"updated\":0}
",
        "",
    );
}

#[test]
fn init_writes_a_project_that_runs_and_never_over_another() {
    let site = Site::empty();
    prints(
        &site,
        &["init", "p"],
        0,
        "",
        "wrote p/alluvium.yaml\nput JSON lines into inbox/engagement, then: alluvium run ingest --project p\n",
    );
    prints(
        &site,
        &["run", "ingest", "--project", "p"],
        0,
        "",
        "warning: dataset engagement: the source directory ./inbox/engagement is not there; taken as empty\nnothing to do\n",
    );
    fs::write(site.path("p/alluvium.yaml"), "mine").unwrap();
    prints(
        &site,
        &["init", "p"],
        4,
        "",
        "error: p/alluvium.yaml is there already\n  hint: name another directory, or delete that file first\n",
    );
    assert_eq!(fs::read_to_string(site.path("p/alluvium.yaml")).unwrap(), "mine");
}

#[test]
fn namespaces_are_listed_and_deleted_only_when_told_so() {
    let site = site();
    prints(&site, &["namespace", "list"], 0, "", "");
    site.ok(&["run", "ingest", "--namespace", "test-7"]);
    prints(&site, &["namespace", "list"], 0, "test-7\n", "");
    prints(&site, &["namespace", "list", "--output", "json"], 0, "{\"namespace\":\"test-7\"}\n", "");
    prints(
        &site,
        &["namespace", "delete", "test-7"],
        2,
        "",
        "error: deleting a namespace asks first, and there is no terminal to ask at\n  hint: to delete it without being asked, say --yes\n",
    );
    fails(&site, &["namespace", "delete", "nope", "--yes"], 3, "error: there is no namespace nope\n");
    fails(&site, &["namespace", "delete", "No!", "--yes"], 2, "error: \"No!\" cannot be a namespace");
    site.ok(&["namespace", "delete", "test-7", "--yes"]);
    prints(&site, &["namespace", "list"], 0, "", "");
    assert!(!site.path("lake/test-7").exists());
}

#[test]
fn schema_and_completions_go_to_stdout() {
    let site = Site::empty();
    let schema: serde_json::Value = serde_json::from_str(&site.ok(&["schema"])).unwrap();
    assert!(schema["properties"]["datasets"].is_object());
    assert!(site.ok(&["completions", "bash"]).contains("complete -F _alluvium"));
    assert_eq!(site.ok(&["--version"]), concat!("alluvium ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn bad_usage_exits_with_2() {
    let site = site();
    fails(&site, &[], 2, "Usage: alluvium");
    fails(&site, &["run", "dance"], 2, "error: invalid value 'dance'");
    fails(&site, &["run", "ingest", "--once", "--follow"], 2, "cannot be used with");
    fails(&site, &["run", "ingest", "--namespace", "A b"], 2, "error: --namespace: \"A b\" cannot be a namespace");
    fails(&site, &["run", "ingest", "--memory", "5XB"], 2, "error: --memory: the size \"5XB\" has an unknown unit");
    fails(&site, &["run", "ingest", "--memory", "5MiB"], 2, "error: --memory: 5MiB is too little");
    prints(
        &site,
        &["run", "ingest", "nope"],
        2,
        "",
        "error: the project has no dataset \"nope\"\n  hint: its datasets are: edit, view\n",
    );
    assert!(!site.path("lake/default").exists(), "nothing is written");
}

#[test]
fn jobs_that_are_not_built_exit_with_7() {
    let site = site();
    let told = "error: that job is not built yet\n  hint: jobs that are: ingest, mutate, retain, vacuum\n";
    prints(&site, &["run", "optimize"], 7, "", told);
}

#[test]
fn bad_project_files_exit_with_2_and_say_line_key_and_hint() {
    let good = "project: snap
storage: ./lake
datasets:
  edit:
    source: { files: { path: ./inbox, format: json } }
    org: org
    event_time: at
    fields: { org: string, at: timestamp }
";
    let cases: [(String, &str); 13] = [
        (format!("{good}colour: red\n"), "9:1: unknown key \"colour\"\n  hint: the keys here are project,"),
        ("project: [\n".to_owned(), "1:10: this is not YAML: unclosed bracket '['"),
        (String::new(), "1:1: the file is empty\n  hint: alluvium init writes one to begin with"),
        (good.replace("    org: org\n", ""), "4:3: datasets.edit: the key \"org\" is missing\n  hint: add org here"),
        (
            good.replace("at: timestamp", "at: time"),
            "8:32: datasets.edit.fields.at: \"time\" is not a type\n  hint: the types are string,",
        ),
        (
            good.replace("  edit:", "  requests:"),
            "4:3: datasets.requests: \"requests\" is the name of a table that every namespace has",
        ),
        (
            good.replace("org: string,", "org: string, event_date: date,"),
            "8:28: datasets.edit.fields.event_date: the column \"event_date\" is added",
        ),
        (good.replace("org: string,", "org: string, _x: date,"), "8:28: datasets.edit.fields._x: the name \"_x\" begins with _"),
        (
            good.replace("org: string,", "org: string, ORG: string,"),
            "8:28: datasets.edit.fields.ORG: the fields \"org\" and \"ORG\" differ only in case",
        ),
        (
            good.replace("org: string,", "org: string, \"a b\": string,"),
            "8:28: datasets.edit.fields.a b: the name \"a b\" holds ' '",
        ),
        (
            good.replace("json }", "json, after: 'move:./inbox/done' }"),
            "5:60: datasets.edit.source.files.after: files would be moved to where they are read again",
        ),
        (format!("{good}project: two\n"), "9:1: the key \"project\" appears twice\n  hint: the first is on line 1"),
        (
            format!("{good}durability: sometimes\n"),
            "9:13: durability: \"sometimes\" is not known here\n  hint: write one of disk, process",
        ),
    ];
    for (text, told) in cases {
        let site = Site::new(&text);
        fails(&site, &["run", "ingest"], 2, &format!("error: ./alluvium.yaml:{told}"));
        assert!(!site.path("lake").exists(), "nothing is written: {told}");
    }
    let site = Site::empty();
    fails(&site, &["run", "ingest"], 2, "error: reading the project file ./alluvium.yaml: No such file or directory");
}

#[test]
fn what_is_not_built_yet_is_a_warning_or_unsupported() {
    let site = Site::new(&format!("{YAML}maintenance: {{ log_retention: 30d }}\n"));
    fails(
        &site,
        &["run", "ingest"],
        0,
        "maintenance.log_retention: cleaning up logs is not built yet; this key is checked and has no effect",
    );
    let kafka = Site::new(&YAML.replace("files: { path: ./inbox/edit, format: json }", "kafka: { topic: t, format: json }"));
    kafka.write("inbox/view/a.json", GOOD);
    fails(&kafka, &["run", "ingest"], 2, "error: dataset edit: reading from Kafka: no broker is named");
    assert_eq!(kafka.landed("view", "org").rows.len(), 1, "the other dataset goes on");
}

// Bad environment: one dataset is broken, the other goes on, and the exit code is the broken one's.

/// Both datasets took one file; then `edit` is broken, and each gets another file.
fn broken(break_it: impl FnOnce(&Site)) -> Site {
    let site = site();
    site.ok(&["run", "ingest"]);
    for dataset in ["edit", "view"] {
        site.write(&format!("inbox/{dataset}/b.json"), GOOD);
    }
    break_it(&site);
    site
}

#[track_caller]
fn only_view_goes_on(site: &Site, code: i32, stderr: &str) {
    let log = site.path("lake/default/edit/_delta_log");
    let entries = |dir| fs::read_dir(dir).map_or(0, Iterator::count);
    let before = entries(&log);
    let output = site.run(&["run", "ingest", "--output", "json"]);
    let told = normalised(site, &output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert!(told.contains(stderr), "{told}");
    let last = String::from_utf8(output.stdout).unwrap();
    let summary: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["failed"], &summary["inserted"]), (&serde_json::json!(["edit"]), &serde_json::json!(1)));
    assert_eq!(entries(&log), before, "nothing half done");
    let rows = site.rows("view");
    assert_eq!(rows.len(), 2);
}

fn entry(site: &Site, version: u64) -> std::path::PathBuf {
    site.path(&format!("lake/default/edit/_delta_log/{version:020}.json"))
}

fn replace(path: &std::path::Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from} is not in {}", path.display());
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn foreign_table_at_the_datasets_place_exits_with_4_and_is_left_alone() {
    let Some(data) = test_data("delta-rs-tables/simple_table") else { return };
    let site = site();
    let place = site.path("lake/default/edit");
    alluvium_testkit::copy_tree(&data, &place).unwrap();
    let names = || {
        let mut names: Vec<_> = walk(&place);
        names.sort();
        names
    };
    let before = names();
    fails(&site, &["run", "ingest"], 4, "error: a Delta table that this namespace did not make stands at default/edit\n  hint: ");
    assert_eq!(names(), before);
    assert_eq!(site.landed("view", "org").rows.len(), 1, "the other dataset goes on");
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn table_of_a_newer_protocol_exits_with_7() {
    let writer = broken(|site| replace(&entry(site, 0), "\"minWriterVersion\":2", "\"minWriterVersion\":99"));
    only_view_goes_on(
        &writer,
        7,
        "error: table default/edit asks for Delta protocol reader 1, writer 99, which this program cannot write",
    );
    let reader = broken(|site| replace(&entry(site, 0), "\"minReaderVersion\":1", "\"minReaderVersion\":9"));
    only_view_goes_on(&reader, 7, "reader 9");
    let expiring = broken(|site| {
        replace(
            &entry(site, 0),
            "\"alluvium.kind\"",
            "\"delta.setTransactionRetentionDuration\":\"interval 1 days\",\"alluvium.kind\"",
        );
    });
    only_view_goes_on(&expiring, 7, "has delta.setTransactionRetentionDuration set");
}

#[test]
fn cut_or_damaged_log_exits_with_8() {
    let cut = broken(|site| fs::remove_file(entry(site, 0)).unwrap());
    only_view_goes_on(&cut, 8, "restore _delta_log from a backup");
    let damaged = broken(|site| {
        let text = fs::read_to_string(entry(site, 1)).unwrap();
        fs::write(entry(site, 1), &text[..text.len() - 20]).unwrap();
    });
    only_view_goes_on(&damaged, 8, "error: reading the log of table default/edit");
    // The newest entry is gone: the chain is ahead of its table.
    let restored = broken(|site| fs::remove_file(entry(site, 1)).unwrap());
    only_view_goes_on(&restored, 8, "carries the chain up to batch 0, but batch 1 was finished");
}

#[test]
fn damaged_record_exits_with_8_and_one_of_a_future_format_with_7() {
    let unfinished = |site: &Site| fs::remove_file(site.chain("edit").join(format!("{:020}.done.json", 1))).unwrap();
    let record = |site: &Site| site.chain("edit").join(format!("{:020}.0000.json", 1));
    let damaged = broken(|site| {
        unfinished(site);
        fs::write(record(site), "{\"format\":1,").unwrap();
    });
    only_view_goes_on(&damaged, 8, "00000000000000000001.0000.json is damaged");
    let future = broken(|site| {
        unfinished(site);
        replace(&record(site), "\"format\":1", "\"format\":2");
    });
    only_view_goes_on(&future, 7, "has format 2, this program reads up to 1\n  hint: a newer alluvium wrote here");
}

#[test]
fn source_that_is_a_file_exits_with_2() {
    let site = broken(|site| {
        fs::remove_dir_all(site.path("inbox/edit")).unwrap();
        fs::write(site.path("inbox/edit"), "").unwrap();
    });
    only_view_goes_on(&site, 2, "inbox/edit\" is not a directory");
}

#[test]
fn source_that_cannot_be_read_exits_with_6() {
    let id = Command::new("id").arg("-u").output().unwrap();
    if id.stdout.starts_with(b"0\n") {
        eprintln!("skipped: root reads every directory");
        return;
    }
    let site = broken(|site| {
        let denied = Command::new("chmod").arg("000").arg(site.path("inbox/edit")).status().unwrap();
        assert!(denied.success());
    });
    only_view_goes_on(&site, 6, "check the owner and the permissions");
}

#[test]
fn namespace_of_a_future_format_exits_with_7_and_nothing_is_written() {
    let site = broken(|site| replace(&site.path("lake/default/_alluvium/namespace.json"), "\"format\":1", "\"format\":2"));
    let before = walk(&site.path("lake")).len();
    prints(
        &site,
        &["run", "ingest"],
        7,
        "",
        "error: default/_alluvium/namespace.json has format 2, this program reads up to 1
  hint: a newer alluvium wrote here: use that version or a newer one
",
    );
    assert_eq!(walk(&site.path("lake")).len(), before);
}

#[test]
fn storage_that_is_a_file_exits_with_2() {
    let site = site();
    fs::write(site.path("lake"), "").unwrap();
    prints(
        &site,
        &["run", "ingest"],
        2,
        "",
        "error: opening storage ./lake: it is not a directory\n  hint: name a directory; it is made if it is not there\n",
    );
}

#[test]
fn namespace_that_is_being_deleted_exits_with_4_until_the_deletion_is_finished() {
    let site = broken(|site| fs::write(site.path("lake/default/_alluvium/deleting.json"), "{\"format\":1}").unwrap());
    fails(
        &site,
        &["run", "ingest"],
        4,
        "namespace default is being deleted\n  hint: finish it with: alluvium namespace delete default --yes",
    );
    site.ok(&["namespace", "delete", "default", "--yes"]);
    site.ok(&["run", "ingest"]);
    assert_eq!(site.landed("edit", "org").rows.len(), 2);
}
