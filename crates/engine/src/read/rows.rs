//! Rows as bytes: a table for people, JSON lines, CSV, one Parquet file or an Arrow IPC stream.
//!
//! Rows go out as they come; nothing is held back but what a format needs: a row group of Parquet, which takes a share of the budget. The forms of values are in
//! `docs/guide/query.md`.

use std::io::{self, Write};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;

use super::lines::push_lines;
use crate::source::{push_json, push_plain};

/// The part of the budget that a row group of Parquet may take before it is written.
const ROW_GROUP_SHARE: u64 = 8;
/// Between columns of a table.
const GAP: &str = "  ";

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFormat {
    /// Aligned columns, whose widths follow the first rows.
    Table,
    /// One JSON object a line.
    Json,
    /// Comma-separated values with a header line.
    Csv,
    /// One Parquet file.
    Parquet,
    /// One stream of Arrow's IPC format.
    Arrow,
}

/// Writes rows in one format.
pub struct RowWriter<W: Write + Send> {
    schema: SchemaRef,
    to: Encoder<W>,
    text: String,
    row_group_bytes: u64,
}

enum Encoder<W: Write + Send> {
    Table { to: W, widths: Option<Vec<usize>> },
    Json { to: W },
    Csv { to: W, begun: bool },
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<StreamWriter<W>>),
}

impl<W: Write + Send> RowWriter<W> {
    /// A writer of rows with the columns of `schema`, in a program that may take `memory_bytes`.
    ///
    /// # Errors
    /// What `to` returned; [`io::ErrorKind::InvalidInput`] if two columns have one name, which readers of JSON and Parquet take
    /// for one; [`io::ErrorKind::Other`] if Parquet has no such columns.
    pub fn new(format: RowFormat, schema: SchemaRef, to: W, memory_bytes: u64) -> io::Result<Self> {
        if matches!(format, RowFormat::Json | RowFormat::Parquet | RowFormat::Arrow)
            && let Some(name) = name_given_twice(&schema)
        {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("two columns are named {name}")));
        }
        let to = match format {
            RowFormat::Table => Encoder::Table { to, widths: None },
            RowFormat::Json => Encoder::Json { to },
            RowFormat::Csv => Encoder::Csv { to, begun: false },
            RowFormat::Parquet => {
                Encoder::Parquet(Box::new(ArrowWriter::try_new(to, schema.clone(), None).map_err(io_of_parquet)?))
            }
            RowFormat::Arrow => Encoder::Arrow(Box::new(StreamWriter::try_new(to, &schema).map_err(io_of_arrow)?)),
        };
        Ok(Self { schema, to, text: String::new(), row_group_bytes: memory_bytes / ROW_GROUP_SHARE })
    }

    /// Writes rows.
    ///
    /// # Errors
    /// What the place written to returned.
    pub fn write(&mut self, rows: &RecordBatch) -> io::Result<()> {
        self.text.clear();
        let text = &mut self.text;
        match &mut self.to {
            Encoder::Table { to, widths } => {
                table(text, &self.schema, rows, widths);
                to.write_all(text.as_bytes())
            }
            Encoder::Json { to } => {
                push_lines(text, rows);
                to.write_all(text.as_bytes())
            }
            Encoder::Csv { to, begun } => {
                if !std::mem::replace(begun, true) {
                    csv_header(text, &self.schema);
                }
                csv(text, rows);
                to.write_all(text.as_bytes())
            }
            Encoder::Parquet(writer) => {
                writer.write(rows).map_err(io_of_parquet)?;
                let held = writer.memory_size().max(writer.in_progress_size()) as u64;
                if held > self.row_group_bytes { writer.flush().map_err(io_of_parquet) } else { Ok(()) }
            }
            Encoder::Arrow(writer) => writer.write(rows).map_err(io_of_arrow),
        }
    }

    /// Writes what a format has at its end, also when there were no rows.
    ///
    /// # Errors
    /// As [`RowWriter::write`].
    pub fn finish(mut self) -> io::Result<()> {
        let none = RecordBatch::new_empty(self.schema.clone());
        let headless = matches!(&self.to, Encoder::Table { widths: None, .. } | Encoder::Csv { begun: false, .. });
        if headless {
            self.write(&none)?;
        }
        match self.to {
            Encoder::Table { mut to, .. } | Encoder::Json { mut to } | Encoder::Csv { mut to, .. } => to.flush(),
            // `into_inner` would say of a full disk only that there is no inner writer.
            Encoder::Parquet(mut writer) => writer.finish().map(|_| ()).map_err(io_of_parquet),
            // Ends the stream before it gives back what it wrote to.
            Encoder::Arrow(writer) => writer.into_inner().map_err(io_of_arrow)?.flush(),
        }
    }
}

fn name_given_twice(schema: &SchemaRef) -> Option<&String> {
    let names: Vec<&String> = schema.fields().iter().map(|f| f.name()).collect();
    names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| *name)
}

