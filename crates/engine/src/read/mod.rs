//! Reading: what tables there are and what they hold, SQL over them, and how far jobs have come.
//!
//! Nothing here writes or makes anything on storage, but for the records of named consumers; what is not there yet is empty. SQL runs within the memory budget and
//! spills to a directory of its own, which goes with the query. Deliberately not here: terminals.

mod changes;
mod error;
mod lines;
mod query;
mod rows;
mod schema;
mod session;
mod status;
mod tables;

pub use changes::{Changes, ChangesReader, ChangesRequest, ConsumerStatus, PositionStatus};
pub use query::QueryRows;
pub use rows::{RowFormat, RowWriter};
pub use status::{ChainStatus, DatasetStatus, LastBatch, OpenRequests, Status};
pub use tables::{SIZE_BUCKETS, SizeBucket, TableReport, TablesReport};
