//! The last guard around Parquet's readers.
//!
//! Files come from anywhere, and a damaged one must be an error. What is known to bring the readers down is looked for before they
//! see it (`file`, `pages`, `thrift`); for what is not known, a panic below becomes the error that the file is damaged.

use std::panic::AssertUnwindSafe;

use alluvium_core::Result;
use futures::FutureExt;

use crate::log::ChangedFile;
use crate::rows::damaged;

/// What `work` on `file` gives; that the file is damaged if it panics. `work` must leave nothing half done that is used later.
pub(super) async fn guarded<T>(file: &ChangedFile, work: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done,
        Err(_) => Err(damaged(file).hint("Parquet's reader cannot make sense of it; restore it from a backup of the storage")),
    }
}
