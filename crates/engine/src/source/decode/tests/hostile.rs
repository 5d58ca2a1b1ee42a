//! Texts that others collected to break readers.

use std::fs;

use alluvium_core::{FileFormat, TimeFault};
use arrow::array::{Array, StringArray};

use super::{dataset, decode, record, shared_data};
use crate::source::decode::cell::Slots;
use crate::source::decode::convert::Unfit;
use crate::source::decode::json::JsonReader;
use crate::source::decode::plan::Plan;
use crate::source::decode::time;

/// Whether a text, as the value of an undeclared field, makes a record that is taken.
fn takes(text: &[u8]) -> bool {
    let plan = Plan::new(&dataset(&[]));
    let text = [br#"{"org":"o","at":"2026-01-01","x":"#.as_slice(), text, b"}"].concat();
    let Ok(text) = std::str::from_utf8(&text) else { return false };
    JsonReader::new(&plan).record(text, &mut Slots::new(plan.cells)).is_ok()
}

#[test]
fn the_verdicts_of_jsontestsuite_are_ours() {
    let Some(folder) = shared_data("jsontestsuite") else { return };
    let mut judged = 0;
    for entry in fs::read_dir(folder.join("test_parsing")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read(&path).unwrap();
        match name.as_bytes()[0] {
            b'y' => assert!(takes(&text), "{name} was refused"),
            // As the value of a field, these two are no longer what the suite means: `1}` and a value that is cut off.
            b'n' if name == "n_structure_object_followed_by_closing_object.json" => {}
            b'n' => assert!(!takes(&text), "{name} was taken"),
            _ => continue,
        }
        judged += 1;
    }
    assert!(judged > 280, "{judged}");
}

#[test]
fn deep_nesting_is_refused_and_breaks_nothing() {
    let dataset = dataset(&[("l", "array<long>")]);
    for deep in
        ["[".repeat(100_000), "[".repeat(100_000) + &"]".repeat(100_000), r#"{"a":"#.repeat(100_000), "[{\"\":".repeat(50_000)]
    {
        for key in ["l", "unknown"] {
            let outcome = decode(&dataset, FileFormat::Json, "a", record(&format!(r#""{key}":{deep}"#)).into_bytes());
            assert_eq!((outcome.rows.num_rows(), outcome.refused.len()), (0, 1));
            assert!(outcome.refused[0].reason.contains("nested too deep"), "{}", outcome.refused[0].reason);
        }
    }
    // 128 are taken: the record and 127 arrays.
    for (arrays, rows) in [(127, 1), (128, 0)] {
        let value = "[".repeat(arrays) + &"]".repeat(arrays);
        let outcome = decode(&dataset, FileFormat::Json, "a", record(&format!(r#""y":{value}"#)).into_bytes());
        assert_eq!(outcome.rows.num_rows(), rows);
    }
}

#[test]
fn every_code_point_survives_raw_and_escaped() {
    let dataset = dataset(&[("raw", "string"), ("escaped", "string"), ("m", "map<string, string>")]);
    let mut lines = String::new();
    let mut expected = Vec::new();
    let all: Vec<char> = (0..=0x10_FFFF).filter_map(char::from_u32).collect();
    for part in all.chunks(8192) {
        let text: String = part.iter().collect();
        let mut escaped = String::new();
        for unit in text.encode_utf16() {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
        let raw = serde_json::to_string(&text).unwrap();
        lines.push_str(&record(&format!(r#""raw":{raw},"escaped":"{escaped}","m":{{"{escaped}":{raw}}}"#)));
        lines.push('\n');
        expected.push(text);
    }
    let outcome = decode(&dataset, FileFormat::Json, "a", lines.into_bytes());
    assert_eq!(outcome.refused, []);
    for column in ["raw", "escaped"] {
        let array: StringArray = outcome.array(column);
        assert!(array.iter().map(Option::unwrap).eq(expected.iter().map(String::as_str)), "{column}");
    }
    let maps: arrow::array::MapArray = outcome.array("m");
    let keys = maps.keys().as_any().downcast_ref::<StringArray>().unwrap();
    assert!(keys.iter().map(Option::unwrap).eq(expected.iter().map(String::as_str)));
    assert_eq!(all.len(), 0x11_0000 - 0x800);
}

#[test]
fn lone_surrogates_and_bare_control_characters_are_refused_wherever_they_stand() {
    let dataset = dataset(&[("x", "string")]);
    for bad in [
        r"\ud800",
        r"\udc00",
        r"\ud800\ud800",
        r"\ud800x",
        r"\ud840\u0041",
        r"\udc00\ud800",
        r"\u12",
        r"\u12g4",
        r"\x41",
        "\u{1}",
        "\t",
        "\u{0}",
    ] {
        for members in
            [format!(r#""x":"{bad}""#), format!(r#""y":"{bad}""#), format!(r#""{bad}":1"#), format!(r#""y":{{"a":["{bad}"]}}"#)]
        {
            let outcome = decode(&dataset, FileFormat::Json, "a", record(&members).into_bytes());
            assert_eq!((outcome.rows.num_rows(), outcome.refused.len()), (0, 1), "{members:?}");
        }
    }
}

#[test]
fn naughty_strings_come_back_as_they_were() {
    let Some(folder) = shared_data("blns") else { return };
    let strings: Vec<String> = serde_json::from_slice(&fs::read(folder.join("blns.json")).unwrap()).unwrap();
    assert_eq!(strings.len(), 515);
    let dataset = dataset(&[("x", "string")]);
    let json: String = strings.iter().map(|s| record(&format!(r#""x":{}"#, serde_json::to_string(s).unwrap())) + "\n").collect();
    let csv: String = strings.iter().map(|s| format!("o,2026-01-01,\"{}\"\n", s.replace('"', "\"\""))).collect();
    for (format, text) in [(FileFormat::Json, json), (FileFormat::Csv, format!("org,at,x\n{csv}"))] {
        let outcome = decode(&dataset, format, "a", text.into_bytes());
        assert_eq!(outcome.refused, []);
        let array: StringArray = outcome.array("x");
        assert!(array.iter().map(Option::unwrap).eq(strings.iter().map(String::as_str)), "{format:?}");
        assert_eq!(array.null_count(), 0);
    }
}

#[derive(serde::Deserialize)]
struct Suite {
    tests: Vec<Verdict>,
}

#[derive(serde::Deserialize)]
struct Verdict {
    description: String,
    data: serde_json::Value,
    valid: bool,
}

fn verdicts(file: &str) -> Vec<Verdict> {
    let Some(folder) = shared_data("json-schema-formats") else { return Vec::new() };
    let suites: Vec<Suite> = serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap();
    suites.into_iter().flat_map(|s| s.tests).filter(|t| t.data.is_string()).collect()
}

#[test]
fn the_verdicts_of_json_schema_on_times_are_ours_but_for_what_the_type_cannot_hold() {
    for test in verdicts("date-time.json") {
        let outcome = time::timestamp(test.data.as_str().unwrap());
        let expected = match test.description.as_str() {
            d if test.valid && d.contains("leap second") => Err(Unfit::Time(TimeFault::LeapSecond)),
            d if test.valid && d.contains("fifteen nines") => Err(Unfit::Time(TimeFault::TooFine)),
            _ => {
                if test.valid {
                    Ok(())
                } else {
                    Err(Unfit::Time(TimeFault::NotATime))
                }
            }
        };
        match (outcome, expected) {
            (Err(Unfit::Time(TimeFault::LeapSecond)), Err(Unfit::Time(TimeFault::NotATime))) => {}
            (outcome, expected) => assert_eq!(outcome.map(|_| ()), expected, "{}", test.description),
        }
    }
}

#[test]
fn the_verdicts_of_json_schema_on_dates_are_ours() {
    for test in verdicts("date.json") {
        let text = test.data.as_str().unwrap();
        assert_eq!(time::date(text).is_ok(), test.valid && !text.starts_with("0000"), "{}: {text}", test.description);
    }
}
