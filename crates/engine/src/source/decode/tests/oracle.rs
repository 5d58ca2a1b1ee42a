//! Random records against a naive decoder over serde_json, and texts made from values that must come back.

use std::collections::BTreeMap;

use alluvium_core::{DataType, FileFormat};
use arrow::array::{Array, Decimal128Array, Int64Array, StringArray};
use chrono::{DateTime, Datelike, SecondsFormat, TimeZone as _, Utc};
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{dataset, decode};
use crate::source::decode::convert::{self, Kind, Scalar};
use crate::source::decode::time;

const FIRST: i64 = -62_135_596_800_000_000;
const LAST: i64 = 253_402_300_799_999_999;

/// A number as a fraction of whole numbers; small texts only.
fn fraction(text: &str) -> Option<(i128, i128)> {
    // serde_json judges the grammar.
    if text.trim() != text || !serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_number()) {
        return None;
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap();
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{part}").parse().unwrap();
    let exponent = exponent - i32::try_from(part.len()).unwrap();
    let power = 10_i128.pow(exponent.unsigned_abs());
    Some(if exponent < 0 { (digits, power) } else { (digits * power, 1) })
}

/// The number of a number or of a string that is one.
fn number(raw: &str) -> Option<(i128, i128)> {
    match serde_json::from_str::<Value>(raw).unwrap() {
        Value::String(text) => fraction(&text),
        _ => fraction(raw),
    }
}

/// What a record must become: its columns `x: long`, `s: string`, `d: decimal(9,2)` and the rescued fields; `None`: refused.
type Expected = Option<(Option<i128>, Option<String>, Option<i128>, BTreeMap<String, Value>)>;

fn naive(text: &str) -> Expected {
    serde_json::from_str::<Value>(text).ok()?;
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).ok()?;
    let mut take = |key: &str| members.remove(key).map(|raw| raw.get().to_owned()).filter(|raw| raw != "null");
    let (org, at) = (take("org")?, take("at")?);
    // No zone is UTC; all other losses or doublings of one character break the time.
    if org == "\"\"" || !["\"2026-01-02T03:04:05Z\"", "\"2026-01-02T03:04:05\""].contains(&at.as_str()) {
        return None;
    }
    let x = match take("x") {
        None => None,
        Some(raw) => {
            let (over, under) = number(&raw)?;
            if over % under != 0 || i64::try_from(over / under).is_err() {
                return None;
            }
            Some(over / under)
        }
    };
    let s = match take("s") {
        None => None,
        Some(raw) => match serde_json::from_str(&raw).unwrap() {
            Value::String(text) => Some(text),
            Value::Number(_) | Value::Bool(_) => Some(raw),
            _ => return None,
        },
    };
    let d = match take("d") {
        None => None,
        Some(raw) => {
            let (over, under) = number(&raw)?;
            if over * 100 % under != 0 || (over * 100 / under).abs() >= 1_000_000_000 {
                return None;
            }
            Some(over * 100 / under)
        }
    };
    Some((x, s, d, members.into_iter().map(|(key, raw)| (key, serde_json::from_str(raw.get()).unwrap())).collect()))
}

fn number_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,11})(\\.[0-9]{1,4})?([eE][+-]?[0-5])?",
        "-?[0-9]{1,5}(\\.[0-9]{0,3})?",
        any::<i64>().prop_map(|i| i.to_string()),
    ]
}

fn json_string() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>().prop_map(|s| serde_json::to_string(&s).unwrap()),
        "[a-z]{0,5}".prop_map(|s| format!("\"{s}\\n\\u00e9\\/\"")),
        number_text().prop_map(|n| format!("\"{n}\"")),
    ]
}

