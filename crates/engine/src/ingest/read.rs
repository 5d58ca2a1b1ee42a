//! Reads one batch: files are cut into chunks, chunks decoded on all cores, rows and refusals staged.
//!
//! Reading and decoding overlap; when the decoded rows fill their part of the memory budget, or the batch has reached a limit, they
//! are encoded on all cores and put in the background. Invariant: `bounded_memory`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use alluvium_core::{Dataset, Error, FileCursor, FileRange, FoundFile, Kind, Result};
use alluvium_lake::{Arranged, Stager};
use arrow::array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, TimeUnit};
use tokio::runtime::Handle;

use super::backlog::Inbox;
use super::dead_letters::DeadLetters;
use crate::engine::Stop;
use crate::observe::Observer;
use crate::source::{Chunk, Decoded, Decoder, FileFault, Input, OpenedFile, Refused, Splitter};

/// The most files of a batch: each is named in its record.
const MAX_BATCH_FILES: usize = 10_000;
/// The most bytes of a chunk of input.
const MAX_CHUNK_BYTES: u64 = 4 << 20;

/// What a batch is read with. All of it is used from a thread that may block.
pub(super) struct Reading<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) inbox: &'a Inbox,
    pub(super) decoder: &'a Decoder,
    pub(super) rows: &'a Stager,
    pub(super) refused: &'a mut DeadLetters,
    pub(super) memory_bytes: u64,
    pub(super) staged_at_micros: i64,
    pub(super) stop: &'a Stop,
    pub(super) observer: &'a dyn Observer,
    pub(super) runtime: &'a Handle,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) ranges: Vec<FileRange>,
    pub(super) records: u64,
    pub(super) stopped: bool,
    chunks: u64,
}

/// A chunk on its way to a decoder.
struct Work {
    seq: u64,
    file: Arc<Named>,
    chunk: Chunk,
}

/// A decoded chunk.
struct Ready {
    seq: u64,
    file: Arc<Named>,
    rows: Result<Option<Arranged>>,
    refused: Vec<Refused>,
}

/// The file being read.
struct Open {
    range: FileRange,
    name: Arc<Named>,
    splitter: Splitter,
}

/// What dead letters say of their file.
struct Named {
    path: String,
    context: Option<String>,
}

