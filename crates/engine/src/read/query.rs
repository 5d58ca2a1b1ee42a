//! Read-only SQL over the tables of a namespace.

use std::time::Duration;

use alluvium_core::{Error, Kind, Result, TableName};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::SQLOptions;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use futures::StreamExt;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::error::{planning, running};
use super::session::{CATALOG, LAKE, RAW, Session};
use super::tables::unknown_table;
use crate::engine::{Engine, Stop};

/// A wait that only a stop ends.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
/// Batches that may wait to be taken.
const BATCHES_AHEAD: usize = 2;

/// The rows of a query, computed as they are taken. Dropped, the query ends and what it spilled is removed.
pub struct QueryRows {
    schema: SchemaRef,
    rows: mpsc::Receiver<Result<RecordBatch>>,
    /// What computes the rows; aborted when dropped.
    work: JoinSet<()>,
    stop: Stop,
    _spill: Option<TempDir>,
}

impl QueryRows {
    /// The query computes on a task of its own, so that a stop is heeded also by a plan that never yields.
    fn new(mut stream: SendableRecordBatchStream, stop: Stop, spill: Option<TempDir>) -> Self {
        let schema = stream.schema();
        let (sender, rows) = mpsc::channel(BATCHES_AHEAD);
        let mut work = JoinSet::new();
        work.spawn(async move {
            while let Some(next) = stream.next().await {
                if sender.send(next.map_err(|e| running(&e))).await.is_err() {
                    break;
                }
            }
        });
        Self { schema, rows, work, stop, _spill: spill }
    }

    /// The columns.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The next rows; `None` after the last.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if a row does not go through the query, [`Kind::Unavailable`] if memory ran out, the store failed or
    /// somebody asked to stop, [`Kind::Corrupt`] if a file is gone or damaged. No message holds a value of a row.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let stopped = || Error::new(Kind::Unavailable, "the query was stopped before its end");
        if self.stop.asked() {
            return Err(stopped());
        }
        let next = tokio::select! {
            next = self.rows.recv() => next,
            () = self.stop.sleep(FOREVER) => return Err(stopped()),
        };
        if next.is_none() && matches!(self.work.join_next().await, Some(Err(_))) {
            return Err(Error::new(Kind::Internal, "the query failed: its work broke off").hint("please report it"));
        }
        next.transpose()
    }
}

impl Engine {
    /// Runs one statement that reads. Tables are named `lake.NAME` (or `NAME`: datasets as declared) and `raw.NAME` (as
    /// stored); names of columns are taken as written.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a statement that is no SQL or would change anything, [`Kind::NotFound`] for a table that the project
    /// does not have, and what keeps a table it names from being read.
    pub async fn query(&self, sql: &str) -> Result<QueryRows> {
        self.existing_incarnation().await?;
        let Session { context, tables, spill } = Session::new(self)?;
        let state = context.state();
        let statement = state.sql_to_statement(sql, &state.config_options().sql_parser.dialect).map_err(|e| planning(&e))?;
        if !reads_only(&statement) {
            return Err(changes_something());
        }
        let named = state.resolve_table_references(&statement).unwrap_or_default();
        let plan = match state.statement_to_plan(statement).await {
            Ok(plan) => plan,
            Err(e) => return Err(not_planned(&e, named, &tables.names())),
        };
        let only_reading = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        only_reading.verify_plan(&plan).map_err(|_| changes_something())?;
        let stream = DataFrame::new(state, plan).execute_stream().await.map_err(|e| running(&e))?;
        Ok(QueryRows::new(stream, self.stop.clone(), spill))
    }
}

fn reads_only(statement: &Statement) -> bool {
    match statement {
        Statement::Explain(explain) => reads_only(&explain.statement),
        Statement::Statement(statement) => reads_only_sql(statement),
        Statement::CreateExternalTable(_) | Statement::CopyTo(_) | Statement::Reset(_) => false,
    }
}

fn reads_only_sql(statement: &SqlStatement) -> bool {
    match statement {
        SqlStatement::Explain { statement, .. } => reads_only_sql(statement),
        SqlStatement::Query(_)
        | SqlStatement::ExplainTable { .. }
        | SqlStatement::ShowTables { .. }
        | SqlStatement::ShowColumns { .. }
        | SqlStatement::ShowFunctions { .. }
        | SqlStatement::ShowVariable { .. }
        | SqlStatement::ShowCreate { .. } => true,
        _ => false,
    }
}

fn changes_something() -> Error {
    Error::new(Kind::Invalid, "the statement would change something, and query only reads")
        .hint("say SELECT, WITH, VALUES, EXPLAIN, DESCRIBE or SHOW; rows come in with: alluvium run ingest")
}

/// Why a statement has no plan: a table that is not there before anything else.
fn not_planned(error: &DataFusionError, named: Vec<TableReference>, known: &[TableName]) -> Error {
    let is_known = |name: &str| known.iter().any(|k| k.as_str().eq_ignore_ascii_case(name));
    for reference in named {
        let resolved = reference.clone().resolve(CATALOG, LAKE);
        if resolved.catalog.as_ref() != CATALOG || ![LAKE, RAW, "information_schema"].contains(&resolved.schema.as_ref()) {
            return Error::new(Kind::NotFound, format!("there is no schema for {reference}"))
                .hint("the schemas are lake (datasets as declared; the default) and raw (tables as stored)");
        }
        if resolved.schema.as_ref() != "information_schema" && !is_known(&resolved.table) {
            return unknown_table(&resolved.table, known);
        }
    }
    planning(error)
}
