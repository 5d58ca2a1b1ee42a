//! `alluvium dead-letters`.

use std::sync::Arc;
use std::time::Instant;

use alluvium_core::Result;
use alluvium_engine::Stop;

use super::{engine, run};
use crate::args::{DeadLettersCommand, Global, Output};
use crate::progress::Progress;
use crate::{context, memory, output};

/// Lists refused records, or takes them in again.
pub async fn dead_letters(global: &Global, command: &DeadLettersCommand) -> Result<u8> {
    match command {
        DeadLettersCommand::List { dataset, limit } => {
            let progress = Arc::new(Progress::new(global.output));
            let engine = context::reading_engine(global, memory::budget(None)?, progress, Stop::default())?;
            let datasets = engine.sources(dataset.as_slice())?;
            let listed = engine.dead_letters(&datasets, *limit).await?;
            for letter in &listed.letters {
                match global.output {
                    Output::Json => output::json(&letter.json())?,
                    Output::Text => output::line(&letter.text())?,
                }
            }
            if listed.more {
                eprintln!("there are more; see them with --limit");
            }
            Ok(0)
        }
        DeadLettersCommand::Replay { datasets, memory } => {
            let started = Instant::now();
            let (engine, progress) = engine(global, memory.as_deref())?;
            let datasets = engine.sources(datasets)?;
            let summary = engine.replay_dead_letters(&datasets).await;
            progress.clear();
            run::print_summary(global.output, &summary?, started)
        }
    }
}
