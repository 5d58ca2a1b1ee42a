//! Checks of one dataset: every field that is named must exist and be of a type that fits its part.

use std::time::Duration;

use super::super::at::{At, Entries, Short};
use super::super::node::join;
use super::super::problem::{Place, suggest};
use super::super::raw::{RawBatch, RawDataset, RawEntity, RawIdentity, RawLayout, RawOnErase, RawSource};
use super::super::text::DurationText;
use super::fields::EVENT_DATE;
use super::{Checker, Entities};
use crate::dataset::{
    BatchLimits, Dataset, DatasetName, Field, FileSource, Identity, KafkaSource, Layout, MessagePart, OnErase, Source,
    TakenPolicy,
};
use crate::retention::Retention;
use crate::types::DataType;

const MAX_ROWS: u64 = 1_000_000;
const MAX_BYTES: u64 = 256 << 20;
const MAX_DELAY: Duration = Duration::from_secs(1);
const TARGET_FILE_BYTES: u64 = 64 << 20;

pub(super) struct DatasetCheck<'c, 'b> {
    checker: &'c mut Checker<'b>,
    key: String,
    fields: Vec<(Field, Place)>,
}

/// What a type must be to play a part.
struct Fit {
    part: &'static str,
    wanted: &'static str,
    fits: fn(&DataType) -> bool,
}

const ORG: Fit = Fit { part: "the organisation", wanted: "string or an integer type", fits: is_id };
const EVENT_TIME: Fit = Fit { part: "the event time", wanted: "timestamp or date", fits: is_time };
const KEY: Fit = Fit { part: "the key", wanted: "string or an integer type", fits: is_id };
const IDENTITY: Fit = Fit { part: "an identity", wanted: "string or an integer type", fits: is_id };
const ENTITY: Fit = Fit { part: "an entity's id", wanted: "string or an integer type", fits: is_id };
const PARTITION: Fit =
    Fit { part: "a partition column", wanted: "a simple type other than binary, double and float", fits: is_partition };
const CLUSTER: Fit = Fit { part: "an ordering column", wanted: "a simple type", fits: DataType::is_primitive };
const ANY: Fit = Fit { part: "a field", wanted: "any type", fits: |_| true };

fn is_id(data_type: &DataType) -> bool {
    matches!(data_type, DataType::String | DataType::Long | DataType::Integer | DataType::Short | DataType::Byte)
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp | DataType::Date)
}

fn is_partition(data_type: &DataType) -> bool {
    data_type.is_primitive() && !matches!(data_type, DataType::Binary | DataType::Double | DataType::Float)
}

impl<'c, 'b> DatasetCheck<'c, 'b> {
    pub(super) fn new(checker: &'c mut Checker<'b>, key: String) -> Self {
        Self { checker, key, fields: Vec::new() }
    }

    pub(super) fn dataset(&mut self, name: String, raw: RawDataset, entities: &mut Entities) -> Dataset {
        self.fields = self.checker.fields(&self.key, raw.fields);
        self.named("org", &raw.org, &ORG);
        self.named("event_time", &raw.event_time, &EVENT_TIME);
        if raw.org.value == raw.event_time.value {
            self.problem(
                raw.event_time.place,
                "event_time",
                "one field cannot be both organisation and event time",
                "name another field",
            );
        }
        if let Some(key) = &raw.key {
            self.named("key", key, &KEY);
        }
        let fixed = [&raw.org.value, &raw.event_time.value];
        let clears: Vec<(String, At<String>)> = clears(&raw.identities);
        let mut identities = self.identities(raw.identities, fixed);
        let ids: Vec<&str> =
            identities.iter().map(|i| i.field.as_str()).chain(raw.key.as_ref().map(|k| k.value.as_str())).collect();
        for (entity, declared) in raw.normalize.iter().flat_map(|n| &n.value.0) {
            self.entity(&entity.value, declared, fixed, &ids, entities);
        }
        if let Some(key) = raw.key.as_ref().filter(|key| identities.iter().any(|i| i.field == key.value)) {
            self.problem(
                key.place,
                "key",
                format!("{:?} is an identity too", key.value),
                "requests change identities, and a key must stay; name another field, or leave out the key",
            );
        }
        for (entity, declared) in raw.normalize.iter().flat_map(|n| &n.value.0) {
            let id = &declared.id.value;
            if fixed.contains(&id) || raw.key.as_ref().is_some_and(|key| key.value == *id) {
                let message = format!("{id:?} is the organisation, the event time or the key, and cannot be an entity's id");
                let key = join(&join("normalize", &entity.value), "id");
                self.problem(declared.id.place, &key, message, "an entity's id is an identity too; requests may change it");
            } else if !identities.iter().any(|i| i.field == *id) {
                identities.push(Identity { field: id.clone(), on_erase: OnErase::Delete });
            }
        }
        self.clears(&identities, raw.key.as_ref().map(|key| key.value.as_str()), &clears);
        Dataset {
            name: DatasetName(name),
            source: self.source(raw.source),
            key: raw.key.map(|key| key.value),
            layout: self.layout(raw.layout, &raw.org.value),
            org: raw.org.value,
            event_time: raw.event_time.value,
            identities,
            retention: retention(raw.retention, raw.retention_by_org),
            change_data_feed: raw.change_data_feed.is_some_and(|feed| feed.value),
            batch: self.batch(raw.batch),
            fields: std::mem::take(&mut self.fields).into_iter().map(|(field, _)| field).collect(),
        }
    }

