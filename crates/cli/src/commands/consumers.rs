//! `alluvium consumers`.

use std::sync::Arc;

use alluvium_core::Result;
use alluvium_engine::{ConsumerStatus, PositionStatus, Stop};
use serde_json::{Value, json};

use crate::args::{ConsumersCommand, Global, Output};
use crate::progress::Progress;
use crate::{context, memory, output};

/// Lists the named readers, or moves one.
pub async fn consumers(global: &Global, command: &ConsumersCommand) -> Result<u8> {
    let progress = Arc::new(Progress::new(global.output));
    // None of these makes a storage: without one there is no consumer to move.
    let engine = context::reading_engine(global, memory::budget(None)?, progress, Stop::default())?;
    match command {
        ConsumersCommand::List => {
            let consumers = engine.consumers().await?;
            match global.output {
                Output::Json => consumers.iter().try_for_each(|c| output::json(&object(c)))?,
                Output::Text if consumers.is_empty() => {
                    eprintln!("no consumers yet; one begins with: alluvium changes DATASET --consumer NAME");
                }
                Output::Text => table(&consumers)?,
            }
        }
        ConsumersCommand::Commit { name, token } => engine.commit_consumer(name, token).await?,
        ConsumersCommand::Reset { name } => engine.reset_consumer(name).await?,
        ConsumersCommand::Remove { name } => engine.remove_consumer(name).await?,
    }
    Ok(0)
}

/// A consumer as JSON.
pub fn object(consumer: &ConsumerStatus) -> Value {
    let position = |at: &PositionStatus| json!({ "next_version": at.next.0, "lag_versions": at.lag_versions, "kept": at.kept });
    json!({
        "kind": "consumer", "consumer": consumer.consumer, "dataset": consumer.dataset.0,
        "partitions": position(&consumer.partitions), "rows": position(&consumer.rows),
        "moved_at": consumer.moved_at(),
    })
}

/// Consumers as columns.
pub fn table(consumers: &[ConsumerStatus]) -> Result<()> {
    let mut lines = vec![["consumer", "dataset", "partitions behind", "rows behind", "last moved"].map(str::to_owned)];
    lines.extend(
        consumers.iter().map(|c| [c.consumer.clone(), c.dataset.0.clone(), behind(&c.partitions), behind(&c.rows), c.moved_at()]),
    );
    output::columns(&lines, &[2, 3])
}

fn behind(at: &PositionStatus) -> String {
    match at.lag_versions {
        _ if !at.kept => "must start over".to_owned(),
        Some(lag) if at.next.0 == 0 => format!("all {lag}"),
        Some(lag) => output::number(lag),
        None => "?".to_owned(),
    }
}
