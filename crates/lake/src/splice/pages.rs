//! The pages of a column chunk, by their headers alone.
//!
//! Place in the flow: whatever takes a chunk's bytes, to copy or to decode them, looks here first. Invariant: a chunk that passes
//! is made of whole pages, from its first byte to its last, which hold as many values as the footer says, and none of which
//! claims more memory or values than the footer allows: what is wrong in the footer is not carried on into a new file, and a reader
//! that counts on a page is done in a time that fits the file.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use parquet::basic::{Compression, Encoding, Type};
use parquet::file::metadata::ColumnChunkMetaData;

use super::thrift::{Compact, Field};

/// Page sizes up to this are taken as they are, whatever the footer says of the chunk.
const ANY_PAGE_BYTES: i64 = 1 << 20;
/// A header is looked for in so many bytes first.
const LIKELY_HEADER_BYTES: usize = 256;
/// The most bytes that a number takes, as Snappy writes lengths.
const SNAPPY_LENGTH_BYTES: usize = 10;

/// What the pages of a chunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pages {
    /// Bytes of the dictionary page, header included; 0 without one.
    pub(super) dictionary_bytes: usize,
    /// Values in the dictionary.
    pub(super) dictionary_values: i64,
    /// The bytes that a value of the dictionary takes on average.
    pub(super) value_bytes: u64,
    /// Whether the values of all data pages are in the dictionary.
    pub(super) all_in_dictionary: bool,
}

/// The header of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Head {
    kind: Option<i32>,
    uncompressed: Option<i32>,
    compressed: Option<i32>,
    values: Option<i32>,
    encoding: Option<i32>,
    levels: [i32; 2],
    is_stored: bool,
}

const DATA: i32 = 0;
const INDEX: i32 = 1;
const DICTIONARY: i32 = 2;
const DATA_V2: i32 = 3;

/// The bytes of a chunk, wherever they are.
pub(super) trait ChunkBytes {
    fn length(&self) -> usize;

    /// The bytes from `at` on, `most` of them at least as far as there are so many.
    fn some(&self, at: usize, most: usize) -> Option<Cow<'_, [u8]>>;
}

impl ChunkBytes for &[u8] {
    fn length(&self) -> usize {
        self.len()
    }

    fn some(&self, at: usize, _: usize) -> Option<Cow<'_, [u8]>> {
        self.get(at..).map(Cow::Borrowed)
    }
}

/// A chunk in a file of this machine.
pub(super) struct InFile<'f> {
    pub(super) file: &'f File,
    pub(super) range: Range<u64>,
}

impl ChunkBytes for InFile<'_> {
    fn length(&self) -> usize {
        usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX)
    }

    fn some(&self, at: usize, most: usize) -> Option<Cow<'_, [u8]>> {
        let mut bytes = vec![0; self.length().checked_sub(at)?.min(most)];
        self.file.read_exact_at(&mut bytes, self.range.start + at as u64).ok()?;
        Some(Cow::Owned(bytes))
    }
}

/// The pages of a chunk, whose bytes are `bytes`; `None` if they are not what the footer says to the last byte.
pub(super) fn pages(bytes: impl ChunkBytes, chunk: &ColumnChunkMetaData) -> Option<Pages> {
    let (found, length) = walk(&bytes, chunk)?;
    (length == bytes.length()).then_some(found)
}

/// The pages of a chunk that is read, but not copied: what follows the last of them is nobody's business.
pub(super) fn readable(bytes: &[u8], chunk: &ColumnChunkMetaData) -> Option<Pages> {
    walk(&bytes, chunk).map(|(found, _)| found)
}

/// The pages that hold the chunk's values, and the bytes that they take.
fn walk(bytes: &impl ChunkBytes, chunk: &ColumnChunkMetaData) -> Option<(Pages, usize)> {
    let mut found = Pages { dictionary_bytes: 0, dictionary_values: 0, value_bytes: 0, all_in_dictionary: true };
    let (mut at, mut values) = (0_usize, 0_i64);
    // A chunk without values may have a dictionary all the same.
    while at < bytes.length() && (values < chunk.num_values() || chunk.num_values() == 0) {
        let (head, header_bytes) = head_at(bytes, at)?;
        let compressed = usize::try_from(head.compressed?).ok()?;
        let body = at + header_bytes;
        if bytes.length() - body < compressed || !fits(&head, &Body { of: bytes, at: body, length: compressed }, chunk) {
            return None;
        }
        let in_dictionary = [Encoding::PLAIN_DICTIONARY as i32, Encoding::RLE_DICTIONARY as i32];
        match head.kind? {
            DICTIONARY if at == 0 => {
                if !holds_its_values(&head, chunk)? {
                    return None;
                }
                found.dictionary_bytes = header_bytes + compressed;
                found.dictionary_values = i64::from(head.values?);
                found.value_bytes = u64::from(head.uncompressed?.unsigned_abs()) / u64::from(head.values?.unsigned_abs()).max(1);
            }
            DATA | DATA_V2 => {
                values += i64::from(head.values?);
                found.all_in_dictionary &= in_dictionary.contains(&head.encoding?);
            }
            INDEX => {}
            _ => return None,
        }
        at += header_bytes + compressed;
    }
    (values == chunk.num_values()).then_some((found, at))
}

