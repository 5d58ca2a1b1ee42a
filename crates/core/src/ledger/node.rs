//! What has a fate of its own: an id in an identity field, a record, an organisation.

use sha2::{Digest as _, Sha256};

/// An identity field: its place among the dataset's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Field(pub u16);

/// Something that requests of one organisation are about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Node<'a> {
    /// All rows of the organisation.
    Org,
    /// The rows with this key.
    Record(&'a str),
    /// The rows to which the source gave this id.
    Id {
        /// The identity field.
        field: &'a str,
        /// The id.
        id: &'a str,
    },
}

/// A node of any organisation, 16 bytes that stand for it in sorted files. It is computed without a secret: whoever knows an id can
/// compute its key, so it is personal data as the id is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeKey(pub [u8; 16]);

impl NodeKey {
    /// The first 16 bytes of SHA-256 over the kind, and organisation, field and id, each with its length before it. Nobody can make
    /// two nodes with one key, so no organisation can choose ids that hit another's.
    #[must_use]
    pub fn of(org: &str, node: Node<'_>) -> Self {
        let (kind, field, id) = match node {
            Node::Org => (0_u8, "", ""),
            Node::Record(key) => (1, "", key),
            Node::Id { field, id } => (2, field, id),
        };
        let mut hasher = Sha256::new();
        hasher.update([kind]);
        for part in [org, field, id] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let whole: [u8; 32] = hasher.finalize().into();
        let mut key = [0; 16];
        key.copy_from_slice(&whole[..16]);
        Self(key)
    }
}

impl std::fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use crate::request::Id;
        match self {
            Self::Org => f.write_str("Org"),
            Self::Record(key) => write!(f, "Record({:?})", Id::new(key)),
            Self::Id { field, id } => write!(f, "Id({field}, {:?})", Id::new(id)),
        }
    }
}
