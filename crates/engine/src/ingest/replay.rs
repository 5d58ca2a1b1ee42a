//! Dead letters taken in again, after the declaration was mended: those that fit become rows, exactly once.
//!
//! A chain of its own for each dataset. A batch takes whole files of `dead_letters`: the records that fit now go to the data
//! table, and the same batch replaces the files by one with the rest. Files in which nothing fits are left alone.

use std::sync::Arc;

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, BatchOutcome, BatchRecord, Dataset, DatasetName, Error, FileCursor, FileFormat, Incarnation,
    Job, Kind, Range, RecordBody, Result, Shard, Source, TableSpec, app_id, parse_data_file,
};
use alluvium_lake::{ChainStore, DeltaLog, PutNew, StageIndex, StageSettings, Stager, in_place};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::Int64Type;
use bytes::Bytes;

use super::dead_letters::{DeadLetters, Letter};
use super::finish::{Finished, Finishing};
use super::read::add_columns;
use super::resolving::Resolving;
use super::run::{RunSummary, replay_lease_name};
use super::stage::Staged;
use super::work::ChainWork;
use crate::engine::Engine;
use crate::requests::Matched;
use crate::source::{Chunk, Decoded, Decoder, Input, Messages, Refused, Splitter, around_of};
use crate::turn::give_back;

/// One dataset's part in a replay.
struct Replay<'a> {
    engine: &'a Engine,
    dataset: &'a Dataset,
    incarnation: Incarnation,
    chain: ChainStore,
    /// What the files of the source hold; `None`: it is a topic.
    format: Option<FileFormat>,
}

/// The letters of some files.
#[derive(Default)]
pub(super) struct Letters {
    pub(super) files: Vec<String>,
    pub(super) letters: Vec<Letter>,
    pub(super) bytes: u64,
}

impl Engine {
    /// Decodes the dead letters of `datasets` again; those of the intake of requests are taken in once more.
    ///
    /// # Errors
    /// Only what concerns all datasets; the rest is in [`RunSummary::failed`].
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the next replay or run goes on where this one was.
    pub async fn replay_dead_letters(&self, datasets: &[&Dataset]) -> Result<RunSummary> {
        let mut summary = RunSummary::default();
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(summary) };
        for dataset in datasets {
            if self.stop.asked() {
                break;
            }
            if dataset.is_requests() {
                match self.replay_requests().await {
                    Ok(replayed) => summary.add(replayed),
                    Err(e) => summary.failed.push((dataset.name.0.clone(), e)),
                }
                continue;
            }
            let format = match &dataset.source {
                Source::Files(source) => Some(source.format),
                Source::Kafka(_) => None,
            };
            let replay = Replay {
                engine: self,
                dataset,
                incarnation: incarnation.clone(),
                chain: self.chain(&incarnation, Job::Ingest, dataset, Shard::REPLAY),
                format,
            };
            if let Err(e) = replay.run_alone(&mut summary).await {
                summary.failed.push((dataset.name.0.clone(), e));
            }
        }
        Ok(summary)
    }
}

