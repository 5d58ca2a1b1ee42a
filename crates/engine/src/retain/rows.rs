//! Which rows of a batch are past their retention.

use alluvium_core::{Dataset, Result, RetentionBounds};
use arrow::array::{Array, RecordBatch};

use crate::resolve::{column, event_times, texts};

/// The rows that are past their retention, ascending. One without an event time never is.
pub(crate) fn past_rows(rows: &RecordBatch, dataset: &Dataset, bounds: &RetentionBounds) -> Result<Vec<usize>> {
    let Some(latest) = bounds.latest() else { return Ok(Vec::new()) };
    let events = column(rows, &dataset.event_time)?;
    let times = event_times(events)?;
    let early: Vec<usize> = (0..times.len()).filter(|row| times[*row] < latest && events.is_valid(*row)).collect();
    if early.is_empty() {
        return Ok(early);
    }
    let orgs = texts(column(rows, &dataset.org)?)?;
    let is_past = |row: &usize| {
        let org = if orgs.is_valid(*row) { orgs.value(*row) } else { "" };
        bounds.of(org).is_some_and(|bound| times[*row] < bound)
    };
    Ok(early.into_iter().filter(is_past).collect())
}
