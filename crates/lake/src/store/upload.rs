//! Putting large files in parts: each part is tried again by itself, and none takes longer than a request may.
//!
//! Only for names that are never used by anybody else: an upload in parts replaces what is there.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, UploadPart};
use tokio::sync::Semaphore;

/// Files from this size on go up in parts.
pub(super) const IN_PARTS_FROM_BYTES: usize = 16 << 20;
/// The size of a part but the last.
const PART_BYTES: u64 = 8 << 20;
/// Parts of one file on their way at a time.
const PARTS_IN_FLIGHT: usize = 4;

/// What is uploaded.
#[derive(Debug, Clone)]
pub(super) enum Body {
    /// Bytes in memory.
    Payload(PutPayload),
    /// The first so many bytes of a file.
    File(Arc<File>, u64),
}

impl Body {
    fn len(&self) -> u64 {
        match self {
            Self::Payload(payload) => payload.content_length() as u64,
            Self::File(_, length) => *length,
        }
    }

    async fn part(&self, range: Range<u64>) -> object_store::Result<PutPayload> {
        let failed = |source| object_store::Error::Generic { store: "temporary file", source };
        match self {
            Self::Payload(payload) => Ok(part_of(payload, range.start as usize..range.end as usize)),
            Self::File(file, _) => {
                let (file, mut bytes) = (file.clone(), vec![0; (range.end - range.start) as usize]);
                let read = move || file.read_exact_at(&mut bytes, range.start).map(|()| PutPayload::from(bytes));
                let read: io::Result<PutPayload> = tokio::task::spawn_blocking(read).await.map_err(|e| failed(e.into()))?;
                read.map_err(|e| failed(e.into()))
            }
        }
    }
}

/// The bytes of `range`, which are not copied.
fn part_of(payload: &PutPayload, range: Range<usize>) -> PutPayload {
    let mut before = 0;
    let within = payload.iter().filter_map(|bytes| {
        let of_bytes = before..before + bytes.len();
        before = of_bytes.end;
        let (from, to) = (range.start.max(of_bytes.start), range.end.min(of_bytes.end));
        (from < to).then(|| bytes.slice(from - of_bytes.start..to - of_bytes.start))
    });
    within.collect()
}

/// Uploads `body` to `path`, a name of this writer's own. `slots` bounds what is on its way to the store in all.
///
/// # Errors
/// What the store said. The upload is then given up, and what is left of it is nothing a reader sees.
pub(super) async fn upload(store: &dyn ObjectStore, path: &Path, body: Body, slots: &Arc<Semaphore>) -> object_store::Result<()> {
    let mut upload = store.put_multipart(path).await?;
    match put_parts(upload.as_mut(), &body, slots).await {
        Ok(()) => {}
        Err(e) => {
            abandon(upload.as_mut(), path).await;
            return Err(e);
        }
    }
    let Err(failed) = upload.complete().await else { return Ok(()) };
    // The answer may be lost and the file there: nobody else writes to this name.
    match store.head(path).await {
        Ok(there) if there.size == body.len() => Ok(()),
        _ => {
            abandon(upload.as_mut(), path).await;
            Err(failed)
        }
    }
}

async fn put_parts(upload: &mut dyn MultipartUpload, body: &Body, slots: &Arc<Semaphore>) -> object_store::Result<()> {
    let mut in_flight = FuturesUnordered::new();
    for from in (0..body.len()).step_by(PART_BYTES as usize) {
        if in_flight.len() >= PARTS_IN_FLIGHT
            && let Some(part) = in_flight.next().await
        {
            part?;
        }
        let part = upload.put_part(body.part(from..body.len().min(from + PART_BYTES)).await?);
        in_flight.push(with_slot(part, slots.clone()));
    }
    while let Some(part) = in_flight.next().await {
        part?;
    }
    Ok(())
}

async fn with_slot(part: UploadPart, slots: Arc<Semaphore>) -> object_store::Result<()> {
    // The semaphore is never closed; without a slot the part goes up all the same.
    let _slot = slots.acquire().await.ok();
    part.await
}

async fn abandon(upload: &mut dyn MultipartUpload, path: &Path) {
    if let Err(error) = upload.abort().await {
        tracing::debug!(%path, %error, "could not give up an upload");
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_part_is_cut_out_of_whatever_pieces_there_are() {
        let payload: PutPayload = [&b"ab"[..], b"", b"cde", b"f"].into_iter().map(Bytes::from_static).collect();
        for from in 0..=6 {
            for to in from..=6 {
                let part: Vec<u8> = part_of(&payload, from..to).iter().flatten().copied().collect();
                assert_eq!(part, b"abcdef"[from..to]);
            }
        }
    }
}
