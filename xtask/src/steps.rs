//! The steps of `cargo xtask ci`: a name and a cargo command each.
//!
//! Steps run one after the other from the workspace's root; the first that fails ends the run with its exit code. Each
//! prints its name, its command and how long it took.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// One command with a name.
pub struct Step {
    name: &'static str,
    args: Vec<String>,
    env: Vec<(&'static str, &'static str)>,
}

impl Step {
    fn cargo(name: &'static str, args: &[&str]) -> Self {
        Self { name, args: args.iter().map(ToString::to_string).collect(), env: Vec::new() }
    }

    /// Runs the step to its end; its exit code when it is not 0.
    fn run(&self) -> Result<(), u8> {
        let status = cargo().args(&self.args).envs(self.env.iter().copied()).current_dir(root()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            // No code: ended by a signal.
            Ok(status) => Err(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
            Err(error) => {
                eprintln!("xtask: cannot start cargo: {error}");
                Err(1)
            }
        }
    }
}

/// Formatting in place.
pub fn fmt() -> Step {
    Step::cargo("fmt", &["fmt", "--all"])
}

/// Formatting looked at, nothing changed.
pub fn fmt_check() -> Step {
    Step::cargo("fmt", &["fmt", "--all", "--check"])
}

/// Clippy on everything, warnings denied.
pub fn lint() -> Step {
    Step::cargo("lint", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

/// Documentation of our crates, warnings denied.
pub fn doc() -> Step {
    let mut step = Step::cargo("doc", &["doc", "--workspace", "--no-deps"]);
    step.env.push(("RUSTDOCFLAGS", "-D warnings"));
    step
}

/// Some hundred simulated worlds, in all of which everything must hold.
pub fn worlds() -> Step {
    Step::cargo("sim", &["xtask", "sim", "--seeds", "300"])
}

/// Every rule broken on purpose must show in some world.
pub fn plants() -> Step {
    Step::cargo("plants", &["xtask", "sim", "--plant", "all"])
}

/// All tests, with further arguments for `cargo test`.
pub fn test(args: &[&str]) -> Step {
    let mut all = vec!["test", "--workspace"];
    all.extend(args);
    Step::cargo("test", &all)
}

/// Runs `steps` in order, stops at the first that fails, and prints what each took.
pub fn run_all(steps: &[Step]) -> ExitCode {
    let mut taken: Vec<(&str, Duration)> = Vec::new();
    for step in steps {
        eprintln!("xtask: {}: cargo {}", step.name, step.args.join(" "));
        let start = Instant::now();
        let outcome = step.run();
        taken.push((step.name, start.elapsed()));
        if let Err(code) = outcome {
            eprintln!("xtask: {} failed with exit code {code} after {:.1} s", step.name, start.elapsed().as_secs_f64());
            return ExitCode::from(code);
        }
        eprintln!("xtask: {} ok, {:.1} s", step.name, start.elapsed().as_secs_f64());
    }
    if taken.len() > 1 {
        let parts: Vec<String> = taken.iter().map(|(name, time)| format!("{name} {:.1} s", time.as_secs_f64())).collect();
        eprintln!("xtask: all ok: {}", parts.join(", "));
    }
    ExitCode::SUCCESS
}

/// The cargo that started us, so that a chosen toolchain stays chosen. What it told us of this program is not passed on: build
/// scripts of dependencies look at it, and would be run again, with all that follows, after each build started by hand.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
