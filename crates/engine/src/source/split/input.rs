//! A source file's bytes: opened, decompressed, read in blocks.
//!
//! Invariant: a fault of the content (a broken gzip stream) is told from a fault of the store (a disk or network that fails):
//! the first goes to the dead letters, the second is tried again.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes};

/// Where a file's bytes come from. All of them, from the first on, whatever the cursor.
pub enum Input {
    /// A local file.
    File(File),
    /// The whole content.
    Bytes(Bytes),
    /// A stream of the whole content. Parquet is first written to an unnamed temporary file.
    Stream(Box<dyn Read + Send>),
}

/// Why a file cannot be read on.
#[derive(Debug)]
pub enum FileFault {
    /// The content is broken: one dead letter with an empty `raw`. The records before stay.
    Content {
        /// The number of the record at which it shows.
        record: u64,
        /// What is wrong.
        reason: String,
    },
    /// The store failed: try again later.
    Io(io::Error),
}

/// How a file's bytes are stored, by the ending of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstandard,
}

impl Compression {
    fn of(name: &str) -> Self {
        let ending = name.rsplit('.').next().unwrap_or_default();
        if ending.eq_ignore_ascii_case("gz") {
            Self::Gzip
        } else if ending.eq_ignore_ascii_case("zst") {
            Self::Zstandard
        } else {
            Self::None
        }
    }
}

/// Decompressed content, read from the front.
pub(super) struct Content {
    reader: Box<dyn Read + Send>,
    store_failed: Arc<AtomicBool>,
}

/// Marks the store's own errors on their way up through the decompressors.
struct Store<R> {
    inner: R,
    failed: Arc<AtomicBool>,
}

impl<R: Read> Read for Store<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.inner.read(to).inspect_err(|e| {
            if e.kind() != io::ErrorKind::Interrupted {
                self.failed.store(true, Ordering::Relaxed);
            }
        })
    }
}

/// Why reading ended before the content's end.
#[derive(Debug)]
pub(super) enum ReadFault {
    Content(String),
    Io(io::Error),
}

impl ReadFault {
    pub(super) fn at(self, record: u64) -> FileFault {
        match self {
            Self::Content(reason) => FileFault::Content { record, reason },
            Self::Io(error) => FileFault::Io(error),
        }
    }
}

impl Content {
    /// The content of the file of that name from its byte `from` on (of decompressed content).
    pub(super) fn open(input: Input, name: &str, from: u64) -> Result<Self, ReadFault> {
        let compression = Compression::of(name);
        let plain = compression == Compression::None;
        let store_failed = Arc::new(AtomicBool::new(false));
        let (raw, skipped): (Box<dyn Read + Send>, bool) = match input {
            Input::File(mut file) => {
                file.seek(SeekFrom::Start(if plain { from } else { 0 })).map_err(ReadFault::Io)?;
                (Box::new(file), plain)
            }
            Input::Bytes(mut bytes) if plain => {
                let from = usize::try_from(from).unwrap_or(usize::MAX);
                bytes.advance(from.min(bytes.len()));
                (Box::new(Cursor::new(bytes)), true)
            }
            Input::Bytes(bytes) => (Box::new(Cursor::new(bytes)), false),
            Input::Stream(stream) => (stream, false),
        };
        let store = Store { inner: raw, failed: Arc::clone(&store_failed) };
        let reader: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(store),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(io::BufReader::with_capacity(1 << 16, store))),
            Compression::Zstandard => Box::new(zstd::stream::read::Decoder::new(store).map_err(ReadFault::Io)?),
        };
        let mut content = Self { reader, store_failed };
        if !skipped {
            content.skip(from)?;
        }
        Ok(content)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), ReadFault> {
        let passed = io::copy(&mut self.reader.by_ref().take(bytes), &mut io::sink());
        let passed = passed.map_err(|e| self.fault(e))?;
        if passed == bytes {
            Ok(())
        } else {
            Err(ReadFault::Content("the file is shorter than what was read of it before".into()))
        }
    }

    /// Reads up to `count` bytes behind those in `to`; fewer only at the end. What was read before a fault is kept.
    pub(super) fn read(&mut self, count: usize, to: &mut Vec<u8>) -> Result<usize, ReadFault> {
        to.reserve(count);
        self.reader.by_ref().take(count as u64).read_to_end(to).map_err(|e| self.fault(e))
    }

    fn fault(&self, error: io::Error) -> ReadFault {
        if self.store_failed.load(Ordering::Relaxed) {
            ReadFault::Io(error)
        } else if error.kind() == io::ErrorKind::UnexpectedEof {
            ReadFault::Content("the compressed file is cut off".to_owned())
        } else {
            ReadFault::Content(format!("the compressed file is broken: {error}"))
        }
    }
}

/// Content in blocks: what has been read and not yet been handed out.
pub(super) struct Blocks {
    content: Content,
    pub(super) block: Bytes,
    /// Nothing more can be read.
    pub(super) ended: bool,
    /// Why, when it is not the end of the file.
    pub(super) fault: Option<String>,
}

impl Blocks {
    pub(super) const fn new(content: Content) -> Self {
        Self { content, block: Bytes::new(), ended: false, fault: None }
    }

    /// Reads `count` bytes more, or as many as are held when that is more: re-reading a long record then costs little.
    pub(super) fn read_more(&mut self, count: usize) -> io::Result<()> {
        let count = count.max(self.block.len());
        let mut to = Vec::with_capacity(self.block.len() + count);
        to.extend_from_slice(&self.block);
        let outcome = self.content.read(count, &mut to);
        self.block = Bytes::from(to);
        match outcome {
            Ok(read) => self.ended = read < count,
            Err(ReadFault::Content(reason)) => {
                self.ended = true;
                self.fault = Some(reason);
            }
            Err(ReadFault::Io(error)) => return Err(error),
        }
        Ok(())
    }
}
