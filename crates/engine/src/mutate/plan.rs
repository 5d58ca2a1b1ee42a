//! One attempt at moving a table: every file that may hold what changed is looked at, what is to be rewritten is staged.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use alluvium_core::{
    BatchKey, BatchNumber, BatchRecord, Error, Kind, LedgerPosition, LedgerShape, Mutation, PlannedOn, RECORD_FORMAT, Range,
    RecordBody, Recorded, Request, Result, TableFiles, TableSpec, parse_data_file,
};
use alluvium_lake::{ChangedFile, StageSettings, Sweep, live_files_digest};
use futures::{StreamExt, TryStreamExt, stream};

use super::earlier::{Earlier, identity};
use super::file::{Candidate, Looked, Looking, deciding};
use super::run::{Mutating, WouldChange};
use super::wanted::WantedNodes;
use super::whole::Whole;
use crate::ledger::DatasetLedger;
use crate::requests::{Counting, NewRequest, RequestsTried, Retries, StateWriter, mutation_of};
use crate::rewrite::{FILES_AT_ONCE, Rewriter, RewrittenFiles, RewrittenTable, Room};

/// A move of a table that is to be planned.
pub(super) struct Move {
    pub(super) from: LedgerPosition,
    pub(super) to: LedgerPosition,
    /// The ledger at `to`.
    pub(super) ledger: DatasetLedger,
    /// Where the table is.
    pub(super) version: u64,
    /// Its files, with the statistics that the log has of each.
    pub(super) standing: Vec<(ChangedFile, Option<String>)>,
    /// The declaration that its rows were resolved for.
    pub(super) shape: Option<LedgerShape>,
    /// Whether it has a change data feed.
    pub(super) feed: bool,
    /// How far requests were taken in.
    pub(super) taken: LedgerPosition,
    /// So many requests that have no state yet get one, at most, but those of one batch at least.
    pub(super) most_told: u64,
    /// Whether requests that wait are tried though the table does not move.
    pub(super) tries: bool,
    /// Another attempt at the batch was recorded, so there is something to do.
    pub(super) fixed: bool,
    /// What of that attempt still holds.
    pub(super) earlier: Option<Earlier>,
    /// The last batch that is finished; 0: there is none.
    pub(super) after: BatchNumber,
}

/// What a move will look through, and for what.
struct Prepared {
    looking: Arc<Looking>,
    /// Files that go whole and need not be opened.
    whole: Vec<Whole>,
    candidates: Vec<Candidate>,
    /// The requests that have no state yet.
    new: Vec<NewRequest>,
    tried: RequestsTried,
    tries: bool,
    /// Up to which position every request has a state then.
    tells_to: LedgerPosition,
    planned_on: PlannedOn,
    foreign: Vec<String>,
    earlier: Option<Earlier>,
}

