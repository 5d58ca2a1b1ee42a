//! Puts encoded files where their batch's record will name them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alluvium_core::{
    AddedFile, BatchKey, ChainId, DataType, DatePartitionCount, Error, IndexFile, Kind, Resolver, Result, TableFiles, TableName,
    TableSpec, data_file,
};
use arrow::array::{Array, RecordBatch};
use arrow::compute::{SortColumn, interleave, lexsort_to_indices};
use arrow::datatypes::{DataType as ArrowType, Field, FieldRef, Schema, SchemaRef};
use object_store::path::Path;
use rayon::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::encode::{EncodedFile, Encoder, Order};
use super::group::{self, Arranged, Counts, Partition, expand};
use super::statistics::statistics;
use crate::file_index::{FileIds, IndexBuilder};
use crate::log::DeltaLog;
use crate::pieces::Pieces;
use crate::splice::SplicedFile;
use crate::store::PutNew;

/// From this size on a partition's columns are encoded in parallel.
const LARGE_PARTITION_BYTES: usize = 1 << 20;

/// The column of a change data feed that says what became of the row: `insert`, `update_preimage`, `update_postimage` or `delete`.
pub const CHANGE_TYPE: &str = "_change_type";
/// Where Delta has the files of a change data feed.
const FEED_DIRECTORY: &str = "_change_data/";
/// Files that are written to a local disk at the same time, at most.
const FILES_TO_DISK_AT_ONCE: usize = 8;

/// Whose files are staged, and when.
#[derive(Debug, Clone)]
pub struct StageSettings {
    /// The chain of the batch.
    pub chain: ChainId,
    /// The batch and attempt.
    pub key: BatchKey,
    /// The time, in milliseconds since 1970.
    pub now_ms: i64,
    /// The column that holds the organisation, whose rows are counted by event date; `None`: nothing is counted.
    pub org: Option<String>,
    /// How many finished files may wait to be put at a time.
    pub files_in_flight: usize,
    /// The fields whose ids an index of the files will tell; `None`: no index.
    pub index: Option<StageIndex>,
}

/// What the index of staged files tells, and where it will be.
#[derive(Debug, Clone)]
pub struct StageIndex {
    /// Knows its name.
    pub resolver: Resolver,
    /// The fields; those that do not hold text or integers are left out.
    pub fields: Vec<String>,
}

/// The staged files of one attempt that no record names.
#[derive(Debug, Clone)]
pub struct Sweep {
    log: DeltaLog,
    table: TableName,
    settings: StageSettings,
    directory: &'static str,
    writer: String,
    next_file: Arc<AtomicU32>,
}

impl Sweep {
    /// Deletes the files, as far as the store lets; what stays is left to vacuum. Only for an attempt whose record this process
    /// did not try to write, or found taken by another's.
    pub async fn run(self) {
        let name = |seq| file_name(&self.settings, self.directory, &self.writer, seq);
        let mut paths: Vec<Path> =
            (0..self.next_file.load(Ordering::Relaxed)).map(|seq| self.log.data_path(&name(seq))).collect();
        paths.extend(index_path(&self.settings, &self.table, &self.writer).filter(|_| !paths.is_empty()));
        if let Err(error) = self.log.store().delete_all(paths).await {
            tracing::debug!(error = %error.chain_text(), "could not delete the staged files of an attempt");
        }
    }
}

fn file_name(settings: &StageSettings, directory: &str, writer: &str, seq: u32) -> String {
    format!("{directory}{}", data_file(&settings.chain, settings.key, writer, seq))
}

fn index_path(settings: &StageSettings, table: &TableName, writer: &str) -> Option<Path> {
    let StageSettings { chain, key, index, .. } = settings;
    let file = IndexFile { chain: chain.clone(), key: *key, writer: writer.to_owned() };
    index.as_ref().map(|index| Path::from(index.resolver.file_index(table, &file)))
}

