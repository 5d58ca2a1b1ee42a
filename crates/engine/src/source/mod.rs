//! Sources: where records come from and how they become rows.

mod decode;
mod files;
mod split;

pub use decode::{Decoded, Decoder, Refused, decoded_schema};
pub(crate) use decode::{push_json, push_json_string, push_plain, push_time};
pub use files::{FileSet, ListingNotes, Opened, OpenedFile, RangedFile, RangedReader, Removal, UnusableName};
pub use split::{Chunk, FileFault, Input, MAX_RECORD_BYTES, Splitter};
