//! A data file in the store, read by ranges.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::log::ChangedFile;

/// So much of a file's end is read at once, in the hope that the footer is in it.
const FOOTER_HINT_BYTES: usize = 64 << 10;

/// A data file in the store.
#[derive(Debug, Clone)]
pub(super) struct DataFile {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) path: Path,
    pub(super) size: u64,
}

impl DataFile {
    pub(super) async fn new(store: Arc<dyn ObjectStore>, file: &ChangedFile) -> Result<Self, ParquetError> {
        let size = match file.size {
            Some(size) => size,
            None => store.head(&file.path).await?.size,
        };
        Ok(Self { store, path: file.path.clone(), size })
    }
}

impl AsyncFileReader for DataFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move { Ok(self.store.get_range(&self.path, range).await?) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move { Ok(self.store.get_ranges(&self.path, &ranges).await?) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move {
            let footer = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER_HINT_BYTES));
            let size = self.size;
            Ok(Arc::new(footer.load_and_finish(self, size).await?))
        }
        .boxed()
    }
}