impl Mutating<'_> {
    /// Finds out which files a move will look through; `None` if there is nothing to do.
    async fn prepare(&self, a_move: Move) -> Result<Option<Prepared>> {
        let Move { from, to, ledger, version, standing, shape, feed, taken, most_told, tries, fixed, earlier, after } = a_move;
        let spec = TableSpec::data(self.dataset);
        let log = self.engine.log_of(&spec);
        let newest = mutation_of(&self.chain, after).await?;
        let told = newest.as_ref().map_or(LedgerPosition::BEGINNING, |mutation| mutation.told);
        // Of a table that was made at a late position many requests may have no state yet.
        let tells_to = self.engine.batches_at_once(&self.incarnation, BatchNumber(told.0), BatchNumber(to.0), most_told).await?;
        let tells_to = LedgerPosition(tells_to.0).max(told);
        // With another budget it may have told of fewer requests, and looked for no others.
        let earlier = earlier.filter(|earlier| earlier.told == tells_to);
        // An attempt comes with every move, and once a run without; of a move that takes several batches, with the last.
        let tries = (tries || from != to) && tells_to == to && to == taken;
        // Rows that were resolved for another declaration are all looked at again.
        let redeclared = !from.is_beginning() && shape != Some(ledger.shape());
        let covered: HashSet<String> = newest.map(|m| m.foreign.into_iter().collect()).unwrap_or_default();
        let is_foreign = |name: &str| parse_data_file(name).is_none_or(|f| f.chain.incarnation != self.incarnation);
        let foreign: Vec<String> = standing.iter().map(|(f, _)| f.name.clone()).filter(|name| is_foreign(name)).collect();
        let new_foreign: HashSet<&str> = foreign.iter().map(String::as_str).filter(|name| !covered.contains(*name)).collect();
        let resolves_foreign = !new_foreign.is_empty() && to > LedgerPosition::BEGINNING;
        let is_due = from != to || told < to || resolves_foreign || redeclared || fixed;
        if !is_due && !tries {
            return Ok(None);
        }
        let tried = self.engine.requests_tried(&self.dataset.name).await?;
        if !is_due && !tried.any_waits() {
            return Ok(None);
        }
        let partitioned = spec.partition_by.contains(&self.dataset.org);
        let changed_from = if redeclared { LedgerPosition::BEGINNING } else { from };
        let nothing = WantedNodes::new(self.dataset, partitioned);
        let (new, wanted) = wanted_since(&ledger, changed_from, told, tells_to, nothing).await?;
        let mut wanted_of_foreign = WantedNodes::new(self.dataset, partitioned);
        if resolves_foreign {
            let all = LedgerPosition::BEGINNING;
            ledger.changed_since(all, &mut |org, node, up_to| wanted_of_foreign.add(org, node, up_to)).await?;
            ledger.requests_since(all, to, &mut |request| wanted_of_foreign.add_request(&request)).await?;
        }
        let live = standing.iter().map(|(f, _)| identity(f));
        let planned_on = PlannedOn { version, live_files: live_files_digest(live) };
        let schema = log.stored_schema().await?;
        let looking = Arc::new(Looking {
            rewriter: Rewriter::new(self.engine, self.dataset, schema, feed),
            deciding: deciding(&spec, self.dataset, &ledger),
            ledger,
            wanted,
            wanted_of_foreign,
            redeclared,
        });
        let candidates: Vec<Candidate> = standing
            .into_iter()
            .filter(|(file, _)| earlier.as_ref().is_none_or(|earlier| !earlier.knew(file)))
            .map(|(file, stats)| {
                let foreign = new_foreign.contains(file.name.as_str());
                Candidate { file, stats, foreign, told: Vec::new() }
            })
            .filter(|candidate| looking.may_hold(candidate))
            .collect();
        let (whole, candidates) = looking.whole(looking.indexed(candidates).await?).await?;
        Ok(Some(Prepared { looking, whole, candidates, new, tried, tries, tells_to, planned_on, foreign, earlier }))
    }

    /// What a move would do, without doing it.
    pub(super) async fn would(&self, a_move: Move) -> Result<WouldChange> {
        let mut would = WouldChange::default();
        let Some(Prepared { looking, whole, candidates, new, .. }) = self.prepare(a_move).await? else { return Ok(would) };
        would.requests = new.len() as u64;
        would.files_rewritten = whole.len() as u64;
        would.deleted = whole.iter().map(|whole| whole.hits.rows).sum();
        would.files_opened = candidates.len() as u64;
        let looks = candidates.into_iter().map(|candidate| looking.would(candidate));
        let mut looks = stream::iter(looks).buffer_unordered(FILES_AT_ONCE);
        while let Some((updated, deleted)) = looks.try_next().await? {
            would.files_rewritten += u64::from(updated + deleted > 0);
            would.updated += updated;
            would.deleted += deleted;
        }
        Ok(would)
    }

    /// The record of an attempt that makes a move; `None` if there is nothing to do. Requests that wait are tried with a batch that moves
    /// the table, and where the move says so.
    pub(super) async fn plan(&self, key: BatchKey, a_move: Move) -> Result<Option<(BatchRecord, Vec<Sweep>)>> {
        let (from, to) = (a_move.from, a_move.to);
        let Some(prepared) = Box::pin(self.prepare(a_move)).await? else { return Ok(None) };
        let Prepared { looking, whole, candidates, new, tried, tries, tells_to, planned_on, foreign, earlier } = prepared;
        let now_micros = self.engine.clock.now_micros();
        let mut table = RewrittenTable::new(self.engine, &looking.rewriter, self.chain.chain(), key, now_micros);
        table.opened(candidates.len());
        let (settings, sweeps) = (table.settings().clone(), table.sweeps());
        let staged = async {
            let mut counting = Counting::new(self.engine, &looking.ledger, self.dataset);
            if let Some(Earlier { data, rewrites, matched, counts, work, .. }) = earlier {
                counting.count_in(matched);
                table.take_over(data, rewrites, counts, work);
            }
            for Whole { file, counts, hits } in whole {
                counting.add(vec![hits]).await?;
                table.without(&file, counts)?;
            }
            let (table, counting) = Box::pin(self.rewrite(&looking, candidates, table, counting)).await?;
            // The last files are on their way while the states are told.
            let files = tokio::spawn(table.finish());
            let states = Box::pin(self.tell(Telling { counting, new, tried, tries }, &settings));
            let (files, states) = futures::future::join(files, states).await;
            let files = files.map_err(|e| Error::new(Kind::Internal, "staging files").source(e))??;
            Ok((files, states?))
        };
        let (RewrittenFiles { data, rewrites, counts, work }, (retries, outcomes)) = match staged.await {
            Ok(staged) => staged,
            Err(e) => {
                for sweep in sweeps {
                    sweep.run().await;
                }
                return Err(e);
            }
        };
        let recorded = Recorded {
            range: Range::Ledger { from, to },
            data,
            dead_letters: TableFiles::default(),
            retries,
            outcomes,
            ledger: from,
            shape: Some(looking.ledger.shape()),
            mutation: Some(Mutation { to, planned_on, foreign, rewrites, told: tells_to, work }),
            rewrite: None,
            counts,
            skipped: 0,
            staged_at_micros: now_micros,
        };
        let record = BatchRecord {
            format: RECORD_FORMAT,
            chain: self.chain.chain().clone(),
            batch: key.batch,
            attempt: key.attempt,
            body: RecordBody::Intent(Box::new(recorded)),
        };
        Ok(Some((record, sweeps)))
    }

    /// Stages what becomes of requests: rows of `retries`, and the outcomes of what rows matched.
    async fn tell(&self, telling: Telling, settings: &StageSettings) -> Result<(TableFiles, TableFiles)> {
        let Telling { counting, new, tried, tries } = telling;
        let mut matched = counting.finish().await?;
        let (seen, unseen): (Vec<NewRequest>, Vec<NewRequest>) =
            new.into_iter().partition(|request| matched.contains_key(&request.id));
        let mut open = Retries::new();
        let seen: HashSet<String> = seen.into_iter().map(|request| request.id).collect();
        if seen.len() < matched.len() {
            let others: Vec<&str> = matched.keys().map(String::as_str).filter(|id| !seen.contains(*id)).collect();
            open = tried.among(&others).await?;
            matched.retain(|id, _| seen.contains(id) || open.contains_key(id));
        }
        drop(seen);
        let matched_before = self.engine.matched_at_ingest(&self.dataset.name, &unseen).await?;
        let mut states = StateWriter::new(self.engine, &self.dataset.name, settings);
        for NewRequest { id, org } in unseen.into_iter().filter(|request| !matched_before.contains(&request.id)) {
            states = states.unseen(id, org, 1).await?;
        }
        for (id, retry) in open {
            states = states.seen(id, retry.org, retry.attempts).await?;
        }
        if tries {
            let mut waiting = tried.waiting().await?;
            while let Some(of_file) = waiting.try_next().await? {
                for (id, retry) in of_file.into_iter().filter(|(id, _)| !matched.contains_key(id)) {
                    states = states.unseen(id, retry.org, retry.attempts + 1).await?;
                }
            }
        }
        let (mut retries, outcomes) = states.finish(&matched).await?;
        // What waits was written anew.
        retries.removes = if tries { tried.files_of_waiting() } else { Vec::new() };
        Ok((retries, outcomes))
    }

    /// Looks at the candidates and stages what stands in their places.
    async fn rewrite(
        &self,
        looking: &Arc<Looking>,
        candidates: Vec<Candidate>,
        mut table: RewrittenTable,
        mut counting: Counting,
    ) -> Result<(RewrittenTable, Counting)> {
        let looks = candidates.into_iter().map(|candidate| {
            let (looking, bytes) = (looking.clone(), candidate.file.size);
            (bytes, async move { looking.look(candidate).await })
        });
        let mut looks = Room::new(self.engine, self.dataset).looked(looks);
        while let Some((looked, held)) = looks.try_next().await? {
            let Looked { file, rewrite, hits } = looked;
            counting.add(hits).await?;
            if let Some(rewrite) = rewrite {
                table = table.with(&file, rewrite, held).await?;
            }
        }
        Ok((table, counting))
    }
}