fn io_of_parquet(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

fn io_of_arrow(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, e) => e,
        e => io::Error::other(e),
    }
}

/// Arrow's column of nothing but nulls says that none of them is.
fn is_null(column: &dyn Array, row: usize) -> bool {
    column.is_null(row) || column.data_type() == &DataType::Null
}

/// A value as text: nested ones as JSON.
fn push_value(text: &mut String, column: &dyn Array, row: usize) {
    if column.data_type().is_nested() { push_json(text, column, row) } else { push_plain(text, column, row) }
}

fn csv_header(text: &mut String, schema: &SchemaRef) {
    for (at, field) in schema.fields().iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        push_csv(text, field.name());
    }
    text.push('\n');
}

/// Null is nothing, an empty text is `""`.
fn csv(text: &mut String, rows: &RecordBatch) {
    let mut value = String::new();
    for row in 0..rows.num_rows() {
        for (at, column) in rows.columns().iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            if !is_null(column, row) {
                value.clear();
                push_value(&mut value, column, row);
                push_csv(text, &value);
            }
        }
        text.push('\n');
    }
}

fn push_csv(text: &mut String, value: &str) {
    if !value.is_empty() && !value.contains([',', '"', '\n', '\r']) {
        text.push_str(value);
        return;
    }
    text.push('"');
    text.push_str(&value.replace('"', "\"\""));
    text.push('"');
}

fn table(text: &mut String, schema: &SchemaRef, rows: &RecordBatch, widths: &mut Option<Vec<usize>>) {
    let cells: Vec<Vec<String>> = rows.columns().iter().map(|c| (0..rows.num_rows()).map(|row| cell(c, row)).collect()).collect();
    let right: Vec<bool> = schema.fields().iter().map(|f| f.data_type().is_numeric()).collect();
    let begins = widths.is_none();
    let widths = widths.get_or_insert_with(|| {
        let longest = |at: usize| cells[at].iter().flat_map(|c| c.lines()).map(|l| l.chars().count()).max().unwrap_or(0);
        let names = schema.fields().iter().enumerate();
        names.map(|(at, f)| longest(at).max(visible(f.name()).chars().count())).collect()
    });
    if begins {
        let names: Vec<String> = schema.fields().iter().map(|f| visible(f.name())).collect();
        push_line(text, names.iter().map(String::as_str), widths, &right);
        let rules: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
        push_line(text, rules.iter().map(String::as_str), widths, &right);
    }
    for row in 0..rows.num_rows() {
        let height = cells.iter().map(|c| c[row].lines().count()).max().unwrap_or(0).max(1);
        for line in 0..height {
            push_line(text, cells.iter().map(|c| c[row].lines().nth(line).unwrap_or_default()), widths, &right);
        }
    }
}

fn cell(column: &dyn Array, row: usize) -> String {
    let mut value = String::new();
    if is_null(column, row) {
        value.push_str("NULL");
        return value;
    }
    push_value(&mut value, column, row);
    visible(&value)
}

/// The text with control characters escaped, so that no value moves the cursor of a terminal. Line feeds stay: a cell may have
/// several lines.
fn visible(text: &str) -> String {
    let moves = |c: char| c.is_control() && c != '\n';
    if !text.chars().any(moves) {
        return text.to_owned();
    }
    let mut shown = String::new();
    for c in text.chars() {
        if moves(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

fn push_line<'a>(text: &mut String, cells: impl Iterator<Item = &'a str>, widths: &[usize], right: &[bool]) {
    let begin = text.len();
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            text.push_str(GAP);
        }
        let space = widths[at].saturating_sub(cell.chars().count());
        if right[at] {
            text.extend(std::iter::repeat_n(' ', space));
        }
        text.push_str(cell);
        if !right[at] {
            text.extend(std::iter::repeat_n(' ', space));
        }
    }
    text.truncate(begin + text[begin..].trim_end_matches(' ').len());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};
    use arrow::datatypes::{Field, Schema};
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    #[test]
    fn wide_rows_make_row_groups_within_the_share_of_the_budget() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::Utf8, false)]));
        let mut file = Vec::new();
        let mut writer = RowWriter::new(RowFormat::Parquet, schema.clone(), &mut file, 8 << 20).unwrap();
        // 16 batches of 8 rows of 64 KiB: eight megabytes, no two rows the same.
        for batch in 0..16 {
            let texts = (0..8).map(|row| format!("{batch}-{row}-").repeat((64 << 10) / 4));
            let column: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
            writer.write(&RecordBatch::try_new(schema.clone(), vec![column]).unwrap()).unwrap();
        }
        writer.finish().unwrap();
        let metadata = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap().metadata().clone();
        let groups: Vec<i64> = metadata.row_groups().iter().map(|g| g.total_byte_size()).collect();
        assert_eq!(metadata.file_metadata().num_rows(), 128);
        // A batch of about half a megabyte more than one.
        assert!(groups.len() > 4 && groups.iter().all(|g| *g < 2 << 20), "{groups:?}");
    }
}
