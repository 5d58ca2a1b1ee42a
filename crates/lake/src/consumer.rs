//! Consumers: named readers of a dataset's changes, and how far each has come. The form is in `docs/formats/consumer.md`.
//!
//! Place in the flow: `changes --consumer` registers here before it looks at what is kept, and advances here after its rows were
//! used; vacuum reads all of them before it deletes. Invariants: records are numbered and put-if-absent, the highest counts; a
//! position moves forward, or back to the beginning by a reset; a reader that read an older record than the one that last moved the
//! position moves it only if that was itself, or the reader whose token it went on with.

use std::collections::BTreeMap;
use std::time::Duration;

use alluvium_core::{DatasetName, Error, Incarnation, Kind, NextVersion, ReadFrom, ReadKind, ReaderId, Resolver, Result, Token};
use bytes::Bytes;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use crate::records::read_versioned;
use crate::store::{PutNew, Store};

/// The version of the stored form that this program writes and the newest it reads.
pub const CONSUMER_FORMAT: u32 = 1;
/// So many of a consumer's records are kept.
const RECORDS_KEPT: u64 = 8;
/// A record is given up, loudly, after losing this many races.
const MAX_TRIES: u32 = 100;
/// A consumer that should be there is looked for so often, this long apart: a store may list late.
const MAX_LOOKS: u32 = 4;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A consumer's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerRecord {
    format: u32,
    incarnation: Incarnation,
    /// The consumer's name.
    pub consumer: String,
    /// The dataset it reads.
    pub dataset: DatasetName,
    /// How far it has come in `notifications`.
    pub partitions: Reached,
    /// How far it has come in the dataset's own table.
    pub rows: Reached,
    removed: bool,
    /// Random, so that no two writers ever write the same bytes.
    writer: String,
    /// When the record was written, in milliseconds since 1970.
    pub written_at_ms: i64,
}

/// How far a consumer has come in one table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reached {
    /// The first version it has not acknowledged.
    #[serde(with = "next_version")]
    pub next: NextVersion,
    /// The number of the record that put it there.
    pub set_by: u64,
    /// Whether its reader was given anything since it was at the beginning.
    pub begun: bool,
    /// The token that was acknowledged; null at the beginning.
    pub token: Option<String>,
}

impl Reached {
    /// Whether another reader of the consumer `name` put it there since `from` was read, so that what was read may be used twice.
    fn is_by_another(&self, name: &str, from: &ReadFrom) -> bool {
        let mine = |acknowledged: ReadFrom| acknowledged.is_of(name) && from.follows(&acknowledged, self.next);
        from.record < self.set_by && !self.acknowledged().and_then(|token| token.read_from).is_some_and(mine)
    }

    /// Why the consumer `name` may not be moved to where `token` says; `None` if it may.
    fn refuses(&self, name: &str, token: &Token) -> Option<Advanced> {
        let read_from = token.read_from.filter(|r| r.is_of(name));
        if token.next < self.next {
            Some(Advanced::Older(self.next))
        } else if read_from.is_some_and(|from| self.is_by_another(name, &from)) {
            Some(Advanced::Stale(self.next))
        } else {
            None
        }
    }

    /// What was acknowledged, taken apart.
    #[must_use]
    pub fn acknowledged(&self) -> Option<Token> {
        Token::parse(self.token.as_deref()?).ok()
    }
}

mod next_version {
    use alluvium_core::NextVersion;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(next: &NextVersion, to: S) -> Result<S::Ok, S::Error> {
        next.0.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<NextVersion, D::Error> {
        u64::deserialize(from).map(NextVersion)
    }
}

/// A registered consumer: its newest record and that record's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// The number of the record.
    pub number: u64,
    /// The record.
    pub record: ConsumerRecord,
}

impl Consumer {
    /// How far it has come.
    #[must_use]
    pub fn reached(&self, kind: ReadKind) -> &Reached {
        match kind {
            ReadKind::Partitions => &self.record.partitions,
            ReadKind::Rows => &self.record.rows,
        }
    }

