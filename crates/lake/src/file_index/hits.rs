//! Which of some hashes are in a section: both are in order, and whichever is longer is leapt through.

use super::hash::IdHash;

/// The hashes of a section, as stored: six bytes each, big-endian, ascending.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a>(pub(super) &'a [[u8; IdHash::BYTES]]);

impl Section<'_> {
    fn get(&self, at: usize) -> Option<IdHash> {
        self.0.get(at).map(unpacked)
    }

    /// Whether the hashes ascend.
    pub(super) fn is_in_order(&self) -> bool {
        self.0.is_sorted_by(|a, b| a < b)
    }

    /// Those of `asked`, which ascends, that are in the section.
    pub(super) fn hits(&self, asked: &[IdHash]) -> Vec<IdHash> {
        let (mut hits, mut at, mut next) = (Vec::new(), 0, 0);
        while let (Some(there), Some(wanted)) = (self.get(at), asked.get(next)) {
            if there < *wanted {
                at = leap(at, |i| self.get(i).is_some_and(|hash| hash < *wanted));
            } else if there > *wanted {
                next = leap(next, |i| asked.get(i).is_some_and(|hash| *hash < there));
            } else {
                hits.push(there);
                at += 1;
                next += 1;
            }
        }
        hits
    }
}

/// The first place after `from` where `below`, which holds at `from`, does not hold any more.
fn leap(from: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (from, 1);
    while below(low + step) {
        low += step;
        step *= 2;
    }
    let mut high = low + step;
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if below(middle) { low = middle } else { high = middle }
    }
    high
}

pub(super) fn packed(hash: IdHash) -> [u8; IdHash::BYTES] {
    let [_, _, a, b, c, d, e, f] = hash.0.to_be_bytes();
    [a, b, c, d, e, f]
}

pub(super) fn unpacked(bytes: &[u8; IdHash::BYTES]) -> IdHash {
    let [a, b, c, d, e, f] = *bytes;
    IdHash(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}
