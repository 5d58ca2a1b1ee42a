//! What a seed makes of a world before it begins: its files, its processes, its weather.

use std::collections::BTreeSet;
use std::sync::Arc;

use alluvium_core::ReadKind;

use super::asked::RequestsPlan;
use super::cluster::TOPIC;
use super::dice::Dice;
use super::fate::Weather;
use super::input::SourceFile;
use super::readers::Reading;
use super::topic::TopicPlan;

/// In so many of a thousand worlds where requests may come, they do.
const REQUESTS_COME: u64 = 400;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Takes in until nothing is left.
    UntilIdle,
    /// Takes in one batch.
    Once,
    /// Takes in what comes, until it is asked to stop.
    Follow {
        /// When it is asked, in milliseconds.
        until_ms: u64,
    },
    /// Takes dead letters in again, by the mended declaration.
    Replay,
    /// Hands requests over as they come.
    Submit,
    /// Takes requests in and applies them, now and then.
    Mutate,
    /// Does both of requests and records, as they come, until it is asked to stop.
    All {
        /// When it is asked, in milliseconds.
        until_ms: u64,
    },
    /// Removes files that nobody needs.
    Vacuum,
    /// Reads changes under a name.
    Reads(Reading),
    /// Deletes the namespace, which the next to take something in makes again.
    Deletes,
    /// Another program: writes checkpoints and cleans up logs below them.
    Cleanup,
}

/// A process.
#[derive(Debug, Clone)]
pub(super) struct ProcessPlan {
    pub(super) role: Role,
    pub(super) starts_ms: u64,
    /// How often it may begin.
    pub(super) lives: u32,
    pub(super) skew_micros: i64,
    /// Begins once the namespace was deleted.
    pub(super) next_life: bool,
    /// Goes on behind what the topic has lost.
    pub(super) accepts_loss: bool,
}

/// A world before it begins.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) weather: Weather,
    pub(super) files: Vec<SourceFile>,
    /// The partitions of the topic made anew.
    pub(super) anew: Vec<SourceFile>,
    pub(super) processes: Vec<ProcessPlan>,
    pub(super) max_rows: u64,
    /// How long files stay that are no longer part of a table.
    pub(super) vacuum_after_ms: u64,
    /// What becomes of taken files.
    pub(super) after: &'static str,
    /// The source is a topic whose partitions are the files.
    pub(super) topic: Option<TopicPlan>,
    /// Requests come, too.
    pub(super) requests: Option<RequestsPlan>,
    /// Leases only save work: without shared ones, every process believes that it is alone.
    pub(super) shared_leases: bool,
}

