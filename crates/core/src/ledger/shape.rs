//! What the ledger needs to know of a dataset's declaration.

use std::sync::Arc;

use super::node::Field;
use crate::dataset::{Dataset, DatasetName, OnErase};
use crate::request::Request;

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

    /// Whether a request holds for the dataset at all: it names it, or no dataset.
    #[must_use]
    pub fn is_named_by(&self, request: &Request) -> bool {
        request.dataset.as_ref().is_none_or(|name| *name == self.dataset)
    }

    pub(super) const fn has_key(&self) -> bool {
        self.has_key
    }

    pub(super) fn field(&self, name: &str) -> Option<Field> {
        let at = self.identities.iter().position(|i| i.field == name)?;
        u16::try_from(at).ok().map(Field)
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
