//! Which files the versions of a table that are kept need, whoever wrote them: what vacuum must leave alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use alluvium_core::{Error, IndexFile, Kind, NextVersion, Result, parse_data_file};
use object_store::path::Path;
use percent_encoding::percent_decode_str;

use super::changes::ChangedFile;
use super::table::{DeltaLog, entry_version};

/// The property that says how long files that went are kept.
const RETENTION: &str = "delta.deletedFileRetentionDuration";
/// Entries that are read at a time.
const ENTRIES_AT_ONCE: usize = 16;

/// All that the kept versions of a table need.
#[derive(Debug, Clone, Default)]
pub struct KeptFiles {
    /// The newest version that was looked at.
    pub version: u64,
    /// Paths in the store, without escapes: data files and files of the change data feed.
    paths: HashSet<String>,
    /// The names of the files with deletion vectors.
    vectors: HashSet<String>,
    /// The names of the files that tell which rows changed.
    rewrites: HashSet<String>,
    /// The indexes that tell of the data files.
    indexes: HashSet<IndexFile>,
}

impl KeptFiles {
    /// Whether a kept version needs the object at this path.
    #[must_use]
    pub fn needs(&self, path: &Path) -> bool {
        self.paths.contains(&unescaped(path.as_ref())) || path.filename().is_some_and(|name| self.vectors.contains(name))
    }

    /// Whether a kept version names this file that tells which rows changed.
    #[must_use]
    pub fn needs_rewrites(&self, name: &str) -> bool {
        self.rewrites.contains(name)
    }

    /// Whether a file that is needed is told of by this index.
    #[must_use]
    pub fn needs_index(&self, index: &IndexFile) -> bool {
        self.indexes.contains(index)
    }
}

/// Files that versions of a table replaced.
#[derive(Debug, Default)]
pub(crate) struct ReplacedFiles(HashSet<String>);

impl ReplacedFiles {
    /// Whether the object at this path is one of them.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.0.contains(&unescaped(path.as_ref()))
    }
}

/// The versions of a log, as the names in it tell.
#[derive(Debug, Default)]
struct Names {
    /// When each entry was put, in milliseconds since 1970 by the store's clock.
    entries: BTreeMap<u64, i64>,
    checkpoints: BTreeSet<u64>,
}

impl Names {
    fn newest(&self) -> Option<u64> {
        self.entries.keys().last().copied().max(self.checkpoints.last().copied())
    }

    /// The first entry behind which there is no gap. Those below are of writers who stood still while the log was cleaned up, and count for
    /// nobody.
    fn first_entry(&self) -> Option<u64> {
        let mut first = self.newest()? + 1;
        while first > 0 && self.entries.contains_key(&(first - 1)) {
            first -= 1;
        }
        Some(first)
    }

    /// The first version that entries and checkpoints still make up, with all behind it.
    fn first_readable(&self) -> Option<u64> {
        let first = self.first_entry()?;
        if first == 0 { Some(0) } else { self.checkpoints.range(first - 1..).next().copied() }
    }
}

impl DeltaLog {
    async fn version_names(&self) -> Result<Names> {
        let mut names = Names::default();
        for found in self.store().list(&self.root().clone().join("_delta_log"), None).await? {
            let Some(name) = found.path.filename() else { continue };
            if let Some(version) = entry_version(name) {
                names.entries.insert(version, found.modified_ms);
            } else if name.get(20..).is_some_and(|rest| rest.starts_with(".checkpoint"))
                && let Some(version) = name.get(..20).and_then(|digits| digits.parse().ok())
            {
                names.checkpoints.insert(version);
            }
        }
        Ok(names)
    }

