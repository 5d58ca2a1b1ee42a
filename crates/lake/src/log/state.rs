//! What a table's log says at one version: protocol, metadata, and how far an application has come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use alluvium_core::{
    Column, Error, Incarnation, Kind, LedgerPosition, LedgerShape, Result, TableSpec, TxnVersion, ledger_app_id, shape_app_id,
};
use delta_kernel::snapshot::Snapshot;
use serde_json::Value;

use super::actions::{CommitActions, Metadata, Protocol};
use super::table::{DeltaLog, entry_version};
use crate::blocking::blocking;
use crate::schema::delta_field;
use crate::store::said;

/// The version of a table that was looked at, and what stands there.
#[derive(Debug, Clone)]
pub struct TableState {
    pub(super) version: u64,
    pub(super) metadata: Metadata,
    pub(super) protocol: Protocol,
    pub(super) app_id: String,
    pub(super) txn: Option<i64>,
    pub(super) ledger: LedgerPosition,
    pub(super) shape: Option<LedgerShape>,
}

/// A log that seems damaged or gone is read so often, with so much time between, before it is said to be.
pub(super) const MAX_LOOKS: u32 = 4;
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Entries that are read at a time.
const ENTRIES_AT_ONCE: usize = 16;

/// The property that says whether a table has a change data feed.
pub(super) const FEED: &str = "delta.enableChangeDataFeed";
/// The property that says that we gave it one, and may take it away.
pub(super) const OUR_FEED: &str = "alluvium.change_data_feed";

/// Writer features under which plain appends and removals by us stay right.
const WRITER_FEATURES: [&str; 5] = ["appendOnly", "invariants", "changeDataFeed", "deletionVectors", "v2Checkpoint"];
/// Reader features that do not change what our files mean.
const READER_FEATURES: [&str; 3] = ["deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"];

impl TableState {
    /// The version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How far the application this state was read for has come in this table.
    #[must_use]
    pub fn txn(&self) -> Option<TxnVersion> {
        self.txn.map(TxnVersion)
    }

    /// The position of the ledger that the table's rows were resolved at.
    #[must_use]
    pub fn ledger(&self) -> LedgerPosition {
        self.ledger
    }

    /// The declaration that the table's rows were resolved for, if that was ever said.
    #[must_use]
    pub fn shape(&self) -> Option<LedgerShape> {
        self.shape
    }

    /// The columns the table is partitioned by.
    #[must_use]
    pub fn partition_columns(&self) -> &[String] {
        &self.metadata.partition_columns
    }