impl Replay<'_> {
    async fn run_alone(&self, summary: &mut RunSummary) -> Result<()> {
        let name = replay_lease_name(self.dataset);
        let Some(lease) = self.engine.turn(&name).await? else { return Ok(()) };
        let done = self.run(summary).await;
        give_back(lease).await;
        done
    }

    async fn run(&self, summary: &mut RunSummary) -> Result<()> {
        let mut next = self.finish_what_is_recorded(summary).await?;
        let log = self.engine.log_of(&TableSpec::dead_letters());
        if !log.exists().await? {
            return Ok(());
        }
        let spec = TableSpec::data(self.dataset);
        let app = app_id(self.chain.chain());
        let now_ms = self.engine.clock.now_ms();
        let _not_there_yet = self.engine.log_of(&spec).evolve(&spec, &self.incarnation, &app, now_ms).await?;
        let version = log.state(&app).await?.map_or(0, |s| s.version());
        let mut some = Letters::default();
        for file in log.live_files(Some(version)).await? {
            if let Some(letters) = Letters::of(self.engine, &log, &file.path, self.dataset).await? {
                some.take(file.path, letters);
            }
            if some.bytes >= self.engine.memory_bytes / 8 {
                self.batch(std::mem::take(&mut some), version, &mut next, summary).await?;
            }
            if self.engine.stop.asked() {
                return Ok(());
            }
        }
        self.batch(some, version, &mut next, summary).await
    }

    /// Finishes the chain's newest batch if it is not; the key of the next.
    async fn finish_what_is_recorded(&self, summary: &mut RunSummary) -> Result<BatchKey> {
        let listing = self.chain.listing().await?;
        let first = |batch| BatchKey { batch, attempt: Attempt::FIRST };
        let Some(newest) = listing.newest() else { return Ok(first(BatchNumber::FIRST)) };
        if listing.done.contains(&newest.batch) {
            return Ok(first(newest.batch.next()));
        }
        let gone =
            || Error::new(Kind::Unavailable, format!("the record of replay {newest} was listed and is gone")).hint("run again");
        let mut record = self.chain.record(newest).await?.ok_or_else(gone)?;
        loop {
            let why = match self.finishing(true).finish(&record).await? {
                Finished::Done(mark) => {
                    summary.batches += 1;
                    summary.outcome += mark.outcome;
                    return Ok(first(newest.batch.next()));
                }
                Finished::Amend(why) => why,
            };
            let attempt = record
                .attempt
                .next()
                .ok_or_else(|| Error::new(Kind::Internal, format!("replay {newest} was attempted too often: {why}")))?;
            let key = BatchKey { batch: record.batch, attempt };
            record = match &record.body {
                // Voided before it was recorded: nothing of it was published, and no range is fixed.
                RecordBody::Void => return Ok(key),
                RecordBody::Intent(recorded) => self.work().resolved_again(&record, recorded, key).await?,
            };
            if self.chain.write(&record).await? == PutNew::Exists {
                return Err(self.another_replays());
            }
        }
    }

    fn another_replays(&self) -> Error {
        Error::new(Kind::Fenced, format!("dataset {}: another process replays dead letters too", self.dataset.name))
            .hint("nothing is lost; see what it did with: alluvium dead-letters list")
    }

    /// The chain of replays, as rounds work on it.
    fn work(&self) -> ChainWork<'_> {
        ChainWork::new(self.engine, self.dataset, &self.incarnation, Shard::REPLAY)
    }

    fn finishing(&self, resumed: bool) -> Finishing<'_> {
        Finishing { engine: self.engine, incarnation: &self.incarnation, dataset: self.dataset, chain: &self.chain, resumed }
    }

    /// Decodes letters; if any fits, publishes a batch that moves it to the data table.
    async fn batch(&self, some: Letters, version: u64, next: &mut BatchKey, summary: &mut RunSummary) -> Result<()> {
        let decoder = Decoder::new(self.dataset);
        let (mut rows, mut rest) = (Vec::new(), Vec::new());
        for letter in some.letters {
            match self.decode(&decoder, &letter) {
                Ok(row) => rows.push((letter.source, letter.refused.record.cast_signed(), row)),
                Err(reason) => rest.push(with_reason(letter, reason)),
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let record = self.stage(rows, rest, some.files, version, *next).await?;
        if self.chain.write(&record).await? == PutNew::Exists {
            return Err(self.another_replays());
        }
        match self.finishing(false).finish(&record).await? {
            Finished::Done(mark) => {
                summary.batches += 1;
                summary.outcome += BatchOutcome { dead_letters: 0, ..mark.outcome };
                *next = BatchKey { batch: next.batch.next(), attempt: Attempt::FIRST };
            }
            // The table moved to another position of the ledger meanwhile.
            Finished::Amend(_) => *next = self.finish_what_is_recorded(summary).await?,
        }
        Ok(())
    }

    /// The row that a letter's record makes now, or the reason why it still makes none.
    fn decode(&self, decoder: &Decoder, letter: &Letter) -> std::result::Result<RecordBatch, Option<Refused>> {
        if letter.refused.raw.is_empty() {
            return Err(None);
        }
        if self.format.is_none() {
            return decode_message(decoder, letter);
        }
        // What came from Parquet or Avro was kept as JSON.
        let (format, text) = match (self.format, &letter.context) {
            (Some(FileFormat::Csv), Some(header)) => {
                (FileFormat::Csv, [header.as_bytes(), b"\n", letter.refused.raw.as_slice()].concat())
            }
            _ => (FileFormat::Json, letter.refused.raw.clone()),
        };
        let input = Input::Bytes(Bytes::from(text));
        let chunk = Splitter::open(input, "", format, FileCursor::default()).and_then(|mut s| s.next_chunk(1, u64::MAX));
        let Ok(Some(chunk)) = chunk else { return Err(None) };
        only_row(decoder.decode(chunk))
    }

    async fn stage(
        &self,
        rows: Vec<(String, i64, RecordBatch)>,
        rest: Vec<Letter>,
        files: Vec<String>,
        version: u64,
        key: BatchKey,
    ) -> Result<BatchRecord> {
        let now_micros = self.engine.clock.now_micros();
        let index = self.engine.index_of(self.dataset);
        let settings = |org: Option<String>, index: Option<StageIndex>| StageSettings {
            chain: self.chain.chain().clone(),
            key,
            now_ms: now_micros.div_euclid(1000),
            org,
            files_in_flight: 4,
            index,
        };
        let (data_spec, letters_spec) = (TableSpec::data(self.dataset), TableSpec::dead_letters());
        let data =
            Stager::new(&self.engine.log_of(&data_spec), &data_spec, settings(Some(self.dataset.org.clone()), Some(index)));
        let letters = Stager::new(&self.engine.log_of(&letters_spec), &letters_spec, settings(None, None));
        let rows = with_places(&rows, now_micros)?;
        let work = self.work();
        let resolving = Resolving::new(self.engine, self.dataset, work.ledger().await?);
        let rows = resolving.kept(rows, now_micros)?;
        let rows = resolving.resolve(&rows).await?;
        let mut kept = DeadLetters::new(letters, self.dataset.name.clone(), key, now_micros, self.engine.memory_bytes);
        let letters = in_place(|| {
            if rows.num_rows() > 0 {
                data.stage(vec![rows])?;
            }
            for letter in rest {
                kept.push_letter(letter)?;
            }
            kept.into_stager()
        })?;
        let (data, counts) = data.finish().await?;
        let (mut dead_letters, _) = letters.finish().await?;
        dead_letters.removes = files.clone();
        let staged = Staged { data, dead_letters, counts, ..Staged::nothing(now_micros) };
        let staged = work.with_states(key, staged, resolving, &Matched::new()).await?;
        let (record, _nobody_else_stages_for_replays) = work.record_of(key, Range::DeadLetters { version, files }, 0, staged);
        Ok(record)
    }
}
/// As [`Replay::decode`], for a letter that was a Kafka message: its source names topic and partition.
fn decode_message(decoder: &Decoder, letter: &Letter) -> std::result::Result<RecordBatch, Option<Refused>> {
    let (topic, partition) = letter.source.rsplit_once('/').unwrap_or((&letter.source, ""));
    let around = letter.context.as_deref().and_then(around_of);
    let offset = letter.refused.record.cast_signed();
    let messages = Messages::one(topic, partition.parse().unwrap_or(-1), offset, &letter.refused.raw, around);
    only_row(decoder.decode(Chunk::of_messages(messages)))
}

/// The row of a single record.
fn only_row(decoded: Decoded) -> std::result::Result<RecordBatch, Option<Refused>> {
    match decoded.refused.into_iter().next() {
        None if decoded.rows.num_rows() == 1 => Ok(decoded.rows),
        refused => Err(refused),
    }
}

fn with_reason(mut letter: Letter, refused: Option<Refused>) -> Letter {
    if let Some(refused) = refused {
        letter.refused.reason = refused.reason;
        letter.refused.field = refused.field;
    }
    letter
}

/// The rows with the sources and positions their records had.
fn with_places(rows: &[(String, i64, RecordBatch)], now_micros: i64) -> Result<RecordBatch> {
    let internal = |e| Error::new(Kind::Internal, "collecting replayed rows").source(e);
    let schema = rows.first().map(|(_, _, r)| r.schema()).ok_or_else(|| Error::new(Kind::Internal, "a replay without rows"))?;
    let all = concat_batches(&schema, rows.iter().map(|(_, _, r)| r)).map_err(internal)?;
    let offsets: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, position, _)| *position)));
    let mut columns = all.columns().to_vec();
    let at = schema.index_of("_offset").map_err(internal)?;
    columns[at] = offsets;
    let placed = RecordBatch::try_new(schema, columns).map_err(internal)?;
    let sources: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(source, _, _)| source)));
    add_columns(&placed, sources, now_micros)
}

