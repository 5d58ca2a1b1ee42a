//! What stands in the sorted files of a dataset's ledger: fates by node, and requests by node.

use alluvium_core::{BatchNumber, Error, Fate, Kind, Node, NodeKey, Op, Pseudonyms, Request, Result, Scope};
use alluvium_lake::SortedKey;
use xxhash_rust::xxh3::xxh3_64;

/// Counts up with every change of what an entry holds: files of another number are not read, but made anew beside them.
pub(crate) const ENTRY_FORMAT: u32 = 2;

const ORG: u8 = 0;
const RECORD: u8 = 1;
const ID: u8 = 2;

/// The key of a node: its organisation's hash first, so that what belongs to one organisation stands together. An id is what the ledger knows it by.
pub(crate) fn node_key(pseudonyms: &Pseudonyms, org: &str, node: Node<'_>) -> SortedKey {
    let mut key = [0; SortedKey::BYTES];
    key[..8].copy_from_slice(&org_key(org));
    let of_node = match node {
        Node::Id { field, id } => NodeKey::of(org, Node::Id { field, id: &pseudonyms.known_by(org, field, id) }),
        Node::Record(_) | Node::Org => NodeKey::of(org, node),
    };
    key[8..].copy_from_slice(&of_node.0);
    SortedKey(key)
}

/// What the keys of an organisation's nodes begin with.
pub(crate) fn org_key(org: &str) -> [u8; 8] {
    xxh3_64(org.as_bytes()).to_be_bytes()
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

/// What the files hold of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeFate<'v> {
    pub(crate) org: &'v str,
    pub(crate) node: Node<'v>,
    /// The bytes of the fate; `None`: rows are as the source gave them (again).
    fate: Option<&'v [u8]>,
}

impl<'v> NodeFate<'v> {
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

    pub(crate) fn read(value: &'v [u8]) -> Result<Self> {
        let (&kind, mut rest) = value.split_first().ok_or_else(damaged)?;
        let mut text = || take_text(&mut rest);
        let (org, field, id) = (text()?, text()?, text()?);
        let node = match kind {
            ORG => Node::Org,
            RECORD => Node::Record(id),
            ID => Node::Id { field, id },
            _ => return Err(damaged()),
        };
        let fate = match rest.split_first() {
            Some((0, [])) => None,
            Some((1, bytes)) => Some(bytes),
            _ => return Err(damaged()),
        };
        Ok(Self { org, node, fate })
    }

    pub(crate) fn fate(&self) -> Result<Option<Fate>> {
        self.fate.map(Fate::decode).transpose()
    }
}

/// A request under one of its nodes: whether that is the first by its key, the batch as u64, then the request's bytes.
pub(crate) fn encode_request(request: &Request, batch: BatchNumber, is_first: bool) -> Vec<u8> {
    let mut value = Vec::with_capacity(128);
    value.push(u8::from(is_first));
    value.extend_from_slice(&batch.0.to_le_bytes());
    request.encode(&mut value);
    value
}

pub(crate) fn decode_request(value: &[u8]) -> Result<(Request, BatchNumber)> {
    let (_, batch, request) = request_parts(value)?;
    Ok((Request::decode(request)?, batch))
}

/// The request of an entry that is the first of it, if a batch after `from`, up to `to`, took it in.
pub(crate) fn decode_first(value: &[u8], from: BatchNumber, to: BatchNumber) -> Result<Option<Request>> {
    let (is_first, batch, request) = request_parts(value)?;
    if is_first && batch > from && batch <= to { Request::decode(request).map(Some) } else { Ok(None) }
}

fn request_parts(value: &[u8]) -> Result<(bool, BatchNumber, &[u8])> {
    let (&first, rest) = value.split_first().filter(|(first, _)| **first <= 1).ok_or_else(damaged)?;
    let (batch, request) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
    Ok((first == 1, BatchNumber(u64::from_le_bytes(*batch)), request))
}

/// The keys of the nodes a request is about, each once.
pub(crate) fn keys_of(pseudonyms: &Pseudonyms, request: &Request) -> Vec<SortedKey> {
    let nodes = nodes_of(request).into_iter();
    let mut keys: Vec<SortedKey> = nodes.map(|node| node_key(pseudonyms, &request.org, node)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn push_text(to: &mut Vec<u8>, text: &str) {
    to.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    to.extend_from_slice(text.as_bytes());
}

fn take_text<'v>(from: &mut &'v [u8]) -> Result<&'v str> {
    let (length, rest) = from.split_first_chunk::<4>().ok_or_else(damaged)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| damaged())?;
    let (text, rest) = rest.split_at_checked(length).ok_or_else(damaged)?;
    *from = rest;
    std::str::from_utf8(text).map_err(|_| damaged())
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
            let read = NodeFate::read(&value).unwrap();
            assert_eq!((read.org, read.node, read.fate().unwrap()), ("00D1", node, None));
            for cut in 0..value.len() {
                assert_eq!(NodeFate::read(&value[..cut]).unwrap_err().kind(), Kind::Corrupt);
            }
        }
    }

    #[test]
    fn what_belongs_to_an_organisation_stands_together() {
        let id = Node::Id { field: "lead_id", id: "x" };
        let node_key = |org: &str, node: Node<'_>| node_key(&Pseudonyms::default(), org, node);
        assert_eq!(node_key("a", id).0[..8], node_key("a", Node::Org).0[..8]);
        assert_ne!(node_key("a", id).0[..8], node_key("b", id).0[..8]);
        assert_ne!(node_key("a", id), node_key("a", Node::Record("x")));
    }
}
