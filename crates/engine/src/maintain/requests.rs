//! The purge of requests: ids that erasures for privacy made go, in every dataset that a request counts for, are replaced by their pseudonyms.
//!
//! It goes as far as the data tables are purged, so that what is folded again from then on tells of nothing that a table still holds. Whatever
//! files hold such ids are written anew, by a chain of their own whose batches are numbered as the purges are: a file's name tells readers which
//! pseudonyms they need. Then files, log entries and folded ledgers go that spell them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, BatchOutcome, BatchRecord, BatchSpan, Dataset, Delete, DoneMark, Error, Incarnation, Job,
    Kind, LedgerBuilder, LedgerPosition, Node, Op, OrgPseudonyms, Pseudonyms, RECORD_FORMAT, Range, RecordBody, Recorded,
    Request, Resolver, Result, Scope, Shape, Shard, TableFiles, TableName, TableSpec, app_id, parse_data_file,
};
use alluvium_lake::{
    ChainStore, Commit, DeltaLog, LedgerRule, LiveFile, Published, Purged, PurgedTo, PutNew, StageSettings, Stager, blocking,
};

use super::purge::Purge;
use crate::engine::Engine;
use crate::ingest::drop_old_records;
use crate::requests::replaced_rows;

/// Attempts that other programs were quicker than are given up after so many, until the next vacuum.
const MAX_ATTEMPTS: u32 = 20;

/// The ids that are purged, by dataset: their fields and pseudonyms.
type GoneIds = Vec<BTreeSet<(String, String)>>;

/// What must be replaced in the requests of some organisations.
struct Replacing {
    shapes: Vec<Arc<Shape>>,
    /// By organisation.
    gone: BTreeMap<String, (Arc<OrgPseudonyms>, GoneIds)>,
}

impl Replacing {
    /// A request with pseudonyms where its ids are purged for every dataset that it counts for.
    fn replaced(&self, request: &Request) -> Option<(Request, &OrgPseudonyms)> {
        let (pseudonyms, gone) = self.gone.get(&request.org)?;
        let is_everywhere = |field: &str, pseudonym: &str| {
            let id = (field.to_owned(), pseudonym.to_owned());
            let has = |shape: &Shape| is_named_by(shape, request) && shape.identity_fields().any(|name| name == field);
            let counts = |shape: &Shape| !shape.nodes(request).is_empty();
            // An update of columns that a dataset does not have is nothing to it. A convert to an id that its column cannot hold is nothing either,
            // but would not be told from others once the id is replaced, so it stays.
            let is_about = |shape: &Shape| has(shape) && (counts(shape) || !matches!(request.op, Op::Update { .. }));
            let mut about = self.shapes.iter().zip(gone).filter(|(shape, _)| is_about(shape)).peekable();
            about.peek().is_some() && about.all(|(shape, gone)| counts(shape) && gone.contains(&id))
        };
        Some((pseudonyms.replaced(request, &is_everywhere)?, pseudonyms.as_ref()))
    }
}

fn is_named_by(shape: &Shape, request: &Request) -> bool {
    request.dataset.as_ref().is_none_or(|name| name == shape.dataset())
}

/// Whether a request purges ids of some dataset.
fn purges(request: &Request, shapes: &[Arc<Shape>]) -> bool {
    let Op::Delete(Delete { scope: Scope::Subject(_), privacy: true, .. }) = &request.op else { return false };
    let is_id = |node: &Node<'_>| matches!(node, Node::Id { .. });
    shapes.iter().any(|shape| shape.nodes(request).iter().any(is_id))
}

