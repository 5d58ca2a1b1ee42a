//! `alluvium changes`.

use std::fs;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_core::{Error, Kind, ReadKind, Result};
use alluvium_engine::{Changes, ChangesReader, ChangesRequest, RowFormat, RowWriter, Stop};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use futures::TryStreamExt;
use serde_json::json;

use crate::args::{ChangesArgs, ChangesFormat, Global};
use crate::progress::Progress;
use crate::{context, memory, output, signals};

/// Where a schema of Parquet and Arrow says what the last line says.
const NEXT: &str = "alluvium.next";
/// Pieces of batches made into lines at the same time, at most.
const PIECES_AT_ONCE: usize = 4;
/// So much memory is worth a piece that is made into lines at the same time.
const BYTES_A_PIECE: u64 = 128 << 20;
/// The most rows made into lines in one piece: their text is several times as large as they are.
const ROWS_A_PIECE: usize = 1024;
/// Bytes of lines that wait to be written at once.
const WRITE_BYTES: usize = 256 << 10;

/// Symbolic links followed from one to the next.
const MAX_LINKS: usize = 40;

/// How a round of reading came out.
enum Round {
    /// All of it was written.
    Whole,
    /// Whoever reads what is written has enough.
    Closed,
}

/// Prints what changed since a reader last looked.
pub async fn changes(global: &Global, args: &ChangesArgs) -> Result<u8> {
    check(args)?;
    let stop = Stop::default();
    let progress = Arc::new(Progress::new(global.output));
    let bytes = memory::budget(args.memory.as_deref())?;
    // A named reader is remembered on storage.
    let open = if args.consumer.is_some() { context::engine } else { context::reading_engine };
    let engine = open(global, bytes, progress, stop.clone())?;
    if args.follow {
        signals::end_cleanly_on_signal(&stop);
    } else {
        signals::end_on_signal(&stop);
    }
    let datasets = engine.datasets(std::slice::from_ref(&args.dataset))?;
    let dataset = datasets.first().ok_or_else(|| Error::new(Kind::Internal, "no dataset of one named"))?;
    let request = ChangesRequest {
        kind: if args.rows { ReadKind::Rows } else { ReadKind::Partitions },
        consumer: args.consumer.as_deref(),
        since: args.since.as_deref(),
        snapshot: args.snapshot,
    };
    let mut reader = engine.changes(dataset, &request).await?;
    if args.follow {
        return follow(&mut reader, args.commit, bytes, &stop).await;
    }
    let mut changes = reader.read().await?;
    let written = match &args.to {
        Some(file) => write_file(&mut changes, args.format, file, bytes).await?,
        None => write_stdout(&mut changes, args.format, bytes).await?,
    };
    if args.commit && matches!(written, Round::Whole) {
        reader.commit(&changes).await?;
    }
    // The file tells the token too, where its format can, so nobody need read this line for the consumer to move.
    if args.to.is_some() && matches!(written, Round::Whole) {
        output::line(&last_line(&changes))?;
    }
    Ok(0)
}

/// How many pieces may be made into lines at the same time.
fn at_once(memory_bytes: u64) -> usize {
    usize::try_from(memory_bytes / BYTES_A_PIECE).unwrap_or(PIECES_AT_ONCE).clamp(1, PIECES_AT_ONCE)
}

fn check(args: &ChangesArgs) -> Result<()> {
    let refused = |what: &str, hint: &str| Err(Error::new(Kind::Invalid, what).hint(hint));
    if args.follow && (args.to.is_some() || args.format != ChangesFormat::Json) {
        return refused("--follow never ends, and a file or an Arrow stream has an end", "follow in lines of JSON on stdout");
    }
    if args.format == ChangesFormat::Parquet && args.to.is_none() && io::stdout().is_terminal() {
        return refused("a Parquet file is no text for a terminal", "name a file: --to FILE");
    }
    Ok(())
}

/// Goes on until somebody asks to stop: each round's rows, then its token.
async fn follow(reader: &mut ChangesReader<'_>, commit: bool, memory_bytes: u64, stop: &Stop) -> Result<u8> {
    loop {
        let mut changes = reader.read().await?;
        match write_stdout(&mut changes, ChangesFormat::Json, memory_bytes).await {
            Ok(Round::Whole) => {}
            Ok(Round::Closed) => return Ok(0),
            // What was printed of this round has no token behind it: the next reader is given it again.
            Err(_) if stop.asked() => return Ok(0),
            Err(e) => return Err(e),
        }
        if commit {
            reader.commit(&changes).await?;
        }
        reader.advance(&changes);
        if !reader.wait().await? {
            return Ok(0);
        }
    }
}

async fn write_stdout(changes: &mut Changes, format: ChangesFormat, memory_bytes: u64) -> Result<Round> {
    let written = match format {
        ChangesFormat::Json => write_lines(changes, io::stdout(), at_once(memory_bytes)).await?,
        ChangesFormat::Parquet => write_rows(changes, RowFormat::Parquet, io::stdout(), memory_bytes).await?,
        ChangesFormat::Arrow => write_rows(changes, RowFormat::Arrow, io::stdout(), memory_bytes).await?,
    };
    if matches!(written, Round::Whole) && format == ChangesFormat::Json {
        output::line(&last_line(changes))?;
    }
    Ok(written)
}

fn last_line(changes: &Changes) -> String {
    json!({ "next": changes.token() }).to_string()
}

