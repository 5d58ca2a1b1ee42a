//! The stored form of a file index, described in `docs/formats/file-index.md`.

use std::ops::Range;

use alluvium_core::{Error, Kind, Result};
use bytes::Bytes;
use object_store::PutPayload;
use xxhash_rust::xxh3::xxh3_64;

use super::hash::IdHash;
use super::hits::Section;
use crate::binary::{Form, FromFront, LASTING_BYTES};

/// The version of the stored form that this program writes and the newest it reads.
pub const FILE_INDEX_FORMAT: u32 = 1;

const FORM: Form = Form {
    what: "file index",
    magic: *b"ALVINDEX",
    newest: FILE_INDEX_FORMAT,
    hint: "it only saves opening files: it may be deleted, and its files are then opened",
};
/// Length and checksum of the directory, the checksum of both, format, magic.
const FOOTER_BYTES: usize = 8 + 8 + 8 + LASTING_BYTES;

/// The sections of one data file, a field each, packed.
#[derive(Debug)]
pub(super) struct FileSections {
    pub(super) seq: u32,
    pub(super) sections: Vec<Bytes>,
}

/// The stored form of an index: of each file all sections, in the order of `fields`. They are not copied.
pub(super) fn encode(fields: &[String], mut files: Vec<FileSections>) -> Result<PutPayload> {
    let too_many = |e| Error::new(Kind::Internal, "an index of files has too much in it").source(e);
    files.sort_by_key(|file| file.seq);
    let mut directory = Vec::new();
    directory.extend_from_slice(&u16::try_from(fields.len()).map_err(too_many)?.to_be_bytes());
    for field in fields {
        directory.extend_from_slice(&u16::try_from(field.len()).map_err(too_many)?.to_be_bytes());
        directory.extend_from_slice(field.as_bytes());
    }
    directory.extend_from_slice(&u32::try_from(files.len()).map_err(too_many)?.to_be_bytes());
    for file in &files {
        directory.extend_from_slice(&file.seq.to_be_bytes());
    }
    let mut parts = Vec::with_capacity(files.len() * fields.len() + 1);
    for field in 0..fields.len() {
        for file in &files {
            let section = file.sections.get(field).cloned().unwrap_or_default();
            let count = u32::try_from(section.len() / IdHash::BYTES).map_err(too_many)?;
            directory.extend_from_slice(&count.to_be_bytes());
            directory.extend_from_slice(&xxh3_64(&section).to_be_bytes());
            parts.push(section);
        }
    }
    let mut footer = Vec::with_capacity(FOOTER_BYTES);
    footer.extend_from_slice(&(directory.len() as u64).to_be_bytes());
    footer.extend_from_slice(&xxh3_64(&directory).to_be_bytes());
    let own = xxh3_64(&footer);
    footer.extend_from_slice(&own.to_be_bytes());
    footer.extend_from_slice(&FORM.lasting());
    directory.append(&mut footer);
    parts.push(directory.into());
    Ok(parts.into_iter().collect())
}

/// The last bytes of an index.
#[derive(Debug)]
pub(super) struct Footer {
    /// Where in the file the directory is.
    pub(super) directory: Range<u64>,
    checksum: u64,
}

impl Footer {
    /// Reads the footer of a file of `size` bytes, which `end` is the end of.
    pub(super) fn decode(end: &[u8], size: u64, path: &str) -> Result<Self> {
        let too_short = || corrupt(path, "it is too short");
        FORM.check(end, path)?;
        let (_, footer) = end.split_last_chunk::<FOOTER_BYTES>().ok_or_else(too_short)?;
        let mut reader = FromFront(footer);
        let (length, checksum, own) = (reader.u64(), reader.u64(), reader.u64());
        if own != Some(xxh3_64(&footer[..16])) {
            return Err(corrupt(path, "the checksum of its footer is wrong"));
        }
        let directory_end = size.saturating_sub(FOOTER_BYTES as u64);
        let begin = length.and_then(|length| directory_end.checked_sub(length)).ok_or_else(too_short)?;
        Ok(Self { directory: begin..directory_end, checksum: checksum.unwrap_or_default() })
    }
}

/// Where a section is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SectionPlace {
    pub(super) bytes: Range<u64>,
    checksum: u64,
}

impl SectionPlace {
    /// The section, out of its bytes.
    pub(super) fn read<'a>(&self, bytes: &'a [u8], path: &str) -> Result<Section<'a>> {
        let (hashes, rest) = bytes.as_chunks();
        let section = Section(hashes);
        if !rest.is_empty() || xxh3_64(bytes) != self.checksum || !section.is_in_order() {
            return Err(corrupt(path, "a section is not as it was written"));
        }
        Ok(section)
    }
}

/// What an index tells of which files, and where.
#[derive(Debug)]
pub(super) struct Directory {
    fields: Vec<String>,
    /// The numbers of the files, ascending.
    seqs: Vec<u32>,
    /// Field by field, in it file by file.
    places: Vec<SectionPlace>,
}

impl Directory {
    /// Reads the directory that `footer` tells of.
    pub(super) fn decode(bytes: &[u8], footer: &Footer, path: &str) -> Result<Self> {
        if xxh3_64(bytes) != footer.checksum {
            return Err(corrupt(path, "the checksum of its directory is wrong"));
        }
        Self::read(bytes, footer.directory.start).ok_or_else(|| corrupt(path, "its directory is not as directories are"))
    }

    fn read(bytes: &[u8], body_bytes: u64) -> Option<Self> {
        let mut reader = FromFront(bytes);
        let mut fields = Vec::new();
        for _ in 0..reader.u16()? {
            let length = reader.u16()?;
            fields.push(String::from_utf8(reader.slice(length.into())?.to_vec()).ok()?);
        }
        let files = usize::try_from(reader.u32()?).ok().filter(|files| *files <= bytes.len())?;
        let seqs: Vec<u32> = (0..files).map(|_| reader.u32()).collect::<Option<_>>()?;
        let (mut places, mut begin) = (Vec::new(), 0_u64);
        for _ in 0..fields.len() * files {
            let (count, checksum) = (reader.u32()?, reader.u64()?);
            let end = begin + u64::from(count) * IdHash::BYTES as u64;
            places.push(SectionPlace { bytes: begin..end, checksum });
            begin = end;
        }
        let whole = reader.0.is_empty() && begin == body_bytes && seqs.is_sorted_by(|a, b| a < b);
        whole.then_some(Self { fields, seqs, places })
    }

    /// The section of a file's field; `None` if the index does not tell of the file or the field.
    pub(super) fn place(&self, seq: u32, field: &str) -> Option<&SectionPlace> {
        let file = self.seqs.binary_search(&seq).ok()?;
        let field = self.fields.iter().position(|f| f == field)?;
        self.places.get(field * self.seqs.len() + file)
    }
}

pub(super) fn corrupt(path: &str, why: &str) -> Error {
    FORM.corrupt(path, why)
}
