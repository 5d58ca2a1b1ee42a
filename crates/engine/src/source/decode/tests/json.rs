//! JSON lines by hand.

use alluvium_core::{FileFormat, TimeUnit};
use arrow::array::{Array, Float64Array, StringArray};

use super::{Outcome, dataset, decode, from, record, unit};

fn json(dataset: &alluvium_core::Dataset, text: &str) -> Outcome {
    let outcome = decode(dataset, FileFormat::Json, "a.json", text.as_bytes().to_vec());
    assert_eq!(outcome.fault, None);
    outcome
}

/// The values of one column of this type for JSON values, or why they are refused.
pub(super) fn values(data_type: &str, values: &[&str]) -> Vec<String> {
    values_in(&dataset(&[("x", data_type)]), values)
}

fn values_in(dataset: &alluvium_core::Dataset, values: &[&str]) -> Vec<String> {
    let one = |value: &&str| {
        let outcome = json(dataset, &record(&format!(r#""x":{value}"#)));
        match outcome.refused.first() {
            Some(refused) => {
                assert_eq!(refused.field.as_deref(), Some("x"));
                refused.reason.split(": ").last().unwrap().to_owned()
            }
            None => outcome.column("x")[0].clone(),
        }
    };
    values.iter().map(one).collect()
}

#[test]
fn whole_numbers_fit_integers_however_they_are_spelled_and_others_do_not() {
    assert_eq!(
        values(
            "long",
            &["12", "-0", "3.0", "1e3", "120e-1", "9223372036854775807", "-9223372036854775808", r#""12""#, r#""-5.0""#]
        ),
        ["12", "0", "3", "1000", "12", "9223372036854775807", "-9223372036854775808", "12", "-5"]
    );
    assert_eq!(
        values(
            "long",
            &["3.5", "9223372036854775808", "1e400", "1e-1", r#"" 12""#, r#""12 ""#, r#""+1""#, r#""012""#, r#""""#, "true"]
        ),
        [
            "the number is not whole",
            "the number is out of range",
            "the number is out of range",
            "the number is not whole",
            "the text is not exactly a number",
            "the text is not exactly a number",
            "the text is not exactly a number",
            "the text is not exactly a number",
            "the text is not exactly a number",
            "a boolean is given",
        ]
    );
    assert_eq!(values("integer", &["2147483647", "2147483648", "-2147483649"]), ["2147483647", OUT, OUT]);
    assert_eq!(values("short", &["-32768", "32768"]), ["-32768", OUT]);
    assert_eq!(values("byte", &["127", "128", "-128"]), ["127", OUT, "-128"]);
}

const OUT: &str = "the number is out of range";

#[test]
fn numbers_and_booleans_in_a_string_are_taken_as_written() {
    assert_eq!(
        values("string", &["3.10", "1e5", "-0", "true", "12345678901234567890.50", r#""a""#, "null", r#""""#]),
        ["3.10", "1e5", "-0", "true", "12345678901234567890.50", "a", "null", ""]
    );
    assert_eq!(values("string", &["[]", "{}"]), ["an array is given", "an object is given"]);
}

#[test]
fn doubles_take_the_nearest_value_and_no_infinity() {
    let outcome = json(
        &dataset(&[("x", "double")]),
        &["0.1", "-0.0", "9007199254740993", r#""2.5e-3""#, "5e-324"].map(|v| record(&format!(r#""x":{v}"#))).join("\n"),
    );
    let array: Float64Array = outcome.array("x");
    let bits: Vec<u64> = array.values().iter().map(|v| v.to_bits()).collect();
    // By Python's struct.pack('>d', …).
    assert_eq!(bits, [0x3fb9_9999_9999_999a, 0x8000_0000_0000_0000, 0x4340_0000_0000_0000, 0x3f64_7ae1_47ae_147b, 1]);
    assert_eq!(
        values("double", &["1e309", r#""NaN""#, r#""Infinity""#]),
        [OUT, "the text is not exactly a number", "the text is not exactly a number"]
    );
    assert_eq!(values("float", &["0.5", "1e39", "16777217"]), ["0.5", OUT, "16777216.0"]);
}

#[test]
fn decimals_are_exact() {
    assert_eq!(
        values("decimal(10,2)", &["1.5", "1.50000", "-0.01", "12345678.99", "1e3", r#""0.10""#, "150e-1"]),
        ["1.50", "1.50", "-0.01", "12345678.99", "1000.00", "0.10", "15.00"]
    );
    assert_eq!(
        values("decimal(10,2)", &["1.505", "123456789", "1e99999999999999999999"]),
        ["the number has digits beyond the scale", OUT, OUT]
    );
    assert_eq!(
        values("decimal(38,0)", &["99999999999999999999999999999999999999", "100000000000000000000000000000000000000"]),
        ["99999999999999999999999999999999999999", OUT]
    );
    assert_eq!(
        values("decimal(38,38)", &["0.00000000000000000000000000000000000001"]),
        ["0.00000000000000000000000000000000000001"]
    );
    assert_eq!(values("decimal(3,1)", &["0e99999999999999999999", "0.0000"]), ["0.0", "0.0"]);
}

#[test]
fn booleans_take_both_words_in_any_letter_case() {
    assert_eq!(values("boolean", &["true", r#""TRUE""#, r#""False""#]), ["true", "true", "false"]);
    assert_eq!(
        values("boolean", &["1", r#""1""#, r#""yes""#]),
        ["a number is given", "the text is not exactly true or false", "the text is not exactly true or false"]
    );
}

#[test]
fn times_and_dates() {
    assert_eq!(
        values(
            "timestamp",
            &[
                r#""2026-01-02T03:04:05.678901+05:30""#,
                r#""2020-05-15 22:18:25 UTC""#,
                r#""2020-05-06 00:14:31.000""#,
                r#""2024-02-29""#,
                r#""0001-01-01T00:00:00Z""#
            ]
        ),
        [
            "2026-01-01T21:34:05.678901Z",
            "2020-05-15T22:18:25Z",
            "2020-05-06T00:14:31Z",
            "2024-02-29T00:00:00Z",
            "0001-01-01T00:00:00Z"
        ]
    );
    assert_eq!(
        values(
            "timestamp",
            &[
                "1",
                r#""2023-02-29""#,
                r#""1998-12-31T23:59:60Z""#,
                r#""2026-01-01T00:00:00.0000001Z""#,
                r#""0001-01-01T00:00:00+00:01""#,
                r#""9999-12-31T23:59:59-00:01""#,
                r#""2026-01-01 00:00""#
            ]
        ),
        [
            "a number is given, and the field has no unit",
            "the text is not exactly a time",
            "a leap second cannot be kept",
            "the time is finer than microseconds",
            "the year is not in 0001 to 9999",
            "the year is not in 0001 to 9999",
            "the text is not exactly a time",
        ]
    );
    assert_eq!(
        values("date", &[r#""2024-02-29""#, r#""2024-02-29T00:00:00Z""#, "5"]),
        ["2024-02-29", "the text is not exactly a date, YYYY-MM-DD", "a number is given"]
    );
}

#[test]
fn integers_with_a_unit_are_times() {
    let mut dataset = dataset(&[("x", "timestamp")]);
    for (given, expected) in [
        (TimeUnit::Seconds, "2001-09-09T01:46:40Z"),
        (TimeUnit::Milliseconds, "1970-01-12T13:46:40Z"),
        (TimeUnit::Microseconds, "1970-01-01T00:16:40Z"),
    ] {
        unit(&mut dataset, "x", given);
        assert_eq!(
            values_in(&dataset, &["1000000000", r#""1000000000""#, "1e9", r#""2026-01-01T00:00:00Z""#]),
            [expected, expected, expected, "2026-01-01T00:00:00Z"]
        );
    }
    unit(&mut dataset, "x", TimeUnit::Seconds);
    assert_eq!(
        values_in(&dataset, &["-62135596800", "-62135596801", "1.5", r#""soon""#]),
        ["0001-01-01T00:00:00Z", "the year is not in 0001 to 9999", "the number is not whole", "the text is not exactly a time"]
    );
}

#[test]
fn binary_is_base64() {
    assert_eq!(values("binary", &[r#""AAH/""#, r#""""#]), ["0001ff", ""]);
    assert_eq!(
        values("binary", &[r#""AAH""#, r#""AA H""#, "5"]),
        ["the text is not exactly base64", "the text is not exactly base64", "a number is given"]
    );
}

#[test]
fn nested_values_keep_their_shape_and_refuse_what_does_not_fit_inside() {
    let dataset =
        dataset(&[("s", "struct<a: string, b: array<long>>"), ("m", "map<string, double>"), ("l", "array<struct<k: date>>")]);
    let outcome = json(
        &dataset,
        &[
            record(r#""s":{"b":[1,null,"3"],"a":"x\ny"},"m":{"k":1.5,"n":null},"l":[{"k":"2026-01-01"},null,{}]"#),
            record(r#""s":{},"m":{},"l":[]"#),
            record(r#""s":null,"m":null,"l":null"#),
            record(r#""s":{"b":[1,2.5]}"#),
            record(r#""m":{"k":"x"}"#),
            record(r#""l":{"k":1}"#),
        ]
        .join("\n"),
    );
    let texts: Vec<_> = outcome.texts().into_iter().map(|row| row[2..5].join(" ")).collect();
    assert_eq!(
        texts,
        [
            "{a: x\ny, b: [1, null, 3]} {k: 1.5, n: null} [{k: 2026-01-01}, null, {k: null}]",
            "{a: null, b: null} {} []",
            "null null null",
        ]
    );
    assert_eq!(
        outcome.refusals(),
        [
            (3, Some("s"), "the value does not fit struct<a: string, b: array<long>>: the number is not whole"),
            (4, Some("m"), "the value does not fit map<string, double>: the text is not exactly a number"),
            (5, Some("l"), "the value does not fit array<struct<k: date>>: an object is given"),
        ]
    );
}

#[test]
fn map_keys_convert_and_are_told_apart_by_value() {
    let outcome = json(
        &dataset(&[("m", "map<long, string>")]),
        &[
            record(r#""m":{"1":"a","2.0":"b"}"#),
            record(r#""m":{"1":"a","1":"b"}"#),
            record(r#""m":{"1":"a","1.0":"b"}"#),
            record(r#""m":{"x":"a"}"#),
        ]
        .join("\n"),
    );
    assert_eq!(outcome.column("m"), ["{1: a, 2: b}", "{1: b}"]);
    assert_eq!(outcome.refused.iter().map(|r| r.record).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn what_follows_a_record_is_no_part_of_it_also_where_a_key_stands_twice() {
    let dataset = dataset(&[("x", "long")]);
    let records = [record(r#""x":1"#), record(r#""x":1,"x":2"#), record(r#""a":{"b":1,"b":2}"#)];
    let outcome = json(&dataset, &records.map(|record| record + "}").join("\n"));
    assert_eq!((outcome.rows.num_rows(), outcome.refused.len()), (0, 3));
}

#[test]
fn of_a_key_given_twice_the_last_counts_at_every_level() {
    let mut dataset = dataset(&[("x", "long"), ("deep", "string"), ("s", "struct<a: long, b: long>")]);
    from(&mut dataset, "deep", "meta.deep");
    let outcome = json(
        &dataset,
        &[
            record(r#""x":"bad","x":2"#),
            record(r#""x":1,"\u0078":null"#),
            record(r#""meta":{"deep":"a","other":1},"meta":{"deep":"b"}"#),
            record(r#""s":{"a":1,"b":2,"a":3}"#),
            record(r#""s":{"a":1},"s":{"b":2}"#),
            record(r#""x":1,"x":"bad""#),
        ]
        .join("\n"),
    );
    let texts: Vec<_> = outcome.texts().into_iter().map(|row| [row[2..5].join(" "), row[7].clone()].join(" ")).collect();
    assert_eq!(
        texts,
        [
            "2 null null null",
            "null null null null",
            "null b null null",
            "null null {a: 3, b: 2} null",
            "null null {a: null, b: 2} null"
        ]
    );
    assert_eq!(outcome.refusals(), [(5, Some("x"), "the value does not fit long: the text is not exactly a number")]);
}

#[test]
fn undeclared_fields_are_rescued_as_written() {
    let mut dataset = dataset(&[("city", "string"), ("user", "struct<id: long>"), ("tags", "array<struct<n: string>>")]);
    from(&mut dataset, "city", "meta.geo.city");
    let outcome = json(
        &dataset,
        &[
            record(r#""a":1.10,"meta":{"v":[1, 2],"geo":{"city":"Ulm","zip":"089"},"w":null},"b" : {"x" : "\u00e4"}"#),
            record(r#""user":{"id":1,"extra":true,"q\"x":2},"tags":[{"n":"a"},{"n":"b","zz":{}}]"#),
            record(r#""meta":5"#),
            record(r#""meta":{"geo":["x"]}"#),
            record(r#""meta":null"#),
            record(r#""meta":{"geo":{}}"#),
            record(r#""meta":{"geo":{"z":1}},"user":{"id":1,"e":2}"#),
        ]
        .join("\n"),
    );
    assert_eq!(outcome.refusals(), []);
    assert_eq!(outcome.column("city")[0], "Ulm");
    assert_eq!(
        outcome.column("_rescued"),
        [
            r#"{"a":1.10,"meta":{"v":[1, 2],"geo":{"zip":"089"},"w":null},"b":{"x" : "\u00e4"}}"#,
            r#"{"user.extra":true,"user.q\"x":2,"tags.1.zz":{}}"#,
            r#"{"meta":5}"#,
            r#"{"meta":{"geo":["x"]}}"#,
            "null",
            "null",
            r#"{"meta":{"geo":{"z":1}},"user.e":2}"#,
        ]
    );
}

#[test]
fn one_value_may_go_to_several_columns_whole_and_in_parts() {
    let mut dataset = dataset(&[("number", "long"), ("text", "string"), ("all", "map<string, string>"), ("part", "long")]);
    from(&mut dataset, "number", "n");
    from(&mut dataset, "text", "n");
    from(&mut dataset, "all", "meta");
    from(&mut dataset, "part", "meta.p");
    let outcome = json(&dataset, &record(r#""n":7.0,"meta":{"p":3,"q":"r"}"#));
    assert_eq!(outcome.texts()[0][2..], ["7", "7.0", "{p: 3, q: r}", "3", "2026-01-02", "0", "null"]);
}

#[test]
fn organisation_event_time_and_required_fields_must_be_there() {
    let mut dataset = dataset(&[("need", "long")]);
    dataset.fields[2].nullable = false;
    let outcome = json(
        &dataset,
        &[
            r#"{"at":"2026-01-01","need":1}"#,
            r#"{"org":null,"at":"2026-01-01","need":1}"#,
            r#"{"org":"","at":"2026-01-01","need":1}"#,
            r#"{"org":"o","need":1}"#,
            r#"{"org":"o","at":null,"need":1}"#,
            r#"{"org":"o","at":"2026-01-01"}"#,
            r#"{"org":"o","at":"2026-01-01","need":null}"#,
            r#"{"org":" ","at":"1969-12-31T23:59:59.999999Z","need":1}"#,
        ]
        .join("\n"),
    );
    assert_eq!(
        outcome.refusals(),
        [
            (0, Some("org"), "the organisation is missing or null"),
            (1, Some("org"), "the organisation is missing or null"),
            (2, Some("org"), "the organisation is empty"),
            (3, Some("at"), "the event time is missing or null"),
            (4, Some("at"), "the event time is missing or null"),
            (5, Some("need"), "the value is missing or null, and the field is not nullable"),
            (6, Some("need"), "the value is missing or null, and the field is not nullable"),
        ]
    );
    assert_eq!(outcome.texts(), [[" ", "1969-12-31T23:59:59.999999Z", "1", "1969-12-31", "7", "null"]]);
}

#[test]
fn an_integer_organisation_and_a_date_event_time_work() {
    let mut dataset = dataset(&[]);
    dataset.fields[0].data_type = "long".parse().unwrap();
    dataset.fields[1].data_type = "date".parse().unwrap();
    let outcome = json(&dataset, r#"{"org":7,"at":"2026-03-01"}"#);
    assert_eq!(outcome.texts(), [["7", "2026-03-01", "2026-03-01", "0", "null"]]);
}

#[test]
fn blank_lines_count_but_are_no_records_and_line_ends_are_not_part_of_raw() {
    let good = record(r#""x":1"#);
    let text = format!("\u{feff}{good}\r\n\r\n  \t\n{{bad}}\r\n[1]\n\n{good}");
    let outcome = json(&dataset(&[("x", "long")]), &text);
    assert_eq!(outcome.column("_offset"), ["0", "6"]);
    let raws: Vec<_> = outcome.refused.iter().map(|r| (r.record, r.raw.as_slice(), r.reason.as_str())).collect();
    assert_eq!(
        raws,
        [(3, b"{bad}".as_slice(), "not JSON: no key where one must stand at byte 1"), (4, b"[1]", "not a JSON object"),]
    );
}

#[test]
fn bytes_that_are_not_utf8_refuse_their_record_only() {
    let good = record(r#""x":"ä""#);
    let mut text = good.clone().into_bytes();
    text.extend_from_slice(b"\n");
    let bad = [br#"{"org":"o","x":""#.as_slice(), b"\xff\xfe", br#""}"#].concat();
    text.extend_from_slice(&bad);
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(good.as_bytes());
    let outcome = decode(&dataset(&[("x", "string")]), FileFormat::Json, "a.json", text);
    assert_eq!(outcome.column("x"), ["ä", "ä"]);
    assert_eq!(outcome.column("_offset"), ["0", "2"]);
    assert_eq!(outcome.refusals(), [(1, None, "not UTF-8")]);
    assert_eq!(outcome.refused[0].raw, bad);
}

#[test]
fn keys_are_found_in_any_order_spelling_and_spacing() {
    let outcome = json(
        &dataset(&[("x", "long"), ("y", "long")]),
        &[
            r#"{"org":"o","at":"2026-01-01","x":1,"y":2}"#,
            r#"{"y":2,"x":1,"at":"2026-01-01","org":"o"}"#,
            r#"{ "x" : 1 , "org" : "o" , "y":2,"\u0061t":"2026-01-01" }"#,
            r#"{"org":"o","at":"2026-01-01","y":2,"xx":9,"x":1}"#,
            r#"{"org":"o","at":"2026-01-01","x":1,"y":2}"#,
        ]
        .join("\n"),
    );
    assert_eq!(outcome.column("x"), ["1"; 5]);
    assert_eq!(outcome.column("y"), ["2"; 5]);
    let rescued: StringArray = outcome.array("_rescued");
    assert_eq!(rescued.null_count(), 4);
}

#[test]
fn no_reason_holds_a_value_of_the_record() {
    let secret = "ada.lovelace@example.org";
    let dataset = dataset(&[("x", "long"), ("d", "date"), ("m", "map<long, long>")]);
    for members in [
        format!(r#""x":"{secret}""#),
        format!(r#""d":"{secret}""#),
        format!(r#""m":{{"{secret}":1}}"#),
        format!(r#""x":1 "{secret}""#),
        format!(r#""{secret}""#),
    ] {
        let outcome = json(&dataset, &record(&members));
        assert!(outcome.refused.len() == 1 && !outcome.refused[0].reason.contains("ada"), "{:?}", outcome.refused);
    }
}

#[test]
fn an_empty_text_in_a_partition_column_is_refused_and_elsewhere_taken() {
    let mut dataset = dataset(&[("kind", "string"), ("note", "string")]);
    dataset.layout.partition_by = vec!["org".into(), "kind".into()];
    let text = concat!(
        "{\"org\":\"a\",\"at\":\"2026-01-01\",\"kind\":\"\",\"note\":\"\"}\n",
        "{\"org\":\"a\",\"at\":\"2026-01-01\",\"kind\":null,\"note\":\"\"}\n",
        "{\"org\":\"a\",\"at\":\"2026-01-01\",\"kind\":\" \",\"note\":\"\"}\n",
    );
    let outcome = json(&dataset, text);
    assert_eq!(outcome.rows.num_rows(), 2);
    let reason = "the text is empty, and a Delta table cannot be partitioned by an empty text";
    assert_eq!(outcome.refusals(), [(0, Some("kind"), reason)]);
}
