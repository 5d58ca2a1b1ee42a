//! The commit loop: a batch gets into a table's log once, whatever answers are lost and whoever else tries.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use alluvium_core::{
    AddedFile, BatchKey, Error, Incarnation, Kind, LedgerPosition, LedgerShape, PlannedOn, Result, TxnVersion, ledger_app_id,
    shape_app_id,
};
use bytes::Bytes;
use serde_json::{Value, json};

use super::actions::CommitText;
use super::files::mark_of_logged;
use super::state::{LOOK_INTERVAL, MAX_LOOKS, TableState};
use super::table::{DeltaLog, entry_version};
use crate::machine::Machine;
#[cfg(feature = "plants")]
use crate::plant::Plant;
use crate::store::PutNew;

/// A commit is given up, loudly, after losing this many races.
const MAX_TRIES: u32 = 1000;
/// A checkpoint is written when this many versions have passed since the last.
const CHECKPOINT_INTERVAL: u64 = 100;

/// What a batch does to one table.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    /// The chain's application id.
    pub app_id: &'a str,
    /// The life of the namespace that the chain and the table belong to.
    pub incarnation: &'a Incarnation,
    /// The batch and attempt.
    pub key: BatchKey,
    /// Files to add.
    pub adds: &'a [AddedFile],
    /// Files to remove, all of which must be live.
    pub removes: &'a [String],
    /// The deletion vectors, as the log spells them, that those of them have which have one.
    pub marks: &'a BTreeMap<String, Value>,
    /// Files of the change data feed, for a table that has one.
    pub changes: &'a [AddedFile],
    /// The name of the file that says which rows the commit changes in the files it replaces.
    pub rewrites: Option<&'a str>,
    /// What the table must be, and become, with respect to the ledger.
    pub ledger: LedgerRule<'a>,
    /// Whether this is the chain's deciding table, where every batch commits, so that none may be missing before this one.
    pub decides: bool,
    /// Whether somebody may have tried before: then files that are live already count as carried, and are not added again.
    pub resumed: bool,
    /// The time to write into the log, in milliseconds since 1970.
    pub now_ms: i64,
}

/// What a commit asks of the ledger's position in its table, so that at every version each live row is what the ledger at the
/// table's position makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerRule<'a> {
    /// The table's rows are no ledger's business.
    None,
    /// Rows come that were resolved at this position, for this declaration: the table must be at it. Where its other rows were resolved
    /// for another declaration, the table is marked as mixed, and the next move looks at all of them.
    At {
        /// The position.
        position: LedgerPosition,
        /// The declaration.
        shape: LedgerShape,
        /// The declaration that whoever commits knows: rows that were resolved for another are resolved again.
        declared: LedgerShape,
    },
    /// Rows go, or come to stand in another file, and those that stay are what they were, whatever the table's position.
    Keeps,
    /// The table moves. It must be at `from`, and its live files those it was planned on.
    Moves {
        /// Where it is.
        from: LedgerPosition,
        /// Where it goes.
        to: LedgerPosition,
        /// The declaration that its rows are resolved for afterwards.
        shape: LedgerShape,
        /// The files that were looked through.
        planned_on: &'a PlannedOn,
    },
}

/// How publishing a batch to a table came out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Published {
    /// This commit is in the log, at this version.
    Committed {
        /// The version.
        version: u64,
    },
    /// The log carries this batch already, maybe by another attempt.
    AlreadyPublished {
        /// The attempt the log carries.
        key: BatchKey,
    },
    /// The log carries a later batch of the chain: whoever publishes this one is old and must stop.
    Fenced {
        /// The batch the log has come to.
        newest: BatchKey,
    },
    /// The batch cannot be published as recorded: the table is at another position of the ledger, or files came or went that the
    /// batch was not planned with.
    Moved,
    /// The batch cannot be published as recorded, because a file it removes is not live.
    Refused {
        /// The first such file.
        missing: String,
    },
}

