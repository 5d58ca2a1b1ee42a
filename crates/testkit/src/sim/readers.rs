//! Named readers of changes: what processes are given under a name, and the oracle of it.
//!
//! A reader keeps what it was given until it acknowledges it, as a program downstream would. What counts is in the consumer's
//! records: whoever puts together what was given with the tokens that they name must have the table, at every token.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alluvium_core::{Error, Kind, ReadKind, Result, Token};
use alluvium_engine::{Changes, ChangesReader, ChangesRequest, Engine, RowFormat, RowWriter};
use alluvium_lake::Machine;
use serde_json::Value;

use super::bucket::Bucket;
use super::dice::Dice;

/// What a row or notification is told as, with the version that told of it.
pub(super) type Told = (u64, String);

/// Who reads, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Reading {
    pub(super) consumer: &'static str,
    pub(super) kind: ReadKind,
}

/// What a reader was given since it last acknowledged something, with the token for all of it.
#[derive(Debug, Clone)]
struct Delivery {
    reading: Reading,
    token: String,
    told: Vec<Told>,
}

/// All that was given to anybody.
#[derive(Debug, Clone, Default)]
pub(super) struct Deliveries(Arc<Mutex<Vec<Delivery>>>);

/// What became of an acknowledgement.
enum Acknowledged {
    Yes,
    /// Whether it counts is not known, or it does not.
    Unknown,
}

impl Deliveries {
    /// Reads and acknowledges for a while, as a program does that may forget to, or die. `may_start_over`: something may no longer
    /// be kept.
    pub(super) async fn reads(
        &self,
        engine: &Engine,
        machine: &dyn Machine,
        reading: Reading,
        dice: &mut Dice,
        may_start_over: bool,
    ) -> Result<()> {
        let dataset = engine.datasets(&[])?[0];
        for _ in 0..dice.between(2, 6) {
            let mut reader = engine.changes(dataset, &reading.request()).await?;
            let mut held = Vec::new();
            for _ in 0..dice.between(1, 3) {
                let changes = match self.given(&mut reader, reading, &mut held).await {
                    Err(e) if e.kind() == Kind::NotFound && may_start_over => {
                        engine.reset_consumer(reading.consumer).await?;
                        break;
                    }
                    given => given?,
                };
                match dice.below(10) {
                    0..=5 => match acknowledge(engine, &mut reader, reading, &changes, dice).await? {
                        Acknowledged::Yes => held.clear(),
                        Acknowledged::Unknown => break,
                    },
                    // What was given is not used: it is given again.
                    6 | 7 => break,
                    _ => {}
                }
                reader.advance(&changes);
                machine.sleep(Duration::from_millis(dice.between(1, 3_000))).await;
            }
            machine.sleep(Duration::from_millis(dice.of_any_size(1, 4, 14))).await;
        }
        Ok(())
    }

    /// Reads all there is and acknowledges it.
    pub(super) async fn catches_up(&self, engine: &Engine, reading: Reading, may_start_over: bool) -> Result<()> {
        let dataset = engine.datasets(&[])?[0];
        let mut reader = engine.changes(dataset, &reading.request()).await?;
        let changes = match self.given(&mut reader, reading, &mut Vec::new()).await {
            Err(e) if e.kind() == Kind::NotFound && may_start_over => {
                engine.reset_consumer(reading.consumer).await?;
                reader = engine.changes(dataset, &reading.request()).await?;
                self.given(&mut reader, reading, &mut Vec::new()).await?
            }
            given => given?,
        };
        reader.commit(&changes).await
    }

