//! Proves that a store refuses to put over what is there, once, before anything is relied upon: everything else here rests on it. The
//! form of what is remembered is in `docs/formats/store-proof.md`.

use alluvium_core::{Error, Kind, Resolver, Result};
use bytes::Bytes;
use futures::future::join_all;
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutOptions, PutResult};
use serde::{Deserialize, Serialize};

use super::error::may_pass;
use super::{PUT_TRIES, Store, store_error};
use crate::records::read_versioned;

/// The version of the stored form that this program writes and the newest it reads.
pub const STORE_PROOF_FORMAT: u32 = 1;
/// So many puts of one name at once; one may win.
const RACERS: usize = 4;
/// A store is refused that fails so many proofs: one may have been disturbed.
const MAX_PROOFS: u32 = 3;

#[derive(Debug, Serialize, Deserialize)]
struct StoreProof {
    format: u32,
    store: String,
    proved_at_ms: i64,
}

/// Makes sure that put-if-absent was proved for this store; proves it if nobody did.
///
/// # Errors
/// [`Kind::Unsupported`] if the store lets a put replace what is there, [`Kind::Conflict`] if the namespace is being deleted, [`Kind::Unavailable`] if it failed before that was told.
///
/// # Cancel safety
/// Cancelled anywhere, the store is proved or not; a probe may be left behind in the namespace's own directory.
pub(crate) async fn prove_once(store: &Store, resolver: &Resolver, now_ms: i64) -> Result<()> {
    let path = resolver.store_proof(store.identity());
    if let Some(bytes) = store.get(&Path::from(path.as_str())).await? {
        read_versioned::<StoreProof>(&bytes, STORE_PROOF_FORMAT, &path)?;
        return Ok(());
    }
    let mut tries = 1;
    while let Err(e) = prove(store, resolver).await {
        // Who deletes the namespace meanwhile takes the probes away, too.
        let deleting = store.get(&Path::from(resolver.deleting_mark())).await?.is_some();
        if e.kind() != Kind::Unsupported || (tries >= MAX_PROOFS && !deleting) {
            return Err(e);
        }
        if deleting {
            return Err(Error::new(Kind::Conflict, format!("namespace {} is being deleted", resolver.namespace()))
                .hint("run again when it is gone"));
        }
        tries += 1;
    }
    let proof = StoreProof { format: STORE_PROOF_FORMAT, store: store.identity().to_owned(), proved_at_ms: now_ms };
    let bytes = serde_json::to_vec(&proof).map_err(|e| Error::new(Kind::Internal, "remembering a proof").source(e))?;
    let _whoever_proved_it_first = store.put_new(&Path::from(path), Bytes::from(bytes)).await?;
    Ok(())
}

async fn prove(store: &Store, resolver: &Resolver) -> Result<()> {
    // Names of this proof alone: two processes may prove at once.
    let id = store.machine().fresh_id().simple().to_string();
    let probes = [format!("{id}-twice"), format!("{id}-at-once")].map(|name| Path::from(resolver.store_probe(&name)));
    let proved = async {
        twice(store, &probes[0]).await?;
        at_once(store, &probes[1]).await
    }
    .await;
    for probe in &probes {
        if let Err(error) = store.delete(probe).await {
            tracing::debug!(%probe, error = %error.chain_text(), "could not delete a probe");
        }
    }
    proved
}

/// Two puts of one name after each other.
async fn twice(store: &Store, probe: &Path) -> Result<()> {
    let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
    let failed = |e| store_error(e, "proving that a put does not replace what is there, at", probe.as_ref());
    match put(store, probe, &first).await {
        Ok(_) => {}
        Err(object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }) => {
            return Err(refusal(store, "it does not know puts that must not replace anything"));
        }
        // A put whose answer was lost is there all the same, and meets itself when it is tried again.
        Err(_) if store.get(probe).await?.as_ref() == Some(&first) => {}
        Err(e) => return Err(failed(e)),
    }
    let mut tries = 0;
    loop {
        tries += 1;
        match put(store, probe, &second).await {
            Ok(_) => return Err(refusal(store, "it let a second put of one name replace the first")),
            Err(e) if is_refusal(&e) => break,
            Err(e) if tries < PUT_TRIES && may_pass(&e) => {}
            Err(e) => return Err(failed(e)),
        }
    }
    match store.get(probe).await? {
        Some(there) if there == first => Ok(()),
        Some(_) => Err(refusal(store, "it said that it refused a second put of one name, and yet carried it out")),
        None => Err(refusal(store, "what was put is not there when it is read right after")),
    }
}