impl DeltaLog {
    /// Publishes a batch to this table. On return the commit is visible and durable, or it is known why it is not. May be
    /// repeated, by this or any other process.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is no table, [`Kind::Fenced`] if it is another incarnation's, [`Kind::Corrupt`] if the log
    /// lacks the batch before this one,
    /// [`Kind::Unsupported`] if the table was upgraded, [`Kind::Unavailable`] if the store failed or every race was lost.
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the batch is in the log once or not at all; publish it again.
    pub async fn publish(&self, commit: &Commit<'_>) -> Result<Published> {
        let table = self.root().to_string();
        let mut state = match self.known_state(commit.app_id) {
            // What this process saw last may be old, so nothing is concluded from it but what to try first.
            Some(known) if matches!(settled(&known, commit, &table), Ok(None)) && known.check_protocol(&table).is_ok() => known,
            // A log that lacks what was finished may be a listing that is late.
            _ => {
                self.looking_again(|| async {
                    let state = self.existing_state(commit.app_id).await?;
                    settled(&state, commit, &table).map(|_| state)
                })
                .await?
            }
        };
        for round in 0..MAX_TRIES {
            if let Some(settled) = settled(&state, commit, &table)? {
                return Ok(settled);
            }
            state.check_protocol(&table)?;
            state.check_incarnation(commit.incarnation, &table)?;
            let adds = match self.planned(commit, &state).await {
                Ok(adds) => adds,
                Err(Err(e)) if !matches!(e.kind(), Kind::Corrupt | Kind::NotFound) => return Err(e),
                // What this process saw last may be old, or cleaned up since: only what stands there now tells.
                Err(answer) => match self.other_than(&state, matches!(answer, Ok(Published::Refused { .. }))).await? {
                    Some(fresh) => {
                        state = fresh;
                        continue;
                    }
                    None => return answer,
                },
            };
            let target = state.version + 1;
            let bytes = commit_bytes(commit, &adds, &state, self.store().machine().as_ref());
            #[cfg(feature = "plants")]
            if Plant::TrustCommitError.grows() && self.store().put_trusting(&self.entry_path(target), &bytes).await.is_err() {
                state.version = self.versions(None).await?.last().copied().unwrap_or(state.version);
                continue;
            }
            let put = self.store().put_new(&self.entry_path(target), bytes).await?;
            // Whatever the answer: what counts is what a fresh listing shows from the version on that was committed onto.
            let after = self.after(state.version).await?;
            let seen: Vec<u64> = after.names.iter().filter_map(|name| entry_version(name)).collect();
            if put == PutNew::Created && after.base_stands && seen == [target] && after.names.len() == 1 {
                state.version = target;
                state.txn = Some(TxnVersion::from(commit.key).0);
                if let LedgerRule::Moves { to, shape, .. } = commit.ledger {
                    (state.ledger, state.shape) = (to, Some(shape));
                }
                if mixes(commit, &state) {
                    state.shape = Some(LedgerShape::MIXED);
                }
                self.remember(&state);
                self.checkpoint_if_due(target).await;
                return Ok(Published::Committed { version: target });
            }
            if put == PutNew::Created && !after.base_stands && seen == [target] && after.names.len() == 1 {
                // No cleanup leaves nothing from the version below on: the table was deleted. An entry of ours must not be in the way
                // of the one that is made there next.
                self.store().delete(&self.entry_path(target)).await?;
                self.forget(commit.app_id);
                return Err(Error::new(Kind::Fenced, format!("table {table} was deleted while a batch was under way"))
                    .hint("the namespace was deleted, or the table's directory: run again"));
            }
            state = if put == PutNew::Exists && after.base_stands && contiguous(&seen, target) {
                self.advanced(state, &seen).await?
            } else {
                // Our name is there and others too (a checkpoint is enough: cleanup may have left nothing else), or it is not, or the
                // version below it is gone: only a read from the newest checkpoint tells whether the name was free because it had
                // been cleaned up.
                let fresh = self.existing_state(commit.app_id).await?;
                if fresh.txn() == Some(TxnVersion::from(commit.key)) && put == PutNew::Created {
                    // Another process may have published the same record, and ours stand where nobody sees it.
                    let (version, _) = self.version_of(commit.app_id, commit.key).await?;
                    return Ok(Published::Committed { version });
                }
                fresh
            };
            backoff(round, self.store().machine().as_ref()).await;
        }
        Err(Error::new(Kind::Unavailable, format!("committing to table {table}: {MAX_TRIES} races lost to other writers"))
            .hint("run again when fewer writers are at work on the table; the batch is kept and taken up again"))
    }

