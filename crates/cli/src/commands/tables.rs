//! `alluvium tables`.

use std::sync::Arc;

use alluvium_core::Result;
use alluvium_engine::{SizeBucket, Stop, TableReport};
use serde_json::{Value, json};

use crate::args::{Global, Output};
use crate::progress::Progress;
use crate::{context, memory, output};

/// Prints the tables that are there. The exit code is that of the first one that cannot be read.
pub async fn tables(global: &Global, name: Option<&str>) -> Result<u8> {
    let progress = Arc::new(Progress::new(global.output));
    let engine = context::reading_engine(global, memory::budget(None)?, progress, Stop::default())?;
    let report = engine.tables(name).await?;
    match global.output {
        Output::Json => {
            for table in &report.tables {
                output::json(&object(table))?;
            }
        }
        Output::Text if report.tables.is_empty() && report.failed.is_empty() => {
            eprintln!("no tables yet; they are made by: alluvium run ingest");
        }
        Output::Text => print(&report.tables)?,
    }
    for error in &report.failed {
        output::print_error(error);
    }
    Ok(report.failed.first().map_or(0, |error| error.kind().exit_code()))
}

fn object(table: &TableReport) -> Value {
    json!({
        "table": table.name.as_str(), "path": table.path, "version": table.version, "rows": table.rows,
        "files": table.files, "bytes": table.bytes,
        "histogram": table.histogram.iter().map(|b| json!({ "below_bytes": b.below_bytes, "files": b.files })).collect::<Vec<_>>(),
    })
}

fn print(tables: &[TableReport]) -> Result<()> {
    let mut lines = vec![["table", "rows", "files", "bytes", "version", "file sizes", "path"].map(str::to_owned)];
    lines.extend(tables.iter().map(|table| {
        [
            table.name.to_string(),
            table.rows.map_or_else(|| "?".to_owned(), output::number),
            output::number(table.files),
            output::bytes(table.bytes),
            table.version.to_string(),
            sizes(&table.histogram),
            table.path.clone(),
        ]
    }));
    output::columns(&lines, &[1, 2, 3, 4])
}

/// The classes that have files, as in `3 <1MiB, 1 <64MiB`.
fn sizes(histogram: &[SizeBucket]) -> String {
    let mut below = 0;
    let mut texts = Vec::new();
    for bucket in histogram {
        let class = match bucket.below_bytes {
            Some(bytes) => format!("<{}MiB", bytes >> 20),
            None => format!(">={}MiB", below >> 20),
        };
        if bucket.files > 0 {
            texts.push(format!("{} {class}", bucket.files));
        }
        below = bucket.below_bytes.unwrap_or(below);
    }
    texts.join(", ")
}