    /// Our property of that name.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        self.metadata.configuration.get(&format!("alluvium.{name}")).map(String::as_str)
    }

    /// Whether the table has Delta's change data feed: who changes rows writes them into it.
    #[must_use]
    pub fn has_change_data_feed(&self) -> bool {
        self.metadata.configuration.get(FEED).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Whether appends may be committed to the table at all.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the table asks for more than we can keep to.
    pub fn check_protocol(&self, table: &str) -> Result<()> {
        let Protocol { min_reader_version: reader, min_writer_version: writer, .. } = self.protocol;
        let unknown = |features: &Option<Vec<String>>, known: &[&str]| -> Vec<String> {
            features.iter().flatten().filter(|f| !known.contains(&f.as_str())).cloned().collect()
        };
        let mut missing = unknown(&self.protocol.reader_features, &READER_FEATURES);
        missing.extend(unknown(&self.protocol.writer_features, &WRITER_FEATURES));
        missing.retain(|f| f != "vacuumProtocolCheck");
        if !matches!(reader, 1 | 3) || !matches!(writer, 1 | 2 | 7) || !missing.is_empty() {
            let features = if missing.is_empty() { String::new() } else { format!(" with {}", missing.join(", ")) };
            return Err(Error::new(
                Kind::Unsupported,
                format!("table {table} asks for Delta protocol reader {reader}, writer {writer}{features}, which this program cannot write"),
            )
            .hint("another program upgraded the table; use a version of alluvium that knows these features, or drop them"));
        }
        let refused = |what: &str| {
            Err(Error::new(
                Kind::Unsupported,
                format!("table {table} has {what}, under which batches could be taken twice or fail"),
            )
            .hint("unset that table property"))
        };
        if self.metadata.configuration.contains_key("delta.setTransactionRetentionDuration") {
            return refused("delta.setTransactionRetentionDuration set");
        }
        if self.metadata.configuration.get("delta.columnMapping.mode").is_some_and(|m| m != "none") {
            return refused("delta.columnMapping.mode set");
        }
        Ok(())
    }

    /// Whether the table was made in that life of the namespace.
    pub(super) fn check_incarnation(&self, incarnation: &Incarnation, table: &str) -> Result<()> {
        if self.property("incarnation") == Some(&incarnation.0) {
            return Ok(());
        }
        Err(Error::new(Kind::Fenced, format!("table {table} is not the one this process began with"))
            .hint("the namespace was deleted and made again meanwhile, or the table replaced: run again"))
    }

    /// The columns as the log has them: name, Delta's JSON of the type, nullable.
    pub(super) fn stored_columns(&self, table: &str) -> Result<Vec<StoredColumn>> {
        let corrupt = || Error::new(Kind::Corrupt, format!("the schema in the log of table {table} cannot be read"));
        let schema: Value = serde_json::from_str(&self.metadata.schema_string).map_err(|e| corrupt().source(e))?;
        let fields = schema.get("fields").and_then(Value::as_array).ok_or_else(corrupt)?;
        fields
            .iter()
            .map(|f| {
                Some(StoredColumn {
                    name: f.get("name")?.as_str()?.to_owned(),
                    type_json: f.get("type")?.clone(),
                    nullable: f.get("nullable")?.as_bool()?,
                    whole: f.clone(),
                })
            })
            .collect::<Option<_>>()
            .ok_or_else(corrupt)
    }

    /// Moves on by one commit.
    pub(super) fn advance(&mut self, version: u64, actions: &CommitActions) {
        self.version = version;
        if let Some(metadata) = &actions.metadata {
            self.metadata = metadata.clone();
        }
        if let Some(protocol) = &actions.protocol {
            self.protocol = protocol.clone();
        }
        if let Some(txn) = actions.txns.iter().rev().find(|t| t.app_id == self.app_id) {
            self.txn = Some(txn.version);
        }
        let Some(incarnation) = self.property("incarnation").map(|of| Incarnation(of.to_owned())) else { return };
        let newest = |app_id: String| actions.txns.iter().rev().find(|t| t.app_id == app_id).map(|t| t.version);
        if let Some(version) = newest(ledger_app_id(&incarnation)) {
            self.ledger = position_of(Some(version));
        }
        if let Some(version) = newest(shape_app_id(&incarnation)) {
            self.shape = Some(LedgerShape(version));
        }
    }
}

/// A column in the log's schema.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredColumn {
    pub(super) name: String,
    pub(super) type_json: Value,
    pub(super) nullable: bool,
    pub(super) whole: Value,
}

impl DeltaLog {
    /// Reads the newest version from the newest checkpoint on, and how far `app_id` has come; `None` if there is no table.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if the log is cut or unreadable, [`Kind::Unsupported`] if its protocol is newer than we read,
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn state(&self, app_id: &str) -> Result<Option<TableState>> {
        self.looking_again(|| self.state_now(app_id)).await
    }

