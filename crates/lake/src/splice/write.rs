//! Carries a plan out: chunks copied, columns encoded, files closed.
//!
//! Place in the flow: [`SpliceFile::splice`] plans, and hands the plan to this; where either finds that the file cannot be spliced,
//! `fallback` takes over. Bytes are fetched a few megabytes at a time, in the order in which they are written.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use alluvium_core::{Error, Kind, Result};
use arrow::array::{ArrayRef, new_null_array};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, compute_leaves};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::reader::ChunkReader;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use super::change::{NewValues, changed};
use super::file::{SpliceFile, chunk_range, leaves_of_roots};
use super::gather::{Announced, Gather, Zeros};
use super::guard::guarded;
use super::matching::{BATCH_ROWS, batch_rows, row_bytes};
use super::pages::{InFile, pages};
use super::plan::{GroupPlan, Plan, Sound, plan, sound};
use super::source::Fetched;
use super::statistics::Kept;
use super::target::{Target, pieces};
use super::{Edits, SpliceSettings, Spliced, SplicedFile, fallback};
use crate::blocking::blocking;
use crate::pieces::Piece;

/// About so many bytes of chunks to be copied are fetched at a time; one chunk at least.
const COPY_BYTES: u64 = 8 << 20;

/// Why a splice did not come about.
#[derive(Debug)]
enum Stop {
    /// The file is not of a kind that can be spliced.
    Unfit(&'static str),
    /// Something failed.
    Failed(Error),
}

const OTHER_PAGES: Stop = Stop::Unfit("a column does not have the pages that the footer says");

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<ParquetError> for Stop {
    fn from(_said_by_the_fallback: ParquetError) -> Self {
        Self::Unfit("Parquet's reader or writer refused it")
    }
}

impl SpliceFile {
    /// The file with `edits`. `stats` is what the log holds as its statistics: of floats, the bounds that it has are carried over,
    /// and no others, because a NaN may hide among them. Computes on the caller's thread.
    ///
    /// # Errors
    /// [`Kind::Internal`] if the edits are not what they must be; [`Kind::Corrupt`] if the file cannot be read;
    /// [`Kind::Unsupported`] if it had to be read in the table's types, and has others; [`Kind::NotFound`] and [`Kind::Unavailable`]
    /// as [`SpliceFile::open`]. What cannot be spliced is no error.
    pub async fn splice(&self, edits: &Edits, settings: &SpliceSettings, stats: Option<&str>) -> Result<Spliced> {
        let edits = sound(self, edits, settings)?;
        if edits.deleted.len() as u64 == self.rows() {
            return Ok(Spliced { files: Vec::new(), bytes_copied: 0, bytes_encoded: 0, fell_back: false });
        }
        let spliced = guarded(self.file(), async {
            let spliced = self.try_splice(&edits, settings, stats).await;
            match spliced {
                Ok(spliced) => Ok(Some(spliced)),
                Err(Stop::Failed(error)) if error.kind() != Kind::Corrupt => Err(error),
                Err(stop) => {
                    let why = match &stop {
                        Stop::Unfit(why) => (*why).to_owned(),
                        Stop::Failed(error) => error.chain_text(),
                    };
                    tracing::debug!(file = %self.file().path, why, "this file is rewritten, not spliced");
                    Ok(None)
                }
            }
        });
        match spliced.await {
            Ok(Some(spliced)) => return Ok(spliced),
            Err(error) if error.kind() != Kind::Corrupt => return Err(error),
            _ => {}
        }
        guarded(self.file(), fallback::rewrite(self, &edits, settings)).await
    }

