//! The options of `cargo xtask bench`, and the way from them to an exit code.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// A small budget.
pub const SMALL_MEMORY: &str = "256MiB";

/// A benchmark, as its command line tells of it.
pub struct Bench {
    /// The word behind `bench`.
    pub name: &'static str,
    /// What `--help` prints.
    pub usage: &'static str,
    /// Rows, unless told otherwise.
    pub rows: u64,
    /// The memory budget, unless told otherwise.
    pub memory: &'static str,
    /// The options it has beside those that all have.
    pub also: &'static [&'static str],
    /// Measures and prints.
    pub run: fn(&Options) -> io::Result<()>,
}

impl Bench {
    /// Runs the benchmark as `args` ask.
    pub fn main(&self, args: &[&str]) -> ExitCode {
        let options = match Options::parse(args, self) {
            Ok(Some(options)) => options,
            Ok(None) => {
                print!("{}", self.usage);
                return ExitCode::SUCCESS;
            }
            Err(message) => {
                eprintln!("xtask: {message}\n\n{}", self.usage);
                return ExitCode::from(2);
            }
        };
        match (self.run)(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("xtask: bench {}: {error}", self.name);
                ExitCode::FAILURE
            }
        }
    }
}

/// Parsed options.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    pub rows: u64,
    pub orgs: u32,
    pub requests: usize,
    pub memory: String,
    pub runs: usize,
    pub tenfold: bool,
    pub wide: bool,
    pub keep: Option<PathBuf>,
    pub binary: Option<PathBuf>,
    pub peer_only: bool,
}

impl Options {
    /// The options in `args`, of those that all benchmarks have and those that this one has; none when help was asked for.
    pub fn parse(args: &[&str], bench: &Bench) -> Result<Option<Self>, String> {
        let also = bench.also;
        let mut options = Self {
            rows: bench.rows,
            orgs: 50,
            requests: 1_000_000,
            memory: bench.memory.to_owned(),
            runs: 3,
            tenfold: false,
            wide: false,
            keep: None,
            binary: None,
            peer_only: false,
        };
        let mut args = args.iter().copied();
        while let Some(name) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{name} needs a value"));
            match name {
                "--rows" => options.rows = positive(name, value()?)?,
                "--orgs" => options.orgs = positive(name, value()?)?,
                "--runs" => options.runs = positive(name, value()?)?,
                "--memory" if also.contains(&name) => value()?.clone_into(&mut options.memory),
                "--keep" => options.keep = Some(value()?.into()),
                "--binary" => options.binary = Some(value()?.into()),
                "--requests" if also.contains(&name) => options.requests = positive(name, value()?)?,
                "--tenfold" if also.contains(&name) => options.tenfold = true,
                "--wide" if also.contains(&name) => options.wide = true,
                "--peer-only" if also.contains(&name) => options.peer_only = true,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(Some(options))
    }
}

fn positive<T: std::str::FromStr + PartialOrd + From<u8>>(name: &str, text: &str) -> Result<T, String> {
    text.parse()
        .ok()
        .filter(|number| *number >= T::from(1))
        .ok_or_else(|| format!("{name} wants a positive number, not {text:?}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BENCH: Bench = Bench { name: "x", usage: "", rows: 9, memory: SMALL_MEMORY, also: &["--tenfold"], run: |_| Ok(()) };

    #[test]
    fn options_given_are_taken_and_the_others_are_defaults() {
        let options = Options::parse(&["--rows", "500", "--keep", "out", "--tenfold"], &BENCH).unwrap().unwrap();
        assert_eq!((options.rows, options.orgs, options.runs, options.tenfold), (500, 50, 3, true));
        assert_eq!(options.keep, Some(PathBuf::from("out")));
    }

    #[test]
    fn bad_options_are_refused() {
        for bad in [&["--rows"][..], &["--rows", "0"], &["--orgs", "many"], &["--row", "1"], &["--runs", "x"], &["--peer-only"]] {
            assert!(Options::parse(bad, &BENCH).is_err(), "{bad:?}");
        }
        assert_eq!(Options::parse(&["--help"], &BENCH), Ok(None));
    }
}
