//! What a new file is made of: bytes in memory, and parts of files of the same disk, which are copied there without being read.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use object_store::PutPayload;
use rustix::fs::copy_file_range;
use rustix::io::Errno;

/// Copied at a time where the kernel does not do it.
const COPY_BYTES: u64 = 1 << 20;

/// The content of a file that is about to be put.
#[derive(Debug, Clone, Default)]
pub struct Pieces(Vec<Piece>);

#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Bytes(Bytes),
    /// Of a file that nobody changes any more.
    Part {
        file: Arc<File>,
        range: Range<u64>,
    },
}

impl Piece {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Part { range, .. } => range.end - range.start,
        }
    }

    /// Its bytes; of a part they are read.
    fn read(&self) -> io::Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::Part { file, range } => {
                let mut bytes = vec![0; usize::try_from(self.len()).map_err(io::Error::other)?];
                file.read_exact_at(&mut bytes, range.start)?;
                Ok(bytes.into())
            }
        }
    }

    fn write_to(&self, out: &mut File) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => out.write_all(bytes),
            Self::Part { file, range } => copy(file, range.clone(), out),
        }
    }
}

impl Pieces {
    /// The bytes in all.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.iter().map(Piece::len).sum()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it in memory; what is not is read. Blocks.
    ///
    /// # Errors
    /// What reading a file returns.
    pub fn read(&self) -> io::Result<PutPayload> {
        self.0.iter().map(Piece::read).collect()
    }

    /// Whether all of it is in memory.
    pub(crate) fn are_bytes(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Bytes(_)))
    }

    pub(crate) fn write_to(&self, out: &mut File) -> io::Result<()> {
        self.0.iter().try_for_each(|piece| piece.write_to(out))
    }
}

impl FromIterator<Piece> for Pieces {
    fn from_iter<I: IntoIterator<Item = Piece>>(pieces: I) -> Self {
        Self(pieces.into_iter().collect())
    }
}

impl From<PutPayload> for Pieces {
    fn from(payload: PutPayload) -> Self {
        payload.into_iter().map(Piece::Bytes).collect()
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        std::iter::once(Piece::Bytes(bytes)).collect()
    }
}

/// Appends a part of `file` to `out`: by the kernel, where it can.
fn copy(file: &File, Range { start: mut at, end }: Range<u64>, out: &mut File) -> io::Result<()> {
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        match copy_file_range(file, Some(&mut at), &*out, None, left) {
            Ok(1..) | Err(Errno::INTR) => {}
            // Of another disk, or one that cannot, or says that it did and did not. What else is wrong, reading and writing tell.
            Ok(0) | Err(_) => {
                let mut bytes = vec![0; usize::try_from((end - at).min(COPY_BYTES)).map_err(io::Error::other)?];
                file.read_exact_at(&mut bytes, at)?;
                out.write_all(&bytes)?;
                at += bytes.len() as u64;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    #[test]
    fn parts_of_files_stand_between_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("old");
        let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
        fs::write(&old, &content).unwrap();
        let file = Arc::new(File::open(&old).unwrap());
        let part = |range: Range<u64>| Piece::Part { file: file.clone(), range };
        let pieces: Pieces = [
            Piece::Bytes(Bytes::from_static(b"head")),
            part(7..2_500_009),
            Piece::Bytes(Bytes::from_static(b"")),
            part(0..1),
            part(5..5),
        ]
        .into_iter()
        .collect();
        let wanted = [b"head", &content[7..2_500_009], &content[..1]].concat();
        assert_eq!((pieces.len(), pieces.are_bytes()), (wanted.len() as u64, false));
        assert_eq!(Bytes::from(pieces.read().unwrap()), wanted);
        let new = dir.path().join("new");
        let mut out = File::create_new(&new).unwrap();
        // Who has a file open reads it also when its name is gone.
        fs::remove_file(&old).unwrap();
        pieces.write_to(&mut out).unwrap();
        assert_eq!(fs::read(&new).unwrap(), wanted);
    }

    #[test]
    fn a_file_that_is_shorter_than_its_part_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("old");
        fs::write(&old, b"short").unwrap();
        let pieces: Pieces = std::iter::once(Piece::Part { file: Arc::new(File::open(&old).unwrap()), range: 2..9 }).collect();
        assert_eq!(pieces.read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut out = File::create_new(dir.path().join("new")).unwrap();
        assert_eq!(pieces.write_to(&mut out).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
