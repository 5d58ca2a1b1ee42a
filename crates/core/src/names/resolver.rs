//! The resolver: paths, topics, groups and labels of one namespace.

use std::collections::BTreeSet;

use xxhash_rust::xxh3::xxh3_64;

use super::data_file::{batch_key, number};
use super::{IndexFile, Namespace, TableName};
use crate::chain::{BatchKey, BatchNumber, ChainId, Incarnation, Job};
use crate::dataset::DatasetName;
use crate::error::TextError;
use crate::taken::BatchSpan;

const MAX_PART_BYTES: usize = 255;
const MAX_TOPIC_BYTES: usize = 249;
const INTERNAL_TOPICS: [&str; 2] = ["__consumer_offsets", "__transaction_state"];

/// Makes every decorated name of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolver {
    namespace: Namespace,
    reserved: BTreeSet<Namespace>,
}

impl Resolver {
    /// The resolver of `namespace`, in a project that reserves nothing.
    #[must_use]
    pub const fn new(namespace: Namespace) -> Self {
        Self { namespace, reserved: BTreeSet::new() }
    }

    /// The resolver of `namespace`, in a project that says it will never use the namespaces of `reserved`.
    ///
    /// # Errors
    /// `namespace` is one of them.
    pub fn with_reserved(namespace: Namespace, reserved: BTreeSet<Namespace>) -> Result<Self, TextError> {
        if reserved.contains(&namespace) {
            return Err(TextError::new(
                format!("the project file promises never to use the namespace {:?}", namespace.as_str()),
                "use another namespace, or take it out of reserved_namespaces",
            ));
        }
        Ok(Self { namespace, reserved })
    }

    /// The namespace.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The directory of all that the namespace owns: `<ns>`.
    #[must_use]
    pub fn namespace_root(&self) -> String {
        self.namespace.to_string()
    }

    /// The directory of what Alluvium remembers: `<ns>/_alluvium`.
    #[must_use]
    pub fn memory_dir(&self) -> String {
        format!("{}/_alluvium", self.namespace)
    }

    /// The file that gives the namespace its incarnation: `<ns>/_alluvium/namespace.json`.
    #[must_use]
    pub fn namespace_file(&self) -> String {
        format!("{}/namespace.json", self.memory_dir())
    }

    /// The mark of a namespace that is being deleted: written first, removed last: `<ns>/_alluvium/deleting.json`.
    #[must_use]
    pub fn deleting_mark(&self) -> String {
        format!("{}/deleting.json", self.memory_dir())
    }

    /// The file that says that a store of this identity was proved to refuse puts over what is there:
    /// `<ns>/_alluvium/stores/<hash of the identity, 16 hexadecimal digits>.json`.
    #[must_use]
    pub fn store_proof(&self, identity: &str) -> String {
        format!("{}/stores/{:016x}.json", self.memory_dir(), xxh3_64(identity.as_bytes()))
    }

    /// An object that such a proof puts and deletes: `<ns>/_alluvium/stores/probe-<id>`.
    #[must_use]
    pub fn store_probe(&self, id: &str) -> String {
        format!("{}/stores/probe-{id}", self.memory_dir())
    }

    /// A table's directory: `<ns>/<table>`.
    #[must_use]
    pub fn table(&self, table: &TableName) -> String {
        format!("{}/{table}", self.namespace)
    }

    /// The directory of all chains: `<ns>/_alluvium/chains`.
    #[must_use]
    pub fn chains_dir(&self) -> String {
        format!("{}/chains", self.memory_dir())
    }

    /// A chain's directory: `<ns>/_alluvium/chains/<incarnation>/<job>/<dataset>/<shard>`.
    #[must_use]
    pub fn chain_dir(&self, chain: &ChainId) -> String {
        let ChainId { incarnation, job, dataset, shard } = chain;
        format!("{}/{}/{job}/{dataset}/{}", self.chains_dir(), incarnation.0, shard.0)
    }

    /// The record of one attempt: `<chain>/<batch, 20 digits>.<attempt, 4 digits>.json`. The names of a chain's records sort
    /// as their keys do.
    #[must_use]
    pub fn record(&self, chain: &ChainId, key: BatchKey) -> String {
        format!("{}/{}", self.chain_dir(chain), ChainFile::Record(key).name())
    }