/// Stages files of one table for one attempt at a batch.
#[derive(Debug)]
pub struct Stager {
    log: DeltaLog,
    spec: TableSpec,
    settings: StageSettings,
    /// Where in the table's directory the files go.
    directory: &'static str,
    encoder: Encoder,
    writer: String,
    next_file: Arc<AtomicU32>,
    runtime: Handle,
    permits: Arc<Semaphore>,
    puts: Mutex<Vec<JoinHandle<Result<AddedFile>>>>,
    counts: Mutex<Counts>,
    index: IndexBuilder,
}

impl Stager {
    /// A stager for the table of `log`. Must be made within a Tokio runtime.
    #[must_use]
    pub fn new(log: &DeltaLog, spec: &TableSpec, mut settings: StageSettings) -> Self {
        let holds_ids = |field: &&String| {
            let column = spec.columns.iter().find(|column| column.name == **field);
            let integers = [DataType::Long, DataType::Integer, DataType::Short, DataType::Byte];
            column.is_some_and(|column| column.data_type == DataType::String || integers.contains(&column.data_type))
        };
        let indexed: Vec<String> = settings.index.iter().flat_map(|index| &index.fields).filter(holds_ids).cloned().collect();
        settings.index = settings.index.filter(|_| !indexed.is_empty());
        // A disk is not quicker for more files at a time, and each waits in memory.
        let most = if log.store().is_local_disk() { FILES_TO_DISK_AT_ONCE } else { usize::MAX };
        let in_flight = settings.files_in_flight.min(most);
        Self {
            log: log.clone(),
            encoder: Encoder::new(spec, indexed.clone()),
            index: IndexBuilder::new(indexed),
            spec: spec.clone(),
            permits: Arc::new(Semaphore::new(in_flight.max(1))),
            settings,
            directory: "",
            writer: log.store().machine().fresh_id().simple().to_string(),
            next_file: Arc::default(),
            runtime: Handle::current(),
            puts: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// The same, for rows that have other columns than the declared ones: those of `schema`.
    #[must_use]
    pub fn of_schema(log: &DeltaLog, spec: &TableSpec, schema: &SchemaRef, settings: StageSettings) -> Self {
        let stager = Self::new(log, spec, settings);
        Self { encoder: Encoder::of_schema(spec, schema.clone(), stager.index.fields().to_vec()), ..stager }
    }

    /// A stager for the change data feed of the table of `log`, whose columns are `schema`. Its batches have them and [`CHANGE_TYPE`]. Must be
    /// made within a Tokio runtime.
    #[must_use]
    pub fn of_feed(log: &DeltaLog, spec: &TableSpec, schema: &SchemaRef, settings: StageSettings) -> Self {
        let spec = TableSpec { cluster_by: Vec::new(), ..spec.clone() };
        let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(CHANGE_TYPE, ArrowType::Utf8, true)));
        let settings = StageSettings { org: None, index: None, ..settings };
        let stager = Self::of_schema(log, &spec, &Arc::new(Schema::new(fields)), settings);
        Self { directory: FEED_DIRECTORY, ..stager }
    }

    /// Orders a batch, which has all columns of the table, by partition, and counts its rows: it must be staged, or the attempt
    /// dropped. May be called from many threads; best where the batch was just made.
    ///
    /// # Errors
    /// [`Kind::Internal`] if the batch lacks a column.
    pub fn arrange(&self, batch: RecordBatch) -> Result<Arranged> {
        if let Some(org) = &self.settings.org {
            group::count(&batch, org, &self.counts)?;
        }
        group::arrange(batch, &self.spec.partition_by)
    }

    /// Arranges and stages `batches`; see [`Stager::stage_arranged`].
    ///
    /// # Errors
    /// As [`Stager::stage_arranged`].
    pub fn stage(&self, batches: Vec<RecordBatch>) -> Result<()> {
        self.stage_arranged(batches.into_iter().map(|b| self.arrange(b)).collect::<Result<_>>()?, true).map(|_| ())
    }