    /// How a reader of `kind` reads under this consumer's name that goes on with `since`, or without a token from where the consumer
    /// stands: what was acknowledged so far does not make it stale, unless it does so to the reader that it goes on from.
    #[must_use]
    pub fn read_from(&self, kind: ReadKind, since: Option<&Token>, reader: ReaderId) -> ReadFrom {
        let name = &self.record.consumer;
        let goes_on = since.and_then(|token| Some((token, token.read_from.filter(|from| from.is_of(name))?)));
        let Some((token, before)) = goes_on else { return ReadFrom::new(name, self.number, reader) };
        let on = before.gone_on(token.next, reader);
        if self.reached(kind).refuses(name, token).is_none() { on.at_record(self.number) } else { on }
    }

    fn reached_mut(&mut self, kind: ReadKind) -> &mut Reached {
        match kind {
            ReadKind::Partitions => &mut self.record.partitions,
            ReadKind::Rows => &mut self.record.rows,
        }
    }
}

/// How a beginning came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Begun {
    /// Nothing was given to this consumer before.
    Now,
    /// Somebody was given something under its name already.
    Before,
    /// There is no such consumer of that dataset.
    Unknown,
}

/// How an acknowledgement came out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Advanced {
    /// The consumer is there now; durable.
    Moved(Consumer),
    /// This very token was acknowledged before, by this very reader.
    AlreadyThere(Consumer),
    /// The consumer is further already.
    Older(NextVersion),
    /// Another reader with this name moved the consumer since the token was read.
    Stale(NextVersion),
    /// There is no such consumer of that dataset.
    Unknown,
}

/// The consumers of a namespace.
#[derive(Debug, Clone)]
pub struct ConsumerStore {
    store: Store,
    resolver: Resolver,
    incarnation: Incarnation,
}

impl ConsumerStore {
    /// The consumers of the namespace of `resolver` in this life of it.
    #[must_use]
    pub fn new(store: &Store, resolver: &Resolver, incarnation: &Incarnation) -> Self {
        Self { store: store.clone(), resolver: resolver.clone(), incarnation: incarnation.clone() }
    }

    /// All consumers, by name and dataset.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed, [`Kind::Corrupt`] and [`Kind::Unsupported`] for records that cannot be read.
    pub async fn list(&self) -> Result<Vec<Consumer>> {
        let directory = Path::from(self.resolver.consumers_dir());
        let depth = directory.parts().count();
        let mut newest: BTreeMap<(String, String), u64> = BTreeMap::new();
        for found in self.store.list(&directory, None).await? {
            let parts: Vec<String> = found.path.parts().skip(depth).map(|p| p.as_ref().to_owned()).collect();
            let [name, dataset, file] = parts.as_slice() else { continue };
            // Others may put what they like beside ours.
            let dataset_name = DatasetName(dataset.clone());
            if let Some(number) = record_number(file).filter(|_| self.directory(name, &dataset_name).is_ok()) {
                let newest = newest.entry((name.clone(), dataset.clone())).or_default();
                *newest = (*newest).max(number);
            }
        }
        let mut consumers = Vec::new();
        for (name, dataset) in newest.into_keys() {
            consumers.extend(self.find(&name, &DatasetName(dataset)).await?);
        }
        Ok(consumers)
    }

    /// The consumer of that name and dataset, if there is one.
    ///
    /// # Errors
    /// As [`ConsumerStore::list`]; [`Kind::Invalid`] for a name that no consumer can have.
    pub async fn find(&self, name: &str, dataset: &DatasetName) -> Result<Option<Consumer>> {
        Ok(self.newest(name, dataset).await?.filter(|c| self.is_live(c)))
    }

    /// The same of one that should be there.
    async fn expected(&self, name: &str, dataset: &DatasetName) -> Result<Option<Consumer>> {
        for _ in 1..MAX_LOOKS {
            if let Some(consumer) = self.find(name, dataset).await? {
                return Ok(Some(consumer));
            }
            self.store.machine().sleep(LOOK_INTERVAL).await;
        }
        self.find(name, dataset).await
    }

