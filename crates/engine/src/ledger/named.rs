//! The note of a file of requests by node.

use std::collections::BTreeSet;

use alluvium_core::{Node, Request};
use serde::{Deserialize, Serialize};

use super::entry::nodes_of;
/// What the requests of a file are about: fields of ids, and whether records. The file's note.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    pub(super) fields: BTreeSet<String>,
    pub(super) records: bool,
}

impl Named {
    pub(super) fn by<'r>(requests: impl Iterator<Item = &'r Request>) -> Self {
        let mut named = Self::default();
        for request in requests {
            for node in nodes_of(request) {
                match node {
                    Node::Id { field, .. } if !named.fields.contains(field) => {
                        named.fields.insert(field.to_owned());
                    }
                    Node::Record(_) => named.records = true,
                    Node::Id { .. } | Node::Org => {}
                }
            }
        }
        named
    }

    pub(super) fn note(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The note of what several files are about.
    pub(super) fn united(notes: &[&str]) -> String {
        let mut all = Self::default();
        for note in notes {
            let Some(named) = Self::read(note) else { return String::new() };
            all.fields.extend(named.fields);
            all.records |= named.records;
        }
        all.note()
    }

    /// `None`: nothing tells.
    pub(super) fn read(note: &str) -> Option<Self> {
        serde_json::from_str(note).ok()
    }
}
