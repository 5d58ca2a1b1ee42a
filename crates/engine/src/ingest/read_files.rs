//! Reads one batch of files: each is opened and cut into chunks of whole records, until a limit of the batch is reached.

use std::collections::VecDeque;
use std::sync::Arc;

use alluvium_core::{BatchLimits, Error, FileCursor, FileRange, FoundFile, Kind, Result};
use tokio::runtime::Handle;

use super::backlog::Inbox;
use super::dead_letters::DeadLetters;
use super::read::{Fed, Feed, Origin};
use crate::source::{FileFault, Input, OpenedFile, Refused, Splitter};

/// The most files of a batch: each is named in its record.
const MAX_BATCH_FILES: usize = 10_000;

/// Takes files from the front of a queue until a limit of the batch is reached or none is left.
pub(super) struct FileFeed<'a> {
    inbox: &'a Inbox,
    queue: &'a mut VecDeque<FoundFile>,
    runtime: Handle,
    /// Where the first file goes on.
    first_from: Option<FileCursor>,
    records_left: u64,
    bytes_left: u64,
    open: Option<Open>,
    ranges: Vec<FileRange>,
}

/// The file being read.
struct Open {
    range: FileRange,
    origin: Arc<Origin>,
    splitter: Splitter,
}

impl<'a> FileFeed<'a> {
    pub(super) fn new(
        inbox: &'a Inbox,
        queue: &'a mut VecDeque<FoundFile>,
        first_from: Option<FileCursor>,
        limits: &BatchLimits,
    ) -> Self {
        Self {
            inbox,
            queue,
            runtime: Handle::current(),
            first_from,
            records_left: limits.max_rows,
            bytes_left: limits.max_bytes,
            open: None,
            ranges: Vec::new(),
        }
    }

    /// What was taken. A file that could not be taken whole is put back at the queue's front, and its range ends where it was
    /// read to.
    pub(super) fn into_ranges(mut self) -> Vec<FileRange> {
        if let Some(mut file) = self.open {
            let cursor = file.splitter.cursor();
            let at_end = Splitter::counts_stored_bytes(&file.range.path) && cursor.byte > 0 && cursor.byte == file.range.size;
            file.range.to = if at_end { None } else { Some(cursor) };
            if file.range.to.is_some() {
                let FileRange { path, size, stamp, .. } = file.range.clone();
                self.queue.push_front(FoundFile { path, size, stamp });
            }
            self.ranges.push(file.range);
        }
        self.ranges
    }

    /// Opens a file, if it is still there and can be read as what it should be.
    fn open_file(&mut self, file: FoundFile, from: Option<FileCursor>, refused: &mut DeadLetters) -> Result<Option<Open>> {
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
                let origin = Origin { source: range.path.clone(), context: splitter.context().map(str::to_owned) };
                Ok(Some(Open { origin: Arc::new(origin), range, splitter }))
            }
            Err(FileFault::Content { record, reason }) => {
                file_fault(&range, record, reason, refused)?;
                self.ranges.push(range);
                Ok(None)
            }
            Err(FileFault::Io(e)) => Err(Error::new(Kind::Unavailable, format!("opening the source file {:?}", range.path))
                .hint("run again")
                .source(e)),
        }
    }
}

impl Feed for FileFeed<'_> {
    fn next(&mut self, chunk_bytes: u64, refused: &mut DeadLetters) -> Result<Fed> {
        let full = self.records_left == 0 || self.bytes_left == 0;
        if full || (self.open.is_none() && self.ranges.len() >= MAX_BATCH_FILES) {
            return Ok(Fed::End);
        }
        let Some(file) = self.open.as_mut() else {
            let Some(file) = self.queue.pop_front() else { return Ok(Fed::End) };
            let from = self.first_from.take();
            self.open = self.open_file(file, from, refused)?;
            return Ok(Fed::Nothing);
        };
        match file.splitter.next_chunk(self.records_left, chunk_bytes.min(self.bytes_left)) {
            Ok(Some(chunk)) => {
                self.records_left = self.records_left.saturating_sub(chunk.max_records());
                self.bytes_left = self.bytes_left.saturating_sub(chunk.bytes());
                Ok(Fed::Chunk(file.origin.clone(), chunk))
            }
            Ok(None) => {
                self.ranges.extend(self.open.take().map(|f| f.range));
                Ok(Fed::Nothing)
            }
            Err(FileFault::Content { record, reason }) => {
                if let Some(Open { range, .. }) = self.open.take() {
                    file_fault(&range, record, reason, refused)?;
                    self.ranges.push(range);
                }
                self.records_left = self.records_left.saturating_sub(1);
                Ok(Fed::Nothing)
            }
            Err(FileFault::Io(e)) => Err(Error::new(Kind::Unavailable, format!("reading the source file {:?}", file.range.path))
                .hint("nothing of the batch was taken; run again")
                .source(e)),
        }
    }
}

fn file_fault(range: &FileRange, record: u64, reason: String, refused: &mut DeadLetters) -> Result<()> {
    refused.push(&range.path, None, vec![Refused { record, raw: Vec::new(), reason, field: None, context: None }])
}
