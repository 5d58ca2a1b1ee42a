//! Reads one batch: chunks of the source are decoded on all cores, rows and refusals staged.
//!
//! Where chunks come from is a [`Feed`]: files or Kafka. Reading and decoding overlap; when the decoded rows fill their part of the
//! memory budget, or the feed has ended, they are encoded on all cores and put in the background. Invariant: `bounded_memory`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use alluvium_core::{Dataset, Error, Kind, Result};
use alluvium_lake::{Arranged, Stager, in_place};
use arrow::array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, TimeUnit};
use futures::FutureExt;
use futures::future::BoxFuture;
use rayon::prelude::*;

use super::dead_letters::DeadLetters;
use crate::engine::Stop;
use crate::observe::Observer;
use crate::requests::Taken;
use crate::resolve::NamedNodes;
use crate::source::{Chunk, Decoded, Decoder, Refused};

/// The most bytes of a chunk of input.
pub(super) const MAX_CHUNK_BYTES: u64 = 4 << 20;
/// The first chunks, one a core, are of so many bytes, so that no core waits for long; the next as many are twice as large, and so on.
const FIRST_CHUNK_BYTES: u64 = 256 << 10;

/// Where the chunks of a batch come from. It knows the batch's limits and ends at the first of them.
pub(super) trait Feed: Send {
    /// The next chunk, of about `chunk_bytes` at most. Faults of the source that are no error go to `refused`.
    fn next(&mut self, chunk_bytes: u64, refused: &mut DeadLetters) -> Result<Fed>;
}

/// What a feed gives.
pub(super) enum Fed {
    /// Records of one place.
    Chunk(Arc<Origin>, Chunk),
    /// Nothing yet: ask again.
    Nothing,
    /// Nothing more in this batch.
    End,
}

/// Where a chunk's records come from, as rows and dead letters say it.
pub(crate) struct Origin {
    /// `_source`: a file's name, or topic and partition.
    pub(crate) source: String,
    /// What each of its records needs to be decoded again.
    pub(crate) context: Option<String>,
}

/// What records become: rows of the deciding table, or refusals. Used from many threads.
pub(crate) trait Taking: Sync {
    /// Takes a chunk's records; asks nothing of the store.
    fn take(&self, chunk: Chunk, origin: &Origin, staged_at_micros: i64) -> Result<Made>;

    /// Finds out in the store what takes need that could not be ended without; called once for all takes of a while, in their
    /// order.
    fn look_up<'a>(&'a self, _open: &'a [&'a Open]) -> BoxFuture<'a, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }

    /// About what is kept between looks, in bytes.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Ends a take with what was found out. Requests end in the order of their takes, rows in any.
    fn end(&self, open: Open, _origin: &Origin, _staged_at_micros: i64) -> Result<Made> {
        match open {
            Open::Rows { rows, .. } => Ok(Made { rows: Some(rows), refused: Vec::new(), open: None }),
            Open::Requests(_) => Err(Error::new(Kind::Internal, "requests among rows")),
        }
    }
}

/// What became of a chunk.
pub(crate) struct Made {
    /// Rows with all columns of the table.
    pub(crate) rows: Option<RecordBatch>,
    pub(crate) refused: Vec<Refused>,
    /// What is still to be settled.
    pub(crate) open: Option<Open>,
}

/// Records of which it takes a look into the store to say what becomes of them.
pub(crate) enum Open {
    /// Rows that requests may change, and what of them requests name.
    Rows { rows: RecordBatch, named: NamedNodes },
    /// Requests whose ids may have been there before.
    Requests(Vec<Taken>),
}

impl Open {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Rows { rows, named } => rows.get_array_memory_size() + named.memory_bytes(),
            Self::Requests(requests) => requests.iter().map(Taken::memory_bytes).sum(),
        }
    }
}

/// Records that become rows as they are declared.
impl Taking for Decoder {
    fn take(&self, chunk: Chunk, origin: &Origin, staged_at_micros: i64) -> Result<Made> {
        let Decoded { rows, refused, .. } = self.decode(chunk);
        Ok(Made { rows: Some(with_our_columns(&rows, &origin.source, staged_at_micros)?), refused, open: None })
    }
}

/// What a batch is read with. All of it is used from a thread that may block.
pub(super) struct Reading<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) taking: &'a dyn Taking,
    pub(super) rows: &'a Stager,
    pub(super) refused: &'a mut DeadLetters,
    pub(super) memory_bytes: u64,
    pub(super) staged_at_micros: i64,
    pub(super) stop: &'a Stop,
    pub(super) observer: &'a dyn Observer,
}

