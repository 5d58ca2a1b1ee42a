//! New arrays for old ones: some rows gone, some values others.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, MutableArrayData, make_array};
use arrow::error::ArrowError;

/// The values of one column for some rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewValues<'a> {
    /// Positions, ascending.
    pub(super) rows: &'a [u64],
    /// A value for each, of the type of what they are put into.
    pub(super) values: &'a ArrayRef,
}

/// The part of ascending `positions` that lies in `rows`, as a range of it.
pub(super) fn within(positions: &[u64], rows: &Range<u64>) -> Range<usize> {
    positions.partition_point(|p| *p < rows.start)..positions.partition_point(|p| *p < rows.end)
}

/// The array that `old`, the values of `rows`, becomes without the rows `deleted` and with the values of `new`.
///
/// # Errors
/// If the text of the rows comes to more than an array can hold.
pub(super) fn changed(
    old: &ArrayRef,
    rows: Range<u64>,
    deleted: &[u64],
    new: Option<NewValues<'_>>,
) -> Result<ArrayRef, ArrowError> {
    let deleted = &deleted[within(deleted, &rows)];
    let hits = new.map_or(0..0, |n| within(n.rows, &rows));
    if deleted.is_empty() && hits.is_empty() {
        return Ok(old.clone());
    }
    let index = |position: u64| usize::try_from(position - rows.start).unwrap_or(usize::MAX);
    let old_data = old.to_data();
    let new_data = new.map(|n| n.values.to_data());
    let mut sources = vec![&old_data];
    sources.extend(&new_data);
    let mut made = MutableArrayData::new(sources, false, old.len() - deleted.len());
    let (mut deleted, mut hits) = (deleted.iter().map(|p| index(*p)).peekable(), hits.peekable());
    let hit_row = |hit: &usize| new.map_or(usize::MAX, |n| index(n.rows[*hit]));
    let mut from = 0;
    while from < old.len() {
        let gone = deleted.peek().copied().unwrap_or(old.len());
        let hit = hits.peek().map_or(old.len(), hit_row);
        let to = gone.min(hit);
        if from < to {
            made.try_extend(0, from, to)?;
        }
        if hit < gone
            && let Some(hit) = hits.next()
        {
            made.try_extend(1, hit, hit + 1)?;
        } else if gone < old.len() {
            deleted.next();
            if hit == gone {
                hits.next();
            }
        }
        from = to + 1;
    }
    Ok(make_array(made.freeze()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn rows_go_and_values_change_and_a_row_that_goes_takes_its_value_with_it() {
        let old: ArrayRef = Arc::new(Int64Array::from(vec![10, 11, 12, 13, 14]));
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4), Some(5)]));
        let rows = [99, 100, 102, 104, 105];
        let new = Some(NewValues { rows: &rows, values: &values });
        for (deleted, new, expected) in [
            (&[][..], None, vec![Some(10), Some(11), Some(12), Some(13), Some(14)]),
            (&[99, 100, 104, 105], None, vec![Some(11), Some(12), Some(13)]),
            (&[], new, vec![None, Some(11), Some(3), Some(13), Some(4)]),
            (&[100, 101, 102], new, vec![Some(13), Some(4)]),
            (&[101, 103], new, vec![None, Some(3), Some(4)]),
            (&[100, 101, 102, 103, 104], new, vec![]),
        ] {
            let made = changed(&old, 100..105, deleted, new).expect("five numbers");
            assert_eq!(made.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), expected, "{deleted:?}");
        }
    }
}