    /// Reads a log again that seemed damaged, or gone: between a listing and the reading of what it showed, another program may have
    /// cleaned up, and a store may list late.
    pub(super) async fn looking_again<T, F: Future<Output = Result<T>>>(&self, look: impl Fn() -> F) -> Result<T> {
        let mut looks = 1;
        loop {
            match look().await {
                Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::NotFound) && looks < MAX_LOOKS => {
                    looks += 1;
                    self.store().machine().sleep(LOOK_INTERVAL).await;
                }
                looked => return looked,
            }
        }
    }

    /// The position of the ledger that the table is at, as this process saw it last, or as it is now; `None` if there is no table.
    ///
    /// # Errors
    /// As [`DeltaLog::state`].
    pub async fn ledger_seen(&self, app_id: &str) -> Result<Option<LedgerPosition>> {
        if let Some(known) = self.known_state(app_id) {
            return Ok(Some(known.ledger));
        }
        Ok(self.state(app_id).await?.map(|state| state.ledger))
    }

    /// Whether there is a table, of one that should be there: one that a listing does not show is looked for again, as a store may list
    /// late.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn stands(&self) -> Result<bool> {
        let gone = || Error::new(Kind::NotFound, format!("there is no table at {}", self.root()));
        let look = || async { if self.exists().await? { Ok(()) } else { Err(gone()) } };
        match self.looking_again(look).await {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == Kind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    async fn state_now(&self, app_id: &str) -> Result<Option<TableState>> {
        self.forget(app_id);
        let state = match self.state_by_entries(app_id).await {
            Ok(Some(state)) if state.check_protocol(self.root().as_ref()).is_ok() => state,
            // What is wrong with the log, if anything is, says the one who knows all forms that a log can have.
            _ => match self.state_by_kernel(app_id, None).await {
                Ok(state) => state,
                // That there is no log at all is told from a log that cannot be read by looking.
                Err(_) if !self.exists().await? => return Ok(None),
                // Between the two, another process may have made the table: then it is looked at again.
                Err(e) => return Err(e),
            },
        };
        self.remember(&state);
        Ok(Some(state))
    }

    /// The newest version, by each entry after the newest checkpoint, read once; `None` if entries are not all there.
    async fn state_by_entries(&self, app_id: &str) -> Result<Option<TableState>> {
        let hinted = self.checkpoint_hinted().await?;
        let names = self.names(hinted.and_then(|version| version.checked_sub(1))).await?;
        let of_checkpoint = |name: &&String| name[20..].starts_with(".checkpoint");
        let checkpoint: Option<u64> = names.iter().filter(of_checkpoint).filter_map(|name| name[..20].parse().ok()).max();
        let first = checkpoint.map_or(0, |version| version + 1);
        let versions: Vec<u64> = names.iter().filter_map(|name| entry_version(name)).filter(|v| *v >= first).collect();
        if versions.iter().zip(first..).any(|(version, expected)| *version != expected) {
            return Ok(None);
        }
        let mut state = match checkpoint {
            Some(version) => Some(self.state_by_kernel(app_id, Some(version)).await?),
            None => None,
        };
        for some in versions.chunks(ENTRIES_AT_ONCE) {
            for (version, actions) in self.all_actions(some).await? {
                match (&mut state, &actions) {
                    (Some(state), actions) => state.advance(version, actions),
                    (None, CommitActions { metadata: Some(metadata), protocol: Some(protocol), .. }) => {
                        let mut first = TableState {
                            version,
                            metadata: metadata.clone(),
                            protocol: protocol.clone(),
                            app_id: app_id.to_owned(),
                            txn: None,
                            ledger: LedgerPosition::BEGINNING,
                            shape: None,
                        };
                        first.advance(version, &actions);
                        state = Some(first);
                    }
                    (None, _) => return Ok(None),
                }
            }
        }
        Ok(state)
    }

    /// The version of which the log says that its newest checkpoint is, if it says anything that can be read.
    pub(super) async fn checkpoint_hinted(&self) -> Result<Option<u64>> {
        let text = self.store().get(&self.root().clone().join("_delta_log").join("_last_checkpoint")).await?;
        Ok(text.and_then(|text| serde_json::from_slice::<Value>(&text).ok()?.get("version")?.as_u64()))
    }

    /// A version (the newest, without one), as delta-rs's kernel reads it.
    async fn state_by_kernel(&self, app_id: &str, version: Option<u64>) -> Result<TableState> {
        let (engine, url, app) = (self.for_one_look().engine(), self.url(), app_id.to_owned());
        let read = blocking("reading a table's log", move || {
            let builder = Snapshot::builder_for(url);
            let builder = if let Some(version) = version { builder.at_version(version) } else { builder };
            Ok(builder.build(engine.as_ref()).and_then(|s| {
                let txn = s.get_app_id_version(&app, engine.as_ref())?;
                let properties = s.table_configuration().metadata().configuration();
                let (ledger, shape) = match properties.get("alluvium.incarnation").map(|of| Incarnation(of.clone())) {
                    Some(of) => (
                        s.get_app_id_version(&ledger_app_id(&of), engine.as_ref())?,
                        s.get_app_id_version(&shape_app_id(&of), engine.as_ref())?,
                    ),
                    None => (None, None),
                };
                Ok((s, txn, (position_of(ledger), shape.map(LedgerShape))))
            }))
        })
        .await?;
        let (snapshot, txn, (ledger, shape)) = read.map_err(|e| self.kernel_error(e))?;
        let (metadata, protocol) = self.identity(&snapshot)?;
        Ok(TableState { version: snapshot.version(), metadata, protocol, app_id: app_id.to_owned(), txn, ledger, shape })
    }

    fn identity(&self, snapshot: &Arc<Snapshot>) -> Result<(Metadata, Protocol)> {
        let configuration = snapshot.table_configuration();
        let internal = |e| Error::new(Kind::Internal, format!("reading the metadata of table {}", self.root())).source(e);
        let through = |value: serde_json::Result<Value>| value.map_err(internal);
        let metadata = serde_json::from_value(through(serde_json::to_value(configuration.metadata()))?).map_err(internal)?;
        let protocol = serde_json::from_value(through(serde_json::to_value(configuration.protocol()))?).map_err(internal)?;
        Ok((metadata, protocol))
    }

    /// Our error for the kernel's.
    pub(crate) fn kernel_error(&self, error: delta_kernel::Error) -> Error {
        use delta_kernel::Error as E;
        let mut inner = &error;
        while let E::Backtraced { source, .. } = inner {
            inner = source;
        }
        let text = match inner {
            E::ObjectStore(e) => said(e).unwrap_or_else(|| inner.to_string()),
            _ => inner.to_string(),
        };
        let kind = match inner {
            E::ObjectStore(object_store::Error::NotFound { .. }) | E::FileNotFound(_) => Kind::Corrupt,
            E::ObjectStore(_) | E::IOError(_) | E::Reqwest(_) => Kind::Unavailable,
            wrapped if store_failed(wrapped) => Kind::Unavailable,
            E::Unsupported(_) => Kind::Unsupported,
            E::JoinFailure(_) | E::InternalError(_) => Kind::Internal,
            _ => Kind::Corrupt,
        };
        let message = format!("reading the log of table {}: {}", self.root(), text.lines().next().unwrap_or_default());
        let error = Error::new(kind, message);
        match kind {
            Kind::Corrupt => {
                error.hint("log entries are missing or damaged: restore _delta_log from a backup; nothing was written")
            }
            Kind::Unsupported => error.hint("another program upgraded the table to a protocol this program does not know"),
            Kind::Unavailable => error.hint("try again later"),
            _ => error,
        }
    }

    /// Writes a checkpoint of `version`, so that readers need not replay the log from its beginning. A failure loses nothing.
    ///
    /// # Errors
    /// As [`DeltaLog::state`].
    pub async fn checkpoint(&self, version: u64) -> Result<()> {
        let (engine, url) = (self.engine(), self.url());
        blocking("writing a checkpoint", move || {
            let snapshot = Snapshot::builder_for(url).at_version(version).build(engine.as_ref());
            Ok(snapshot.and_then(|s| s.checkpoint(engine.as_ref(), None).map(|_| ())))
        })
        .await?
        .map_err(|e| self.kernel_error(e))
    }
}

