//! The command line of Alluvium: arguments, progress, output and exit codes.
//!
//! Place in the flow: the outermost; it makes an `Engine` from the project file and prints what operations return. Data goes to
//! stdout, everything else to stderr. Deliberately not here: how anything is done.

mod args;
mod commands;
mod context;
mod memory;
mod output;
mod progress;
mod signals;

use std::process::ExitCode;

use clap::Parser;

/// Gives freed memory back whichever thread freed it. With the system's, memory of many short-lived encoders stays with the threads.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(e) => {
            // Help and version are no errors, and go to stdout.
            let code = if e.use_stderr() { 2 } else { 0 };
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    output::init_logging();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("error: starting the runtime: {e}");
            return ExitCode::from(1);
        }
    };
    let code = match runtime.block_on(commands::dispatch(args)) {
        Ok(code) => code,
        Err(error) => {
            output::print_error(&error);
            error.kind().exit_code()
        }
    };
    // Threads that still read for an operation that was stopped are not waited for.
    runtime.shutdown_background();
    ExitCode::from(code)
}
