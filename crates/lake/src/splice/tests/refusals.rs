//! Edits that cannot be meant.

use alluvium_core::Kind;
use arrow::array::{ArrayRef, Int64Array};
use parquet::file::properties::WriterProperties;
use std::sync::Arc;

use super::super::{ColumnEdit, Edits};
use super::support::{Dice, open, parquet, rows, settings, spec};
use crate::schema::arrow_schema;

#[tokio::test]
async fn edits_that_do_not_fit_the_file_or_the_table_are_refused() {
    let mut spec = spec();
    spec.partition_by = vec!["small".to_owned()];
    let schema = arrow_schema(&spec);
    let bytes = parquet(&rows(&schema, 10, &mut Dice::new(1)), WriterProperties::default());
    let file = open(&bytes).await.unwrap();
    let numbers = |count: usize| -> ArrayRef { Arc::new(Int64Array::from(vec![1; count])) };
    let edit =
        |column: &str, rows: &[u64], values: ArrayRef| ColumnEdit { column: column.to_owned(), rows: rows.to_vec(), values };
    for (deleted, columns, told) in [
        (vec![3, 2], vec![], "ascending"),
        (vec![2, 2], vec![], "ascending"),
        (vec![10], vec![], "ascending"),
        (vec![], vec![edit("number", &[1, 2], numbers(1))], "a value each"),
        (vec![], vec![edit("number", &[10], numbers(1))], "ascending"),
        (vec![], vec![edit("number", &[1], numbers(1)), edit("number", &[2], numbers(1))], "twice"),
        (vec![], vec![edit("id", &[1], numbers(1))], "not of type"),
        (vec![], vec![edit("other", &[1], numbers(1))], "no column"),
        (vec![], vec![edit("small", &[1], numbers(1))], "partitioned"),
    ] {
        let refused = file.splice(&Edits { deleted, columns }, &settings(&spec), None).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Internal);
        assert!(refused.message().contains(told), "{refused}");
    }
    let refused = file.rows_at(&schema, &[1, 0]).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Internal);
}

#[tokio::test]
async fn a_file_that_is_gone_is_not_found() {
    let schema = arrow_schema(&spec());
    let bytes = parquet(&rows(&schema, 10, &mut Dice::new(1)), WriterProperties::default());
    let gone = super::support::open_as(&bytes, super::support::Held::Whole, |entry| entry.path = "t/b.parquet".into())
        .await
        .unwrap_err();
    assert_eq!(gone.kind(), Kind::NotFound);
}
