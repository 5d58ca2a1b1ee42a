//! Which rows of a file hold values that are looked for.
//!
//! Place in the flow: a mutation asks this of each file that may hold an id, current or original. For each row group the footer's
//! statistics are asked first, then the dictionary, where a miss settles the whole chunk; only then are values decoded. Nothing is
//! allocated for a row that does not match.

use std::io::Write;

use alluvium_core::{Error, Kind, Result};
use arrow::array::{Array, ArrayRef, AsArray, downcast_integer_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{ConvertedType, Encoding, LogicalType, PageType, Type as PhysicalType};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescriptor;

use super::file::{SpliceFile, chunk_range, leaves_of_roots, root_index, with_array};
use super::guard::guarded;
use super::pages::{dictionary_bytes, readable};
use super::source::Fetched;
use crate::rows::{damaged, unreadable};
use crate::stage::partition_value;

/// Rows decoded at a time, unless they are long.
pub(super) const BATCH_ROWS: usize = 8192;
/// About the most bytes of a column, or of all columns that are decoded together, at a time.
const BATCH_BYTES: u64 = 16 << 20;

/// How many rows are decoded at a time where each takes about `row_bytes`.
pub(super) fn batch_rows(row_bytes: u64) -> usize {
    usize::try_from(BATCH_BYTES / row_bytes.max(1)).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS)
}

/// About the bytes that a row takes in some chunks of a row group once they are decoded.
pub(super) fn row_bytes<'a>(chunks: impl Iterator<Item = &'a ColumnChunkMetaData>, rows: u64) -> u64 {
    let bytes = chunks.map(|c| c.uncompressed_size().max(c.unencoded_byte_array_data_bytes().unwrap_or(0)).unsigned_abs());
    bytes.sum::<u64>() / rows.max(1)
}

/// Values that are looked for, in canonical text: a string as it is, a whole number in decimal, other types as Delta spells
/// partition values.
pub trait Wanted: Sync {
    /// Whether this value is one of them.
    fn has(&self, value: &str) -> bool;

    /// Whether the file is known to hold one of them, so that asking its dictionaries first would be in vain.
    fn are_there(&self) -> bool {
        false
    }

    /// Whether one of them may lie from `least` to `greatest`, both included, by the order of bytes. Asked for columns of text
    /// only; `true` is always right.
    fn may_lie_within(&self, least: &str, greatest: &str) -> bool {
        let _ = (least, greatest);
        true
    }
}

impl<F: Fn(&str) -> bool + Sync> Wanted for F {
    fn has(&self, value: &str) -> bool {
        self(value)
    }
}

/// How a leaf's values become canonical text without Arrow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    Text,
    Int32,
    Int64,
    Unsigned32,
    Unsigned64,
}

impl Plain {
    fn of(leaf: &ColumnDescriptor) -> Option<Self> {
        let unsigned = match (leaf.logical_type_ref(), leaf.converted_type()) {
            (None, ConvertedType::NONE) | (Some(LogicalType::String), _) | (None, ConvertedType::UTF8) => false,
            (Some(LogicalType::Integer(int)), _) => !int.is_signed,
            (None, ConvertedType::INT_8 | ConvertedType::INT_16 | ConvertedType::INT_32 | ConvertedType::INT_64) => false,
            (None, c) => {
                let unsigned =
                    [ConvertedType::UINT_8, ConvertedType::UINT_16, ConvertedType::UINT_32, ConvertedType::UINT_64].contains(&c);
                if !unsigned {
                    return None;
                }
                true
            }
            _ => return None,
        };
        match (leaf.physical_type(), unsigned) {
            (PhysicalType::BYTE_ARRAY, _) => Some(Self::Text),
            (PhysicalType::INT32, false) => Some(Self::Int32),
            (PhysicalType::INT64, false) => Some(Self::Int64),
            (PhysicalType::INT32, true) => Some(Self::Unsigned32),
            (PhysicalType::INT64, true) => Some(Self::Unsigned64),
            _ => None,
        }
    }

    /// Whether a dictionary of `count` values in `bytes` holds one that is wanted; `None` if it is not what it should be.
    fn any_in(self, bytes: &[u8], count: u32, wanted: &dyn Wanted) -> Option<bool> {
        let mut left = bytes;
        let mut digits = Digits::default();
        for _ in 0..count {
            let width = match self {
                Self::Text => usize::try_from(u32::from_le_bytes(*left.split_off(..4)?.as_array()?)).ok()?,
                Self::Int32 | Self::Unsigned32 => 4,
                Self::Int64 | Self::Unsigned64 => 8,
            };
            let value = left.split_off(..width)?;
            let hit = match self {
                Self::Text => std::str::from_utf8(value).is_ok_and(|text| wanted.has(text)),
                Self::Int32 => wanted.has(digits.of(i32::from_le_bytes(*value.as_array()?))),
                Self::Int64 => wanted.has(digits.of(i64::from_le_bytes(*value.as_array()?))),
                Self::Unsigned32 => wanted.has(digits.of(u32::from_le_bytes(*value.as_array()?))),
                Self::Unsigned64 => wanted.has(digits.of(u64::from_le_bytes(*value.as_array()?))),
            };
            if hit {
                return Some(true);
            }
        }
        Some(false)
    }
}