    /// What came since, all of it, added to what is held and noted down.
    async fn given(&self, reader: &mut ChangesReader<'_>, reading: Reading, held: &mut Vec<Told>) -> Result<Changes> {
        let mut changes = reader.read().await?;
        let mut lines = Vec::new();
        let failed = |e: std::io::Error| Error::new(Kind::Internal, "writing rows into memory").source(e);
        let mut writer = RowWriter::new(RowFormat::Json, changes.schema(), &mut lines, 64 << 20).map_err(failed)?;
        while let Some(rows) = changes.next().await? {
            writer.write(&rows).map_err(failed)?;
        }
        writer.finish().map_err(failed)?;
        for line in String::from_utf8_lossy(&lines).lines() {
            let row: Value = serde_json::from_str(line).unwrap_or_default();
            held.push((row["_commit_version"].as_u64().unwrap_or(u64::MAX), reading.told(|name| text(&row[name]))));
        }
        let delivery = Delivery { reading, token: changes.token(), told: held.clone() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(delivery);
        Ok(changes)
    }

    /// Whether what was given is right. `versions`: what each version of the table that is read added.
    pub(super) fn check(&self, reading: Reading, bucket: &Bucket, versions: &[Vec<String>]) -> std::result::Result<(), String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mine: Vec<&Delivery> = all.iter().filter(|d| d.reading == reading).collect();
        for delivery in &mine {
            delivery.check_whole(versions)?;
        }
        let directory = format!("default/_alluvium/consumers/{}/edit", reading.consumer);
        let records: BTreeMap<&str, Value> =
            bucket.ever(&directory).filter_map(|(path, o)| Some((path, serde_json::from_slice(&o.bytes).ok()?))).collect();
        let (mut have, mut last): (Vec<String>, Option<String>) = (Vec::new(), None);
        for (path, record) in &records {
            let reached = &record[reading.kind.name()];
            let Some(token) = reached["token"].as_str() else {
                (have, last) = (Vec::new(), None);
                continue;
            };
            if last.as_deref() == Some(token) {
                continue;
            }
            last = Some(token.to_owned());
            let Some(delivery) = mine.iter().find(|d| d.token == token) else {
                return Err(format!("{path} names a token that was given to nobody"));
            };
            have.extend(delivery.told.iter().map(|(_, told)| told.clone()));
            have.sort();
            let next = reached["next"].as_u64().unwrap_or(u64::MAX);
            let upto = usize::try_from(next).map_or(versions.len(), |next| next.min(versions.len()));
            if have != sorted(&versions[..upto]) {
                return Err(format!("{path}: who acknowledged up to version {next} has {have:?}, and not {versions:?}"));
            }
        }
        Ok(())
    }
}

impl Delivery {
    /// What was given is all that some versions in a row added, up to the one that the token names, in their order.
    fn check_whole(&self, versions: &[Vec<String>]) -> std::result::Result<(), String> {
        let who = || format!("{} of {}", self.reading.kind.name(), self.reading.consumer);
        let next = Token::parse(&self.token).map_or(u64::MAX, |token| token.next.0);
        let Some(upto) = usize::try_from(next).ok().filter(|next| *next <= versions.len()) else {
            return Err(format!("{}: a token of version {next}, which is not there", who()));
        };
        if !self.told.is_sorted_by_key(|(version, _)| *version) {
            return Err(format!("{}: not in the order of versions: {:?}", who(), self.told));
        }
        let mut told: Vec<String> = self.told.iter().map(|(_, told)| told.clone()).collect();
        told.sort();
        match (0..=upto).any(|from| sorted(&versions[from..upto]) == told) {
            true => Ok(()),
            false => Err(format!("{}: a partial answer, up to version {next}: {told:?} of {versions:?}", who())),
        }
    }
}

impl Reading {
    fn request(&self) -> ChangesRequest<'_> {
        ChangesRequest { kind: self.kind, consumer: Some(self.consumer), since: None, snapshot: false }
    }

    /// The table whose versions are counted.
    pub(super) const fn table(self) -> &'static str {
        match self.kind {
            ReadKind::Partitions => "notifications",
            ReadKind::Rows => "edit",
        }
    }

    /// What tells a row, or a notification, from all others.
    pub(super) fn told(self, column: impl Fn(&str) -> String) -> String {
        let columns: &[&str] = match self.kind {
            ReadKind::Partitions => &["table_name", "table_version", "org_id", "event_date", "inserted"],
            ReadKind::Rows => &["_source", "_offset", "lead", "n"],
        };
        columns.iter().map(|name| column(name)).collect::<Vec<_>>().join(" ")
    }
}

/// Acknowledges what was given, one way or the other.
async fn acknowledge(
    engine: &Engine,
    reader: &mut ChangesReader<'_>,
    reading: Reading,
    changes: &Changes,
    dice: &mut Dice,
) -> Result<Acknowledged> {
    let by_token = dice.thousandths(300);
    for _ in 0..dice.between(1, 3) {
        let outcome = match by_token {
            true => engine.commit_consumer(reading.consumer, &changes.token()).await,
            false => reader.commit(changes).await,
        };
        match outcome {
            Ok(()) => return Ok(Acknowledged::Yes),
            // Another one reads with this name.
            Err(e) if e.kind() == Kind::Conflict => return Ok(Acknowledged::Unknown),
            // Maybe it counts: the same again is right, and so is to begin anew.
            Err(e) if e.kind() == Kind::Unavailable => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Acknowledged::Unknown)
}

fn sorted(versions: &[Vec<String>]) -> Vec<String> {
    let mut all: Vec<String> = versions.iter().flatten().cloned().collect();
    all.sort();
    all
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
