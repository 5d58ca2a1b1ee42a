//! `alluvium query`.

use std::io::{self, ErrorKind, IsTerminal};
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use alluvium_engine::{RowFormat, RowWriter, Stop};

use crate::args::{Global, Output, QueryFormat};
use crate::progress::Progress;
use crate::{context, memory, output, signals};

/// Runs a statement and prints its rows as they come.
pub async fn query(global: &Global, sql: &str, format: Option<QueryFormat>, memory: Option<&str>) -> Result<u8> {
    let format = match (format, global.output) {
        (Some(QueryFormat::Table), _) | (None, Output::Text) => RowFormat::Table,
        (Some(QueryFormat::Json), _) | (None, Output::Json) => RowFormat::Json,
        (Some(QueryFormat::Csv), _) => RowFormat::Csv,
        (Some(QueryFormat::Parquet), _) => RowFormat::Parquet,
    };
    if format == RowFormat::Parquet && io::stdout().is_terminal() {
        return Err(Error::new(Kind::Invalid, "a Parquet file is no text for a terminal")
            .hint("send it to a file: alluvium query SQL --format parquet > rows.parquet"));
    }
    let stop = Stop::default();
    let progress = Arc::new(Progress::new(global.output));
    let bytes = memory::budget(memory)?;
    let engine = context::reading_engine(global, bytes, progress, stop.clone())?;
    signals::end_on_signal(&stop);
    let mut rows = engine.query(sql).await?;
    let mut count = 0;
    let mut writer = match RowWriter::new(format, rows.schema(), io::stdout(), bytes) {
        Ok(writer) => writer,
        Err(e) => return written(e),
    };
    while let Some(batch) = rows.next().await? {
        count += batch.num_rows() as u64;
        if let Err(e) = writer.write(&batch) {
            return written(e);
        }
    }
    if let Err(e) = writer.finish() {
        return written(e);
    }
    if format == RowFormat::Table {
        eprintln!("{} rows", output::number(count));
    }
    Ok(0)
}

/// A reader that has closed its end has what it wanted.
fn written(error: io::Error) -> Result<u8> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(0),
        ErrorKind::InvalidInput => {
            Err(Error::new(Kind::Invalid, format!("the rows cannot be written in this format: {error}"))
                .hint("rename one with AS"))
        }
        ErrorKind::Other => {
            Err(Error::new(Kind::Invalid, "the rows cannot be written in this format").hint("try --format json").source(error))
        }
        _ => Err(Error::new(Kind::Unavailable, "writing to stdout").source(error)),
    }
}
