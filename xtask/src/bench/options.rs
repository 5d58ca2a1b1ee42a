//! The options of `cargo xtask bench`.

use std::path::PathBuf;

/// What `--help` prints.
pub const USAGE: &str = "\
usage: cargo xtask bench ingest|kafka [OPTIONS]

  --rows N        JSON lines to take in, about 390 bytes each (1000000)
  --orgs N        organisations, skewed (50)
  --memory SIZE   the budget of the run with a small one (256MiB; ingest only)
  --runs R        runs of each, in turns; medians are printed (3)
  --tenfold       then once more with ten times the rows, one run each (ingest only)
  --keep DIR      work there and leave the tables (default: the target directory's bench/, tables removed)
  --binary PATH   measure this alluvium instead of building one
  --peer-only     measure DuckDB + deltalake alone (ingest only)
";

/// Parsed options.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    pub rows: u64,
    pub orgs: u32,
    pub memory: String,
    pub runs: usize,
    pub tenfold: bool,
    pub keep: Option<PathBuf>,
    pub binary: Option<PathBuf>,
    pub peer_only: bool,
}

impl Options {
    /// The options in `args`; none when help was asked for.
    pub fn parse(args: &[&str]) -> Result<Option<Self>, String> {
        let mut options = Self {
            rows: 1_000_000,
            orgs: 50,
            memory: "256MiB".to_owned(),
            runs: 3,
            tenfold: false,
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
                "--memory" => value()?.clone_into(&mut options.memory),
                "--keep" => options.keep = Some(value()?.into()),
                "--binary" => options.binary = Some(value()?.into()),
                "--tenfold" => options.tenfold = true,
                "--peer-only" => options.peer_only = true,
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

    #[test]
    fn options_given_are_taken_and_the_others_are_defaults() {
        let options = Options::parse(&["--rows", "500", "--keep", "out", "--tenfold"]).unwrap().unwrap();
        assert_eq!((options.rows, options.orgs, options.runs, options.tenfold), (500, 50, 3, true));
        assert_eq!(options.keep, Some(PathBuf::from("out")));
    }

    #[test]
    fn bad_options_are_refused() {
        for bad in [&["--rows"][..], &["--rows", "0"], &["--orgs", "many"], &["--row", "1"]] {
            assert!(Options::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Options::parse(&["--help"]), Ok(None));
    }
}
