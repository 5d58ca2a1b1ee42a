//! Rules of the protocol broken on purpose, to prove that the simulator finds it. Only in builds with the feature `plants`,
//! which no product build has.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A broken rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// Nobody looks whether the log carries the batch already.
    SkipTxnCheck,
    /// Notifications are published before the rows they tell of.
    NotifyFirst,
    /// The record is written after the batch was published.
    ForgetIntent,
    /// A commit whose put failed is taken for not made.
    TrustCommitError,
    /// Where to read on is what the broker says that its group has committed.
    ResumeFromBroker,
    /// Whether a batch is settled is asked with `==`, not `>=`.
    TxnEquality,
    /// A recorded batch that is not published is dropped, and the next range taken.
    Abandon,
    /// What has expired before it was read is passed over, and nobody is told.
    SilentLoss,
    /// A reader acknowledges although another one of its name has, since it read.
    StaleConsumer,
    /// Nobody looks whether the namespace is still the same before a batch is published.
    ForgetLife,
    /// A mutation looks only whether the files that it replaces are live, and not whether others came that it did not look through.
    MutateChecksPathsOnly,
    /// Rows that come are resolved at the newest position of the ledger, whatever the position of their table.
    IngestUnderNewestLedger,
    /// A batch of rows that is taken up again is published as it was recorded, whatever the position of its table.
    ResumeIgnoresLedger,
    /// A row that requests change does not keep what its source gave.
    NoOriginalValue,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::SkipTxnCheck,
        Self::NotifyFirst,
        Self::ForgetIntent,
        Self::TrustCommitError,
        Self::ResumeFromBroker,
        Self::TxnEquality,
        Self::Abandon,
        Self::SilentLoss,
        Self::StaleConsumer,
        Self::ForgetLife,
        Self::MutateChecksPathsOnly,
        Self::IngestUnderNewestLedger,
        Self::ResumeIgnoresLedger,
        Self::NoOriginalValue,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SkipTxnCheck => "skip-txn-check",
            Self::NotifyFirst => "notify-first",
            Self::ForgetIntent => "forget-intent",
            Self::TrustCommitError => "trust-commit-error",
            Self::ResumeFromBroker => "resume-from-broker",
            Self::TxnEquality => "txn-equality",
            Self::Abandon => "abandon",
            Self::SilentLoss => "silent-loss",
            Self::StaleConsumer => "stale-consumer",
            Self::ForgetLife => "forget-life",
            Self::MutateChecksPathsOnly => "mutate-checks-paths-only",
            Self::IngestUnderNewestLedger => "ingest-under-newest-ledger",
            Self::ResumeIgnoresLedger => "resume-ignores-ledger",
            Self::NoOriginalValue => "no-original-value",
        }
    }

    /// Whether this rule is broken now.
    #[must_use]
    pub fn grows(self) -> bool {
        GROWING.load(Ordering::SeqCst) == self as usize + 1
    }
}

static GROWING: AtomicUsize = AtomicUsize::new(0);

/// Breaks one rule in this whole process from now on, or none.
pub fn plant(plant: Option<Plant>) {
    GROWING.store(plant.map_or(0, |p| p as usize + 1), Ordering::SeqCst);
}