    /// The mark of a finished batch: `<chain>/<batch, 20 digits>.done.json`; it sorts after the batch's records and before
    /// those of the next.
    #[must_use]
    pub fn done_mark(&self, chain: &ChainId, batch: BatchNumber) -> String {
        format!("{}/{}", self.chain_dir(chain), ChainFile::Done(batch).name())
    }

    /// The directory of a chain's folded lists of taken files: `<chain>/taken`.
    #[must_use]
    pub fn taken_dir(&self, chain: &ChainId) -> String {
        format!("{}/taken", self.chain_dir(chain))
    }

    /// The files taken by batches `from` to `to`, both included: `<chain>/taken/<from, 20 digits>-<to, 20 digits>.taken`.
    #[must_use]
    pub fn taken_segment(&self, chain: &ChainId, from: BatchNumber, to: BatchNumber) -> String {
        format!("{}/{}", self.taken_dir(chain), ChainFile::Taken { from, to }.name())
    }

    /// How the Kafka source of a dataset is cut into shards: `<ns>/_alluvium/sources/<dataset>.json`.
    #[must_use]
    pub fn source_file(&self, dataset: &DatasetName) -> String {
        format!("{}/sources/{dataset}.json", self.memory_dir())
    }

    /// The directory of all ledgers: `<ns>/_alluvium/ledger`.
    #[must_use]
    pub fn ledgers_dir(&self) -> String {
        format!("{}/ledger", self.memory_dir())
    }

    /// The name of the directory of all that is made from requests as of a purge of them: `<incarnation>`, or `<incarnation>-<purge>` after the
    /// first.
    fn ledger_name(incarnation: &Incarnation, purge: u64) -> String {
        if purge == 0 { incarnation.0.clone() } else { format!("{}-{purge}", incarnation.0) }
    }

    /// Whether such a directory is older: of an earlier purge, or of another incarnation.
    #[must_use]
    pub fn is_older_ledger(name: &str, incarnation: &Incarnation, purge: u64) -> bool {
        let of = match name.strip_prefix(incarnation.0.as_str()) {
            Some("") => Some(0),
            Some(rest) => rest.strip_prefix('-').and_then(|number| number.parse().ok()),
            None => None,
        };
        of.is_none_or(|of| of < purge)
    }

    fn ledger_dir(&self, incarnation: &Incarnation, purge: u64) -> String {
        format!("{}/{}", self.ledgers_dir(), Self::ledger_name(incarnation, purge))
    }

    /// The directory of what pseudonyms are made with: `<ns>/_alluvium/erase/<incarnation>`.
    #[must_use]
    pub fn erasure_dir(&self, incarnation: &Incarnation) -> String {
        format!("{}/erase/{}", self.memory_dir(), incarnation.0)
    }

    /// The directory of the ids of requests that were accepted: `<ledger>/ids`.
    #[must_use]
    pub fn request_ids_dir(&self, incarnation: &Incarnation, purge: u64) -> String {
        format!("{}/ids", self.ledger_dir(incarnation, purge))
    }

    /// The directory of what requests make of a dataset's ids, as it is declared: `<ledger>/datasets/<dataset>/<shape>/fates`.
    #[must_use]
    pub fn fates_dir(&self, incarnation: &Incarnation, purge: u64, dataset: &DatasetName, shape: &str) -> String {
        format!("{}/datasets/{dataset}/{shape}/fates", self.ledger_dir(incarnation, purge))
    }

    /// The directory of a dataset's requests by what they name: `<ledger>/datasets/<dataset>/<shape>/requests`.
    #[must_use]
    pub fn requests_by_node_dir(&self, incarnation: &Incarnation, purge: u64, dataset: &DatasetName, shape: &str) -> String {
        format!("{}/datasets/{dataset}/{shape}/requests", self.ledger_dir(incarnation, purge))
    }

    /// The directory of what tells which rows commits to a table rewrote: `<ns>/_alluvium/rewrites/<table>`.
    #[must_use]
    pub fn rewrites_dir(&self, table: &TableName) -> String {
        format!("{}/rewrites/{table}", self.memory_dir())
    }

