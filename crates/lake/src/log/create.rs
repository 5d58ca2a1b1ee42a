//! Making a table on first need, and letting its metadata follow the declaration.

use std::collections::BTreeMap;

use alluvium_core::{
    DataType, Error, Incarnation, Kind, LedgerPosition, LedgerShape, Result, TableSpec, ledger_app_id, shape_app_id,
};
use serde_json::json;

use super::actions::{CommitText, Metadata, Protocol, schema_string};
use super::state::{Evolution, FEED, OUR_FEED, TableState, plan_evolution};
use super::table::DeltaLog;
use crate::store::PutNew;

/// Metadata is given up, loudly, after losing this many races.
const MAX_TRIES: u32 = 100;

impl DeltaLog {
    /// Makes the table if it is not there, checks that it is ours and may be written, and adds columns that were declared since.
    /// Returns its state for `app_id`. May be repeated.
    ///
    /// # Errors
    /// [`Kind::Conflict`] if a table stands there that this namespace did not make, [`Kind::Invalid`] if the declaration changed
    /// in a way that would take a rewrite, and what [`DeltaLog::state`] returns.
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the table is made or not, changed or not.
    pub async fn ensure(&self, spec: &TableSpec, incarnation: &Incarnation, app_id: &str, now_ms: i64) -> Result<TableState> {
        self.ensure_at(spec, incarnation, app_id, now_ms, LedgerPosition::BEGINNING, None).await
    }

    /// As [`DeltaLog::ensure`]. A table that is made is made at this position of the ledger: it has no rows that requests up to it could
    /// be about.
    ///
    /// # Errors
    /// As [`DeltaLog::ensure`].
    pub async fn ensure_at(
        &self,
        spec: &TableSpec,
        incarnation: &Incarnation,
        app_id: &str,
        now_ms: i64,
        position: LedgerPosition,
        shape: Option<LedgerShape>,
    ) -> Result<TableState> {
        for _ in 0..MAX_TRIES {
            if let Some(state) = self.evolve(spec, incarnation, app_id, now_ms).await? {
                return Ok(state);
            }
            let _either_way_look_again = self.create(spec, incarnation, (position, shape), now_ms).await?;
        }
        Err(self.races_lost())
    }

    /// As [`DeltaLog::ensure`], of a table that is there: `None` if there is none, and none is made.
    ///
    /// # Errors
    /// As [`DeltaLog::ensure`].
    pub async fn evolve(
        &self,
        spec: &TableSpec,
        incarnation: &Incarnation,
        app_id: &str,
        now_ms: i64,
    ) -> Result<Option<TableState>> {
        let configuration = configuration(spec, incarnation);
        // What was last seen is good enough as long as nothing is to be changed: whoever commits looks again.
        if let Some(state) = self.known_state(app_id)
            && state.property("incarnation") == Some(&incarnation.0)
            && state.check_protocol(self.root().as_ref()).is_ok()
            && matches!(plan_evolution(&state, spec, &configuration), Ok(Evolution::None))
        {
            return Ok(Some(state));
        }
        for _ in 0..MAX_TRIES {
            let Some(state) = self.state(app_id).await? else { return Ok(None) };
            if state.property("incarnation") != Some(&incarnation.0) {
                return Err(Error::new(
                    Kind::Conflict,
                    format!("a Delta table that this namespace did not make stands at {}", self.root()),
                )
                .hint("rename the dataset, or move that table away"));
            }
            state.check_protocol(self.root().as_ref())?;
            match plan_evolution(&state, spec, &configuration)? {
                Evolution::None => return Ok(Some(state)),
                Evolution::Metadata { schema_string, configuration, protocol } => {
                    let metadata = Metadata { schema_string, configuration, ..state.metadata };
                    let mut text = self.commit_text("SET TBLPROPERTIES", json!({ "properties": "{}" }), now_ms);
                    if let Some(protocol) = protocol {
                        text.protocol(&protocol);
                    }
                    text.metadata(&metadata);
                    let _either_way_look_again =
                        self.store().put_new(&self.entry_path(state.version + 1), text.into_bytes()).await?;
                }
            }
        }
        Err(self.races_lost())
    }

    fn races_lost(&self) -> Error {
        Error::new(Kind::Unavailable, format!("changing the metadata of table {}: {MAX_TRIES} races lost", self.root()))
            .hint("run again when fewer writers are at work on the table")
    }

    async fn create(
        &self,
        spec: &TableSpec,
        incarnation: &Incarnation,
        (position, shape): (LedgerPosition, Option<LedgerShape>),
        now_ms: i64,
    ) -> Result<PutNew> {
        let mut text = self.commit_text(
            "CREATE TABLE",
            json!({ "isManaged": "false", "partitionBy": json!(spec.partition_by).to_string(), "properties": "{}" }),
            now_ms,
        );
        if !position.is_beginning() {
            text.txn(&ledger_app_id(incarnation), position.0.cast_signed());
        }
        if let Some(shape) = shape {
            text.txn(&shape_app_id(incarnation), shape.0);
        }
        text.protocol(&Protocol::ours(spec.change_data_feed));
        text.metadata(&Metadata {
            id: self.store().machine().fresh_id().to_string(),
            schema_string: schema_string(spec),
            partition_columns: spec.partition_by.clone(),
            created_time: Some(now_ms),
            configuration: configuration(spec, incarnation),
        });
        self.store().put_new(&self.entry_path(0), text.into_bytes()).await
    }

    fn commit_text(&self, operation: &str, parameters: serde_json::Value, now_ms: i64) -> CommitText {
        CommitText::new(now_ms, operation, parameters, false, &self.store().machine().fresh_id().to_string())
    }
}

/// The table properties: ours, and which columns other writers may keep statistics of.
fn configuration(spec: &TableSpec, incarnation: &Incarnation) -> BTreeMap<String, String> {
    let mut properties: BTreeMap<String, String> =
        spec.fixed_properties.iter().map(|(name, value)| (format!("alluvium.{name}"), value.clone())).collect();
    properties.insert("alluvium.incarnation".to_owned(), incarnation.0.clone());
    let with_statistics: Vec<String> = spec
        .columns
        .iter()
        .filter(|c| !spec.without_statistics.contains(&c.name) && !spec.partition_by.contains(&c.name))
        .filter(|c| !matches!(c.data_type, DataType::Binary | DataType::Boolean | DataType::Array(_) | DataType::Map(..)))
        .map(|c| format!("`{}`", c.name.replace('`', "``")))
        .collect();
    if spec.change_data_feed {
        properties.insert(FEED.to_owned(), "true".to_owned());
        properties.insert(OUR_FEED.to_owned(), "true".to_owned());
    }
    if !spec.without_statistics.is_empty() {
        properties.insert("delta.dataSkippingStatsColumns".to_owned(), with_statistics.join(","));
    }
    properties
}
