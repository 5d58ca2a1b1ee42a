//! Which cells of rows change, from what requests make of the rows. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use alluvium_core::{DataType, Dataset, Error, Field, Kind, Result};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{filter_record_batch, interleave, take};

use super::original::Original;
use super::rows::{ORIGINAL, SourceRows};
use crate::source::{push_json, push_json_string, values_of};

/// What requests make of a row that the source gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The row is as the source gave it.
    Unchanged,
    /// There is no row.
    Erased,
    /// These columns hold something else: texts of JSON.
    Changed(Vec<(String, String)>),
}

/// Cells of one column that change.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Cells {
    /// The rows, ascending.
    pub(crate) rows: Vec<usize>,
    /// Their values as texts of JSON, or for `_original` as they are stored; `None`: null.
    texts: Vec<Option<String>>,
}

/// What changes in the rows of a batch.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct RowEdits {
    /// Rows that go, ascending.
    pub(crate) erased: Vec<usize>,
    /// Rows that stay with another value in some column, ascending.
    pub(crate) changed: Vec<usize>,
    /// The cells, by column.
    pub(crate) cells: BTreeMap<String, Cells>,
}

impl RowEdits {
    pub(crate) fn is_empty(&self) -> bool {
        self.erased.is_empty() && self.changed.is_empty()
    }

    /// What changes in some of the rows, ascending, counted among themselves.
    pub(crate) fn only(&self, rows: &[usize]) -> Self {
        let place = |row: &usize| rows.binary_search(row).ok();
        let mut edits = Self {
            erased: self.erased.iter().filter_map(place).collect(),
            changed: self.changed.iter().filter_map(place).collect(),
            cells: BTreeMap::new(),
        };
        for (column, cells) in &self.cells {
            let some: Vec<(usize, Option<String>)> =
                cells.rows.iter().zip(&cells.texts).filter_map(|(row, text)| Some((place(row)?, text.clone()))).collect();
            if !some.is_empty() {
                let (rows, texts) = some.into_iter().unzip();
                edits.cells.insert(column.clone(), Cells { rows, texts });
            }
        }
        edits
    }
}

/// Plans what must change so that the rows are what `fates` say. The batch has every column that a fate or an `_original` names.
pub(crate) struct EditPlanner<'a> {
    dataset: &'a Dataset,
    /// Values as they will read back from the column they were put into.
    canonical: HashMap<(String, String), String>,
    edits: RowEdits,
}

impl<'a> EditPlanner<'a> {
    pub(crate) fn new(dataset: &'a Dataset) -> Self {
        Self { dataset, canonical: HashMap::new(), edits: RowEdits::default() }
    }