fn json_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![4 => number_text(), 3 => json_string(), 1 => Just("true".into()), 1 => Just("null".into())];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[ {} ]", items.join(" , "))),
            proptest::collection::btree_map("[a-c]", inner, 0..3).prop_map(|members| {
                let members: Vec<_> = members.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

fn record_text() -> impl Strategy<Value = String> {
    let key = prop_oneof![Just("x"), Just("s"), Just("d"), Just("u"), Just("\\u0078"), Just("v w")];
    let member = (key, json_value(), "[ \t]{0,2}").prop_map(|(key, value, space)| format!("\"{key}\"{space}:{space}{value}"));
    let ours = vec!["\"org\":\"o\"".to_owned(), "\"at\":\"2026-01-02T03:04:05Z\"".to_owned()];
    let record = proptest::collection::vec(member, 0..5).prop_flat_map(move |members| {
        Just([ours.clone(), members].concat()).prop_shuffle().prop_map(|members| format!("{{{}}}", members.join(",")))
    });
    // Sometimes a character is lost or doubled.
    (record, any::<proptest::sample::Index>(), 0..6_u8).prop_map(|(text, at, change)| {
        let mut chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        match change {
            0 => drop(chars.remove(at)),
            1 => chars.insert(at, chars[at]),
            _ => {}
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn records_become_what_a_naive_decoder_says(text in record_text()) {
        let dataset = dataset(&[("x", "long"), ("s", "string"), ("d", "decimal(9,2)")]);
        let outcome = decode(&dataset, FileFormat::Json, "a", text.clone().into_bytes());
        let got = (outcome.rows.num_rows() == 1).then(|| {
            let x: Int64Array = outcome.array("x");
            let s: StringArray = outcome.array("s");
            let d: Decimal128Array = outcome.array("d");
            let rescued: StringArray = outcome.array("_rescued");
            let rescued = if rescued.is_null(0) { BTreeMap::new() } else { serde_json::from_str(rescued.value(0)).unwrap() };
            (
                x.is_valid(0).then(|| x.value(0).into()),
                s.is_valid(0).then(|| s.value(0).to_owned()),
                d.is_valid(0).then(|| d.value(0)),
                rescued,
            )
        });
        prop_assert_eq!(got, naive(&text));
        if let Some(refused) = outcome.refused.first() {
            prop_assert_eq!(&refused.raw, text.as_bytes());
        }
    }

    #[test]
    fn any_instant_comes_back_from_its_text(micros in FIRST..=LAST, minutes in -1439_i32..=1439) {
        let instant = DateTime::<Utc>::from_timestamp_micros(micros).unwrap();
        for text in [
            instant.to_rfc3339_opts(SecondsFormat::Micros, true),
            instant.format("%Y-%m-%d %H:%M:%S%.6f UTC").to_string(),
            instant.format("%Y-%m-%dt%H:%M:%S%.9fz").to_string(),
            instant.format("%Y-%m-%d %H:%M:%S%.6f").to_string(),
        ] {
            prop_assert_eq!(time::timestamp(&text), Ok(micros));
        }
        let zone = chrono::FixedOffset::east_opt(minutes * 60).unwrap();
        let local = zone.from_utc_datetime(&instant.naive_utc());
        if (1..=9999).contains(&local.year()) {
            prop_assert_eq!(time::timestamp(&local.format("%Y-%m-%dT%H:%M:%S%.6f%:z").to_string()), Ok(micros));
        }
        let mut text = String::new();
        time::push(&mut text, i128::from(micros) * 1000, false);
        prop_assert_eq!(DateTime::parse_from_rfc3339(&text).unwrap().timestamp_micros(), micros);
        prop_assert_eq!(time::day_of(micros), instant.date_naive().signed_duration_since(DateTime::UNIX_EPOCH.date_naive()).num_days() as i32);
    }

    #[test]
    fn any_day_comes_back_from_its_text(days in -719_162..=2_932_896_i32) {
        let day = chrono::NaiveDate::from_num_days_from_ce_opt(days + 719_163).unwrap();
        prop_assert_eq!(time::date(&day.format("%Y-%m-%d").to_string()), Ok(days));
    }

    #[test]
    fn any_long_and_decimal_come_back_from_their_texts(long in any::<i64>(), digits in any::<i128>(), scale in 0_u8..=38) {
        for kind in [Kind::Number, Kind::String] {
            prop_assert_eq!(convert::scalar(&DataType::Long, None, kind, &long.to_string()), Ok(Scalar::Integer(long)));
            let digits = digits % 10_i128.pow(38);
            let mut text = format!("{:0>39}", digits.unsigned_abs());
            text.insert(39 - usize::from(scale), '.');
            let text = text.trim_start_matches('0').trim_end_matches('.');
            let text = if text.is_empty() || text.starts_with('.') { format!("0{text}") } else { text.to_owned() };
            let text = if digits < 0 { format!("-{text}") } else { text };
            let data_type = DataType::Decimal { precision: 38, scale };
            prop_assert_eq!(convert::scalar(&data_type, None, kind, &text), Ok(Scalar::Decimal(digits)), "{}", text);
        }
    }
}