/// Writes a file that gets its name whole, or not at all; what is no file, as a pipe, is written to as it is.
async fn write_file(changes: &mut Changes, format: ChangesFormat, file: &Path, memory_bytes: u64) -> Result<Round> {
    let failed = |e: io::Error| Error::new(Kind::Unavailable, format!("writing {}: {e}", file.display()));
    let file = linked(file).map_err(failed)?;
    let is_file = fs::metadata(&file).map_or(true, |there| there.is_file());
    let unfinished = is_file.then(|| Unfinished::beside(&file));
    let to = match &unfinished {
        Some(unfinished) => fs::File::create(&unfinished.path),
        None => fs::OpenOptions::new().write(true).open(&file),
    };
    let to = to.map_err(failed)?;
    let handle = to.try_clone().map_err(failed)?;
    let written = match format {
        ChangesFormat::Json => {
            let mut lines = BufWriter::new(to);
            let written = write_lines(changes, &mut lines, at_once(memory_bytes)).await?;
            if matches!(written, Round::Whole) {
                writeln!(lines, "{}", last_line(changes)).and_then(|()| lines.flush()).map_err(failed)?;
            }
            written
        }
        ChangesFormat::Parquet => write_rows(changes, RowFormat::Parquet, to, memory_bytes).await?,
        ChangesFormat::Arrow => write_rows(changes, RowFormat::Arrow, BufWriter::new(to), memory_bytes).await?,
    };
    if matches!(written, Round::Closed) {
        return Ok(written);
    }
    if let Some(unfinished) = unfinished {
        handle.sync_all().map_err(failed)?;
        unfinished.rename(&file).map_err(failed)?;
    }
    Ok(written)
}

/// Where a path leads that may be a symbolic link, also to what is not there yet.
fn linked(file: &Path) -> io::Result<PathBuf> {
    let mut at = file.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&at) {
            // One that is absolute takes the place of all.
            Ok(to) => at = at.parent().unwrap_or(Path::new("")).join(to),
            // It is none, or nothing is there.
            Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => return Ok(at),
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// A file that goes if it is not renamed.
struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    fn beside(file: &Path) -> Self {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        Self { path: file.with_file_name(format!(".{name}.{}.tmp", std::process::id())) }
    }

    /// The name is durable too.
    fn rename(&self, file: &Path) -> io::Result<()> {
        fs::rename(&self.path, file)?;
        let directory = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(directory)?.sync_all()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Renamed, it is not there any more.
        let _ = fs::remove_file(&self.path);
    }
}

/// Lines of JSON; several pieces of batches are made into lines at the same time.
async fn write_lines(changes: &mut Changes, mut to: impl Write, at_once: usize) -> Result<Round> {
    let rows =
        futures::stream::try_unfold(changes, async |changes| Ok::<_, Error>(changes.next().await?.map(|batch| (batch, changes))));
    let pieces = rows.map_ok(|batch| futures::stream::iter(pieces(batch).map(Ok))).try_flatten();
    let made = pieces.map_ok(|piece| async move {
        tokio::task::spawn_blocking(move || lines(&piece))
            .await
            .map_err(|e| Error::new(Kind::Internal, "making lines of rows").source(e))?
    });
    let mut made = std::pin::pin!(made.try_buffered(at_once));
    let mut waiting: Vec<u8> = Vec::with_capacity(WRITE_BYTES);
    while let Some(text) = made.try_next().await? {
        if waiting.len() + text.len() <= WRITE_BYTES {
            waiting.extend_from_slice(&text);
            continue;
        }
        if let Err(e) = to.write_all(&waiting).and_then(|()| to.write_all(&text)) {
            return written(e);
        }
        waiting.clear();
    }
    match to.write_all(&waiting).and_then(|()| to.flush()) {
        Ok(()) => Ok(Round::Whole),
        Err(e) => written(e),
    }
}

/// A batch in pieces, without a copy.
fn pieces(batch: RecordBatch) -> impl Iterator<Item = RecordBatch> {
    let rows = batch.num_rows();
    (0..rows).step_by(ROWS_A_PIECE).map(move |from| batch.slice(from, ROWS_A_PIECE.min(rows - from)))
}

fn lines(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let failed = |e: io::Error| Error::new(Kind::Internal, "making lines of rows").source(e);
    let mut writer = RowWriter::new(RowFormat::Json, batch.schema(), &mut text, 0).map_err(failed)?;
    writer.write(batch).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(text)
}

/// A format with an end, which also carries the token.
async fn write_rows(changes: &mut Changes, format: RowFormat, to: impl Write + Send, memory_bytes: u64) -> Result<Round> {
    let mut writer = match RowWriter::new(format, with_token(changes), to, memory_bytes) {
        Ok(writer) => writer,
        Err(e) => return written(e),
    };
    while let Some(batch) = changes.next().await? {
        if let Err(e) = writer.write(&batch) {
            return written(e);
        }
    }
    match writer.finish() {
        Ok(()) => Ok(Round::Whole),
        Err(e) => written(e),
    }
}

fn with_token(changes: &Changes) -> SchemaRef {
    let schema = changes.schema();
    let mut metadata = schema.metadata().clone();
    metadata.insert(NEXT.to_owned(), changes.token());
    Arc::new(Schema::new(schema.fields().clone()).with_metadata(metadata))
}

/// A reader that has closed its end has what it wanted; the consumer stays where it is.
fn written(error: io::Error) -> Result<Round> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(Round::Closed),
        ErrorKind::Other | ErrorKind::InvalidInput => {
            Err(Error::new(Kind::Invalid, "the rows cannot be written in this format").hint("try --format json").source(error))
        }
        _ => Err(Error::new(Kind::Unavailable, "writing the rows").source(error)),
    }
}
