//! The rows of a span of versions, read as they are taken.
//!
//! Pieces are told in the order of versions; the next ones are read ahead while one is told, each into a short queue of its own.
//! Invariant `bounded_memory`: the budget bounds the batches, the pieces ahead, and what a comparison may hold.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use alluvium_core::{DatasetName, Error, Job, Kind, Resolver, Result, TableName, parse_data_file};
use alluvium_lake::{ChangedFile, DeltaLog, ReadBudget, Rewrites, RowStream, Rows, Standing};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::compare::{check_size, compare};
use super::life::Life;
use super::plan::{Part, Piece, plan_version, remarked};
use super::recorded::tell_recorded;
use super::rewritten::tell_rewritten;
use super::tell::{ChangeType, CommitTold, Telling};

/// Batches that may wait in the queue of a piece.
const BATCHES_AHEAD: usize = 2;
/// Pieces read at the same time, the one that is told included.
const PIECES_AHEAD: usize = 4;
/// So much memory is worth a piece that is read at the same time.
const BYTES_A_PIECE: u64 = 128 << 20;
/// The part of the budget that a batch may take.
const BATCH_SHARE: u64 = 128;
/// The part of the budget that a file's bytes may take before they are decoded.
const STORED_SHARE: u64 = 16;
/// The largest a batch should be.
const MAX_BATCH_BYTES: u64 = 8 << 20;
/// The part of the budget that a comparison may hold.
const COMPARE_SHARE: u64 = 2;

/// Where rows are read from, and how they are told.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) log: DeltaLog,
    pub(super) table: TableName,
    resolver: Resolver,
    /// The table's columns.
    pub(super) schema: SchemaRef,
    partition_columns: Vec<String>,
    pub(super) telling: Telling,
    life: Life,
    /// What a comparison may hold, in bytes.
    pub(super) budget_bytes: u64,
    memory_bytes: u64,
}

impl Source {
    pub(super) fn new(
        log: DeltaLog,
        resolver: Resolver,
        table: TableName,
        standing: Standing,
        telling: Telling,
        life: Life,
        memory_bytes: u64,
    ) -> Self {
        let Standing { schema, partition_columns, .. } = standing;
        Self {
            log,
            table,
            resolver,
            schema,
            partition_columns,
            telling,
            life,
            budget_bytes: memory_bytes / COMPARE_SHARE,
            memory_bytes,
        }
    }

    pub(super) async fn rows(&self, part: &Part) -> Result<RowStream> {
        self.file_rows(&part.file, &part.rows, &self.schema).await
    }

    pub(super) async fn file_rows(&self, file: &ChangedFile, rows: &Rows, schema: &SchemaRef) -> Result<RowStream> {
        let budget = ReadBudget {
            batch_bytes: (self.memory_bytes / BATCH_SHARE).min(MAX_BATCH_BYTES),
            stored_bytes: self.memory_bytes / STORED_SHARE,
        };
        self.log.read_rows(file, rows, schema, budget).await
    }

    /// The pieces of a version; `None` if its entry is no longer in the log.
    pub(super) async fn pieces(&self, version: u64) -> Result<Option<(CommitTold, Vec<Piece>)>> {
        let Some(changes) = self.log.version_changes(version).await? else { return Ok(None) };
        let changes = self.log.with_partition_values(changes, &self.partition_columns).await?;
        let commit = CommitTold { version, committed_at_ms: changes.committed_at_ms };
        let mut differ = HashMap::new();
        for (name, was, is) in remarked(&changes) {
            differ.insert(name.to_owned(), self.log.marks_differ(was, is).await?);
        }
        let rewrites = match &changes.rewrites {
            Some(name) => Rewrites::read(self.log.store(), &self.resolver, &self.table, name).await?,
            None => None,
        };
        let mut pieces = plan_version(changes, &differ, rewrites);
        if let Telling::Partitions { dataset, .. } = &self.telling {
            pieces.retain(|piece| may_tell_of(piece, dataset));
        }
        for piece in &pieces {
            if let Piece::Compared { gone, came } = piece {
                check_size(self, gone.iter().chain(came), commit)?;
            }
        }
        Ok(Some((commit, pieces)))
    }

    async fn tell(&self, piece: &Piece, commit: CommitTold, out: &Output) -> Result<()> {
        let (part, change) = match piece {
            Piece::Inserted(part) => (part, ChangeType::Insert),
            Piece::Deleted(part) => (part, ChangeType::Delete),
            Piece::Rewritten(file) => return tell_rewritten(self, file, commit, out).await,
            Piece::Recorded(files) => return tell_recorded(self, files, commit, out).await,
            Piece::Compared { gone, came } => return compare(self, gone, came, commit, out).await,
        };
        let mut rows = self.rows(part).await?;
        while let Some(batch) = rows.try_next().await? {
            out.send(self.telling.all(&batch, change, commit)?).await?;
        }
        Ok(())
    }

    fn pieces_ahead(&self) -> usize {
        usize::try_from(self.memory_bytes / BYTES_A_PIECE).unwrap_or(PIECES_AHEAD).clamp(1, PIECES_AHEAD)
    }
}