/// What is left out of a world, to see whether it still fails.
#[derive(Debug, Clone, Default)]
pub(super) struct Without {
    pub(super) processes: BTreeSet<usize>,
    pub(super) files: BTreeSet<usize>,
    /// Only these faults happen.
    pub(super) only_faults: Option<Arc<BTreeSet<u64>>>,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed, &"plan");
        let mut weather = Weather::of(&mut dice);
        // Now and then a world of many small batches, in which records are folded and checkpoints come due.
        let long = dice.thousandths(15);
        let files = if long { dice.between(20, 30) } else { dice.between(1, 5) };
        let spread_ms = dice.one_of(&[0, 500, 5_000, 30_000]);
        let files = (0..files)
            .map(|number| {
                let comes_ms = dice.between(0, spread_ms);
                SourceFile::roll(&mut dice, usize::try_from(number).unwrap_or(0), if long { 5 } else { 12 }, comes_ms)
            })
            .collect();
        let mut processes = Vec::new();
        for _ in 0..dice.between(1, 3) {
            let role = match dice.below(6) {
                0 => Role::Once,
                1 => Role::Follow { until_ms: dice.between(1_000, 60_000) },
                _ => Role::UntilIdle,
            };
            processes.push(ProcessPlan::roll(&mut dice, role));
        }
        for (role, times) in [(Role::Replay, 300), (Role::Vacuum, 300), (Role::Cleanup, 400)] {
            if dice.thousandths(times) {
                processes.push(ProcessPlan::roll(&mut dice, role));
                if role == Role::Replay && dice.thousandths(400) {
                    processes.push(ProcessPlan::roll(&mut dice, role));
                }
            }
        }
        let mut topic = (!long && dice.thousandths(350)).then(|| TopicPlan {
            shards: dice.between(1, 4),
            repeat_after: dice.one_of(&[0, 0, 1, 3]),
            away: dice.thousandths(250).then(|| (dice.between(0, 10_000), dice.between(100, 50_000))),
            pace_ms: dice.one_of(&[0, 10, 500]),
            expiries: Vec::new(),
            anew: None,
            tells_ids: true,
        });
        let mut files: Vec<SourceFile> = files;
        if topic.is_some() {
            for (partition, file) in files.iter_mut().enumerate() {
                file.name = format!("{TOPIC}/{partition}");
                file.gap_after = dice.one_of(&[0, 0, 1, 3]);
            }
        }
        let mut anew = Vec::new();
        if let Some(topic) = &mut topic {
            topic.roll_losses(seed, &files);
            let mut dice = Dice::of(seed, &"anew");
            if let Some(at) = topic.anew {
                anew = files.iter().map(|file| file.roll_anew(&mut dice, at.at_ms + at.missing_ms)).collect();
            }
            if topic.loses() {
                processes.iter_mut().for_each(|process| process.accepts_loss = dice.thousandths(300));
            }
        }
        let mut dice_of_readers = Dice::of(seed, &"readers");
        if dice_of_readers.thousandths(300) {
            for _ in 0..dice_of_readers.between(1, 3) {
                let consumer = dice_of_readers.one_of(&["reports", "reports", "audit"]);
                let kind = dice_of_readers.one_of(&[ReadKind::Rows, ReadKind::Partitions]);
                processes.push(ProcessPlan::roll(&mut dice_of_readers, Role::Reads(Reading { consumer, kind })));
            }
        }
        let mut after = None;
        let mut dice_of_ends = Dice::of(seed, &"ends");
        let loses = topic.as_ref().is_some_and(TopicPlan::loses);
        if !loses && dice_of_ends.thousandths(150) {
            // What the former life of the namespace took away is not there for the next.
            after = Some("keep");
            // No program can fence a put that a store carries out long after it failed.
            weather = weather.prompt();
            // In the former life one process takes in: a second one that finishes a batch of the first is known to nobody who deletes.
            processes.truncate(1);
            for _ in 0..dice_of_ends.between(1, 2) {
                let role = dice_of_ends.one_of(&[Role::UntilIdle, Role::UntilIdle, Role::Once]);
                processes.push(ProcessPlan { next_life: true, ..ProcessPlan::roll(&mut dice_of_ends, role) });
            }
            processes.push(ProcessPlan::roll(&mut dice_of_ends, Role::Deletes));
        }
        let mut requests = None;
        let mut dice_of_requests = Dice::of(seed, &"requests");
        if !long && !loses && after.is_none() && dice_of_requests.thousandths(REQUESTS_COME) {
            files.iter_mut().for_each(|file| file.people = true);
            let replays = processes.iter().any(|process| process.role == Role::Replay);
            // What the mended declaration alone knows of a row would be lost where it moves.
            requests = Some(RequestsPlan::roll(&mut dice_of_requests, &files, !replays));
            for process in &mut processes {
                if let Role::Reads(reading) = &mut process.role {
                    // What a reader of rows must be given where rows change is told elsewhere.
                    reading.kind = ReadKind::Partitions;
                }
            }
            if dice_of_requests.thousandths(500) {
                weather = weather.leaving();
                // Where nobody else is there to take up what one left, the table moves before it does so itself.
                let ingests = |role| matches!(role, Role::UntilIdle | Role::Once | Role::Follow { .. });
                let mut has_one = false;
                processes.retain(|process| !ingests(process.role) || !std::mem::replace(&mut has_one, true));
            }
            processes.extend(Self::who_mutates(&mut dice_of_requests, requests.as_ref()));
        }
        let most_rows = if requests.is_some() { 4 } else { 8 };
        let max_rows = if long { 1 } else { dice.between(1, most_rows) };
        let after = after.unwrap_or_else(|| dice.one_of(&["keep", "keep", "delete", "move:./taken"]));
        let shared_leases = dice.thousandths(400);
        let vacuum_after_ms = Dice::of(seed, &"vacuum").one_of(&[0, 0, 100, 5_000]);
        Self { seed, weather, files, anew, processes, max_rows, vacuum_after_ms, after, topic, requests, shared_leases }
    }

    /// The processes that have to do with requests.
    fn who_mutates(dice: &mut Dice, requests: Option<&RequestsPlan>) -> Vec<ProcessPlan> {
        let mut roles = vec![Role::Mutate];
        if dice.thousandths(500) {
            roles.push(Role::Mutate);
        }
        if dice.thousandths(250) {
            roles.push(Role::All { until_ms: dice.between(1_000, 8_000) });
        }
        if requests.is_some_and(|requests| !requests.in_files) {
            roles.push(Role::Submit);
            if dice.thousandths(300) {
                roles.push(Role::Submit);
            }
        }
        roles.into_iter().map(|role| ProcessPlan::roll(dice, role)).collect()
    }

    /// The source, as the project file says it.
    pub(super) fn source(&self) -> String {
        match &self.topic {
            Some(topic) => format!("kafka: {{ topic: {TOPIC}, format: json, start: earliest, shards: {} }}", topic.shards),
            None => format!("files: {{ path: ./inbox, format: json, after: '{}' }}", self.after),
        }
    }

    /// When the last record has come, and the cluster answers again, in milliseconds.
    pub(super) fn all_there_ms(&self) -> u64 {
        let pace_ms = self.topic.as_ref().map_or(0, |t| t.pace_ms);
        let last = self.files.iter().chain(&self.anew).map(|f| f.comes_ms + pace_ms * f.records.len() as u64).max().unwrap_or(0);
        let back = self.topic.as_ref().and_then(|t| t.away).map_or(0, |(from, away)| from + away);
        let losses = self.topic.iter().flat_map(|t| t.expiries.iter().map(|e| e.at_ms));
        let asked = self.requests.iter().flat_map(|r| r.bundles.iter().map(|b| b.comes_ms)).max().unwrap_or(0);
        last.max(back).max(asked).max(losses.max().unwrap_or(0)).max(self.anew_ms().unwrap_or(0)) + 1
    }

    /// When the topic made anew is there.
    fn anew_ms(&self) -> Option<u64> {
        self.topic.as_ref()?.anew.map(|a| a.at_ms + a.missing_ms)
    }

    /// Who reads what under a name, each once.
    pub(super) fn readings(&self) -> BTreeSet<Reading> {
        self.processes.iter().filter_map(|p| if let Role::Reads(reading) = p.role { Some(reading) } else { None }).collect()
    }

    /// Whether the namespace may be deleted.
    pub(super) fn deletes(&self) -> bool {
        self.processes.iter().any(|p| p.role == Role::Deletes)
    }

    /// Whether somebody cleans up logs without asking who reads them.
    pub(super) fn cleans_up(&self) -> bool {
        self.processes.iter().any(|p| p.role == Role::Cleanup)
    }

    /// Whether a process looks for longer at files and versions that are no longer the table's than others keep them.
    pub(super) fn reads_what_goes(&self, process: usize) -> bool {
        let reads = matches!(self.processes[process].role, Role::Mutate | Role::All { .. } | Role::Vacuum);
        reads && self.processes.iter().any(|p| matches!(p.role, Role::Vacuum | Role::Cleanup))
    }

    pub(super) fn replays(&self, without: &Without) -> bool {
        self.processes.iter().enumerate().any(|(i, p)| p.role == Role::Replay && !without.processes.contains(&i))
    }
}

impl ProcessPlan {
    fn roll(dice: &mut Dice, role: Role) -> Self {
        let latest = if matches!(role, Role::UntilIdle | Role::Once) { 2_000 } else { 10_000 };
        Self {
            role,
            starts_ms: dice.of_any_size(0, 0, 14).min(latest),
            lives: u32::try_from(dice.between(1, 4)).unwrap_or(1),
            skew_micros: dice.between(0, 20_000_000).cast_signed() - 10_000_000,
            next_life: false,
            accepts_loss: false,
        }
    }
}
