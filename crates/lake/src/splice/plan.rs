//! What becomes of each row group, and of each column in it.

use std::collections::BTreeMap;

use alluvium_core::{Column, Error, Kind, Result};
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{Field, Schema};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::file::metadata::KeyValue;
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::change::{NewValues, within};
use super::file::{SpliceFile, root_index};
use super::target::{Target, fitted};
use super::{Edits, SpliceSettings, reader_metadata};
use crate::schema::delta_field;
use crate::widen::{Widening, widening};

/// Where Spark keeps its own schema of a file.
const SPARK_SCHEMA_KEY: &str = "org.apache.spark.sql.parquet.row.metadata";

/// Edits that were looked through.
#[derive(Debug)]
pub(super) struct Sound<'a> {
    /// All rows that go: those that are marked as deleted, too.
    pub(super) deleted: Vec<u64>,
    pub(super) columns: &'a [super::ColumnEdit],
}

/// Looks whether `edits` are such that they can be carried out.
///
/// # Errors
/// [`Kind::Internal`] if not: whoever made them is wrong.
pub(super) fn sound<'a>(file: &SpliceFile, edits: &'a Edits, settings: &SpliceSettings) -> Result<Sound<'a>> {
    let wrong = |what: String| Err(Error::new(Kind::Internal, format!("splicing {}: {what}", file.file().path)));
    let ascending = |rows: &[u64]| rows.is_sorted_by(|a, b| a < b) && rows.last().is_none_or(|last| *last < file.rows());
    if !ascending(&edits.deleted) {
        return wrong("the rows to delete are not ascending positions".to_owned());
    }
    for (i, edit) in edits.columns.iter().enumerate() {
        let column = &edit.column;
        if !ascending(&edit.rows) || edit.rows.len() != edit.values.len() {
            return wrong(format!("the changes of the column {column} are not ascending positions with a value each"));
        }
        if edits.columns[..i].iter().any(|other| other.column == *column) {
            return wrong(format!("the column {column} is changed twice"));
        }
        if settings.spec.partition_by.contains(column) || file.file().partition_values.contains_key(column) {
            return wrong(format!("the table is partitioned by the column {column}, which cannot change in place"));
        }
        match settings.schema.field_with_name(column) {
            Ok(field) if widening(edit.values.data_type(), field.data_type()) == Widening::Exact => {}
            Ok(field) => return wrong(format!("the new values of the column {column} are not of type {}", field.data_type())),
            Err(_) => return wrong(format!("the table has no column {column}")),
        }
    }
    let mut deleted = edits.deleted.clone();
    if !file.gone.is_empty() {
        deleted.extend(&file.gone);
        deleted.sort_unstable();
        deleted.dedup();
    }
    Ok(Sound { deleted, columns: &edits.columns })
}

/// What is done with a row group.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GroupPlan {
    /// No row of it stays.
    Drop,
    /// These columns of the file, ascending, are encoded again; all others are copied.
    Encode(Vec<usize>),
}

/// How a file is spliced.
pub(super) struct Plan {
    pub(super) groups: Vec<GroupPlan>,
    /// The new file's schema.
    pub(super) schema: TypePtr,
    /// The file's columns that are encoded in some row group.
    pub(super) targets: BTreeMap<usize, Target>,
    /// New values by column of the file, in its types.
    new: BTreeMap<usize, (usize, ArrayRef)>,
    /// Columns that the file lacks, in the order in which they follow its own, and the edit that each is of.
    pub(super) added: Vec<(Target, usize)>,
    pub(super) key_values: Option<Vec<KeyValue>>,
}

impl Plan {
    /// The new values of a column of the file, which are in `edits`.
    pub(super) fn new_values<'a>(&'a self, root: usize, edits: &Sound<'a>) -> Option<NewValues<'a>> {
        let (edit, values) = self.new.get(&root)?;
        Some(NewValues { rows: &edits.columns[*edit].rows, values })
    }
}