    fn problem(&mut self, place: Place, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.checker.problem(place, &join(&self.key, key), message, hint);
    }

    /// The field that `name` names, if it is there and fits.
    fn named(&mut self, key: &str, name: &At<String>, fit: &Fit) -> Option<Field> {
        let declared = join(&join(&self.key, "fields"), &name.value);
        let below = format!("{declared}.");
        if self.checker.broken.iter().any(|b| *b == declared || b.starts_with(&below)) {
            return None;
        }
        let Some((field, _)) = self.fields.iter().find(|(f, _)| f.name == name.value) else {
            let hint = suggest(&name.value, self.fields.iter().map(|(f, _)| f.name.as_str()), "the fields are");
            self.problem(name.place, key, format!("{:?} is not among the fields", name.value), hint);
            return None;
        };
        let field = field.clone();
        if !(fit.fits)(&field.data_type) {
            let message = format!("{:?} has the type {}", name.value, field.data_type);
            self.problem(name.place, key, message, format!("{} must be {}", fit.part, fit.wanted));
            return None;
        }
        Some(field)
    }

    /// Fields that take something from the message around the value must be of a type that it has.
    fn message_parts(&mut self) {
        for (field, place) in self.fields.clone() {
            let Some(part) = MessagePart::of(&field.from) else { continue };
            let types: &[DataType] = match part {
                MessagePart::Timestamp => &[DataType::Timestamp, DataType::Long],
                MessagePart::Offset => &[DataType::Long],
                MessagePart::Partition => &[DataType::Integer, DataType::Long],
                MessagePart::Topic => &[DataType::String],
                MessagePart::Key | MessagePart::Header(_) if field.data_type.is_primitive() => continue,
                MessagePart::Key | MessagePart::Header(_) => &[DataType::String, DataType::Binary],
            };
            if !types.contains(&field.data_type) {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                let message = format!("{} is taken as {}", field.from.join("."), field.data_type);
                let key = join("fields", &field.name);
                self.problem(place, &key, message, format!("it can be taken as {}", types.join(" or ")));
            }
        }
    }

    fn source(&mut self, source: At<RawSource>) -> Source {
        let At { place, value: RawSource { files, kafka } } = source;
        let key = join(&self.key, "source");
        self.checker.one_of(&key, place, files.is_some(), kafka.is_some());
        if let Some(kafka) = kafka {
            self.message_parts();
            return Source::Kafka(self.checker.kafka(&join(&key, "kafka"), kafka.value));
        }
        let Some(files) = files else { return Source::Kafka(KafkaSource::new("")) };
        self.checker.directory(&join(&key, "files"), &files.path, files.after.as_ref().map(|a| (a.place, &a.value.0)));
        Source::Files(FileSource {
            path: files.path.value,
            format: files.format,
            after: files.after.map_or(TakenPolicy::Keep, |after| after.value.0),
            ordered: files.ordered,
        })
    }