impl Engine {
    /// Replaces the ids in requests that are purged in the data tables. What of the table must go then; `None`: nothing.
    pub(super) async fn purge_requests(
        &self,
        incarnation: &Incarnation,
        log: &DeltaLog,
        now_ms: i64,
        dry_run: bool,
    ) -> Result<Option<Purge>> {
        if dry_run {
            return Ok(None);
        }
        self.forget_pseudonyms();
        let chain = self.chain(incarnation, Job::Vacuum, self.requests_intake(), Shard::WHOLE);
        // What is under way holds up whatever else looks back.
        self.end_replacing(incarnation, log, &chain).await?;
        let to = self.purged_in_all(incarnation).await?;
        let before = PurgedTo::new(&self.store, &self.resolver, &TableName::REQUESTS).get().await?;
        if to <= before.to {
            return Ok(None);
        }
        let purged = Purged { to, erased_until: None };
        let shapes: Vec<Arc<Shape>> = self.project.datasets.iter().map(|dataset| Arc::new(Shape::of(dataset))).collect();
        let orgs = self.orgs_with_erasures(incarnation, before.to, to, &shapes).await?;
        for _ in 0..MAX_ATTEMPTS {
            if !orgs.is_empty() && Box::pin(self.replace_once(incarnation, log, &chain, &orgs, to, &shapes)).await? {
                self.end_replacing(incarnation, log, &chain).await?;
                continue;
            }
            // One that was held up before it came to its end is gone on with.
            let last = chain.listing().await?.newest_done();
            let mark = match last {
                Some(last) => chain.done_mark(last).await?,
                None => None,
            };
            return match mark {
                Some(mark) => Ok(Some(Purge::now(mark.table_version, now_ms, purged))),
                None => self.purged(&TableSpec::requests(), purged, now_ms).await.map(|()| None),
            };
        }
        Err(Error::new(Kind::Unavailable, "the table requests changed whenever its ids were replaced").hint("run again later"))
    }

    /// How far all data tables are purged.
    async fn purged_in_all(&self, incarnation: &Incarnation) -> Result<LedgerPosition> {
        let mut to = LedgerPosition(self.requests_taken(incarnation).await?.0);
        for dataset in &self.project.datasets {
            let spec = TableSpec::data(dataset);
            // One that is not there yet is made at the newest position.
            if self.log_of(&spec).exists().await? {
                to = to.min(PurgedTo::new(&self.store, &self.resolver, &spec.name).get().await?.to);
            }
        }
        Ok(to)
    }

    /// The organisations whose requests may spell ids that were not purged in them: those with an erasure behind one position and up to another,
    /// and those with any request there of whose ids some were replaced before.
    async fn orgs_with_erasures(
        &self,
        incarnation: &Incarnation,
        after: LedgerPosition,
        to: LedgerPosition,
        shapes: &[Arc<Shape>],
    ) -> Result<BTreeSet<String>> {
        let known = self.pseudonyms(incarnation).await?;
        let mut orgs = BTreeSet::new();
        self.each_accepted(incarnation, after, to, &mut |request, _| {
            if known.of_org(&request.org).is_some() || purges(request, shapes) {
                orgs.insert(request.org.clone());
            }
        })
        .await?;
        Ok(orgs)
    }

    /// Tells the requests of the batches behind one position up to another, in parts as large as the memory allows.
    async fn each_accepted(
        &self,
        incarnation: &Incarnation,
        after: LedgerPosition,
        to: LedgerPosition,
        tell: &mut (dyn FnMut(&Request, BatchNumber) + Send),
    ) -> Result<()> {
        let (mut from, to) = (BatchNumber(after.0), BatchNumber(to.0));
        while from < to {
            let next = self.batches_at_once(incarnation, from, to, self.requests_folded_at_once()).await?;
            let Some(span) = BatchSpan::new(from, next) else { break };
            for accepted in self.accepted(incarnation, span, None).await? {
                tell(&accepted.request, accepted.batch);
            }
            from = next;
        }
        Ok(())
    }

