//! The operations of Alluvium, one folder a verb, in the order data flows.
//!
//! Place in the flow: the command line makes an [`Engine`] and calls its operations; they read sources, and write and read tables
//! through `alluvium-lake`. Clock, memory, stop signal and the listener to progress are injected. Deliberately not here: terminals,
//! arguments, exit codes.

mod engine;
mod erase;
mod ingest;
mod ledger;
mod maintain;
mod mutate;
mod namespace;
mod observe;
mod read;
mod requests;
mod resolve;
mod retain;
mod rewrite;
mod source;
mod turn;

pub use engine::{Clock, Engine, EngineSettings, Stop, SystemClock};
pub use ingest::{
    DeadLetter, DeadLetterList, FilePosition, IngestOptions, Mode, PartitionPosition, RunSummary, SourcePosition, TopicPosition,
};
pub use maintain::{VacuumReport, VacuumSummary};
pub use mutate::WouldChange;
pub use observe::{BatchReport, Observer, Silent};
pub use read::{
    ChainStatus, Changes, ChangesReader, ChangesRequest, ConsumerStatus, DatasetStatus, LastBatch, OpenRequests, PositionStatus,
    QueryRows, RowFormat, RowWriter, SIZE_BUCKETS, SizeBucket, Status, TableReport, TablesReport,
};
pub use requests::{ChangedBy, RequestState, RequestStatus};
pub use retain::WouldDrop;
pub use source::{Broker, Polled, RdBroker, Reader, ReaderSettings, Record, TopicFacts, Watermarks};
pub use source::{
    Chunk, Decoded, Decoder, FileFault, FileSet, Input, ListingNotes, MAX_RECORD_BYTES, Opened, OpenedFile, Refused, Removal,
    Splitter, UnusableName, decoded_schema,
};
