//! Files that are wrong, each with the problems counted out by hand: line, column, key, and parts of message and hint.

use super::{SMALL, parse};

type Expected = (u32, u32, &'static str, &'static str, &'static str);

#[track_caller]
fn refused(text: &str, expected: &[Expected]) {
    let error = parse(text).expect_err(text);
    let found: Vec<_> = error.problems().iter().map(|p| (p.place.line, p.place.column, p.key.as_str())).collect();
    let wanted: Vec<_> = expected.iter().map(|(line, column, key, ..)| (*line, *column, *key)).collect();
    assert_eq!(found, wanted, "{text}\n{error}");
    for (problem, (.., message, hint)) in error.problems().iter().zip(expected) {
        assert!(problem.message.contains(message), "{error}\nshould say {message:?}");
        assert!(problem.hint.as_deref().unwrap_or_default().contains(hint), "{error}\nshould hint {hint:?}");
        assert!(!hint.is_empty(), "every problem has a hint");
    }
}

/// [`SMALL`] with the first `from` replaced.
#[track_caller]
fn swap(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    SMALL.replacen(from, to, 1)
}

/// [`SMALL`] with lines after the last, which is line 11.
fn with(lines: &str) -> String {
    format!("{SMALL}{lines}\n")
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    refused(&swap("datasets:", "datsets:"), &[(3, 1, "", "unknown key \"datsets\"", "did you mean \"datasets\"?")]);
    refused(
        &swap("event_time: at", "event_tme: at"),
        &[(7, 5, "datasets.edit", "unknown key \"event_tme\"", "did you mean \"event_time\"?")],
    );
    refused(&swap("{ files:", "{ fils:"), &[(5, 15, "datasets.edit.source", "unknown key \"fils\"", "did you mean \"files\"?")]);
    refused(
        &swap("name: string", "name: { type: string, form: x }"),
        &[(11, 29, "datasets.edit.fields.name", "unknown key \"form\"", "did you mean \"from\"?")],
    );
    refused(&with("tables: 5"), &[(12, 1, "", "unknown key \"tables\"", "the keys here are project, namespace, ")]);
    refused(&with("leases: { ttt: 10s }"), &[(12, 11, "leases", "unknown key \"ttt\"", "did you mean \"ttl\"?")]);
}

#[test]
fn missing_keys_are_refused() {
    refused(&swap("project: p\n", ""), &[(1, 1, "", "the key \"project\" is missing", "project: my-lake")]);
    refused(&swap("./lake", ""), &[(1, 1, "", "the key \"storage\" is missing", "storage: ./lake")]);
    refused(
        &swap("    event_time: at\n", ""),
        &[(4, 3, "datasets.edit", "the key \"event_time\" is missing", "add event_time here")],
    );
    refused(&swap(", format: json", ""), &[(5, 15, "datasets.edit.source.files", "the key \"format\" is missing", "add format")]);
    refused(
        &swap("name: string", "name: { nullable: true }"),
        &[(11, 7, "datasets.edit.fields.name", "the key \"type\" is missing", "add type")],
    );
    refused("project: p\nstorage: x\ndatasets: {}\n", &[(3, 1, "datasets", "there is no dataset", "at least one")]);
    refused(
        &swap("{ files: { path: ./in, format: json } }", "{}"),
        &[(5, 5, "datasets.edit.source", "needs files or kafka", "files:")],
    );
}

#[test]
fn values_of_another_type_are_refused() {
    refused(&swap("project: p", "project: 5"), &[(1, 10, "project", "expected text, found a number", "quotes")]);
    refused(&swap("project: p", "project: [p]"), &[(1, 1, "project", "expected text, found a list", "one value")]);
    refused(
        &swap("{ files: { path: ./in, format: json } }", "./in"),
        &[(5, 13, "datasets.edit.source", "expected a mapping of keys to values, found text", "{ key: value }")],
    );
    refused(
        &swap("name: string", "name: { type: string, nullable: yes }"),
        &[(11, 39, "datasets.edit.fields.name.nullable", "expected true or false, found text", "true or false")],
    );
    refused(
        &with("    batch: { max_rows: lots, max_bytes: [1] }"),
        &[
            (12, 24, "datasets.edit.batch.max_rows", "expected a whole number, 0 or more, found text", "digits"),
            (12, 30, "datasets.edit.batch.max_bytes", "expected text, found a list", "one value"),
        ],
    );
    refused(&with("    identities: name"), &[(12, 17, "datasets.edit.identities", "expected a list, found text", "[a, b]")]);
    refused("[]", &[(1, 1, "", "expected a mapping of keys to values, found a list", "{ key: value }")]);
}

#[test]
fn values_outside_their_grammar_are_refused() {
    refused(&swap("format: json", "format: jsn"), &[(5, 44, "datasets.edit.source.files.format", "\"jsn\"", "\"json\"?")]);
    refused(
        &swap("org_id: string", "org_id: strin"),
        &[(9, 15, "datasets.edit.fields.org_id", "\"strin\" is not a type", "\"string\"?")],
    );
    refused(
        &swap("name: string", "name: { type: decimal(10, 2) }"),
        &[
            (11, 21, "datasets.edit.fields.name.type", "expected ','", "in quotes"),
            (11, 33, "datasets.edit.fields.name", "unknown key \"2)\"", "the keys here are"),
        ],
    );
    refused(
        &swap("format: json", "format: json, after: remove"),
        &[(5, 57, "datasets.edit.source.files.after", "\"remove\"", "keep, delete, or move:DIR")],
    );
    refused(
        &with(
            "    batch: { max_rows: 0, max_bytes: 64MB, max_delay: 1x }\n    layout: { target_file_size: 0B }\n    retention: 1y\n    retention_by_org: { 00D1: 5 }",
        ),
        &[
            (12, 24, "datasets.edit.batch.max_rows", "0 is too small", "1 or more"),
            (12, 38, "datasets.edit.batch.max_bytes", "\"64MB\" has an unknown unit", "MiB"),
            (12, 55, "datasets.edit.batch.max_delay", "\"1x\" has an unknown unit", "ms, s, m, h or d"),
            (13, 33, "datasets.edit.layout.target_file_size", "0 is too small", "1 or more"),
            (14, 16, "datasets.edit.retention", "\"1y\" has an unknown unit", "ms, s, m, h or d"),
            (15, 31, "datasets.edit.retention_by_org.00D1", "\"5\" has no unit", "ms, s, m, h or d"),
        ],
    );
    refused(
        &swap("name: string", "name: { type: string, from: a..b, unit: ms }"),
        &[
            (11, 35, "datasets.edit.fields.name.from", "\"a..b\" has an empty part", "a dot between"),
            (11, 47, "datasets.edit.fields.name.unit", "a unit stands at a string", "timestamp"),
        ],
    );
    refused(&swap("project: p", "project: my lake"), &[(1, 10, "project", "\"my lake\"", "letters, digits")]);
    refused(&swap("project: p", "project: p\nnamespace: A_b"), &[(2, 12, "namespace", "\"A_b\"", "lower-case")]);
    refused(&swap("project: p", "project: p\nnamespace: a-"), &[(2, 12, "namespace", "\"a-\"", "no dash first or last")]);
    refused(
        &swap("project: p", "project: p\ndurability: ram"),
        &[(2, 13, "durability", "\"ram\"", "write one of disk, process")],
    );
}

#[test]
fn sections_without_effect_are_checked_all_the_same() {
    refused(
        &with(
            "erase: { purge_after: 0, remember: ever, key: vault, store_keeps: 3d }\nmaintenance: { optimize: sometimes }\nleases: { ttl: 10 s }\n\
             requests: { source: { files: { path: ./r, format: csv } }, max_attempts: 0 }\nkafka: { a: [b] }",
        ),
        &[
            (12, 23, "erase.purge_after", "\"0\" has no unit", "30d"),
            (12, 36, "erase.remember", "\"ever\" is not a duration", "or write forever"),
            (12, 47, "erase.key", "\"vault\"", "lake"),
            (13, 26, "maintenance.optimize", "\"sometimes\"", "write one of auto, off"),
            (14, 16, "leases.ttl", "\"10 s\" has an unknown unit", "without a space"),
            (15, 51, "requests.source.files.format", "json only", "write json"),
            (15, 74, "requests.max_attempts", "0 attempts", "1 or more"),
            (16, 10, "kafka.a", "expected one value", "a setting is"),
        ],
    );
    refused(
        &swap("{ files: { path: ./in, format: json } }", "{ kafka: { topic: t, start: later } }"),
        &[(5, 41, "datasets.edit.source.kafka.start", "\"later\"", "earliest, latest, or a time")],
    );
}

#[test]
fn kafka_sources_and_settings_that_cannot_be_are_refused() {
    refused(
        &swap("{ files: { path: ./in, format: json } }", "{ kafka: { topic: t, format: avro, tombstones: delete, shards: 0 } }"),
        &[
            (5, 42, "datasets.edit.source.kafka.format", "json only", "write json"),
            (5, 60, "datasets.edit.source.kafka.tombstones", "not built yet", "skip or dead_letter"),
            (5, 76, "datasets.edit.source.kafka.shards", "0 shards", "1 to 256"),
        ],
    );
    refused(
        &with("kafka: { auto.offset.reset: latest, group.id: mine }"),
        &[(12, 10, "kafka.auto.offset.reset", "is ours", "leave it out")],
    );
    let fields = "{ kafka: { topic: t } }";
    let text = swap("{ files: { path: ./in, format: json } }", fields);
    refused(
        &text.replace("    fields:\n", "    fields:\n      when: { type: date, from: kafka.timestamp }\n      head: { type: array<string>, from: kafka.headers.a }\n"),
        &[
            (9, 7, "datasets.edit.fields.when", "kafka.timestamp is taken as date", "timestamp or long"),
            (10, 7, "datasets.edit.fields.head", "kafka.headers.a is taken as array<string>", "string or binary"),
        ],
    );
}

#[test]
fn names_we_or_delta_cannot_keep_are_refused() {
    refused(
        &swap(
            "name: string",
            "_name: string\n      Org_Id: string\n      Event_Date: date\n      a b: string\n      \"\": string\n      \"a\\tb\": string\n      \"a=b\": string\n      s: \"struct<a;b: long>\"",
        ),
        &[
            (11, 7, "datasets.edit.fields._name", "begins with _", "another name"),
            (12, 7, "datasets.edit.fields.Org_Id", "\"org_id\" and \"Org_Id\" differ only in case", "more than case"),
            (13, 7, "datasets.edit.fields.Event_Date", "added to every table by us", "another name"),
            (14, 7, "datasets.edit.fields.a b", "' ', which Delta refuses", "underscores"),
            (15, 7, "datasets.edit.fields.", "without a name", "give it a name"),
            (16, 7, "datasets.edit.fields.a\tb", "'\\t', which Delta refuses", "underscores"),
            (17, 7, "datasets.edit.fields.a=b", "'=', which Delta refuses", "underscores"),
            (18, 10, "datasets.edit.fields.s", "\"a;b\"", "underscores"),
        ],
    );
    for name in ["notifications", "requests", "retries", "dead_letters"] {
        let text = swap("  edit:", &format!("  {name}:"));
        let error = parse(&text).expect_err(name);
        assert_eq!((error.problems().len(), error.problems()[0].place.line), (1, 4));
        assert!(error.problems()[0].message.contains("is the name of a table that every namespace has"), "{error}");
    }
    refused(&swap("  edit:", "  _edit:"), &[(4, 3, "datasets._edit", "cannot be the name of a table", "begins with a letter")]);
    refused(&swap("  edit:", "  a/b:"), &[(4, 3, "datasets.a/b", "cannot be the name of a table", "begins with a letter")]);
    let body = SMALL.split_once("  edit:\n").unwrap().1;
    refused(
        &format!("{SMALL}  Edit:\n{body}"),
        &[(12, 3, "datasets.Edit", "the dataset \"Edit\" would share a table with \"edit\" of line 4", "more than case")],
    );
    refused(
        &with("    normalize:\n      edit: { id: name, fields: [] }\n      retries: { id: name, fields: [] }"),
        &[
            (
                13,
                7,
                "datasets.edit.normalize.edit",
                "the entity \"edit\" would share a table with \"edit\" of line 4",
                "more than case",
            ),
            (14, 7, "datasets.edit.normalize.retries", "table that every namespace has", "another name"),
        ],
    );
}

#[test]
fn fields_that_are_named_must_exist_and_fit() {
    refused(
        &swap("org: org_id", "org: orgid"),
        &[(6, 10, "datasets.edit.org", "\"orgid\" is not among the fields", "\"org_id\"?")],
    );
    refused(
        &swap("org_id: string", "org_id: double"),
        &[(6, 10, "datasets.edit.org", "\"org_id\" has the type double", "string or an integer")],
    );
    refused(
        &swap("at: timestamp", "at: string"),
        &[(7, 17, "datasets.edit.event_time", "has the type string", "timestamp or date")],
    );
    refused(&with("    key: nme"), &[(12, 10, "datasets.edit.key", "\"nme\"", "\"name\"?")]);
    refused(
        &with("    identities: [name, name, at, { field: name, clear: [at] }, { field: org_id }]"),
        &[
            (12, 24, "datasets.edit.identities[1]", "named twice", "once"),
            (12, 30, "datasets.edit.identities[2]", "organisation or the event time", "take it out"),
            (12, 43, "datasets.edit.identities[3]", "named twice", "once"),
            (12, 49, "datasets.edit.identities[3].clear", "no meaning", "on_erase: clear"),
            (12, 73, "datasets.edit.identities[4]", "organisation or the event time", "take it out"),
        ],
    );
    refused(
        &swap(
            "name: string",
            "name: { type: string, nullable: false }\n    identities: [{ field: name, on_erase: clear, clear: [org_id, x] }]",
        ),
        &[
            (12, 27, "datasets.edit.identities[0]", "cannot be cleared", "on_erase: delete"),
            (12, 58, "datasets.edit.identities[0].clear", "\"org_id\" cannot be cleared", "no organisation"),
            (12, 66, "datasets.edit.identities[0].clear", "\"x\" is not among the fields", "the fields are"),
        ],
    );
    refused(
        &swap(
            "name: string",
            "name: string\n      u: string\n      k: string\n    key: k\n    identities: [u, { field: name, on_erase: clear, clear: [name, u, k] }]",
        ),
        &[
            (15, 61, "datasets.edit.identities[1].clear", "\"name\" is an identity or the key", "subjects in one request"),
            (15, 67, "datasets.edit.identities[1].clear", "\"u\" is an identity or the key", "subjects in one request"),
            (15, 70, "datasets.edit.identities[1].clear", "\"k\" is an identity or the key", "subjects in one request"),
        ],
    );
    refused(&with("    key: name\n    identities: [name]"), &[(12, 10, "datasets.edit.key", "is an identity too", "must stay")]);
    refused(
        &with("    key: name\n    normalize: { c: { id: name, fields: [] }, d: { id: org_id, fields: [] } }"),
        &[
            (13, 27, "datasets.edit.normalize.c.id", "the event time or the key", "requests may change it"),
            (13, 56, "datasets.edit.normalize.d.id", "the event time or the key", "requests may change it"),
        ],
    );
    refused(
        &swap(
            "name: string",
            "name: string\n      f: float\n      l: array<long>\n    layout: { partition_by: [f, org_id, org_id, event_date], cluster_by: [l, event_date] }",
        ),
        &[
            (14, 30, "datasets.edit.layout.partition_by[0]", "\"f\" has the type float", "other than binary, double and float"),
            (14, 41, "datasets.edit.layout.partition_by[2]", "named twice", "once"),
            (14, 75, "datasets.edit.layout.cluster_by[0]", "\"l\" has the type array<long>", "a simple type"),
            (14, 78, "datasets.edit.layout.cluster_by[1]", "\"event_date\" is not among the fields", "the fields are"),
        ],
    );
    refused(
        &with("    normalize: { c: { id: at, fields: [name, org_id] } }"),
        &[
            (12, 27, "datasets.edit.normalize.c.id", "has the type timestamp", "string or an integer"),
            (12, 27, "datasets.edit.normalize.c.id", "the event time or the key", "requests may change it"),
            (12, 46, "datasets.edit.normalize.c.fields", "\"org_id\" cannot be normalised", "no id, key, organisation"),
        ],
    );
}

#[test]
fn a_broken_field_is_not_reported_again_where_it_is_used() {
    refused(
        &swap("org_id: string", "org_id: { type: strin, nullable: false }"),
        &[(9, 23, "datasets.edit.fields.org_id.type", "\"strin\" is not a type", "\"string\"?")],
    );
}

#[test]
fn partition_transforms_are_known_but_not_built() {
    refused(
        &with("    layout: { partition_by: [\"bucket(org_id, 4)\", month(at), \"bucket(4)\"] }"),
        &[
            (12, 30, "datasets.edit.layout.partition_by[0]", "partitioning by bucket(org_id, 4) is not built yet", "comes later"),
            (12, 51, "datasets.edit.layout.partition_by[1]", "partitioning by month(at) is not built yet", "comes later"),
            (12, 62, "datasets.edit.layout.partition_by[2]", "\"bucket(4)\" is not among the fields", "in quotes"),
        ],
    );
}

#[test]
fn storage_of_an_unknown_kind_is_refused() {
    for (storage, message) in [
        ("hdfs://x/y", "storage of the kind \"hdfs\" is not supported"),
        ("S3://bucket", "storage of the kind \"S3\" is not supported"),
        ("s3:bucket", "s3: is not followed by //"),
        ("s3://", "the s3:// URL names no place"),
        ("gs:///x", "the gs:// URL names no place"),
        ("\" \"", "storage is empty"),
    ] {
        refused(&swap("./lake", storage), &[(2, 10, "storage", message, "s3://, gs://")]);
    }
    for storage in
        ["/abs/lake", "lake", "../x:y", "file:///lake", "gs://b", "abfss://c@account.dfs.core.windows.net/x", "az://c/x"]
    {
        assert_eq!(parse(&swap("./lake", storage)).map(|p| p.storage), Ok(storage.to_owned()));
    }
}

#[test]
fn files_are_not_moved_or_deleted_under_another_reader() {
    refused(
        &swap("format: json", "format: json, after: move:in/done"),
        &[(5, 57, "datasets.edit.source.files.after", "where they are read again", "outside")],
    );
    for elsewhere in ["move:./done", "move:./in2", "move:/in/done", "move:./in/_done"] {
        assert!(parse(&swap("format: json", &format!("format: json, after: {elsewhere}"))).is_ok(), "{elsewhere}");
    }
    let body = SMALL.split_once("  edit:\n").unwrap().1;
    let two = format!("{SMALL}  view:\n{}", body.replace("path: ./in, format: json", "path: in/, format: json, after: delete"));
    refused(&two, &[(12, 3, "datasets.view", "\"edit\" reads the same directory", "after: keep in both")]);
    assert!(parse(&two.replace("delete", "keep")).is_ok());
}

#[test]
fn what_is_not_yaml_is_refused_where_it_breaks() {
    refused("", &[(1, 1, "", "the file is empty", "alluvium init")]);
    refused("# only a comment\n", &[(1, 1, "", "the file is empty", "alluvium init")]);
    refused(&swap("    org:", "\torg:"), &[(6, 2, "", "this is not YAML", "not with tabs")]);
    refused(&swap("./lake", "{ x: ${NOPE} }"), &[(2, 16, "", "this is not YAML", "put values that hold ${..} in quotes")]);
    refused(&with("---\nproject: q"), &[(12, 1, "", "a second document begins", "one document")]);
    refused(&swap("project: p", "project: p\nproject: q"), &[(2, 1, "", "the key \"project\" appears twice", "line 1")]);
    refused(
        &swap("name: string", "name: string\n      <<: { a: string }"),
        &[(12, 7, "datasets.edit.fields", "merge keys", "anchor")],
    );
    refused(&swap("project: p", "project: !x p"), &[(1, 13, "project", "tags have no meaning", "leave the tag out")]);
    refused(&swap("project: p", "project: *p"), &[(1, 10, "", "this is not YAML", "quotes")]);
}

#[test]
fn variables_that_are_not_set_are_named_and_values_never_shown() {
    refused(&swap("./lake", "${NOPE}"), &[(2, 10, "storage", "the environment variable NOPE is not set", "set NOPE")]);
    refused(&swap("./lake", "\"a${}\""), &[(2, 10, "storage", "without the name of an environment variable", "${NAME}")]);
    let text = swap("project: p", "project: \"${BAD}\"\nnamespace: x${BAD}").replace("./lake", "${BAD}://x")
        + "    batch: { max_rows: \"${BAD}\", max_bytes: \"${BAD}\" }\n    change_data_feed: \"${BAD}\"\n";
    let text = text
        .replace("format: json", "format: \"${BAD}\"")
        .replace("name: string", "name: \"${BAD}\"")
        .replace("org: org_id", "org: \"${BAD}\"");
    let error = parse(&text).unwrap_err();
    assert!(!error.to_string().contains("s3cr3t"), "{error}");
    let lines: Vec<u32> = error.problems().iter().map(|p| p.place.line).collect();
    assert!([1, 2, 3, 6, 12, 13].iter().all(|line| lines.contains(line)), "{error}");
}

#[test]
fn all_problems_of_a_file_are_reported_at_once_in_its_order() {
    let text = swap("project: p", "project: 1").replace("org: org_id", "org: nobody").replace("format: json", "format: xml")
        + "    batch: { max_dealy: 1s }\nmaintenance: { vacuum_after: soon }\n";
    let error = parse(&text).unwrap_err();
    assert_eq!(
        error.render("dir/alluvium.yaml"),
        "dir/alluvium.yaml:1:10: project: expected text, found a number\n  \
         hint: put it in quotes if it is text\n\
         dir/alluvium.yaml:5:44: datasets.edit.source.files.format: \"xml\" is not known here\n  \
         hint: write one of json, csv, parquet, avro\n\
         dir/alluvium.yaml:6:10: datasets.edit.org: \"nobody\" is not among the fields\n  \
         hint: the fields are org_id, at, name\n\
         dir/alluvium.yaml:12:14: datasets.edit.batch: unknown key \"max_dealy\"\n  \
         hint: did you mean \"max_delay\"?\n\
         dir/alluvium.yaml:13:30: maintenance.vacuum_after: \"soon\" is not a duration\n  \
         hint: write a whole number and a unit without a space: ms, s, m, h or d, as in 90s or 30d"
    );
}
