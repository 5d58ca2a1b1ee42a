//! Accepted requests as rows of the table `requests`, and back.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use alluvium_core::{
    BatchNumber, BatchSpan, Delete, Error, Incarnation, Job, Kind, Op, OrgPseudonyms, Request, RequestDigest, Result, Scope,
    Shard, Subject, TableSpec, app_id,
};
use alluvium_lake::{LiveFile, arrow_schema, from_hex, in_place, to_hex};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;
use rayon::prelude::*;

use super::taking::Taken;
use crate::engine::Engine;
use crate::erase::generation_of;
use crate::source::push_time;

/// A request, and the batch that took it in.
#[derive(Debug, Clone)]
pub(crate) struct Accepted {
    pub(crate) request: Arc<Request>,
    pub(crate) digest: RequestDigest,
    pub(crate) batch: BatchNumber,
}

/// The requests that this process staged last, so that they need not be read again right after. Whether they were taken in tells the
/// log: it names their files, whose names no other writer has.
#[derive(Debug, Default)]
pub(crate) struct TakenHere(Mutex<(Vec<String>, Vec<Accepted>)>);

impl TakenHere {
    /// Remembers the requests that are in these files, and nothing else is.
    pub(crate) fn remember(&self, files: Vec<String>, accepted: Vec<Accepted>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (files, accepted);
    }

    /// The requests that are in these files, if they were the last; in none there are none.
    pub(crate) fn of_files(&self, files: &[String]) -> Option<Vec<Accepted>> {
        if files.is_empty() {
            return Some(Vec::new());
        }
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (taken.0 == files).then(|| taken.1.clone())
    }

    /// The requests of the files among `live`, which are taken out of it; nothing unless all of them are there.
    fn take_from(&self, live: &mut Vec<LiveFile>) -> Vec<Accepted> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = |file: &LiveFile| file.mark.is_none() && taken.0.contains(&file.path);
        if taken.0.is_empty() || live.iter().filter(|file| is_ours(file)).count() != taken.0.len() {
            return Vec::new();
        }
        live.retain(|file| !is_ours(file));
        taken.1.clone()
    }
}

/// The rows of requests that a batch takes from one source.
pub(crate) fn request_rows(requests: &[Taken], source: &str, batch: BatchNumber, accepted_at_micros: i64) -> Result<RecordBatch> {
    let rows = requests.len();
    let texts = |of: fn(&Request) -> Option<Cow<'_, str>>| -> ArrayRef {
        let mut builder = StringBuilder::with_capacity(rows, 0);
        for taken in requests {
            builder.append_option(of(&taken.request));
        }
        Arc::new(builder.finish())
    };
    // In the table's order, each made on any core.
    let columns: [&(dyn Fn() -> ArrayRef + Sync); 17] = [
        &|| texts(|r| Some(Cow::Borrowed(&r.id))),
        &|| texts(|r| Some(Cow::Borrowed(&r.org))),
        &|| texts(|r| Some(Cow::Borrowed(op_name(r)))),
        &|| texts(|r| scope_name(r).map(Cow::Borrowed)),
        &|| texts(|r| r.dataset.as_ref().map(|d| Cow::Borrowed(d.0.as_str()))),
        &|| {
            texts(|r| match &r.op {
                Op::Convert { field, .. } | Op::Update { field, .. } => Some(Cow::Borrowed(field)),
                Op::Delete(_) => one_subject(r).map(|s| Cow::Borrowed(s.field.as_str())),
            })
        },
        &|| texts(|r| id_of(r).map(Cow::Borrowed)),
        &|| texts(|r| id_to(r).map(Cow::Borrowed)),
        &|| {
            texts(|r| match &r.op {
                Op::Delete(Delete { scope: Scope::Before(before), .. }) => Some(Cow::Owned(time_text(*before))),
                _ => None,
            })
        },
        &|| {
            texts(|r| match &r.op {
                Op::Update { set, .. } => Some(Cow::Owned(set_text(set))),
                _ => None,
            })
        },
        &|| {
            let times = requests.iter().map(|taken| taken.request.execution_time);
            Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"))
        },
        &|| Arc::new(StringArray::from_iter_values(requests.iter().map(|taken| &taken.json))),
        &|| Arc::new(StringArray::from_iter_values(requests.iter().map(|taken| to_hex(&taken.digest.0)))),
        &|| Arc::new(Int64Array::from(vec![batch.0.cast_signed(); rows])),
        &|| Arc::new(TimestampMicrosecondArray::from(vec![accepted_at_micros; rows]).with_timezone("UTC")),
        &|| Arc::new(StringArray::from(vec![source; rows])),
        &|| Arc::new(Int64Array::from_iter_values(requests.iter().map(|taken| taken.record.cast_signed()))),
    ];
    let columns: Vec<ArrayRef> = columns.par_iter().with_max_len(1).map(|column| column()).collect();
    RecordBatch::try_new(arrow_schema(&TableSpec::requests()), columns)
        .map_err(|e| Error::new(Kind::Internal, "collecting requests").source(e))
}

