//! What this process last saw of the tables it writes to, so that a batch need not read their logs again.
//!
//! Nothing here is trusted: a commit onto a state that is no longer the newest meets the version's name, and one onto a table that is
//! gone finds that the state's own version no longer stands there ([`DeltaLog::publish`](super::DeltaLog::publish)).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::path::Path;

use super::state::TableState;

/// So many states are kept; beyond it all are read again.
const MAX_STATES: usize = 1024;

/// The newest states seen, by table and application.
#[derive(Clone, Default)]
pub(crate) struct KnownStates(Arc<Mutex<HashMap<(Path, String), TableState>>>);

impl KnownStates {
    pub(super) fn get(&self, root: &Path, app_id: &str) -> Option<TableState> {
        self.lock().get(&(root.clone(), app_id.to_owned())).cloned()
    }

    pub(super) fn remember(&self, root: &Path, state: &TableState) {
        let mut states = self.lock();
        if states.len() >= MAX_STATES {
            states.clear();
        }
        states.insert((root.clone(), state.app_id.clone()), state.clone());
    }

    pub(super) fn forget(&self, root: &Path, app_id: &str) {
        self.lock().remove(&(root.clone(), app_id.to_owned()));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(Path, String), TableState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KnownStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownStates").field("states", &self.lock().len()).finish()
    }
}