/// The text of a whole number, in a place of its own.
#[derive(Default)]
struct Digits([u8; 24]);

impl Digits {
    fn of(&mut self, number: impl std::fmt::Display) -> &str {
        let mut left = &mut self.0[..];
        let room = left.len();
        let written = if write!(left, "{number}").is_ok() { room - left.len() } else { 0 };
        std::str::from_utf8(&self.0[..written]).unwrap_or_default()
    }
}

impl SpliceFile {
    /// The positions, ascending, of the rows whose value of `column` is wanted. Null is never wanted, and a column that the file
    /// lacks has no value. Reads only that column's chunks.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if the column cannot be read, [`Kind::Unsupported`] if it is nested or of a type without canonical text,
    /// [`Kind::NotFound`] and [`Kind::Unavailable`] as [`SpliceFile::open`].
    pub async fn matching(&self, column: &str, wanted: &dyn Wanted) -> Result<Vec<u64>> {
        let Some(root) = root_index(self.schema(), column) else { return Ok(Vec::new()) };
        let leaves = leaves_of_roots(self.schema()).swap_remove(root);
        let leaf = leaves.start;
        if leaves.len() != 1 || self.schema().column(leaf).path().parts().len() != 1 {
            return Err(unsuitable(column));
        }
        let found = guarded(self.file(), self.find(root, leaf, wanted)).await;
        let mut found = found.map_err(|e| e.context(format!("looking through the column {column}")))?;
        if !self.gone.is_empty() {
            found.retain(|position| self.gone.binary_search(position).is_err());
        }
        Ok(found)
    }

    async fn find(&self, root: usize, leaf: usize, wanted: &dyn Wanted) -> Result<Vec<u64>> {
        let plain = Plain::of(&self.schema().column(leaf));
        let open: Vec<usize> = self
            .groups()
            .enumerate()
            .filter(|(_, (_, group))| may_hold(group.column(leaf), group, plain, wanted))
            .map(|(i, _)| i)
            .collect();
        // Dictionaries alone, where they settle it: all in one request.
        let chunk = |group: &usize| self.metadata.row_group(*group).column(leaf);
        let settling = |group: &usize| plain.filter(|_| !wanted.are_there()).and_then(|_| dictionary_alone(chunk(group)));
        let dictionaries = self.source.fetch(&open.iter().filter_map(settling).collect::<Vec<_>>()).await?;
        let mut found = Vec::new();
        for (group, (rows, _)) in self.groups().enumerate().filter(|(i, _)| open.binary_search(i).is_ok()) {
            if let (Some(plain), Some(range)) = (plain, settling(&group)) {
                let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                let bytes = dictionaries.get_bytes(range.start, length).map_err(|e| unreadable(self.file(), e))?;
                if dictionary_misses(&dictionaries, &bytes, chunk(&group), plain, wanted) {
                    continue;
                }
            }
            let range = chunk_range(chunk(&group));
            let fetched = self.source.fetch(std::slice::from_ref(&range)).await?;
            let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let bytes = fetched.get_bytes(range.start, length).map_err(|e| unreadable(self.file(), e))?;
            let Some(of_chunk) = readable(&bytes, chunk(&group)) else {
                return Err(damaged(self.file()).hint("a column does not have the pages that the footer says"));
            };
            if let Some(plain) = plain
                && !wanted.are_there()
                && of_chunk.all_in_dictionary
                && of_chunk.dictionary_bytes > 0
                && dictionary_misses(&fetched, &bytes, chunk(&group), plain, wanted)
            {
                continue;
            }
            let row_bytes = of_chunk.value_bytes.max(row_bytes(std::iter::once(chunk(&group)), rows.end - rows.start));
            self.decode(group, root, rows.start, (fetched, batch_rows(row_bytes)), wanted, &mut found)?;
        }
        Ok(found)
    }

    /// Decodes a column of a row group and adds the positions of what is wanted.
    fn decode(
        &self,
        group: usize,
        root: usize,
        first: u64,
        (fetched, batch_rows): (Fetched, usize),
        wanted: &dyn Wanted,
        found: &mut Vec<u64>,
    ) -> Result<()> {
        let unreadable = |e| unreadable(self.file(), e);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(fetched, self.native()?.clone())
            .with_row_groups(vec![group])
            .with_projection(ProjectionMask::roots(self.schema(), [root]))
            .with_batch_size(batch_rows)
            .build()
            .map_err(unreadable)?;
        let (mut first, found_before) = (first, found.len());
        let mut decoded = Some(Vec::new());
        for batch in reader {
            let batch = batch.map_err(|e| unreadable(e.into()))?;
            scan(batch.column(0), wanted, |row| found.push(first + row as u64))?;
            first += batch.num_rows() as u64;
            decoded = decoded.and_then(|arrays| with_array(arrays, batch.column(0)));
        }
        if let Some(arrays) = decoded.filter(|_| found.len() > found_before) {
            self.keep_decoded(group, root, arrays);
        }
        Ok(())
    }
}

