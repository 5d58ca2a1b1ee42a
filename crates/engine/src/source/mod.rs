//! Sources: where records come from and how they become rows.

mod decode;
mod split;

pub use decode::{Decoded, Decoder, Refused, arrow_type, decoded_schema};
pub use split::{Chunk, FileFault, Input, MAX_RECORD_BYTES, Splitter};