    /// Brings the batch that is under way to its end: as it was recorded, or as one that changes nothing.
    async fn end_replacing(&self, incarnation: &Incarnation, log: &DeltaLog, chain: &ChainStore) -> Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            let listing = chain.listing().await?;
            let Some(newest) = listing.newest() else { return Ok(()) };
            if listing.done.contains(&newest.batch) {
                return drop_old_records(chain, &listing, newest.batch).await;
            }
            if let Some(record) = chain.record(newest).await?
                && self.publish_replaced(incarnation, log, chain, &record, true).await?.is_some()
            {
                continue;
            }
            let too_often = || Error::new(Kind::Internal, "replacing ids in requests was attempted too often");
            let key = BatchKey { attempt: newest.attempt.next().ok_or_else(too_often)?, ..newest };
            let nothing = self.record(chain, key, LedgerPosition::BEGINNING, TableFiles::default());
            let _or_what_stands_there = self.write_and_publish(incarnation, log, chain, &nothing).await?;
        }
        Err(Error::new(Kind::Unavailable, "a purge of requests does not come to its end").hint("run again later"))
    }

    /// One batch that replaces what must be, unless nothing must; whether it may be that more must.
    async fn replace_once(
        &self,
        incarnation: &Incarnation,
        log: &DeltaLog,
        chain: &ChainStore,
        orgs: &BTreeSet<String>,
        to: LedgerPosition,
        shapes: &[Arc<Shape>],
    ) -> Result<bool> {
        let batch = chain.listing().await?.newest().map_or(BatchNumber::FIRST, |newest| newest.batch.next());
        let key = BatchKey { batch, attempt: Attempt::FIRST };
        let erasure_key = self.erasure_key_or_new(incarnation).await?;
        self.check_life(incarnation).await?;
        let salts = self.erasure(incarnation).give_salts(batch.0, orgs.iter().map(String::as_str)).await?;
        // Salts that another process gave under this number may lack one; they have it under the next.
        let has_all = orgs.iter().all(|org| salts.contains_key(org));
        let pseudonyms = Pseudonyms::new(batch.0, &erasure_key, salts);
        let replacing = self.replacing(incarnation, &pseudonyms, orgs, to, shapes).await?;
        let data = match self.stage_replaced(log, chain, key, Arc::new(replacing)).await? {
            None if has_all => return Ok(false),
            data => data.unwrap_or_default(),
        };
        let record = self.record(chain, key, to, data);
        let published = self.write_and_publish(incarnation, log, chain, &record).await?;
        Ok(!published || !has_all)
    }

    /// Records an attempt and publishes it; whether the table carries this one.
    async fn write_and_publish(
        &self,
        incarnation: &Incarnation,
        log: &DeltaLog,
        chain: &ChainStore,
        record: &BatchRecord,
    ) -> Result<bool> {
        if chain.write(record).await? == PutNew::Exists {
            return Ok(false);
        }
        let carried = self.publish_replaced(incarnation, log, chain, record, false).await?;
        Ok(carried == Some(record.key()))
    }

    fn record(&self, chain: &ChainStore, key: BatchKey, to: LedgerPosition, data: TableFiles) -> BatchRecord {
        let recorded = Recorded {
            range: Range::Ledger { from: LedgerPosition::BEGINNING, to },
            data,
            dead_letters: TableFiles::default(),
            retries: TableFiles::default(),
            outcomes: TableFiles::default(),
            ledger: LedgerPosition::BEGINNING,
            shape: None,
            mutation: None,
            rewrite: None,
            counts: Vec::new(),
            skipped: 0,
            staged_at_micros: self.clock.now_micros(),
        };
        let (format, BatchKey { batch, attempt }) = (RECORD_FORMAT, key);
        BatchRecord { format, chain: chain.chain().clone(), batch, attempt, body: RecordBody::Intent(Box::new(recorded)) }
    }

    /// Publishes what was recorded, and marks the batch as done. The attempt that the table carries; `None`: it takes another.
    async fn publish_replaced(
        &self,
        incarnation: &Incarnation,
        log: &DeltaLog,
        chain: &ChainStore,
        record: &BatchRecord,
        resumed: bool,
    ) -> Result<Option<BatchKey>> {
        let RecordBody::Intent(recorded) = &record.body else { return Ok(None) };
        self.check_life(incarnation).await?;
        let app = app_id(chain.chain());
        let commit = Commit {
            app_id: &app,
            incarnation,
            key: record.key(),
            adds: &recorded.data.adds,
            removes: &recorded.data.removes,
            marks: &recorded.data.marks,
            changes: &[],
            rewrites: None,
            ledger: LedgerRule::None,
            decides: true,
            resumed,
            now_ms: self.clock.now_ms(),
        };
        let (key, table_version) = match log.publish(&commit).await? {
            Published::Committed { version } => (record.key(), version),
            Published::AlreadyPublished { key } => (key, log.version_of(&app, key).await?.0),
            Published::Refused { .. } | Published::Moved => return Ok(None),
            Published::Fenced { newest } => {
                return Err(Error::new(
                    Kind::Fenced,
                    format!("another process has taken over the purge of requests; it is at {newest}"),
                )
                .hint("nothing is lost and nothing to do: the other process goes on"));
            }
        };
        let mark = DoneMark {
            format: RECORD_FORMAT,
            batch: key.batch,
            attempt: key.attempt,
            table_version,
            outcome: BatchOutcome::default(),
            committed_at_ms: commit.now_ms,
        };
        chain.mark_done(&mark).await?;
        self.forget_pseudonyms();
        Ok(Some(key))
    }

    /// What the requests up to a position make go, in organisations that have pseudonyms.
    async fn replacing(
        &self,
        incarnation: &Incarnation,
        pseudonyms: &Pseudonyms,
        orgs: &BTreeSet<String>,
        to: LedgerPosition,
        shapes: &[Arc<Shape>],
    ) -> Result<Replacing> {
        let mut builders: BTreeMap<String, Vec<LedgerBuilder>> = BTreeMap::new();
        self.each_accepted(incarnation, LedgerPosition::BEGINNING, to, &mut |request, batch| {
            let Some(of_org) = pseudonyms.of_org(&request.org).filter(|_| orgs.contains(&request.org)) else { return };
            // Updates make nothing go.
            if matches!(request.op, Op::Update { .. }) {
                return;
            }
            if !builders.contains_key(&request.org) {
                let builder = |shape: &Arc<Shape>| LedgerBuilder::with_pseudonyms(shape.clone(), Some(of_org.clone()));
                builders.insert(request.org.clone(), shapes.iter().map(builder).collect());
            }
            for builder in builders.get_mut(&request.org).into_iter().flatten() {
                let _counts = builder.push(request, batch);
            }
        })
        .await?;
        let mut gone = BTreeMap::new();
        for (org, builders) in builders {
            let Some(of_org) = pseudonyms.of_org(&org) else { continue };
            let of_dataset = |builder: LedgerBuilder| {
                let mut ids = BTreeSet::new();
                builder.build().purged(BatchNumber(to.0), &mut |field, pseudonym| {
                    ids.insert((field.to_owned(), pseudonym.to_owned()));
                });
                ids
            };
            let ids: GoneIds = builders.into_iter().map(of_dataset).collect();
            gone.insert(org, (of_org.clone(), ids));
        }
        Ok(Replacing { shapes: shapes.to_vec(), gone })
    }

    /// Stages anew the files that spell what must be replaced; `None`: none does.
    async fn stage_replaced(
        &self,
        log: &DeltaLog,
        chain: &ChainStore,
        key: BatchKey,
        replacing: Arc<Replacing>,
    ) -> Result<Option<TableFiles>> {
        let mut files = log.live_files(None).await?;
        // Each is staged anew as a file of its own, which keeps a file to one batch.
        files.sort_by_key(batch_of);
        let settings = StageSettings {
            chain: chain.chain().clone(),
            key,
            now_ms: self.clock.now_ms(),
            org: None,
            files_in_flight: 1,
            index: None,
        };
        let mut stager: Option<Stager> = None;
        let mut removes = Vec::new();
        for file in files {
            let mut rows = log.read_file(&file.path).await?;
            let mut changes = false;
            for batch in &mut rows {
                if let Some(replaced) = replaced_rows(batch, &|request| replacing.replaced(request))? {
                    (*batch, changes) = (replaced, true);
                }
            }
            if !changes {
                continue;
            }
            if file.mark.is_some() {
                return Err(Error::new(Kind::Unsupported, "another program deleted rows of the table requests").hint(
                    "restore the version before it: requests are replaced by what stands for erased ids, and never deleted",
                ));
            }
            let staging = stager.take().unwrap_or_else(|| Stager::new(log, &TableSpec::requests(), settings.clone()));
            stager = Some(blocking("replacing ids in requests", move || staging.stage(rows).map(|()| staging)).await?);
            removes.push(file.path);
        }
        let Some(stager) = stager else { return Ok(None) };
        let (staged, _) = stager.finish().await?;
        Ok(Some(TableFiles { removes, ..staged }))
    }

    /// Removes the ledgers that were folded from requests as they were before the last purge of them.
    pub(super) async fn drop_old_ledgers(&self, incarnation: &Incarnation) -> Result<()> {
        let now = self.purges_of_requests().await?;
        let directory = object_store::path::Path::from(self.resolver.ledgers_dir());
        for name in self.store.list_directories(&directory).await? {
            if !Resolver::is_older_ledger(&name, incarnation, now) {
                continue;
            }
            let old = directory.clone().join(name);
            let files = self.store.list(&old, None).await?;
            self.store.delete_all(files.into_iter().map(|found| found.path).collect()).await?;
            self.store.remove_empty_directories(&old, &directory).await?;
        }
        Ok(())
    }
}

/// Orders files of the table `requests` by the batch that the names of the intake's own tell; those of purges go first.
fn batch_of(file: &LiveFile) -> (BatchNumber, String) {
    let own =
        parse_data_file(&file.path).filter(|name| name.chain.dataset.0 == Dataset::REQUESTS && name.chain.job == Job::Mutate);
    (own.map_or(BatchNumber(0), |name| name.key.batch), file.path.clone())
}
