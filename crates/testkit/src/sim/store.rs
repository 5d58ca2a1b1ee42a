//! The bucket as one life of a process sees it, with all that can go wrong between them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use super::bucket::{Bucket, Instant, Object};
use super::dice::hash;
use super::fate::{Fault, Verb};
use super::world::World;
use crate::clock::StepClock;

/// A process's way to the bucket.
#[derive(Debug, Clone)]
pub(super) struct SimStore {
    world: World,
    process: usize,
    life: u32,
    faults: bool,
}

/// Changes the bucket or looks at it, at a moment; for listings, at what was there at another.
type Effect<T> = Arc<dyn Fn(&mut Bucket, Instant, Instant) -> Result<T> + Send + Sync>;

impl SimStore {
    pub(super) fn new(world: &World, process: usize, life: u32, faults: bool) -> Self {
        Self { world: world.clone(), process, life, faults }
    }

    async fn wait(&self, time: Duration, turn: u64) {
        self.world.wait(Some((self.process, self.life)), time, turn).await;
    }

    /// Dies: whoever calls never goes on.
    async fn die<T>(&self) -> T {
        self.world.kill(self.process);
        std::future::pending().await
    }

    fn does<T>(&self, effect: &Effect<T>, earlier: Duration) -> Result<T> {
        let mut inner = self.world.inner();
        let now = inner.now;
        let then = now.saturating_sub(u64::try_from(earlier.as_nanos()).unwrap_or(u64::MAX));
        effect(&mut inner.bucket, now, then)
    }

    fn does_later<T: 'static>(&self, effect: Effect<T>, by: Duration, what: String) {
        let turn = hash(&what);
        self.world.later(by, turn, move |inner| {
            let now = inner.now;
            let _nobody_hears = effect(&mut inner.bucket, now, now);
        });
    }

    async fn operation<T: Send + 'static>(&self, verb: Verb, path: &Path, effect: Effect<T>) -> Result<T> {
        let failed = || Error::Generic { store: "SimStore", source: "the simulated store failed".into() };
        if self.world.is_dead(self.process, self.life) {
            return if self.world.here() { std::future::pending().await } else { Err(failed()) };
        }
        let (site, fate) = self.world.fate(self.process, self.life, verb, path.as_ref(), self.faults);
        if !self.world.here() {
            return match fate.fault {
                Some(Fault::Stale(by)) => self.does(&effect, by),
                Some(Fault::AnswerLost) => self.does(&effect, Duration::ZERO).and_then(|_| Err(failed())),
                Some(fault) if fault.may_fail() => Err(failed()),
                _ => self.does(&effect, Duration::ZERO),
            };
        }
        let tell = |outcome: &str| {
            let line = || format!("p{} {verb:?} {path}: {outcome}", self.process);
            self.world.tell(line, hash(&(&site, path.as_ref(), outcome)));
        };
        let what = || format!("{verb:?} {path} of p{}", self.process);
        if let Some(Fault::PausedBefore(time)) = fate.fault {
            tell(&format!("stands still for {} ms before it", time.as_millis()));
            self.world.pause(self.process, time);
        }
        self.wait(fate.there, fate.turn).await;
        let answer = match fate.fault {
            Some(fault @ Fault::Refused) => {
                tell(&fault.to_string());
                Err(failed())
            }
            Some(fault @ Fault::AnswerLost) => {
                tell(&fault.to_string());
                // What the store refuses by itself keeps its own error.
                self.does(&effect, Duration::ZERO).and_then(|_| Err(failed()))
            }
            Some(fault @ Fault::Late(by)) => {
                tell(&fault.to_string());
                self.does_later(effect, by, what());
                Err(failed())
            }
            Some(fault @ Fault::DiesBefore) => {
                tell(&fault.to_string());
                self.die().await
            }
            Some(fault @ Fault::DiesAfter) => {
                tell(&fault.to_string());
                let _nobody_hears = self.does(&effect, Duration::ZERO);
                self.die().await
            }
            Some(fault @ Fault::DiesLate(by)) => {
                tell(&fault.to_string());
                self.does_later(effect, by, what());
                self.die().await
            }
            Some(fault @ Fault::Stale(by)) => {
                tell(&fault.to_string());
                self.does(&effect, by)
            }
            None | Some(Fault::PausedBefore(_) | Fault::PausedAfter(_)) => {
                let answer = self.does(&effect, Duration::ZERO);
                tell(match &answer {
                    Ok(_) => "ok",
                    Err(Error::NotFound { .. }) => "not there",
                    Err(Error::AlreadyExists { .. }) => "exists",
                    Err(_) => "failed",
                });
                answer
            }
        };
        if let Some(fault @ Fault::PausedAfter(time)) = fate.fault {
            tell(&fault.to_string());
            self.world.pause(self.process, time);
        }
        self.wait(fate.back, fate.turn.wrapping_add(1)).await;
        answer
    }

    async fn put(&self, location: &Path, bytes: Bytes, create: bool) -> Result<PutResult> {
        let path = location.clone();
        let effect: Effect<PutResult> = Arc::new(move |bucket, now, _| {
            if !bucket.put(&path, bytes.clone(), create, now) {
                return Err(Error::AlreadyExists { path: path.to_string(), source: "it is there".into() });
            }
            let tag = bucket.get(&path).map(|o| o.number.to_string());
            Ok(PutResult { e_tag: tag, version: None })
        });
        self.operation(Verb::Put, location, effect).await
    }

    async fn delete_one(&self, location: Path) -> Result<Path> {
        let path = location.clone();
        let effect: Effect<Path> = Arc::new(move |bucket, now, _| {
            bucket.delete(&path, now);
            Ok(path.clone())
        });
        self.operation(Verb::Delete, &location, effect).await
    }

    async fn listed(&self, prefix: Option<Path>) -> Result<Vec<ObjectMeta>> {
        let place = prefix.clone().unwrap_or_default();
        let effect: Effect<Vec<ObjectMeta>> =
            Arc::new(move |bucket, _, then| Ok(bucket.list(prefix.as_ref(), then).map(|(path, o)| meta(path, o)).collect()));
        self.operation(Verb::List, &place, effect).await
    }

    fn listing(&self, prefix: Option<&Path>, after: Option<Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let all = async move {
            let found = store.listed(prefix).await?;
            let wanted = found.into_iter().filter(move |m| after.as_ref().is_none_or(|a| m.location > *a));
            Ok::<_, Error>(stream::iter(wanted.map(Ok)))
        };
        use futures::TryStreamExt;
        stream::once(all).try_flatten().boxed()
    }
}

