//! Names of what lies beside data files: the index of all files that a writer staged for a record, and what tells which rows it rewrote. They are
//! called as those files are.

use super::data_file::{DataFile, parse_staged, staged};
use crate::chain::{BatchKey, ChainId};

const SUFFIX: &str = ".idx";
const REWRITES_SUFFIX: &str = ".json";

/// What the name of a file index says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IndexFile {
    /// The chain that staged the files.
    pub chain: ChainId,
    /// The record that may list them.
    pub key: BatchKey,
    /// Their writer, without dashes.
    pub writer: String,
}

impl IndexFile {
    /// The index's own name, without its directory: `<job>-<dataset>-<shard>-<batch>-<attempt>-<incarnation>-<writer>.idx`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}{SUFFIX}", staged(&self.chain, self.key, &self.writer))
    }

    /// Reads a name that [`IndexFile::name`] made; `None` for every other name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (chain, key, writer) = parse_staged(name.strip_suffix(SUFFIX)?)?;
        Some(Self { chain, key, writer })
    }
}

/// The name of the file that tells which rows a commit rewrote: `<job>-<dataset>-<shard>-<batch>-<attempt>-<incarnation>-<writer>.json`.
#[must_use]
pub fn rewrites_name(chain: &ChainId, key: BatchKey, writer_uuid: &str) -> String {
    format!("{}{REWRITES_SUFFIX}", staged(chain, key, writer_uuid))
}

/// The chain and the record of a name that [`rewrites_name`] made; `None` for every other name.
#[must_use]
pub fn parse_rewrites_name(name: &str) -> Option<(ChainId, BatchKey)> {
    let (chain, key, _) = parse_staged(name.strip_suffix(REWRITES_SUFFIX)?)?;
    Some((chain, key))
}

impl DataFile {
    /// The index that tells of the file, if one was written.
    #[must_use]
    pub fn index(&self) -> IndexFile {
        IndexFile { chain: self.chain.clone(), key: self.key, writer: self.writer.clone() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::names::tests_support::{any_chain, any_key};
    use crate::names::{data_file, parse_data_file};

    const DATA: &str = "part-ingest-page-views-3-00000000000000000007-0002-9f86d081884c7d659a2feaa0c55ad015-\
                        67e5504410b1426f9247bb680e5fe0c8-00012.parquet";
    const INDEX: &str = "ingest-page-views-3-00000000000000000007-0002-9f86d081884c7d659a2feaa0c55ad015-\
                         67e5504410b1426f9247bb680e5fe0c8.idx";

    #[test]
    fn an_index_is_called_as_the_files_it_tells_of() {
        let index = parse_data_file(DATA).unwrap().index();
        assert_eq!(index.name(), INDEX);
        assert_eq!(IndexFile::parse(INDEX), Some(index));
    }

    #[test]
    fn other_names_are_no_indexes() {
        for name in
            ["", ".idx", DATA, &INDEX.replace(".idx", ".idx.tmp"), &INDEX.replace("-0002-", "-2-"), &format!("part-{INDEX}")]
        {
            assert_eq!(IndexFile::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_read_back_and_fit_in_255_bytes(chain in any_chain(), key in any_key(), writer in "[0-9a-f]{32}", seq in any::<u32>()) {
            let index = IndexFile { chain, key, writer };
            prop_assert!(index.name().len() <= 255);
            prop_assert_eq!(IndexFile::parse(&index.name()), Some(index.clone()));
            prop_assert_eq!(parse_rewrites_name(&rewrites_name(&index.chain, key, &index.writer)), Some((index.chain.clone(), key)));
            prop_assert_eq!(parse_rewrites_name(&index.name()), None);
            let data = data_file(&index.chain, key, &index.writer, seq);
            prop_assert_eq!(parse_data_file(&data).unwrap().index(), index);
        }
    }
}
