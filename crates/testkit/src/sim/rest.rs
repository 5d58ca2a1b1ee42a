//! When a world has come to rest: what is left is taken in without faults, and then everything must hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use alluvium_core::{Error, Kind, LossKind};
use alluvium_engine::{RunSummary, SourcePosition, Stop};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::actors;
use super::anew::{self, Remade};
use super::cluster::TOPIC;
use super::input::{self, ByPlace, Expected};
use super::plan::Role;
use super::run::{Stage, ingest};
use super::topic::{Loss, Standing, TopicPlan};
use crate::check::{DatasetCheck, Landed};
use crate::table::{Add, TableReader};

/// When all that was late has landed.
const AFTERMATH: Duration = Duration::from_secs(100);
/// Runs of one kind that may follow on each other before nothing must be left.
const MAX_ROUNDS: u32 = 5;

/// What settling came to.
struct Settled {
    batches: u64,
    /// The topic has lost something that nobody accepted.
    refused: bool,
}

impl Stage {
    /// After all processes have ended: what is left is taken in without faults, then everything must hold, and go on holding
    /// when what was late has landed.
    pub(super) async fn settled(&self) -> Result<(), String> {
        self.deletion_ends().await?;
        let replays = self.plan.replays(&self.without);
        let first = self.settle(replays, false).await?;
        if self.plan.topic.as_ref().is_some_and(TopicPlan::loses) {
            // A shard that is refused leaves the others' batches to other processes.
            if actors::oldest_unfinished(&self.world.inner()).is_none() {
                self.check(replays, first.refused).await?;
            }
            if self.settle(replays, true).await?.refused {
                return Err("settling: a loss is refused that was accepted".to_owned());
            }
        }
        self.readers_catch_up().await?;
        self.check(replays, false).await?;
        self.world.wait(None, AFTERMATH, 0).await;
        self.all_expires();
        let last = self.settle(replays, false).await?;
        if last.batches > 0 || last.refused {
            return Err("something was left to do after everything was done".to_owned());
        }
        self.check(replays, false).await
    }

    /// A deletion that was interrupted is finished.
    async fn deletion_ends(&self) -> Result<(), String> {
        let mark = Path::from("default/_alluvium/deleting.json");
        if self.world.inner().bucket.get(&mark).is_none() {
            return Ok(());
        }
        let process = self.plan.processes.len();
        let (life, _never_dies) = self.world.begin_life(process, false);
        let (store, machine) = self.store(process, life, false);
        let engine = self.engine(store, machine, Stop::default(), false);
        match engine.delete_namespace().await {
            Ok(_) => {}
            // One that began before there was a namespace finds somebody at work in it, and takes its mark back.
            Err(e) if e.kind() == Kind::Conflict && self.world.inner().bucket.get(&mark).is_none() => {}
            Err(e) => return Err(format!("finishing a deletion: {}", e.chain_text())),
        }
        self.world.end_life(process);
        Ok(())
    }

    /// What was taken in may expire; offsets without a record behind it are not known to have been passed.
    fn all_expires(&self) {
        let Some(topic) = &self.plan.topic else { return };
        let files = if topic.anew.is_some() { &self.plan.anew } else { &self.plan.files };
        for (partition, _) in self.files() {
            let file = &files[partition];
            let end = file.records.len().checked_sub(1).map_or(0, |last| file.offset(last) + 1);
            let low = self.cluster.bounds(TOPIC, partition).map_or(0, |(low, _)| low);
            self.cluster.expire(TOPIC, partition, low.max(i64::try_from(end).unwrap_or(0)));
        }
    }

    /// Takes in what is left.
    async fn settle(&self, replays: bool, accept_loss: bool) -> Result<Settled, String> {
        let mut settled = Settled { batches: 0, refused: false };
        let mut roles = if replays { vec![Role::UntilIdle, Role::Replay] } else { vec![Role::UntilIdle] };
        if let Some(requests) = &self.plan.requests {
            if !requests.in_files {
                self.all_are_submitted().await?;
            }
            roles.push(Role::Mutate);
        }
        for role in roles {
            for round in 0.. {
                let summary = self.runs_calmly(role, accept_loss).await?;
                if let Some((_, error)) = summary.failed.first() {
                    if accept_loss || role == Role::Replay || !self.is_refusal(error)? {
                        return Err(format!("settling: {}", error.chain_text()));
                    }
                    settled.refused = true;
                    break;
                }
                settled.batches += summary.batches;
                if summary.batches == 0 {
                    break;
                }
                if round > MAX_ROUNDS {
                    return Err(format!("settling: {role:?} never comes to an end"));
                }
            }
        }
        Ok(settled)
    }

