//! Reads Delta tables with nothing but a JSON parser and Parquet's own row reader, so that checks share no code with what they
//! check: neither the lake's log code, nor delta-rs, nor Arrow.
//!
//! Knows plain tables only: every log entry from version 0 on, adds and removes of whole files.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use chrono::DateTime;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

/// A row: columns that are null are left out.
pub type Row = BTreeMap<String, String>;

/// What went wrong while reading, or what does not hold.
pub type Fault = String;

/// One table.
#[derive(Debug, Clone)]
pub struct TableReader {
    store: Arc<dyn ObjectStore>,
    root: Path,
}

/// What one log entry says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogEntry {
    /// The files added.
    pub adds: Vec<Add>,
    /// The paths removed.
    pub removes: Vec<String>,
    /// Application ids and versions.
    pub txns: Vec<(String, i64)>,
    /// The schema, when the entry sets it.
    pub schema: Option<Value>,
}

/// A file that a log entry adds.
#[derive(Debug, Clone, PartialEq)]
pub struct Add {
    /// The path as the log spells it.
    pub path: String,
    /// Partition columns and values.
    pub partition_values: BTreeMap<String, Option<String>>,
    /// Its statistics.
    pub stats: Value,
}

impl TableReader {
    /// The table in directory `root` of the store.
    #[must_use]
    pub fn new(store: &Arc<dyn ObjectStore>, root: &str) -> Self {
        Self { store: store.clone(), root: Path::from(root) }
    }

    /// The log entries from version 0 on; none if there is no table.
    ///
    /// # Errors
    /// A version that is missing between others, or an entry that is not what Delta writes.
    pub async fn log(&self) -> Result<Vec<LogEntry>, Fault> {
        let directory = self.root.clone().join("_delta_log");
        let found: Vec<_> =
            self.store.list(Some(&directory)).try_collect().await.map_err(|e| format!("listing {directory}: {e}"))?;
        let mut names: Vec<String> =
            found.iter().filter_map(|f| f.location.filename()).filter(|n| n.ends_with(".json")).map(str::to_owned).collect();
        names.sort();
        let mut log = Vec::new();
        for (version, name) in names.iter().enumerate() {
            if *name != format!("{version:020}.json") {
                return Err(format!("{directory}: version {version} is missing, {name} is there"));
            }
            let bytes = self.get(&directory.clone().join(name.as_str())).await?;
            log.push(parse_entry(&bytes).map_err(|e| format!("{directory}/{name}: {e}"))?);
        }
        Ok(log)
    }

    /// The files live after the last of `log`, each once.
    ///
    /// # Errors
    /// An add of a path that is live, or a remove of one that is not.
    pub fn live(log: &[LogEntry]) -> Result<Vec<Add>, Fault> {
        let mut live: BTreeMap<&str, &Add> = BTreeMap::new();
        for (version, entry) in log.iter().enumerate() {
            for path in &entry.removes {
                live.remove(path.as_str()).ok_or_else(|| format!("version {version} removes {path}, which is not live"))?;
            }
            for add in &entry.adds {
                if live.insert(&add.path, add).is_some() {
                    return Err(format!("version {version} adds {}, which is live", add.path));
                }
            }
        }
        Ok(live.into_values().cloned().collect())
    }

    /// All rows of the newest version, in no order.
    ///
    /// # Errors
    /// As [`TableReader::log`] and [`TableReader::rows_of`].
    pub async fn rows(&self) -> Result<Vec<Row>, Fault> {
        let mut rows = Vec::new();
        for add in Self::live(&self.log().await?)? {
            rows.extend(self.rows_of(&add).await?);
        }
        Ok(rows)
    }

    /// All rows that any version added, those that others took away again included, in the order of versions.
    ///
    /// # Errors
    /// As [`TableReader::rows`]; a file that is gone.
    pub async fn rows_ever(&self) -> Result<Vec<Row>, Fault> {
        let mut rows = Vec::new();
        for entry in self.log().await? {
            for add in &entry.adds {
                rows.extend(self.rows_of(add).await?);
            }
        }
        Ok(rows)
    }

    /// The rows of one file, with its partition values from the log.
    ///
    /// # Errors
    /// A file that is not there or cannot be read, that has another number of rows than its statistics say, or whose own
    /// partition columns differ from the log's.
    pub async fn rows_of(&self, add: &Add) -> Result<Vec<Row>, Fault> {
        let path: Path = self.root.parts().chain(Path::from(percent_decoded(&add.path)).parts()).collect();
        let bytes = self.get(&path).await?;
        let mut rows = parquet_rows(bytes).map_err(|e| format!("{path}: {e}"))?;
        if let Some(said) = add.stats.get("numRecords").and_then(Value::as_u64)
            && said != rows.len() as u64
        {
            return Err(format!("{path}: {} rows, statistics say {said}", rows.len()));
        }
        for (name, value) in &add.partition_values {
            for row in &mut rows {
                let own = row.get(name);
                if own.is_some() && own != value.as_ref() {
                    return Err(format!("{path}: the file has {own:?} in {name}, the log {value:?}"));
                }
                if let Some(value) = value {
                    row.insert(name.clone(), value.clone());
                }
            }
        }
        Ok(rows)
    }

