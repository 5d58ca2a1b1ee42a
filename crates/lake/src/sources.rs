//! How the Kafka sources of datasets are cut into shards: written once, for good. The form is in `docs/formats/source-shards.md`.

use alluvium_core::{DatasetName, Error, Kind, Resolver, Result, SHARDS_FORMAT, SourceShards};
use bytes::Bytes;
use object_store::path::Path;

use crate::records::read_versioned;
use crate::store::Store;

/// How the dataset's source is cut, if that was fixed.
///
/// # Errors
/// [`Kind::Unavailable`] if the store failed, [`Kind::Corrupt`] or [`Kind::Unsupported`] if what stands there cannot be read.
pub async fn source_shards(store: &Store, resolver: &Resolver, dataset: &DatasetName) -> Result<Option<SourceShards>> {
    let path = resolver.source_file(dataset);
    let Some(bytes) = store.get(&Path::from(path.as_str())).await? else { return Ok(None) };
    read_versioned(&bytes, SHARDS_FORMAT, &path).map(Some)
}

/// Fixes how the dataset's source is cut. Durable on return; gives what stands there, which another process may have put first.
///
/// # Errors
/// As [`source_shards`].
pub async fn fix_source_shards(
    store: &Store,
    resolver: &Resolver,
    dataset: &DatasetName,
    shards: &SourceShards,
) -> Result<SourceShards> {
    let bytes = serde_json::to_vec(shards).map_err(|e| Error::new(Kind::Internal, "writing a source's shards").source(e))?;
    let path = resolver.source_file(dataset);
    let _what_stands_there_counts = store.put_new(&Path::from(path.as_str()), Bytes::from(bytes)).await?;
    source_shards(store, resolver, dataset)
        .await?
        .ok_or_else(|| Error::new(Kind::Unavailable, format!("{path} was written and is not there")).hint("run again"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use alluvium_core::Namespace;
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn the_golden_file_reads_and_writes_as_it_is() {
        let golden = include_str!("../tests/golden/source-shards-v1.json").trim_end();
        let shards: SourceShards = read_versioned(golden.as_bytes(), SHARDS_FORMAT, "shards").unwrap();
        assert_eq!((shards.topic.as_str(), shards.shards), ("dev.engagements", 4));
        assert_eq!(serde_json::to_string(&shards).unwrap(), golden);
        let newer = golden.replace("\"format\":1", "\"format\":2");
        let refused = read_versioned::<SourceShards>(newer.as_bytes(), SHARDS_FORMAT, "shards").unwrap_err();
        assert_eq!(refused.kind(), Kind::Unsupported);
    }

    #[tokio::test]
    async fn the_first_who_fixes_the_shards_wins() {
        let (store, resolver) = (Store::over(Arc::new(InMemory::new())), Resolver::new(Namespace::default()));
        let (dataset, wanted) =
            (DatasetName("edit".to_owned()), |shards| SourceShards { format: SHARDS_FORMAT, topic: "t".to_owned(), shards });
        assert_eq!(source_shards(&store, &resolver, &dataset).await.unwrap(), None);
        assert_eq!(fix_source_shards(&store, &resolver, &dataset, &wanted(3)).await.unwrap().shards, 3);
        assert_eq!(fix_source_shards(&store, &resolver, &dataset, &wanted(5)).await.unwrap().shards, 3);
    }
}