/// The bytes of the dictionary page that `bytes` begin with, header included; `None` if there is none, or it is not what the
/// footer says.
pub(super) fn dictionary_bytes(bytes: &[u8], chunk: &ColumnChunkMetaData) -> Option<usize> {
    let (head, header_bytes) = head(bytes)?;
    let length = usize::try_from(head.compressed?).ok()?;
    let compressed = bytes.get(header_bytes..)?.get(..length)?.len();
    let body = Body { of: &bytes, at: header_bytes, length };
    let is_whole = head.kind == Some(DICTIONARY) && fits(&head, &body, chunk) && holds_its_values(&head, chunk)?;
    is_whole.then_some(header_bytes + compressed)
}

/// Whether `bytes` are one whole data page of the chunk.
pub(super) fn is_data_page(bytes: &[u8], chunk: &ColumnChunkMetaData) -> bool {
    let Some((head, header_bytes)) = head(bytes) else { return false };
    let body = Body { of: &bytes, at: header_bytes, length: bytes.len() - header_bytes };
    head.compressed.is_some_and(|c| usize::try_from(c) == Ok(body.length))
        && matches!(head.kind, Some(DATA | DATA_V2))
        && head.values.is_some_and(|v| i64::from(v) <= chunk.num_values())
        && fits(&head, &body, chunk)
}

/// Whether each value that a dictionary says it has can be there.
fn holds_its_values(head: &Head, chunk: &ColumnChunkMetaData) -> Option<bool> {
    Some(i64::from(head.values?).checked_mul(least_bytes(chunk)?)? <= i64::from(head.uncompressed?))
}

/// The bytes that a dictionary's value takes at least.
fn least_bytes(chunk: &ColumnChunkMetaData) -> Option<i64> {
    Some(match chunk.column_type() {
        Type::BOOLEAN => return None,
        Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        Type::FIXED_LEN_BYTE_ARRAY => i64::from(chunk.column_descr().type_length()),
    })
}

/// The bytes of a page behind its header.
struct Body<'b, B> {
    of: &'b B,
    at: usize,
    length: usize,
}

fn fits(head: &Head, body: &Body<'_, impl ChunkBytes>, chunk: &ColumnChunkMetaData) -> bool {
    let Some(uncompressed) = head.uncompressed.filter(|u| *u >= 0) else { return false };
    let Some(levels) = head.levels[0].checked_add(head.levels[1]).filter(|_| head.levels.iter().all(|l| *l >= 0)) else {
        return false;
    };
    let level_bytes = usize::try_from(levels).unwrap_or(usize::MAX);
    if head.values.unwrap_or(0) < 0 || levels > uncompressed || level_bytes > body.length {
        return false;
    }
    let is_stored = head.is_stored || chunk.compression() == Compression::UNCOMPRESSED;
    if is_stored && i64::from(uncompressed) != body.length as i64 {
        return false;
    }
    // Snappy says itself how long it becomes.
    if !is_stored && chunk.compression() == Compression::SNAPPY && uncompressed > levels {
        let left = (body.length - level_bytes).min(SNAPPY_LENGTH_BYTES);
        let Some(stored) = body.of.some(body.at + level_bytes, left) else { return false };
        let said = Compact::new(&stored[..left.min(stored.len())]).length();
        if said != Some(u64::from((uncompressed - levels).unsigned_abs())) {
            return false;
        }
    }
    i64::from(uncompressed) <= chunk.uncompressed_size().max(ANY_PAGE_BYTES)
}

/// The header at a place of a chunk, and its length.
fn head_at(bytes: &impl ChunkBytes, at: usize) -> Option<(Head, usize)> {
    let mut most = LIKELY_HEADER_BYTES;
    loop {
        let some = bytes.some(at, most)?;
        match head(&some) {
            None if most <= some.len() && at + some.len() < bytes.length() => most = some.len().saturating_mul(16),
            found => return found,
        }
    }
}

/// The header that `bytes` begin with, and its length.
fn head(bytes: &[u8]) -> Option<(Head, usize)> {
    let mut at = Compact::new(bytes);
    let mut head = Head::default();
    let mut last = 0;
    while let Some(field) = at.field(last)? {
        last = field.id;
        match field.id {
            1 => head.kind = Some(at.int_of(field)?),
            2 => head.uncompressed = Some(at.int_of(field)?),
            3 => head.compressed = Some(at.int_of(field)?),
            5 | 7 | 8 if Compact::is_struct(field) => inner(&mut at, field, &mut head)?,
            _ => at.skip_field(field)?,
        }
    }
    Some((head, at.position()))
}

/// The part of a header that is of one kind of page; `outer` says of which.
fn inner(at: &mut Compact<'_>, outer: Field, head: &mut Head) -> Option<()> {
    let v2 = outer.id == 8;
    let mut last = 0;
    while let Some(field) = at.field(last)? {
        last = field.id;
        match field.id {
            1 => head.values = Some(at.int_of(field)?),
            2 if !v2 => head.encoding = Some(at.int_of(field)?),
            4 if v2 => head.encoding = Some(at.int_of(field)?),
            5 | 6 if v2 => head.levels[usize::from(field.id == 6)] = at.int_of(field)?,
            // Counts that are less than nothing are no counts.
            2 | 3 if v2 => {
                at.int_of(field).filter(|count| *count >= 0)?;
            }
            7 if v2 => head.is_stored = !Compact::bool_of(field)?,
            _ => at.skip_field(field)?,
        }
    }
    Some(())
}
