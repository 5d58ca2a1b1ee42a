//! What a new file is written to: bytes that are made, and chunks of the old file that stay where they are, in memory or on the disk.
//!
//! Place in the flow: `write` announces each chunk that it copies with the place where it will stand, and has Parquet's writer write as
//! many zeros; here the zeros are left out and the chunk put in their place. So nothing that is copied is copied in memory. Invariant:
//! nothing but zeros is left out, and `write` holds the places against the footer that Parquet's writer made.

use std::collections::VecDeque;
use std::io::{self, Repeat, Write};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::pieces::{Piece, Pieces};

const ZEROS: [u8; 4096] = [0; 4096];

/// The chunks that are announced and did not come yet, by the places where they begin; shared with the writer's user.
#[derive(Debug, Default, Clone)]
pub(super) struct Announced(Arc<Mutex<VecDeque<(u64, Piece)>>>);

impl Announced {
    /// Says that `chunk` will stand at `at`, after all that was announced before.
    pub(super) fn push(&self, at: u64, chunk: Piece) {
        if chunk.len() > 0 {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back((at, chunk));
        }
    }
}

/// Gathers the parts of a file.
#[derive(Debug, Default)]
pub(super) struct Gather {
    announced: Announced,
    parts: Vec<Piece>,
    made: Vec<u8>,
    at: u64,
}

impl Gather {
    pub(super) fn new(announced: Announced) -> Self {
        Self { announced, ..Self::default() }
    }

    /// The file; `None` if a chunk that was announced did not come.
    pub(super) fn finish(&mut self) -> Option<Pieces> {
        self.end_part();
        let all_came = self.announced.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        all_came.then(|| std::mem::take(&mut self.parts).into_iter().collect())
    }

    fn end_part(&mut self) {
        if !self.made.is_empty() {
            self.parts.push(Piece::Bytes(std::mem::take(&mut self.made).into()));
        }
    }
}

impl Write for Gather {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let announced = self.announced.clone();
        let mut announced = announced.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = bytes;
        while !rest.is_empty() {
            let next = announced.front().map_or(u64::MAX, |(at, _)| *at);
            if self.at < next {
                let length = rest.len().min(usize::try_from(next - self.at).unwrap_or(usize::MAX));
                self.made.extend_from_slice(&rest[..length]);
                (self.at, rest) = (self.at + length as u64, &rest[length..]);
                continue;
            }
            let Some((at, chunk)) = announced.front() else { break };
            let left = (at + chunk.len()).saturating_sub(self.at);
            let length = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if length == 0 || rest[..length].chunks(ZEROS.len()).any(|bytes| *bytes != ZEROS[..bytes.len()]) {
                return Err(io::Error::other("a chunk is not where it was announced"));
            }
            (self.at, rest) = (self.at + length as u64, &rest[length..]);
            if length as u64 == left {
                self.end_part();
                self.parts.extend(announced.pop_front().map(|(_, chunk)| chunk));
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Zeros in the place of an announced chunk.
pub(super) struct Zeros;

impl Length for Zeros {
    fn len(&self) -> u64 {
        u64::MAX
    }
}

impl ChunkReader for Zeros {
    type T = Repeat;

    fn get_read(&self, _: u64) -> Result<Repeat, ParquetError> {
        Ok(io::repeat(0))
    }

    fn get_bytes(&self, _: u64, length: usize) -> Result<Bytes, ParquetError> {
        Ok(vec![0; length].into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn gathered(announced: &[(u64, &'static [u8])], writes: &[&[u8]]) -> io::Result<Option<Vec<u8>>> {
        let places = Announced::default();
        let mut gather = Gather::new(places.clone());
        for (at, chunk) in announced {
            places.push(*at, Piece::Bytes(Bytes::from_static(chunk)));
        }
        for bytes in writes {
            gather.write_all(bytes)?;
        }
        Ok(gather.finish().map(|pieces| Bytes::from(pieces.read().unwrap()).to_vec()))
    }

    #[test]
    fn chunks_stand_where_zeros_were_written_however_the_writes_are_cut() {
        let announced: [(u64, &[u8]); 4] = [(2, b"XYZ"), (5, b"W"), (7, b""), (8, b"V")];
        let all = b"ab\0\0\0\0cd\0e";
        for cut in 0..all.len() {
            let made = gathered(&announced, &[&all[..cut], &all[cut..]]).unwrap();
            assert_eq!(made.unwrap(), b"abXYZWcdVe", "{cut}");
        }
    }

    #[test]
    fn what_is_no_zero_is_not_left_out_and_a_chunk_that_does_not_come_is_missed() {
        assert!(gathered(&[(1, b"XY")], &[b"a\0b"]).is_err());
        assert_eq!(gathered(&[(1, b"XY")], &[b"a\0"]).unwrap(), None);
        assert_eq!(gathered(&[(3, b"XY")], &[b"a\0"]).unwrap(), None);
    }
}
