//! Makes one sorted file of several, in one pass over each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use alluvium_core::Result;

use super::SortedKey;
use super::file::SortedFile;
use super::writer::SortedWriter;

/// What becomes of entries of one key in several files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeMode {
    /// Those of the newest file that has the key stay, all of them; the others go.
    NewestWins,
    /// All stay, those of older files first.
    KeepAll,
}

/// Appends to `into` the entries of `files`, the oldest first, that `keep` says yes to. It is asked only for those that the mode leaves: a
/// newest entry that is rejected hides the older ones all the same. Holds about 4 MiB for each file.
///
/// # Errors
/// As [`SortedFile::get_many`] and [`SortedWriter::push`].
pub async fn merge_sorted(
    files: &[SortedFile],
    mode: MergeMode,
    mut keep: impl FnMut(&SortedKey, &[u8]) -> bool,
    into: &mut SortedWriter,
) -> Result<()> {
    // Of entries of one key, the one with the lowest rank comes first.
    let mut scans: Vec<_> = files.iter().map(SortedFile::scan).collect();
    if mode == MergeMode::NewestWins {
        scans.reverse();
    }
    let mut heads = BinaryHeap::with_capacity(scans.len());
    for (rank, scan) in scans.iter_mut().enumerate() {
        if scan.advance().await? {
            heads.push(Reverse((scan.key(), rank)));
        }
    }
    let mut won: Option<(SortedKey, usize)> = None;
    while let Some(mut head) = heads.peek_mut() {
        let Reverse((key, rank)) = *head;
        let scan = &mut scans[rank];
        let winner = match won {
            Some((of, winner)) if of == key && mode == MergeMode::NewestWins => winner,
            _ => rank,
        };
        won = Some((key, winner));
        if winner == rank && keep(&key, scan.value()) {
            into.push(key, scan.value())?;
        }
        if scan.advance().await? {
            *head = Reverse((scan.key(), rank));
        } else {
            std::collections::binary_heap::PeekMut::pop(head);
        }
    }
    Ok(())
}