/// What a batch needs to tell of requests.
struct Telling {
    counting: Counting,
    new: Vec<NewRequest>,
    tried: RequestsTried,
    tries: bool,
}

/// The requests after `told`, up to `tells_to`, and what is looked for: what they are about, and what fates are that changed after `changed_from`.
async fn wanted_since(
    ledger: &DatasetLedger,
    changed_from: LedgerPosition,
    told: LedgerPosition,
    tells_to: LedgerPosition,
    nothing: WantedNodes,
) -> Result<(Vec<NewRequest>, WantedNodes)> {
    let (reader, mut wanted) = (ledger.clone(), nothing.clone());
    let of_requests = tokio::spawn(async move {
        let (mut new, mut orgs) = (Vec::new(), BTreeSet::<Arc<str>>::new());
        let mut tell = |request: Request| {
            wanted.add_request(&request);
            let org = orgs.get(request.org.as_str()).cloned().unwrap_or_else(|| request.org.into());
            orgs.insert(org.clone());
            new.push(NewRequest { id: request.id, org });
        };
        reader.requests_since(told, tells_to, &mut tell).await.map(|()| (new, wanted))
    });
    let mut of_fates = nothing;
    let changed = ledger.changed_since(changed_from, &mut |org, node, up_to| of_fates.add(org, node, up_to)).await;
    let (new, mut wanted) = of_requests.await.map_err(|e| Error::new(Kind::Internal, "reading requests").source(e))??;
    changed?;
    wanted.absorb(of_fates);
    Ok((new, wanted))
}
