//! What is known of requests, for those who ask.

use std::collections::BTreeMap;

use alluvium_core::{
    BatchNumber, BatchSpan, Dataset, DatasetName, Error, Incarnation, Kind, LedgerBuilder, LedgerPosition, Request, Result,
    Shape, TableName, TableSpec, app_id,
};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};

use super::states::{APPLIED, UNMATCHED, WAITING};
use super::table::op_name;
use crate::engine::Engine;
use crate::ledger::DatasetLedger;

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestState {
    /// Accepted, not yet applied to all datasets it is about.
    Pending,
    /// No row was seen yet; it is tried again.
    Waiting,
    /// No row was seen in all its attempts; it still holds for rows to come.
    Unmatched,
    /// A row changed, stored or on its way in.
    Applied,
}

impl RequestState {
    /// The name in output and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Waiting => WAITING,
            Self::Unmatched => UNMATCHED,
            Self::Applied => APPLIED,
        }
    }
}

/// A request, and what became of it.
#[derive(Debug, Clone)]
pub struct RequestStatus {
    /// The request.
    pub request: Request,
    /// What it does: `convert`, `update` or `delete`.
    pub op: &'static str,
    /// The batch of requests that accepted it.
    pub accepted_by: BatchNumber,
    /// When that was, in microseconds since 1970.
    pub accepted_at_micros: i64,
    /// How far it has come, over all datasets.
    pub state: RequestState,
    /// The most batches of a dataset that tried it.
    pub attempts: u64,
    /// Rows it changed when it was applied, by dataset.
    pub rows_changed: BTreeMap<String, u64>,
    /// The batches that changed rows for it.
    pub batches: Vec<ChangedBy>,
    /// Whether a delete that was applied before had already removed what it would have changed.
    pub late: bool,
    /// Where it is not applied and no row has its id, as that had been converted away before, by dataset: the request that did it, and
    /// what the id became.
    pub renamed: BTreeMap<String, (String, String)>,
    /// By dataset.
    pub datasets: BTreeMap<String, RequestState>,
}

/// A batch that changed rows for a request.
#[derive(Debug, Clone)]
pub struct ChangedBy {
    /// The dataset whose rows it changed.
    pub dataset: String,
    /// Its job: `mutate`, or `ingest` for rows on their way in.
    pub job: String,
    /// Its number.
    pub batch: u64,
    /// When, in microseconds since 1970.
    pub changed_at_micros: i64,
}

/// What `retries` and `_alluvium/outcomes` say of a request in a dataset.
#[derive(Debug, Default, Clone)]
struct Told {
    retry: Option<(RequestState, u64)>,
    rows: u64,
    batches: Vec<ChangedBy>,
}

impl Engine {
    /// All requests, in the order in which they were accepted, with their states.
    ///
    /// # Errors
    /// As reading a table.
    pub async fn list_requests(&self, state: Option<RequestState>) -> Result<Vec<RequestStatus>> {
        let mut all = self.request_statuses(None).await?;
        all.retain(|status| state.is_none_or(|state| status.state == state));
        Ok(all)
    }

    /// A request, and what became of it.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if no request of that id was accepted.
    pub async fn show_request(&self, id: &str) -> Result<RequestStatus> {
        let found = self.request_statuses(Some(id)).await?;
        let mut status = found.into_iter().next().ok_or_else(|| {
            Error::new(Kind::NotFound, "no request of that id was accepted")
                .hint("see what was refused with: alluvium dead-letters list; and take requests in with: alluvium run mutate")
        })?;
        self.ask_the_ledger(&mut status).await?;
        Ok(status)
    }

