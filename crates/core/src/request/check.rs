//! A request held against the declarations: whether what it names is there, and whether its values fit.
//!
//! A request without a dataset is about every dataset that has what it names, and must be right for at least one of them; a value
//! must fit, and a column must be one that may be set, in each of them.
//!
//! Ids are compared as texts with the texts of their columns' values. Where all columns that an id is about are of integer
//! types, another spelling of the same integer (`3.0`, `-0`) is put into the one that the column gives; where only some are, an id
//! in another spelling is about the text columns alone.

use std::collections::BTreeSet;

use super::parse::{self, Keys};
use super::text::Id;
use super::{Delete, MAX_REQUEST_BYTES, Op, Refusal, Request, Scope, Subject};
use crate::dataset::{Dataset, Field};
use crate::pseudonym::is_pseudonym;
use crate::types::DataType;

/// Reads a request that came in, as one JSON object, and holds it against the datasets that are declared. `fits` says why a JSON
/// value does not fit a field's declared type, by the rule for input; its reason quotes no value. Null is not asked about.
///
/// # Errors
/// What is wrong with it, for the dead letters.
pub fn read_request(
    text: &str,
    datasets: &[Dataset],
    fits: &dyn Fn(&Field, &str) -> Result<(), String>,
) -> Result<Request, Refusal> {
    // As it is stored it may be a little longer, and must be read all the same.
    if text.len() > MAX_REQUEST_BYTES {
        return Err(Refusal::new("", format!("the request has more than {MAX_REQUEST_BYTES} bytes")));
    }
    let mut request = parse::request(Keys::new(text)?)?;
    let about: Vec<&Dataset> = match &request.dataset {
        None => datasets.iter().collect(),
        Some(name) => match datasets.iter().find(|d| d.name == *name) {
            Some(dataset) => vec![dataset],
            None => return Err(Refusal::new("dataset", "no dataset of that name is declared")),
        },
    };
    let orgs = match &mut request.op {
        Op::Convert { field, from, to } => {
            let (having, fields) = identity("field", field, &about)?;
            *from = id("from", from, &fields)?;
            *to = id("to", to, &fields)?;
            if from == to {
                return Err(Refusal::new("to", "from and to are the same id"));
            }
            having
        }
        Op::Update { field, id: of, set } => {
            let (having, fields) = identity("field", field, &about)?;
            *of = id("id", of, &fields)?;
            for (column, value) in set {
                may_be_set(column, value.as_str(), &having, fits)?;
            }
            having
        }
        Op::Delete(Delete { scope: Scope::Subject(subjects), .. }) => {
            let mut orgs: Vec<&Dataset> = Vec::new();
            let mut checked = BTreeSet::new();
            for Subject { field, id: of } in std::mem::take(subjects) {
                let (having, fields) = identity(if checked.is_empty() { "field" } else { "subjects" }, &field, &about)?;
                let of = id("id", &of, &fields)?;
                orgs.extend(having);
                checked.insert(Subject { field, id: of });
            }
            *subjects = checked;
            orgs
        }
        Op::Delete(Delete { scope: Scope::Record(key), .. }) => {
            let (having, fields): (Vec<&Dataset>, Vec<&Field>) = about.iter().filter_map(|d| keyed(d)).unzip();
            if having.is_empty() {
                return Err(Refusal::new("scope", "no dataset it is about has a key"));
            }
            *key = id("id", key, &fields)?;
            having
        }
        Op::Delete(Delete { scope: Scope::Org | Scope::Before(_), .. }) => about,
    };
    let fields: Vec<&Field> = orgs.iter().filter_map(|d| d.field(&d.org)).collect();
    request.org = id("org_id", &Id::new(&request.org), &fields)?.as_str().to_owned();
    Ok(request)
}

