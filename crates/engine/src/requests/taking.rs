//! Requests on their way into the table `requests`: read, held against the declarations, and told from those that were there before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alluvium_core::{BatchNumber, Dataset, Error, Kind, Request, RequestDigest, Result, read_request};
use alluvium_lake::{KeyMap, SortedKey};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::ids::{KnownRequest, RequestIds, id_key};
use super::table::{Accepted, request_rows};
use crate::ingest::{Made, Open, Origin, Taking};
use crate::source::{Chunk, RawRecord, Refused, values_of};

/// So many requests of a batch are kept in memory until they are folded, at most.
const KEPT_REQUESTS: usize = 1 << 16;

/// A request as it was read.
#[derive(Debug)]
pub(crate) struct Taken {
    /// Its record in the source.
    pub(crate) record: u64,
    pub(crate) request: Arc<Request>,
    /// Its stored form.
    pub(crate) json: String,
    pub(crate) digest: RequestDigest,
    /// The key of its id.
    key: SortedKey,
    /// As it came.
    raw: Bytes,
}

impl Taken {
    /// About what it takes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 2 * self.json.len() + self.raw.len()
    }
}

/// Takes requests in.
pub(crate) struct RequestTaking<'a> {
    datasets: &'a [Dataset],
    ids: RequestIds,
    batch: BatchNumber,
    /// Those that were there before this batch.
    known: Mutex<KeyMap<KnownRequest>>,
    /// Those of this batch.
    taken: Mutex<KeyMap<RequestDigest>>,
    /// The same, whole, unless they are too many.
    accepted: Mutex<Vec<Accepted>>,
    repeated: AtomicU64,
}

impl<'a> RequestTaking<'a> {
    pub(crate) fn new(datasets: &'a [Dataset], ids: RequestIds, batch: BatchNumber) -> Self {
        Self {
            datasets,
            ids,
            batch,
            known: Mutex::default(),
            taken: Mutex::default(),
            accepted: Mutex::default(),
            repeated: AtomicU64::new(0),
        }
    }

    /// How many came that were accepted before.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Those that were accepted, unless they are too many to be kept.
    pub(crate) fn into_accepted(self) -> Option<Vec<Accepted>> {
        let accepted = self.accepted.into_inner().unwrap_or_else(PoisonError::into_inner);
        let all = self.taken.into_inner().unwrap_or_else(PoisonError::into_inner).len();
        (accepted.len() == all).then_some(accepted)
    }
}

impl Taking for RequestTaking<'_> {
    fn take(&self, chunk: Chunk, _: &Origin, _: i64) -> Result<Made> {
        let (mut requests, mut raws, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let fits = |field: &alluvium_core::Field, json: &str| match values_of(field, &[json]) {
            Ok(_) => Ok(()),
            Err(e) => Err(e.message().to_owned()),
        };
        chunk.each_record(|record, raw| {
            let (bytes, reason, field) = match raw {
                RawRecord::Text(text) => match read_request(text, self.datasets, &fits) {
                    Ok(request) => {
                        let (json, digest) = request.stored();
                        let (key, start) = (id_key(&request.id), raws.len());
                        raws.extend_from_slice(text.as_bytes());
                        requests.push((
                            start..raws.len(),
                            Taken { record, request: Arc::new(request), json, digest, key, raw: Bytes::new() },
                        ));
                        return;
                    }
                    Err(refusal) => (text.as_bytes(), refusal.reason, Some(refusal.field).filter(|f| !f.is_empty())),
                },
                RawRecord::Tombstone => (&[][..], "a tombstone: the message has no value".to_owned(), None),
                RawRecord::Unreadable(bytes, why) => (bytes, why.to_owned(), None),
            };
            refused.push(Refused { record, raw: bytes.to_vec(), reason, field, context: None });
        });
        let raws = Bytes::from(raws);
        let requests: Vec<Taken> = requests.into_iter().map(|(raw, taken)| Taken { raw: raws.slice(raw), ..taken }).collect();
        let open = (!requests.is_empty()).then_some(Open::Requests(requests));
        Ok(Made { rows: None, refused, open })
    }

    fn look_up<'s>(&'s self, open: &'s [&'s Open]) -> BoxFuture<'s, Result<()>> {
        async move {
            let requests = open.iter().filter_map(|open| match open {
                Open::Requests(requests) => Some(requests),
                Open::Rows { .. } => None,
            });
            let keys = requests.flatten().map(|taken| taken.key);
            let known = self.ids.known(keys.collect()).await?;
            self.known.lock().unwrap_or_else(PoisonError::into_inner).extend(known);
            Ok(())
        }
        .boxed()
    }

    fn end(&self, open: Open, origin: &Origin, staged_at_micros: i64) -> Result<Made> {
        let Open::Requests(requests) = open else { return Err(Error::new(Kind::Internal, "rows among requests")) };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut accepted, mut refused) = (Vec::with_capacity(requests.len()), Vec::new());
        for mut of_source in requests {
            let (key, digest) = (of_source.key, of_source.digest);
            let before = known.get(&key).map(|k| k.digest).or_else(|| taken.get(&key).copied());
            match before {
                // A purge has replaced ids of what was accepted, and may have of this one.
                Some(same) if same == digest || self.ids.replaced_digest(&of_source.request) == Some(same) => {
                    self.repeated.fetch_add(1, Ordering::Relaxed);
                }
                Some(_) => refused.push(Refused {
                    record: of_source.record,
                    raw: of_source.raw.to_vec(),
                    reason: "a request of this id was accepted before, and says something else".to_owned(),
                    field: Some("request_id".to_owned()),
                    context: None,
                }),
                None => {
                    taken.insert(key, digest);
                    of_source.raw = Bytes::new();
                    accepted.push(of_source);
                }
            }
        }
        let mut kept = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() + accepted.len() <= KEPT_REQUESTS {
            let of_batch = |taken: &Taken| Accepted { request: taken.request.clone(), digest: taken.digest, batch: self.batch };
            kept.extend(accepted.iter().map(of_batch));
        }
        drop((kept, taken, known));
        let rows = request_rows(&accepted, &origin.source, self.batch, staged_at_micros)?;
        Ok(Made { rows: Some(rows), refused, open: None })
    }
}