    async fn get(&self, path: &Path) -> Result<Bytes, Fault> {
        let got = self.store.get(path).await.map_err(|e| format!("reading {path}: {e}"))?;
        got.bytes().await.map_err(|e| format!("reading {path}: {e}"))
    }
}

fn parse_entry(bytes: &Bytes) -> Result<LogEntry, Fault> {
    let mut entry = LogEntry::default();
    for line in bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let line: Value = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| format!("{value} is not text"));
        if let Some(add) = line.get("add") {
            let partition_values = add["partitionValues"].as_object().ok_or("no partitionValues")?;
            entry.adds.push(Add {
                path: text(&add["path"])?,
                partition_values: partition_values.iter().map(|(k, v)| (k.clone(), v.as_str().map(str::to_owned))).collect(),
                stats: serde_json::from_str(add["stats"].as_str().unwrap_or("{}")).map_err(|e| e.to_string())?,
            });
        }
        if let Some(remove) = line.get("remove") {
            entry.removes.push(text(&remove["path"])?);
        }
        if let Some(txn) = line.get("txn") {
            entry.txns.push((text(&txn["appId"])?, txn["version"].as_i64().ok_or("no version of a txn")?));
        }
        if let Some(metadata) = line.get("metaData") {
            entry.schema =
                Some(serde_json::from_str(metadata["schemaString"].as_str().unwrap_or("")).map_err(|e| e.to_string())?);
        }
    }
    Ok(entry)
}

fn parquet_rows(bytes: Bytes) -> parquet::errors::Result<Vec<Row>> {
    let reader = SerializedFileReader::new(bytes)?;
    let rows = reader.get_row_iter(None)?;
    rows.map(|row| Ok(row?.get_column_iter().filter_map(|(name, field)| Some((name.clone(), text(field)?))).collect())).collect()
}

/// A field as text; null is `None`. Times are RFC 3339 with microseconds, dates ISO 8601, bytes hexadecimal, nested values as
/// Parquet's reader prints them.
fn text(field: &Field) -> Option<String> {
    Some(match field {
        Field::Null => return None,
        Field::Str(text) => text.clone(),
        Field::Bytes(bytes) => bytes.data().iter().map(|b| format!("{b:02x}")).collect(),
        Field::TimestampMicros(micros) => DateTime::from_timestamp_micros(*micros)
            .map_or_else(|| micros.to_string(), |t| t.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()),
        Field::Date(days) => DateTime::from_timestamp(i64::from(*days) * 86_400, 0)
            .map_or_else(|| days.to_string(), |t| t.format("%Y-%m-%d").to_string()),
        Field::Double(value) => format!("{value:?}"),
        other => other.to_string(),
    })
}

/// Delta's log spells paths as URIs.
fn percent_decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = path.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(escape.unwrap_or(bytes[at]));
        at += if escape.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry(lines: &[&str]) -> LogEntry {
        parse_entry(&Bytes::from(lines.join("\n"))).unwrap()
    }

    #[test]
    fn files_are_live_from_their_add_to_their_remove_and_a_second_add_is_a_fault() {
        let add = r#"{"add":{"path":"a%20b","partitionValues":{"o":"x","n":null},"stats":"{\"numRecords\":2}"}}"#;
        let first = entry(&[add, r#"{"txn":{"appId":"t","version":1024}}"#]);
        assert_eq!(first.txns, [("t".to_owned(), 1024)]);
        assert_eq!(first.adds[0].partition_values["o"], Some("x".to_owned()));
        assert_eq!(first.adds[0].partition_values["n"], None);
        let gone = entry(&[r#"{"remove":{"path":"a%20b"}}"#]);
        assert_eq!(TableReader::live(std::slice::from_ref(&first)).unwrap().len(), 1);
        assert_eq!(TableReader::live(&[first.clone(), gone.clone()]).unwrap().len(), 0);
        assert!(TableReader::live(&[first.clone(), first]).unwrap_err().contains("which is live"));
        assert!(TableReader::live(&[gone]).unwrap_err().contains("not live"));
    }

    #[test]
    fn percent_escapes_are_bytes_of_the_path() {
        assert_eq!(percent_decoded("a%20b%C3%A9%zz%"), "a bé%zz%");
    }
}
