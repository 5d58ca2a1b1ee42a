//! Which rows belong to which partition.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use alluvium_core::{DatePartitionCount, Error, Kind, Result};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::datatypes::{Date32Type, Int8Type, Int16Type, Int32Type, Int64Type};
use arrow::row::{RowConverter, SortField};

use super::partition_value::partition_value;

/// Rows ordered by partition; made from a batch while it is still near the processor.
#[derive(Debug)]
pub struct Arranged {
    pub(super) rows: RecordBatch,
    pub(super) parts: Vec<Part>,
}

/// The rows of one partition in one batch.
#[derive(Debug)]
pub(super) struct Part {
    /// Equal for equal partition values, whatever the batch.
    pub(super) key: Box<[u8]>,
    pub(super) start: usize,
    pub(super) rows: usize,
}

impl Arranged {
    /// Bytes in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let parts = self.parts.iter().map(|p| size_of::<Part>() + p.key.len()).sum::<usize>();
        self.rows.get_array_memory_size() + parts
    }
}

/// Orders the rows of `batch` by the values of `columns`: partitions in the order in which each first appears, rows within one
/// as they were.
pub(super) fn arrange(batch: RecordBatch, columns: &[String]) -> Result<Arranged> {
    let internal = |e| Error::new(Kind::Internal, "grouping rows by partition").source(e);
    let rows = batch.num_rows();
    let keys: Vec<ArrayRef> = columns.iter().map(|c| column(&batch, c).cloned()).collect::<Result<_>>()?;
    if keys.is_empty() {
        return Ok(Arranged { rows: batch, parts: vec![Part { key: Box::default(), start: 0, rows }] });
    }
    let converter = RowConverter::new(keys.iter().map(|k| SortField::new(k.data_type().clone())).collect()).map_err(internal)?;
    let converted = converter.convert_columns(&keys).map_err(internal)?;
    let mut parts: Vec<Part> = Vec::new();
    let mut index: HashMap<&[u8], usize> = HashMap::new();
    let mut slots: Vec<usize> = Vec::with_capacity(rows);
    for row in 0..rows {
        let key = converted.row(row).data();
        let slot = match slots.last() {
            Some(last) if *parts[*last].key == *key => *last,
            _ => match index.get(key) {
                Some(slot) => *slot,
                None => {
                    parts.push(Part { key: key.into(), start: 0, rows: 0 });
                    index.insert(key, parts.len() - 1);
                    parts.len() - 1
                }
            },
        };
        parts[slot].rows += 1;
        slots.push(slot);
    }
    let mut start = 0;
    for part in &mut parts {
        part.start = start;
        start += part.rows;
    }
    if parts.len() == 1 {
        return Ok(Arranged { rows: batch, parts });
    }
    let mut next: Vec<usize> = parts.iter().map(|p| p.start).collect();
    let mut order = vec![0_u32; rows];
    for (row, slot) in slots.into_iter().enumerate() {
        order[next[slot]] = u32::try_from(row).map_err(|e| Error::new(Kind::Internal, "a batch of too many rows").source(e))?;
        next[slot] += 1;
    }
    let rows = take_record_batch(&batch, &UInt32Array::from(order)).map_err(internal)?;
    Ok(Arranged { rows, parts })
}

/// The rows of one partition in several batches: (batch, first row, rows), in input order.
#[derive(Debug)]
pub(super) struct Partition {
    key: Box<[u8]>,
    pub(super) runs: Vec<Run>,
}

/// Adjacent rows of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) batch: usize,
    pub(super) start: usize,
    pub(super) rows: usize,
}

impl Partition {
    pub(super) fn rows(&self) -> usize {
        self.runs.iter().map(|r| r.rows).sum()
    }

    /// The partition's values of `columns`, as its first row has them.
    pub(super) fn values(&self, batches: &[RecordBatch], columns: &[String]) -> Result<Vec<(String, Option<String>)>> {
        let Some(first) = self.runs.first() else { return Ok(Vec::new()) };
        let value = |name: &String| partition_value(column(&batches[first.batch], name)?, first.start);
        columns.iter().map(|name| Ok((name.clone(), value(name)?))).collect()
    }
}

