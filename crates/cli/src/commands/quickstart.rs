//! `alluvium quickstart`: a small project with data, taken through what there is.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;

use alluvium_core::{Error, Kind, Result};
use alluvium_engine::Mode;

use super::{changes, engine, query, run};
use crate::args::{ChangesArgs, Global, Output, QueryFormat};
use crate::context::PROJECT_FILE;

/// The project that the tour makes: two kinds of activity, a table each.
const PROJECT: &str = include_str!("quickstart.yaml");
const ORGANISATIONS: [&str; 5] = ["acme", "globex", "initech", "umbrella", "hooli"];
const KINDS: [&str; 4] = ["email_sent", "email_opened", "call", "page_view"];
const CONVERSION: &str = "{\"request_id\":\"r1\",\"org_id\":\"acme\",\"op\":\"convert\",\"field\":\"lead_id\",\"from\":\"L1\",\"to\":\"C1\",\
                          \"execution_time\":\"2026-04-01T00:00:00Z\"}\n";
const ENGAGEMENTS: u64 = 2_000;
const MEETINGS: u64 = 300;

/// Makes the project and goes through the tour.
pub async fn quickstart(directory: &Path) -> Result<u8> {
    if directory.join(PROJECT_FILE).exists() {
        return Err(Error::new(Kind::Conflict, format!("{} holds a project already", directory.display()))
            .hint("name another directory, or delete that one first"));
    }
    let global = Global { project: directory.to_owned(), namespace: None, output: Output::Text };
    let shown = directory.display();

    step("A project is a directory with alluvium.yaml. This one declares two datasets, engagement and meeting:");
    write(directory, PROJECT_FILE, PROJECT)?;
    write(directory, "inbox/engagement/2026-03-01.json", &engagements(0, ENGAGEMENTS / 2))?;
    write(directory, "inbox/engagement/2026-03-02.json", &engagements(ENGAGEMENTS / 2, ENGAGEMENTS))?;
    write(directory, "inbox/meeting/2026-03.csv", &meetings())?;
    say(&format!("{shown}/{PROJECT_FILE}, and files in {shown}/inbox: JSON lines, and CSV"));

    step("Take them in. Each file is read once; a batch lands in all its tables, or is taken up again by the next run:");
    command(&format!("alluvium run ingest --project {shown}"));
    ingest(&global).await?;

    step("Run it again: every file was taken, so there is nothing to do. Kill it at any moment, and the same holds:");
    command(&format!("alluvium run ingest --project {shown}"));
    ingest(&global).await?;

    step("The tables are plain Delta tables that any reader opens. Here by SQL:");
    sql(&global, "SELECT org_id, count(*) AS rows, min(occurred_at) AS first, max(occurred_at) AS last FROM engagement GROUP BY org_id ORDER BY rows DESC").await?;

    step("Fields that the declaration does not know are not lost, and every row says where it came from:");
    sql(&global, "SELECT engagement_id, _source, _offset, _rescued FROM engagement ORDER BY _source, _offset LIMIT 3").await?;

    step("Records that do not fit are kept whole, with the reason, in dead_letters:");
    sql(&global, "SELECT source, position, field, reason FROM dead_letters").await?;

    step("Downstream reads notifications: which organisation and date changed, in which version of which table:");
    sql(&global, "SELECT table_name, table_version, count(*) AS partitions, sum(inserted) AS inserted FROM notifications GROUP BY table_name, table_version ORDER BY table_name, table_version").await?;

    step("Now mend the declaration (duration_s may be text now and then: take it in as a field of its own), and replay:");
    let mended = PROJECT
        .replace("      duration_s: long\n", "      duration_s: long\n      duration_text: { type: string, from: duration_s }\n");
    let mended = mended.replace("      duration_s: long\n", "      duration_s: { type: long, from: seconds }\n");
    fs::write(directory.join(PROJECT_FILE), mended).map_err(|e| unwritable(directory, e))?;
    command(&format!("alluvium dead-letters replay --project {shown}"));
    let started = Instant::now();
    let (engine, progress) = engine(&global, None)?;
    let summary = engine.replay_dead_letters(&engine.datasets(&[])?).await;
    progress.clear();
    run::print_summary(Output::Text, &summary?, started)?;
    sql(
        &global,
        "SELECT engagement_id, duration_s, duration_text, _source, _offset FROM engagement WHERE duration_text IS NOT NULL",
    )
    .await?;

    step(
        "A program downstream reads what changed since it last looked, under a name of its own. First all there is, into a file:",
    );
    let copy = directory.join("engagement.parquet");
    let first = ["--rows", "--consumer", "copy", "--commit", "--format", "parquet", "--to"].map(str::to_owned);
    downstream(&global, first.into_iter().chain([copy.display().to_string()])).await?;

    step("One more file comes in; the same consumer is given just its rows, and the token of where it stands:");
    write(directory, "inbox/engagement/2026-03-03.json", &engagements(ENGAGEMENTS, ENGAGEMENTS + 2))?;
    command(&format!("alluvium run ingest engagement --project {shown}"));
    ingest(&global).await?;
    downstream(&global, ["--rows", "--consumer", "copy", "--commit"].map(str::to_owned)).await?;

    step("A lead became a contact: a request converts the id in every row that has landed, and in every row to come:");
    write(directory, "requests.json", CONVERSION)?;
    command(&format!("alluvium request submit {shown}/requests.json --project {shown}"));
    let (engine, progress) = super::engine(&global, None)?;
    let submitted = engine.submit_requests("requests.json", CONVERSION.into()).await;
    progress.clear();
    run::print_summary(Output::Text, &submitted?, Instant::now())?;
    command(&format!("alluvium run mutate --project {shown}"));
    let started = Instant::now();
    let (engine, progress) = super::engine(&global, None)?;
    let mutated = engine.mutate(&engine.datasets(&[])?, Mode::UntilIdle).await;
    progress.clear();
    run::print_summary(Output::Text, &mutated?, started)?;
    sql(&global, "SELECT engagement_id, lead_id, _original FROM engagement WHERE lead_id = 'C1' ORDER BY engagement_id LIMIT 3")
        .await?;

    step(
        "The conversion put new files in the place of old ones. Those go when nobody may look back to them any more, after 7 days:",
    );
    command(&format!("alluvium run vacuum engagement --project {shown}"));
    let (engine, progress) = super::engine(&global, None)?;
    let vacuumed = engine.vacuum(&["engagement".to_owned()], false).await;
    progress.clear();
    run::print_vacuum(Output::Text, &vacuumed?, false, Instant::now())?;

    step("That is it so far. The project is left for you to look around:");
    command(&format!("alluvium status --project {shown}"));
    command(&format!("alluvium tables --project {shown}"));
    Ok(0)
}

