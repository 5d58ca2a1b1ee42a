//! A source file's bytes: opened, decompressed, read in blocks.
//!
//! Invariant: a fault of the content (a broken gzip stream) is told from a fault of the store (a disk or network that fails):
//! the first goes to the dead letters, the second is tried again.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes};

use crate::source::{RangedFile, RangedReader};

/// Where a file's bytes come from. All of them, from the first on, whatever the cursor.
pub enum Input {
    /// A local file.
    File(File),
    /// The whole content.
    Bytes(Bytes),
    /// A file of an object store, read in ranges.
    Ranged(RangedFile),
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
    reader: Reader,
    store_failed: Arc<AtomicBool>,
}

enum Reader {
    /// A file as it is: parts of it can be passed over without reading.
    Plain(File),
    /// A file of an object store, as it is.
    Ranged(Box<RangedReader>),
    Any(Box<dyn Read + Send>),
}

impl Read for Reader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(to),
            Self::Ranged(reader) => reader.read(to),
            Self::Any(reader) => reader.read(to),
        }
    }
}

/// Marks the store's own errors on their way up through the decompressors.
pub(super) struct Store<R> {
    pub(super) inner: R,
    pub(super) failed: Arc<AtomicBool>,
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
    /// The content of the file of that name.
    pub(super) fn open(input: Input, name: &str) -> Result<Self, ReadFault> {
        let store_failed = Arc::new(AtomicBool::new(false));
        let compression = Compression::of(name);
        let raw: Box<dyn Read + Send> = match input {
            Input::File(mut file) => {
                file.rewind().map_err(ReadFault::Io)?;
                if compression == Compression::None {
                    return Ok(Self { reader: Reader::Plain(file), store_failed });
                }
                Box::new(file)
            }
            Input::Bytes(bytes) => Box::new(Cursor::new(bytes)),
            Input::Ranged(file) => {
                let reader = RangedReader::new(file);
                if compression == Compression::None {
                    return Ok(Self { reader: Reader::Ranged(Box::new(reader)), store_failed });
                }
                Box::new(reader)
            }
            Input::Stream(stream) => stream,
        };
        let store = Store { inner: raw, failed: Arc::clone(&store_failed) };
        let reader: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(store),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(io::BufReader::with_capacity(1 << 16, store))),
            Compression::Zstandard => Box::new(zstd::stream::read::Decoder::new(store).map_err(ReadFault::Io)?),
        };
        Ok(Self { reader: Reader::Any(reader), store_failed })
    }

    /// Whether the file of that name is compressed as a whole.
    pub(super) fn is_compressed(name: &str) -> bool {
        Compression::of(name) != Compression::None
    }

    /// Writes all of it to a file.
    pub(super) fn copy_to(mut self, file: &mut File) -> Result<(), ReadFault> {
        let mut block = Vec::new();
        loop {
            block.clear();
            let read = self.read(1 << 20, &mut block)?;
            file.write_all(&block).map_err(ReadFault::Io)?;
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Passes over so many bytes.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), ReadFault> {
        let there = match &mut self.reader {
            Reader::Plain(file) => {
                let at = file.seek(SeekFrom::Current(i64::try_from(bytes).unwrap_or(i64::MAX))).map_err(ReadFault::Io)?;
                at <= file.metadata().map_err(ReadFault::Io)?.len()
            }
            Reader::Ranged(reader) => reader.skip(bytes),
            Reader::Any(reader) => {
                let passed = io::copy(&mut reader.by_ref().take(bytes), &mut io::sink());
                passed.map_err(|e| self.fault(e))? == bytes
            }
        };
        if there { Ok(()) } else { Err(ReadFault::Content("the file is shorter than what was read of it before".into())) }
    }

    /// Reads up to `count` bytes behind those in `to`; fewer only at the end. What was read before a fault is kept.
    pub(super) fn read(&mut self, count: usize, to: &mut Vec<u8>) -> Result<usize, ReadFault> {
        to.reserve(count);
        self.reader.by_ref().take(count as u64).read_to_end(to).map_err(|e| self.fault(e))
    }

    fn fault(&self, error: io::Error) -> ReadFault {
        if self.store_failed.load(Ordering::Relaxed) || matches!(self.reader, Reader::Plain(_) | Reader::Ranged(_)) {
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

    /// Passes over a byte order mark at the front of the file; gives its length.
    pub(super) fn pass_bom(&mut self) -> io::Result<u64> {
        const BOM: &[u8] = b"\xEF\xBB\xBF";
        while self.block.len() < BOM.len() && !self.ended {
            self.read_more(1 << 16)?;
        }
        if !self.block.starts_with(BOM) {
            return Ok(0);
        }
        self.block.advance(BOM.len());
        Ok(BOM.len() as u64)
    }

    /// Passes over `count` bytes.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), ReadFault> {
        let held = usize::try_from(count).unwrap_or(usize::MAX).min(self.block.len());
        self.block.advance(held);
        match count - held as u64 {
            0 => Ok(()),
            rest => self.content.skip(rest),
        }
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