/// Joins the parts of several batches; the largest partition comes first.
pub(super) fn partitions(parts: Vec<Vec<Part>>) -> Vec<Partition> {
    let mut partitions: Vec<Partition> = Vec::new();
    let mut index: HashMap<Box<[u8]>, usize> = HashMap::new();
    for (batch, parts) in parts.into_iter().enumerate() {
        for Part { key, start, rows } in parts {
            let slot = *index.entry(key.clone()).or_insert_with(|| {
                partitions.push(Partition { key, runs: Vec::new() });
                partitions.len() - 1
            });
            partitions[slot].runs.push(Run { batch, start, rows });
        }
    }
    partitions.sort_by_key(|p| std::cmp::Reverse(p.rows()));
    partitions
}

/// Takes the smallest partitions, of `rows` rows together at most, from the end of `partitions`, which are ordered by size.
pub(super) fn split_off_smallest(partitions: &mut Vec<Partition>, rows: usize) -> Vec<Partition> {
    let (mut from, mut taken) = (partitions.len(), 0);
    while from > 0 && taken + partitions[from - 1].rows() <= rows {
        from -= 1;
        taken += partitions[from].rows();
    }
    partitions.split_off(from)
}

/// The rows of `partitions`, copied out of `batches`.
pub(super) fn gather(batches: &[RecordBatch], partitions: Vec<Partition>) -> Result<Option<Arranged>> {
    let (mut parts, mut rows) = (Vec::with_capacity(partitions.len()), Vec::new());
    for Partition { key, runs } in partitions {
        let start = rows.len();
        rows.extend(expand(&runs));
        parts.push(Part { key, start, rows: rows.len() - start });
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let batches: Vec<&RecordBatch> = batches.iter().collect();
    let rows = interleave_record_batch(&batches, &rows)
        .map_err(|e| Error::new(Kind::Internal, "keeping rows of small partitions").source(e))?;
    Ok(Some(Arranged { rows, parts }))
}

/// The rows of `runs` one by one, as (batch, row).
pub(super) fn expand(runs: &[Run]) -> Vec<(usize, usize)> {
    runs.iter().flat_map(|run| (run.start..run.start + run.rows).map(|row| (run.batch, row))).collect()
}

/// Rows by organisation and event date, those of a whole attempt.
#[derive(Debug, Default)]
pub(super) struct Counts {
    orgs: HashMap<String, HashMap<i32, u64>>,
}

impl Counts {
    /// The counts in the order of organisation and date.
    pub(super) fn sorted(self) -> Vec<DatePartitionCount> {
        let mut orgs: Vec<_> = self.orgs.into_iter().collect();
        orgs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut sorted = Vec::with_capacity(orgs.iter().map(|(_, dates)| dates.len()).sum());
        for (org, dates) in orgs {
            let first = sorted.len();
            sorted.extend(dates.into_iter().map(|(event_date, inserted)| DatePartitionCount {
                updated: 0,
                deleted: 0,
                org: org.clone(),
                event_date,
                inserted,
            }));
            sorted[first..].sort_unstable_by_key(|count| count.event_date);
        }
        sorted
    }
}

/// Adds the rows of `batch`, by the organisation in the column `org` and by event date, to `counts`.
pub(super) fn count(batch: &RecordBatch, org: &str, counts: &Mutex<Counts>) -> Result<()> {
    let orgs = column(batch, org)?;
    let dates = column(batch, "event_date")?.as_primitive::<Date32Type>();
    // Once per batch on hashes of borrowed text, so that what all threads share is locked shortly.
    let mut local: HashMap<(OrgRef<'_>, i32), u64> = HashMap::new();
    for row in 0..batch.num_rows() {
        *local.entry((org_at(orgs, row)?, dates.value(row))).or_default() += 1;
    }
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    for ((org, date), rows) in local {
        let dates = match org {
            OrgRef::Text(text) => match counts.orgs.get_mut(text) {
                Some(dates) => dates,
                None => counts.orgs.entry(text.to_owned()).or_default(),
            },
            OrgRef::Number(number) => counts.orgs.entry(number.to_string()).or_default(),
        };
        *dates.entry(date).or_default() += rows;
    }
    Ok(())
}

#[derive(PartialEq, Eq, Hash)]
enum OrgRef<'a> {
    Text(&'a str),
    Number(i64),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow::array::{Date32Array, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn batch(rows: &[(&str, i64)]) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("org", DataType::Utf8, false), Field::new("n", DataType::Int64, false)]);
        let orgs = StringArray::from_iter_values(rows.iter().map(|r| r.0));
        let numbers = Int64Array::from_iter_values(rows.iter().map(|r| r.1));
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(orgs), Arc::new(numbers)]).unwrap()
    }

    fn arranged(rows: &[(&str, i64)]) -> Arranged {
        arrange(batch(rows), &["org".to_owned()]).unwrap()
    }

    fn numbers(batches: &[RecordBatch], partition: &Partition) -> (String, Vec<i64>) {
        let values = expand(&partition.runs).into_iter().map(|(b, r)| batches[b].column(1).as_primitive::<Int64Type>().value(r));
        let org = partition.values(batches, &["org".to_owned()]).unwrap().remove(0).1.unwrap();
        (org, values.collect())
    }

    #[test]
    fn rows_are_grouped_by_partition_in_input_order_and_the_largest_comes_first() {
        let (one, two) = (arranged(&[("a", 1), ("b", 2), ("a", 3)]), arranged(&[("c", 4), ("b", 5), ("b", 6), ("b", 7)]));
        let batches = [one.rows, two.rows];
        let found: Vec<_> = partitions(vec![one.parts, two.parts]).iter().map(|p| numbers(&batches, p)).collect();
        assert_eq!(found, [("b".to_owned(), vec![2, 5, 6, 7]), ("a".to_owned(), vec![1, 3]), ("c".to_owned(), vec![4])]);
    }

    #[test]
    fn rows_are_counted_by_organisation_and_date_over_batches() {
        let schema =
            Schema::new(vec![Field::new("org", DataType::Utf8, false), Field::new("event_date", DataType::Date32, false)]);
        let counts = Mutex::new(Counts::default());
        for (orgs, dates) in [(vec!["b", "a", "b"], vec![7, 9, 7]), (vec!["a", "b", "a"], vec![-1, 8, 9])] {
            let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(orgs)), Arc::new(Date32Array::from(dates))];
            count(&RecordBatch::try_new(Arc::new(schema.clone()), columns).unwrap(), "org", &counts).unwrap();
        }
        let sorted = counts.into_inner().unwrap().sorted();
        let found: Vec<_> = sorted.iter().map(|c| (c.org.as_str(), c.event_date, c.inserted)).collect();
        assert_eq!(found, [("a", -1, 1), ("a", 9, 2), ("b", 7, 2), ("b", 8, 1)]);
    }

    #[test]
    fn the_smallest_partitions_are_kept_whole_and_join_what_comes_next() {
        let one = arranged(&[("a", 1), ("b", 2), ("a", 3), ("c", 4), ("a", 5), ("a", 6)]);
        let batches = [one.rows];
        let mut all = partitions(vec![one.parts]);
        let kept = gather(&batches, split_off_smallest(&mut all, 1)).unwrap().unwrap();
        assert_eq!(all.len(), 2, "of the two partitions of one row, one fits into the rows to keep");
        let next = arranged(&[("c", 7), ("d", 8)]);
        let batches = [kept.rows, next.rows];
        let joined: Vec<_> = partitions(vec![kept.parts, next.parts]).iter().map(|p| numbers(&batches, p)).collect();
        assert_eq!(joined, [("c".to_owned(), vec![4, 7]), ("d".to_owned(), vec![8])]);
    }
}
