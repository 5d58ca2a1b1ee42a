//! What stands in the sorted files of a dataset's ledger: fates by node, and requests by node.

use alluvium_core::{BatchNumber, Error, Fate, Kind, Node, NodeKey, Op, Request, Result, Scope};
use alluvium_lake::SortedKey;
use xxhash_rust::xxh3::xxh3_64;

const ORG: u8 = 0;
const RECORD: u8 = 1;
const ID: u8 = 2;

/// A node with texts of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum OwnedNode {
    /// All rows of the organisation.
    Org,
    /// The rows with this key.
    Record(String),
    /// The rows to which the source gave this id.
    Id {
        /// The identity field.
        field: String,
        /// The id.
        id: String,
    },
}

impl OwnedNode {
    pub(crate) fn of(node: Node<'_>) -> Self {
        match node {
            Node::Org => Self::Org,
            Node::Record(key) => Self::Record(key.to_owned()),
            Node::Id { field, id } => Self::Id { field: field.to_owned(), id: id.to_owned() },
        }
    }

    pub(crate) fn node(&self) -> Node<'_> {
        match self {
            Self::Org => Node::Org,
            Self::Record(key) => Node::Record(key),
            Self::Id { field, id } => Node::Id { field, id },
        }
    }
}

/// What the files hold of one node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeFate {
    pub(crate) org: String,
    pub(crate) node: OwnedNode,
    /// `None`: rows are as the source gave them (again).
    pub(crate) fate: Option<Fate>,
}

/// The key of a node: its organisation's hash first, so that what belongs to one organisation stands together.
pub(crate) fn node_key(org: &str, node: Node<'_>) -> SortedKey {
    let mut key = [0; SortedKey::BYTES];
    key[..8].copy_from_slice(&xxh3_64(org.as_bytes()).to_be_bytes());
    key[8..].copy_from_slice(&NodeKey::of(org, node).0);
    SortedKey(key)
}

/// The nodes a request is about, whatever the dataset.
pub(crate) fn nodes_of(request: &Request) -> Vec<Node<'_>> {
    match &request.op {
        Op::Convert { field, from, to } => {
            vec![Node::Id { field, id: from.as_str() }, Node::Id { field, id: to.as_str() }]
        }
        Op::Update { field, id, .. } => vec![Node::Id { field, id: id.as_str() }],
        Op::Delete(delete) => match &delete.scope {
            Scope::Subject(subjects) => subjects.iter().map(|s| Node::Id { field: &s.field, id: s.id.as_str() }).collect(),
            Scope::Record(key) => vec![Node::Record(key.as_str())],
            Scope::Org | Scope::Before(_) => vec![Node::Org],
        },
    }
}

impl NodeFate {
    /// `[kind][org][field][id]`, each text with its length as u32, then the fate's bytes, if there is one.
    pub(crate) fn encode(org: &str, node: Node<'_>, fate: Option<&Fate>) -> Vec<u8> {
        let (kind, field, id) = match node {
            Node::Org => (ORG, "", ""),
            Node::Record(key) => (RECORD, "", key),
            Node::Id { field, id } => (ID, field, id),
        };
        let mut value = vec![kind];
        for text in [org, field, id] {
            push_text(&mut value, text);
        }
        value.push(u8::from(fate.is_some()));
        if let Some(fate) = fate {
            fate.encode(&mut value);
        }
        value
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self> {
        let (&kind, mut rest) = value.split_first().ok_or_else(damaged)?;
        let mut text = || take_text(&mut rest);
        let (org, field, id) = (text()?, text()?, text()?);
        let node = match kind {
            ORG => OwnedNode::Org,
            RECORD => OwnedNode::Record(id),
            ID => OwnedNode::Id { field, id },
            _ => return Err(damaged()),
        };
        let fate = match rest.split_first() {
            Some((0, [])) => None,
            Some((1, bytes)) => Some(Fate::decode(bytes)?),
            _ => return Err(damaged()),
        };
        Ok(Self { org, node, fate })
    }
}

/// A request under one of its nodes: the batch as u64, then the stored form.
pub(crate) fn encode_request(request: &Request, batch: BatchNumber) -> Vec<u8> {
    let mut value = batch.0.to_le_bytes().to_vec();
    value.extend_from_slice(request.to_json().as_bytes());
    value
}

pub(crate) fn decode_request(value: &[u8]) -> Result<(Request, BatchNumber)> {
    let (batch, text) = value.split_first_chunk::<8>().ok_or_else(damaged)?;
    let text = std::str::from_utf8(text).map_err(|_| damaged())?;
    Ok((Request::from_json(text)?, BatchNumber(u64::from_le_bytes(*batch))))
}

fn push_text(to: &mut Vec<u8>, text: &str) {
    to.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    to.extend_from_slice(text.as_bytes());
}

fn take_text(from: &mut &[u8]) -> Result<String> {
    let (length, rest) = from.split_first_chunk::<4>().ok_or_else(damaged)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| damaged())?;
    let (text, rest) = rest.split_at_checked(length).ok_or_else(damaged)?;
    *from = rest;
    String::from_utf8(text.to_vec()).map_err(|_| damaged())
}

fn damaged() -> Error {
    Error::new(Kind::Corrupt, "a file of the folded ledger is damaged")
        .hint("delete _alluvium/ledger of the namespace: it is made again")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nodes_read_back_and_cut_values_are_damaged() {
        for node in [Node::Org, Node::Record("k\u{0}é"), Node::Id { field: "lead_id", id: "00Q1" }] {
            let value = NodeFate::encode("00D1", node, None);
            let read = NodeFate::decode(&value).unwrap();
            assert_eq!((read.org.as_str(), read.node.node(), read.fate), ("00D1", node, None));
            for cut in 0..value.len() {
                assert_eq!(NodeFate::decode(&value[..cut]).unwrap_err().kind(), Kind::Corrupt);
            }
        }
    }

    #[test]
    fn what_belongs_to_an_organisation_stands_together() {
        let id = Node::Id { field: "lead_id", id: "x" };
        assert_eq!(node_key("a", id).0[..8], node_key("a", Node::Org).0[..8]);
        assert_ne!(node_key("a", id).0[..8], node_key("b", id).0[..8]);
        assert_ne!(node_key("a", id), node_key("a", Node::Record("x")));
    }
}
