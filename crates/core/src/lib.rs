//! The pure heart of Alluvium: ids, positions, declarations, batch records and plans.
//!
//! Place in the flow: everything that can be decided without touching a disk, a network or a clock is decided here;
//! `alluvium-lake` and `alluvium-engine` carry it out. Deliberately not here: I/O, async, clocks, Arrow, Delta.

mod bytes;
mod chain;
mod dataset;
mod error;
mod kafka;
mod ledger;
mod names;
mod position;
mod project;
mod pseudonym;
mod record;
mod request;
mod retention;
mod tables;
mod taken;
mod time;
mod token;
mod types;
mod units;

pub use chain::{Attempt, BatchKey, BatchNumber, ChainId, Incarnation, Job, LedgerPosition, LedgerShape, Shard, TxnVersion};
pub use dataset::{
    BatchLimits, Dataset, DatasetName, Durability, Field, FileFormat, FileSource, Identity, KafkaSource, KafkaStart, Layout,
    MessagePart, OnErase, Requests, Source, TakenPolicy, TimeUnit, Tombstones,
};
pub use error::{Error, Kind, Result, TextError};
pub use kafka::{
    KafkaPositions, KafkaStanding, SHARDS_FORMAT, SourceShards, TopicLook, default_shards, loss_error, partitions_of,
};
pub use ledger::{
    Changed, Ending, FATE_FORMAT, FOLD_RULES, Fate, FateChange, Fates, FinalId, LedgerBuilder, LedgerRequest, Live, Node,
    NodeKey, Order, OrgLedger, Outcome, Piece, Renamed, RowGroup, SetColumn, Shape, SourceRow, resolve,
};
pub use names::{
    ChainFile, DataFile, IndexFile, Namespace, Resolver, TableName, app_id, data_file, ledger_app_id, parse_data_file,
    parse_rewrites_name, parse_span_file, rewrites_name, shape_app_id, span_file,
};
pub use position::{
    FileCursor, FileRange, FileStamp, KafkaRange, LastTaken, LossKind, Offset, OffsetLoss, PartitionRange, Range,
};
pub use project::{
    Erase, EraseKey, INIT_TEMPLATE, KafkaSettings, Maintenance, Place, Problem, Project, ProjectErrors, Warning, project_schema,
};
pub use pseudonym::{ErasureKey, OrgPseudonyms, OrgSalt, PSEUDONYM_FORMAT, Pseudonyms, is_pseudonym};
pub use record::{
    AddedFile, BatchOutcome, BatchRecord, DatePartitionCount, DoneMark, Mutation, PlannedOn, RECORD_FORMAT, RecordBody, Recorded,
    RewriteWork, TableFiles, TableRewrite,
};
pub use request::{
    Delete, Id, JsonText, MAX_ID_BYTES, MAX_REQUEST_BYTES, MAX_REQUEST_ID_BYTES, MAX_REQUEST_ORG_BYTES, MAX_SUBJECTS, Op,
    OrderKey, REQUEST_FORMAT, Refusal, Request, RequestDigest, Scope, Subject, read_request,
};
pub use retention::{PastRetention, Retention, RetentionBounds};
pub use tables::{ADDED_COLUMNS, Column, TableSpec};
pub use taken::{
    BatchSpan, Cover, FilePlan, FilePlanner, FoundFile, PartialLost, SEGMENT_FORMAT, Segment, SegmentPlan, StoredSegment,
    TakenFiles, cover_segments, decode_segment, encode_segment, is_looked_at, names_in_segment_of, plan_files, plan_segment,
};
pub use time::{
    MICROS_PER_DAY, TimeFault, day_in_range, day_of_micros, parse_date, parse_timestamp, push_time, timestamp_in_range,
};
pub use token::{NextVersion, ReadFrom, ReadKind, ReaderId, TOKEN_FORMAT, TableMark, Token};
pub use types::{DataType, StructField, TypeParseError};
pub use units::{format_duration, format_size, parse_duration, parse_size};