/// Several puts of one name at the same time, of which at most one may be told that it won, and whose content must then stand.
async fn at_once(store: &Store, probe: &Path) -> Result<()> {
    let contents: Vec<Bytes> = (0..RACERS).map(|i| Bytes::from(format!("racer {i}"))).collect();
    let answers = join_all(contents.iter().map(|content| put(store, probe, content))).await;
    let winners: Vec<&Bytes> = contents.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()).map(|(c, _)| c).collect();
    if winners.len() > 1 {
        return Err(refusal(store, "of several puts of one name at once it let more than one win"));
    }
    match (winners.first(), store.get(probe).await?) {
        (Some(won), Some(there)) if there != **won => {
            Err(refusal(store, "of several puts of one name at once it kept another than it said"))
        }
        (Some(_), None) => Err(refusal(store, "what was put is not there when it is read right after")),
        _ => Ok(()),
    }
}

async fn put(store: &Store, path: &Path, content: &Bytes) -> object_store::Result<PutResult> {
    store.object_store().put_opts(path, content.clone().into(), PutOptions::from(PutMode::Create)).await
}

fn is_refusal(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. })
}

fn refusal(store: &Store, why: &str) -> Error {
    Error::new(Kind::Unsupported, format!("the store {} cannot be used: {why}", store.identity())).hint(
        "rows would be lost or taken twice on it: use a store with conditional puts (If-None-Match), such as S3 itself, GCS, Azure or a local disk",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fmt;
    use std::sync::Arc;

    use alluvium_core::Namespace;
    use async_trait::async_trait;
    use futures::stream::BoxStream;
    use object_store::memory::InMemory;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStoreExt, PutMultipartOptions,
        PutPayload,
    };

    use super::*;

    /// Looks first and puts then, as some programs that speak S3's language do: two at once both win.
    #[derive(Debug)]
    struct LooksFirst(InMemory);

    impl fmt::Display for LooksFirst {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("LooksFirst")
        }
    }

    #[async_trait]
    impl ObjectStore for LooksFirst {
        async fn put_opts(&self, to: &Path, payload: PutPayload, _: PutOptions) -> object_store::Result<PutResult> {
            if self.0.head(to).await.is_ok() {
                return Err(object_store::Error::AlreadyExists { path: to.to_string(), source: "there".into() });
            }
            tokio::task::yield_now().await;
            self.0.put(to, payload).await
        }

        async fn put_multipart_opts(&self, to: &Path, o: PutMultipartOptions) -> object_store::Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(to, o).await
        }

        async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
            self.0.get_opts(location, options).await
        }

        fn delete_stream(
            &self,
            locations: BoxStream<'static, object_store::Result<Path>>,
        ) -> BoxStream<'static, object_store::Result<Path>> {
            self.0.delete_stream(locations)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
            self.0.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }

    #[tokio::test]
    async fn a_store_that_looks_first_and_puts_then_is_refused_and_nothing_stays() {
        let store = Store::over(Arc::new(LooksFirst(InMemory::new())));
        let error = prove_once(&store, &Resolver::new(Namespace::default()), 7).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.message().contains("let more than one win"), "{error}");
        assert_eq!(store.list(&Path::from("default"), None).await.unwrap(), []);
    }

    #[test]
    fn the_golden_file_reads_and_writes_as_it_is_and_a_newer_format_is_refused() {
        let golden = include_str!("../../tests/golden/store-proof-v1.json").trim_end();
        let proof: StoreProof = read_versioned(golden.as_bytes(), STORE_PROOF_FORMAT, "proof").unwrap();
        assert_eq!((proof.store.as_str(), proof.proved_at_ms), ("s3://bucket at https://s3.example.com", 1_795_965_978_528));
        assert_eq!(serde_json::to_string(&proof).unwrap(), golden);
        let newer = read_versioned::<StoreProof>(br#"{"format":2}"#, STORE_PROOF_FORMAT, "proof").unwrap_err();
        assert_eq!(newer.kind(), Kind::Unsupported);
    }

    #[tokio::test]
    async fn a_store_that_keeps_what_is_there_is_proved_once_and_no_probe_stays() {
        let (memory, resolver) = (Arc::new(InMemory::new()), Resolver::new(Namespace::default()));
        let store = Store::over(memory.clone());
        prove_once(&store, &resolver, 7).await.unwrap();
        let left = store.list(&Path::from("default"), None).await.unwrap();
        assert_eq!(left.len(), 1, "{left:?}");
        let proof = store.get(&left[0].path).await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&proof).contains("\"proved_at_ms\":7"));
        prove_once(&store, &resolver, 8).await.unwrap();
        assert_eq!(store.get(&left[0].path).await.unwrap().unwrap(), proof);
    }
}
