//! DataFusion's errors as ours. Those of a running query may quote a row's values: of them only the kind is told.

use std::error::Error as StdError;
use std::io;

use alluvium_core::{Error, Kind};
use arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;

/// Longer messages are cut.
const MAX_MESSAGE_CHARS: usize = 600;

/// An error of a statement that was not run yet: it tells of names and types, and quotes the statement at most.
pub(super) fn planning(error: &DataFusionError) -> Error {
    if let Some(ours) = ours(error) {
        return ours;
    }
    match error.find_root() {
        DataFusionError::SchemaError(e, _) if matches!(e.as_ref(), SchemaError::FieldNotFound { .. }) => no_column(e),
        root @ (DataFusionError::SQL(..)
        | DataFusionError::Plan(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::Configuration(_)
        | DataFusionError::NotImplemented(_)) => {
            Error::new(Kind::Invalid, format!("the statement cannot be run: {}", text(root)))
        }
        DataFusionError::Collection(errors) if !errors.is_empty() => planning(&errors[0]),
        _ => running(error),
    }
}

/// A column that none of the statement's tables has.
fn no_column(error: &SchemaError) -> Error {
    let SchemaError::FieldNotFound { field, valid_fields } = error else {
        return Error::new(Kind::Invalid, "the statement cannot be run: a column is not as it should be");
    };
    let wrong = Error::new(Kind::Invalid, format!("the statement cannot be run: no column is named {}", field.flat_name()));
    let almost = valid_fields.iter().find(|f| f.name.eq_ignore_ascii_case(&field.name));
    let known: Vec<&str> = valid_fields.iter().map(|f| f.name.as_str()).collect();
    match almost {
        Some(column) => wrong.hint(format!("names are taken as written: {}", column.name)),
        None if known.is_empty() => wrong,
        None => wrong.hint(format!("the columns are: {}", known.join(", "))),
    }
}

/// An error of a query that runs.
pub(super) fn running(error: &DataFusionError) -> Error {
    if let Some(ours) = ours(error) {
        return ours;
    }
    if let Some(outside) = outside(error) {
        return outside;
    }
    let failed = |kind, what: &str| Error::new(kind, format!("the query failed: {what}"));
    let refused = |what: &str, hint: &str| failed(Kind::Invalid, what).hint(hint);
    match error.find_root() {
        root @ (DataFusionError::Plan(_) | DataFusionError::SchemaError(..) | DataFusionError::NotImplemented(_)) => {
            failed(Kind::Invalid, &text(root))
        }
        // What is told here are operators and sizes.
        root @ DataFusionError::ResourcesExhausted(_) => {
            failed(Kind::Unavailable, &format!("its memory is used up: {}", text(root)))
                .hint("give it more with --memory, or let it group or sort less at a time")
        }
        DataFusionError::ArrowError(e, _) => match e.as_ref() {
            ArrowError::CastError(_) | ArrowError::ParseError(_) => {
                refused("a value does not fit the type it is cast to", "try_cast gives null where cast fails")
            }
            ArrowError::DivideByZero => refused("division by zero", "divide by nullif(x, 0)"),
            ArrowError::ArithmeticOverflow(_) => refused("a number is too large for its type", "cast to a wider type first"),
            ArrowError::ParquetError(_) => damaged(),
            _ => refused("a function or an operator refused its arguments", "look at what is called on which columns"),
        },
        DataFusionError::ParquetError(_) => damaged(),
        DataFusionError::Execution(_) => {
            refused("a function refused a value", "try_cast gives null where cast fails; where leaves rows out")
        }
        _ => failed(Kind::Internal, "a fault of the query engine").hint("write the query in another way, and please report it"),
    }
}

fn damaged() -> Error {
    Error::new(Kind::Corrupt, "the query failed: a data file is not what it must be")
        .hint("restore the table's data files from a backup")
}

/// Our own error, from opening a table.
fn ours(error: &DataFusionError) -> Option<Error> {
    let ours = below(error).find_map(|e| e.downcast_ref::<Error>())?;
    let copy = Error::new(ours.kind(), ours.message());
    Some(match ours.hint_text() {
        Some(hint) => copy.hint(hint),
        None => copy,
    })
}

/// A fault of the store or the disk.
fn outside(error: &DataFusionError) -> Option<Error> {
    let unavailable = || Error::new(Kind::Unavailable, "the query failed: the storage, or the disk to spill to, cannot be used");
    below(error).find_map(|e| match (e.downcast_ref::<object_store::Error>(), e.downcast_ref::<io::Error>()) {
        (Some(object_store::Error::NotFound { path, .. }), _) => {
            let name = path.rsplit('/').next().unwrap_or_default();
            Some(
                Error::new(Kind::Corrupt, format!("the query failed: the file {name} of a table is gone"))
                    .hint("another program deleted it: restore it from a backup; if a vacuum just ran, run the query again"),
            )
        }
        (Some(_), _) => Some(unavailable()),
        (_, Some(e)) => Some(unavailable().hint(e.kind().to_string())),
        _ => None,
    })
}

/// An error and all below it.
fn below(error: &DataFusionError) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(Some(error as &(dyn StdError + 'static)), |e: &&(dyn StdError + 'static)| (*e).source())
}

fn text(error: &DataFusionError) -> String {
    let whole = error.strip_backtrace();
    let line = whole.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MAX_MESSAGE_CHARS).collect()
}
