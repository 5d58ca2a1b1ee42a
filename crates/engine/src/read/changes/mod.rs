//! Changes: what happened to a dataset since a reader last looked, as notifications or as rows.
//!
//! Place in the flow: downstream of every job; a reader is at a version of one table (`notifications`, or the dataset's own) and is
//! given all that came since, in the order of versions. Invariants: never a partial answer (all that a round needs is looked for
//! before its first row is given); a consumer moves only when its reader says that the rows were used. Deliberately not here: how
//! rows are printed.
//!
//! A reader at the beginning is given the table's whole history while it is kept; once it is not, the rows that stand, as inserts of
//! the newest version: what it ends up with is the same. A reader that may have got something already cannot be helped so, and is
//! refused. A named one is noted down as begun before its first row.

mod compare;
mod consumers;
mod life;
mod plan;
mod recorded;
mod rewritten;
mod stream;
mod tell;
#[cfg(test)]
mod tests;

use std::time::Duration;

use alluvium_core::{
    Dataset, DatasetName, Error, Incarnation, Kind, NextVersion, ReadFrom, ReadKind, ReaderId, Result, TableMark, TableName,
    TableSpec, Token,
};
use alluvium_lake::{Advanced, Begun, ChangedFile, ConsumerStore, DeltaLog, Floor, arrow_schema};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

pub use self::consumers::{ConsumerStatus, PositionStatus};
use self::life::{Life, Who};
use self::stream::{Source, Span, Told};
use self::tell::{CommitTold, Telling};
use crate::engine::{Engine, Stop};

/// How often a reader that waits looks for more.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// After so many looks without more, a reader that waits looks whether it still waits for the same table.
const LOOKS_A_LIFE: u64 = 20;
/// A wait that only a stop ends.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
/// What seems to be no longer kept is looked for so often, this long apart, before a reader is told to start over: a store may list
/// late.
const MAX_LOOKS: u32 = 4;
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Files looked for at a time, before anything is read.
const FILES_A_LOOK: usize = 4096;

/// What a reader asks for.
#[derive(Debug, Clone, Copy)]
pub struct ChangesRequest<'a> {
    /// Notifications, or rows.
    pub kind: ReadKind,
    /// A named reader, which is registered if it is new.
    pub consumer: Option<&'a str>,
    /// Where to begin, in place of the consumer's position.
    pub since: Option<&'a str>,
    /// Begin with the rows that stand, whatever came before.
    pub snapshot: bool,
}

/// A reader of a dataset's changes and where it stands.
pub struct ChangesReader<'a> {
    engine: &'a Engine,
    who: Who,
    kind: ReadKind,
    table: TableName,
    log: DeltaLog,
    incarnation: Option<Incarnation>,
    consumer: Option<Reader>,
    /// What its tokens say of where they were read.
    read_from: Option<ReadFrom>,
    /// The table that it has read of.
    of_table: Option<TableMark>,
    at: NextVersion,
    snapshot: bool,
}

/// Under which name is read.
struct Reader {
    name: String,
    /// The number of the consumer's record that was read.
    record: u64,
    /// Whether somebody, this reader too, was given something under this name since it was at the beginning.
    begun: bool,
    /// This reader began it, and has been given nothing yet.
    fresh: bool,
    store: ConsumerStore,
}

/// What came since the reader last looked. Dropped, the reading ends.
pub struct Changes {
    schema: SchemaRef,
    next: Token,
    told: Option<Told>,
    stop: Stop,
}

impl Changes {
    /// The columns.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Where a reader stands that has used all of it.
    #[must_use]
    pub fn token(&self) -> String {
        self.next.to_string()
    }

    /// The next rows; `None` after the last.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if a file was deleted meanwhile, [`Kind::Corrupt`] if one is damaged, [`Kind::Unsupported`] if a comparison
    /// takes too much memory, [`Kind::Unavailable`] if the store failed or somebody asked to stop. The rows given before are then
    /// to be thrown away, or given again by the next read.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(told) = &mut self.told else { return Ok(None) };
        let stopped = || Error::new(Kind::Unavailable, "the reading was stopped before its end");
        if self.stop.asked() {
            return Err(stopped());
        }
        let next = tokio::select! {
            next = told.next() => next?,
            () = self.stop.sleep(FOREVER) => return Err(stopped()),
        };
        if next.is_none() {
            self.told = None;
        }
        Ok(next)
    }
}

