//! Which rows belong to which partition.

use std::collections::HashMap;
use std::hash::BuildHasher;

use alluvium_core::{DatePartitionCount, Error, Kind, Result};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{Date32Type, Int8Type, Int16Type, Int32Type, Int64Type};
use arrow::row::{RowConverter, SortField};

use super::partition_value::partition_value;

/// The rows of one partition, as (batch, row) in input order.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) values: Vec<(String, Option<String>)>,
    pub(super) rows: Vec<(usize, usize)>,
}

/// Groups the rows of `batches` by the values of `columns`, in the order in which each partition first appears.
pub(super) fn group(batches: &[RecordBatch], columns: &[String]) -> Result<Vec<Partition>> {
    let mut partitions: Vec<Partition> = Vec::new();
    let mut index: HashMap<Box<[u8]>, usize> = HashMap::new();
    for (b, batch) in batches.iter().enumerate() {
        let keys: Vec<ArrayRef> = columns.iter().map(|c| column(batch, c).cloned()).collect::<Result<_>>()?;
        if keys.is_empty() {
            let rows = (0..batch.num_rows()).map(|r| (b, r));
            match partitions.first_mut() {
                Some(all) => all.rows.extend(rows),
                None => partitions.push(Partition { values: Vec::new(), rows: rows.collect() }),
            }
            continue;
        }
        let internal = |e| Error::new(Kind::Internal, "grouping rows by partition").source(e);
        let converter =
            RowConverter::new(keys.iter().map(|k| SortField::new(k.data_type().clone())).collect()).map_err(internal)?;
        let rows = converter.convert_columns(&keys).map_err(internal)?;
        let mut last: Option<(usize, usize)> = None;
        for r in 0..batch.num_rows() {
            let key = rows.row(r);
            let slot = match last {
                Some((row, slot)) if rows.row(row) == key => slot,
                _ => match index.get(key.as_ref()) {
                    Some(slot) => *slot,
                    None => {
                        let values = columns
                            .iter()
                            .zip(&keys)
                            .map(|(name, k)| Ok((name.clone(), partition_value(k, r)?)))
                            .collect::<Result<_>>()?;
                        partitions.push(Partition { values, rows: Vec::new() });
                        index.insert(key.as_ref().into(), partitions.len() - 1);
                        partitions.len() - 1
                    }
                },
            };
            partitions[slot].rows.push((b, r));
            last = Some((r, slot));
        }
    }
    Ok(partitions)
}

/// Adds the rows of `batch`, by organisation and event date, to `counts`.
pub(super) fn count(batch: &RecordBatch, org: &str, counts: &mut HashMap<(String, i32), u64>) -> Result<()> {
    let orgs = column(batch, org)?;
    let dates = column(batch, "event_date")?.as_primitive::<Date32Type>();
    // Runs of equal organisations are short, but their number is small: count per batch on hashes of borrowed text first.
    let mut local: HashMap<(OrgRef<'_>, i32), u64> = HashMap::new();
    for row in 0..batch.num_rows() {
        *local.entry((org_at(orgs, row)?, dates.value(row))).or_default() += 1;
    }
    for ((org, date), rows) in local {
        *counts.entry((org.text(), date)).or_default() += rows;
    }
    Ok(())
}

/// The counts in the order of organisation and date.
pub(super) fn sorted_counts<S: BuildHasher>(counts: HashMap<(String, i32), u64, S>) -> Vec<DatePartitionCount> {
    let mut sorted: Vec<DatePartitionCount> =
        counts.into_iter().map(|((org, event_date), inserted)| DatePartitionCount { org, event_date, inserted }).collect();
    sorted.sort_by(|a, b| (&a.org, a.event_date).cmp(&(&b.org, b.event_date)));
    sorted
}

#[derive(PartialEq, Eq, Hash)]
enum OrgRef<'a> {
    Text(&'a str),
    Number(i64),
}

impl OrgRef<'_> {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => (*text).to_owned(),
            Self::Number(number) => number.to_string(),
        }
    }
}

fn org_at(orgs: &ArrayRef, row: usize) -> Result<OrgRef<'_>> {
    use arrow::datatypes::DataType as T;
    Ok(match orgs.data_type() {
        T::Utf8 => OrgRef::Text(orgs.as_string::<i32>().value(row)),
        T::Int64 => OrgRef::Number(orgs.as_primitive::<Int64Type>().value(row)),
        T::Int32 => OrgRef::Number(orgs.as_primitive::<Int32Type>().value(row).into()),
        T::Int16 => OrgRef::Number(orgs.as_primitive::<Int16Type>().value(row).into()),
        T::Int8 => OrgRef::Number(orgs.as_primitive::<Int8Type>().value(row).into()),
        other => return Err(Error::new(Kind::Internal, format!("an organisation of type {other}"))),
    })
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::new(Kind::Internal, format!("staged rows lack the column {name}")))
}
