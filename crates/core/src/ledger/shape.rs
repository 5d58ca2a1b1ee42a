//! What the ledger needs to know of a dataset's declaration.

use std::sync::Arc;

use super::node::{Field, Node};
use crate::dataset::{Dataset, DatasetName, OnErase};
use crate::pseudonym::is_pseudonym;
use crate::request::{Delete, Id, Op, Request, Scope, as_column_text};
use crate::types::DataType;

/// A dataset as the ledger sees it: its identity fields and what their erasure clears, whether it has a key, which columns an
/// update may set. Two shapes that are equal fold the same requests to the same fates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    dataset: DatasetName,
    has_key: bool,
    identities: Vec<IdentityShape>,
    columns: Vec<Arc<str>>,
    settable: Vec<bool>,
}

/// An identity field; `clears` are places in the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdentityShape {
    pub field: String,
    /// The type of its ids.
    pub ids: DataType,
    /// The columns that become null with the id; `None`: the row goes.
    pub clears: Option<Vec<u16>>,
}

impl Shape {
    /// The shape of a dataset. Columns are places in its fields, of which it has fewer than 65,536; identities keep their order.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        let place = |name: &String| {
            let at = dataset.fields.iter().position(|f| f.name == *name)?;
            u16::try_from(at).ok()
        };
        let is_identity = |name: &str| dataset.identities.iter().any(|i| i.field == name);
        let identities = dataset.identities.iter().map(|identity| IdentityShape {
            field: identity.field.clone(),
            ids: dataset.field(&identity.field).map_or(DataType::String, |field| field.data_type.clone()),
            clears: match &identity.on_erase {
                OnErase::Delete => None,
                OnErase::Clear(columns) => Some(columns.iter().filter_map(place).collect()),
            },
        });
        let settable = |name: &String| {
            *name != dataset.org && *name != dataset.event_time && Some(name) != dataset.key.as_ref() && !is_identity(name)
        };
        Self {
            dataset: dataset.name.clone(),
            has_key: dataset.key.is_some(),
            identities: identities.collect(),
            columns: dataset.fields.iter().map(|f| f.name.as_str().into()).collect(),
            settable: dataset.fields.iter().map(|f| settable(&f.name)).collect(),
        }
    }

    /// The dataset.
    #[must_use]
    pub const fn dataset(&self) -> &DatasetName {
        &self.dataset
    }

    /// The identity fields, in the order in which a row's ids are given to the ledger.
    pub fn identity_fields(&self) -> impl ExactSizeIterator<Item = &str> {
        self.identities.iter().map(|i| i.field.as_str())
    }

    /// What a request is about in this dataset: both ids of a convert, every subject whose field is here. Nothing, if it does not count here:
    /// it names another dataset, a field that is no identity here, only columns that an update may not set here, or an id to convert to that the
    /// column here cannot hold.
    #[must_use]
    pub fn nodes<'r>(&self, request: &'r Request) -> Vec<Node<'r>> {
        if !self.is_named_by(request) {
            return Vec::new();
        }
        let has = |field: &str| self.field(field).is_some();
        match &request.op {
            Op::Convert { field, from, to } if self.field(field).is_some_and(|field| self.can_hold(field, to)) => {
                vec![Node::Id { field, id: from.as_str() }, Node::Id { field, id: to.as_str() }]
            }
            Op::Update { field, id, set } if has(field) && set.keys().any(|column| self.settable(column).is_some()) => {
                vec![Node::Id { field, id: id.as_str() }]
            }
            Op::Convert { .. } | Op::Update { .. } => Vec::new(),
            Op::Delete(Delete { scope: Scope::Subject(subjects), .. }) => {
                let here = subjects.iter().filter(|subject| has(&subject.field));
                here.map(|subject| Node::Id { field: &subject.field, id: subject.id.as_str() }).collect()
            }
            Op::Delete(Delete { scope: Scope::Record(key), .. }) if self.has_key => vec![Node::Record(key.as_str())],
            Op::Delete(Delete { scope: Scope::Record(_), .. }) => Vec::new(),
            Op::Delete(Delete { scope: Scope::Org | Scope::Before(_), .. }) => vec![Node::Org],
        }
    }

    pub(super) fn is_named_by(&self, request: &Request) -> bool {
        request.dataset.as_ref().is_none_or(|name| *name == self.dataset)
    }

    pub(super) const fn has_key(&self) -> bool {
        self.has_key
    }

    pub(super) fn field(&self, name: &str) -> Option<Field> {
        let at = self.identities.iter().position(|i| i.field == name)?;
        u16::try_from(at).ok().map(Field)
    }

    /// Whether the column of an identity can hold an id, spelled so. What stands in the place of one could be held.
    pub(super) fn can_hold(&self, field: Field, id: &Id) -> bool {
        is_pseudonym(id.as_str()) || as_column_text(&self.identity(field).ids, id).is_some_and(|text| text == *id)
    }

    pub(super) fn identity(&self, field: Field) -> &IdentityShape {
        &self.identities[usize::from(field.0)]
    }

    /// The place of a column that an update may set.
    pub(super) fn settable(&self, name: &str) -> Option<u16> {
        let at = self.columns.iter().position(|c| **c == *name)?;
        u16::try_from(at).ok().filter(|_| self.settable[at])
    }

    pub(super) fn column(&self, place: u16) -> &Arc<str> {
        &self.columns[usize::from(place)]
    }
}
