//! How fast data files are spliced, beside what copying them takes: prints, judges nothing.
//!
//! Run it with `cargo run --release --workspace --example splice_speed`. It makes a table of 200 files of 20,000 rows and 13 columns
//! in a temporary directory, and takes each file through opening, finding and splicing on one thread.

use std::error::Error;
use std::fs;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alluvium_core::{AddedFile, Attempt, BatchKey, BatchNumber, Column, Durability, Incarnation, TableSpec};
use alluvium_lake::{
    ChangedFile, ColumnEdit, Commit, DeltaLog, Edits, LedgerRule, Published, SpliceFile, SpliceSettings, Store, arrow_schema,
};
use arrow::array::{ArrayRef, Date32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Schema, SchemaRef};
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

static NO_MARKS: std::collections::BTreeMap<String, serde_json::Value> = std::collections::BTreeMap::new();

const FILES: u64 = 200;
const ROWS: u64 = 20_000;
/// Ids of leads in all files; each file has rows of some of them.
const LEADS: u64 = 400_000;
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(measure(dir.path()))
}

async fn measure(dir: &FsPath) -> Result<(), Box<dyn Error>> {
    let spec = spec();
    let schema = arrow_schema(&spec);
    let store = Store::open(&dir.display().to_string(), dir, Durability::Process)?;
    let log = DeltaLog::new(&store, Path::from("table"));
    let life = Incarnation("life".to_owned());
    log.ensure(&spec, &life, "app", 0).await?;
    let mut adds = Vec::new();
    for file in 0..FILES {
        let name = format!("{file:04}.parquet");
        let bytes = parquet(&schema, file)?;
        fs::write(dir.join("table").join(&name), &bytes)?;
        let size = bytes.len() as u64;
        let stats = format!("{{\"numRecords\":{ROWS}}}");
        adds.push(AddedFile { path: name, partition_values: Vec::new(), size, rows: ROWS, modified_ms: 0, stats });
    }
    let key = BatchKey { batch: BatchNumber(1), attempt: Attempt::FIRST };
    let commit = Commit {
        app_id: "app",
        incarnation: &life,
        key,
        adds: &adds,
        removes: &[],
        marks: &NO_MARKS,
        changes: &[],
        rewrites: None,
        ledger: LedgerRule::None,
        decides: true,
        resumed: false,
        now_ms: 0,
    };
    let published = log.publish(&commit).await?;
    if !matches!(published, Published::Committed { .. }) {
        return Err(format!("{published:?}").into());
    }
    let files = log.standing_files(1).await?;
    let bytes: u64 = adds.iter().map(|a| a.size).sum();
    println!("{FILES} files of {ROWS} rows, {:.2} MB each; the best of {ROUNDS} rounds, one thread", mb(bytes / FILES));

    let out = dir.join("out");
    fs::create_dir(&out)?;
    let copy = best(async || {
        for add in &adds {
            fs::copy(dir.join("table").join(&add.path), out.join(&add.path))?;
        }
        Ok(())
    })
    .await?;
    told("std::fs::copy", copy, copy);
    let settings = SpliceSettings::new(&spec, &schema);
    for (name, every) in
        [("nothing found", 0), ("one lead, found and spliced", ROWS), ("1 % of the rows, found and spliced", 100)]
    {
        let mut sums = [0_u64; 3];
        let took = best(async || {
            sums = [0; 3];
            for (i, file) in files.iter().enumerate() {
                let spliced = one(&log, file, &schema, &settings, every, &out.join(format!("{i}.parquet"))).await?;
                for (sum, part) in sums.iter_mut().zip(spliced) {
                    *sum += part;
                }
            }
            Ok(())
        })
        .await?;
        told(name, took, copy);
        println!("    {} rows, {:.1} MB copied, {:.1} MB encoded", sums[0], mb(sums[1]), mb(sums[2]));
    }
    Ok(())
}

/// Finds every `every`th lead of a file and splices it; rows, bytes copied and bytes encoded.
async fn one(
    log: &DeltaLog,
    file: &ChangedFile,
    schema: &SchemaRef,
    settings: &SpliceSettings,
    every: u64,
    out: &FsPath,
) -> Result<[u64; 3], Box<dyn Error>> {
    let opened = SpliceFile::open(log, file).await?;
    let looked = |text: &str| every > 0 && text[4..].parse::<u64>().is_ok_and(|lead| lead % every == 0);
    let rows = opened.matching("lead_id", &looked).await?;
    if rows.is_empty() {
        return Ok([0; 3]);
    }
    let columns = Arc::new(Schema::new(vec![schema.field_with_name("lead_id")?.clone()]));
    let before = opened.rows_at(&columns, &rows).await?;
    let count = before.num_rows();
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values((0..count).map(|row| format!("00Q_{row:012}"))));
    let originals: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..count).map(|row| format!("{{\"lead_id\":\"00Q_{row:012}\"}}"))));
    let edit = |column: &str, values| ColumnEdit { column: column.to_owned(), rows: rows.clone(), values };
    let edits = Edits { deleted: Vec::new(), columns: vec![edit("lead_id", ids), edit("_original", originals)] };
    let spliced = opened.splice(&edits, settings, None).await?;
    for made in &spliced.files {
        fs::write(out, bytes::Bytes::from(made.pieces.read()?))?;
    }
    Ok([count as u64, spliced.bytes_copied, spliced.bytes_encoded])
}