    /// How many accepted requests are about the dataset and were not applied to its table yet.
    ///
    /// # Errors
    /// As reading a table.
    pub async fn requests_to_apply(&self, dataset: &Dataset) -> Result<u64> {
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(0) };
        let from = self.ledger_positions(&incarnation).await?.remove(&dataset.name).unwrap_or(LedgerPosition::BEGINNING);
        let Some(span) = BatchSpan::new(BatchNumber(from.0), self.requests_taken(&incarnation).await?) else { return Ok(0) };
        Ok(self.accepted(&incarnation, span, None).await?.iter().filter(|accepted| counts(&accepted.request, dataset)).count()
            as u64)
    }

    async fn request_statuses(&self, id: Option<&str>) -> Result<Vec<RequestStatus>> {
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(Vec::new()) };
        if !self.log(&TableName::REQUESTS).exists().await? {
            return Ok(Vec::new());
        }
        let positions = self.ledger_positions(&incarnation).await?;
        let told = self.told_of_requests(id).await?;
        let filter = id.map_or_else(String::new, |id| format!(" WHERE request_id = {}", sql_text(id)));
        let sql = format!(
            "SELECT request, batch_id, accepted_at FROM raw.requests{filter} ORDER BY batch_id, _source, _offset, request_id"
        );
        let mut rows = self.query(&sql).await?;
        let mut all = Vec::new();
        while let Some(batch) = rows.next().await? {
            let texts = text_column(&batch, 0)?;
            let batches = batch.column(1).as_primitive::<Int64Type>();
            let times = batch.column(2).as_primitive::<TimestampMicrosecondType>();
            for row in 0..batch.num_rows() {
                let request = Request::from_json(texts.value(row))?;
                let accepted = (BatchNumber(batches.value(row).unsigned_abs()), times.value(row));
                all.push(self.status_of(request, accepted, &positions, &told));
            }
        }
        Ok(all)
    }

    fn status_of(
        &self,
        request: Request,
        (accepted_by, accepted_at_micros): (BatchNumber, i64),
        positions: &BTreeMap<DatasetName, LedgerPosition>,
        told: &BTreeMap<(String, String), Told>,
    ) -> RequestStatus {
        let mut status = RequestStatus {
            op: op_name(&request),
            accepted_by,
            accepted_at_micros,
            state: RequestState::Pending,
            attempts: 0,
            rows_changed: BTreeMap::new(),
            batches: Vec::new(),
            late: false,
            renamed: BTreeMap::new(),
            datasets: BTreeMap::new(),
            request,
        };
        for dataset in self.project.datasets.iter().filter(|d| counts(&status.request, d)) {
            let name = dataset.name.0.clone();
            let told = told.get(&(status.request.id.clone(), name.clone())).cloned().unwrap_or_default();
            let is_past = positions.get(&dataset.name).is_some_and(|position| position.0 >= accepted_by.0);
            let state = match told.retry {
                _ if told.rows > 0 => RequestState::Applied,
                Some((state, _)) => state,
                None => RequestState::Pending,
            };
            status.attempts = status.attempts.max(told.retry.map_or(u64::from(is_past), |(_, attempts)| attempts));
            if told.rows > 0 {
                status.rows_changed.insert(name.clone(), told.rows);
            }
            status.batches.extend(told.batches);
            status.datasets.insert(name, state);
        }
        // A dataset of which nothing has come yet holds nothing up.
        let with_rows: Vec<RequestState> = self
            .project
            .datasets
            .iter()
            .filter(|dataset| positions.contains_key(&dataset.name))
            .filter_map(|dataset| status.datasets.get(&dataset.name.0).copied())
            .collect();
        let states = if with_rows.is_empty() { status.datasets.values().copied().collect() } else { with_rows };
        status.state = [RequestState::Applied, RequestState::Pending, RequestState::Waiting, RequestState::Unmatched]
            .into_iter()
            .find(|state| states.contains(state))
            .unwrap_or(RequestState::Pending);
        status
    }

    /// The positions of the data tables that are there.
    async fn ledger_positions(&self, incarnation: &Incarnation) -> Result<BTreeMap<DatasetName, LedgerPosition>> {
        let mut positions = BTreeMap::new();
        for dataset in &self.project.datasets {
            let chain = self.chain(incarnation, alluvium_core::Job::Mutate, dataset, alluvium_core::Shard::WHOLE);
            let log = self.log_of(&TableSpec::data(dataset));
            if let Some(state) = log.state(&app_id(chain.chain())).await? {
                positions.insert(dataset.name.clone(), state.ledger());
            }
        }
        Ok(positions)
    }

    async fn told_of_requests(&self, id: Option<&str>) -> Result<BTreeMap<(String, String), Told>> {
        let mut told: BTreeMap<(String, String), Told> = BTreeMap::new();
        let wanted = |other: &str| id.is_none_or(|id| id == other);
        for table in [TableName::RETRIES, TableName::OUTCOMES] {
            let log = self.log(&table);
            if !log.exists().await? {
                continue;
            }
            for file in log.live_files(None).await? {
                for rows in log.read_file(&file.path).await? {
                    take_told(&rows, table == TableName::RETRIES, &wanted, &mut told)?;
                }
            }
        }
        Ok(told)
    }

    /// Whether a request is late, and where its id had been converted away before.
    async fn ask_the_ledger(&self, status: &mut RequestStatus) -> Result<()> {
        let Some(incarnation) = self.existing_incarnation().await? else { return Ok(()) };
        let taken = self.requests_taken(&incarnation).await?;
        let tables = self.ledger_positions(&incarnation).await?;
        if taken < status.accepted_by {
            return Ok(());
        }
        for dataset in self.project.datasets.iter().filter(|d| counts(&status.request, d)) {
            let (name, table) = (&dataset.name.0, tables.get(&dataset.name).copied());
            let ledger = DatasetLedger::at(self, &incarnation, dataset, LedgerPosition(taken.0), table).await?;
            let told = ledger.told_of(&status.request).await?;
            status.late |= told.late;
            if let Some(renamed) = told.renamed.filter(|_| status.datasets.get(name) != Some(&RequestState::Applied)) {
                status.renamed.insert(name.clone(), renamed);
            }
        }
        Ok(())
    }
}

