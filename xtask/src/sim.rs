//! `cargo xtask sim`: builds the simulator, with its broken rules to choose from, and starts it.
//!
//! The workspace's crates are built once more with the feature `plants`; what they depend on is shared with every other build.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::steps::{cargo, root};

/// Builds `alluvium-sim` and runs it with `args`, whose exit code becomes ours.
pub fn main(args: &[&str]) -> ExitCode {
    let ended = build().and_then(|program| Command::new(program).args(args).current_dir(root()).status());
    match ended {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("xtask: sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> io::Result<PathBuf> {
    let target = crate::bench::target_dir()?;
    let status = cargo()
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--bin",
            "alluvium-sim",
            "--features",
            "alluvium-testkit/plants",
            "--target-dir",
        ])
        .arg(&target)
        .current_dir(root())
        .status()?;
    if status.success() { Ok(target.join("debug/alluvium-sim")) } else { Err(io::Error::other("the build failed")) }
}
