//! The stored form of taken names: immutable segments, each of the batches `(from, to]` of a chain.
//!
//! Described in `docs/formats/taken-files.md`.

use xxhash_rust::xxh3::xxh3_64;

use super::cover::BatchSpan;
use super::run::{Entry, NameHash};
use crate::chain::BatchNumber;
use crate::error::{Error, Kind, Result};
use crate::position::FileStamp;

/// The version of the stored form that this program writes and the newest it reads.
pub const SEGMENT_FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"ALVTAKEN";
const HEADER_BYTES: usize = 36;
const ENTRY_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;

/// The names that the batches of a span took in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub(super) span: BatchSpan,
    /// In the order of their hashes, none twice.
    pub(super) entries: Vec<Entry>,
}

impl Segment {
    /// The batches whose names these are.
    #[must_use]
    pub const fn span(&self) -> BatchSpan {
        self.span
    }

    /// How many names there are.
    #[must_use]
    pub fn names(&self) -> u64 {
        self.entries.len() as u64
    }
}

/// How many names a segment's file of that size holds; `None` for a size that no segment has.
#[must_use]
pub fn names_in_segment_of(file_bytes: u64) -> Option<u64> {
    let entries = file_bytes.checked_sub((HEADER_BYTES + CHECKSUM_BYTES) as u64)?;
    (entries % ENTRY_BYTES as u64 == 0).then_some(entries / ENTRY_BYTES as u64)
}

/// The stored form of a segment.
#[must_use]
pub fn encode_segment(segment: &Segment) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + segment.entries.len() * ENTRY_BYTES + CHECKSUM_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&SEGMENT_FORMAT.to_be_bytes());
    for number in [segment.span.from.0, segment.span.to.0, segment.names()] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    for entry in &segment.entries {
        for number in [entry.hash.high, entry.hash.low, entry.stamp.0] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }
    let checksum = xxh3_64(&bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    bytes
}

/// Reads the stored form of a segment.
///
/// # Errors
///
/// [`Kind::Corrupt`] for bytes that [`encode_segment`] did not make, [`Kind::Unsupported`] for a newer format. The caller
/// adds which file it was.
pub fn decode_segment(bytes: &[u8]) -> Result<Segment> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| corrupt("it is too short"))?;
    let (magic, head) = head.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(corrupt("it does not begin as one"));
    }
    let (format, head) = head.split_first_chunk::<4>().ok_or_else(|| corrupt("it is too short"))?;
    match u32::from_be_bytes(*format) {
        SEGMENT_FORMAT => {}
        newer if newer > SEGMENT_FORMAT => {
            return Err(Error::new(Kind::Unsupported, format!("the segment of taken files has format {newer}")).hint(format!(
                "this program reads formats up to {SEGMENT_FORMAT}; use the version that wrote it, or a newer one"
            )));
        }
        _ => return Err(corrupt("its format is none that ever was")),
    }
    let [from, to, count] = numbers(head).ok_or_else(|| corrupt("it is too short"))?;
    if names_in_segment_of(bytes.len() as u64) != Some(count) {
        return Err(corrupt("its length is not that of the names it counts"));
    }
    let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    if xxh3_64(content).to_be_bytes() != checksum {
        return Err(corrupt("its checksum is wrong"));
    }
    let span = BatchSpan::new(BatchNumber(from), BatchNumber(to)).ok_or_else(|| corrupt("its span of batches is empty"))?;
    let entries = rest[..rest.len() - CHECKSUM_BYTES].chunks_exact(ENTRY_BYTES).filter_map(numbers);
    let mut sorted = Vec::with_capacity(rest.len() / ENTRY_BYTES);
    sorted.extend(entries.map(|[high, low, stamp]| Entry { hash: NameHash { high, low }, stamp: FileStamp(stamp) }));
    if !sorted.is_sorted_by(|a, b| a.hash < b.hash) {
        return Err(corrupt("its names are not in order"));
    }
    Ok(Segment { span, entries: sorted })
}

/// Three numbers of 8 bytes each, and nothing more.
fn numbers(bytes: &[u8]) -> Option<[u64; 3]> {
    let mut chunks = bytes.chunks_exact(8).map(|c| c.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    let numbers = [chunks.next()?, chunks.next()?, chunks.next()?];
    (bytes.len() == ENTRY_BYTES).then_some(numbers)
}

fn corrupt(why: &str) -> Error {
    Error::new(Kind::Corrupt, format!("the segment of taken files cannot be read: {why}"))
        .hint("segments are made from the batch records beside them: while those are there, the segment may be moved away")
}