impl Reading<'_> {
    /// Takes files from the front of `queue` until a limit of the batch is reached or none is left. `first_from` is where the
    /// first file goes on. A file that could not be taken whole stays in the queue's front only as the range's `to`.
    pub(super) fn read(mut self, queue: &mut VecDeque<FoundFile>, first_from: Option<FileCursor>) -> Result<Read> {
        let mut read = Read::default();
        let mut left = Limits { records: self.dataset.batch.max_rows, bytes: self.dataset.batch.max_bytes };
        let mut open: Option<Open> = None;
        let mut first_from = first_from;
        let mut kept: Option<Arranged> = None;
        loop {
            let before = kept.as_ref().map_or(0, Arranged::memory_bytes);
            let wave = self.wave(queue, &mut open, &mut first_from, &mut left, &mut read, before as u64)?;
            if read.stopped {
                return Ok(read);
            }
            kept = self.stage(kept, wave.ready, wave.ended)?;
            if wave.ended {
                break;
            }
        }
        if let Some(mut file) = open {
            let cursor = file.splitter.cursor();
            let at_end = Splitter::counts_stored_bytes(&file.range.path) && cursor.byte > 0 && cursor.byte == file.range.size;
            file.range.to = if at_end { None } else { Some(cursor) };
            read.ranges.push(file.range);
        }
        Ok(read)
    }

    /// Reads and decodes until the memory's part is full, a limit is reached, or no file is left.
    fn wave(
        &mut self,
        queue: &mut VecDeque<FoundFile>,
        open: &mut Option<Open>,
        first_from: &mut Option<FileCursor>,
        left: &mut Limits,
        read: &mut Read,
        kept_bytes: u64,
    ) -> Result<Wave> {
        let threads = rayon::current_num_threads().max(1);
        let chunk_bytes = (self.memory_bytes / 64).clamp(64 << 10, MAX_CHUNK_BYTES);
        let wave_bytes = self.memory_bytes * 3 / 8;
        let (sender, receiver) = sync_channel::<Work>(threads);
        let receiver = Mutex::new(receiver);
        let (ready, decoded_bytes) = (Mutex::new(Vec::new()), AtomicU64::new(kept_bytes));
        let decoding = Decoding { decoder: self.decoder, rows: self.rows, staged_at_micros: self.staged_at_micros };
        let ended: Result<bool> = std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| decoding.all(&receiver, &ready, &decoded_bytes));
            }
            // Dropped at the end of this closure, the sender lets the decoders end.
            let sender = sender;
            let mut in_flight = 0;
            loop {
                if self.stop.asked() {
                    read.stopped = true;
                    return Ok(true);
                }
                if left.records == 0 || left.bytes == 0 || (open.is_none() && read.ranges.len() >= MAX_BATCH_FILES) {
                    return Ok(true);
                }
                if decoded_bytes.load(Ordering::Relaxed) + in_flight >= wave_bytes {
                    return Ok(false);
                }
                if open.is_none() {
                    let Some(file) = queue.pop_front() else { return Ok(true) };
                    *open = self.open(file, first_from.take(), read)?;
                    continue;
                }
                let sent = self.next_chunk(open, left, chunk_bytes, read, &sender)?;
                // Only what may not have been decoded yet counts as in flight.
                in_flight = sent.map_or(0, |bytes| bytes * 2 * (threads as u64 + 1));
            }
        });
        let mut ready: Vec<Ready> = ready.into_inner().unwrap_or_else(PoisonError::into_inner);
        ready.sort_unstable_by_key(|r| r.seq);
        Ok(Wave { ready, ended: ended? })
    }

    fn next_chunk(
        &mut self,
        open: &mut Option<Open>,
        left: &mut Limits,
        chunk_bytes: u64,
        read: &mut Read,
        sender: &SyncSender<Work>,
    ) -> Result<Option<u64>> {
        let Some(file) = open.as_mut() else { return Ok(None) };
        match file.splitter.next_chunk(left.records, chunk_bytes.min(left.bytes)) {
            Ok(Some(chunk)) => {
                let (records, bytes) = (chunk.max_records(), chunk.bytes());
                left.records = left.records.saturating_sub(records);
                left.bytes = left.bytes.saturating_sub(bytes);
                read.records += records;
                self.observer.input(&self.dataset.name, records, bytes);
                read.chunks += 1;
                let work = Work { seq: read.chunks, file: file.name.clone(), chunk };
                sender
                    .send(work)
                    .map_err(|e| Error::new(Kind::Internal, "handing a chunk to the decoders").source(e.to_string()))?;
                Ok(Some(bytes))
            }
            Ok(None) => {
                read.ranges.extend(open.take().map(|f| f.range));
                Ok(None)
            }
            Err(FileFault::Content { record, reason }) => {
                let range = open.take().map(|f| f.range);
                if let Some(range) = range {
                    self.file_fault(&range, record, reason)?;
                    read.ranges.push(range);
                }
                left.records = left.records.saturating_sub(1);
                Ok(None)
            }
            Err(FileFault::Io(e)) => Err(Error::new(Kind::Unavailable, format!("reading the source file {:?}", file.range.path))
                .hint("nothing of the batch was taken; run again")
                .source(e)),
        }
    }

    /// Opens a file, if it is still there and can be read as what it should be.
    fn open(&mut self, file: FoundFile, from: Option<FileCursor>, read: &mut Read) -> Result<Option<Open>> {
        let opened = match self.runtime.block_on(self.inbox.files.open(&file.path)) {
            Err(e) if e.kind() == Kind::NotFound && from.is_none() => return Ok(None),
            opened => opened?,
        };
        if from.is_some() && opened.stamp != file.stamp {
            return Err(Error::new(
                Kind::Conflict,
                format!("the source file {:?} was changed while it was being taken in", file.path),
            )
            .hint("put the file back as it was, with its time of modification"));
        }
        let range =
            FileRange { path: file.path, size: opened.size, stamp: opened.stamp, from: from.unwrap_or_default(), to: None };
        let input = match opened.file {
            OpenedFile::File(file) => Input::File(file),
            OpenedFile::Ranged(file) => Input::Ranged(file),
        };
        match Splitter::open(input, &range.path, self.inbox.source.format, range.from) {
            Ok(splitter) => {
                let name = Named { path: range.path.clone(), context: splitter.context().map(str::to_owned) };
                Ok(Some(Open { name: Arc::new(name), range, splitter }))
            }
            Err(FileFault::Content { record, reason }) => {
                self.file_fault(&range, record, reason)?;
                read.records += 1;
                read.ranges.push(range);
                Ok(None)
            }
            Err(FileFault::Io(e)) => Err(Error::new(Kind::Unavailable, format!("opening the source file {:?}", range.path))
                .hint("run again")
                .source(e)),
        }
    }

    fn file_fault(&mut self, range: &FileRange, record: u64, reason: String) -> Result<()> {
        self.refused.push(&range.path, None, vec![Refused { record, raw: Vec::new(), reason, field: None }])
    }

    /// Stages what was kept of the wave before and what this one decoded; gives back what is to be staged with the next.
    fn stage(&mut self, kept: Option<Arranged>, ready: Vec<Ready>, last: bool) -> Result<Option<Arranged>> {
        let mut arranged: Vec<Arranged> = Vec::with_capacity(ready.len() + 1);
        arranged.extend(kept);
        for Ready { file, rows, refused, .. } in ready {
            self.refused.push(&file.path, file.context.as_deref(), refused)?;
            arranged.extend(rows?);
        }
        self.rows.stage_arranged(arranged, last)
    }
}

struct Limits {
    records: u64,
    bytes: u64,
}

struct Wave {
    ready: Vec<Ready>,
    ended: bool,
}

/// What the decoding threads share.
struct Decoding<'a> {
    decoder: &'a Decoder,
    rows: &'a Stager,
    staged_at_micros: i64,
}

impl Decoding<'_> {
    fn all(&self, work: &Mutex<Receiver<Work>>, ready: &Mutex<Vec<Ready>>, bytes: &AtomicU64) {
        loop {
            let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Work { seq, file, chunk }) = next else { return };
            let Decoded { rows, refused, .. } = self.decoder.decode(chunk);
            let rows = self.arrange(&rows, &file.path);
            let of_rows = rows.as_ref().ok().and_then(Option::as_ref).map_or(0, Arranged::memory_bytes);
            let of_refused: usize = refused.iter().map(|r| r.raw.len() + r.reason.len()).sum();
            bytes.fetch_add((of_rows + of_refused) as u64, Ordering::Relaxed);
            ready.lock().unwrap_or_else(PoisonError::into_inner).push(Ready { seq, file, rows, refused });
        }
    }

    fn arrange(&self, rows: &RecordBatch, source: &str) -> Result<Option<Arranged>> {
        if rows.num_rows() == 0 {
            return Ok(None);
        }
        self.rows.arrange(with_our_columns(rows, source, self.staged_at_micros)?).map(Some)
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