/// The time of a moment of the world.
pub(super) fn time(at: Instant) -> DateTime<chrono::Utc> {
    DateTime::from_timestamp_micros(StepClock::START_MICROS + (at / 1000).cast_signed()).unwrap_or_default()
}

fn meta(path: &Path, object: &Object) -> ObjectMeta {
    ObjectMeta {
        location: path.clone(),
        last_modified: time(object.put_at),
        size: object.bytes.len() as u64,
        e_tag: Some(object.number.to_string()),
        version: None,
    }
}

impl fmt::Display for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStore({})", self.process)
    }
}

#[async_trait]
impl ObjectStore for SimStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let create = match opts.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => {
                return Err(Error::NotSupported { source: "updates are not simulated".into() });
            }
        };
        self.put(location, payload.into(), create).await
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Upload { store: self.clone(), location: location.clone(), parts: Vec::new() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = location.clone();
        let effect: Effect<(ObjectMeta, Bytes)> = Arc::new(move |bucket, _, _| match bucket.get(&path) {
            Some(object) => Ok((meta(&path, object), object.bytes.clone())),
            None => Err(Error::NotFound { path: path.to_string(), source: "it is not there".into() }),
        });
        let (meta, bytes) = self.operation(Verb::Get, location, effect).await?;
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(|e| Error::Generic { store: "SimStore", source: Box::new(e) })?,
            None => 0..meta.size,
        };
        let part = if options.head { Bytes::new() } else { bytes.slice(range.start as usize..range.end as usize) };
        let payload = GetResultPayload::Stream(stream::once(async { Ok(part) }).boxed());
        Ok(GetResult { payload, meta, range, attributes: Attributes::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let whole = self.get_opts(location, GetOptions::default()).await?.bytes().await?;
        Ok(ranges.iter().map(|r| whole.slice(r.start as usize..r.end as usize)).collect())
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move { store.delete_one(location?).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(prefix, None)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(prefix, Some(offset.clone()))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let depth = prefix.map_or(0, |p| p.parts().count());
        let mut result = ListResult { common_prefixes: Vec::new(), objects: Vec::new() };
        for found in self.listed(prefix.cloned()).await? {
            if found.location.parts().count() == depth + 1 {
                result.objects.push(found);
                continue;
            }
            let below: Path = found.location.parts().take(depth + 1).collect();
            if result.common_prefixes.last() != Some(&below) {
                result.common_prefixes.push(below);
            }
        }
        Ok(result)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let whole = self.get_opts(from, GetOptions::default()).await?.bytes().await?;
        self.put(to, whole, options.mode == CopyMode::Create).await.map(|_| ())
    }
}

/// A multipart upload: nothing is there before its completion.
#[derive(Debug)]
struct Upload {
    store: SimStore,
    location: Path,
    parts: Vec<Bytes>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.parts.push(data.into());
        std::future::ready(Ok(())).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.store.put(&self.location, Bytes::from(self.parts.concat()), false).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.parts.clear();
        Ok(())
    }
}
