//! Refused requests taken in again, after the project was mended: those that fit are accepted, exactly once.
//!
//! The chain that takes requests in does it, as there is one order of them. A batch takes whole files of `dead_letters` away and accepts
//! what fits; the rest are dead letters of that batch. Files in which nothing fits are left alone.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use alluvium_core::{BatchNumber, BatchOutcome, Result, Shard, TableSpec};
use alluvium_lake::DeltaLog;

use super::dead_letters::{DeadLetters, Letter};
use super::read::{Fed, Feed, Origin};
use super::replay::Letters;
use super::run::RunSummary;
use super::submit::{is_finished, next_key, standing_still};
use super::work::ChainWork;
use crate::engine::Engine;
use crate::source::{Chunk, Messages};

impl Engine {
    /// Takes refused requests in again.
    ///
    /// # Errors
    /// As [`Engine::submit_requests`].
    pub(super) async fn replay_requests(&self) -> Result<RunSummary> {
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(RunSummary::default()) };
        let log = self.log_of(&TableSpec::dead_letters());
        if !log.exists().await? {
            return Ok(RunSummary::default());
        }
        let Some(lease) = self.intake_lease().await? else { return Ok(RunSummary::default()) };
        let replayed = replay(&mut ChainWork::new(self, self.requests_intake(), &incarnation, Shard::WHOLE), &log).await;
        if let Err(error) = lease.release().await {
            tracing::warn!(error = %error.chain_text(), "could not give back a lease");
        }
        replayed
    }
}

async fn replay(work: &mut ChainWork<'_>, log: &DeltaLog) -> Result<RunSummary> {
    let mut summary = RunSummary::default();
    let mut in_vain: HashSet<String> = HashSet::new();
    while !work.engine.stop.asked() {
        let (listing, key) = next_key(work).await?;
        // Looked for once the key is chosen: whoever takes letters meanwhile records that under the same key, and ours is not written.
        let some = letters(work, log, &in_vain).await?;
        if some.files.is_empty() {
            break;
        }
        let range = standing_still(work, &listing, BatchNumber(key.batch.0 - 1)).await?;
        work.prepare(&listing).await?;
        let Some(mut staged) = work.stage(key, &mut LetterFeed(some.letters.into())).await? else { break };
        if staged.data.adds.is_empty() && staged.skipped == 0 {
            for sweep in staged.sweeps {
                sweep.run().await;
            }
            in_vain.extend(some.files);
            continue;
        }
        staged.dead_letters.removes = some.files;
        let (record, sweeps) = work.record_of(key, range, 0, staged);
        match work.write(&record, sweeps).await {
            Ok(Some(outcome)) => {
                summary.batches += 1;
                summary.outcome += BatchOutcome { dead_letters: 0, ..outcome };
            }
            Ok(None) => {}
            Err(e) if is_finished(work, key, &e).await? => {}
            Err(e) => return Err(e),
        }
    }
    Ok(summary)
}

/// Refused requests of some files, as many as the memory allows.
async fn letters(work: &ChainWork<'_>, log: &DeltaLog, in_vain: &HashSet<String>) -> Result<Letters> {
    let mut some = Letters::default();
    for file in log.live_files(None).await?.into_iter().filter(|file| !in_vain.contains(&file.path)) {
        if let Some(letters) = Letters::of(work.engine, log, &file.path, work.dataset).await? {
            some.take(file.path, letters);
        }
        if some.bytes >= work.engine.memory_bytes / 8 {
            break;
        }
    }
    Ok(some)
}

/// Letters as a source of requests.
struct LetterFeed(VecDeque<Letter>);

impl Feed for LetterFeed {
    fn next(&mut self, _: u64, refused: &mut DeadLetters) -> Result<Fed> {
        let Some(letter) = self.0.pop_front() else { return Ok(Fed::End) };
        if letter.refused.raw.is_empty() {
            // It had no value: there is nothing to read again.
            refused.push_letter(letter)?;
            return Ok(Fed::Nothing);
        }
        let messages = Messages::one(&letter.source, 0, letter.refused.record.cast_signed(), &letter.refused.raw, None);
        let origin = Origin { source: letter.source, context: letter.context };
        Ok(Fed::Chunk(Arc::new(origin), Chunk::of_messages(messages)))
    }
}
