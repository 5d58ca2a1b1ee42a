//! Changes read from the first version to the last, held against the versions themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use alluvium_core::{Dataset, ReadKind};
use alluvium_engine::{ChangesRequest, Engine};
use alluvium_testkit::{Change, Place, Row, Walk};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Date32Type, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use chrono::DateTime;

/// Every version's changed rows are those that the version changed; and put one upon another they give the table.
pub async fn check_changes(walk: &Walk, engine: &Engine, dataset: &Dataset) {
    let request = ChangesRequest { kind: ReadKind::Rows, consumer: None, since: None, snapshot: false };
    let mut reader = engine.changes(dataset, &request).await.unwrap();
    let mut changes = reader.read().await.unwrap();
    let mut told: BTreeMap<usize, BTreeMap<Place, Change>> = BTreeMap::new();
    let mut replayed: BTreeMap<Place, Arc<Row>> = BTreeMap::new();
    let mut preimage: Option<(Place, Arc<Row>)> = None;
    while let Some(batch) = changes.next().await.unwrap() {
        for mut row in rows_of(&batch) {
            let what = row.remove("_change_type").unwrap();
            let version: usize = row.remove("_commit_version").unwrap().parse().unwrap();
            row.remove("_commit_timestamp").unwrap();
            let place: Place = (row["_source"].clone(), row["_offset"].parse().unwrap());
            let row = Arc::new(row);
            let of_version = told.entry(version).or_default();
            let in_place = |replayed: &BTreeMap<Place, Arc<Row>>| replayed.get(&place) == Some(&row);
            match what.as_str() {
                "insert" => {
                    assert!(replayed.insert(place.clone(), row.clone()).is_none(), "inserted twice: {row:?}");
                    assert!(of_version.insert(place, (None, Some(row))).is_none());
                }
                "delete" => {
                    assert!(in_place(&replayed), "deleted as it was not: {row:?}");
                    replayed.remove(&place);
                    assert!(of_version.insert(place, (Some(row), None)).is_none());
                }
                "update_preimage" => {
                    assert!(in_place(&replayed), "updated as it was not: {row:?}");
                    assert!(preimage.replace((place, row)).is_none(), "a preimage without its postimage");
                }
                "update_postimage" => {
                    let (before, old) = preimage.take().expect("a preimage is right before its postimage");
                    assert_eq!(before, place);
                    replayed.insert(place.clone(), row.clone());
                    assert!(of_version.insert(place, (Some(old), Some(row))).is_none());
                }
                other => panic!("{other} is no change"),
            }
        }
    }
    assert!(preimage.is_none());
    for (number, version) in walk.versions.iter().enumerate() {
        let told = told.remove(&number).unwrap_or_default();
        assert_eq!(told, version.changed, "changes of version {number} of {}: told, and made", dataset.name);
    }
    assert!(told.is_empty(), "changes of versions that are not there: {:?}", told.keys());
    assert_eq!(replayed, walk.rows(), "{}", dataset.name);
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let schema = batch.schema();
    let row = |at: usize| {
        let columns = schema.fields().iter().zip(batch.columns());
        columns.filter_map(|(field, column)| Some((field.name().clone(), text(column, at, false)?))).collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

/// A value as `TableReader` prints it; within others strings are quoted and null is spelled.
fn text(array: &dyn Array, row: usize, inside: bool) -> Option<String> {
    if array.is_null(row) {
        return inside.then(|| "null".to_owned());
    }
    let quoted = |text: &str| if inside { format!("\"{text}\"") } else { text.to_owned() };
    Some(match array.data_type() {
        DataType::Utf8 => quoted(array.as_string::<i32>().value(row)),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Float64 => format!("{:?}", array.as_primitive::<Float64Type>().value(row)),
        DataType::Date32 => {
            let days = i64::from(array.as_primitive::<Date32Type>().value(row));
            DateTime::from_timestamp(days * 86_400, 0).unwrap().format("%Y-%m-%d").to_string()
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            DateTime::from_timestamp_micros(micros).unwrap().format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
        }
        DataType::Struct(fields) => {
            let members = fields.iter().zip(array.as_struct().columns());
            let members = members.map(|(field, column)| format!("{}: {}", field.name(), text(column, row, true).unwrap()));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            let items = (0..items.len()).map(|at| text(&items, at, true).unwrap());
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        other => panic!("no text of {other}"),
    })
}