impl Engine {
    /// A reader of a dataset's changes. With a consumer's name, that consumer is registered if it is new, and from then on vacuum
    /// heeds it; without, nothing is written.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a token that is none, or of another dataset, kind or life of the namespace, and for a name that is
    /// none; [`Kind::Conflict`] if the namespace is being deleted.
    pub async fn changes<'a>(&'a self, dataset: &Dataset, request: &ChangesRequest<'_>) -> Result<ChangesReader<'a>> {
        let incarnation = match request.consumer {
            Some(_) => Some(self.incarnation().await?),
            None => self.existing_incarnation().await?,
        };
        let since = match request.since {
            Some(text) => {
                let token = Token::parse(text)?;
                check_token(&token, incarnation.as_ref(), dataset, request.kind)?;
                Some(token)
            }
            None => None,
        };
        let (consumer, read_from, acknowledged, at) = match (request.consumer, &incarnation) {
            (Some(name), Some(incarnation)) => {
                let store = ConsumerStore::new(&self.store, &self.resolver, incarnation);
                let there = store.register(name, &dataset.name, self.clock.now_ms()).await?;
                let reached = there.reached(request.kind);
                let read_from = there.read_from(request.kind, since.as_ref(), self.fresh_reader());
                let (begun, at) = (reached.begun, reached.next);
                let acknowledged = reached.acknowledged();
                (
                    Some(Reader { name: name.to_owned(), record: there.number, begun, fresh: false, store }),
                    Some(read_from),
                    acknowledged,
                    at,
                )
            }
            // Nobody's reading may be given to the consumer whose token it goes on with.
            _ => {
                let goes_on = |token: Token| Some(token.read_from?.gone_on(token.next, self.fresh_reader()));
                (None, since.and_then(goes_on), None, NextVersion(0))
            }
        };
        let table = table_read(request.kind, dataset);
        Ok(ChangesReader {
            engine: self,
            who: Who { dataset: dataset.name.clone(), consumer: request.consumer.map(str::to_owned) },
            kind: request.kind,
            log: self.log(&table),
            table,
            incarnation,
            consumer,
            read_from,
            of_table: since.or(acknowledged).and_then(|token| token.table),
            at: since.map_or(at, |token| token.next),
            snapshot: request.snapshot,
        })
    }

    fn fresh_reader(&self) -> ReaderId {
        let (high, low) = self.store.machine().fresh_id().as_u64_pair();
        ReaderId(high ^ low)
    }
}

/// The table whose versions a reader of this kind counts.
fn table_read(kind: ReadKind, dataset: &Dataset) -> TableName {
    match kind {
        ReadKind::Partitions => TableName::NOTIFICATIONS,
        ReadKind::Rows => TableName::from(&dataset.name),
    }
}

fn check_token(token: &Token, incarnation: Option<&Incarnation>, dataset: &Dataset, kind: ReadKind) -> Result<()> {
    if !token.is_of(incarnation, &dataset.name) {
        return Err(Error::new(
            Kind::Invalid,
            format!("the token is not of dataset {}, or of a former life of the namespace", dataset.name),
        )
        .hint("a token is good for the dataset and the namespace that it was printed for"));
    }
    if token.kind != kind {
        let hint = match token.kind {
            ReadKind::Rows => "read it with --rows",
            ReadKind::Partitions => "read it without --rows",
        };
        return Err(Error::new(Kind::Invalid, format!("the token is of a reader of {}", token.kind.name())).hint(hint));
    }
    Ok(())
}

