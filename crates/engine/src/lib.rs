//! The operations of Alluvium, one folder a verb, in the order data flows.

mod source;

pub use source::{FileSet, ListingNotes, Opened, OpenedFile, Removal, UnusableName};
