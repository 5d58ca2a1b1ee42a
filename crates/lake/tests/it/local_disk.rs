//! What only a local disk can get wrong.

use alluvium_core::{Attempt, BatchKey, BatchNumber, ChainId, DatasetName, Durability, Incarnation, Job, Shard, data_file};
use alluvium_lake::{PutNew, Store};
use bytes::Bytes;
use object_store::path::Path;

#[tokio::test(flavor = "multi_thread")]
async fn longest_data_file_name_can_be_put() {
    let dir = tempfile::tempdir().unwrap();
    let chain = ChainId {
        incarnation: Incarnation("0".repeat(32)),
        job: Job::Optimize,
        dataset: DatasetName("d".repeat(100)),
        shard: Shard(u32::MAX),
    };
    let name =
        data_file(&chain, BatchKey { batch: BatchNumber(u64::MAX >> 11), attempt: Attempt::MAX }, &"a".repeat(32), u32::MAX);
    for durability in [Durability::Disk, Durability::Process] {
        let store = Store::open(&format!("./{durability:?}"), dir.path(), durability).unwrap();
        let path = Path::from(format!("t/{name}"));
        assert_eq!(store.stage(&path, Bytes::from_static(b"x")).await.unwrap(), PutNew::Created);
        assert_eq!(store.put_new(&path, Bytes::from_static(b"y")).await.unwrap(), PutNew::Exists);
        assert_eq!(store.get(&path).await.unwrap(), Some(Bytes::from_static(b"x")));
    }
}