    /// Which rows a commit rewrote: `<ns>/_alluvium/rewrites/<table>/<name>`, see [`rewrites_name`](super::rewrites_name).
    #[must_use]
    pub fn rewrites(&self, table: &TableName, name: &str) -> String {
        format!("{}/{name}", self.rewrites_dir(table))
    }

    /// A lease's record: `<ns>/_alluvium/leases/<name>/<seq, 20 digits>.json`.
    ///
    /// # Errors
    /// A name that is not `[A-Za-z0-9._-]+`, is `.` or `..`, or is longer than 255 bytes.
    pub fn lease(&self, name: &str, seq: u64) -> Result<String, TextError> {
        plain(name, "lease", MAX_PART_BYTES)?;
        Ok(format!("{}/leases/{name}/{seq:020}.json", self.memory_dir()))
    }

    /// The directory of all consumers: `<ns>/_alluvium/consumers`.
    #[must_use]
    pub fn consumers_dir(&self) -> String {
        format!("{}/consumers", self.memory_dir())
    }

    /// The directory of a consumer's records for one dataset: `<ns>/_alluvium/consumers/<name>/<dataset>`.
    ///
    /// # Errors
    /// As [`Resolver::lease`].
    pub fn consumer_dir(&self, name: &str, dataset: &DatasetName) -> Result<String, TextError> {
        plain(name, "consumer", MAX_PART_BYTES)?;
        Ok(format!("{}/{name}/{dataset}", self.consumers_dir()))
    }

    /// The directory of the records of what is no longer kept of a table: `<ns>/_alluvium/floors/<table>`.
    #[must_use]
    pub fn floor_dir(&self, table: &TableName) -> String {
        format!("{}/floors/{table}", self.memory_dir())
    }

    /// The directory of the records of how far a table is purged: `<ns>/_alluvium/purged/<table>`.
    #[must_use]
    pub fn purged_dir(&self, table: &TableName) -> String {
        format!("{}/purged/{table}", self.memory_dir())
    }

    /// The directory of the indexes of a table's files: `<ns>/_alluvium/indexes/<table>`.
    #[must_use]
    pub fn file_index_dir(&self, table: &TableName) -> String {
        format!("{}/indexes/{table}", self.memory_dir())
    }

    /// The index of the files that one writer staged for one record: `<ns>/_alluvium/indexes/<table>/<name>`, see [`IndexFile::name`].
    #[must_use]
    pub fn file_index(&self, table: &TableName, index: &IndexFile) -> String {
        format!("{}/{}", self.file_index_dir(table), index.name())
    }

    /// The topic that stands for `name`: itself in `default`, else `<ns>.<name>`.
    ///
    /// # Errors
    /// What Kafka refuses (characters, more than 249 bytes with the prefix, its own topics); in `default` also a name that
    /// another namespace would give to one of its topics.
    pub fn topic(&self, name: &str) -> Result<String, TextError> {
        if INTERNAL_TOPICS.contains(&name) {
            return Err(TextError::new(format!("the topic {name:?} is Kafka's own"), "name a topic that holds your records"));
        }
        self.outside(name, "topic")
    }

    /// The consumer group that stands for `name`, decorated and refused as topics are.
    ///
    /// # Errors
    /// As [`Resolver::topic`].
    pub fn consumer_group(&self, name: &str) -> Result<String, TextError> {
        self.outside(name, "consumer group")
    }

    /// What a job on a dataset is called in logs and metrics: `<job>/<dataset>` in `default`, else `<ns>/<job>/<dataset>`.
    #[must_use]
    pub fn job_label(&self, job: Job, dataset: &DatasetName) -> String {
        if self.namespace.is_default() { format!("{job}/{dataset}") } else { format!("{}/{job}/{dataset}", self.namespace) }
    }

    /// The value of the label `namespace` on every metric.
    #[must_use]
    pub fn metric_label(&self) -> &str {
        self.namespace.as_str()
    }

