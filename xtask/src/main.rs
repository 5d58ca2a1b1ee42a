//! `cargo xtask`: the one entry for developers.
//!
//! `ci` is what continuous integration runs; the other verbs are its steps alone, and the benchmarks. Depends on nothing
//! but the standard library, so that it is there in seconds; the code under measure runs in processes of its own.

mod bench;
mod sim;
mod steps;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci              format check, clippy, docs, all tests, simulated worlds: what CI runs
  fmt             format the code
  lint            clippy on all targets, warnings denied
  test [ARGS]     all tests; ARGS go to cargo test
  doc             docs, warnings denied
  sim [ARGS]      simulated worlds, each from its seed (sim --help)
  bench ingest    measure ingestion against DuckDB + deltalake (bench ingest --help)
  bench kafka     measure a topic taken in against draining it and reading files
  bench changes   measure reading row-level changes against deltalake's load_cdf (bench changes --help)
  bench mutate    measure conversions against deltalake's MERGE (bench mutate --help)
  bench ledger    measure what many requests cost rows and requests after them (bench ledger --help)
  bench scale     measure requests that touch little of a large table (bench scale --help)
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["ci"] => {
            steps::run_all(&[steps::fmt_check(), steps::lint(), steps::doc(), steps::test(&[]), steps::worlds(), steps::plants()])
        }
        ["fmt"] => steps::run_all(&[steps::fmt()]),
        ["lint"] => steps::run_all(&[steps::lint()]),
        ["doc"] => steps::run_all(&[steps::doc()]),
        ["test", rest @ ..] => steps::run_all(&[steps::test(rest)]),
        ["sim", rest @ ..] => sim::main(rest),
        ["bench", name, rest @ ..] => bench::main(name, rest).unwrap_or_else(misused),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => misused(),
    }
}

fn misused() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}