impl Letters {
    /// Adds a file and its letters.
    pub(super) fn take(&mut self, file: String, letters: Vec<Letter>) {
        self.bytes += letters.iter().map(|letter| letter.refused.raw.len() as u64 + 128).sum::<u64>();
        self.letters.extend(letters);
        self.files.push(file);
    }

    /// The letters of a file of `dead_letters`; `None` if they are not the dataset's.
    pub(super) async fn of(engine: &Engine, log: &DeltaLog, file: &str, dataset: &Dataset) -> Result<Option<Vec<Letter>>> {
        if parse_data_file(file).is_some_and(|name| name.chain.dataset != dataset.name) {
            return Ok(None);
        }
        let letters = Self::of_file(&log.read_file(file).await?)?;
        let ours = letters.iter().filter(|(of, _)| *of == dataset.name).count();
        if ours > 0 && ours < letters.len() {
            // What a file's name says of its rows must stay true, so a file of several datasets is not split here.
            engine.observer.warning(&format!(
                "dataset {}: the file {file} of dead_letters holds records of several datasets, as another program left it; not replayed",
                dataset.name
            ));
        }
        Ok((ours > 0 && ours == letters.len()).then(|| letters.into_iter().map(|(_, letter)| letter).collect()))
    }

    /// The letters in a file's rows, and whose they are.
    pub(super) fn of_file(batches: &[RecordBatch]) -> Result<Vec<(DatasetName, Letter)>> {
        let mut letters = Vec::new();
        for batch in batches {
            let text = |name: &str| -> Result<&StringArray> { Ok(column(batch, name)?.as_string::<i32>()) };
            let (datasets, sources, contexts) = (text("dataset")?, text("source")?, text("context")?);
            let (reasons, fields) = (text("reason")?, text("field")?);
            let raws = column(batch, "raw")?.as_binary::<i32>();
            let positions = column(batch, "position")?.as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                let maybe = |array: &StringArray| array.is_valid(row).then(|| array.value(row).to_owned());
                let refused = Refused {
                    record: positions.value(row).cast_unsigned(),
                    raw: raws.value(row).to_vec(),
                    reason: reasons.value(row).to_owned(),
                    field: maybe(fields),
                    context: None,
                };
                let letter = Letter { source: sources.value(row).to_owned(), context: maybe(contexts), refused };
                letters.push((DatasetName(datasets.value(row).to_owned()), letter));
            }
        }
        Ok(letters)
    }
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| {
        Error::new(Kind::Corrupt, format!("a file of dead_letters has no column {name}"))
            .hint("another program wrote into that table")
    })
}