    /// Takes the next row; rows come in ascending order.
    pub(crate) fn row(&mut self, rows: &SourceRows<'_>, row: usize, original: &Original, fate: Fate) -> Result<()> {
        let changed = match fate {
            Fate::Erased => {
                self.edits.erased.push(row);
                return Ok(());
            }
            Fate::Unchanged if original.text().is_none() => return Ok(()),
            Fate::Unchanged => Vec::new(),
            Fate::Changed(columns) => columns,
        };
        // What no request changes any more is what the source gave.
        let mut targets: BTreeMap<String, String> = BTreeMap::new();
        for column in original.columns() {
            targets.extend(original.get(column).map(|source| (column.to_owned(), source.to_owned())));
        }
        for (column, value) in changed {
            let value = self.canonical(&column, value)?;
            targets.insert(column, value);
        }
        let (mut remembered, mut differs) = (Original::default(), false);
        for (column, target) in targets {
            let Some(array) = rows.batch.column_by_name(&column) else {
                // A column that is not declared any more: what its source gave stays known, should it be declared again.
                if let Some(source) = original.get(&column) {
                    remembered.insert(&column, source.to_owned());
                }
                continue;
            };
            let mut current = String::new();
            push_json(&mut current, array.as_ref(), row);
            let source = original.get(&column).unwrap_or(&current);
            if target != *source {
                remembered.insert(&column, source.to_owned());
            }
            if target != current {
                differs = true;
                self.edits.cells.entry(column).or_default().push(row, Some(target));
            }
        }
        let remembered = remembered.text();
        #[cfg(feature = "plants")]
        let remembered = remembered.filter(|_| !alluvium_lake::Plant::NoOriginalValue.grows());
        if remembered.as_deref() != rows.original_text(row) {
            differs = true;
            self.edits.cells.entry(ORIGINAL.to_owned()).or_default().push(row, remembered);
        }
        if differs {
            self.edits.changed.push(row);
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> RowEdits {
        self.edits
    }

    fn canonical(&mut self, column: &str, value: String) -> Result<String> {
        let field = field(self.dataset, column)?;
        // Texts without escapes, as most ids are, stay as they are.
        if field.data_type == DataType::String && plain_string(&value).is_some() {
            return Ok(value);
        }
        let key = (column.to_owned(), value);
        if let Some(known) = self.canonical.get(&key) {
            return Ok(known.clone());
        }
        let cell = values_of(field, &[&key.1])?;
        let mut text = String::new();
        push_json(&mut text, cell.as_ref(), 0);
        self.canonical.insert(key, text.clone());
        Ok(text)
    }
}

impl Cells {
    fn push(&mut self, row: usize, text: Option<String>) {
        self.rows.push(row);
        self.texts.push(text);
    }

    /// What the texts say where all are nulls or strings in their only spelling.
    fn plain_texts(&self) -> Option<Vec<Option<&str>>> {
        let texts = self.texts.iter().map(|text| match text.as_deref() {
            None | Some("null") => Some(None),
            Some(json) => plain_string(json).map(Some),
        });
        texts.collect()
    }

    /// The values, one a row, in the column's type.
    pub(crate) fn values(&self, dataset: &Dataset, column: &str) -> Result<ArrayRef> {
        if column == ORIGINAL {
            return Ok(Arc::new(StringArray::from_iter(self.texts.iter().map(Option::as_deref))));
        }
        let field = field(dataset, column)?;
        if field.data_type == DataType::String
            && let Some(texts) = self.plain_texts()
        {
            return Ok(Arc::new(StringArray::from(texts)));
        }
        let mut places: HashMap<&str, u32> = HashMap::new();
        let mut distinct: Vec<&str> = Vec::new();
        let mut indices: Vec<u32> = Vec::with_capacity(self.texts.len());
        for text in &self.texts {
            let text = text.as_deref().unwrap_or("null");
            let place = *places.entry(text).or_insert_with(|| {
                distinct.push(text);
                u32::try_from(distinct.len() - 1).unwrap_or(u32::MAX)
            });
            indices.push(place);
        }
        let values = values_of(field, &distinct)?;
        take(&values, &UInt32Array::from(indices), None).map_err(internal)
    }
}

/// The batch with the cells changed and without the rows that go.
pub(crate) fn edited(batch: &RecordBatch, edits: &RowEdits, dataset: &Dataset) -> Result<RecordBatch> {
    let mut columns = batch.columns().to_vec();
    let schema = batch.schema();
    for (name, cells) in &edits.cells {
        let at = schema.index_of(name).map_err(internal)?;
        let values = cells.values(dataset, name)?;
        let mut places: Vec<(usize, usize)> = (0..batch.num_rows()).map(|row| (0, row)).collect();
        for (new, row) in cells.rows.iter().enumerate() {
            places[*row] = (1, new);
        }
        let old = &columns[at];
        let parts: [&dyn Array; 2] = [old.as_ref(), values.as_ref()];
        columns[at] = interleave(&parts, &places).map_err(internal)?;
    }
    let batch = RecordBatch::try_new(schema, columns).map_err(internal)?;
    if edits.erased.is_empty() {
        return Ok(batch);
    }
    let mut kept = vec![true; batch.num_rows()];
    for row in &edits.erased {
        kept[*row] = false;
    }
    filter_record_batch(&batch, &BooleanArray::from(kept)).map_err(internal)
}

/// What a text of JSON says that is a string in its only spelling.
fn plain_string(json: &str) -> Option<&str> {
    let inside = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'))?;
    inside.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'"' && b != b'\\').then_some(inside)
}

/// An id as JSON.
pub(crate) fn json_of_id(id: Option<&str>) -> String {
    let mut text = String::new();
    match id {
        Some(id) => push_json_string(&mut text, id),
        None => text.push_str("null"),
    }
    text
}

fn field<'d>(dataset: &'d Dataset, column: &str) -> Result<&'d Field> {
    dataset.field(column).ok_or_else(|| {
        Error::new(
            Kind::Internal,
            format!("dataset {}: a request changes the column {column}, which is not declared", dataset.name),
        )
    })
}

fn internal(error: arrow::error::ArrowError) -> Error {
    Error::new(Kind::Internal, "changing rows as requests say").source(error)
}
