//! One data file and the file in its place: rows change or go, all others are copied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium_core::{Dataset, Error, Kind, Result, TableSpec};
use alluvium_lake::{
    CHANGE_TYPE, ChangedFile, ColumnEdit, DeltaLog, Edits, FileIds, IndexReader, SpliceFile, SpliceSettings, Spliced,
};
use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::engine::Engine;
use crate::resolve::{ORIGINAL, RowEdits, edited};

/// Rows changed and gone, by organisation and event date (days since 1970-01-01).
pub(crate) type Counts = BTreeMap<(String, i32), (u64, u64)>;

/// What all files of a table are rewritten with.
pub(crate) struct Rewriter {
    pub(crate) log: DeltaLog,
    pub(crate) dataset: Dataset,
    pub(crate) spec: TableSpec,
    /// The table's columns as its log has them.
    pub(crate) schema: SchemaRef,
    /// Whether the table has a change data feed.
    pub(crate) feed: bool,
    pub(crate) settings: SpliceSettings,
    pub(crate) index: IndexReader,
}

/// A file rewritten.
pub(crate) struct Rewrite {
    pub(crate) spliced: Spliced,
    /// Rows that belong into another partition now, whole.
    pub(crate) moved: Option<RecordBatch>,
    /// What the change data feed tells, if the table has one.
    pub(crate) images: Vec<RecordBatch>,
    /// Positions in the old file.
    pub(crate) positions: Positions,
    /// What it does to rows.
    pub(crate) counts: Counts,
    /// What an index of the file in its place tells; `None`: that it may hold any id.
    pub(crate) ids: Option<FileIds>,
}

/// Positions of rows in a file that was rewritten, ascending.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Positions {
    /// Rows that stay in its place with another value.
    pub(crate) updated: Vec<u64>,
    /// Where they stand in what is in its place.
    pub(crate) now: Vec<u64>,
    /// Rows that went.
    pub(crate) deleted: Vec<u64>,
    /// Rows that stand in a file of another partition now.
    pub(crate) moved: Vec<u64>,
}

impl Rewriter {
    /// What the files of a dataset's table are rewritten with, whose log has those columns.
    pub(crate) fn new(engine: &Engine, dataset: &Dataset, schema: SchemaRef, feed: bool) -> Self {
        let spec = TableSpec::data(dataset);
        Self {
            log: engine.log_of(&spec),
            dataset: dataset.clone(),
            settings: SpliceSettings::new(&spec, &schema),
            schema,
            feed,
            index: IndexReader::new(&engine.store, &engine.resolver, spec.name.clone()),
            spec,
        }
    }

