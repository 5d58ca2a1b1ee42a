//! `alluvium request`.

use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use alluvium_core::{Error, Kind, Result};
use alluvium_engine::{ChangedBy, RequestState, RequestStatus, Stop};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{engine, run};
use crate::args::{Global, Output, RequestCommand, StateArg};
use crate::progress::Progress;
use crate::{context, memory, output};

/// Takes requests in, or tells what became of them.
pub async fn request(global: &Global, command: &RequestCommand) -> Result<u8> {
    match command {
        RequestCommand::Submit { file } => {
            let started = Instant::now();
            let lines = read(file)?;
            let (engine, progress) = engine(global, None)?;
            let source = if file == "-" { "stdin" } else { file.as_str() };
            let summary = engine.submit_requests(source, lines).await;
            progress.clear();
            let summary = summary?;
            if global.output == Output::Text && summary.outcome.skipped > 0 {
                eprintln!("{} of them were accepted before", output::number(summary.outcome.skipped));
            }
            run::print_summary(global.output, &summary, started)
        }
        RequestCommand::List { state } => {
            let engine = reading(global)?;
            for status in engine.list_requests(state.map(StateArg::state)).await? {
                match global.output {
                    Output::Json => output::json(&object(&status, false))?,
                    Output::Text => output::line(&format!(
                        "{:<9}  {}  {}  {}  accepted by batch {}",
                        status.state.name(),
                        status.request.id,
                        status.request.org,
                        status.op,
                        status.accepted_by
                    ))?,
                }
            }
            Ok(0)
        }
        RequestCommand::Show { id } => {
            let engine = reading(global)?;
            let status = engine.show_request(id).await?;
            match global.output {
                Output::Json => output::json(&object(&status, true))?,
                Output::Text => {
                    for line in text(&status) {
                        output::line(&line)?;
                    }
                }
            }
            Ok(0)
        }
    }
}

fn reading(global: &Global) -> Result<alluvium_engine::Engine> {
    let progress = Arc::new(Progress::new(global.output));
    context::reading_engine(global, memory::budget(None)?, progress, Stop::default())
}

fn read(file: &str) -> Result<Bytes> {
    let mut bytes = Vec::new();
    let read = if file == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|e| {
        let kind = if e.kind() == std::io::ErrorKind::NotFound { Kind::NotFound } else { Kind::Unavailable };
        Error::new(kind, format!("reading requests from {file}: {e}")).hint("name a file of JSON lines, or - for stdin")
    })?;
    Ok(Bytes::from(bytes))
}

fn object(status: &RequestStatus, whole: bool) -> Value {
    let RequestStatus {
        request,
        op,
        accepted_by,
        accepted_at_micros,
        state,
        attempts,
        rows_changed,
        batches,
        late,
        renamed,
        datasets,
    } = status;
    let mut object = json!({
        "request_id": request.id, "org_id": request.org, "op": op, "state": state.name(), "attempts": attempts,
        "rows_changed": rows_changed, "accepted_by": accepted_by.0,
        "batches": batches.iter().map(|by| json!({
            "dataset": by.dataset, "job": by.job, "batch_id": by.batch, "changed_at": time(by.changed_at_micros),
        })).collect::<Vec<_>>(),
    });
    if whole {
        object["late"] = (*late).into();
        // Of a request that is about several datasets only where all of them say so; `renamed` tells them apart.
        let of_all = renamed.values().next().filter(|_| renamed.len() == datasets.len());
        object["renamed_by"] = of_all.map(|(by, _)| by.as_str()).into();
        let of_one = |(name, (by, to)): (&String, &(String, String))| (name.clone(), json!({ "by": by, "to": to }));
        object["renamed"] = renamed.iter().map(of_one).collect();
        object["accepted_at"] = time(*accepted_at_micros).into();
        object["execution_time"] = time(request.execution_time).into();
        object["datasets"] = datasets.iter().map(|(name, state)| (name.clone(), Value::from(state.name()))).collect();
        object["request"] = serde_json::from_str(&request.to_json()).unwrap_or(Value::Null);
    }
    object
}

fn text(status: &RequestStatus) -> Vec<String> {
    let mut lines = vec![
        format!("request {}: {} in organisation {}", status.request.id, status.op, status.request.org),
        format!("  executed at {}", time(status.request.execution_time)),
        format!("  accepted at {} by batch {}", time(status.accepted_at_micros), status.accepted_by),
        format!("  {}, {} attempts{}", status.state.name(), status.attempts, if status.late { ", late" } else { "" }),
    ];
    for (dataset, state) in &status.datasets {
        let rows = status.rows_changed.get(dataset).copied().unwrap_or(0);
        lines.push(format!("  {dataset}: {}, {} rows changed", state.name(), output::number(rows)));
        if let Some((by, to)) = status.renamed.get(dataset) {
            lines.push(format!("  {dataset}: its id had become {to} before, by request {by}"));
        }
    }
    for ChangedBy { dataset, job, batch, changed_at_micros } in &status.batches {
        lines.push(format!("  changed at {} by {job} {dataset} batch {batch}", time(*changed_at_micros)));
    }
    lines
}

fn time(micros: i64) -> String {
    let mut text = String::new();
    alluvium_core::push_time(&mut text, i128::from(micros) * 1000, false);
    text
}

impl StateArg {
    fn state(self) -> RequestState {
        match self {
            Self::Pending => RequestState::Pending,
            Self::Waiting => RequestState::Waiting,
            Self::Applied => RequestState::Applied,
            Self::Unmatched => RequestState::Unmatched,
        }
    }
}