    async fn try_splice(&self, edits: &Sound<'_>, settings: &SpliceSettings, stats: Option<&str>) -> Result<Spliced, Stop> {
        let plan = plan(self, edits, settings).map_err(Stop::Unfit)?;
        let indexed = self.indexed().await?;
        let mut work = Work {
            file: self,
            edits,
            settings,
            plan: &plan,
            indexed,
            leaves: leaves_of_roots(self.schema()),
            kept: Kept::new(settings, stats),
            announced: Announced::default(),
            at: 0,
            placed: Vec::new(),
            copied: 0,
            encoded: 0,
        };
        let mut files = Vec::new();
        let mut open: Option<SerializedFileWriter<Gather>> = None;
        let groups: Vec<(usize, Range<u64>)> = self.groups().map(|(rows, _)| rows).enumerate().collect();
        let bytes = |group: usize| self.metadata.row_group(group).compressed_size().unsigned_abs();
        let mut left: u64 = (0..groups.len()).map(bytes).sum();
        for (group, rows) in groups {
            left -= bytes(group).min(left);
            let GroupPlan::Encode(roots) = &plan.groups[group] else { continue };
            let writer = match &mut open {
                Some(writer) => writer,
                None => open.insert(self.begin(&plan, Gather::new(work.announced.clone()))?),
            };
            work.row_group(group, rows, roots, writer).await?;
            // What little is left is not worth a file of its own.
            if writer.bytes_written() as u64 > settings.target_file_bytes
                && left > settings.target_file_bytes / 4
                && let Some(writer) = open.take()
            {
                files.push(work.close(writer)?);
            }
        }
        if let Some(writer) = open {
            files.push(work.close(writer)?);
        }
        Ok(Spliced { files, bytes_copied: work.copied, bytes_encoded: work.encoded, fell_back: false })
    }

    /// Begins a file that is like this one.
    fn begin(&self, plan: &Plan, gather: Gather) -> Result<SerializedFileWriter<Gather>, ParquetError> {
        let old = self.metadata.file_metadata();
        let mut properties = WriterProperties::builder().set_key_value_metadata(plan.key_values.clone());
        // Readers know slips of writers by their names, and most of the bytes are still theirs.
        if let Some(writer) = old.created_by() {
            properties = properties.set_created_by(writer.to_owned());
        }
        if old.version() >= 2 {
            properties = properties.set_writer_version(WriterVersion::PARQUET_2_0);
        }
        SerializedFileWriter::new(gather, plan.schema.clone(), Arc::new(properties.build()))
    }
}

struct Work<'a> {
    file: &'a SpliceFile,
    edits: &'a Sound<'a>,
    settings: &'a SpliceSettings,
    plan: &'a Plan,
    /// The footer with the indexes of pages, if there are any.
    indexed: &'a ParquetMetaData,
    leaves: Vec<Range<usize>>,
    kept: Kept,
    announced: Announced,
    /// Where in the new file the next chunk will begin.
    at: u64,
    /// Where copied chunks are in the new file: row group, leaf, place.
    placed: Vec<(usize, usize, u64)>,
    copied: u64,
    encoded: u64,
}

