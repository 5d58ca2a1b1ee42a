//! The only crate of Alluvium that knows Delta, Parquet and object stores.
//!
//! Place in the flow: `alluvium-engine` hands rows to a [`Stager`], writes a batch record, and publishes it to the logs of the
//! tables with [`DeltaLog::publish`]. Invariants kept here: `no_duplicate_row` and `fenced` (the commit loop), durability on a
//! local disk. Deliberately not here: where rows come from, and in which order a batch's tables are published.

mod binary;
mod blocking;
mod consumer;
mod erasure;
mod file_index;
mod lease;
mod local;
mod log;
mod machine;
mod namespace;
mod pieces;
#[cfg(feature = "plants")]
mod plant;
mod process;
mod read;
mod records;
mod rewrites;
mod rising;
mod rows;
mod schema;
mod seats;
mod sorted;
mod sources;
mod splice;
mod stage;
mod store;
mod unescape;
mod vacuum;
mod widen;

pub use blocking::{Away, blocking, in_place};
pub use consumer::{Advanced, Begun, CONSUMER_FORMAT, Consumer, ConsumerRecord, ConsumerStore, Reached};
pub use erasure::{ERASURE_FORMAT, ErasureStore, KeyRecord, from_hex, to_hex};
pub use file_index::{
    FILE_INDEX_FORMAT, FieldHasher, FileIds, IdHash, IdSet, IndexBuilder, IndexReader, MayHold, Question, SortedHashes,
};
pub use lease::{Holder, LEASE_FORMAT, Lease, LeaseWatch};
pub use log::{
    ChangedFile, Commit, DeletedRows, DeltaLog, KeptFiles, LedgerRule, LiveFile, Published, Standing, TableState, VersionChanges,
    live_files_digest,
};
pub use machine::{Machine, ThisMachine};
pub use namespace::{
    NAMESPACE_FORMAT, Owned, delete_namespace, list_namespaces, mark_for_deletion, namespace_owns, open_namespace,
    open_or_create_namespace, unmark_for_deletion,
};
pub use pieces::Pieces;
#[cfg(feature = "plants")]
pub use plant::{Plant, plant};
pub use process::ProcessId;
pub use read::TableContents;
pub use records::{ChainListing, ChainStore, RecordedRange, unfinished_since};
pub use rewrites::{REWRITES_FORMAT, Rewrites, RewrittenFile};
pub use rising::{FLOOR_FORMAT, Floor, PURGED_FORMAT, Purged, PurgedTo};
pub use rows::{MarksDiffer, ReadBudget, RowStream, Rows};
pub use schema::{arrow_schema, arrow_type};
pub use seats::{Seats, Share};
pub use sorted::{
    KeyHash, KeyMap, KeySet, MAX_SORTED_VALUE_BYTES, MergeMode, SORTED_FORMAT, ShutSortedFile, SortedFile, SortedKey, SortedScan,
    SortedSize, SortedWriter, merge_sorted,
};
pub use sources::{fix_source_shards, source_shards};
pub use splice::{ColumnEdit, Edits, SpliceFile, SpliceSettings, Spliced, SplicedFile, Wanted};
pub use stage::{Arranged, CHANGE_TYPE, StageIndex, StageSettings, Stager, Sweep};
pub use store::{Found, Location, PutNew, STORE_PROOF_FORMAT, Store, store_error};
pub use vacuum::{Condemned, Fenced, PutBefore, Removed, Unneeded, Vacuum};
