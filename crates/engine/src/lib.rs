//! The operations of Alluvium, one folder a verb, in the order data flows.

mod source;

pub use source::{Chunk, Decoded, Decoder, FileFault, Input, MAX_RECORD_BYTES, Refused, Splitter, arrow_type, decoded_schema};
