//! Vacuum: removes the files of a table that no version needs which is kept, and what was staged and never published.
//!
//! Place in the flow: `alluvium-engine` decides which versions are kept, and takes a table through the four steps; each is made from the one
//! before, because their order is what keeps a file that is about to be published (the rules are those of the protocol, see
//! `docs/ARCHITECTURE.md`):
//!
//! 1. [`Vacuum::find`] lists files.
//! 2. [`Unneeded::fence`] reads the record that each belongs to, and where there is none writes `void` there: whoever was about to record these
//!    files stages others.
//! 3. [`Fenced::condemn`] only then reads what the kept versions need.
//! 4. [`Condemned::remove`] deletes what none of them needs and whose record is void, does not list it, or is settled: facts that never
//!    become false again.
//!
//! A file whose name is not ours has no record, so only its age tells that nobody is about to publish it. Deliberately not here: which
//! versions are kept, and for whom.

mod fence;
mod listing;

use alluvium_core::{Error, Incarnation, Kind, NextVersion, Resolver, Result, TableName};
use object_store::path::Path;

use self::fence::Claim;
use self::listing::Candidate;
use crate::log::{DeltaLog, KeptFiles, ReplacedFiles};
use crate::store::Store;

/// Objects that are deleted at a time.
const DELETED_AT_ONCE: usize = 1000;

/// The files of one table.
#[derive(Debug, Clone)]
pub struct Vacuum {
    log: DeltaLog,
    resolver: Resolver,
    incarnation: Incarnation,
    table: TableName,
}

/// How old a file must be to be looked at, in milliseconds since 1970 by the store's clock: it was put before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutBefore {
    /// One of ours whose batch may still be recorded: it is fenced.
    pub ours_ms: i64,
    /// Any other, which another program may be about to publish.
    pub foreign_ms: i64,
    /// But one that this version of the table or an earlier one has replaced may be of any age.
    pub replaced_until: Option<u64>,
}

/// Files that the newest version does not need.
#[derive(Debug)]
#[must_use]
pub struct Unneeded {
    vacuum: Vacuum,
    candidates: Vec<Candidate>,
    replaced_until: Option<u64>,
}

/// The same, with what is known of the batches that they belong to.
#[derive(Debug)]
#[must_use]
pub struct Fenced {
    vacuum: Vacuum,
    candidates: Vec<(Candidate, Claim)>,
    /// No version before this one is the newest.
    seen: u64,
    replaced_until: Option<u64>,
}

/// Files that nobody needs, and nobody ever will.
#[derive(Debug)]
#[must_use]
pub struct Condemned {
    store: Store,
    files: Vec<Candidate>,
}

/// What was removed, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Data files, files of the change data feed, deletion vectors.
    pub files: u64,
    /// Indexes, and files that tell which rows changed.
    pub beside: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl std::ops::AddAssign for Removed {
    fn add_assign(&mut self, one: Self) {
        self.files += one.files;
        self.beside += one.beside;
        self.bytes += one.bytes;
    }
}

impl Vacuum {
    /// Of a table in the namespace of `resolver`, in this life of it.
    #[must_use]
    pub fn new(log: &DeltaLog, resolver: &Resolver, incarnation: &Incarnation, table: &TableName) -> Self {
        Self { log: log.clone(), resolver: resolver.clone(), incarnation: incarnation.clone(), table: table.clone() }
    }

    /// The first step. Nothing changes.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is no table, [`Kind::Fenced`] if it is another life's, otherwise as [`DeltaLog::state`].
    pub async fn find(&self, before: PutBefore) -> Result<Unneeded> {
        let candidates = self.list(before).await?;
        Ok(Unneeded { vacuum: self.clone(), candidates, replaced_until: before.replaced_until })
    }

    fn store(&self) -> &Store {
        self.log.store()
    }
}

impl Unneeded {
    /// The second step: attempts that recorded nothing so far never will. May be repeated.
    ///
    /// # Errors
    /// As [`Vacuum::find`], and what reading records returns.
    pub async fn fence(self) -> Result<Fenced> {
        self.look(true).await
    }