/// Whether a request is about anything that the dataset has.
fn counts(request: &Request, dataset: &Dataset) -> bool {
    LedgerBuilder::new(std::sync::Arc::new(Shape::of(dataset))).push(request, BatchNumber::FIRST)
}

fn take_told(
    rows: &RecordBatch,
    retries: bool,
    wanted: &dyn Fn(&str) -> bool,
    told: &mut BTreeMap<(String, String), Told>,
) -> Result<()> {
    let corrupt = || Error::new(Kind::Corrupt, "what is remembered of requests cannot be read");
    let text = |name: &str| rows.column_by_name(name).and_then(|c| c.as_string_opt::<i32>()).ok_or_else(corrupt);
    let number = |name: &str| rows.column_by_name(name).and_then(|c| c.as_primitive_opt::<Int64Type>()).ok_or_else(corrupt);
    let (ids, datasets) = (text("request_id")?, text("dataset")?);
    for row in 0..rows.num_rows() {
        if ids.is_null(row) || datasets.is_null(row) || !wanted(ids.value(row)) {
            continue;
        }
        let entry = told.entry((ids.value(row).to_owned(), datasets.value(row).to_owned())).or_default();
        if retries {
            let state = match text("state")?.value(row) {
                APPLIED => RequestState::Applied,
                UNMATCHED => RequestState::Unmatched,
                _ => RequestState::Waiting,
            };
            let attempts = number("attempts")?.value(row).unsigned_abs();
            let newer = (state == RequestState::Applied, attempts);
            if entry.retry.is_none_or(|(before, count)| (before == RequestState::Applied, count) <= newer) {
                entry.retry = Some((state, attempts));
            }
        } else {
            entry.rows += number("rows")?.value(row).unsigned_abs();
            let changed_at = rows.column_by_name("changed_at").and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>());
            entry.batches.push(ChangedBy {
                dataset: datasets.value(row).to_owned(),
                job: text("job")?.value(row).to_owned(),
                batch: number("batch_id")?.value(row).unsigned_abs(),
                changed_at_micros: changed_at.ok_or_else(corrupt)?.value(row),
            });
        }
    }
    Ok(())
}

fn text_column(batch: &RecordBatch, at: usize) -> Result<arrow::array::StringArray> {
    let texts = arrow::compute::cast(batch.column(at), &arrow::datatypes::DataType::Utf8)
        .map_err(|e| Error::new(Kind::Internal, "reading requests").source(e))?;
    Ok(texts.as_string::<i32>().clone())
}

fn sql_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