    /// The first version whose changes somebody may still ask for who may look back to a moment (milliseconds since 1970): the one behind
    /// the version that stood then. 0: all of the log is younger.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn kept_since(&self, moment_ms: i64) -> Result<NextVersion> {
        let names = self.version_names().await?;
        let stood = names.entries.iter().rev().find(|(_, put_ms)| **put_ms <= moment_ms).map(|(version, _)| version + 1);
        // Of a version whose entry was cleaned up there is a checkpoint alone, and what it holds stood longer than all entries.
        let cleaned = names.entries.keys().next().copied().filter(|_| !names.checkpoints.is_empty());
        Ok(NextVersion(stood.or(cleaned).unwrap_or(0)))
    }

    /// When the entry of a version was put, in milliseconds since 1970 by the store's clock; `None`: it is not there.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn put_ms(&self, version: u64) -> Result<Option<i64>> {
        Ok(self.version_names().await?.entries.get(&version).copied())
    }

    /// How long the table's own properties ask to keep files that are no longer part of it.
    ///
    /// # Errors
    /// As [`DeltaLog::state`]; [`Kind::Unsupported`] for a property that cannot be read.
    pub async fn deleted_file_retention(&self) -> Result<Option<Duration>> {
        let Some(state) = self.state("").await? else { return Ok(None) };
        let Some(text) = state.metadata.configuration.get(RETENTION) else { return Ok(None) };
        let unreadable = || {
            Error::new(Kind::Unsupported, format!("table {}: its property {RETENTION} says {text:?}", self.root()))
                .hint("write it as in: interval 7 days")
        };
        interval(text).ok_or_else(unreadable).map(Some)
    }

    /// All that versions need whose changes are kept from `from` on, and the newest; `None` if there is no table. What comes into
    /// the log after the call began is either in it, or was put after the call began.
    ///
    /// # Errors
    /// As [`DeltaLog::state`]; [`Kind::Unavailable`] if others cleaned up meanwhile.
    pub async fn kept_files(&self, from: NextVersion) -> Result<Option<KeptFiles>> {
        if !self.stands().await? {
            return Ok(None);
        }
        self.looking_again(|| self.kept_files_now(from)).await.map(Some)
    }

    async fn kept_files_now(&self, from: NextVersion) -> Result<KeptFiles> {
        let names = self.version_names().await?;
        let late = || Error::new(Kind::Corrupt, format!("reading the log of table {}: it is not all there", self.root()));
        // A listing may be late: what it does not show yet is asked for by name.
        let hinted = self.checkpoint_hinted().await?;
        let mut newest = names.newest().max(hinted).ok_or_else(late)?;
        while self.read_entry(newest + 1).await?.is_some() {
            newest += 1;
        }
        let first = names.first_readable().or(hinted).ok_or_else(late)?;
        let base = from.0.saturating_sub(1).max(first).min(newest);
        let mut kept = KeptFiles { version: newest, ..KeptFiles::default() };
        for file in self.standing_files(base).await? {
            self.keep(&mut kept, &file)?;
        }
        let entries = from.0.max(names.first_entry().unwrap_or(0)).min(base + 1)..=newest;
        let versions: Vec<u64> = entries.collect();
        for some in versions.chunks(ENTRIES_AT_ONCE) {
            let paths: Vec<Path> = some.iter().map(|version| self.entry_path(*version)).collect();
            for (version, entry) in some.iter().zip(self.store().get_all(&paths).await?) {
                let changes = match entry {
                    Some(entry) => self.all_changes_in(*version, &entry)?,
                    // What it came with is part of the base.
                    None if *version <= base => continue,
                    None => return Err(late()),
                };
                for file in changes.adds.iter().chain(&changes.removes).chain(&changes.recorded) {
                    self.keep(&mut kept, file)?;
                }
                kept.rewrites.extend(changes.rewrites);
            }
        }
        Ok(kept)
    }

    /// The files that versions up to this one replaced, and those of their change data feed, as far back as the log tells.
    pub(crate) async fn replaced_until(&self, version: u64) -> Result<ReplacedFiles> {
        let mut replaced = ReplacedFiles::default();
        let versions = self.versions(None).await?.into_iter().filter(|v| *v <= version);
        for some in versions.collect::<Vec<_>>().chunks(ENTRIES_AT_ONCE) {
            let paths: Vec<Path> = some.iter().map(|version| self.entry_path(*version)).collect();
            for (version, entry) in some.iter().zip(self.store().get_all(&paths).await?) {
                // What was cleaned up meanwhile tells nothing any more.
                let Some(entry) = entry else { continue };
                let changes = self.all_changes_in(*version, &entry)?;
                let gone = changes.removes.iter().chain(&changes.recorded);
                replaced.0.extend(gone.map(|file| unescaped(file.path.as_ref())));
            }
        }
        Ok(replaced)
    }

    fn keep(&self, kept: &mut KeptFiles, file: &ChangedFile) -> Result<()> {
        kept.paths.insert(unescaped(file.path.as_ref()));
        kept.indexes.extend(parse_data_file(&file.name).map(|name| name.index()));
        let vector = file.deleted.as_ref().map(|vector| vector.0.absolute_path(&self.url())).transpose();
        let vector = vector.map_err(|e| self.kernel_error(e))?.flatten();
        kept.vectors.extend(vector.iter().filter_map(|url| url.path_segments()?.next_back()).map(unescaped));
        Ok(())
    }
}