/// Whether a chunk may hold what is wanted, by its statistics.
fn may_hold(chunk: &ColumnChunkMetaData, group: &RowGroupMetaData, plain: Option<Plain>, wanted: &dyn Wanted) -> bool {
    if group.num_rows() == 0 {
        return false;
    }
    let Some(statistics) = chunk.statistics() else { return true };
    if statistics.null_count_opt() == Some(group.num_rows().unsigned_abs()) {
        return false;
    }
    if plain != Some(Plain::Text) || statistics.is_min_max_deprecated() {
        return true;
    }
    let text = |bytes: Option<&[u8]>| bytes.and_then(|b| std::str::from_utf8(b).ok().map(str::to_owned));
    match statistics {
        Statistics::ByteArray(s) => match (text(s.min_bytes_opt()), text(s.max_bytes_opt())) {
            (Some(least), Some(greatest)) => wanted.may_lie_within(&least, &greatest),
            _ => true,
        },
        _ => true,
    }
}

/// Where a chunk's dictionary is, if the footer says that all values are in it.
fn dictionary_alone(chunk: &ColumnChunkMetaData) -> Option<std::ops::Range<u64>> {
    chunk.dictionary_page_offset()?;
    let stats = chunk.page_encoding_stats()?;
    let in_dictionary = |e: Encoding| matches!(e, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY);
    let data = |t: PageType| matches!(t, PageType::DATA_PAGE | PageType::DATA_PAGE_V2);
    let all = stats.iter().filter(|s| data(s.page_type)).all(|s| in_dictionary(s.encoding));
    let range = chunk_range(chunk);
    let end = u64::try_from(chunk.data_page_offset()).ok()?;
    (all && stats.iter().any(|s| data(s.page_type)) && end <= range.end).then_some(range.start..end)
}

/// Whether the dictionary that `bytes` begin with has none of what is wanted. What cannot be told by it is left to decoding.
fn dictionary_misses(fetched: &Fetched, bytes: &Bytes, chunk: &ColumnChunkMetaData, plain: Plain, wanted: &dyn Wanted) -> bool {
    if dictionary_bytes(bytes, chunk).is_none() {
        return false;
    }
    let Ok(mut reader) = SerializedPageReader::new(std::sync::Arc::new(fetched.clone()), chunk, 0, None) else { return false };
    match reader.get_next_page() {
        Ok(Some(Page::DictionaryPage { buf, num_values, encoding: Encoding::PLAIN | Encoding::PLAIN_DICTIONARY, .. })) => {
            plain.any_in(&buf, num_values, wanted) == Some(false)
        }
        _ => false,
    }
}

/// Tells the rows of `column` that are wanted.
fn scan(column: &ArrayRef, wanted: &dyn Wanted, mut tell: impl FnMut(usize)) -> Result<()> {
    let column = column.as_ref();
    if column.null_count() == column.len() {
        return Ok(());
    }
    let mut digits = Digits::default();
    let values = |row: usize| column.is_valid(row);
    let rows = (0..column.len()).filter(|row| values(*row));
    downcast_integer_array!(
        column => {
            for row in rows {
                if wanted.has(digits.of(column.value(row))) {
                    tell(row);
                }
            }
        }
        DataType::Utf8 => {
            let column = column.as_string::<i32>();
            for row in rows {
                if wanted.has(column.value(row)) {
                    tell(row);
                }
            }
        }
        DataType::Binary => {
            let column = column.as_binary::<i32>();
            for row in rows {
                if std::str::from_utf8(column.value(row)).is_ok_and(|text| wanted.has(text)) {
                    tell(row);
                }
            }
        }
        _ => {
            let column = other_text(column)?;
            for row in rows {
                if partition_value(&column, row)?.is_some_and(|text| wanted.has(&text)) {
                    tell(row);
                }
            }
        }
    );
    Ok(())
}

/// A column in a type whose text Delta knows.
fn other_text(column: &dyn Array) -> Result<ArrayRef> {
    let to = match column.data_type() {
        DataType::Boolean | DataType::Date32 | DataType::Decimal128(..) => column.data_type().clone(),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        other => return Err(unsuitable(&format!("of type {other}"))),
    };
    cast(column, &to)
        .map_err(|_may_quote_a_value| Error::new(Kind::Unsupported, "looking through a column of times out of range"))
}

fn unsuitable(column: &str) -> Error {
    Error::new(Kind::Unsupported, format!("looking for values in the column {column}: it is not of text or whole numbers"))
        .hint("identities are strings or integers: another program has changed the type of the column, or the file is not of this table")
}
