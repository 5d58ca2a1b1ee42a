//! Tests of the repository as a whole: its style, and the programs that check our tables from outside.

#![allow(clippy::unwrap_used)]

mod readers;
mod tidy;

use std::path::{Path, PathBuf};

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}