/// What a round took.
#[derive(Clone, Copy)]
struct Took {
    elapsed: Duration,
    /// Of all cores together; zero where it cannot be told.
    processor: Duration,
}

async fn best(mut round: impl AsyncFnMut() -> Result<(), Box<dyn Error>>) -> Result<Took, Box<dyn Error>> {
    let mut best = Took { elapsed: Duration::MAX, processor: Duration::MAX };
    for _ in 0..ROUNDS {
        let (began, processor) = (Instant::now(), processor_time());
        round().await?;
        best.elapsed = best.elapsed.min(began.elapsed());
        best.processor = best.processor.min(processor_time().saturating_sub(processor));
    }
    Ok(best)
}

/// The processor time of this process so far, as Linux counts it: in hundredths of a second.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    Duration::from_millis(10 * fields.skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum::<u64>())
}

fn told(name: &str, took: Took, copy: Took) {
    let each = |d: Duration| d.as_secs_f64() * 1e3 / FILES as f64;
    println!(
        "{name}: {:.2} ms a file ({:.2} ms of processor), {:.0} files a second, {:.1} times the copy",
        each(took.elapsed),
        each(took.processor),
        1e3 / each(took.elapsed),
        took.elapsed.as_secs_f64() / copy.elapsed.as_secs_f64()
    );
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn spec() -> TableSpec {
    let columns = [
        ("engagement_id", "string"),
        ("org_id", "string"),
        ("occurred_at", "timestamp"),
        ("type", "string"),
        ("lead_id", "string"),
        ("user_id", "string"),
        ("subject", "string"),
        ("event_date", "date"),
        ("_source", "string"),
        ("_offset", "long"),
        ("_ingested_at", "timestamp"),
        ("_rescued", "string"),
        ("_original", "string"),
    ];
    let column = |(name, data_type): (&str, &str)| {
        let data_type = data_type.parse().expect("a type of the contract");
        Column { name: name.to_owned(), data_type, nullable: true }
    };
    TableSpec { columns: columns.map(column).to_vec(), ..TableSpec::notifications() }
}

/// A file of the table; what looks random is the same each time.
fn parquet(schema: &SchemaRef, file: u64) -> Result<Vec<u8>, Box<dyn Error>> {
    let scattered = |row: u64| (file * ROWS + row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let text = |make: &dyn Fn(u64) -> String| -> ArrayRef { Arc::new(StringArray::from_iter_values((0..ROWS).map(make))) };
    let nulls: ArrayRef = Arc::new(StringArray::new_null(usize::try_from(ROWS)?));
    let times = |step: i64| -> ArrayRef {
        let at = |row: u64| 1_700_000_000_000_000 + row.cast_signed() * step;
        Arc::new(TimestampMicrosecondArray::from_iter_values((0..ROWS).map(at)).with_timezone("UTC"))
    };
    let columns: Vec<ArrayRef> = vec![
        text(&|row| format!("{:016x}", scattered(row))),
        text(&|_| format!("00D{:012}", file % 50)),
        times(1_234_567),
        text(&|row| ["email", "call", "meeting", "page"][(scattered(row) % 4) as usize].to_owned()),
        text(&|row| format!("00Q_{:012}", scattered(row) % LEADS)),
        text(&|row| format!("005_{:012}", scattered(row) % 500)),
        text(&|row| format!("subject {}", scattered(row) % 2000)),
        Arc::new(Date32Array::from_iter_values((0..ROWS).map(|row| 19_000 + (row / 5000) as i32))),
        text(&|_| "inbox/a.json".to_owned()),
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(u64::cast_signed))),
        times(0),
        nulls.clone(),
        nulls,
    ];
    let rows = RecordBatch::try_new(schema.clone(), columns)?;
    let mut made = Vec::new();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(&mut made, schema.clone(), Some(properties))?;
    writer.write(&rows)?;
    writer.close()?;
    Ok(made)
}