    /// Encodes and puts what was arranged: one file or more for each partition. Unless it is the `last` of the batch, the
    /// smallest partitions, a quarter of the rows at most, are given back, to be staged with what comes next: fewer files, for
    /// less memory freed. Blocks: call it from a thread that may. The files are in the store, and durable, only after
    /// [`Stager::finish`].
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed; then the attempt is of no use.
    pub fn stage_arranged(&self, arranged: Vec<Arranged>, last: bool) -> Result<Option<Arranged>> {
        let rows: usize = arranged.iter().map(|a| a.rows.num_rows()).sum();
        if rows == 0 {
            return Ok(None);
        }
        let (mut batches, mut parts) = (Vec::with_capacity(arranged.len()), Vec::with_capacity(arranged.len()));
        for Arranged { rows, parts: of_batch } in arranged {
            batches.push(rows);
            parts.push(of_batch);
        }
        let row_bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum::<usize>() / rows;
        // Large partitions one by one, their columns on all cores; small ones on all cores, column by column. Never one inside the
        // other: a thread that waits for columns would begin further partitions, and memory would have no bound.
        let mut partitions = group::partitions(parts);
        let kept = if last { Vec::new() } else { group::split_off_smallest(&mut partitions, rows / 4) };
        let (large, small): (Vec<Partition>, Vec<Partition>) =
            partitions.into_iter().partition(|p| p.rows() * row_bytes >= LARGE_PARTITION_BYTES);
        for partition in large {
            self.encode(&batches, partition, row_bytes, true)?;
        }
        small.into_par_iter().with_max_len(1).try_for_each(|partition| self.encode(&batches, partition, row_bytes, false))?;
        group::gather(&batches, kept)
    }

    fn encode(&self, batches: &[RecordBatch], partition: Partition, row_bytes: usize, columns_in_parallel: bool) -> Result<()> {
        let values = partition.values(batches, &self.spec.partition_by)?;
        let order = match self.cluster(batches, &partition)? {
            Some(rows) => Order::Rows(rows),
            None => Order::Runs(partition.runs),
        };
        self.encoder.encode(batches, order, row_bytes, columns_in_parallel, |file| self.put(&values, file))
    }

    /// The rows of a partition in the order of the columns of `cluster_by`; `None` where they stay as they are.
    fn cluster(&self, batches: &[RecordBatch], partition: &Partition) -> Result<Option<Vec<(usize, usize)>>> {
        let internal = |e| Error::new(Kind::Internal, "ordering rows by cluster_by").source(e);
        let names = self.spec.cluster_by.iter().filter(|c| !self.spec.partition_by.contains(c));
        let mut rows: Vec<(usize, usize)> = Vec::new();
        let mut columns: Vec<SortColumn> = Vec::new();
        for name in names {
            if rows.is_empty() {
                rows = expand(&partition.runs);
            }
            let arrays: Vec<&dyn Array> = batches.iter().filter_map(|b| b.column_by_name(name)).map(AsRef::as_ref).collect();
            columns.push(SortColumn { values: interleave(&arrays, &rows).map_err(internal)?, options: None });
        }
        if columns.is_empty() {
            return Ok(None);
        }
        let order = lexsort_to_indices(&columns, None).map_err(internal)?;
        Ok(Some(order.values().iter().map(|i| rows[*i as usize]).collect()))
    }

