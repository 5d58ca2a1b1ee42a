//! Requests on their way into the table `requests`: read, held against the declarations, and told from those that were there before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use alluvium_core::{BatchNumber, Dataset, Error, Kind, RequestDigest, Result, read_request};
use alluvium_lake::SortedKey;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::ids::{KnownRequest, RequestIds, id_key};
use super::table::request_rows;
use crate::ingest::{Made, Open, Origin, Taking};
use crate::source::{Chunk, RawRecord, Refused, values_of};

/// Takes requests in.
pub(crate) struct RequestTaking<'a> {
    datasets: &'a [Dataset],
    ids: RequestIds,
    batch: BatchNumber,
    /// Those that were there before this batch.
    known: Mutex<HashMap<SortedKey, KnownRequest>>,
    /// Those of this batch.
    taken: Mutex<HashMap<SortedKey, RequestDigest>>,
    repeated: AtomicU64,
}

impl<'a> RequestTaking<'a> {
    pub(crate) fn new(datasets: &'a [Dataset], ids: RequestIds, batch: BatchNumber) -> Self {
        Self { datasets, ids, batch, known: Mutex::default(), taken: Mutex::default(), repeated: AtomicU64::new(0) }
    }

    /// How many came that were accepted before.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }
}

impl Taking for RequestTaking<'_> {
    fn take(&self, chunk: Chunk, _: &Origin, _: i64) -> Result<Made> {
        let (mut requests, mut refused) = (Vec::new(), Vec::new());
        let fits = |field: &alluvium_core::Field, json: &str| match values_of(field, &[json]) {
            Ok(_) => Ok(()),
            Err(e) => Err(e.message().to_owned()),
        };
        chunk.each_record(|record, raw| {
            let (bytes, reason, field) = match raw {
                RawRecord::Text(text) => match read_request(text, self.datasets, &fits) {
                    Ok(request) => {
                        requests.push((record, request, text.as_bytes().to_vec()));
                        return;
                    }
                    Err(refusal) => (text.as_bytes(), refusal.reason, Some(refusal.field).filter(|f| !f.is_empty())),
                },
                RawRecord::Tombstone => (&[][..], "a tombstone: the message has no value".to_owned(), None),
                RawRecord::Unreadable(bytes, why) => (bytes, why.to_owned(), None),
            };
            refused.push(Refused { record, raw: bytes.to_vec(), reason, field, context: None });
        });
        let open = (!requests.is_empty()).then_some(Open::Requests(requests));
        Ok(Made { rows: None, refused, open })
    }

    fn look_up<'s>(&'s self, open: &'s [&'s Open]) -> BoxFuture<'s, Result<()>> {
        async move {
            let keys = open.iter().flat_map(|open| match open {
                Open::Requests(requests) => requests.iter().map(|(_, request, _)| id_key(&request.id)).collect(),
                Open::Rows { .. } => Vec::new(),
            });
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
        for (record, request, raw) in requests {
            let (key, digest) = (id_key(&request.id), request.digest());
            let before = known.get(&key).map(|k| k.digest).or_else(|| taken.get(&key).copied());
            match before {
                Some(same) if same == digest => {
                    self.repeated.fetch_add(1, Ordering::Relaxed);
                }
                Some(_) => refused.push(Refused {
                    record,
                    raw,
                    reason: "a request of this id was accepted before, and says something else".to_owned(),
                    field: Some("request_id".to_owned()),
                    context: None,
                }),
                None => {
                    taken.insert(key, digest);
                    accepted.push((record, request, digest));
                }
            }
        }
        let rows = request_rows(&accepted, &origin.source, self.batch, staged_at_micros)?;
        Ok(Made { rows: Some(rows), refused, open: None })
    }
}
