//! Whose reading it is and of which life of the namespace: what was read is of that life only if it still lasts behind the reading.

use alluvium_core::{DatasetName, Error, Incarnation, Kind, Resolver, Result};
use alluvium_lake::{Store, open_namespace};

/// Who reads what.
#[derive(Debug, Clone)]
pub(super) struct Who {
    pub(super) dataset: DatasetName,
    pub(super) consumer: Option<String>,
}

impl Who {
    /// What was not read yet is not there any more.
    pub(super) fn gone(&self, why: &str) -> Error {
        let (who, hint) = match &self.consumer {
            Some(name) => (
                format!("consumer {name}"),
                format!(
                    "start over: empty what was made of the changes, then alluvium consumers reset {name}, and read from the beginning"
                ),
            ),
            None => {
                ("the reader".to_owned(), "start over: empty what was made of the changes, and read without --since".to_owned())
            }
        };
        Error::new(Kind::NotFound, format!("changes of dataset {}: {who} is behind what is kept: {why}", self.dataset)).hint(hint)
    }
}

/// A life of the namespace.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) store: Store,
    pub(super) resolver: Resolver,
    /// `None`: it was never used.
    pub(super) incarnation: Option<Incarnation>,
    pub(super) who: Who,
}

impl Life {
    /// Succeeds if all that was read before this call is of this life.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if it is over, [`Kind::Conflict`] if the namespace is being deleted, [`Kind::Unavailable`] if the store failed.
    pub(super) async fn lasts(&self) -> Result<()> {
        if open_namespace(&self.store, &self.resolver).await? == self.incarnation {
            return Ok(());
        }
        Err(self.who.gone("the namespace was deleted"))
    }
}