    fn identities(&mut self, raw: Vec<At<Short<String, RawIdentity>>>, fixed: [&String; 2]) -> Vec<Identity> {
        let mut all: Vec<Identity> = Vec::new();
        for (i, At { place, value }) in raw.into_iter().enumerate() {
            let key = format!("identities[{i}]");
            let raw = match value {
                Short::Short(field) => RawIdentity { field: At { place, value: field }, on_erase: None, clear: None },
                Short::Long(raw) => raw,
            };
            let is_fixed = fixed.contains(&&raw.field.value);
            let field = if is_fixed { None } else { self.named(&key, &raw.field, &IDENTITY) };
            if is_fixed {
                let message = format!("{:?} is the organisation or the event time; requests never change those", raw.field.value);
                self.problem(raw.field.place, &key, message, "take it out of identities");
            }
            if all.iter().any(|other| other.field == raw.field.value) {
                self.problem(raw.field.place, &key, format!("{:?} is named twice", raw.field.value), "name each identity once");
            }
            let on_erase = self.on_erase(&key, &raw, field.as_ref(), fixed);
            all.push(Identity { field: raw.field.value, on_erase });
        }
        all
    }

    /// What is cleared with an id may not be what requests find rows by: each id is cleared for itself, and a key stays.
    fn clears(&mut self, identities: &[Identity], record_key: Option<&str>, clears: &[(String, At<String>)]) {
        for (key, name) in clears {
            if record_key == Some(name.value.as_str()) || identities.iter().any(|i| i.field == name.value) {
                let message = format!("{:?} is an identity or the key", name.value);
                let hint = "clear may name no identity and no key; erase each identity by itself, with subjects in one request";
                self.problem(name.place, key, message, hint);
            }
        }
    }

    fn on_erase(&mut self, key: &str, raw: &RawIdentity, field: Option<&Field>, fixed: [&String; 2]) -> OnErase {
        let clear = raw.clear.as_ref();
        if raw.on_erase != Some(RawOnErase::Clear) {
            if let Some(clear) = clear {
                self.problem(
                    clear.place,
                    &join(key, "clear"),
                    "clear has no meaning when the row is deleted",
                    "add on_erase: clear",
                );
            }
            return OnErase::Delete;
        }
        if field.is_some_and(|f| !f.nullable) {
            let message = format!("{:?} is nullable: false and cannot be cleared", raw.field.value);
            self.problem(raw.field.place, key, message, "let it be null, or write on_erase: delete");
        }
        let names = clear.map(|clear| clear.value.as_slice()).unwrap_or_default();
        for name in names {
            let key = join(key, "clear");
            let field = self.named(&key, name, &ANY);
            if fixed.contains(&&name.value) || field.is_some_and(|f| !f.nullable) {
                let message = format!("{:?} cannot be cleared", name.value);
                self.problem(
                    name.place,
                    &key,
                    message,
                    "clear may name no organisation, no event time and no field with nullable: false",
                );
            }
        }
        OnErase::Clear(names.iter().map(|name| name.value.clone()).collect())
    }

    fn entity(&mut self, entity: &str, raw: &RawEntity, fixed: [&String; 2], ids: &[&str], entities: &mut Entities) {
        let key = join("normalize", entity);
        let id = self.named(&join(&key, "id"), &raw.id, &ENTITY);
        let mut columns: Vec<(String, Place, DataType)> =
            id.map(|f| ("id".to_owned(), raw.id.place, f.data_type)).into_iter().collect();
        let inside = join(&key, "fields");
        for name in &raw.fields.value {
            let field = self.named(&inside, name, &ANY);
            if fixed.contains(&&name.value) || ids.contains(&name.value.as_str()) || name.value == raw.id.value {
                let message = format!("{:?} cannot be normalised", name.value);
                self.problem(name.place, &inside, message, "an entity's fields are no id, key, organisation or event time");
            }
            columns.extend(field.map(|f| (f.name, name.place, f.data_type)));
        }
        for (column, place, data_type) in columns {
            let entry = (data_type.to_string(), self.key.clone());
            let (known, by) = entities.columns.entry((entity.to_owned(), column.clone())).or_insert(entry).clone();
            if known != data_type.to_string() {
                let message = format!("{column:?} of the entity has the type {data_type}, and {known} in {by}");
                self.problem(place, &key, message, "datasets that share an entity must agree on its types");
            }
        }
    }

