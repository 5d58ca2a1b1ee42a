//! The pure heart of Alluvium: ids, positions, declarations, batch records and plans.
//!
//! Place in the flow: everything that can be decided without touching a disk, a network or a clock is decided here;
//! `alluvium-lake` and `alluvium-engine` carry it out. Deliberately not here: I/O, async, clocks, Arrow, Delta.

mod chain;
mod dataset;
mod error;
mod position;
mod record;
mod taken;
mod types;

pub use chain::{Attempt, BatchKey, BatchNumber, ChainId, Incarnation, Job, Shard, TxnVersion};
pub use dataset::{
    BatchLimits, Dataset, DatasetName, Durability, Field, FileFormat, FileSource, Identity, Layout, OnErase, Source, TakenPolicy,
    TimeUnit,
};
pub use error::{Error, Kind, Result};
pub use position::{FileCursor, FileRange, FileStamp, Range};
pub use record::{AddedFile, BatchRecord, DatePartitionCount, RECORD_FORMAT, RecordBody, Recorded, TableFiles};
pub use taken::{
    BatchSpan, Cover, FilePlan, FilePlanner, FoundFile, PartialLost, SEGMENT_FORMAT, Segment, SegmentPlan, StoredSegment,
    TakenFiles, cover_segments, decode_segment, encode_segment, is_looked_at, names_in_segment_of, plan_files, plan_segment,
};
pub use types::{DataType, StructField, TypeParseError};
