//! The Delta log of one table: what it says, and how a commit gets into it.

mod actions;
mod changes;
mod create;
mod cut;
mod files;
mod kept;
mod known;
mod publish;
mod state;
mod table;

pub use changes::{ChangedFile, DeletedRows, Standing, VersionChanges};
pub(crate) use files::mark_of;
pub use files::{LiveFile, live_files_digest};
pub use kept::KeptFiles;
pub(crate) use kept::ReplacedFiles;
pub(crate) use known::KnownStates;
pub use publish::{Commit, LedgerRule, Published};
pub use state::TableState;
pub use table::DeltaLog;