impl ChangesReader<'_> {
    /// What came since: everything up to the table's newest version. The reader stays where it is until it is told to go on.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if something of it is no longer kept, or the consumer was removed meanwhile, [`Kind::Unsupported`] for tables and commits that changes cannot be
    /// read of, [`Kind::Corrupt`] and [`Kind::Unavailable`] as for any read. Nothing was given then.
    pub async fn read(&mut self) -> Result<Changes> {
        let mut looks = 1;
        let read = loop {
            match self.read_now().await {
                // Or a cleanup came between what was found and what was read of it.
                Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Corrupt) && looks < MAX_LOOKS => {
                    looks += 1;
                    self.engine.store.machine().sleep(LOOK_AGAIN).await;
                }
                read => break read,
            }
        };
        if let (Ok(_), Some(reader)) = (&read, &mut self.consumer) {
            reader.fresh = false;
        }
        read
    }

    async fn read_now(&mut self) -> Result<Changes> {
        let standing = self.log.standing().await?;
        // After the listing: what was found is of this life, or of none.
        self.check_life().await?;
        let Some(standing) = standing else {
            if self.at.0 > 0 {
                return Err(self.who.gone("the table is gone"));
            }
            return self.nothing(&self.declared_schema(), self.at);
        };
        let table = TableMark::new(&standing.table_id);
        if !self.snapshot && self.at.0 > 0 && self.of_table.is_some_and(|t| t != table) {
            return Err(self.who.gone("the table was removed and made anew"));
        }
        self.of_table = Some(table);
        let next = NextVersion(standing.version + 1);
        if self.at > next {
            return Err(self.who.gone("the table was set back to an older version"));
        }
        let telling = Telling::new(self.kind, &standing.schema, &self.who.dataset)?;
        let schema = telling.schema();
        let life = self.life();
        let source = Source::new(
            self.log.clone(),
            self.engine.resolver.clone(),
            self.table.clone(),
            standing.clone(),
            telling,
            life.clone(),
            self.engine.memory_bytes,
        );
        let span = if self.snapshot {
            self.begin().await?;
            self.standing(standing.version).await?
        } else if self.at == next {
            return self.nothing(&standing.schema, next);
        } else if self.whole(&source, standing.version).await? {
            self.begin().await?;
            Span::Versions { first: self.at.0, last: standing.version }
        } else if self.at.0 == 0 && self.begin().await? {
            self.standing(standing.version).await?
        } else {
            return Err(self.who.gone("versions that it has not read are no longer kept"));
        };
        // The entries that were looked at are of this life too; the rows and their token, see `Told`.
        life.lasts().await?;
        Ok(Changes { schema, next: self.token(next), told: Some(Told::new(source, span)), stop: self.engine.stop.clone() })
    }

    /// Refuses to go on in another life of the namespace.
    async fn check_life(&mut self) -> Result<()> {
        let now = self.engine.existing_incarnation().await?;
        if self.incarnation == now {
            return Ok(());
        }
        if self.incarnation.is_none() && self.at.0 == 0 {
            self.incarnation = now;
            return Ok(());
        }
        Err(self.who.gone("the namespace was deleted"))
    }

    fn life(&self) -> Life {
        Life {
            store: self.engine.store.clone(),
            resolver: self.engine.resolver.clone(),
            incarnation: self.incarnation.clone(),
            who: self.who.clone(),
        }
    }

    /// Notes that the consumer is about to be given something. `false`: it may have been before, and knows rows that do not stand
    /// any more.
    async fn begin(&mut self) -> Result<bool> {
        let Some(reader) = self.consumer.as_mut() else { return Ok(true) };
        if reader.begun {
            return Ok(reader.fresh);
        }
        let begun = reader.store.begin(&reader.name, &self.who.dataset, self.kind, self.engine.clock.now_ms()).await?;
        reader.begun = true;
        match begun {
            Begun::Now => {
                reader.fresh = true;
                Ok(true)
            }
            Begun::Before => Ok(false),
            Begun::Unknown => Err(no_consumer(&reader.name)),
        }
    }

    /// Goes on behind what was read. The consumer stays where it is.
    pub fn advance(&mut self, changes: &Changes) {
        self.at = changes.next.next;
        self.snapshot = false;
    }

    /// Moves the consumer behind what was read, which is durable on return. Does nothing where there is nothing new, or no consumer.
    ///
    /// # Errors
    /// [`Kind::Conflict`] if another process reads with this name, [`Kind::NotFound`] if the consumer was removed meanwhile,
    /// [`Kind::Unavailable`] if the store failed: then the consumer is moved or not.
    pub async fn commit(&mut self, changes: &Changes) -> Result<()> {
        let Some(reader) = &mut self.consumer else { return Ok(()) };
        let token = &changes.next;
        let now_ms = self.engine.clock.now_ms();
        if self.at == token.next {
            let there = reader.store.find(&reader.name, &self.who.dataset).await?;
            if there.is_some_and(|c| c.number == reader.record && c.reached(self.kind).next == token.next) {
                return Ok(());
            }
        }
        match reader.store.advance(&reader.name, &self.who.dataset, token, now_ms).await? {
            Advanced::Moved(there) => {
                reader.record = there.number;
                Ok(())
            }
            Advanced::AlreadyThere(_) => Ok(()),
            Advanced::Older(_) | Advanced::Stale(_) => Err(another_reads(&reader.name, &self.who.dataset)),
            Advanced::Unknown => Err(no_consumer(&reader.name)),
        }
    }

    /// Waits until there is more. `false`: somebody asked to stop.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn wait(&self) -> Result<bool> {
        for look in 1_u64.. {
            if self.engine.stop.asked() {
                break;
            }
            if !self.log.versions_from(self.at.0).await?.is_empty() {
                return Ok(true);
            }
            if look.is_multiple_of(LOOKS_A_LIFE) && self.is_another().await? {
                return Ok(true);
            }
            self.engine.stop.sleep(LOOK_INTERVAL).await;
        }
        Ok(false)
    }

    /// Whether there is another namespace, or a shorter table, in the place of what was read: the next read says which.
    async fn is_another(&self) -> Result<bool> {
        match self.engine.existing_incarnation().await {
            Ok(now) if now != self.incarnation && self.incarnation.is_some() => return Ok(true),
            Ok(_) => {}
            // It is being deleted: look again when it was.
            Err(e) if e.kind() == Kind::Conflict => return Ok(false),
            Err(e) => return Err(e),
        }
        // A log always keeps its newest entry.
        Ok(self.at.0 > 0 && self.log.versions_from(self.at.0 - 1).await?.is_empty())
    }

    /// Whether all is kept that a reader needs from where it stands on: log entries, and the files they name.
    async fn whole(&self, source: &Source, newest: u64) -> Result<bool> {
        // A consumer was registered before this look: see `alluvium_lake::Floor`.
        let floor = Floor::new(&self.engine.store, &self.engine.resolver, &self.table).kept_from().await?;
        if self.at < floor {
            return Ok(false);
        }
        if self.at.0 > newest {
            return Ok(true);
        }
        let entries = self.log.versions_from(self.at.0).await?;
        let needed = entries.iter().take_while(|v| **v <= newest);
        if !needed.copied().eq(self.at.0..=newest) {
            return Ok(false);
        }
        let mut files: Vec<ChangedFile> = Vec::new();
        for version in self.at.0..=newest {
            let pieces = match source.pieces(version).await {
                Ok(Some((_, pieces))) => pieces,
                Ok(None) => return Ok(false),
                // A deletion vector.
                Err(e) if e.kind() == Kind::NotFound => return Ok(false),
                Err(e) => return Err(e),
            };
            files.extend(pieces.iter().flat_map(|piece| piece.files()).cloned());
            if files.len() >= FILES_A_LOOK || version == newest {
                if self.log.first_missing(&files).await?.is_some() {
                    return Ok(false);
                }
                files.clear();
            }
        }
        Ok(true)
    }

    async fn standing(&self, version: u64) -> Result<Span> {
        let files = self.log.standing_files(version).await?;
        let told = self.log.version_changes(version).await?.map(|c| c.committed_at_ms);
        let newest_file = files.iter().map(|f| f.modified_ms).max().unwrap_or(0);
        Ok(Span::Standing { files, commit: CommitTold { version, committed_at_ms: told.unwrap_or(newest_file) } })
    }

    fn nothing(&self, table: &SchemaRef, next: NextVersion) -> Result<Changes> {
        let schema = Telling::new(self.kind, table, &self.who.dataset)?.schema();
        Ok(Changes { schema, next: self.token(next), told: None, stop: self.engine.stop.clone() })
    }

    fn token(&self, next: NextVersion) -> Token {
        Token::new(self.kind, next, self.read_from, self.incarnation.as_ref(), &self.who.dataset).of_table(self.of_table)
    }

    /// The columns of a table that is not there yet.
    fn declared_schema(&self) -> SchemaRef {
        let spec = match self.kind {
            ReadKind::Partitions => TableSpec::notifications(),
            ReadKind::Rows => match self.engine.project.dataset(&self.who.dataset.0) {
                Some(dataset) => TableSpec::data(dataset),
                None => TableSpec::notifications(),
            },
        };
        arrow_schema(&spec)
    }
}

/// A name that another process uses too.
pub(super) fn another_reads(name: &str, dataset: &DatasetName) -> Error {
    Error::new(Kind::Conflict, format!("consumer {name} of dataset {dataset} was moved by another reader since this one read"))
        .hint("what was read may be used twice: let one process use the name, and read again")
}

pub(super) fn no_consumer(name: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no consumer {name}"))
        .hint("a consumer begins with: alluvium changes DATASET --consumer NAME")
}
