//! Hands the records of a batch to the decoders, until the batch has what belongs to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use alluvium_core::{BatchLimits, Offset, Result};

use super::gather::Gathering;
use crate::engine::Clock;
use crate::ingest::Mode;
use crate::ingest::dead_letters::DeadLetters;
use crate::ingest::read::{Fed, Feed, Origin};
use crate::source::{Chunk, Messages};

/// How long one poll waits: a stop signal is heard as often.
const POLL_WAIT: Duration = Duration::from_millis(20);
/// How long a run that is to end waits to be told that what is left of a partition holds no record.
const TAIL_WAIT: Duration = Duration::from_secs(2);
/// A batch of a run that is to end gives up on a broker that gives nothing for so long.
const STALL: Duration = Duration::from_secs(30);

/// One batch's records.
pub(super) struct KafkaFeed<'a> {
    pub(super) gathering: &'a mut Gathering,
    pub(super) limits: BatchLimits,
    /// Where each partition's part ends, unless a limit comes first.
    pub(super) ends: &'a BTreeMap<i32, Offset>,
    pub(super) mode: Mode,
    pub(super) clock: &'a dyn Clock,
    /// How many bytes may be held for chunks that are not full.
    pub(super) hold_bytes: u64,
    /// The batch has what belongs to it; what is held is handed on.
    closing: bool,
    /// The broker gave nothing for too long.
    pub(super) stalled: bool,
    /// When all partitions had shown their ends.
    ended_since: Option<Duration>,
}

impl<'a> KafkaFeed<'a> {
    pub(super) fn new(
        gathering: &'a mut Gathering,
        limits: BatchLimits,
        ends: &'a BTreeMap<i32, Offset>,
        mode: Mode,
        clock: &'a dyn Clock,
        hold_bytes: u64,
    ) -> Self {
        Self { gathering, limits, ends, mode, clock, hold_bytes, closing: false, stalled: false, ended_since: None }
    }

    /// Whether the batch has what belongs to it, when a poll gave something (`more`) or nothing.
    fn is_complete(&mut self, more: bool) -> bool {
        if is_full(self.gathering, &self.limits) || self.gathering.is_doubtful() {
            return true;
        }
        if self.mode != Mode::Follow {
            self.stalled = !more && self.gathering.silent_for() >= STALL;
            return self.stalled
                || self.gathering.stands_at(self.ends)
                || (self.gathering.reached(self.ends) && self.is_tail_known());
        }
        // A follower takes what was there when the batch began, and waits for more as long as the project file says; but for
        // nothing that does not come.
        has_waited(self.gathering, &self.limits, self.clock) && (!more || self.gathering.reached(self.ends))
    }
}

impl KafkaFeed<'_> {
    /// Whether the client had time to tell up to where there is no record, behind the last one it gave.
    fn is_tail_known(&mut self) -> bool {
        let now = self.gathering.elapsed();
        now.saturating_sub(*self.ended_since.get_or_insert(now)) >= TAIL_WAIT
    }
}

impl Feed for KafkaFeed<'_> {
    fn next(&mut self, chunk_bytes: u64, _: &mut DeadLetters) -> Result<Fed> {
        loop {
            let all = self.closing || self.gathering.held_bytes() >= self.hold_bytes;
            if let Some(messages) = self.gathering.hand_on(chunk_bytes, all) {
                return Ok(chunk(messages));
            }
            if self.closing {
                return Ok(Fed::End);
            }
            if self.is_complete(true) {
                self.closing = true;
                continue;
            }
            let more = self.gathering.poll(POLL_WAIT, || self.clock.now_micros())?;
            if !more {
                self.closing = self.is_complete(false);
                return Ok(Fed::Nothing);
            }
        }
    }
}

/// Whether a limit of the batch is reached.
pub(super) fn is_full(gathering: &Gathering, limits: &BatchLimits) -> bool {
    gathering.records() >= limits.max_rows || gathering.bytes() >= limits.max_bytes
}

/// Whether the batch has waited for more as long as it may.
pub(super) fn has_waited(gathering: &Gathering, limits: &BatchLimits, clock: &dyn Clock) -> bool {
    let max_delay = i64::try_from(limits.max_delay.as_micros()).unwrap_or(i64::MAX);
    gathering.since_micros.is_some_and(|since| clock.now_micros().saturating_sub(since) >= max_delay)
}

fn chunk(messages: Messages) -> Fed {
    let source = format!("{}/{}", messages.topic, messages.partition);
    Fed::Chunk(Arc::new(Origin { source, context: None }), Chunk::of_messages(messages))
}
