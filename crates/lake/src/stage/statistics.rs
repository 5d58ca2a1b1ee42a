//! Delta's statistics of a file, from what its Parquet footer says.
//!
//! Bounds may be wider than the values but never narrower: text is cut (the upper bound then made greater), timestamps are
//! widened to whole milliseconds, and what cannot be bounded exactly has no bound.

use alluvium_core::{DataType, TableSpec};
use chrono::{DateTime, NaiveDate};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;
use serde_json::{Map, Number, Value, json};

use super::encode::EncodedFile;

/// Decimals of more digits are not exact in the floating point that readers take JSON numbers for.
const MAX_DECIMAL_PRECISION: u8 = 15;

/// The JSON text of the statistics of `file`.
pub(super) fn statistics(spec: &TableSpec, file: &EncodedFile) -> String {
    let mut leaf = 0;
    let (mut min, mut max, mut nulls) = (Map::new(), Map::new(), Map::new());
    for column in &spec.columns {
        let bounded = !file.with_nan.contains(&column.name);
        let found = column_statistics(&column.data_type, &file.metadata, &mut leaf, bounded);
        if spec.without_statistics.contains(&column.name) || spec.partition_by.contains(&column.name) {
            continue;
        }
        for (values, value) in [(&mut min, found.min), (&mut max, found.max), (&mut nulls, found.nulls)] {
            if let Some(value) = value {
                values.insert(column.name.clone(), value);
            }
        }
    }
    json!({ "numRecords": file.rows, "minValues": min, "maxValues": max, "nullCount": nulls }).to_string()
}

/// The statistics of a column.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) min: Option<Value>,
    pub(crate) max: Option<Value>,
    pub(crate) nulls: Option<Value>,
}

/// Statistics of a column; `leaf` moves past its Parquet leaves.
pub(crate) fn column_statistics(data_type: &DataType, metadata: &ParquetMetaData, leaf: &mut usize, bounded: bool) -> Found {
    match data_type {
        DataType::Struct(fields) => {
            let (mut min, mut max, mut nulls) = (Map::new(), Map::new(), Map::new());
            for field in fields {
                let found = column_statistics(&field.data_type, metadata, leaf, bounded);
                for (values, value) in [(&mut min, found.min), (&mut max, found.max), (&mut nulls, found.nulls)] {
                    if let Some(value) = value {
                        values.insert(field.name.clone(), value);
                    }
                }
            }
            let object = |values: Map<String, Value>| if values.is_empty() { None } else { Some(Value::Object(values)) };
            Found { min: object(min), max: object(max), nulls: object(nulls) }
        }
        DataType::Array(element) => {
            column_statistics(element, metadata, leaf, false);
            Found::default()
        }
        DataType::Map(key, value) => {
            column_statistics(key, metadata, leaf, false);
            column_statistics(value, metadata, leaf, false);
            Found::default()
        }
        simple => {
            let at = *leaf;
            *leaf += 1;
            leaf_statistics(simple, metadata, at, bounded)
        }
    }
}

fn leaf_statistics(data_type: &DataType, metadata: &ParquetMetaData, leaf: usize, bounded: bool) -> Found {
    let groups: Option<Vec<&Statistics>> = metadata.row_groups().iter().map(|g| g.column(leaf).statistics()).collect();
    let Some(groups) = groups else { return Found::default() };
    let nulls: Option<u64> = groups.iter().map(|s| s.null_count_opt()).sum();
    let rows = |i: usize| metadata.row_group(i).num_rows().unsigned_abs();
    // A row group of nothing but nulls has no bounds and takes none away.
    let valued: Vec<&Statistics> =
        groups.iter().enumerate().filter(|(i, s)| s.null_count_opt() != Some(rows(*i))).map(|(_, s)| *s).collect();
    let mut found = Found { nulls: nulls.map(Value::from), ..Found::default() };
    if bounded && !valued.is_empty() {
        let bounds: Option<Vec<(Bound, Bound)>> = valued.iter().map(|s| bounds(data_type, s)).collect();
        if let Some(bounds) = bounds {
            let least = bounds.iter().map(|b| &b.0).min_by(|a, b| a.order(b));
            let greatest = bounds.iter().map(|b| &b.1).max_by(|a, b| a.order(b));
            found.min = least.and_then(|b| b.json(data_type, false));
            found.max = greatest.and_then(|b| b.json(data_type, true));
        }
    }
    found
}

/// A bound in a form that orders as the column does.
enum Bound {
    Int(i128),
    Float(f64),
    Text(String),
}

impl Bound {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => unreachable!("bounds of one column are of one kind"),
        }
    }

    fn json(&self, data_type: &DataType, upper: bool) -> Option<Value> {
        Some(match (self, data_type) {
            (Self::Int(v), DataType::Date) => NaiveDate::from_epoch_days(i32::try_from(*v).ok()?)?.to_string().into(),
            (Self::Int(v), DataType::Timestamp) => {
                let micros = i64::try_from(*v).ok()?;
                let millis = if upper {
                    micros.div_euclid(1000) + i64::from(micros.rem_euclid(1000) > 0)
                } else {
                    micros.div_euclid(1000)
                };
                DateTime::from_timestamp_millis(millis)?.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string().into()
            }
            (Self::Int(v), DataType::Decimal { scale, .. }) => decimal_number(*v, *scale)?,
            (Self::Int(v), _) => i64::try_from(*v).ok()?.into(),
            (Self::Float(v), _) => Value::Number(Number::from_f64(*v)?),
            (Self::Text(v), _) => v.clone().into(),
        })
    }
}

fn bounds(data_type: &DataType, statistics: &Statistics) -> Option<(Bound, Bound)> {
    let text = |bytes: Option<&[u8]>| Some(Bound::Text(std::str::from_utf8(bytes?).ok()?.to_owned()));
    match (data_type, statistics) {
        (DataType::Binary | DataType::Boolean, _) => None,
        (DataType::Decimal { precision, .. }, _) if *precision > MAX_DECIMAL_PRECISION => None,
        (_, Statistics::Int32(s)) => Some((Bound::Int((*s.min_opt()?).into()), Bound::Int((*s.max_opt()?).into()))),
        (_, Statistics::Int64(s)) => Some((Bound::Int((*s.min_opt()?).into()), Bound::Int((*s.max_opt()?).into()))),
        (_, Statistics::Float(s)) => Some((Bound::Float((*s.min_opt()?).into()), Bound::Float((*s.max_opt()?).into()))),
        (_, Statistics::Double(s)) => Some((Bound::Float(*s.min_opt()?), Bound::Float(*s.max_opt()?))),
        // By an order of bytes that was not said, in files of old writers.
        (DataType::String, _) if statistics.is_min_max_deprecated() => None,
        (DataType::String, Statistics::ByteArray(s)) => Some((text(s.min_bytes_opt())?, text(s.max_bytes_opt())?)),
        _ => None,
    }
}

/// `unscaled / 10^scale` as a JSON number.
fn decimal_number(unscaled: i128, scale: u8) -> Option<Value> {
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = usize::from(scale) + 1);
    let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
    let sign = if unscaled < 0 { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    serde_json::from_str(&format!("{sign}{whole}{point}{fraction}")).ok()
}