/// The datasets in which `field` is an identity, and their fields.
fn identity<'d>(key: &str, field: &str, about: &[&'d Dataset]) -> Result<(Vec<&'d Dataset>, Vec<&'d Field>), Refusal> {
    let declares = |d: &&&Dataset| d.identities.iter().any(|i| i.field == field);
    let having: Vec<&Dataset> = about.iter().filter(declares).copied().collect();
    let fields: Vec<&Field> = having.iter().filter_map(|d| d.field(field)).collect();
    if !having.is_empty() {
        return Ok((having, fields));
    }
    let known = about.iter().any(|d| d.field(field).is_some());
    let reason = if known { "the field is not declared as an identity" } else { "no dataset it is about has the field" };
    Err(Refusal::new(key, reason))
}

/// A dataset with a key, and the key's field.
fn keyed(dataset: &Dataset) -> Option<(&Dataset, &Field)> {
    Some((dataset, dataset.field(dataset.key.as_ref()?)?))
}

/// `given` as the columns it is about spell it.
fn id(key: &str, given: &Id, fields: &[&Field]) -> Result<Id, Refusal> {
    if is_pseudonym(given.as_str()) {
        return Err(Refusal::new(key, format!("{key} has the form of what stands for ids of erased people")));
    }
    let spelled: Vec<Option<Id>> = fields.iter().map(|f| as_column_text(&f.data_type, given)).collect();
    if spelled.iter().all(Option::is_none) {
        let types: BTreeSet<String> = fields.iter().map(|f| f.data_type.to_string()).collect();
        let types: Vec<String> = types.into_iter().collect();
        return Err(Refusal::new(key, format!("{key} does not fit the type {}", types.join(" or "))));
    }
    let all_integers = fields.iter().all(|f| f.data_type != DataType::String);
    let common = spelled.into_iter().flatten().next().filter(|_| all_integers);
    Ok(common.unwrap_or_else(|| given.clone()))
}

/// The text that a column of this type gives for the value that `text` spells, if it fits: integers as decimal digits.
pub(crate) fn as_column_text(data_type: &DataType, text: &Id) -> Option<Id> {
    let (min, max) = match data_type {
        DataType::String => return Some(text.clone()),
        DataType::Long => (i64::MIN, i64::MAX),
        DataType::Integer => (i32::MIN.into(), i32::MAX.into()),
        DataType::Short => (i16::MIN.into(), i16::MAX.into()),
        DataType::Byte => (i8::MIN.into(), i8::MAX.into()),
        _ => return None,
    };
    let text = text.as_str();
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => whole,
        Some(_) => return None,
        None => text,
    };
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let is_number =
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    let value: i64 = whole.parse().ok().filter(|_| is_number)?;
    (min..=max).contains(&value).then(|| Id::new(&value.to_string()))
}

/// That `column` may be set to `value` in each of the datasets that have it, and at least one does.
fn may_be_set(
    column: &str,
    value: &str,
    having: &[&Dataset],
    fits: &dyn Fn(&Field, &str) -> Result<(), String>,
) -> Result<(), Refusal> {
    let mut known = None;
    for dataset in having {
        let Some(field) = dataset.field(column) else { continue };
        let key = format!("set.{}", field.name);
        known = Some(());
        let part = if dataset.org == field.name {
            "the organisation"
        } else if dataset.event_time == field.name {
            "the event time"
        } else if dataset.key.as_ref() == Some(&field.name) {
            "the key"
        } else if dataset.identities.iter().any(|i| i.field == field.name) {
            "an identity"
        } else if value == "null" && !field.nullable {
            return Err(Refusal::new(key, "null does not fit: the field is declared nullable: false"));
        } else {
            if value != "null" {
                let reason = |why: String| format!("the value does not fit the type {}: {why}", field.data_type);
                fits(field, value).map_err(|why| Refusal::new(&*key, reason(why)))?;
            }
            continue;
        };
        return Err(Refusal::new(key, format!("the field is {part}, which an update may not set")));
    }
    known.ok_or_else(|| Refusal::new("set", "set names a column that no dataset it is about has"))
}
