//! Decodes a file and says how fast.
//!
//! `cargo run --release -p alluvium-engine --example decode -- FILE THREADS 'org_id: string' 'occurred_at: timestamp' ...`
//!
//! The fields are the declared columns, each read from the key of its name; the first is the organisation, the second the event
//! time. The format follows from the file's name. The file is read once to warm it, then five times.

use std::fs::File;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use alluvium_core::{BatchLimits, Dataset, DatasetName, Field, FileCursor, FileFormat, Layout, Source};
use alluvium_engine::{Chunk, Decoder, FileFault, Input, Splitter};

const CHUNK_RECORDS: u64 = 1 << 20;
const CHUNK_BYTES: u64 = 2 << 20;
const QUEUE: usize = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, threads, fields @ ..] = arguments.as_slice() else { return Err("FILE THREADS 'NAME: TYPE'...".into()) };
    let decoder = Decoder::new(&dataset(fields)?);
    let threads: usize = threads.parse()?;
    let bytes = std::fs::metadata(file)?.len();
    for run in 0..6 {
        let start = Instant::now();
        let (rows, refused) = decode(&decoder, file, threads)?;
        let seconds = start.elapsed().as_secs_f64();
        if run > 0 {
            println!("{rows} rows, {refused} refused, {seconds:.3} s, {:.0} MB/s", bytes as f64 / seconds / 1e6);
        }
    }
    Ok(())
}

/// Reads on this thread and decodes on others; gives the rows and the refused records.
fn decode(decoder: &Decoder, file: &str, threads: usize) -> Result<(usize, usize), Box<dyn std::error::Error>> {
    let fault = |fault| match fault {
        FileFault::Content { record, reason } => format!("at record {record}: {reason}"),
        FileFault::Io(error) => error.to_string(),
    };
    let mut splitter =
        Splitter::open(Input::File(File::open(file)?), file, format(file)?, FileCursor::default()).map_err(fault)?;
    let (sender, receiver) = mpsc::sync_channel::<Chunk>(QUEUE);
    let receiver = Mutex::new(receiver);
    let count = || {
        let (mut rows, mut refused) = (0, 0);
        while let Some(chunk) = receiver.lock().ok().and_then(|r| r.recv().ok()) {
            let decoded = decoder.decode(chunk);
            rows += decoded.rows.num_rows();
            refused += decoded.refused.len();
        }
        (rows, refused)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(count)).collect();
        let outcome = loop {
            match splitter.next_chunk(CHUNK_RECORDS, CHUNK_BYTES) {
                Ok(Some(chunk)) => sender.send(chunk)?,
                Ok(None) => break Ok(()),
                Err(error) => break Err(fault(error)),
            }
        };
        drop(sender);
        let counts = workers.into_iter().map(|w| w.join().unwrap_or_default());
        let sum = counts.fold((0, 0), |(rows, refused), more| (rows + more.0, refused + more.1));
        outcome?;
        Ok(sum)
    })
}

fn format(file: &str) -> Result<FileFormat, String> {
    let name = file.trim_end_matches(".gz").trim_end_matches(".zst");
    match name.rsplit('.').next() {
        Some("json" | "ndjson" | "jsonl") => Ok(FileFormat::Json),
        Some("csv") => Ok(FileFormat::Csv),
        Some("parquet") => Ok(FileFormat::Parquet),
        Some("avro") => Ok(FileFormat::Avro),
        _ => Err(format!("{file} does not say its format")),
    }
}

fn dataset(fields: &[String]) -> Result<Dataset, String> {
    let field = |text: &String| {
        let (name, data_type) = text.split_once(": ").ok_or_else(|| format!("{text:?} is not 'NAME: TYPE'"))?;
        let data_type = data_type.parse().map_err(|e| format!("{e}"))?;
        Ok(Field { name: name.into(), data_type, nullable: true, from: vec![name.into()], unit: None })
    };
    let fields = fields.iter().map(field).collect::<Result<Vec<_>, String>>()?;
    let [org, event_time, ..] = fields.as_slice() else { return Err("an organisation and an event time are needed".into()) };
    Ok(Dataset {
        name: DatasetName("example".into()),
        source: Source::Kafka(alluvium_core::KafkaSource::new("none")),
        key: None,
        org: org.name.clone(),
        event_time: event_time.name.clone(),
        fields,
        identities: Vec::new(),
        layout: Layout { partition_by: Vec::new(), cluster_by: Vec::new(), target_file_bytes: 1 },
        retention: alluvium_core::Retention::default(),
        change_data_feed: false,
        batch: BatchLimits { max_rows: 1, max_bytes: 1, max_delay: Duration::ZERO },
    })
}
