//! Looks for what should be gone: every file below a directory, its name, its bytes, and what Parquet keeps compressed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};

/// The files below `root` in which one of `needles` is, with the needle. Listings hide nothing: all that the disk has is looked at.
///
/// # Errors
/// What reading the disk returns; a file that ends in `.parquet` and is none.
pub fn residue(root: &Path, needles: &[&str]) -> io::Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let (entry, mut texts) = (entry?, Vec::new());
            let path = entry.path();
            texts.push(entry.file_name().to_string_lossy().into_owned());
            if entry.file_type()?.is_dir() {
                directories.push(path.clone());
            } else {
                let bytes = fs::read(&path)?;
                texts.push(String::from_utf8_lossy(&bytes).into_owned());
                if path.extension().is_some_and(|extension| extension == "parquet") {
                    texts.push(decoded(bytes).map_err(|e| io::Error::other(format!("{}: {e}", path.display())))?);
                }
            }
            let here = needles.iter().filter(|needle| texts.iter().any(|text| text.contains(**needle)));
            found.extend(here.map(|needle| (path.clone(), (*needle).to_owned())));
        }
    }
    found.sort();
    Ok(found)
}

/// All rows of a Parquet file as text.
fn decoded(bytes: Vec<u8>) -> parquet::errors::Result<String> {
    let mut text = String::new();
    for row in SerializedFileReader::new(Bytes::from(bytes))?.get_row_iter(None)? {
        text.push_str(&row?.to_string());
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    #[test]
    fn names_bytes_and_what_is_compressed_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".hidden")).unwrap();
        fs::write(dir.path().join(".hidden/a#1"), "x needle y").unwrap();
        fs::write(dir.path().join("needle.json"), "{}").unwrap();
        fs::write(dir.path().join("clean.json"), "{}").unwrap();
        let schema = Arc::new(parse_message_type("message m { required binary c (UTF8); }").unwrap());
        let compression = parquet::basic::Compression::SNAPPY;
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_dictionary_enabled(false)
            .build();
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        // The second is a copy of the first, cut in two by compression.
        let values: Vec<ByteArray> = ["abcneed", "abcneedle"].map(ByteArray::from).to_vec();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        let bytes = writer.into_inner().unwrap();
        fs::write(dir.path().join("t.parquet"), bytes).unwrap();
        let found = residue(dir.path(), &["needle", "absent"]).unwrap();
        let names: Vec<_> = found.iter().map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        assert_eq!(names, ["a#1", "needle.json", "t.parquet"]);
    }
}