    /// The version that carries `key` of the application, and that commit's own time in milliseconds.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if no entry that is still in the log does.
    pub async fn version_of(&self, app_id: &str, key: BatchKey) -> Result<(u64, i64)> {
        self.looking_again(|| self.version_seen(app_id, key)).await
    }

    async fn version_seen(&self, app_id: &str, key: BatchKey) -> Result<(u64, i64)> {
        let wanted = TxnVersion::from(key).0;
        for version in self.versions(None).await?.into_iter().rev() {
            let actions = self.commit_actions(version).await?;
            if actions.txns.iter().any(|t| t.app_id == app_id && t.version == wanted) {
                return Ok((version, actions.timestamp_ms.unwrap_or_default()));
            }
        }
        Err(Error::new(Kind::Corrupt, format!("table {}: the log entry of batch {key} is gone", self.root()))
            .hint("log entries were removed before their batch was finished; restore them from a backup"))
    }

    /// The versions that moved the table to positions of the ledger behind `position`, ascending, as far back as the log tells: each position, the
    /// version, and that commit's own time in milliseconds.
    ///
    /// # Errors
    /// As [`DeltaLog::state`].
    pub async fn moves_after(
        &self,
        incarnation: &Incarnation,
        position: LedgerPosition,
    ) -> Result<Vec<(LedgerPosition, u64, i64)>> {
        let app = ledger_app_id(incarnation);
        let mut moves = Vec::new();
        for version in self.versions(None).await?.into_iter().rev() {
            let actions = self.commit_actions(version).await?;
            let at = actions.txns.iter().filter(|txn| txn.app_id == app).map(|txn| txn.version).max();
            match at.and_then(|at| u64::try_from(at).ok()) {
                Some(at) if at <= position.0 => break,
                Some(at) => moves.push((LedgerPosition(at), version, actions.timestamp_ms.unwrap_or(0))),
                None => {}
            }
        }
        moves.reverse();
        Ok(moves)
    }

    /// What belongs to versions above `version`, and whether that one still stands there, as an entry or a checkpoint.
    async fn after(&self, version: u64) -> Result<After> {
        let mut names = self.names(version.checked_sub(1)).await?;
        let base = format!("{version:020}");
        let base_stands = names
            .iter()
            .filter_map(|name| name.strip_prefix(&base))
            .any(|rest| rest == ".json" || rest.starts_with(".checkpoint"));
        names.retain(|name| name[..base.len()] > base[..]);
        Ok(After { base_stands, names })
    }

    /// The state of a table that must be there.
    async fn existing_state(&self, app_id: &str) -> Result<TableState> {
        let gone =
            || Error::new(Kind::NotFound, format!("table {} is gone", self.root())).hint("restore it, or delete the namespace");
        self.looking_again(|| async { self.state(app_id).await?.ok_or_else(gone) }).await
    }

    async fn advanced(&self, mut state: TableState, versions: &[u64]) -> Result<TableState> {
        for version in versions {
            let actions = self.commit_actions(*version).await?;
            state.advance(*version, &actions);
        }
        Ok(state)
    }

