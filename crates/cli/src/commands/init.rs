//! `alluvium init`.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use alluvium_core::{Error, INIT_TEMPLATE, Kind, Result};

use crate::context::PROJECT_FILE;

/// Writes a project file where there is none.
pub fn init(directory: &Path) -> Result<u8> {
    let file = directory.join(PROJECT_FILE);
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => Error::new(Kind::Conflict, format!("{} is there already", file.display()))
            .hint("name another directory, or delete that file first"),
        _ => Error::new(Kind::Unavailable, format!("writing {}: {e}", file.display())),
    };
    fs::create_dir_all(directory).map_err(failed)?;
    let mut out = OpenOptions::new().write(true).create_new(true).open(&file).map_err(failed)?;
    out.write_all(INIT_TEMPLATE.as_bytes()).map_err(failed)?;
    eprintln!("wrote {}", file.display());
    eprintln!("put JSON lines into inbox/engagement, then: alluvium run ingest --project {}", directory.display());
    Ok(0)
}
