//! Values that other programs lose: every string as an organisation, as a partition and as a value comes back as it was.

use std::collections::BTreeMap;
use std::fs;

use crate::site::{Site, test_data};

const YAML: &str = "project: values
storage: ./lake
durability: process
datasets:
  thing:
    source: { files: { path: ./inbox, format: json } }
    org: org
    event_time: at
    fields: { org: string, at: timestamp, part: string, v: string, n: long }
    layout: { partition_by: [org, part] }
    batch: { max_rows: 200 }
";

/// A JSON string with every character beyond ASCII, or that needs it, escaped.
fn escaped(text: &str) -> String {
    let mut out = String::from("\"");
    for unit in text.encode_utf16() {
        match u8::try_from(unit) {
            Ok(b) if (b.is_ascii_graphic() || b == b' ') && b != b'"' && b != b'\\' => out.push(char::from(b)),
            _ => out += &format!("\\u{unit:04x}"),
        }
    }
    out + "\""
}

/// Takes `values` in as organisations, partitions and values, half of them escaped; compares what the table holds.
fn round_trip(values: &[String]) {
    let site = Site::new(YAML);
    for (name, spell) in [("raw.json", false), ("escaped.json", true)] {
        let lines: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(n, value)| {
                let text = if spell { escaped(value) } else { serde_json::to_string(value).unwrap() };
                format!(r#"{{"org":{text},"at":"2026-01-02T03:04:05Z","part":{text},"v":{text},"n":{n}}}"#)
            })
            .collect();
        site.write(&format!("inbox/{name}"), lines.join("\n"));
    }
    site.ok(&["run", "ingest"]);
    let landed = site.landed("thing", "org");
    assert_eq!(landed.dead_letters, []);
    assert_eq!(landed.rows.len(), values.len() * 2);
    for row in &landed.rows {
        let value = &values[row["n"].parse::<usize>().unwrap()];
        assert_eq!([&row["org"], &row["part"], &row["v"]], [value, value, value], "{}", row["_source"]);
    }
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    for row in &landed.notifications {
        *told.entry(row["org_id"].clone()).or_default() += row["inserted"].parse::<u64>().unwrap();
    }
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for value in values {
        *wanted.entry(value.clone()).or_default() += 2;
    }
    assert_eq!(told, wanted);
    let Some(seen) = site.read_by_others(&["thing", "notifications"], &["--rows"]) else { return };
    let columns: Vec<&str> = seen[0]["columns"].as_object().unwrap().keys().map(String::as_str).collect();
    let rows = seen[0]["data"].as_array().unwrap();
    assert_eq!(rows.len(), values.len() * 2);
    for row in rows {
        let n = row["n"].as_u64().unwrap_or_else(|| panic!("no n among {columns:?}"));
        let value = &values[usize::try_from(n).unwrap()];
        assert_eq!([&row["org"], &row["part"], &row["v"]], [value.as_str(); 3]);
    }
}

#[test]
fn naughty_strings_come_back_as_organisations_and_as_values() {
    let Some(data) = test_data("blns") else { return };
    let strings: Vec<String> = serde_json::from_slice(&fs::read(data.join("blns.json")).unwrap()).unwrap();
    assert_eq!(strings.len(), 515);
    // The empty one is no organisation; what becomes of it is shown below.
    round_trip(&strings.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>());
}

/// delta-rs #1228, #1299, #1591, #1896, #495.
#[test]
fn partition_values_with_any_punctuation_controls_and_500_characters_come_back() {
    let mut values: Vec<String> = [
        "%",
        "%20",
        "a%2Fb",
        "a/b",
        "../..",
        ".",
        "a:b",
        "a b ",
        " ",
        "'",
        "\"",
        "\\",
        "=",
        "a=b/c=d",
        "#1",
        "?",
        "*",
        "__HIVE_DEFAULT_PARTITION__",
        "null",
        "é",
        "e\u{301}",
        "\t",
        "\r\n",
        "\u{1}",
        "\u{7f}",
        "\u{85}",
        "\u{2028}",
        "\u{feff}x",
    ]
    .map(str::to_owned)
    .to_vec();
    values.push("x".repeat(500));
    values.push("ß/%".repeat(170));
    round_trip(&values);
}

/// arrow-json decodes some escaped surrogate pairs wrongly: U+20000 becomes U+10000.
#[test]
fn code_points_of_every_plane_raw_and_escaped_come_back() {
    let mut values = Vec::new();
    for plane in 0..=16_u32 {
        for low in [0x80, 0x7ff, 0x1234, 0xabcd, 0xfffd] {
            values.extend(char::from_u32(plane * 0x10000 + low).map(String::from));
        }
    }
    assert_eq!(values.len(), 85);
    round_trip(&values);
}

/// kafka-delta-ingest #52, delta #687.
#[test]
fn null_partition_comes_back_as_null() {
    let site = Site::new(YAML);
    let lines = [
        r#"{"org":"o","at":"2026-01-02","part":null,"v":"null","n":0}"#,
        r#"{"org":"o","at":"2026-01-02","v":"missing","n":1}"#,
        r#"{"org":"o","at":"2026-01-02","part":"null","v":"text","n":2}"#,
    ];
    site.write("inbox/a.json", lines.join("\n"));
    site.ok(&["run", "ingest"]);
    let landed = site.landed("thing", "org");
    let parts: Vec<Option<&str>> = landed.rows.iter().map(|r| r.get("part").map(String::as_str)).collect();
    assert_eq!(parts, [None, None, Some("null")]);
    if let Some(seen) = site.read_by_others(&["thing"], &[]) {
        assert_eq!(seen[0]["columns"]["part"]["nulls"], 2);
    }
}

/// Delta cannot tell an empty partition value from null: such a record is refused, not changed in silence.
#[test]
fn empty_partition_value_is_refused_and_an_empty_value_elsewhere_stays_empty() {
    let site = Site::new(YAML);
    let lines = [
        r#"{"org":"o","at":"2026-01-02","part":"p","v":"","n":0}"#,
        r#"{"org":"o","at":"2026-01-02","part":"","v":"x","n":1}"#,
        r#"{"org":"","at":"2026-01-02","part":"p","v":"x","n":2}"#,
    ];
    site.write("inbox/a.json", lines.join("\n"));
    site.ok(&["run", "ingest"]);
    let landed = site.landed("thing", "org");
    assert_eq!(landed.rows.len(), 1);
    assert_eq!(landed.rows[0]["v"], "");
    let fields: Vec<&str> = landed.dead_letters.iter().map(|l| l["field"].as_str()).collect();
    assert_eq!(fields, ["part", "org"]);
    if let Some(seen) = site.read_by_others(&["thing"], &[]) {
        assert_eq!(seen[0]["rows"], 1);
    }
}

/// delta #1551: a type that does not fit is refused, never made null.
#[test]
fn value_of_another_type_goes_to_the_dead_letters_whole() {
    let site = Site::new(YAML);
    let bad = [r#"{"org":"o","at":"2026-01-02","n":"1.5"}"#, r#"{"org":"o","at":"2026-01-02","n":9223372036854775808}"#];
    site.write("inbox/a.json", bad.join("\r\n"));
    site.ok(&["run", "ingest"]);
    let landed = site.landed("thing", "org");
    assert_eq!(landed.rows, []);
    let raw: Vec<&str> = landed.dead_letters.iter().map(|l| l["raw"].as_str()).collect();
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(raw, [hex(bad[0]), hex(bad[1])]);
}
