//! `alluvium status`.

use std::sync::Arc;

use alluvium_core::{Dataset, Error, Job, Result, Shard};
use alluvium_engine::{
    ChainStatus, DatasetStatus, FilePosition, LastBatch, OpenRequests, PartitionPosition, SourcePosition, Status, Stop,
    TopicPosition,
};
use serde_json::{Value, json};

use super::consumers;
use crate::args::{Global, Output};
use crate::progress::Progress;
use crate::{context, memory, output};

/// Prints how far jobs have come. The exit code is that of the first thing that cannot be told.
pub async fn status(global: &Global) -> Result<u8> {
    let progress = Arc::new(Progress::new(global.output));
    let engine = context::reading_engine(global, memory::budget(None)?, progress, Stop::default())?;
    let status = engine.status().await?;
    match global.output {
        Output::Json => objects(&status)?,
        Output::Text => text(&status)?,
    }
    let mut failed: Vec<&Error> = Vec::new();
    for dataset in &status.datasets {
        let errors = [
            dataset.source.as_ref().err(),
            dataset.dead_letters.as_ref().err(),
            dataset.requests.as_ref().err(),
            dataset.chains.as_ref().err(),
        ];
        failed.extend(errors.into_iter().flatten());
        if let Ok(Some(SourcePosition::Kafka(topic))) = &dataset.source {
            failed.extend(&topic.unknown);
        }
    }
    failed.extend(status.consumers.as_ref().err());
    failed.dedup_by_key(|e| e.message().to_owned());
    for error in &failed {
        output::print_error(error);
    }
    Ok(failed.first().map_or(0, |e| e.kind().exit_code()))
}

fn objects(status: &Status) -> Result<()> {
    output::json(&json!({
        "kind": "namespace", "namespace": status.namespace, "storage": status.storage, "used": status.used,
    }))?;
    for dataset in &status.datasets {
        output::json(&dataset_object(dataset))?;
        for chain in dataset.chains.iter().flatten() {
            output::json(&chain_object(&dataset.name.0, chain))?;
        }
    }
    status.consumers.iter().flatten().try_for_each(|consumer| output::json(&consumers::object(consumer)))
}

fn dataset_object(dataset: &DatasetStatus) -> Value {
    let source = match &dataset.source {
        Ok(Some(SourcePosition::Kafka(topic))) => topic_object(topic),
        Ok(Some(SourcePosition::Files(at))) => json!({
            "last_file": at.last_file, "partly_taken": partial(at), "waiting_files": at.waiting_files,
            "waiting_bytes": at.waiting_bytes, "changed_files": at.changed_files, "unusable_files": at.unusable_files,
            "missing": at.missing,
        }),
        Ok(None) | Err(_) => Value::Null,
    };
    let requests = dataset.requests.as_ref().ok();
    json!({
        "kind": "dataset", "dataset": dataset.name.0, "source": source,
        "dead_letters": dataset.dead_letters.as_ref().ok(),
        "pending_requests": requests.map(|r| r.pending), "retries": requests.map(|r| r.waiting),
    })
}

fn topic_object(topic: &TopicPosition) -> Value {
    let partition = |p: &PartitionPosition| {
        json!({
            "partition": p.partition, "position": p.next.map(|n| n.0), "low": p.held.map(|(low, _)| low.0),
            "high": p.held.map(|(_, high)| high.0), "lag": p.lag(),
        })
    };
    let losses = topic.losses.iter().map(|(shard, loss)| {
        json!({
            "shard": shard.0, "partition": loss.partition, "from": loss.from.0, "to": loss.to.map(|to| to.0), "how": loss.how,
        })
    });
    json!({
        "topic": topic.topic, "shards": topic.shards, "lag": topic.lag(),
        "partitions": topic.partitions.iter().map(partition).collect::<Vec<_>>(), "losses": losses.collect::<Vec<_>>(),
    })
}

fn partial(at: &FilePosition) -> Value {
    match &at.partial {
        Some(range) => json!({ "file": range.path, "records": range.to.map(|to| to.record) }),
        None => Value::Null,
    }
}