    /// The organisation of all rows of a file, where the table's files are told apart by it.
    pub(crate) fn org_of<'f>(&self, file: &'f ChangedFile) -> Option<&'f str> {
        file.partition_value(&self.dataset.org).filter(|_| self.is_partitioned())
    }

    /// Whether a file holds rows of one organisation alone.
    pub(crate) fn is_partitioned(&self) -> bool {
        self.spec.partition_by.contains(&self.dataset.org)
    }

    /// Rewrites an opened file. `edits` counts its rows among `positions`, which ascend; `counts` is what it does to them.
    pub(crate) async fn rewrite(
        &self,
        opened: &SpliceFile,
        stats: Option<&str>,
        positions: &[u64],
        edits: &RowEdits,
        counts: Counts,
    ) -> Result<Rewrite> {
        let moves: BTreeSet<usize> = self
            .spec
            .partition_by
            .iter()
            .filter_map(|column| edits.cells.get(column))
            .flat_map(|cells| cells.rows.iter().copied())
            .collect();
        let at = |rows: &[usize]| -> Vec<u64> { rows.iter().map(|row| positions[*row]).collect() };
        let moved_rows: Vec<usize> = moves.iter().copied().collect();
        let mut places = Positions { deleted: at(&edits.erased), moved: at(&moved_rows), ..Positions::default() };
        places.updated = edits.changed.iter().filter(|row| !moves.contains(row)).map(|row| positions[*row]).collect();
        let mut deleted: Vec<u64> = places.deleted.iter().chain(&places.moved).copied().collect();
        deleted.sort_unstable();
        let mut left_out: Vec<u64> = deleted.iter().chain(opened.deleted_rows()).copied().collect();
        left_out.sort_unstable();
        left_out.dedup();
        let now = |position: &u64| position - left_out.partition_point(|out| out < position) as u64;
        places.now = places.updated.iter().map(now).collect();
        let mut columns = Vec::new();
        for (column, cells) in &edits.cells {
            if self.spec.partition_by.contains(column) {
                continue;
            }
            let values = cells.values(&self.dataset, column)?;
            let stay: Vec<usize> = (0..cells.rows.len()).filter(|i| !moves.contains(&cells.rows[*i])).collect();
            if stay.is_empty() {
                continue;
            }
            let indices = UInt64Array::from_iter_values(stay.iter().map(|i| *i as u64));
            let values = arrow::compute::take(&values, &indices, None).map_err(internal)?;
            let rows = stay.iter().map(|i| positions[cells.rows[*i]]).collect();
            columns.push(ColumnEdit { column: column.clone(), rows, values });
        }
        let moved = if moved_rows.is_empty() {
            None
        } else {
            let whole = opened.rows_at(&self.schema, &places.moved).await?;
            Some(edited(&whole, &edits.only(&moved_rows), &self.dataset)?)
        };
        let images = if self.feed { self.images(opened, positions, edits).await? } else { Vec::new() };
        let spliced = opened.splice(&Edits { deleted, columns }, &self.settings, stats).await?;
        let ids = self.ids(opened, edits).await?;
        Ok(Rewrite { spliced, moved, images, positions: places, counts, ids })
    }

    /// The rows that change and go as Delta's change data feed tells them: before and after.
    async fn images(&self, opened: &SpliceFile, positions: &[u64], edits: &RowEdits) -> Result<Vec<RecordBatch>> {
        let mut touched: Vec<usize> = edits.changed.iter().chain(&edits.erased).copied().collect();
        touched.sort_unstable();
        let at: Vec<u64> = touched.iter().map(|row| positions[*row]).collect();
        let before = opened.rows_at(&self.schema, &at).await?;
        let after = edited(&before, &edits.only(&touched), &self.dataset)?;
        let of_before = touched.iter().map(|row| match edits.erased.binary_search(row) {
            Ok(_) => "delete",
            Err(_) => "update_preimage",
        });
        let before = with_change_type(&before, StringArray::from_iter_values(of_before))?;
        let of_after = vec!["update_postimage"; after.num_rows()];
        Ok(vec![before, with_change_type(&after, StringArray::from(of_after))?])
    }

    /// The ids of the old file and those that rows get: those that went with rows are told of too, which costs a look too many.
    async fn ids(&self, opened: &SpliceFile, edits: &RowEdits) -> Result<Option<FileIds>> {
        let fields = self.dataset.indexed_fields();
        let Some(mut ids) = self.index.ids_of(&opened.file().name, &fields).await? else { return Ok(None) };
        for field in &fields {
            if let Some(cells) = edits.cells.get(field) {
                ids.add_column(field, &cells.values(&self.dataset, field)?)?;
            }
        }
        if let Some(cells) = edits.cells.get(ORIGINAL) {
            ids.add_originals(&cells.values(&self.dataset, ORIGINAL)?)?;
        }
        Ok(Some(ids))
    }
}

fn with_change_type(rows: &RecordBatch, types: StringArray) -> Result<RecordBatch> {
    let mut fields: Vec<FieldRef> = rows.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, true)));
    let columns = rows.columns().iter().cloned().chain([Arc::new(types) as ArrayRef]).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(internal)
}

/// An error of arrow's where rows change or go.
pub(crate) fn internal(error: arrow::error::ArrowError) -> Error {
    Error::new(Kind::Internal, "changing rows of a file").source(error)
}
