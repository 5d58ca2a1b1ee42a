//! Sources: where records come from and how they become rows.

mod decode;
mod files;
mod kafka;
mod split;

pub use decode::{Decoded, Decoder, Refused, decoded_schema};
pub(crate) use decode::{RawRecord, around_of, push_json, push_json_string, push_plain, push_time, values_of};
pub use files::{FileSet, ListingNotes, Opened, OpenedFile, RangedFile, RangedReader, Removal, UnusableName};
pub(crate) use kafka::Messages;
pub use kafka::{Broker, Polled, RdBroker, Reader, ReaderSettings, Record, TopicFacts, Watermarks};
pub use split::{Chunk, FileFault, Input, MAX_RECORD_BYTES, Splitter};
