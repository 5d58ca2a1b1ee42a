//! The tables that a query sees, opened when it names them.
//!
//! `raw` has every table as stored, `lake` every dataset in the shape it is declared with: the declared columns, then those we add.
//! Both see one version of a table. A table that is not there yet is empty; one that cannot be read troubles only queries that
//! name it.

use std::fmt;
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result, TableName, TableSpec};
use alluvium_lake::{DeltaLog, arrow_schema};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
use tokio::sync::OnceCell;

use crate::engine::Engine;

/// In which shape a table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// As the log has it.
    Stored,
    /// As the project file declares it.
    Declared,
}

/// The tables of a namespace, each opened at most once.
pub(super) struct Tables {
    all: Vec<Table>,
}

struct Table {
    name: TableName,
    log: DeltaLog,
    /// The columns of a table that is not there.
    schema: SchemaRef,
    /// The columns declared for a dataset.
    declared: Option<SchemaRef>,
    opened: OnceCell<Option<Arc<dyn TableProvider>>>,
}

impl Tables {
    pub(super) fn new(engine: &Engine) -> Self {
        let datasets = engine.project.datasets.iter().map(|dataset| {
            let schema = arrow_schema(&TableSpec::data(dataset));
            (TableName::from(&dataset.name), schema.clone(), Some(schema))
        });
        let ours = [
            (TableName::NOTIFICATIONS, arrow_schema(&TableSpec::notifications()), None),
            (TableName::REQUESTS, arrow_schema(&TableSpec::requests()), None),
            (TableName::RETRIES, arrow_schema(&TableSpec::retries()), None),
            (TableName::DEAD_LETTERS, arrow_schema(&TableSpec::dead_letters()), None),
        ];
        let table = |(name, schema, declared)| Table { log: engine.log(&name), name, schema, declared, opened: OnceCell::new() };
        Self { all: datasets.chain(ours).map(table).collect() }
    }

    pub(super) fn names(&self) -> Vec<TableName> {
        self.all.iter().map(|t| t.name.clone()).collect()
    }

    /// All tables are in one store.
    pub(super) fn register_store(&self, runtime: &RuntimeEnv) {
        if let Some(table) = self.all.first() {
            table.log.register_store(runtime);
        }
    }

    /// The table of that name. Case does not matter: no two names differ in case only.
    fn find(&self, name: &str) -> Option<&Table> {
        self.all.iter().find(|t| t.name.as_str().eq_ignore_ascii_case(name))
    }
}

impl Table {
    async fn provider(&self, shape: Shape) -> Result<Arc<dyn TableProvider>> {
        let stored = self.opened.get_or_try_init(|| self.log.table_provider()).await?;
        let Some(stored) = stored.clone() else { return Ok(Arc::new(EmptyTable::new(self.schema.clone()))) };
        match &self.declared {
            Some(declared) if shape == Shape::Declared => view(&self.name, stored, declared)
                .map_err(|e| Error::new(Kind::Internal, format!("reading table {} as declared", self.name)).source(e)),
            _ => Ok(stored),
        }
    }
}

/// The columns of `declared` over a stored table; one that the table does not have yet is null.
fn view(
    name: &TableName,
    stored: Arc<dyn TableProvider>,
    declared: &SchemaRef,
) -> datafusion::error::Result<Arc<dyn TableProvider>> {
    let there = stored.schema();
    let mut shown = Vec::new();
    for field in declared.fields() {
        shown.push(match there.field_with_name(field.name()) {
            Ok(_) => Expr::Column(Column::from_name(field.name())),
            Err(_) => lit(ScalarValue::try_new_null(field.data_type())?).alias(field.name()),
        });
    }
    let plan = LogicalPlanBuilder::scan(name.as_str(), provider_as_source(stored), None)?.project(shown)?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

/// A schema of SQL.
pub(super) struct TablesOfShape {
    tables: Arc<Tables>,
    shape: Shape,
}

impl TablesOfShape {
    pub(super) fn new(tables: Arc<Tables>, shape: Shape) -> Self {
        Self { tables, shape }
    }
}

impl fmt::Debug for TablesOfShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TablesOfShape").field("shape", &self.shape).finish_non_exhaustive()
    }
}

#[async_trait]
impl SchemaProvider for TablesOfShape {
    fn table_names(&self) -> Vec<String> {
        self.tables.all.iter().map(|t| t.name.to_string()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.tables.find(name) {
            Some(table) => table.provider(self.shape).await.map(Some).map_err(|e| DataFusionError::External(Box::new(e))),
            None => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.find(name).is_some()
    }
}