/// Whether a piece of `notifications` may hold notifications of the dataset. Files of the dataset's own jobs say in their names whose
/// they are.
fn may_tell_of(piece: &Piece, dataset: &DatasetName) -> bool {
    let of_another = |name: &str| {
        parse_data_file(name).is_some_and(|file| {
            let of_one = matches!(file.chain.job, Job::Ingest | Job::Mutate | Job::Retain);
            of_one && file.chain.dataset != *dataset
        })
    };
    match piece {
        Piece::Deleted(_) => false,
        Piece::Inserted(part) => !of_another(&part.file.name),
        Piece::Rewritten(_) | Piece::Recorded(_) | Piece::Compared { .. } => true,
    }
}

/// Rows, that there are no more of them, or why there will not be.
type Message = Result<Option<RecordBatch>>;

/// Where told rows go.
pub(super) struct Output(mpsc::Sender<Message>);

impl Output {
    /// Hands over told rows; waits while the queue is full.
    pub(super) async fn send(&self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        self.0.send(Ok(Some(rows))).await.map_err(|_| Error::new(Kind::Unavailable, "nobody reads the changes any more"))
    }

    /// Says how the telling came out. A queue that ends without was cut short.
    async fn end(&self, outcome: Result<()>) {
        // Nobody listens only when the reading was given up.
        let _ = self.0.send(outcome.map(|()| None)).await;
    }
}

fn cut_short() -> Error {
    Error::new(Kind::Internal, "reading changes: its work broke off").hint("please report it")
}

/// What is told of.
pub(super) enum Span {
    /// What the versions changed, both included.
    Versions { first: u64, last: u64 },
    /// The rows that stand in a table's version, as inserts of that version.
    Standing { files: Vec<ChangedFile>, commit: CommitTold },
}

/// Rows of changes, read as they are taken. Dropped, the reading ends.
pub(super) struct Told {
    rows: mpsc::Receiver<Message>,
    _work: JoinSet<()>,
}

impl Told {
    pub(super) fn new(source: Source, span: Span) -> Self {
        let (sender, rows) = mpsc::channel(BATCHES_AHEAD);
        let mut work = JoinSet::new();
        work.spawn(async move {
            let out = Output(sender);
            out.end(tell_all(&Arc::new(source), span, &out).await).await;
        });
        Self { rows, _work: work }
    }

    /// The next rows; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.rows.recv().await.unwrap_or_else(|| Err(cut_short()))
    }
}

async fn tell_all(source: &Arc<Source>, span: Span, out: &Output) -> Result<()> {
    let mut ahead = Ahead { source: source.clone(), work: JoinSet::new(), queues: VecDeque::new() };
    match span {
        Span::Versions { first, last } => {
            for version in first..=last {
                let (commit, pieces) = source.pieces(version).await?.ok_or_else(|| no_longer_kept(&source.table, version))?;
                for piece in pieces {
                    ahead.begin(piece, commit, out).await?;
                }
            }
        }
        Span::Standing { files, commit } => {
            for file in files {
                let piece = Piece::Inserted(Part::live(file));
                if let Telling::Partitions { dataset, .. } = &source.telling
                    && !may_tell_of(&piece, dataset)
                {
                    continue;
                }
                ahead.begin(piece, commit, out).await?;
            }
        }
    }
    while !ahead.queues.is_empty() {
        ahead.forward_first(out).await?;
    }
    // Entries were read as they were needed: without this, those of another life might have come in between.
    source.life.lasts().await
}

/// An entry that was there a moment ago.
pub(super) fn no_longer_kept(table: &TableName, version: u64) -> Error {
    Error::new(Kind::NotFound, format!("changes of table {table}: version {version} is no longer kept"))
}

/// Pieces that are being read, in the order in which they are told.
struct Ahead {
    source: Arc<Source>,
    work: JoinSet<()>,
    queues: VecDeque<mpsc::Receiver<Message>>,
}

impl Ahead {
    async fn begin(&mut self, piece: Piece, commit: CommitTold, out: &Output) -> Result<()> {
        // A comparison holds much: nothing else is read beside it.
        let alone = matches!(piece, Piece::Compared { .. } | Piece::Recorded(_));
        let most = if alone { 1 } else { self.source.pieces_ahead() };
        while self.queues.len() >= most {
            self.forward_first(out).await?;
        }
        let (sender, queue) = mpsc::channel(BATCHES_AHEAD);
        let source = self.source.clone();
        self.work.spawn(async move {
            let own = Output(sender);
            own.end(source.tell(&piece, commit, &own).await).await;
        });
        self.queues.push_back(queue);
        if alone {
            self.forward_first(out).await?;
        }
        Ok(())
    }

    /// Hands on all of the first piece.
    async fn forward_first(&mut self, out: &Output) -> Result<()> {
        let Some(mut queue) = self.queues.pop_front() else { return Ok(()) };
        while let Some(rows) = queue.recv().await.unwrap_or_else(|| Err(cut_short()))? {
            out.send(rows).await?;
        }
        while self.work.try_join_next().is_some() {}
        Ok(())
    }
}
