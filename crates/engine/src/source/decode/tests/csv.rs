//! Comma-separated values by hand, and those of real exports.

use std::fs;

use alluvium_core::FileFormat;

use super::{Outcome, dataset, decode, field, from, shared_data};

fn csv(dataset: &alluvium_core::Dataset, text: &str) -> Outcome {
    decode(dataset, FileFormat::Csv, "a.csv", text.as_bytes().to_vec())
}

#[test]
fn quotes_newlines_and_empty_fields() {
    let dataset = dataset(&[("s", "string"), ("n", "long"), ("b", "boolean")]);
    let outcome = csv(
        &dataset,
        "\u{feff}org,at,s,n,b\r\no,2026-01-01,\"a \"\"b\"\",\r\nc\",5,TRUE\r\n\r\no,2026-01-01,,,\no,2026-01-01,\"\",\"\",\"\"\no,2026-01-01,5\" pipe, 5,false\no,2026-01-01,\" x \",5.0,False",
    );
    assert_eq!(outcome.fault, None);
    let texts: Vec<_> = outcome.texts().into_iter().map(|row| row[2..6].join("|")).collect();
    assert_eq!(
        texts,
        ["a \"b\",\r\nc|5|true|2026-01-01", "null|null|null|2026-01-01", "|null|null|2026-01-01", " x |5|false|2026-01-01"]
    );
    assert_eq!(outcome.column("_offset"), ["0", "1", "2", "4"]);
    assert_eq!(outcome.refusals(), [(3, Some("n"), "the value does not fit long: the text is not exactly a number")]);
    assert_eq!(outcome.refused[0].raw, b"o,2026-01-01,5\" pipe, 5,false");
}

#[test]
fn records_of_another_width_and_broken_quotes_are_refused_whole() {
    let outcome = csv(&dataset(&[]), "org,at\no,2026-01-01,x\no\no,\"2026-01-01\"x\r\no,2026-01-01\no,\"2026\n");
    assert_eq!(
        outcome.refusals(),
        [
            (0, None, "the record has 3 fields, the header 2"),
            (1, None, "the record has 1 fields, the header 2"),
            (2, None, "something stands behind a closing quote"),
            (4, None, "a quote is not closed"),
        ]
    );
    let raws: Vec<_> = outcome.refused.iter().map(|r| r.raw.as_slice()).collect();
    assert_eq!(raws, [b"o,2026-01-01,x".as_slice(), b"o", b"o,\"2026-01-01\"x", b"o,\"2026"]);
    assert_eq!(outcome.column("_offset"), ["3"]);
}

