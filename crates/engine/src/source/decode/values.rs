//! Single values of a declared column, given as texts of JSON, by the same rules as input.
//!
//! Place in the flow: a request may set a column to a value, and `_original` holds what the source gave; both become cells here.

use alluvium_core::{
    BatchLimits, DataType, Dataset, DatasetName, Error, Field, FileCursor, FileFormat, FileSource, Kind, Layout, Result, Source,
    TakenPolicy,
};
use arrow::array::ArrayRef;
use bytes::Bytes;

use super::{Decoded, Decoder};
use crate::source::split::{Input, Splitter};

/// What surrounds the value in a record that is made for it.
const ORG: &str = "o";
const TIME: &str = "t";
const VALUE: &str = "v";

/// One value a text, in the column's type; null where the text is `null`.
///
/// # Errors
/// [`Kind::Invalid`] if a value does not fit; the message says why and quotes none.
pub(crate) fn values_of(field: &Field, texts: &[&str]) -> Result<ArrayRef> {
    let mut lines = String::with_capacity(texts.iter().map(|t| t.len() + 32).sum());
    for text in texts {
        lines.push_str("{\"v\":");
        lines.push_str(text);
        lines.push_str(",\"o\":\"o\",\"t\":\"2000-01-01\"}\n");
    }
    let internal = || Error::new(Kind::Internal, "reading values that were written by us");
    let decoder = Decoder::new(&dataset_of(field));
    let mut splitter = Splitter::open(Input::Bytes(Bytes::from(lines)), "", FileFormat::Json, FileCursor::default())
        .map_err(|_fault| internal())?;
    let mut arrays: Vec<ArrayRef> = Vec::new();
    while let Some(chunk) = splitter.next_chunk(u64::MAX, u64::MAX).map_err(|_fault| internal())? {
        let Decoded { rows, refused, .. } = decoder.decode(chunk);
        if let Some(refused) = refused.into_iter().next() {
            return Err(Error::new(Kind::Invalid, refused.reason));
        }
        arrays.push(rows.column(0).clone());
    }
    let parts: Vec<&dyn arrow::array::Array> = arrays.iter().map(AsRef::as_ref).collect();
    match parts.as_slice() {
        [] => Err(internal()),
        [_] => Ok(arrays.swap_remove(0)),
        _ => arrow::compute::concat(&parts).map_err(|e| internal().source(e)),
    }
}

/// A dataset whose records hold nothing but such a value.
fn dataset_of(field: &Field) -> Dataset {
    let column = |name: &str, data_type: DataType| Field {
        name: name.to_owned(),
        data_type,
        nullable: true,
        from: vec![name.to_owned()],
        unit: None,
    };
    Dataset {
        name: DatasetName("values".to_owned()),
        source: Source::Files(FileSource {
            path: String::new(),
            format: FileFormat::Json,
            after: TakenPolicy::Keep,
            ordered: false,
        }),
        key: None,
        org: ORG.to_owned(),
        event_time: TIME.to_owned(),
        fields: vec![
            Field { unit: field.unit, ..column(VALUE, field.data_type.clone()) },
            column(ORG, DataType::String),
            column(TIME, DataType::Date),
        ],
        identities: Vec::new(),
        layout: Layout { partition_by: Vec::new(), cluster_by: Vec::new(), target_file_bytes: 1 },
        retention: alluvium_core::Retention::default(),
        change_data_feed: false,
        batch: BatchLimits { max_rows: 1, max_bytes: 1, max_delay: std::time::Duration::ZERO },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow::array::AsArray;
    use arrow::datatypes::{Decimal128Type, Int64Type};

    use super::*;

    fn field(data_type: &str) -> Field {
        let data_type = data_type.parse().unwrap();
        Field { name: "x".to_owned(), data_type, nullable: true, from: vec!["x".to_owned()], unit: None }
    }

    #[test]
    fn values_are_read_by_the_rules_of_input() {
        let texts = values_of(&field("string"), &["\"a\\u00e9\"", "null", "12", "\"\""]).unwrap();
        assert_eq!(texts.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("aé"), None, Some("12"), Some("")]);
        let longs = values_of(&field("long"), &["\"12\"", "3.0", "null"]).unwrap();
        assert_eq!(longs.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(12), Some(3), None]);
        let decimals = values_of(&field("decimal(10,2)"), &["\"1.25\""]).unwrap();
        assert_eq!(decimals.as_primitive::<Decimal128Type>().value(0), 125);
        let nested = values_of(&field("struct<a: string>"), &["{\"a\":\"x\"}"]).unwrap();
        assert_eq!(nested.as_struct().column(0).as_string::<i32>().value(0), "x");
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_without_being_quoted() {
        let refused = values_of(&field("long"), &["\"secret\""]).unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid);
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
}
