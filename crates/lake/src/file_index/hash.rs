//! What an index knows of an id: 48 bits of a hash over its field and its text.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use alluvium_core::{Error, Kind, Result};
use arrow::array::{Array, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{ArrowPrimitiveType, DataType as ArrowType, Int8Type, Int16Type, Int32Type, Int64Type};
use xxhash_rust::xxh3::xxh3_64;

/// The bits of xxh3-64 that are left out.
const BITS_LEFT_OUT: u32 = 16;
/// Between the field's name and the id; no name holds it.
const SEPARATOR: u8 = 0;
/// Names and ids up to this length together are hashed in place.
const SHORT_BYTES: usize = 128;
/// The digits and the sign of any 64-bit integer fit in so many bytes.
const INTEGER_BYTES: usize = 20;

/// The hash of an id in a field: the upper 48 bits of xxh3-64 over the field's name, a zero byte, and the id's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdHash(pub(super) u64);

impl IdHash {
    /// Bytes that a hash is stored in.
    pub(super) const BYTES: usize = 6;

    /// The hash of an id of `field`. An integer's text are its digits, with a `-` before them if it is negative.
    #[must_use]
    pub fn of(field: &str, id: &str) -> Self {
        FieldHasher::new(field).hash(id)
    }
}

/// The hashes of some ids of a field, in order, none twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SortedHashes(Vec<IdHash>);

impl SortedHashes {
    /// The hashes of `ids` in `field`.
    #[must_use]
    pub fn of<S: AsRef<str>>(field: &str, ids: impl IntoIterator<Item = S>) -> Self {
        let hasher = FieldHasher::new(field);
        ids.into_iter().map(|id| hasher.hash(id.as_ref())).collect()
    }

    /// The hashes.
    #[must_use]
    pub fn as_slice(&self) -> &[IdHash] {
        &self.0
    }
}

impl FromIterator<IdHash> for SortedHashes {
    fn from_iter<I: IntoIterator<Item = IdHash>>(hashes: I) -> Self {
        let mut hashes: Vec<IdHash> = hashes.into_iter().collect();
        hashes.sort_unstable();
        hashes.dedup();
        Self(hashes)
    }
}

/// A set of hashes; they are mixed already.
pub type IdSet = HashSet<IdHash, BuildHasherDefault<Mixed>>;

/// Takes a hash as it is.
#[derive(Debug, Default, Clone, Copy)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        // Tables look at the upper bits too, which a hash of 48 bits lacks.
        self.0 = hash ^ hash << BITS_LEFT_OUT;
    }
}

/// Hashes ids of one field.
#[derive(Debug, Clone)]
pub struct FieldHasher {
    /// The field's name and the separator.
    prefix: Vec<u8>,
    /// The same, with room for a short id after it.
    short: [u8; SHORT_BYTES],
}

impl FieldHasher {
    /// For the ids of `field`.
    #[must_use]
    pub fn new(field: &str) -> Self {
        let mut prefix = field.as_bytes().to_vec();
        prefix.push(SEPARATOR);
        let mut short = [0; SHORT_BYTES];
        let fits = prefix.len().min(SHORT_BYTES);
        short[..fits].copy_from_slice(&prefix[..fits]);
        Self { prefix, short }
    }

    /// The hash of an id.
    #[must_use]
    pub fn hash(&self, id: &str) -> IdHash {
        self.hash_bytes(id.as_bytes())
    }

    fn hash_bytes(&self, id: &[u8]) -> IdHash {
        let (prefix, length) = (self.prefix.len(), self.prefix.len() + id.len());
        let mut short = self.short;
        let hash = match short.get_mut(..length) {
            Some(text) => {
                text[prefix..].copy_from_slice(id);
                xxh3_64(text)
            }
            None => xxh3_64(&[&self.prefix, id].concat()),
        };
        IdHash(hash >> BITS_LEFT_OUT)
    }

    /// Appends to `hashes` those of all values of `ids` that are not null, but for one that stands right before.
    pub(super) fn hash_array(&self, ids: &dyn Array, hashes: &mut Vec<IdHash>) -> Result<()> {
        hashes.reserve(ids.len());
        match ids.data_type() {
            ArrowType::Utf8 => self.hash_texts(ids.as_string::<i32>().iter().flatten(), hashes),
            ArrowType::LargeUtf8 => self.hash_texts(ids.as_string::<i64>().iter().flatten(), hashes),
            ArrowType::Utf8View => self.hash_texts(ids.as_string_view().iter().flatten(), hashes),
            ArrowType::Int8 => self.hash_integers(ids.as_primitive::<Int8Type>(), hashes),
            ArrowType::Int16 => self.hash_integers(ids.as_primitive::<Int16Type>(), hashes),
            ArrowType::Int32 => self.hash_integers(ids.as_primitive::<Int32Type>(), hashes),
            ArrowType::Int64 => self.hash_integers(ids.as_primitive::<Int64Type>(), hashes),
            ArrowType::Dictionary(_, values) => {
                let plain = cast(ids, values).map_err(|e| Error::new(Kind::Internal, "reading a column of ids").source(e))?;
                return self.hash_array(&plain, hashes);
            }
            ArrowType::Null => {}
            other => return Err(Error::new(Kind::Internal, format!("a column of ids cannot be of type {other}"))),
        }
        Ok(())
    }

    fn hash_texts<'a>(&self, ids: impl Iterator<Item = &'a str>, hashes: &mut Vec<IdHash>) {
        let mut before = None;
        for id in ids {
            if before != Some(id) {
                hashes.push(self.hash(id));
                before = Some(id);
            }
        }
    }

    fn hash_integers<T: ArrowPrimitiveType<Native: Into<i64>>>(&self, ids: &PrimitiveArray<T>, hashes: &mut Vec<IdHash>) {
        let (mut before, mut buffer) = (None, [0; INTEGER_BYTES]);
        for id in ids.iter().flatten().map(Into::<i64>::into) {
            if before != Some(id) {
                hashes.push(self.hash_bytes(integer_text(id, &mut buffer)));
                before = Some(id);
            }
        }
    }
}

/// The decimal text of a number.
fn integer_text(number: i64, buffer: &mut [u8; INTEGER_BYTES]) -> &[u8] {
    let (mut left, mut at) = (number.unsigned_abs(), INTEGER_BYTES);
    loop {
        at -= 1;
        buffer[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    &buffer[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_their_canonical_text() {
        for number in [0, 7, -7, 10, 1_234_567_890, i64::MAX, i64::MIN] {
            assert_eq!(integer_text(number, &mut [0; INTEGER_BYTES]), number.to_string().as_bytes());
        }
    }
}
