//! Ids that go for good: those that an erasure for privacy names, and those whose rows had come to it by then.
//!
//! A row that is newer than the erasure stays. Where requests lead such a row to an id that goes, it keeps the id that its source gave: what is
//! purged is spelled nowhere, so no row may be given it.

use std::collections::{HashMap, HashSet};

use super::org::{Act, NodeNumber, Step};

/// Adds the ids that go by these steps, which are in order.
pub(super) fn add_purged<'l>(steps: impl Iterator<Item = &'l Step>, purged: &mut HashSet<NodeNumber>) {
    // The ids that have become each so far, and those that have become another: of these no row is where the source put it.
    let mut led_to: HashMap<NodeNumber, Vec<NodeNumber>> = HashMap::new();
    let mut gone: HashSet<NodeNumber> = HashSet::new();
    for step in steps {
        match step.act {
            Act::Convert { from, to } => {
                let mut with_from = led_to.remove(&from).unwrap_or_default();
                if gone.insert(from) {
                    with_from.push(from);
                }
                let there = led_to.entry(to).or_default();
                // The longer list stays where it is.
                if there.len() < with_from.len() {
                    std::mem::swap(there, &mut with_from);
                }
                there.append(&mut with_from);
            }
            Act::Erase { node, privacy: true } => {
                purged.insert(node);
                // Those it has marked need not be marked again.
                purged.extend(led_to.remove(&node).unwrap_or_default());
            }
            _ => {}
        }
    }
}