/// A duration as Delta's properties spell it: `interval 7 days`.
fn interval(text: &str) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    let mut words = lower.split_ascii_whitespace().filter(|word| *word != "interval");
    let mut sum = Duration::ZERO;
    while let Some(number) = words.next() {
        let unit = words.next()?;
        let nanoseconds: u64 = match unit.strip_suffix('s').unwrap_or(unit) {
            "week" => 7 * 24 * 3600 * 1_000_000_000,
            "day" => 24 * 3600 * 1_000_000_000,
            "hour" => 3600 * 1_000_000_000,
            "minute" => 60 * 1_000_000_000,
            "second" => 1_000_000_000,
            "millisecond" => 1_000_000,
            "microsecond" => 1_000,
            "nanosecond" => 1,
            _ => return None,
        };
        sum += Duration::from_nanos(nanoseconds.checked_mul(number.parse().ok()?)?);
    }
    (!sum.is_zero() || lower.contains('0')).then_some(sum)
}

/// A path without `%XX`. Other programs spell paths in the log with escapes or without, and only the store knows which of the two is in it: so two
/// that mean the same are taken for one.
pub(super) fn unescaped(path: &str) -> String {
    let mut plain = path.to_owned();
    while plain.contains('%') {
        match percent_decode_str(&plain).decode_utf8() {
            Ok(decoded) if decoded != plain => plain = decoded.into_owned(),
            _ => break,
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(entries: &[u64], checkpoints: &[u64]) -> Names {
        Names { entries: entries.iter().map(|v| (*v, 0)).collect(), checkpoints: checkpoints.iter().copied().collect() }
    }

    #[test]
    fn intervals_are_read_as_delta_spells_them() {
        for (text, seconds) in [
            ("interval 7 days", Some(604_800)),
            ("INTERVAL 1 week", Some(604_800)),
            ("interval 2 hours 30 minutes", Some(9_000)),
            ("interval 0 seconds", Some(0)),
            ("7 days", Some(604_800)),
            ("interval 1 month", None),
            ("interval", None),
            ("interval days", None),
            ("", None),
        ] {
            assert_eq!(interval(text), seconds.map(Duration::from_secs), "{text:?}");
        }
    }

    #[test]
    fn the_first_readable_version_is_the_lowest_that_a_checkpoint_and_all_entries_behind_it_make_up() {
        for (entries, checkpoints, first) in [
            (&[0, 1, 2][..], &[][..], Some(0)),
            (&[0, 1, 2], &[2], Some(0)),
            (&[3, 4, 5], &[2], Some(2)),
            (&[3, 4, 5], &[4], Some(4)),
            // Version 1 was put by somebody who stood still while the log was cleaned up.
            (&[1, 5, 6], &[4], Some(4)),
            (&[0, 5, 6], &[4, 6], Some(4)),
            (&[0, 5, 6], &[3, 6], Some(6)),
            (&[], &[7], Some(7)),
            (&[5, 6], &[3], None),
            (&[], &[], None),
        ] {
            assert_eq!(names(entries, checkpoints).first_readable(), first, "{entries:?} {checkpoints:?}");
        }
    }
}