    /// Takes a file that was made elsewhere; `values` are those of the partition columns, in the table's order, `ids` what the index will
    /// tell of it: without them, the file counts as one that may hold any id. `held` is dropped once it is put. Waits while too many others
    /// are on their way.
    ///
    /// # Errors
    /// As [`Stager::stage_arranged`]; that it could not be put shows in [`Stager::finish`].
    pub async fn adopt(
        &self,
        values: &[(String, Option<String>)],
        file: SplicedFile,
        ids: Option<FileIds>,
        held: impl Send + 'static,
    ) -> Result<String> {
        let SplicedFile { pieces, rows, stats } = file;
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|e| Error::new(Kind::Internal, "waiting to put a file").source(e))?;
        let (seq, name) = self.next_name();
        if let Some(ids) = ids.filter(|_| self.settings.index.is_some()) {
            self.index.add(seq, ids);
        }
        let added = AddedFile {
            path: name.clone(),
            partition_values: values.to_vec(),
            size: pieces.len(),
            rows,
            modified_ms: self.settings.now_ms,
            stats,
        };
        self.put_named(added, pieces, (permit, held));
        Ok(name)
    }

    fn next_name(&self) -> (u32, String) {
        let seq = self.next_file.fetch_add(1, Ordering::Relaxed);
        (seq, file_name(&self.settings, self.directory, &self.writer, seq))
    }

    /// Puts a file in the background, as soon as not too many others are on their way.
    fn put(&self, values: &[(String, Option<String>)], file: EncodedFile) -> Result<()> {
        let (seq, path) = self.next_name();
        let added = AddedFile {
            path,
            partition_values: values.to_vec(),
            size: file.bytes.len() as u64,
            rows: file.rows,
            modified_ms: self.settings.now_ms,
            stats: statistics(&self.spec, &file),
        };
        if self.settings.index.is_some() {
            self.index.add(seq, file.ids);
        }
        let permit = self
            .runtime
            .block_on(self.permits.clone().acquire_owned())
            .map_err(|e| Error::new(Kind::Internal, "waiting to put a file").source(e))?;
        self.put_named(added, file.bytes.into(), permit);
        Ok(())
    }

    /// `held` until the file is put.
    fn put_named(&self, added: AddedFile, pieces: Pieces, held: impl Send + 'static) {
        let (store, path) = (self.log.store().clone(), self.log.data_path(&added.path));
        let put = self.runtime.spawn(async move {
            let _held = held;
            match store.stage_own(&path, pieces).await? {
                PutNew::Created => Ok(added),
                PutNew::Exists => {
                    Err(Error::new(Kind::Internal, format!("staging {path}: a file of that name is there already")))
                }
            }
        });
        self.puts.lock().unwrap_or_else(PoisonError::into_inner).push(put);
    }

    /// The bytes of the index of the files so far, which is in memory until the end.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.index.bytes()
    }

    /// What takes away all that this stager stages, should no record ever name it.
    #[must_use]
    pub fn sweep(&self) -> Sweep {
        let Self { log, spec, settings, directory, writer, next_file, .. } = self;
        Sweep {
            log: log.clone(),
            directory,
            table: spec.name.clone(),
            settings: settings.clone(),
            writer: writer.clone(),
            next_file: next_file.clone(),
        }
    }

    /// Waits until everything staged, the index included, is in the store and durable. Returns the files, and the rows by organisation and date.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed; then the attempt is of no use, and what was staged is swept by vacuum.
    pub async fn finish(self) -> Result<(TableFiles, Vec<DatePartitionCount>)> {
        let puts = self.puts.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut adds = Vec::with_capacity(puts.len());
        for put in puts {
            adds.push(put.await.map_err(|e| Error::new(Kind::Internal, "staging a file").source(e))??);
        }
        adds.sort_by(|a, b| a.path.cmp(&b.path));
        if let Some(path) = index_path(&self.settings, &self.spec.name, &self.writer)
            && let Some(index) = self.index.finish()?
            && self.log.store().stage_own(&path, index).await? == PutNew::Exists
        {
            return Err(Error::new(Kind::Internal, format!("staging {path}: a file of that name is there already")));
        }
        if !adds.is_empty() {
            self.log.store().sync_staged().await?;
        }
        let counts = self.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((TableFiles { adds, ..TableFiles::default() }, counts.sorted()))
    }
}