    fn layout(&mut self, raw: RawLayout, org: &str) -> Layout {
        let partition_by = match raw.partition_by {
            None => vec![org.to_owned()],
            Some(columns) => self.columns("layout.partition_by", columns, &PARTITION),
        };
        let cluster_by = self.columns("layout.cluster_by", raw.cluster_by, &CLUSTER);
        let size = raw
            .target_file_size
            .map(|size| self.positive("layout.target_file_size", At { place: size.place, value: size.value.0 }));
        Layout { partition_by, cluster_by, target_file_bytes: size.unwrap_or(TARGET_FILE_BYTES) }
    }

    fn columns(&mut self, key: &str, columns: Vec<At<String>>, fit: &Fit) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (i, column) in columns.into_iter().enumerate() {
            let key = format!("{key}[{i}]");
            let is_partition = fit.part == PARTITION.part;
            if is_partition && is_transform(&column.value) {
                let message = format!("partitioning by {} is not built yet", column.value);
                self.problem(
                    column.place,
                    &key,
                    message,
                    "it comes later; name a field or event_date, because changing the partitioning rewrites the table",
                );
            } else if column.value.contains(['(', ')']) {
                let message = format!("{:?} is not among the fields", column.value);
                self.problem(
                    column.place,
                    &key,
                    message,
                    "name a field; bucket(..) and the like must be put in quotes, and are not built yet",
                );
            } else if !(is_partition && column.value == EVENT_DATE) {
                self.named(&key, &column, fit);
            }
            if all.contains(&column.value) {
                self.problem(column.place, &key, format!("{:?} is named twice", column.value), "name each column once");
            }
            all.push(column.value);
        }
        all
    }

    fn batch(&mut self, raw: RawBatch) -> BatchLimits {
        let bytes = raw.max_bytes.map(|size| At { place: size.place, value: size.value.0 });
        BatchLimits {
            max_rows: raw.max_rows.map_or(MAX_ROWS, |rows| self.positive("batch.max_rows", rows)),
            max_bytes: bytes.map_or(MAX_BYTES, |bytes| self.positive("batch.max_bytes", bytes)),
            max_delay: raw.max_delay.map_or(MAX_DELAY, |delay| delay.0),
        }
    }

    fn positive(&mut self, key: &str, value: At<u64>) -> u64 {
        if value.value == 0 {
            self.problem(value.place, key, "0 is too small", "write 1 or more");
        }
        value.value
    }
}

/// How long rows are kept.
fn retention(others: Option<At<DurationText>>, by_org: Option<At<Entries<DurationText>>>) -> Retention {
    let by_org = by_org.into_iter().flat_map(|by_org| by_org.value.0).map(|(org, kept)| (org.value, kept.0));
    Retention { others: others.map(|kept| kept.value.0), by_org: by_org.collect() }
}

/// Every field that is cleared with an identity, and the key where it is named.
fn clears(identities: &[At<Short<String, RawIdentity>>]) -> Vec<(String, At<String>)> {
    let named = |(i, raw): (usize, &At<Short<String, RawIdentity>>)| match &raw.value {
        Short::Long(RawIdentity { clear: Some(clear), on_erase: Some(RawOnErase::Clear), .. }) => {
            let key = join(&format!("identities[{i}]"), "clear");
            clear.value.iter().map(|name| (key.clone(), name.clone())).collect()
        }
        _ => Vec::new(),
    };
    identities.iter().enumerate().flat_map(named).collect()
}

/// Whether `text` is a partition transform of the grammar: `bucket(field, n)`, or `year`, `month`, `day` or `hour` of a field.
fn is_transform(text: &str) -> bool {
    let Some((name, arguments)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) else { return false };
    let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
    match (name.trim(), arguments.as_slice()) {
        ("bucket", [field, n]) => !field.is_empty() && n.parse::<u32>().is_ok_and(|n| n > 0),
        ("year" | "month" | "day" | "hour", [field]) => !field.is_empty(),
        _ => false,
    }
}