/// The one id (or key) that a request is about.
fn id_of(request: &Request) -> Option<&str> {
    match &request.op {
        Op::Convert { from: id, .. } | Op::Update { id, .. } | Op::Delete(Delete { scope: Scope::Record(id), .. }) => {
            Some(id.as_str())
        }
        Op::Delete(_) => one_subject(request).map(|s| s.id.as_str()),
    }
}

/// The id that a request converts to.
fn id_to(request: &Request) -> Option<&str> {
    match &request.op {
        Op::Convert { to, .. } => Some(to.as_str()),
        _ => None,
    }
}

/// Rows of the table with other requests in place of some; `None`: `replaced` replaces none of them. Their digests are those of all ids replaced.
pub(crate) fn replaced_rows<'p>(
    rows: &RecordBatch,
    replaced: &(dyn Fn(&Request) -> Option<(Request, &'p OrgPseudonyms)> + Sync),
) -> Result<Option<RecordBatch>> {
    let text = |name: &str| rows.column_by_name(name).and_then(|c| c.as_string_opt::<i32>()).ok_or_else(corrupt);
    let (requests, digests) = (text("request")?, text("digest")?);
    let replace = |row: usize| -> Result<Option<(Request, String)>> {
        if requests.is_null(row) || digests.is_null(row) {
            return Err(corrupt());
        }
        let made = replaced(&Request::from_json(requests.value(row))?);
        Ok(made.map(|(request, pseudonyms)| {
            let digest = to_hex(&pseudonyms.digest(&request).0);
            (request, digest)
        }))
    };
    let made: Vec<Option<(Request, String)>> =
        in_place(|| (0..rows.num_rows()).into_par_iter().map(replace).collect::<Result<_>>())?;
    if made.iter().all(Option::is_none) {
        return Ok(None);
    }
    let column = |old: &StringArray, new: &dyn Fn(&Request, &str) -> Option<String>| -> ArrayRef {
        let value = |(row, made): (usize, &Option<(Request, String)>)| match made {
            Some((request, digest)) => new(request, digest),
            None => (!old.is_null(row)).then(|| old.value(row).to_owned()),
        };
        Arc::new(made.iter().enumerate().map(value).collect::<StringArray>())
    };
    let mut columns = rows.columns().to_vec();
    for (at, field) in rows.schema().fields().iter().enumerate() {
        let name = field.name().as_str();
        columns[at] = match name {
            "id" => column(text(name)?, &|request, _| id_of(request).map(str::to_owned)),
            "to" => column(text(name)?, &|request, _| id_to(request).map(str::to_owned)),
            "request" => column(requests, &|request, _| Some(request.to_json())),
            "digest" => column(digests, &|_, digest| Some(digest.to_owned())),
            _ => continue,
        };
    }
    RecordBatch::try_new(rows.schema(), columns)
        .map(Some)
        .map_err(|e| Error::new(Kind::Internal, "replacing ids in requests").source(e))
}

fn corrupt() -> Error {
    Error::new(Kind::Corrupt, "the table requests holds what is no request")
        .hint("another program wrote to it; restore it from a backup")
}

fn one_subject(request: &Request) -> Option<&Subject> {
    match &request.op {
        Op::Delete(Delete { scope: Scope::Subject(subjects), .. }) if subjects.len() == 1 => subjects.first(),
        _ => None,
    }
}

/// The name of what a request does.
pub(crate) fn op_name(request: &Request) -> &'static str {
    match request.op {
        Op::Convert { .. } => "convert",
        Op::Delete(_) => "delete",
        Op::Update { .. } => "update",
    }
}