    /// What nobody has submitted is.
    async fn all_are_submitted(&self) -> Result<(), String> {
        let process = self.plan.processes.len();
        let (life, _never_dies) = self.world.begin_life(process, false);
        let (store, machine) = self.store(process, life, false);
        let engine = self.engine(store, machine.clone(), Stop::default(), false);
        self.submits(&engine, machine.as_ref()).await.map_err(|e| format!("settling: {}", e.chain_text()))?;
        self.world.end_life(process);
        Ok(())
    }

    /// A process without faults.
    async fn runs_calmly(&self, role: Role, accept_loss: bool) -> Result<RunSummary, String> {
        let process = self.plan.processes.len();
        let (life, _never_dies) = self.world.begin_life(process, false);
        let (store, machine) = self.store(process, life, false);
        let engine = self.engine(store, machine, Stop::default(), role == Role::Replay);
        let summary = ingest(&engine, role, accept_loss).await.map_err(|e| format!("settling: {}", e.chain_text()))?;
        self.world.end_life(process);
        Ok(summary)
    }

    /// Every name under which somebody read comes to the end.
    async fn readers_catch_up(&self) -> Result<(), String> {
        for reading in self.plan.readings() {
            let process = self.plan.processes.len();
            let (life, _never_dies) = self.world.begin_life(process, false);
            let (store, machine) = self.store(process, life, false);
            let engine = self.engine(store, machine, Stop::default(), false);
            let read = self.deliveries.catches_up(&engine, reading, self.plan.cleans_up()).await;
            read.map_err(|e| format!("{reading:?} at the end: {}", e.chain_text()))?;
            self.world.end_life(process);
        }
        Ok(())
    }

    /// What was given to readers, in all versions of the tables they read.
    async fn check_readers(&self, whole: &Arc<dyn ObjectStore>) -> Result<(), String> {
        for reading in self.plan.readings() {
            let table = TableReader::new(whole, &format!("default/{}", reading.table()));
            let mut versions = Vec::new();
            for entry in table.log().await? {
                let mut told = Vec::new();
                for add in &entry.adds {
                    let rows = table.rows_of(add).await?;
                    told.extend(rows.iter().map(|row| reading.told(|name| row.get(name).cloned().unwrap_or_default())));
                }
                versions.push(told);
            }
            self.deliveries.check(reading, &self.world.inner().bucket, &versions)?;
        }
        Ok(())
    }

    fn is_refusal(&self, error: &Error) -> Result<bool, String> {
        let Some(topic) = self.plan.topic.as_ref().filter(|t| t.loses()) else { return Ok(false) };
        self.is_of_losses(topic, error).map_err(|e| format!("settling: {e}"))
    }

    /// The losses that status shows.
    async fn losses(&self) -> Result<Vec<(LossKind, Loss)>, String> {
        let process = self.plan.processes.len();
        let (life, _never_dies) = self.world.begin_life(process, false);
        let (store, machine) = self.store(process, life, false);
        let engine = self.engine(store, machine, Stop::default(), false);
        let status = engine.status().await.map_err(|e| format!("status: {}", e.chain_text()))?;
        self.world.end_life(process);
        let mut losses = Vec::new();
        for dataset in status.datasets {
            if let Some(SourcePosition::Kafka(position)) = dataset.source.map_err(|e| format!("status: {}", e.chain_text()))? {
                losses.extend(position.losses.iter().map(|(_, loss)| {
                    (loss.how, Loss { partition: loss.partition.into(), from: loss.from.0, to: loss.to.map(|o| o.0) })
                }));
            }
        }
        Ok(losses)
    }

