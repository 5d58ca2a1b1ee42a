//! Accepted requests as rows of the table `requests`, and back.

use std::sync::Arc;

use alluvium_core::{
    BatchNumber, BatchSpan, Dataset, Delete, Error, Job, Kind, Op, Request, RequestDigest, Result, Scope, TableSpec,
    parse_data_file,
};
use alluvium_lake::arrow_schema;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;

use crate::engine::Engine;
use crate::source::push_time;

/// A request, and the batch that took it in.
#[derive(Debug, Clone)]
pub(crate) struct Accepted {
    pub(crate) request: Request,
    pub(crate) digest: RequestDigest,
    pub(crate) batch: BatchNumber,
}

/// The rows of requests that a batch takes from one source.
pub(crate) fn request_rows(
    requests: &[(u64, Request, RequestDigest)],
    source: &str,
    batch: BatchNumber,
    accepted_at_micros: i64,
) -> Result<RecordBatch> {
    let rows = requests.len();
    let texts = |of: &dyn Fn(&Request) -> Option<String>| -> ArrayRef {
        let mut builder = StringBuilder::new();
        for (_, request, _) in requests {
            builder.append_option(of(request));
        }
        Arc::new(builder.finish())
    };
    let subject = |request: &Request| match &request.op {
        Op::Delete(Delete { scope: Scope::Subject(subjects), .. }) if subjects.len() == 1 => subjects.iter().next().cloned(),
        _ => None,
    };
    let columns: Vec<ArrayRef> = vec![
        texts(&|r| Some(r.id.clone())),
        texts(&|r| Some(r.org.clone())),
        texts(&|r| Some(op_name(r).to_owned())),
        texts(&|r| scope_name(r).map(str::to_owned)),
        texts(&|r| r.dataset.as_ref().map(|d| d.0.clone())),
        texts(&|r| match &r.op {
            Op::Convert { field, .. } | Op::Update { field, .. } => Some(field.clone()),
            Op::Delete(_) => subject(r).map(|s| s.field),
        }),
        texts(&|r| match &r.op {
            Op::Convert { from: id, .. } | Op::Update { id, .. } | Op::Delete(Delete { scope: Scope::Record(id), .. }) => {
                Some(id.as_str().to_owned())
            }
            Op::Delete(_) => subject(r).map(|s| s.id.as_str().to_owned()),
        }),
        texts(&|r| match &r.op {
            Op::Convert { to, .. } => Some(to.as_str().to_owned()),
            _ => None,
        }),
        texts(&|r| match &r.op {
            Op::Delete(Delete { scope: Scope::Before(before), .. }) => Some(time_text(*before)),
            _ => None,
        }),
        texts(&|r| match &r.op {
            Op::Update { set, .. } => Some(set_text(set)),
            _ => None,
        }),
        Arc::new(
            TimestampMicrosecondArray::from_iter_values(requests.iter().map(|(_, r, _)| r.execution_time)).with_timezone("UTC"),
        ),
        texts(&|r| Some(r.to_json())),
        Arc::new(StringArray::from_iter_values(requests.iter().map(|(_, _, digest)| hex(&digest.0)))),
        Arc::new(Int64Array::from(vec![batch.0.cast_signed(); rows])),
        Arc::new(TimestampMicrosecondArray::from(vec![accepted_at_micros; rows]).with_timezone("UTC")),
        Arc::new(StringArray::from(vec![source; rows])),
        Arc::new(Int64Array::from_iter_values(requests.iter().map(|(record, _, _)| record.cast_signed()))),
    ];
    RecordBatch::try_new(arrow_schema(&TableSpec::requests()), columns)
        .map_err(|e| Error::new(Kind::Internal, "collecting requests").source(e))
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

impl Engine {
    /// The requests that the batches of a span took in, in the order of the batches.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if the table cannot be read, or holds what is no request.
    pub(crate) async fn accepted(&self, span: BatchSpan) -> Result<Vec<Accepted>> {
        let log = self.log_of(&TableSpec::requests());
        let mut accepted = Vec::new();
        for file in log.live_files(None).await? {
            // A file of the intake's own holds one batch; those of other jobs and programs hold any.
            let batch =
                parse_data_file(&file.path).filter(|f| f.chain.dataset.0 == Dataset::REQUESTS && f.chain.job == Job::Mutate);
            if batch.is_some_and(|f| f.key.batch <= span.from || f.key.batch > span.to) {
                continue;
            }
            for rows in log.read_file(&file.path).await? {
                read_rows(&rows, span, &mut accepted)?;
            }
        }
        accepted.sort_by_key(|a| a.batch);
        Ok(accepted)
    }
}

fn read_rows(rows: &RecordBatch, span: BatchSpan, accepted: &mut Vec<Accepted>) -> Result<()> {
    let corrupt = || {
        Error::new(Kind::Corrupt, "the table requests holds what is no request")
            .hint("another program wrote to it; restore it from a backup")
    };
    let column = |name: &str| rows.column_by_name(name).ok_or_else(corrupt);
    let requests = column("request")?.as_string_opt::<i32>().ok_or_else(corrupt)?;
    let digests = column("digest")?.as_string_opt::<i32>().ok_or_else(corrupt)?;
    let batches = column("batch_id")?.as_primitive_opt::<Int64Type>().ok_or_else(corrupt)?;
    for row in 0..rows.num_rows() {
        if requests.is_null(row) || digests.is_null(row) || batches.is_null(row) {
            return Err(corrupt());
        }
        let batch = BatchNumber(batches.value(row).cast_unsigned());
        if batch > span.from && batch <= span.to {
            accepted.push(Accepted {
                request: Request::from_json(requests.value(row))?,
                digest: RequestDigest(unhex(digests.value(row)).ok_or_else(corrupt)?),
                batch,
            });
        }
    }
    Ok(())
}