    /// What [`Unneeded::fence`] would find, with nothing changed: good for a look at what would go, and for nothing else.
    ///
    /// # Errors
    /// As [`Unneeded::fence`].
    pub async fn would_fence(self) -> Result<Fenced> {
        self.look(false).await
    }

    async fn look(self, fences: bool) -> Result<Fenced> {
        let Self { vacuum, candidates, replaced_until } = self;
        let mut claims = fence::Claims::new(&vacuum);
        let mut with_claims = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let claim = claims.of(&candidate, fences).await?;
            with_claims.push((candidate, claim));
        }
        let seen = claims.seen();
        Ok(Fenced { vacuum, candidates: with_claims, seen, replaced_until })
    }
}

impl Fenced {
    /// Whether there is nothing that may go.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// Whether a batch is recorded, with files that may be old, and not yet in the table.
    #[must_use]
    pub fn awaits_batches(&self) -> bool {
        self.candidates.iter().any(|(_, claim)| *claim == Claim::Inevitable)
    }

    /// The third step: what versions need whose changes are kept from `kept_from` on is left alone; for files of other programs, whose age
    /// alone counts, from `foreign_kept_from` on.
    ///
    /// # Errors
    /// As [`DeltaLog::kept_files`].
    pub async fn condemn(self, kept_from: NextVersion, foreign_kept_from: NextVersion) -> Result<Condemned> {
        let Self { vacuum, candidates, seen, replaced_until } = self;
        let store = vacuum.store().clone();
        let kept = vacuum.kept(kept_from, seen).await?;
        let has_foreign = candidates.iter().any(|(_, claim)| *claim == Claim::Foreign);
        let kept_of_foreign = match has_foreign && foreign_kept_from < kept_from {
            true => Some(vacuum.kept(foreign_kept_from, seen).await?),
            false => None,
        };
        let replaced = match replaced_until.filter(|_| has_foreign) {
            Some(version) => vacuum.log.replaced_until(version).await?,
            None => ReplacedFiles::default(),
        };
        let is_dead = |(candidate, claim): &(Candidate, Claim)| match claim {
            Claim::Inevitable | Claim::Young => false,
            Claim::Dead => !candidate.is_needed(&kept),
            Claim::Foreign if replaced.has(&candidate.path) => !candidate.is_needed(&kept),
            Claim::Foreign if candidate.is_young => false,
            Claim::Foreign => !candidate.is_needed(kept_of_foreign.as_ref().unwrap_or(&kept)),
        };
        let files = candidates.into_iter().filter(is_dead).map(|(candidate, _)| candidate).collect();
        Ok(Condemned { store, files })
    }
}

impl Vacuum {
    async fn kept(&self, from: NextVersion, seen: u64) -> Result<KeptFiles> {
        let gone = || Error::new(Kind::NotFound, format!("table {} is gone", self.table));
        let kept = self.log.kept_files(from).await?.ok_or_else(gone)?;
        if kept.version >= seen {
            return Ok(kept);
        }
        Err(Error::new(
            Kind::Unavailable,
            format!("table {}: its log shows version {}, and {seen} was seen before", self.table, kept.version),
        )
        .hint("the store lists late, or the table was restored: run again"))
    }
}

impl Condemned {
    /// What the fourth step removes.
    #[must_use]
    pub fn sum(&self) -> Removed {
        let mut sum = Removed::default();
        for candidate in &self.files {
            sum.bytes += candidate.size;
            *if candidate.object.is_beside() { &mut sum.beside } else { &mut sum.files } += 1;
        }
        sum
    }

    /// The paths in the store of what is removed, ascending.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let mut paths: Vec<Path> = self.files.iter().map(|candidate| candidate.path.clone()).collect();
        paths.sort_unstable();
        paths
    }

    /// The fourth step. May be repeated, by anybody.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed: some files are gone, the next vacuum removes the others.
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the next vacuum goes on.
    pub async fn remove(self) -> Result<Removed> {
        let sum = self.sum();
        for some in self.paths().chunks(DELETED_AT_ONCE) {
            self.store.delete_all(some.to_vec()).await?;
        }
        Ok(sum)
    }
}