fn scope_name(request: &Request) -> Option<&'static str> {
    let Op::Delete(Delete { scope, .. }) = &request.op else { return None };
    Some(match scope {
        Scope::Subject(_) => "subject",
        Scope::Org => "org",
        Scope::Record(_) => "record",
        Scope::Before(_) => "before",
    })
}

fn set_text(set: &std::collections::BTreeMap<String, alluvium_core::JsonText>) -> String {
    let mut text = String::from("{");
    for (column, value) in set {
        if text.len() > 1 {
            text.push(',');
        }
        crate::source::push_json_string(&mut text, column);
        text.push(':');
        text.push_str(value.as_str());
    }
    text.push('}');
    text
}

fn time_text(micros: i64) -> String {
    let mut text = String::new();
    push_time(&mut text, i128::from(micros) * 1000, false);
    text
}

impl Engine {
    /// The requests that the batches of a span took in, in the order of the batches. They are finished: what is made of them here is
    /// kept for good, so a version of the table that lacks one of them is not taken for the newest.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if the table cannot be read, lacks a batch, or holds what is no request; [`Kind::Unavailable`] if it does not tell of
    /// so many purges, where that is asked: what is made of the requests then is wrong.
    pub(crate) async fn accepted(
        &self,
        incarnation: &Incarnation,
        span: BatchSpan,
        generation: Option<u64>,
    ) -> Result<Vec<Accepted>> {
        let log = self.log_of(&TableSpec::requests());
        let intake = self.chain(incarnation, Job::Mutate, &self.project.requests.intake, Shard::WHOLE);
        let files = log.live_files_with(&app_id(intake.chain()), span.to, "batch_id").await?;
        if generation.is_some_and(|generation| generation != generation_of(files.iter().map(|(file, _)| file))) {
            return Err(Error::new(Kind::Unavailable, "requests were purged while they were read").hint("run again"));
        }
        let has_any = |bounds: Option<(i64, i64)>| {
            let number = |batch: BatchNumber| i64::try_from(batch.0).unwrap_or(i64::MAX);
            bounds.is_none_or(|(first, last)| last > number(span.from) && first <= number(span.to))
        };
        // Names of a purge's files, and those of other programs, tell no batch; statistics do.
        let mut files: Vec<LiveFile> = files.into_iter().filter(|(_, bounds)| has_any(*bounds)).map(|(file, _)| file).collect();
        let mut accepted = self.taken_here.take_from(&mut files);
        accepted.retain(|a| a.batch > span.from && a.batch <= span.to);
        for file in files {
            for rows in log.read_columns(&file.path, &["request", "digest", "batch_id"]).await? {
                let rows = rows?;
                in_place(|| read_rows(&rows, span, &mut accepted))?;
            }
        }
        accepted.sort_by_key(|a| a.batch);
        Ok(accepted)
    }
}

fn read_rows(rows: &RecordBatch, span: BatchSpan, accepted: &mut Vec<Accepted>) -> Result<()> {
    let column = |name: &str| rows.column_by_name(name).ok_or_else(corrupt);
    let requests = column("request")?.as_string_opt::<i32>().ok_or_else(corrupt)?;
    let digests = column("digest")?.as_string_opt::<i32>().ok_or_else(corrupt)?;
    let batches = column("batch_id")?.as_primitive_opt::<Int64Type>().ok_or_else(corrupt)?;
    let read = |row: usize| -> Result<Option<Accepted>> {
        if requests.is_null(row) || digests.is_null(row) || batches.is_null(row) {
            return Err(corrupt());
        }
        let batch = BatchNumber(batches.value(row).cast_unsigned());
        if batch <= span.from || batch > span.to {
            return Ok(None);
        }
        let digest = RequestDigest(from_hex(digests.value(row)).ok_or_else(corrupt)?);
        Ok(Some(Accepted { request: Arc::new(Request::from_json(requests.value(row))?), digest, batch }))
    };
    let read: Vec<Accepted> =
        (0..rows.num_rows()).into_par_iter().filter_map(|row| read(row).transpose()).collect::<Result<_>>()?;
    accepted.extend(read);
    Ok(())
}
