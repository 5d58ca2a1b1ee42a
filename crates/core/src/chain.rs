//! Chains, batches and attempts: what a batch is called wherever it leaves a trace.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dataset::DatasetName;

/// The random id of one life of a namespace; a namespace deleted and made again is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub String);

/// What kind of work a chain does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Takes events in.
    Ingest,
    /// Takes requests in and applies them.
    Mutate,
    /// Drops what is past its retention.
    Retain,
    /// Rewrites files into a better layout.
    Optimize,
    /// Removes unreferenced files.
    Vacuum,
}

impl Job {
    /// The name in batches, notifications and file names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Mutate => "mutate",
            Self::Retain => "retain",
            Self::Optimize => "optimize",
            Self::Vacuum => "vacuum",
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A fixed piece of a source; never a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shard(pub u32);

impl Shard {
    /// All of a file source.
    pub const WHOLE: Self = Self(0);
    /// Not a piece of the source: the chain that takes dead letters in again.
    pub const REPLAY: Self = Self(u32::MAX);
}

/// The numbered batches of one job, dataset and source shard, in one incarnation of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChainId {
    /// The life of the namespace.
    pub incarnation: Incarnation,
    /// The kind of work.
    pub job: Job,
    /// The dataset worked on.
    pub dataset: DatasetName,
    /// The piece of the source.
    pub shard: Shard,
}

/// The number of a batch in its chain; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchNumber(pub u64);

impl BatchNumber {
    /// The first batch of a chain.
    pub const FIRST: Self = Self(1);

    /// The batch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for BatchNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which try at a batch; the first is 0, the last is [`Attempt::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u16);

impl Attempt {
    /// The first attempt.
    pub const FIRST: Self = Self(0);
    /// The last attempt that a transaction's version has room for.
    pub const MAX: Self = Self(TxnVersion::ATTEMPTS as u16 - 1);

    /// The attempt after this one, unless this was the last.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        if self.0 < Self::MAX.0 { Some(Self(self.0 + 1)) } else { None }
    }
}

/// How many batches of requests a data table's rows were resolved with: the number of the last of them. Before the first it is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LedgerPosition(pub u64);

impl LedgerPosition {
    /// Before any request.
    pub const BEGINNING: Self = Self(0);

    /// Whether it is before any request.
    #[must_use]
    pub const fn is_beginning(&self) -> bool {
        self.0 == 0
    }
}

/// A digest of what the fold of the ledger asks of a dataset's declaration; never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LedgerShape(pub i64);

impl LedgerShape {
    /// Rows of a table were resolved for several declarations.
    pub const MIXED: Self = Self(0);

    /// The shape of this digest.
    #[must_use]
    pub fn new(digest: u64) -> Self {
        Self((digest >> 1).cast_signed().max(1))
    }
}

impl fmt::Display for LedgerShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for LedgerPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A batch and which try at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchKey {
    /// The batch.
    pub batch: BatchNumber,
    /// The try.
    pub attempt: Attempt,
}

impl fmt::Display for BatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.batch.0, self.attempt.0)
    }
}

/// The version of a chain's application transaction in a table's log: `batch * 1024 + attempt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxnVersion(pub i64);

impl TxnVersion {
    const ATTEMPTS: i64 = 1024;

    /// The batch and attempt this version names; `None` for versions that no batch of ours makes.
    #[must_use]
    pub fn key(self) -> Option<BatchKey> {
        if self.0 < Self::ATTEMPTS {
            return None;
        }
        Some(BatchKey {
            batch: BatchNumber(u64::try_from(self.0 / Self::ATTEMPTS).ok()?),
            attempt: Attempt(u16::try_from(self.0 % Self::ATTEMPTS).ok()?),
        })
    }
}

impl From<BatchKey> for TxnVersion {
    fn from(key: BatchKey) -> Self {
        let batch = i64::try_from(key.batch.0).expect("a chain ends long before 2^53 batches");
        Self(batch * Self::ATTEMPTS + i64::from(key.attempt.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_versions_order_by_batch_then_attempt_and_read_back() {
        let mut last = TxnVersion(0);
        for (batch, attempt) in [(1, 0), (1, 1), (1, 1023), (2, 0), (3, 7), (1 << 50, 1023)] {
            let key = BatchKey { batch: BatchNumber(batch), attempt: Attempt(attempt) };
            let version = TxnVersion::from(key);
            assert!(version > last);
            assert_eq!(version.key(), Some(key));
            last = version;
        }
        assert_eq!(TxnVersion::from(BatchKey { batch: BatchNumber(3), attempt: Attempt(7) }).0, 3 * 1024 + 7);
        assert_eq!(TxnVersion(12).key(), None);
        assert_eq!(Attempt::MAX.next(), None);
    }
}