    /// The table as it stands now, if that is not the version that was seen; looked for longer where a listing that is late would do harm.
    async fn other_than(&self, seen: &TableState, longer: bool) -> Result<Option<TableState>> {
        let mut looks = 1;
        loop {
            let fresh = self.existing_state(&seen.app_id).await?;
            // One that shows less than was seen is late.
            let may_be_late = if longer { fresh.version <= seen.version } else { fresh.version < seen.version };
            if may_be_late && looks < MAX_LOOKS {
                looks += 1;
                self.store().machine().sleep(LOOK_INTERVAL).await;
                continue;
            }
            return Ok(Some(fresh).filter(|fresh| fresh.version != seen.version));
        }
    }

    /// The files to add on top of a version, or why the commit does not fit there.
    async fn planned<'a>(
        &self,
        commit: &Commit<'a>,
        state: &TableState,
    ) -> std::result::Result<Vec<&'a AddedFile>, Result<Published>> {
        if !self.keeps_to_the_ledger(commit, state).await.map_err(Err)? {
            return Err(Ok(Published::Moved));
        }
        if let Some(missing) = self.first_not_live(commit, state.version).await.map_err(Err)? {
            return Err(Ok(Published::Refused { missing }));
        }
        self.not_carried(commit, state.version).await.map_err(Err)
    }

    /// Whether the table is what the commit's rows were resolved with.
    async fn keeps_to_the_ledger(&self, commit: &Commit<'_>, state: &TableState) -> Result<bool> {
        #[cfg(feature = "plants")]
        if is_let_pass(commit, state) {
            return Ok(true);
        }
        match commit.ledger {
            LedgerRule::None => Ok(true),
            LedgerRule::At { position, shape, declared } => {
                Ok(state.ledger == position && (position.is_beginning() || shape == declared))
            }
            // Planned before the table had a feed, a rewrite lacks what the feed must tell.
            LedgerRule::Moves { .. } | LedgerRule::Keeps
                if state.has_change_data_feed() && commit.changes.is_empty() && !commit.removes.is_empty() =>
            {
                Ok(false)
            }
            LedgerRule::Keeps => Ok(true),
            LedgerRule::Moves { from, planned_on, .. } => Ok(state.ledger == from
                && (planned_on.version == state.version
                    || planned_on.live_files == self.live_files_digest(state.version).await?)),
        }
    }

    /// The first file to remove that is not live as it was, with the same rows marked as deleted.
    async fn first_not_live(&self, commit: &Commit<'_>, version: u64) -> Result<Option<String>> {
        if commit.removes.is_empty() {
            return Ok(None);
        }
        let live: HashMap<String, Option<String>> =
            self.live_files(Some(version)).await?.into_iter().map(|f| (f.path, f.mark)).collect();
        let as_it_was = |path: &String| live.get(path) == Some(&commit.marks.get(path).map(mark_of_logged));
        Ok(commit.removes.iter().find(|path| !as_it_was(path)).cloned())
    }

    /// The files that the commit still has to add: an add of a path that is live already means carried.
    async fn not_carried<'a>(&self, commit: &Commit<'a>, version: u64) -> Result<Vec<&'a AddedFile>> {
        if !commit.resumed || commit.adds.is_empty() {
            return Ok(commit.adds.iter().collect());
        }
        let live: HashSet<String> = self.live_files(Some(version)).await?.into_iter().map(|f| f.path).collect();
        Ok(commit.adds.iter().filter(|add| !live.contains(&add.path)).collect())
    }

    async fn checkpoint_if_due(&self, version: u64) {
        if !version.is_multiple_of(CHECKPOINT_INTERVAL) {
            return;
        }
        if let Err(error) = self.checkpoint(version).await {
            tracing::warn!(table = %self.root(), version, error = %error.chain_text(), "could not write a checkpoint; the log is longer to read, nothing is lost");
        }
    }
}

/// A listing of a log from one version on.
struct After {
    base_stands: bool,
    /// What belongs to later versions.
    names: Vec<String>,
}