    /// The consumer of that name and dataset, which stands at the beginning if it is new. From its return on vacuum heeds it, but
    /// what was deleted before is told by the floor alone: read that after this.
    ///
    /// # Errors
    /// As [`ConsumerStore::find`]; [`Kind::Unavailable`] if every race was lost.
    pub async fn register(&self, name: &str, dataset: &DatasetName, now_ms: i64) -> Result<Consumer> {
        for _ in 0..MAX_TRIES {
            let newest = self.newest(name, dataset).await?;
            let number = newest.as_ref().map_or(0, |c| c.number) + 1;
            // Tokens that a removed consumer of this name was given are not of this one.
            let beginning = Reached { set_by: number, ..Reached::default() };
            if let Some(live) = newest.filter(|c| self.is_live(c)) {
                return Ok(live);
            }
            let record = ConsumerRecord {
                format: CONSUMER_FORMAT,
                incarnation: self.incarnation.clone(),
                consumer: name.to_owned(),
                dataset: dataset.clone(),
                partitions: beginning.clone(),
                rows: beginning,
                removed: false,
                writer: String::new(),
                written_at_ms: now_ms,
            };
            let mut consumer = Consumer { number, record };
            if self.write(&mut consumer).await? {
                return Ok(consumer);
            }
        }
        Err(races_lost(name))
    }

    /// Notes that a consumer's reader is about to be given something. Durable on return. The position stays, and tokens read before
    /// stay good.
    ///
    /// # Errors
    /// As [`ConsumerStore::register`].
    pub async fn begin(&self, name: &str, dataset: &DatasetName, kind: ReadKind, now_ms: i64) -> Result<Begun> {
        for _ in 0..MAX_TRIES {
            let Some(mut consumer) = self.expected(name, dataset).await? else { return Ok(Begun::Unknown) };
            if consumer.reached(kind).begun {
                return Ok(Begun::Before);
            }
            consumer.number += 1;
            consumer.record.written_at_ms = now_ms;
            consumer.reached_mut(kind).begun = true;
            if self.write(&mut consumer).await? {
                return Ok(Begun::Now);
            }
        }
        Err(races_lost(name))
    }

    /// Moves a consumer to where `token` says. On [`Advanced::Moved`] it is durable. May be repeated with the same token.
    ///
    /// # Errors
    /// As [`ConsumerStore::register`].
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the consumer is moved or not; acknowledge again.
    pub async fn advance(&self, name: &str, dataset: &DatasetName, token: &Token, now_ms: i64) -> Result<Advanced> {
        let text = token.to_string();
        for _ in 0..MAX_TRIES {
            let Some(mut consumer) = self.expected(name, dataset).await? else { return Ok(Advanced::Unknown) };
            let reached = consumer.reached(token.kind);
            if reached.token.as_deref() == Some(&text) {
                return Ok(Advanced::AlreadyThere(consumer));
            }
            let refused = reached.refuses(name, token);
            #[cfg(feature = "plants")]
            let refused = refused.filter(|r| !(matches!(r, Advanced::Stale(_)) && crate::plant::Plant::StaleConsumer.grows()));
            if let Some(refused) = refused {
                return Ok(refused);
            }
            consumer.number += 1;
            consumer.record.written_at_ms = now_ms;
            let number = consumer.number;
            *consumer.reached_mut(token.kind) =
                Reached { next: token.next, set_by: number, begun: true, token: Some(text.clone()) };
            if self.write(&mut consumer).await? {
                return Ok(Advanced::Moved(consumer));
            }
        }
        Err(races_lost(name))
    }

    /// Puts every position of a consumer back to the beginning. Returns whether there is such a consumer. May be repeated.
    ///
    /// # Errors
    /// As [`ConsumerStore::register`].
    pub async fn reset(&self, name: &str, now_ms: i64) -> Result<bool> {
        self.change_all(name, now_ms, |consumer| {
            let beginning = Reached { set_by: consumer.number, ..Reached::default() };
            consumer.record.partitions = beginning.clone();
            consumer.record.rows = beginning;
        })
        .await
    }

    /// Forgets a consumer; vacuum no longer heeds it. Returns whether there was one. May be repeated.
    ///
    /// # Errors
    /// As [`ConsumerStore::register`].
    pub async fn remove(&self, name: &str, now_ms: i64) -> Result<bool> {
        self.change_all(name, now_ms, |consumer| {
            consumer.record.partitions.set_by = consumer.number;
            consumer.record.rows.set_by = consumer.number;
            consumer.record.removed = true;
        })
        .await
    }