    fn outside(&self, name: &str, kind: &str) -> Result<String, TextError> {
        if !self.namespace.is_default() {
            plain(name, kind, MAX_TOPIC_BYTES - self.namespace.as_str().len() - 1)?;
            return Ok(format!("{}.{name}", self.namespace));
        }
        plain(name, kind, MAX_TOPIC_BYTES)?;
        let prefix = name.split_once('.').and_then(|(first, rest)| Some((Namespace::parse(first).ok()?, rest)));
        match prefix {
            Some((other, rest)) if !other.is_default() && !self.reserved.contains(&other) => Err(TextError::new(
                format!("the {kind} {name:?} is also what the namespace {:?} makes of {rest:?}", other.as_str()),
                "if the part before the dot will never be a namespace of this project, list it in reserved_namespaces",
            )),
            _ => Ok(name.to_owned()),
        }
    }
}

/// The id of a chain's application transactions in the Delta logs: `alluvium/<incarnation>/<job>/<dataset>/<shard>`.
#[must_use]
pub fn app_id(chain: &ChainId) -> String {
    format!("alluvium/{}/{}/{}/{}", chain.incarnation.0, chain.job, chain.dataset, chain.shard.0)
}

/// The id of the transactions that say which position of the ledger a data table is at: `alluvium/<incarnation>/ledger`.
#[must_use]
pub fn ledger_app_id(incarnation: &Incarnation) -> String {
    format!("alluvium/{}/ledger", incarnation.0)
}

/// The id of the transactions that say for which declaration a data table's rows were resolved: `alluvium/<incarnation>/shape`.
#[must_use]
pub fn shape_app_id(incarnation: &Incarnation) -> String {
    format!("alluvium/{}/shape", incarnation.0)
}

fn plain(name: &str, kind: &str, max_bytes: usize) -> Result<(), TextError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if name.is_empty() || name == "." || name == ".." || !name.bytes().all(legal) {
        let hint = "use letters, digits, dots, underscores and dashes";
        return Err(TextError::new(format!("{name:?} cannot be the name of a {kind}"), hint));
    }
    if name.len() > max_bytes {
        let message = format!("the name of a {kind} has {} characters", name.len());
        return Err(TextError::new(message, format!("{max_bytes} are allowed in this namespace")));
    }
    Ok(())
}

/// The name of a sorted file made from the batches of a span: `<first, 20 digits>-<last, 20 digits>.sorted`.
#[must_use]
pub fn span_file(span: BatchSpan) -> String {
    format!("{:020}-{:020}.sorted", span.from.next().0, span.to.0)
}

/// Reads a name that [`span_file`] made.
#[must_use]
pub fn parse_span_file(name: &str) -> Option<BatchSpan> {
    let (first, last) = name.strip_suffix(".sorted")?.split_once('-')?;
    let batch = |text: &str| batch_key(number(text, 20)?, 0).map(|key| key.batch);
    BatchSpan::new(BatchNumber(batch(first)?.0 - 1), batch(last)?)
}

/// A file in a chain's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChainFile {
    /// The record of one attempt.
    Record(BatchKey),
    /// The mark of a finished batch.
    Done(BatchNumber),
    /// The files taken by batches `from` to `to`, both included; in the directory `taken`.
    Taken {
        /// The first batch.
        from: BatchNumber,
        /// The last batch.
        to: BatchNumber,
    },
}

impl ChainFile {
    /// The file's own name, without its directory.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Record(key) => format!("{:020}.{:04}.json", key.batch.0, key.attempt.0),
            Self::Done(batch) => format!("{:020}.done.json", batch.0),
            Self::Taken { from, to } => format!("{:020}-{:020}.taken", from.0, to.0),
        }
    }

    /// Reads a file's own name; `None` for every name that [`ChainFile::name`] does not make.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let batch = |text: &str| batch_key(number(text, 20)?, 0).map(|key| key.batch);
        if let Some(range) = name.strip_suffix(".taken") {
            let (from, to) = range.split_once('-')?;
            return Some(Self::Taken { from: batch(from)?, to: batch(to)? });
        }
        let (number_text, rest) = name.strip_suffix(".json")?.split_once('.')?;
        match rest {
            "done" => Some(Self::Done(batch(number_text)?)),
            attempt => Some(Self::Record(batch_key(number(number_text, 20)?, number(attempt, 4)?)?)),
        }
    }
}

#[cfg(test)]
mod tests;