/// What became of a batch's reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// The feed ended.
    Ended,
    /// The user asked to stop.
    Stopped,
}

/// A chunk on its way to a decoder.
struct Work {
    seq: u64,
    origin: Arc<Origin>,
    chunk: Chunk,
}

/// A decoded chunk.
struct Ready {
    seq: u64,
    origin: Arc<Origin>,
    made: Result<(Option<Arranged>, Vec<Refused>, Option<Open>)>,
}

impl Reading<'_> {
    /// Takes chunks until the feed ends.
    pub(super) async fn read(mut self, feed: &mut dyn Feed) -> Result<Read> {
        let mut kept: Option<Arranged> = None;
        let mut chunks = 0;
        loop {
            let before = kept.as_ref().map_or(0, Arranged::memory_bytes);
            let wave = in_place(|| self.wave(feed, &mut chunks, before as u64))?;
            if wave.ended == Some(Read::Stopped) {
                return Ok(Read::Stopped);
            }
            let open: Vec<&Open> = wave.ready.iter().filter_map(|r| r.made.as_ref().ok()?.2.as_ref()).collect();
            if !open.is_empty() {
                self.taking.look_up(&open).await?;
            }
            kept = in_place(|| self.stage(kept, wave.ready, wave.ended.is_some()))?;
            if let Some(ended) = wave.ended {
                return Ok(ended);
            }
        }
    }

    /// Reads and decodes until the memory's part is full or the feed ends.
    fn wave(&mut self, feed: &mut dyn Feed, chunks: &mut u64, kept_bytes: u64) -> Result<Wave> {
        let threads = rayon::current_num_threads().max(1);
        let beside = self.rows.index_bytes() + self.taking.memory_bytes();
        let wave_bytes = (self.memory_bytes * 3 / 8).saturating_sub(beside).max(self.memory_bytes / 8);
        // What is in flight is half of the wave at most: each thread has something to decode in each.
        let most_bytes = (self.memory_bytes / 64).min(wave_bytes / (4 * (threads as u64 + 1))).clamp(64 << 10, MAX_CHUNK_BYTES);
        let (sender, receiver) = sync_channel::<Work>(threads);
        let receiver = Mutex::new(receiver);
        let (ready, decoded_bytes) = (Mutex::new(Vec::new()), AtomicU64::new(kept_bytes));
        let decoding = Decoding { taking: self.taking, rows: self.rows, staged_at_micros: self.staged_at_micros };
        let ended: Result<Option<Read>> = std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| decoding.all(&receiver, &ready, &decoded_bytes));
            }
            // Dropped at the end of this closure, the sender lets the decoders end.
            let sender = sender;
            let mut in_flight = 0;
            loop {
                if self.stop.asked() {
                    return Ok(Some(Read::Stopped));
                }
                if decoded_bytes.load(Ordering::Relaxed) + in_flight >= wave_bytes {
                    return Ok(None);
                }
                let doublings = u32::try_from(*chunks / threads as u64).unwrap_or(u32::MAX).min(16);
                let (origin, chunk) = match feed.next(most_bytes.min(FIRST_CHUNK_BYTES << doublings), self.refused)? {
                    Fed::Chunk(origin, chunk) => (origin, chunk),
                    Fed::Nothing => {
                        in_flight = 0;
                        continue;
                    }
                    Fed::End => return Ok(Some(Read::Ended)),
                };
                // Only what may not have been decoded yet counts as in flight.
                in_flight = chunk.bytes() * 2 * (threads as u64 + 1);
                self.observer.input(&self.dataset.name, chunk.max_records(), chunk.bytes());
                *chunks += 1;
                sender
                    .send(Work { seq: *chunks, origin, chunk })
                    .map_err(|e| Error::new(Kind::Internal, "handing a chunk to the decoders").source(e.to_string()))?;
            }
        });
        let mut ready: Vec<Ready> = ready.into_inner().unwrap_or_else(PoisonError::into_inner);
        ready.sort_unstable_by_key(|r| r.seq);
        Ok(Wave { ready, ended: ended? })
    }

    /// Stages what was kept of the wave before and what this one decoded; gives back what is to be staged with the next.
    fn stage(&mut self, kept: Option<Arranged>, ready: Vec<Ready>, last: bool) -> Result<Option<Arranged>> {
        let (taking, stager, staged_at_micros) = (self.taking, self.rows, self.staged_at_micros);
        let end = |open: Open, origin: &Origin| -> Result<(Option<Arranged>, Vec<Refused>)> {
            let made = taking.end(open, origin, staged_at_micros)?;
            Ok((arrange(stager, made.rows)?, made.refused))
        };
        let resolve = |Ready { seq, origin, made }: Ready| {
            let made = made.and_then(|(rows, refused, open)| match open {
                Some(open @ Open::Rows { .. }) => Ok((end(open, &origin)?.0, refused, None)),
                open => Ok((rows, refused, open)),
            });
            Ready { seq, origin, made }
        };
        let ready: Vec<Ready> = ready.into_par_iter().map(resolve).collect();
        let mut arranged: Vec<Arranged> = Vec::with_capacity(ready.len() + 1);
        arranged.extend(kept);
        for Ready { origin, made, .. } in ready {
            let (rows, refused, open) = made?;
            self.refused.push(&origin.source, origin.context.as_deref(), refused)?;
            arranged.extend(rows);
            if let Some(open) = open {
                let (rows, refused) = end(open, &origin)?;
                self.refused.push(&origin.source, origin.context.as_deref(), refused)?;
                arranged.extend(rows);
            }
        }
        self.rows.stage_arranged(arranged, last)
    }
}

