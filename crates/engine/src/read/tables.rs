//! The tables of a namespace with their rows, files and bytes, from their logs alone.

use std::path::{self, PathBuf};

use alluvium_core::{Error, Kind, Result, TableName};
use alluvium_lake::{LiveFile, TableContents};
use futures::StreamExt;

use crate::engine::Engine;

/// The upper bounds, exclusive, of the classes that files are counted in by size; a last class takes the larger ones.
pub const SIZE_BUCKETS: [u64; 5] = [1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];
/// Logs read at the same time.
const LOGS_AT_ONCE: usize = 4;

/// The files of one class of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeBucket {
    /// All are smaller than this; `None`: the largest class.
    pub below_bytes: Option<u64>,
    /// How many there are.
    pub files: u64,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReport {
    /// Its name.
    pub name: TableName,
    /// Where it is: what another reader opens.
    pub path: String,
    /// Its newest version.
    pub version: u64,
    /// Its rows; `None` if its log does not say how many.
    pub rows: Option<u64>,
    /// Its files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its files by size, from the smallest class to the largest.
    pub histogram: Vec<SizeBucket>,
}

/// The tables that are there, and those that could not be read.
#[derive(Debug, Default)]
pub struct TablesReport {
    /// Datasets in the order of the project file, then our own tables.
    pub tables: Vec<TableReport>,
    /// What could not be read, and why. It does not hide the others.
    pub failed: Vec<Error>,
}

impl Engine {
    /// The tables of the namespace, or the one of that name. What is not there yet is left out.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if no table can have that name, [`Kind::Conflict`] if the namespace is being deleted. Tables that cannot
    /// be read are in [`TablesReport::failed`].
    pub async fn tables(&self, name: Option<&str>) -> Result<TablesReport> {
        let names = match name {
            Some(name) => vec![self.table_named(name)?],
            None => self.table_names(),
        };
        self.existing_incarnation().await?;
        let read = futures::stream::iter(names.into_iter().map(|name| async move {
            let contents = self.log(&name).contents().await;
            contents.map(|contents| contents.map(|c| self.report(name, &c)))
        }));
        let mut report = TablesReport::default();
        for outcome in read.buffered(LOGS_AT_ONCE).collect::<Vec<_>>().await {
            match outcome {
                Ok(table) => report.tables.extend(table),
                Err(e) => report.failed.push(e),
            }
        }
        Ok(report)
    }

    /// The names tables of the namespace can have: datasets in the order of the project file, then our own.
    pub(crate) fn table_names(&self) -> Vec<TableName> {
        let datasets = self.project.datasets.iter().map(|d| TableName::from(&d.name));
        datasets.chain(TableName::OURS).collect()
    }

    fn table_named(&self, name: &str) -> Result<TableName> {
        let names = self.table_names();
        names.iter().find(|n| n.as_str() == name).cloned().ok_or_else(|| unknown_table(name, &names))
    }

    fn report(&self, name: TableName, contents: &TableContents) -> TableReport {
        let TableContents { version, files } = contents;
        TableReport {
            path: self.table_location(&name),
            name,
            version: *version,
            rows: files.iter().map(|f| f.rows).sum(),
            files: files.len() as u64,
            bytes: files.iter().map(|f| f.size).sum(),
            histogram: histogram(files),
        }
    }

    /// Where a table is, for other programs: an absolute path or a URL.
    fn table_location(&self, table: &TableName) -> String {
        let place = self.resolver.table(table);
        if self.project.storage.contains("://") {
            return format!("{}/{place}", self.project.storage.trim_end_matches('/'));
        }
        let storage = self.path(&self.project.storage);
        let absolute = storage.canonicalize().or_else(|_| path::absolute(&storage)).unwrap_or(storage);
        absolute.join(PathBuf::from(place)).display().to_string()
    }
}

/// The error for a name that no table of the namespace has.
pub(super) fn unknown_table(name: &str, known: &[TableName]) -> Error {
    let known: Vec<&str> = known.iter().map(TableName::as_str).collect();
    Error::new(Kind::NotFound, format!("there is no table {name:?} in the project"))
        .hint(format!("its tables are: {}", known.join(", ")))
}

fn histogram(files: &[LiveFile]) -> Vec<SizeBucket> {
    let bounds = SIZE_BUCKETS.iter().map(|b| Some(*b)).chain([None]);
    let mut buckets: Vec<SizeBucket> = bounds.map(|below_bytes| SizeBucket { below_bytes, files: 0 }).collect();
    for file in files {
        let at = SIZE_BUCKETS.partition_point(|bound| *bound <= file.size);
        buckets[at].files += 1;
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_exactly_a_bound_is_in_the_class_above_it() {
        let sizes = [0, 1_048_575, 1_048_576, 4_194_304, 67_108_863, 268_435_456, u64::MAX];
        let files: Vec<LiveFile> = sizes.map(|size| LiveFile { path: String::new(), size, rows: None, mark: None }).into();
        let counted: Vec<u64> = histogram(&files).iter().map(|b| b.files).collect();
        assert_eq!(counted, [2, 1, 1, 1, 0, 2]);
    }
}
