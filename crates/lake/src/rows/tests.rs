//! Files by hand: which rows are kept, and what is held of large row groups while they are read.

#![allow(clippy::unwrap_used)]

use parquet::arrow::arrow_reader::ArrowReaderOptions;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::compute::concat_batches;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::*;

#[test]
fn kept_rows_are_all_without_the_deleted_or_the_marked_without_the_others() {
    for (of, without, total, kept) in [
        (None, &[][..], 5, vec![(0, 5)]),
        (None, &[0, 2, 3, 9], 5, vec![(1, 2), (4, 5)]),
        (None, &[4], 5, vec![(0, 4)]),
        (None, &[0, 1], 2, vec![]),
        (Some(&[1, 2, 4, 7][..]), &[2], 5, vec![(1, 2), (4, 5)]),
        (Some(&[1, 2, 3]), &[], 5, vec![(1, 4)]),
        (Some(&[1]), &[1], 5, vec![]),
    ] {
        let ranges: Vec<(usize, usize)> = kept_ranges(of, without, total).iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(ranges, kept, "{of:?} without {without:?} of {total}");
    }
}

/// Rows of numbers, of texts that do not compress, and of a few texts that a dictionary makes small.
fn written(rows: i64) -> RecordBatch {
    let noise = |i: i64| i.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n: ArrayRef = Arc::new(Int64Array::from_iter((0..rows).map(|i| (i % 7 > 0).then_some(i))));
    let texts = (0..rows).map(|i| (0..=i % 20).map(|part| format!("{:016x}", noise(i * 20 + part))).collect::<String>());
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let few: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|i| format!("{}", i % 3).repeat(50))));
    RecordBatch::try_from_iter_with_nullable([("n", n, true), ("text", text, false), ("few", few, false)]).unwrap()
}

/// A file with these rows in row groups of 8000 and small pages, in a store.
async fn stored(rows: &RecordBatch) -> (Arc<InMemory>, DataFile) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(8000))
        .set_data_page_size_limit(4096)
        .set_write_batch_size(64)
        .set_compression(Compression::SNAPPY)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
    let (store, path) = (Arc::new(InMemory::new()), Path::from("part.parquet"));
    let size = bytes.len() as u64;
    store.put(&path, bytes.into()).await.unwrap();
    (store.clone(), DataFile { store, path, size })
}

async fn metadata(file: &DataFile) -> ArrowReaderMetadata {
    ArrowReaderMetadata::load_async(&mut file.clone(), ArrowReaderOptions::new()).await.unwrap()
}

const WINDOW_BYTES: u64 = 256 << 10;

async fn read_in_windows(file: DataFile, selection: Option<RowSelection>) -> Vec<RecordBatch> {
    let metadata = metadata(&file).await;
    let plan = Plan { batch_rows: 500, mask: ProjectionMask::all(), selection };
    let stream = in_windows(file, metadata, plan, WINDOW_BYTES).unwrap();
    stream.try_collect().await.map_err(|_| "cannot be read").unwrap()
}

#[tokio::test]
async fn rows_read_in_windows_are_those_of_the_file() {
    let rows = written(20_000);
    let (_store, file) = stored(&rows).await;
    let stored = largest_stored_bytes(metadata(&file).await.metadata(), &ProjectionMask::all());
    assert!(stored > 4 * WINDOW_BYTES, "only {stored} bytes: nothing is read in windows");
    let read = read_in_windows(file, None).await;
    assert_eq!(concat_batches(&rows.schema(), &read).unwrap(), rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn selected_rows_read_in_windows_are_those_selected() {
    let rows = written(20_000);
    let (_store, file) = stored(&rows).await;
    // A row, a gap within a page, a run across two row groups, a gap over many windows, and the last row.
    let ranges = [0..1, 3..50, 7_900..8_100, 19_999..20_000];
    let kept: Vec<RecordBatch> = ranges.iter().map(|r| rows.slice(r.start, r.end - r.start)).collect();
    let selection = RowSelection::from_consecutive_ranges(ranges.into_iter(), 20_000);
    let read = read_in_windows(file, Some(selection)).await;
    assert_eq!(concat_batches(&rows.schema(), &read).unwrap(), concat_batches(&rows.schema(), &kept).unwrap());
}

#[tokio::test]
async fn windows_hold_their_part_of_the_budget() {
    let rows = written(20_000);
    let (_store, file) = stored(&rows).await;
    let metadata = metadata(&file).await;
    let windows = Windows::new(file, metadata.metadata(), &ProjectionMask::all(), WINDOW_BYTES).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(windows.clone(), metadata);
    let mut reader = builder.with_batch_size(500).build().unwrap();
    let (mut most, mut batches) = (0, 0);
    loop {
        let again = windows.clone();
        let (batch, back) = blocking("reading", move || Ok((again.next_batch(&mut reader), reader))).await.unwrap();
        reader = back;
        let Some(batch) = batch.unwrap() else { break };
        batches += usize::from(batch.num_rows() > 0);
        most = most.max(windows.bytes());
    }
    assert_eq!(batches, 40);
    // Beside them, what is left of a window and the page that goes over its end.
    assert!(most > WINDOW_BYTES / 4 && most <= WINDOW_BYTES + WINDOW_BYTES / 4, "{most} bytes were held");
}

#[tokio::test]
async fn a_file_that_goes_while_it_is_read_in_windows_is_no_longer_kept() {
    let (store, file) = stored(&written(20_000)).await;
    let path = file.path.clone();
    let metadata = metadata(&file).await;
    let plan = Plan { batch_rows: 500, mask: ProjectionMask::all(), selection: None };
    let mut stream = in_windows(file, metadata, plan, WINDOW_BYTES).unwrap();
    assert!(stream.try_next().await.is_ok_and(|first| first.is_some()));
    store.delete(&path).await.unwrap();
    let failed = loop {
        match stream.try_next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the rest of the file was read from nowhere"),
            Err(Fault::File(e)) => break e,
            Err(Fault::Ours(e)) => panic!("{e}"),
        }
    };
    let ParquetError::External(below) = failed else { panic!("{failed}") };
    let below = below.downcast_ref::<object_store::Error>();
    assert!(matches!(below, Some(object_store::Error::NotFound { .. })), "{below:?}");
}