struct Wave {
    ready: Vec<Ready>,
    ended: Option<Read>,
}

/// What the decoding threads share.
struct Decoding<'a> {
    taking: &'a dyn Taking,
    rows: &'a Stager,
    staged_at_micros: i64,
}

impl Decoding<'_> {
    fn all(&self, work: &Mutex<Receiver<Work>>, ready: &Mutex<Vec<Ready>>, bytes: &AtomicU64) {
        loop {
            let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Work { seq, origin, chunk }) = next else { return };
            let made = self.taking.take(chunk, &origin, self.staged_at_micros);
            let made = made.and_then(|made| Ok((arrange(self.rows, made.rows)?, made.refused, made.open)));
            let held = made.as_ref().map_or(0, |(rows, refused, open)| {
                let of_rows = rows.as_ref().map_or(0, Arranged::memory_bytes);
                let of_refused: usize = refused.iter().map(|r| r.raw.len() + r.reason.len()).sum();
                of_rows + of_refused + open.as_ref().map_or(0, Open::memory_bytes)
            });
            bytes.fetch_add(held as u64, Ordering::Relaxed);
            ready.lock().unwrap_or_else(PoisonError::into_inner).push(Ready { seq, origin, made });
        }
    }
}

fn arrange(stager: &Stager, rows: Option<RecordBatch>) -> Result<Option<Arranged>> {
    match rows {
        Some(rows) if rows.num_rows() > 0 => stager.arrange(rows).map(Some),
        _ => Ok(None),
    }
}

/// Adds the columns that the decoder does not know: `_source`, `_ingested_at` and `_original`.
fn with_our_columns(rows: &RecordBatch, source: &str, staged_at_micros: i64) -> Result<RecordBatch> {
    let count = rows.num_rows();
    let source_values: ArrayRef = Arc::new(StringArray::from(vec![source]));
    let sources = DictionaryArray::<Int32Type>::try_new(Int32Array::from(vec![0; count]), source_values).map_err(internal)?;
    add_columns(rows, Arc::new(sources), staged_at_micros)
}

/// As [`with_our_columns`], each row with a source of its own.
pub(super) fn add_columns(rows: &RecordBatch, sources: ArrayRef, staged_at_micros: i64) -> Result<RecordBatch> {
    let count = rows.num_rows();
    let mut fields: Vec<_> = rows.schema().fields().iter().cloned().collect();
    let mut columns = rows.columns().to_vec();
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let ours: [(&str, ArrayRef); 3] = [
        ("_source", sources),
        ("_ingested_at", Arc::new(TimestampMicrosecondArray::from(vec![staged_at_micros; count]).with_timezone("UTC"))),
        ("_original", new_null_array(&DataType::Utf8, count)),
    ];
    debug_assert_eq!(*ours[1].1.data_type(), utc);
    for (name, column) in ours {
        fields.push(Arc::new(Field::new(name, column.data_type().clone(), true)));
        columns.push(column);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(internal)
}

fn internal(error: arrow::error::ArrowError) -> Error {
    Error::new(Kind::Internal, "completing decoded rows").source(error)
}
