//! Which requests were accepted, by their ids: so that the same is taken once, and another of the same id refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alluvium_core::{BatchNumber, BatchSpan, Error, Incarnation, Kind, Pseudonyms, Request, RequestDigest, Result};
use alluvium_lake::{KeyMap, MergeMode, ShutSortedFile, SortedKey, SortedWriter};
use tokio::sync::OnceCell;
use xxhash_rust::xxh3::xxh3_128;

use super::table::Accepted;
use crate::engine::Engine;
use crate::ledger::Series;

/// So many ids at most are looked up in files that are not opened for it.
const FEW_KEYS: usize = 1 << 14;

/// The ids of the requests that the batches up to one have accepted.
#[derive(Debug)]
pub(crate) struct RequestIds {
    shut: Series<ShutSortedFile>,
    /// The same, from the second look on.
    open: OnceCell<Series>,
    was_asked: AtomicBool,
    pseudonyms: Arc<Pseudonyms>,
}

/// What is known of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownRequest {
    pub(crate) digest: RequestDigest,
    pub(crate) batch: BatchNumber,
}

/// The key of a request's id.
pub(crate) fn id_key(request_id: &str) -> SortedKey {
    let mut key = [0; SortedKey::BYTES];
    key[..16].copy_from_slice(&xxh3_128(request_id.as_bytes()).to_be_bytes());
    SortedKey(key)
}

impl RequestIds {
    /// The ids of the batches up to `finished`, all of which are finished. What no file tells yet is read from `requests`.
    pub(crate) async fn open(engine: &Engine, incarnation: &Incarnation, finished: BatchNumber) -> Result<Self> {
        loop {
            let pseudonyms = engine.pseudonyms(incarnation).await?;
            match Self::open_of(engine, incarnation, finished, pseudonyms.clone()).await {
                Err(_) if engine.have_gone_on(incarnation, &pseudonyms).await? => {}
                opened => return opened,
            }
        }
    }

    async fn open_of(
        engine: &Engine,
        incarnation: &Incarnation,
        finished: BatchNumber,
        pseudonyms: Arc<Pseudonyms>,
    ) -> Result<Self> {
        let directory = engine.resolver.request_ids_dir(incarnation, pseudonyms.generation());
        let mut series = Series::open(&engine.store, directory, finished).await?;
        while series.to() < finished {
            let to = engine.batches_at_once(incarnation, series.to(), finished, engine.requests_folded_at_once()).await?;
            let Some(span) = BatchSpan::new(series.to(), to) else { break };
            let accepted = engine.accepted(incarnation, span, Some(pseudonyms.generation())).await?;
            Self::tell(engine, incarnation, pseudonyms.generation(), span, &accepted).await?;
            series.extend(finished).await?;
            if series.to() < to {
                return Err(Error::new(Kind::Unavailable, "an index of requests was written and is not there").hint("run again"));
            }
        }
        match series.merge_small(MergeMode::KeepAll, BatchNumber(0), 0, |_| String::new()).await {
            // Another process merges them.
            Err(e) if e.kind() == Kind::NotFound => {}
            merged => merged?,
        }
        Ok(Self { shut: series, open: OnceCell::new(), was_asked: AtomicBool::new(false), pseudonyms })
    }

    /// Writes down which requests the batches of a span accepted, if nobody else has.
    pub(crate) async fn tell(
        engine: &Engine,
        incarnation: &Incarnation,
        purge: u64,
        span: BatchSpan,
        accepted: &[Accepted],
    ) -> Result<()> {
        let of_id = |accepted: &Accepted| {
            (id_key(&accepted.request.id), encode(KnownRequest { digest: accepted.digest, batch: accepted.batch }))
        };
        let mut entries: Vec<(SortedKey, [u8; 40])> = accepted.iter().map(of_id).collect();
        entries.sort_unstable();
        let directory = engine.resolver.request_ids_dir(incarnation, purge);
        let mut writer = SortedWriter::new(&engine.store, Series::<ShutSortedFile>::path_in(&directory, span))?;
        for (key, value) in &entries {
            writer.push(*key, value)?;
        }
        match writer.finish("").await {
            // Another process was quicker with the same.
            Err(e) if e.kind() == Kind::Conflict => Ok(()),
            written => written.map(|_size| ()),
        }
    }

    /// The digest that is known of a request if a purge has replaced any of its ids.
    pub(crate) fn replaced_digest(&self, request: &Request) -> Option<RequestDigest> {
        self.pseudonyms.of_org(&request.org).map(|of_org| of_org.digest(request))
    }

    /// What is known of these ids' keys.
    pub(crate) async fn known(&self, mut keys: Vec<SortedKey>) -> Result<KeyMap<KnownRequest>> {
        let is_first = !self.was_asked.swap(true, Ordering::Relaxed);
        if is_first && keys.len() <= FEW_KEYS {
            keys.sort_unstable();
            keys.dedup();
            return Ok(self.shut.read_all(keys, decode).await?.into_iter().collect());
        }
        let open = self.open.get_or_try_init(|| self.shut.opened()).await?;
        keys.retain(|key| open.may_contain(key));
        keys.sort_unstable();
        keys.dedup();
        open.get_all(&keys, |known: &mut KeyMap<KnownRequest>, at, value| {
            known.insert(keys[at], decode(value)?);
            Ok(())
        })
        .await
    }
}

fn encode(known: KnownRequest) -> [u8; 40] {
    let mut value = [0; 40];
    value[..32].copy_from_slice(&known.digest.0);
    value[32..].copy_from_slice(&known.batch.0.to_le_bytes());
    value
}

fn decode(value: &[u8]) -> Result<KnownRequest> {
    let parts = value.split_at_checked(32).and_then(|(digest, batch)| Some((digest.try_into().ok()?, batch.try_into().ok()?)));
    let (digest, batch) = parts.ok_or_else(|| {
        Error::new(Kind::Corrupt, "an index of requests is damaged").hint("delete _alluvium/ledger: it is made again")
    })?;
    Ok(KnownRequest { digest: RequestDigest(digest), batch: BatchNumber(u64::from_le_bytes(batch)) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_known_reads_back() {
        let known = KnownRequest { digest: RequestDigest([7; 32]), batch: BatchNumber(1 << 40) };
        assert_eq!(decode(&encode(known)).unwrap(), known);
        assert_eq!(decode(&encode(known)[..39]).unwrap_err().kind(), Kind::Corrupt);
        assert_ne!(id_key("r1"), id_key("r2"));
    }
}
