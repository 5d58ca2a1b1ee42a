//! Sources: where records come from and how they become rows.

mod files;

pub use files::{FileSet, ListingNotes, Opened, OpenedFile, Removal, UnusableName};