/// What the state already settles about a batch. Settled is `>=`, never `==`.
fn settled(state: &TableState, commit: &Commit<'_>, table: &str) -> Result<Option<Published>> {
    let key = commit.key;
    let carried = state.txn().and_then(TxnVersion::key);
    #[cfg(feature = "plants")]
    if Plant::SkipTxnCheck.grows() || (Plant::TxnEquality.grows() && carried.is_some_and(|c| c.batch > key.batch)) {
        return Ok(None);
    }
    match carried {
        Some(newest) if newest.batch > key.batch => Ok(Some(Published::Fenced { newest })),
        Some(there) if there.batch == key.batch => Ok(Some(Published::AlreadyPublished { key: there })),
        before => {
            let before = before.map_or(0, |k| k.batch.0);
            if !commit.decides || before + 1 == key.batch.0 {
                return Ok(None);
            }
            Err(Error::new(
                Kind::Corrupt,
                format!("table {table} carries the chain up to batch {before}, but batch {} was finished", key.batch.0 - 1),
            )
            .hint("the table was restored to an older version or replaced; bring back the newest version of its _delta_log"))
        }
    }
}

/// Whether the commit brings rows into a table whose others were resolved for another declaration.
fn mixes(commit: &Commit<'_>, state: &TableState) -> bool {
    matches!(commit.ledger, LedgerRule::At { position, shape, .. } if !position.is_beginning() && state.shape != Some(shape))
        && state.shape != Some(LedgerShape::MIXED)
}

/// Whether a broken rule lets a commit pass whose rows were not resolved with what the table is.
#[cfg(feature = "plants")]
fn is_let_pass(commit: &Commit<'_>, state: &TableState) -> bool {
    match commit.ledger {
        LedgerRule::None | LedgerRule::Keeps => false,
        LedgerRule::At { .. } => Plant::IngestUnderNewestLedger.grows() || (Plant::ResumeIgnoresLedger.grows() && commit.resumed),
        LedgerRule::Moves { from, .. } => Plant::MutateChecksPathsOnly.grows() && state.ledger == from,
    }
}

fn commit_bytes(commit: &Commit<'_>, adds: &[&AddedFile], state: &TableState, machine: &dyn Machine) -> Bytes {
    let blind_append = commit.removes.is_empty();
    let id = machine.fresh_id().to_string();
    // Never a predicate: it would hold ids of people.
    let (operation, parameters) = if blind_append { ("WRITE", json!({ "mode": "Append" })) } else { ("MERGE", json!({})) };
    let mut text = CommitText::rewriting(commit.now_ms, operation, parameters, blind_append, &id, commit.rewrites);
    text.txn(commit.app_id, TxnVersion::from(commit.key).0);
    if let LedgerRule::Moves { to, shape, .. } = commit.ledger {
        text.txn(&ledger_app_id(commit.incarnation), to.0.cast_signed());
        text.txn(&shape_app_id(commit.incarnation), shape.0);
    }
    if mixes(commit, state) {
        text.txn(&shape_app_id(commit.incarnation), LedgerShape::MIXED.0);
    }
    for path in commit.removes {
        text.remove(path, commit.marks.get(path), commit.now_ms);
    }
    for file in adds {
        text.add(file);
    }
    if state.has_change_data_feed() {
        for file in commit.changes {
            text.cdc(file);
        }
    }
    text.into_bytes()
}

fn contiguous(versions: &[u64], first: u64) -> bool {
    !versions.is_empty() && versions.iter().zip(first..).all(|(v, expected)| *v == expected)
}

/// Waits a random while, longer the more races were lost.
async fn backoff(round: u32, machine: &dyn Machine) {
    let bound_ms = 5_u64 << round.min(7);
    let random = u64::from(machine.fresh_id().as_bytes()[0]);
    machine.sleep(Duration::from_millis(bound_ms * random / 255)).await;
}
