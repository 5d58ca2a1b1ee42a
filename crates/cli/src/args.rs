//! What can be said on the command line.

use std::path::PathBuf;

use alluvium_core::{Error, Kind, Result};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Keeps mutable activity data right in a Delta lake.
///
/// Takes events from files and Kafka exactly once into Delta tables that any reader opens, and tells downstream what changed.
/// Begin with: alluvium quickstart
#[derive(Debug, Parser)]
#[command(name = "alluvium", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 internal, 2 bad usage or config, 3 not found, 4 conflict, 5 fenced (another process took over), \
6 unavailable (try again), 7 unsupported, 8 corrupt, 9 a check said no.";

#[derive(Debug, Clone, ClapArgs)]
pub struct Global {
    /// The directory with alluvium.yaml
    #[arg(long, global = true, env = "ALLUVIUM_PROJECT", default_value = ".", value_name = "DIR")]
    pub project: PathBuf,
    /// The namespace to work in; goes before the project file's
    #[arg(long, global = true, env = "ALLUVIUM_NAMESPACE", value_name = "NS")]
    pub namespace: Option<String>,
    /// How results are printed on stdout: for people, or one JSON object a line
    #[arg(long, global = true, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a commented alluvium.yaml that runs as it is
    Init {
        /// The directory to make the project in
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Make a small project with data and take it through what there is, saying what happens
    Quickstart {
        /// The directory to make the project in; it is left there
        #[arg(default_value = "./alluvium-quickstart")]
        dir: PathBuf,
    },
    /// Run a job
    ///
    /// Each batch is printed when all tables have it. A run that was killed, at any moment, is taken up by the next.
    Run(RunArgs),
    /// Show jobs, last batches, positions, lag and dead letters
    Status,
    /// Show tables with their rows, files, bytes and version
    Tables {
        /// Only this table
        name: Option<String>,
    },
    /// Run read-only SQL over the tables
    ///
    /// Two schemas: lake (the default), where a dataset has the shape it was declared with, and raw, the tables as stored.
    Query {
        /// The statement, for example: SELECT org_id, count(*) FROM engagement GROUP BY org_id
        sql: String,
        /// How rows are printed; with --output json the default is json
        #[arg(long, value_enum)]
        format: Option<QueryFormat>,
        /// Memory the query may use, for example 512MiB [default: a quarter of the machine's]
        #[arg(long, env = "ALLUVIUM_MEMORY", value_name = "SIZE")]
        memory: Option<String>,
    },
    /// Print what changed in a dataset since a reader last looked, as lines of JSON
    ///
    /// The changed partitions (notifications), or with --rows the changed rows, in the order of versions. The last line is
    /// {"next":"TOKEN"}: without it the answer is not whole. Without --consumer and --since: from the beginning.
    Changes(ChangesArgs),
    /// Look at the named readers of changes, or move one
    Consumers {
        #[command(subcommand)]
        command: ConsumersCommand,
    },
    /// Hand over requests to change or erase rows, or see what became of them
    Request {
        #[command(subcommand)]
        command: RequestCommand,
    },
    /// Look at refused records, or take them in again
    DeadLetters {
        #[command(subcommand)]
        command: DeadLettersCommand,
    },
    /// Print the JSON Schema of alluvium.yaml, for editors
    Schema,
    /// List namespaces, or delete one with all it owns
    Namespace {
        #[command(subcommand)]
        command: NamespaceCommand,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, ClapArgs)]
pub struct RunArgs {
    /// What to do
    #[arg(value_enum)]
    pub job: JobArg,
    /// Only these datasets
    #[arg(value_name = "DATASET")]
    pub datasets: Vec<String>,
    /// End when nothing is left that was there at the start (the default)
    #[arg(long, conflicts_with_all = ["once", "follow"])]
    pub until_idle: bool,
    /// End after one batch a dataset (one a shard, where it reads Kafka)
    #[arg(long, conflicts_with = "follow")]
    pub once: bool,
    /// Go on until stopped
    #[arg(long)]
    pub follow: bool,
    /// Memory the run may use, for example 512MiB [default: a quarter of the machine's]
    #[arg(long, env = "ALLUVIUM_MEMORY", value_name = "SIZE")]
    pub memory: Option<String>,
    /// Go on behind records that a Kafka topic has lost before they were read; the loss is recorded, and shown by status
    #[arg(long)]
    pub accept_loss: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub struct ChangesArgs {
    /// The dataset
    pub dataset: String,
    /// Read as this consumer, from where it stands; it is made if it is new, and what it has not read is kept for it
    #[arg(long, value_name = "NAME")]
    pub consumer: Option<String>,
    /// Move the consumer behind what was read, once all of it is written
    #[arg(long, requires = "consumer")]
    pub commit: bool,
    /// Begin at this token, not where the consumer stands
    #[arg(long, value_name = "TOKEN")]
    pub since: Option<String>,
    /// The changed rows, not the partitions they are in
    #[arg(long)]
    pub rows: bool,
    /// Begin with what stands in the table now, as inserts, not with its history
    #[arg(long, conflicts_with = "since")]
    pub snapshot: bool,
    /// Go on until stopped, with a token after each look that found something
    #[arg(long)]
    pub follow: bool,
    /// How rows are written
    #[arg(long, value_enum, default_value_t = ChangesFormat::Json)]
    pub format: ChangesFormat,
    /// Write to this file, whole or not at all; the last line goes to stdout
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Memory the reading may use, for example 512MiB [default: a quarter of the machine's]
    #[arg(long, env = "ALLUVIUM_MEMORY", value_name = "SIZE")]
    pub memory: Option<String>,
}

impl ChangesArgs {
    /// As the command line `alluvium changes DATASET MORE` gives them.
    pub fn of(dataset: &str, more: &[String]) -> Result<Self> {
        let words = ["alluvium", "changes", dataset].into_iter().chain(more.iter().map(String::as_str));
        match Args::try_parse_from(words).map(|args| args.command) {
            Ok(Command::Changes(changes)) => Ok(changes),
            _ => Err(Error::new(Kind::Internal, "arguments of our own that cannot be read")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChangesFormat {
    /// One JSON object a line
    Json,
    /// One Parquet file
    Parquet,
    /// A stream of Arrow's IPC format
    Arrow,
}

#[derive(Debug, Subcommand)]
pub enum ConsumersCommand {
    /// List the named readers, and how far each is behind
    List,
    /// Acknowledge what was read: the consumer moves to where the token says
    Commit {
        /// The consumer
        name: String,
        /// The token of the last line that was read
        token: String,
    },
    /// Put a consumer back to the beginning, for a reader that must start over
    Reset {
        /// The consumer
        name: String,
    },
    /// Forget a consumer: nothing is kept for it any more
    Remove {
        /// The consumer
        name: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JobArg {
    /// Take events in
    Ingest,
    /// Take requests in and apply them to what has landed
    Mutate,
    /// Drop rows that are past their retention
    Retain,
    /// Rewrite files into a better layout (not built yet)
    Optimize,
    /// Remove the files that nobody needs any more
    Vacuum,
    /// All jobs that are built
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QueryFormat {
    Table,
    Json,
    Csv,
    Parquet,
}

#[derive(Debug, Subcommand)]
pub enum RequestCommand {
    /// Take in requests from a file of JSON lines; run mutate applies them
    Submit {
        /// The file, or - for stdin
        #[arg(value_name = "FILE")]
        file: String,
    },
    /// List the accepted requests with their states
    List {
        /// Only those in this state
        #[arg(long, value_enum)]
        state: Option<StateArg>,
    },
    /// Show a request: its state, attempts, the batches that applied it, rows changed
    Show {
        /// The request's id
        id: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StateArg {
    /// Accepted, not yet applied
    Pending,
    /// No row was seen yet; it is tried again
    Waiting,
    /// A row changed, stored or on its way in
    Applied,
    /// No row was seen in all attempts; it still holds for rows to come
    Unmatched,
}

#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// List refused records, with their source, position and reason
    List {
        /// Only of this dataset
        #[arg(long)]
        dataset: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Decode refused records again, after the project file was mended; those that fit become rows (or requests), exactly once
    Replay {
        /// Only of these datasets; `requests` stands for refused requests
        #[arg(value_name = "DATASET")]
        datasets: Vec<String>,
        /// Memory the replay may use, for example 512MiB [default: a quarter of the machine's]
        #[arg(long, env = "ALLUVIUM_MEMORY", value_name = "SIZE")]
        memory: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum NamespaceCommand {
    /// List the namespaces in the project's storage
    List,
    /// Delete a namespace: all its tables and all that is remembered about them
    Delete {
        /// The namespace
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}