impl Work<'_> {
    async fn row_group(
        &mut self,
        group: usize,
        rows: Range<u64>,
        encode: &[usize],
        writer: &mut SerializedFileWriter<Gather>,
    ) -> Result<(), Stop> {
        self.at = writer.bytes_written() as u64;
        let new_group = writer.flushed_row_groups().len();
        let mut writer = writer.next_row_group()?;
        let mut fetched: Option<Fetched> = None;
        let on_disk = self.file.source.on_disk();
        if let Some(file) = on_disk {
            self.look_at_pages(file, group, encode).await?;
        }
        for root in 0..self.leaves.len() {
            if encode.binary_search(&root).is_ok() {
                let ranges: Vec<Range<u64>> = self.leaves[root].clone().map(|leaf| self.range(group, leaf)).collect();
                let bytes = self.file.source.fetch(&ranges).await?;
                self.encode(group, rows.clone(), root, &bytes, &mut writer)?;
                continue;
            }
            for leaf in self.leaves[root].clone() {
                let range = self.range(group, leaf);
                if let Some(file) = on_disk {
                    self.copy((group, new_group), leaf, Piece::Part { file: file.clone(), range }, &mut writer)?;
                    continue;
                }
                let bytes = match fetched.as_ref().and_then(|f| bytes_of(f, &range)) {
                    Some(bytes) => bytes,
                    None => {
                        let more = fetched.insert(self.file.source.fetch(&self.ahead(group, leaf, encode)).await?);
                        bytes_of(more, &range).ok_or(Stop::Unfit("a column is not where the footer says"))?
                    }
                };
                pages(&*bytes, self.file.metadata.row_group(group).column(leaf)).ok_or(OTHER_PAGES)?;
                self.copy((group, new_group), leaf, Piece::Bytes(bytes), &mut writer)?;
            }
        }
        for (target, edit) in &self.plan.added {
            let edit = &self.edits.columns[*edit];
            self.add(rows.clone(), target, NewValues { rows: &edit.rows, values: &edit.values }, &mut writer)?;
        }
        writer.close()?;
        Ok(())
    }

    /// Holds the pages of what will be copied on the disk against the footer.
    async fn look_at_pages(&self, file: &Arc<File>, group: usize, encode: &[usize]) -> Result<(), Stop> {
        let (file, metadata) = (file.clone(), self.file.metadata.clone());
        let copied = (0..self.leaves.len()).filter(|root| encode.binary_search(root).is_err());
        let copied: Vec<usize> = copied.flat_map(|root| self.leaves[root].clone()).collect();
        let are_right = blocking("looking at the pages of a data file", move || {
            let group = metadata.row_group(group);
            let is_right =
                |leaf: usize| pages(InFile { file: &file, range: chunk_range(group.column(leaf)) }, group.column(leaf));
            Ok(copied.into_iter().all(|leaf| is_right(leaf).is_some()))
        });
        if are_right.await? { Ok(()) } else { Err(OTHER_PAGES) }
    }

    fn range(&self, group: usize, leaf: usize) -> Range<u64> {
        chunk_range(self.file.metadata.row_group(group).column(leaf))
    }

    /// The ranges of the chunks to be copied from `leaf` on, as many as are fetched at a time.
    fn ahead(&self, group: usize, leaf: usize, encode: &[usize]) -> Vec<Range<u64>> {
        let mut ranges = vec![self.range(group, leaf)];
        let mut bytes = ranges[0].end - ranges[0].start;
        for next in leaf + 1..self.file.schema().num_columns() {
            if encode.binary_search(&self.file.schema().get_column_root_idx(next)).is_ok() {
                continue;
            }
            let range = self.range(group, next);
            bytes += range.end - range.start;
            if bytes > COPY_BYTES {
                break;
            }
            ranges.push(range);
        }
        ranges
    }

    fn copy(
        &mut self,
        (group, new_group): (usize, usize),
        leaf: usize,
        piece: Piece,
        writer: &mut SerializedRowGroupWriter<'_, Gather>,
    ) -> Result<(), Stop> {
        let of_group = self.file.metadata.row_group(group);
        let chunk = of_group.column(leaf);
        let length = piece.len();
        let column_index = self.indexed.column_index().map(|i| i[group][leaf].clone());
        let offset_index = self.indexed.offset_index().map(|i| i[group][leaf].clone());
        let close = ColumnCloseResult {
            bytes_written: length,
            rows_written: of_group.num_rows().unsigned_abs(),
            metadata: chunk.clone(),
            bloom_filter: None,
            column_index: column_index.filter(|i| !matches!(i, ColumnIndexMetaData::NONE)),
            offset_index,
        };
        self.announced.push(self.at, piece);
        writer.append_column(&Zeros, close)?;
        self.kept.copied(self.file.schema().column(leaf).path());
        self.placed.push((new_group, leaf, self.at));
        self.copied += length;
        self.at += length;
        Ok(())
    }

    /// Encodes a column of a row group with its changes.
    fn encode(
        &mut self,
        group: usize,
        rows: Range<u64>,
        root: usize,
        bytes: &Fetched,
        writer: &mut SerializedRowGroupWriter<'_, Gather>,
    ) -> Result<(), Stop> {
        let (mut dictionary, mut value_bytes) = (false, 0);
        for leaf in self.leaves[root].clone() {
            let whole = bytes_of(bytes, &self.range(group, leaf));
            let found = whole.and_then(|b| pages(&*b, self.file.metadata.row_group(group).column(leaf)));
            let found = found.ok_or(OTHER_PAGES)?;
            value_bytes += found.value_bytes;
            // A dictionary that says little more than once costs more than it saves.
            dictionary |= found.dictionary_bytes > 0 && found.dictionary_values.unsigned_abs() * 2 < rows.end - rows.start;
        }
        let of_group = self.file.metadata.row_group(group);
        let chunks = self.leaves[root].clone().map(|leaf| of_group.column(leaf));
        let batch_rows = batch_rows(value_bytes.max(row_bytes(chunks, rows.end - rows.start)));
        let dictionary = dictionary || self.leaves[root].len() > 1 || self.is_mostly_null(group, root);
        let target = self.plan.targets.get(&root).ok_or(Stop::Unfit("a column was not planned"))?;
        let new = self.plan.new_values(root, self.edits);
        let mut writers = target.writers(dictionary)?;
        let mut first = rows.start;
        let mut take = |work: &mut Self, old: &ArrayRef| -> Result<(), Stop> {
            let of_batch = first..first + old.len() as u64;
            first = of_batch.end;
            let values = changed(old, of_batch, &work.edits.deleted, new).map_err(ParquetError::from)?;
            Ok(work.write(target, &values, &mut writers)?)
        };
        if let Some(arrays) = self.file.take_decoded(group, root) {
            for array in &arrays {
                take(self, array)?;
            }
        } else {
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), self.file.native()?.clone())
                .with_row_groups(vec![group])
                .with_projection(ProjectionMask::roots(self.file.schema(), [root]))
                .with_batch_size(batch_rows)
                .build()?;
            for batch in reader {
                take(self, batch.map_err(ParquetError::from)?.column(0))?;
            }
        }
        if first != rows.end {
            return Err(Stop::Unfit("a column has not as many rows as the footer says"));
        }
        self.finish(writers, writer)
    }

    /// Whether a column has so few values that nothing can be told of how they repeat.
    fn is_mostly_null(&self, group: usize, root: usize) -> bool {
        let of_group = self.file.metadata.row_group(group);
        let statistics = of_group.column(self.leaves[root].start).statistics();
        let nulls = statistics.and_then(parquet::file::statistics::Statistics::null_count_opt);
        nulls.is_some_and(|nulls| nulls * 2 > of_group.num_rows().unsigned_abs())
    }

    /// Encodes a column that the file lacks.
    fn add(
        &mut self,
        rows: Range<u64>,
        target: &Target,
        new: NewValues<'_>,
        writer: &mut SerializedRowGroupWriter<'_, Gather>,
    ) -> Result<(), Stop> {
        let mut writers = target.writers(true)?;
        for piece in pieces(rows, BATCH_ROWS as u64) {
            let length = usize::try_from(piece.end - piece.start).unwrap_or(0);
            let nulls = new_null_array(target.field.data_type(), length);
            let values = changed(&nulls, piece, &self.edits.deleted, Some(new)).map_err(ParquetError::from)?;
            self.write(target, &values, &mut writers)?;
        }
        self.finish(writers, writer)
    }

    fn write(&mut self, target: &Target, values: &ArrayRef, writers: &mut [ArrowColumnWriter]) -> Result<(), ParquetError> {
        if values.is_empty() {
            return Ok(());
        }
        self.kept.encoded(target.field.name(), values);
        for (leaf, writer) in compute_leaves(&target.field, values)?.iter().zip(writers) {
            writer.write(leaf)?;
        }
        Ok(())
    }

    fn finish(&mut self, writers: Vec<ArrowColumnWriter>, writer: &mut SerializedRowGroupWriter<'_, Gather>) -> Result<(), Stop> {
        for column in writers {
            let mut chunk: ArrowColumnChunk = column.close()?;
            let close = chunk.close_mut();
            // All columns of a file have an index of pages, or none.
            if self.indexed.offset_index().is_none() {
                (close.column_index, close.offset_index) = (None, None);
            }
            let length = close.metadata.compressed_size().unsigned_abs();
            self.encoded += length;
            self.at += length;
            chunk.append_to_row_group(writer)?;
        }
        Ok(())
    }

    fn close(&mut self, mut writer: SerializedFileWriter<Gather>) -> Result<SplicedFile, Stop> {
        let metadata = writer.finish()?;
        let stands = |(group, leaf, at): (usize, usize, u64)| chunk_range(metadata.row_group(group).column(leaf)).start == at;
        let pieces = writer.inner_mut().finish().filter(|_| std::mem::take(&mut self.placed).into_iter().all(stands));
        let pieces = pieces.ok_or(Stop::Unfit("its chunks did not come to stand where they should"))?;
        let rows = metadata.file_metadata().num_rows().unsigned_abs();
        let stats = self.kept.statistics(self.settings, &metadata);
        Ok(SplicedFile { pieces, rows, stats })
    }
}

fn bytes_of(fetched: &Fetched, range: &Range<u64>) -> Option<Bytes> {
    fetched.get_bytes(range.start, usize::try_from(range.end - range.start).ok()?).ok()
}