    async fn change_all(&self, name: &str, now_ms: i64, change: impl Fn(&mut Consumer)) -> Result<bool> {
        // A name that is none is refused also where there are no consumers at all.
        self.directory(name, &DatasetName("any".to_owned()))?;
        let all = self.list().await?;
        let datasets: Vec<DatasetName> =
            all.into_iter().filter(|c| c.record.consumer == name).map(|c| c.record.dataset).collect();
        for dataset in &datasets {
            self.change(name, dataset, now_ms, &change).await?;
        }
        Ok(!datasets.is_empty())
    }

    async fn change(&self, name: &str, dataset: &DatasetName, now_ms: i64, change: &impl Fn(&mut Consumer)) -> Result<()> {
        for _ in 0..MAX_TRIES {
            let Some(mut consumer) = self.find(name, dataset).await? else { return Ok(()) };
            consumer.number += 1;
            consumer.record.written_at_ms = now_ms;
            change(&mut consumer);
            if self.write(&mut consumer).await? {
                return Ok(());
            }
        }
        Err(races_lost(name))
    }

    /// Records of a former life of the namespace, left by a writer that outlived it, count as removed.
    fn is_live(&self, consumer: &Consumer) -> bool {
        !consumer.record.removed && consumer.record.incarnation == self.incarnation
    }

    async fn newest(&self, name: &str, dataset: &DatasetName) -> Result<Option<Consumer>> {
        let directory = self.directory(name, dataset)?;
        for number in self.numbers(&directory).await?.into_iter().rev() {
            let path = record_path(&directory, number);
            // One that was deleted since the listing is not the newest any more.
            if let Some(bytes) = self.store.get(&path).await? {
                let record = read_versioned(&bytes, CONSUMER_FORMAT, path.as_ref())?;
                return Ok(Some(Consumer { number, record }));
            }
        }
        Ok(None)
    }

    /// Writes a record after the one with the number before its own. `false`: another writer was faster.
    async fn write(&self, consumer: &mut Consumer) -> Result<bool> {
        consumer.record.writer = self.store.machine().fresh_id().simple().to_string();
        let directory = self.directory(&consumer.record.consumer, &consumer.record.dataset)?;
        let bytes = serde_json::to_vec(&consumer.record)
            .map_err(|e| Error::new(Kind::Internal, "writing a consumer's record").source(e))?;
        if self.store.put_new(&record_path(&directory, consumer.number), Bytes::from(bytes)).await? == PutNew::Exists {
            return Ok(false);
        }
        // The name was free; or it was free again, because a writer that is far ahead had deleted the old records. Those go in
        // the order of their numbers, so the name was never used before if the record before it is still there.
        let numbers = self.numbers(&directory).await?;
        let before = consumer.number - 1;
        if numbers.last() != Some(&consumer.number) && before > 0 && !numbers.contains(&before) {
            return Ok(false);
        }
        for old in numbers.into_iter().filter(|n| n.saturating_add(RECORDS_KEPT) <= consumer.number) {
            // What this record says holds all the same, and the next writer deletes what is left, the oldest first.
            if let Err(e) = self.store.delete(&record_path(&directory, old)).await {
                tracing::debug!("deleting an old record of a consumer: {}", e.chain_text());
                break;
            }
        }
        Ok(true)
    }

    async fn numbers(&self, directory: &Path) -> Result<Vec<u64>> {
        let found = self.store.list(directory, None).await?;
        Ok(found.iter().filter_map(|f| f.path.filename().and_then(record_number)).collect())
    }

    fn directory(&self, name: &str, dataset: &DatasetName) -> Result<Path> {
        let directory = self.resolver.consumer_dir(name, dataset);
        directory.map(Path::from).map_err(|e| Error::new(Kind::Invalid, e.message()).hint(e.hint()))
    }
}

fn record_path(directory: &Path, number: u64) -> Path {
    directory.clone().join(format!("{number:020}.json"))
}

/// The number in the name of a numbered record.
pub(crate) fn record_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json")?;
    if digits.len() == 20 { digits.parse().ok() } else { None }
}

fn races_lost(name: &str) -> Error {
    Error::new(Kind::Unavailable, format!("writing a record of consumer {name}: {MAX_TRIES} races lost to other processes"))
        .hint("let one process use the name, and run again")
}

#[cfg(test)]
mod tests;
