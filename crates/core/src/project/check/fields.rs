//! Checks of declared columns: names that Delta and we can keep, and types.

use std::collections::BTreeMap;

use super::super::at::{At, Entries, Short};
use super::super::node::join;
use super::super::problem::Place;
use super::super::raw::RawField;
use super::super::text::TypeText;
use super::Checker;
use crate::dataset::Field;
use crate::types::DataType;

/// The date column that every table has; it may be partitioned by.
pub(super) const EVENT_DATE: &str = "event_date";
const REFUSED_BY_DELTA: &str = " ,;{}()\n\t=";
const MAX_FIELD_BYTES: usize = 255;

/// Why a column cannot be called `name`, and what would be right.
fn refusal(name: &str) -> Option<(String, &'static str)> {
    if name.is_empty() {
        return Some(("a field without a name".to_owned(), "give it a name"));
    }
    if name.starts_with('_') {
        return Some((
            format!("the name {name:?} begins with _, as the columns we add do"),
            "choose another name, and say from: where the value stands in the input",
        ));
    }
    if name.eq_ignore_ascii_case(EVENT_DATE) {
        return Some((
            format!("the column {name:?} is added to every table by us"),
            "choose another name, and say from: where the value stands in the input",
        ));
    }
    if let Some(bad) = name.chars().find(|c| REFUSED_BY_DELTA.contains(*c) || c.is_control()) {
        return Some((format!("the name {name:?} holds {bad:?}, which Delta refuses"), "use letters, digits and underscores"));
    }
    (name.len() > MAX_FIELD_BYTES).then(|| (format!("the name has more than {MAX_FIELD_BYTES} bytes"), "choose a shorter name"))
}

impl Checker<'_> {
    /// The columns of the dataset at `key`, with the place of each.
    pub(super) fn fields(&mut self, key: &str, raw: At<Entries<At<Short<TypeText, RawField>>>>) -> Vec<(Field, Place)> {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        let mut fields = Vec::new();
        if raw.value.0.is_empty() && !self.broken.iter().any(|b| b.starts_with(&format!("{key}.fields."))) {
            self.problem(
                raw.place,
                &join(key, "fields"),
                "there are no fields",
                "declare at least the organisation and the event time",
            );
        }
        for (name, declared) in raw.value.0 {
            let key = join(&join(key, "fields"), &name.value);
            if let Some((message, hint)) = refusal(&name.value) {
                self.problem(name.place, &key, message, hint);
            }
            if let Some(other) = seen.insert(name.value.to_lowercase(), name.value.clone()) {
                let message = format!("the fields {other:?} and {:?} differ only in case", name.value);
                self.problem(name.place, &key, message, "choose names that differ in more than case");
            }
            fields.push((self.field(&key, name.value, declared), name.place));
        }
        fields
    }

    fn field(&mut self, key: &str, name: String, declared: At<Short<TypeText, RawField>>) -> Field {
        let At { place, value } = declared;
        let raw = match value {
            Short::Short(data_type) => {
                RawField { data_type: At { place, value: data_type }, nullable: None, from: None, unit: None }
            }
            Short::Long(raw) => raw,
        };
        let data_type = raw.data_type.value.0;
        if let Some(bad) = bad_inner_name(&data_type) {
            let message = format!("the struct's field {bad:?} holds a character that Delta refuses");
            self.problem(raw.data_type.place, key, message, "use letters, digits and underscores");
        }
        if let Some(unit) = raw.unit.as_ref().filter(|_| data_type != DataType::Timestamp) {
            let message = format!("a unit stands at a {data_type}");
            self.problem(unit.place, &join(key, "unit"), message, "units are for integers given for a timestamp; leave it out");
        }
        Field {
            from: raw.from.map_or_else(|| vec![name.clone()], |from| from.0),
            nullable: raw.nullable.is_none_or(|nullable| nullable.value),
            unit: raw.unit.map(|unit| unit.value),
            name,
            data_type,
        }
    }
}

fn bad_inner_name(data_type: &DataType) -> Option<&str> {
    match data_type {
        DataType::Struct(fields) => fields.iter().find_map(|f| {
            let bad = f.name.chars().any(|c| REFUSED_BY_DELTA.contains(c) || c.is_control());
            if bad { Some(f.name.as_str()) } else { bad_inner_name(&f.data_type) }
        }),
        DataType::Array(element) => bad_inner_name(element),
        DataType::Map(key, value) => bad_inner_name(key).or_else(|| bad_inner_name(value)),
        _ => None,
    }
}