/// Plans the splice; `Err` holds why the file cannot be spliced.
pub(super) fn plan(file: &SpliceFile, edits: &Sound<'_>, settings: &SpliceSettings) -> Result<Plan, &'static str> {
    let root = file.schema().root_schema_ptr();
    let native = file.native().map_err(|_| "its columns have types that cannot be read one by one")?;
    let fields = native.schema().fields();
    if fields.len() != root.get_fields().len() {
        return Err("it has columns that cannot be read");
    }
    let properties = settings.encoder.properties();
    let mut plan = Plan {
        groups: Vec::new(),
        schema: root.clone(),
        targets: BTreeMap::new(),
        new: BTreeMap::new(),
        added: Vec::new(),
        key_values: None,
    };
    let mut added = Vec::new();
    for (i, edit) in edits.columns.iter().enumerate().filter(|(_, e)| !e.rows.is_empty()) {
        if let Some(root) = root_index(file.schema(), &edit.column) {
            let values = fitted(&edit.values, &fields[root]).ok_or("a new value does not fit the file's type")?;
            plan.new.insert(root, (i, values));
        } else {
            let field = settings.schema.field_with_name(&edit.column).map_err(|_| "a column is not in the table")?;
            let (target, root) = Target::added(field, properties).ok_or("a new column cannot be written")?;
            plan.added.push((target, i));
            added.push((root, field.clone().with_nullable(true)));
        }
    }
    let all: Vec<usize> = (0..fields.len()).collect();
    for (rows, group) in file.groups() {
        let deleted = within(&edits.deleted, &rows).len() as u64;
        plan.groups.push(if deleted == group.num_rows().unsigned_abs() {
            GroupPlan::Drop
        } else if deleted > 0 {
            GroupPlan::Encode(all.clone())
        } else {
            let hit = |(_, (edit, _)): &(&usize, &(usize, ArrayRef))| !within(&edits.columns[*edit].rows, &rows).is_empty();
            GroupPlan::Encode(plan.new.iter().filter(hit).map(|(root, _)| *root).collect())
        });
    }
    for group in &plan.groups {
        let GroupPlan::Encode(roots) = group else { continue };
        for i in roots {
            if !plan.targets.contains_key(i) {
                let target = Target::new(&root.get_fields()[*i], &fields[*i], properties);
                plan.targets.insert(*i, target.ok_or("a column to be encoded has an old or rare form")?);
            }
        }
    }
    plan.key_values = file.metadata.file_metadata().key_value_metadata().cloned();
    if !added.is_empty() {
        let (roots, new_fields): (Vec<TypePtr>, Vec<_>) = added.into_iter().unzip();
        plan.schema = extended(&root, roots).ok_or("a column cannot be added to its schema")?;
        for kv in plan.key_values.iter_mut().flatten() {
            match kv.key.as_str() {
                ARROW_SCHEMA_META_KEY => kv.value = Some(arrow_schema_with(file, &new_fields)?),
                SPARK_SCHEMA_KEY => kv.value = spark_schema_with(kv.value.as_deref(), &new_fields, settings),
                _ => {}
            }
        }
        // Without it, Spark goes by the file's own columns.
        plan.key_values.iter_mut().for_each(|all| all.retain(|kv| kv.key != SPARK_SCHEMA_KEY || kv.value.is_some()));
    }
    Ok(plan)
}

/// What the writer said of its columns in Arrow's terms, with further ones.
fn arrow_schema_with(file: &SpliceFile, columns: &[Field]) -> Result<String, &'static str> {
    let read = reader_metadata(file.metadata.clone()).map_err(|_| "its Arrow schema cannot be read")?;
    let mut fields: Vec<Field> = read.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    fields.extend_from_slice(columns);
    Ok(encode_arrow_schema(&Schema::new_with_metadata(fields, read.schema().metadata().clone())))
}

/// What Spark said of its columns, with further ones: it would not read them otherwise. `None` if that cannot be said.
fn spark_schema_with(said: Option<&str>, columns: &[Field], settings: &SpliceSettings) -> Option<String> {
    let mut schema: Value = serde_json::from_str(said?).ok()?;
    let fields = schema.get_mut("fields")?.as_array_mut()?;
    for column in columns {
        let declared = settings.spec.column(column.name())?;
        fields.push(delta_field(&Column { nullable: true, ..declared.clone() }));
    }
    Some(schema.to_string())
}

/// The schema with further columns behind its own.
fn extended(root: &TypePtr, columns: Vec<TypePtr>) -> Option<TypePtr> {
    let mut fields = root.get_fields().to_vec();
    fields.extend(columns);
    Type::group_type_builder(root.name()).with_fields(fields).build().ok().map(TypePtr::new)
}