fn chain_object(dataset: &str, chain: &ChainStatus) -> Value {
    let last = chain.last.as_ref();
    json!({
        "kind": "chain", "job": chain.job.name(), "dataset": dataset, "shard": shard(chain.shard),
        "last_batch_id": last.map_or(0, |l| l.batch.0),
        "last_batch_at": last.map(LastBatch::committed_at),
        "table_version": last.map(|l| l.table_version),
        "inserted": last.map(|l| l.outcome.inserted),
        "updated": last.map(|l| l.outcome.work.updated),
        "deleted": last.map(|l| l.outcome.work.deleted),
        "dead_letters": last.map(|l| l.outcome.dead_letters),
        "unfinished_batch_id": chain.unfinished.map(|k| k.batch.0),
        "unfinished_attempt": chain.unfinished.map(|k| k.attempt.0),
    })
}

fn shard(shard: Shard) -> Value {
    if shard == Shard::REPLAY { json!("replay") } else { json!(shard.0) }
}

fn text(status: &Status) -> Result<()> {
    let unused = if status.used { "" } else { ", nothing in it yet" };
    output::line(&format!("namespace {} in {}{unused}", status.namespace, status.storage))?;
    let mut lines =
        vec![["dataset", "job", "last batch", "at", "rows", "unfinished", "waiting", "dead letters"].map(str::to_owned)];
    for dataset in &status.datasets {
        let waiting = match &dataset.source {
            Ok(Some(SourcePosition::Kafka(topic))) => match topic.lag() {
                Some(0) => "nothing".to_owned(),
                Some(lag) => format!("{} offsets", output::number(lag)),
                None => "?".to_owned(),
            },
            Ok(Some(SourcePosition::Files(at))) if at.missing => "no directory".to_owned(),
            Ok(Some(SourcePosition::Files(at))) if at.waiting_files == 0 => "nothing".to_owned(),
            Ok(Some(SourcePosition::Files(at))) => {
                format!("{} files, {}", output::number(at.waiting_files), output::bytes(at.waiting_bytes))
            }
            Ok(None) => String::new(),
            Err(_) => "?".to_owned(),
        };
        let letters = dataset.dead_letters.as_ref().map_or_else(|_| "?".to_owned(), |n| output::number(*n));
        let chains: &[ChainStatus] = dataset.chains.as_deref().unwrap_or_default();
        let mut begun = chains
            .iter()
            .map(|chain| chain_cells(chain, matches!(dataset.source, Ok(Some(SourcePosition::Kafka(_))))))
            .collect::<Vec<_>>();
        if begun.is_empty() {
            let job = if dataset.name.0 == Dataset::REQUESTS { Job::Mutate } else { Job::Ingest };
            begun.push([job.name(), "none", "", "", ""].map(str::to_owned));
        }
        for (at, [job, batch, time, rows, unfinished]) in begun.into_iter().enumerate() {
            let own = |text: &str| if at == 0 { text.to_owned() } else { String::new() };
            lines.push([own(&dataset.name.0), job, batch, time, rows, unfinished, own(&waiting), own(&letters)]);
        }
    }
    output::columns(&lines, &[2, 4, 7])?;
    for dataset in &status.datasets {
        if let Ok(OpenRequests { pending, waiting }) = dataset.requests
            && pending + waiting > 0
        {
            let (pending, waiting) = (output::number(pending), output::number(waiting));
            output::line(&format!("dataset {}: {pending} requests to apply, {waiting} wait for a row", dataset.name))?;
        }
        let Ok(Some(SourcePosition::Kafka(topic))) = &dataset.source else { continue };
        for (_, loss) in &topic.losses {
            output::line(&format!("dataset {}: accepted as lost: {loss}", dataset.name))?;
        }
    }
    match status.consumers.as_deref() {
        Ok([]) | Err(_) => Ok(()),
        Ok(some) => {
            output::line("")?;
            consumers::table(some)
        }
    }
}

/// `sharded`: the source is cut into several shards.
fn chain_cells(chain: &ChainStatus, sharded: bool) -> [String; 5] {
    let job = match chain.shard {
        Shard::REPLAY => "replay".to_owned(),
        Shard(shard) if sharded && chain.job == Job::Ingest => format!("{} shard {shard}", chain.job.name()),
        _ => chain.job.name().to_owned(),
    };
    let unfinished = chain.unfinished.map_or_else(String::new, |key| format!("batch {key}"));
    match &chain.last {
        Some(last) => {
            let rows = output::number(last.outcome.inserted + last.outcome.work.updated + last.outcome.work.deleted);
            [job, last.batch.to_string(), last.committed_at(), rows, unfinished]
        }
        None => [job, "none".to_owned(), String::new(), String::new(), unfinished],
    }
}