#[test]
fn undeclared_columns_are_rescued_as_strings() {
    let outcome = csv(&dataset(&[]), "org,x,at,\"y\"\"z\"\no,1,2026-01-01,\"a\"\"\tb\"\no,,2026-01-01,\no,,2026-01-01,\"\"\n");
    assert_eq!(outcome.column("_rescued"), [r#"{"x":"1","y\"z":"a\"\u0009b"}"#, "null", r#"{"y\"z":""}"#]);
}

#[test]
fn dotted_headers_and_json_texts() {
    let mut dataset =
        dataset(&[("city", "string"), ("l", "array<long>"), ("m", "map<string, long>"), ("s", "struct<a: string>")]);
    from(&mut dataset, "city", "geo.city");
    let outcome = csv(
        &dataset,
        concat!(
            "org,at,geo.city,l,m,s\n",
            "o,2026-01-01,Ulm,\"[1,2]\",\"{\"\"k\"\":1,\"\"k\"\":2}\",\"{\"\"a\"\":\"\"x\"\",\"\"b\"\":[1]}\"\n",
            "o,2026-01-01,Ulm,[3],null,{}\n",
            "o,2026-01-01,Ulm,[1,,,\n",
            "o,2026-01-01,Ulm,\"[1\",,\n",
            "o,2026-01-01,Ulm,,,\n",
        ),
    );
    let texts: Vec<_> = outcome.texts().into_iter().map(|row| [row[2..6].join(" "), row[8].clone()].join(" ")).collect();
    assert_eq!(texts, [r#"Ulm [1, 2] {k: 2} {a: x} {"s.b":[1]}"#, "Ulm [3] null {a: null} null", "Ulm null null null null"]);
    assert_eq!(
        outcome.refusals(),
        [
            (2, None, "the record has 7 fields, the header 6"),
            (3, Some("l"), "the value does not fit array<long>: the text is not JSON"),
        ]
    );
}

#[test]
fn a_broken_header_is_the_files_fault() {
    for (text, reason) in [
        ("org,at,org\no,2026-01-01,o\n", "the header line names the column \"org\" twice"),
        ("org,at\ro,2026-01-01\r", "the header line holds a carriage return without a line feed"),
        ("org,\"at\no,2026-01-01\n", "the quotes of the header line are broken"),
    ] {
        let outcome = csv(&dataset(&[]), text);
        assert_eq!(outcome.fault, Some((0, reason.to_owned())));
    }
    for text in ["", "org,at", "org,at\n", "\u{feff}org,at\r\n\r\n"] {
        let outcome = csv(&dataset(&[]), text);
        assert_eq!((outcome.fault, outcome.rows.num_rows(), outcome.refused.len()), (None, 0, 0));
    }
}

#[test]
fn bytes_that_are_not_utf8_refuse_their_record_only() {
    let outcome = decode(&dataset(&[]), FileFormat::Csv, "a.csv", b"org,at\n\xff,2026-01-01\n\xc3\xa4,2026-01-01\n".to_vec());
    assert_eq!(outcome.column("org"), ["ä"]);
    assert_eq!(outcome.refusals(), [(0, None, "not UTF-8")]);
    assert_eq!(outcome.refused[0].raw, b"\xff,2026-01-01");
}

/// Decodes an export with these columns; the first is the organisation, the second the event time.
fn export(folder: &str, file: &str, columns: &[(&str, &str)], records: usize) {
    let Some(folder) = shared_data(folder) else { return };
    let mut dataset = dataset(&[]);
    dataset.fields = columns.iter().map(|(name, data_type)| field(name, data_type)).collect();
    dataset.org = columns[0].0.into();
    dataset.event_time = columns[1].0.into();
    let outcome = decode(&dataset, FileFormat::Csv, file, fs::read(folder.join(file)).unwrap());
    assert_eq!(outcome.fault, None, "{file}");
    assert_eq!(outcome.refusals(), [], "{file}");
    assert_eq!(outcome.rows.num_rows(), records, "{file}");
}

#[test]
fn every_record_of_the_marketo_exports_fits() {
    for file in ["send_email", "open_email", "click_email", "email_delivered", "email_bounced"] {
        let columns =
            [("campaign_id", "long"), ("activity_date", "timestamp"), ("lead_id", "long"), ("id", "long"), ("step_id", "long")];
        export("marketo", &format!("marketo_activity_{file}_data.csv"), &columns, 100);
    }
    let merge = [
        ("lead_id", "long"),
        ("activity_date", "timestamp"),
        ("master_updated", "boolean"),
        ("merge_ids", "array<long>"),
        ("_fivetran_synced", "timestamp"),
    ];
    export("marketo", "marketo_activity_merge_leads_data.csv", &merge, 100);
    export("marketo", "marketo_activity_delete_lead_data.csv", &[("lead_id", "integer"), ("activity_date", "timestamp")], 31);
    export(
        "marketo",
        "marketo_campaign_data.csv",
        &[("id", "string"), ("created_at", "timestamp"), ("active", "boolean"), ("is_system", "boolean")],
        100,
    );
    export(
        "marketo",
        "marketo_activity_change_data_value_data.csv",
        &[("source", "string"), ("activity_date", "timestamp"), ("new_value", "string")],
        100,
    );
}

#[test]
fn every_record_of_the_hubspot_exports_fits() {
    let events = [
        ("portal_id", "long"),
        ("created", "timestamp"),
        ("filtered_event", "boolean"),
        ("recipient", "binary"),
        ("sent_by_created", "timestamp"),
    ];
    export("hubspot", "email_event_data.csv", &events, 100);
    export(
        "hubspot",
        "engagement_meeting_data.csv",
        &[("engagement_id", "string"), ("start_time", "timestamp"), ("body", "string")],
        100,
    );
    export(
        "hubspot",
        "contact_merge_audit_data.csv",
        &[("canonical_vid", "long"), ("timestamp", "timestamp"), ("vid_to_merge", "long")],
        4,
    );
}
