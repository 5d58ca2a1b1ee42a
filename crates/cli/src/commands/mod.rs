//! One module a command.

mod changes;
mod consumers;
mod dead_letters;
mod init;
mod namespace;
mod query;
mod quickstart;
mod request;
mod run;
mod status;
mod tables;

use std::sync::Arc;

use alluvium_core::{Result, project_schema};
use alluvium_engine::{Engine, Stop};
use clap::CommandFactory;

use crate::args::{Args, Command, Global};
use crate::progress::Progress;
use crate::{context, memory, output, signals};

/// Carries out what was asked. Returns the exit code.
pub async fn dispatch(args: Args) -> Result<u8> {
    let global = args.global;
    match args.command {
        Command::Changes(changes) => changes::changes(&global, &changes).await,
        Command::Consumers { command } => consumers::consumers(&global, &command).await,
        Command::DeadLetters { command } => dead_letters::dead_letters(&global, &command).await,
        Command::Init { dir } => init::init(&dir),
        Command::Request { command } => request::request(&global, &command).await,
        Command::Run(run) => run::run(&global, &run).await,
        Command::Schema => {
            output::line(&serde_json::to_string_pretty(&project_schema()).unwrap_or_default())?;
            Ok(0)
        }
        Command::Namespace { command } => namespace::namespace(&global, &command).await,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "alluvium", &mut std::io::stdout());
            Ok(0)
        }
        Command::Status => status::status(&global).await,
        Command::Query { sql, format, memory } => query::query(&global, &sql, format, memory.as_deref()).await,
        Command::Tables { name } => tables::tables(&global, name.as_deref()).await,
        Command::Quickstart { dir } => Box::pin(quickstart::quickstart(&dir)).await,
    }
}

/// An engine whose operations stop on Ctrl-C and SIGTERM, and the progress it reports to.
fn engine(global: &Global, memory: Option<&str>) -> Result<(Engine, Arc<Progress>)> {
    let stop = Stop::default();
    let progress = Arc::new(Progress::new(global.output));
    let engine = context::engine(global, memory::budget(memory)?, progress.clone(), stop.clone())?;
    signals::stop_on_signal(&stop);
    Ok((engine, progress))
}