async fn ingest(global: &Global) -> Result<()> {
    let started = Instant::now();
    let (engine, progress) = engine(global, None)?;
    let summary = engine.ingest(&engine.datasets(&[])?, Mode::UntilIdle).await;
    progress.clear();
    run::print_summary(Output::Text, &summary?, started).map(|_| ())
}

/// `alluvium changes engagement` with these arguments.
async fn downstream(global: &Global, more: impl IntoIterator<Item = String>) -> Result<()> {
    let more: Vec<String> = more.into_iter().collect();
    command(&format!("alluvium changes engagement --project {} {}", global.project.display(), more.join(" ")));
    changes::changes(global, &ChangesArgs::of("engagement", &more)?).await.map(|_| ())
}

async fn sql(global: &Global, statement: &str) -> Result<()> {
    command(&format!("alluvium query --project {} \"{statement}\"", global.project.display()));
    query::query(global, statement, Some(QueryFormat::Table), None).await.map(|_| ())
}

fn step(text: &str) {
    eprintln!("\n# {text}");
}

fn say(text: &str) {
    eprintln!("  {text}");
}

fn command(text: &str) {
    eprintln!("  $ {text}");
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    let parent = path.parent().unwrap_or(directory);
    fs::create_dir_all(parent).and_then(|()| fs::write(&path, text)).map_err(|e| unwritable(&path, e))
}

fn unwritable(path: &Path, error: std::io::Error) -> Error {
    Error::new(Kind::Unavailable, format!("writing {}: {error}", path.display()))
}

/// Lines of made-up activity; one of the first file does not fit.
fn engagements(from: u64, to: u64) -> String {
    let mut text = String::new();
    for n in from..to {
        let org = ORGANISATIONS[(n * n % 13 % 5) as usize];
        let kind = KINDS[(n * 7 % 11 % 4) as usize];
        let (day, hour, minute) = (1 + n % 28, n % 24, n * 13 % 60);
        let duration = if n == 17 { "\"about a minute\"".to_owned() } else { (n * 31 % 600).to_string() };
        let _ = writeln!(
            text,
            "{{\"engagement_id\":\"e{n:05}\",\"org_id\":\"{org}\",\"type\":\"{kind}\",\"lead_id\":\"L{}\",\"user_id\":\"U{}\",\
             \"meta\":{{\"time\":\"2026-03-{day:02}T{hour:02}:{minute:02}:00Z\",\"client\":\"web\"}},\"duration_s\":{duration}}}",
            n % 97,
            n % 7,
        );
    }
    text
}

fn meetings() -> String {
    let mut text = "meeting_id,org_id,starts_at,title,lead_id\n".to_owned();
    for n in 0..MEETINGS {
        let org = ORGANISATIONS[(n % 5) as usize];
        let _ = writeln!(
            text,
            "m{n:04},{org},2026-03-{:02} {:02}:30:00,\"Review, part {}\",L{}",
            1 + n % 28,
            8 + n % 9,
            n % 4,
            n % 97
        );
    }
    text
}