/// The position that a transaction's version names; without one, the beginning.
fn position_of(version: Option<i64>) -> LedgerPosition {
    LedgerPosition(version.and_then(|v| u64::try_from(v).ok()).unwrap_or(0))
}

/// Whether an error comes from the store, however deep below, and not from there being nothing.
fn store_failed(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut below = Some(error);
    while let Some(e) = below {
        if let Some(e) = e.downcast_ref::<object_store::Error>() {
            return !matches!(e, object_store::Error::NotFound { .. });
        }
        below = e.source();
    }
    false
}

/// How the table must change to match what is declared.
#[derive(Debug)]
pub(super) enum Evolution {
    /// It matches.
    None,
    /// Metadata alone: the new `schemaString` and configuration, and the protocol where they ask for more.
    Metadata { schema_string: String, configuration: BTreeMap<String, String>, protocol: Option<Protocol> },
}

/// Plans what must change in the log's metadata for `spec`.
///
/// # Errors
/// [`Kind::Invalid`] if it would take a rewrite or break readers; the message says what to do.
pub(super) fn plan_evolution(
    state: &TableState,
    spec: &TableSpec,
    configuration: &BTreeMap<String, String>,
) -> Result<Evolution> {
    let table = &spec.name;
    let invalid = |what: String, hint: &str| Err(Error::new(Kind::Invalid, what).hint(hint.to_owned()));
    if state.metadata.partition_columns != spec.partition_by {
        return invalid(
            format!(
                "dataset {table}: its table is partitioned by {:?}, the project file now says {:?}",
                state.metadata.partition_columns, spec.partition_by
            ),
            "a table's partitioning cannot change in place: put the old partition_by back, or use a new dataset name",
        );
    }
    for (name, declared) in &spec.fixed_properties {
        let stored = state.property(name);
        if stored != Some(declared) {
            return invalid(
                format!(
                    "dataset {table}: its {name} was {:?} when the table was made, the project file now says {declared:?}",
                    stored.unwrap_or("")
                ),
                "put the old one back, or use a new dataset name",
            );
        }
    }
    if state.property("key").is_some() && !spec.fixed_properties.contains_key("key") {
        return invalid(format!("dataset {table}: the project file no longer has its key"), "put the key back");
    }
    let mut stored = state.stored_columns(table.as_str())?;
    let mut changed = false;
    for column in &spec.columns {
        let wanted = delta_field(column);
        match stored.iter_mut().find(|c| c.name.to_lowercase() == column.name.to_lowercase()) {
            None if !column.nullable => {
                return invalid(
                    format!(
                        "dataset {table}: the new field {} is nullable: false, but rows already there have no value for it",
                        column.name
                    ),
                    "declare it nullable",
                );
            }
            None => {
                stored.push(new_column(column, wanted));
                changed = true;
            }
            Some(there) if there.name != column.name || there.type_json != wanted["type"] => {
                return invalid(
                    format!(
                        "dataset {table}: the column {} is of type {} in the table, the project file now says {} {}",
                        there.name,
                        type_text(&there.type_json),
                        column.name,
                        column.data_type
                    ),
                    "a column's type and spelling cannot change in place: put the old one back, or add a field of another name",
                );
            }
            Some(there) if !there.nullable && column.nullable => {
                there.nullable = true;
                there.whole["nullable"] = Value::Bool(true);
                changed = true;
            }
            Some(_) => {}
        }
    }
    if let Some(left) = stored.iter().find(|c| !c.nullable && spec.column(&c.name).is_none()) {
        return invalid(
            format!("dataset {table}: the field {} is gone from the project file, but its column may not be null", left.name),
            "put the field back; declared without nullable: false it can be left out after the next run",
        );
    }
    let mut merged = state.metadata.configuration.clone();
    merged.extend(configuration.clone());
    if !spec.change_data_feed && merged.remove(OUR_FEED).is_some() {
        merged.insert(FEED.to_owned(), "false".to_owned());
    }
    if !changed && merged == state.metadata.configuration {
        return Ok(Evolution::None);
    }
    let fields: Vec<Value> = stored.into_iter().map(|c| c.whole).collect();
    let schema_string = serde_json::json!({ "type": "struct", "fields": fields }).to_string();
    let with_feed = state.protocol.clone().with_feed();
    let protocol = (spec.change_data_feed && with_feed != state.protocol).then_some(with_feed);
    Ok(Evolution::Metadata { schema_string, configuration: merged, protocol })
}

fn new_column(column: &Column, whole: Value) -> StoredColumn {
    StoredColumn { name: column.name.clone(), type_json: whole["type"].clone(), nullable: column.nullable, whole }
}

fn type_text(type_json: &Value) -> String {
    type_json.as_str().map_or_else(|| type_json.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(error: object_store::Error) -> delta_kernel::Error {
        parquet::errors::ParquetError::External(Box::new(error)).into()
    }

    #[test]
    fn a_failing_store_below_a_reader_of_files_is_told_from_a_file_that_is_gone() {
        let failing = object_store::Error::Generic { store: "S3", source: "503".into() };
        let gone = object_store::Error::NotFound { path: "a".to_owned(), source: "404".into() };
        assert!(store_failed(&wrapped(failing)));
        assert!(!store_failed(&wrapped(gone)));
        assert!(!store_failed(&delta_kernel::Error::MissingVersion));
    }
}
