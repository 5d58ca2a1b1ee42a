//! Names of data files: they carry the key of the record that lists the file, so that vacuum finds it from the name alone.

use crate::chain::{Attempt, BatchKey, BatchNumber, ChainId, Incarnation, Job, Shard};
use crate::dataset::DatasetName;

const PREFIX: &str = "part-";
const SUFFIX: &str = ".parquet";

/// What a data file's name says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DataFile {
    /// The chain that staged the file.
    pub chain: ChainId,
    /// The record that may list it.
    pub key: BatchKey,
    /// The writer, without dashes.
    pub writer: String,
    /// The number among the writer's files of this record.
    pub seq: u32,
}

/// The name of a data file, flat in its table's directory:
/// `part-<job>-<dataset>-<shard>-<batch>-<attempt>-<incarnation>-<writer>-<seq>.parquet`, at most 255 bytes.
///
/// The dataset is the chain's, not always the table's: `dead_letters` holds files of every dataset's chain. A writer makes
/// up its random `writer_uuid` (dashes are left out) once and counts `seq` up, so no name is used again. The incarnation is
/// of ASCII letters and digits, as all are.
#[must_use]
pub fn data_file(chain: &ChainId, key: BatchKey, writer_uuid: &str, seq: u32) -> String {
    format!("{PREFIX}{}-{seq:05}{SUFFIX}", staged(chain, key, writer_uuid))
}

/// What the names of all files that a writer staged for a record have in common.
pub(super) fn staged(chain: &ChainId, key: BatchKey, writer_uuid: &str) -> String {
    let ChainId { incarnation, job, dataset, shard } = chain;
    debug_assert!(is_word(&incarnation.0), "an incarnation is of letters and digits");
    let writer = writer_uuid.replace('-', "");
    let (batch, attempt) = (key.batch.0, key.attempt.0);
    format!("{job}-{dataset}-{}-{batch:020}-{attempt:04}-{}-{writer}", shard.0, incarnation.0)
}

/// Reads a name that [`data_file`] made; `None` for every other name.
#[must_use]
pub fn parse_data_file(name: &str) -> Option<DataFile> {
    let (rest, seq) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.rsplit_once('-')?;
    let (chain, key, writer) = parse_staged(rest)?;
    Some(DataFile { chain, key, writer, seq: u32::try_from(number(seq, 5)?).ok()? })
}

/// Reads what [`staged`] made: chain, record and writer.
pub(super) fn parse_staged(text: &str) -> Option<(ChainId, BatchKey, String)> {
    let (job, rest) = text.split_once('-')?;
    let mut parts = rest.rsplitn(6, '-');
    let writer = parts.next().filter(|w| is_word(w))?;
    let incarnation = parts.next().filter(|i| is_word(i))?;
    let attempt = number(parts.next()?, 4)?;
    let batch = number(parts.next()?, 20)?;
    let shard = number(parts.next()?, 1)?;
    let dataset = parts.next().filter(|d| !d.is_empty())?;
    let chain = ChainId {
        incarnation: Incarnation(incarnation.to_owned()),
        job: job_named(job)?,
        dataset: DatasetName(dataset.to_owned()),
        shard: Shard(u32::try_from(shard).ok()?),
    };
    Some((chain, batch_key(batch, attempt)?, writer.to_owned()))
}

/// A number as `{:0width$}` prints it, and no other spelling.
pub(super) fn number(text: &str, width: usize) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let padded = text.len() == width || (text.len() > width && !text.starts_with('0'));
    if digits && padded { text.parse().ok() } else { None }
}

pub(super) fn batch_key(batch: u64, attempt: u64) -> Option<BatchKey> {
    let attempt = Attempt(u16::try_from(attempt).ok()?);
    if attempt > Attempt::MAX || batch < BatchNumber::FIRST.0 {
        return None;
    }
    Some(BatchKey { batch: BatchNumber(batch), attempt })
}

fn job_named(text: &str) -> Option<Job> {
    [Job::Ingest, Job::Mutate, Job::Retain, Job::Optimize, Job::Vacuum].into_iter().find(|job| job.name() == text)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::names::tests_support::{any_chain, any_key};

    const NAME: &str = "part-ingest-page-views-3-00000000000000000007-0002-9f86d081884c7d659a2feaa0c55ad015-\
                        67e5504410b1426f9247bb680e5fe0c8-00012.parquet";

    #[test]
    fn a_name_says_chain_record_writer_and_number() {
        let chain = ChainId {
            incarnation: Incarnation("9f86d081884c7d659a2feaa0c55ad015".into()),
            job: Job::Ingest,
            dataset: DatasetName("page-views".into()),
            shard: Shard(3),
        };
        let key = BatchKey { batch: BatchNumber(7), attempt: Attempt(2) };
        assert_eq!(data_file(&chain, key, "67e55044-10b1-426f-9247-bb680e5fe0c8", 12), NAME);
        let writer = "67e5504410b1426f9247bb680e5fe0c8".to_owned();
        assert_eq!(parse_data_file(NAME), Some(DataFile { chain, key, writer, seq: 12 }));
    }

    #[test]
    fn names_of_others_are_not_ours() {
        for (what, name) in [
            ("spark", "part-00000-67e55044-10b1-426f-9247-bb680e5fe0c8-c000.snappy.parquet".to_owned()),
            ("unknown job", NAME.replace("ingest", "digest")),
            ("unpadded batch", NAME.replace("00000000000000000007", "7")),
            ("batch 0", NAME.replace("00000000000000000007", "00000000000000000000")),
            ("batch beyond u64", NAME.replace("00000000000000000007", "99999999999999999999")),
            ("attempt 1024", NAME.replace("-0002-", "-1024-")),
            ("no dataset", NAME.replace("page-views-", "")),
            ("padded shard", NAME.replace("-3-", "-03-")),
            ("other ending", NAME.replace(".parquet", ".parquet.tmp")),
            ("in a directory", format!("x/{NAME}")),
            ("empty", String::new()),
        ] {
            assert_eq!(parse_data_file(&name), None, "{what}");
        }
    }

    proptest! {
        #[test]
        fn names_read_back_and_fit_in_255_bytes(chain in any_chain(), key in any_key(), writer in "[0-9a-f]{32}", seq in any::<u32>()) {
            let name = data_file(&chain, key, &writer, seq);
            prop_assert!(name.len() <= 255);
            prop_assert_eq!(parse_data_file(&name), Some(DataFile { chain, key, writer, seq }));
        }
    }
}