    /// What must have been taken. `refused`: a process that accepts no loss says that there is one.
    async fn expected(&self, landed: &Landed, refused: bool) -> Result<Vec<Expected>, String> {
        let Some(topic) = self.plan.topic.as_ref().filter(|t| t.loses()) else {
            return Ok(self.files().map(|(_, file)| Expected::all(file)).collect());
        };
        let losses = self.losses().await?;
        let accepts = |i: usize| self.plan.processes[i].accepts_loss && !self.without.processes.contains(&i);
        if refused && !losses.is_empty() && !(0..self.plan.processes.len()).any(accepts) {
            return Err(format!("a loss counts as accepted that nobody accepted: {losses:?}"));
        }
        let standing = Standing::of(&self.world.inner().bucket);
        if topic.anew.is_some() {
            if let Some(other) = losses.iter().find(|(how, _)| *how != LossKind::MadeAnew) {
                return Err(format!("no record has expired, and yet {other:?}"));
            }
            let remade = |(partition, before)| Remade {
                partition,
                before,
                after: &self.plan.anew[partition],
                high: self.cluster.bounds(TOPIC, partition).map_or(0, |(_, high)| high),
                losses: losses.iter().map(|(_, l)| *l).filter(|l| usize::try_from(l.partition) == Ok(partition)).collect(),
            };
            let all: Vec<Remade<'_>> = self.files().map(remade).collect();
            return anew::expected(&all, &ByPlace::of(landed), &standing, refused);
        }
        let real = |loss: &Loss| self.plan.weather.lists_late() || standing.had(loss, &self.expired());
        if let Some(other) = losses.iter().find(|(how, loss)| *how != LossKind::Expired || !real(loss)) {
            return Err(format!("a loss counts as accepted that was none: {other:?}"));
        }
        let begun = |partition: usize| standing.first(partition).is_none_or(|s| s.could_begin(partition, &self.expired()));
        if let Some((partition, _)) = self.files().find(|(partition, _)| !begun(*partition)) {
            return Err(format!(
                "partition {partition} was read from {:?} on, which was not its beginning",
                standing.first(partition)
            ));
        }
        let is_lost = |partition, offset| losses.iter().any(|(_, loss)| loss.holds(partition, offset));
        let all = self.files().map(|(partition, file)| {
            // What nobody accepted as lost yet is not taken, nor anything behind it.
            let stands = standing.now(partition).map_or(0, |s| s.next);
            let waits = |offset: usize| refused && i64::try_from(offset).is_ok_and(|offset| offset >= stands);
            // What had gone before reading began was never promised.
            let begins = standing.first(partition).map_or(0, |s| s.next);
            let never = |offset: usize| i64::try_from(offset).is_ok_and(|offset| offset < begins);
            let is_taken = |offset: usize| !is_lost(partition, offset) && !waits(offset) && !never(offset);
            let taken = (0..file.records.len()).map(|i| is_taken(file.offset(i)));
            Expected { file: file.clone(), taken: taken.collect() }
        });
        Ok(all.collect())
    }

    async fn check(&self, replays: bool, refused: bool) -> Result<(), String> {
        let whole = Arc::new(InMemory::new());
        let objects: Vec<_> = {
            let inner = self.world.inner();
            // Files that a vacuum took away are part of versions that are past.
            let ever = inner.bucket.ever("default/edit").filter(|(path, _)| path.ends_with(".parquet"));
            let ever = ever.map(|(path, o)| (Path::from(path), o.bytes.clone()));
            let there = inner.bucket.list(None, inner.now).map(|(path, o)| (path.clone(), o.bytes.clone()));
            // What a purge cut off from a log was committed all the same; what came later under such a name was not.
            let is_entry = |path: &str| path.contains("/_delta_log/") && path.ends_with(".json");
            let cut = inner.bucket.ever("default").filter(|(path, _)| is_entry(path) && !self.plan.deletes());
            let cut = cut.map(|(path, o)| (Path::from(path), o.bytes.clone()));
            ever.chain(there).chain(cut).chain(inner.cleaned.iter().map(|(path, bytes)| (path.clone(), bytes.clone()))).collect()
        };
        for (path, bytes) in objects {
            whole.put(&path, bytes.into()).await.map_err(|e| e.to_string())?;
        }
        let whole: Arc<dyn ObjectStore> = whole;
        let mut dataset = DatasetCheck::new(&whole, "default", "edit", "org");
        if self.plan.topic.as_ref().is_some_and(|t| t.anew.is_some()) {
            dataset = dataset.of_topic_made_anew("lead");
        }
        match &self.plan.requests {
            Some(requests) => self.check_with_requests(requests, &whole, &dataset, replays).await?,
            None => {
                let landed = dataset.landed().await?;
                input::check(&self.expected(&landed, refused).await?, &landed, replays)?;
            }
        }
        self.check_readers(&whole).await?;
        for table in actors::tables(&self.plan) {
            let log = TableReader::new(&whole, &format!("default/{table}")).log().await?;
            let there = |add: &Add| self.world.inner().bucket.get(&Path::from(format!("default/{table}/{}", add.path))).is_some();
            if let Some(missing) = TableReader::live(&log)?.iter().find(|add| !there(add)) {
                return Err(format!("no_lost_row: {} is part of {table} and not in the store", missing.path));
            }
            let mut newest = BTreeMap::new();
            let of_chain = |app: &str| app.split('/').count() == 5;
            let txns = log.iter().enumerate().flat_map(|(v, e)| e.txns.iter().map(move |t| (v, t)));
            for (version, (app, number)) in txns.filter(|(_, (app, _))| of_chain(app)) {
                if let Some(before) = newest.insert(app.clone(), *number).filter(|before| before >= number) {
                    return Err(format!("fenced: version {version} of {table} carries {number} of {app}, after {before}"));
                }
            }
        }
        Ok(())
    }
}
