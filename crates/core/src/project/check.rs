//! Checks what must agree with something else, and turns the written declarations into the ones the program works with.
//!
//! A key whose value was refused on reading is absent here; `broken` names it, and `said` are the problems found then, so that
//! nothing is said twice.

mod dataset;
mod fields;
mod kafka;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::dataset::DatasetCheck;
use super::at::{At, Entries};
use super::node::join;
use super::problem::{Place, Problem, Warning};
use super::raw::{RawDataset, RawErase, RawKafka, RawMaintenance, RawProject, RawRequestSource, RawRequests};
use super::{Erase, KafkaSettings, Maintenance, Project, Topic};
use crate::dataset::{Dataset, FileFormat, FileSource, Requests, Source, TakenPolicy};
use crate::names::{Namespace, TableName};

/// The longest path below which our own names still fit into 1024 bytes, the shortest limit of a store.
const MAX_STORAGE_BYTES: usize = 512;
const SCHEMES: [&str; 5] = ["s3", "gs", "abfss", "az", "file"];

/// What the checks found.
pub(super) struct Checked {
    pub project: Project,
    pub problems: Vec<Problem>,
}

/// Checks `raw`; the project is to be used only if there are no problems, here or before.
pub(super) fn check(raw: RawProject, broken: &BTreeSet<String>, said: &[Problem]) -> Checked {
    let mut checker = Checker { broken, said, problems: Vec::new(), warnings: Vec::new(), topics: Vec::new() };
    let project = checker.project(raw);
    let Checker { problems, mut warnings, topics, .. } = checker;
    warnings.sort_by_key(|w| w.place);
    Checked { project: Project { warnings, topics, ..project }, problems }
}

/// How long a dead process on another machine keeps others waiting.
const DEFAULT_LEASE_TTL: Duration = Duration::from_secs(10);

struct Checker<'a> {
    broken: &'a BTreeSet<String>,
    said: &'a [Problem],
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
    topics: Vec<Topic>,
}

impl Checker<'_> {
    fn problem(&mut self, place: Place, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.push(Problem::new(place, key, message, hint));
    }

    fn later<T>(&mut self, key: &str, at: Option<&At<T>>, what: &str) {
        if let Some(at) = at {
            let message = format!("{what} not built yet; this key is checked and has no effect");
            self.warnings.push(Warning { place: at.place, key: key.to_owned(), message });
        }
    }

    /// A value that must be there.
    fn required<T>(&mut self, key: &str, value: Option<T>, example: &str) -> Option<T> {
        let misspelled = Some(format!("did you mean {key:?}?"));
        let said = self.said.iter().any(|p| p.key.is_empty() && p.hint == misspelled);
        if value.is_none() && !said && !self.broken.contains(key) {
            self.problem(Place::START, "", format!("the key {key:?} is missing"), format!("add {example}"));
        }
        value
    }

    fn project(&mut self, raw: RawProject) -> Project {
        if let Some(kafka) = &raw.kafka {
            self.kafka_settings(&kafka.value);
        }
        let maintenance = raw.maintenance.map(|maintenance| self.maintenance(maintenance.value)).unwrap_or_default();
        let requests = match raw.requests {
            Some(requests) => self.requests(requests.value),
            None => Requests::new(None, None),
        };
        let erase = raw.erase.map(|erase| self.erase(erase.value)).unwrap_or_default();
        let name = self.required("project", raw.project, "project: my-lake").map(|name| self.project_name(name));
        let storage = self.required("storage", raw.storage, "storage: ./lake").map(|storage| self.storage(storage));
        let namespace = raw.namespace.and_then(|text| self.namespace("namespace", &text)).unwrap_or_default();
        let reserved_namespaces = self.reserved(raw.reserved_namespaces.unwrap_or_default());
        let datasets = self.required("datasets", raw.datasets, "datasets: with at least one dataset below it");
        Project {
            name: name.unwrap_or_default(),
            namespace,
            reserved_namespaces,
            storage: storage.unwrap_or_default(),
            durability: raw.durability.unwrap_or_default(),
            lease_ttl: raw.leases.and_then(|l| l.value.ttl).map_or(DEFAULT_LEASE_TTL, |ttl| ttl.0),
            datasets: datasets.map(|datasets| self.datasets(datasets)).unwrap_or_default(),
            requests,
            erase,
            maintenance,
            kafka: KafkaSettings::new(raw.kafka.map(|kafka| kafka.value.0).unwrap_or_default()),
            warnings: Vec::new(),
            topics: Vec::new(),
        }
    }

    fn erase(&mut self, raw: RawErase) -> Erase {
        self.later("erase.deadline", raw.deadline.as_ref(), "receipts are");
        self.later("erase.remember", raw.remember.as_ref(), "hashing ids is");
        self.later("erase.store_keeps", raw.store_keeps.as_ref(), "receipts are");
        self.later("erase.keep_receipts", raw.keep_receipts.as_ref(), "receipts are");
        let default = Erase::default();
        Erase {
            purge_after: raw.purge_after.map_or(default.purge_after, |after| after.0),
            wait_for_consumers: raw.wait_for_consumers.map_or(default.wait_for_consumers, |time| time.0),
            key: raw.key.map_or(default.key, |key| key.0),
        }
    }

    fn maintenance(&mut self, raw: RawMaintenance) -> Maintenance {
        self.later("maintenance.log_retention", raw.log_retention.as_ref(), "cleaning up logs is");
        self.later("maintenance.optimize", raw.optimize.as_ref(), "optimize is");
        let default = Maintenance::default();
        Maintenance { vacuum_after: raw.vacuum_after.map_or(default.vacuum_after, |after| after.0) }
    }

    fn project_name(&mut self, name: At<String>) -> String {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if name.value.is_empty() || name.value.len() > 100 || !name.value.bytes().all(good) {
            let message = format!("{:?} cannot be the name of a project", name.value);
            self.problem(name.place, "project", message, "use letters, digits, dots, underscores and dashes, 100 at most");
        }
        name.value
    }

    fn namespace(&mut self, key: &str, text: &At<String>) -> Option<Namespace> {
        match Namespace::parse(&text.value) {
            Ok(namespace) => Some(namespace),
            Err(e) => {
                self.problem(text.place, key, e.message(), e.hint());
                None
            }
        }
    }

    fn reserved(&mut self, texts: Vec<At<String>>) -> BTreeSet<Namespace> {
        let mut all = BTreeSet::new();
        for text in texts {
            match self.namespace("reserved_namespaces", &text) {
                Some(namespace) if namespace.is_default() => {
                    self.problem(
                        text.place,
                        "reserved_namespaces",
                        "the namespace default cannot be reserved",
                        "take it out of the list",
                    );
                }
                namespace => all.extend(namespace),
            }
        }
        all
    }

    fn storage(&mut self, storage: At<String>) -> String {
        let text = &storage.value;
        let hint = "write a directory, or a URL that begins with s3://, gs://, abfss://, az:// or file://";
        let refusal = match text.split_once(':') {
            _ if text.trim().is_empty() => Some("storage is empty".to_owned()),
            _ if text.len() > MAX_STORAGE_BYTES => {
                Some(format!("storage has more than {MAX_STORAGE_BYTES} bytes; stores refuse longer names"))
            }
            Some((scheme, rest)) if rest.starts_with("//") && !SCHEMES.contains(&scheme) => {
                Some(format!("storage of the kind {scheme:?} is not supported"))
            }
            Some((scheme, rest)) if SCHEMES.contains(&scheme) => match rest.strip_prefix("//") {
                None => Some(format!("{scheme}: is not followed by //")),
                Some(rest) if rest.is_empty() || (scheme != "file" && rest.starts_with('/')) => {
                    Some(format!("the {scheme}:// URL names no place"))
                }
                Some(_) => None,
            },
            _ => None,
        };
        if let Some(message) = refusal {
            self.problem(storage.place, "storage", message, hint);
        }
        storage.value
    }

    fn datasets(&mut self, datasets: At<Entries<RawDataset>>) -> Vec<Dataset> {
        let broken_inside = self.broken.iter().any(|key| key.starts_with("datasets."));
        if datasets.value.0.is_empty() && !broken_inside {
            self.problem(datasets.place, "datasets", "there is no dataset", "declare at least one; alluvium init shows how");
        }
        let mut names: BTreeMap<String, (String, Place)> = BTreeMap::new();
        for (name, _) in &datasets.value.0 {
            let key = join("datasets", &name.value);
            self.table_name(&key, name, &mut names, "dataset");
        }
        let mut entities = Entities::default();
        let mut all: Vec<Dataset> = Vec::new();
        for (name, raw) in datasets.value.0 {
            let key = join("datasets", &name.value);
            for entity in raw.normalize.iter().flat_map(|n| &n.value.0) {
                if !entities.names.contains(&entity.0.value) {
                    let key = join(&join(&key, "normalize"), &entity.0.value);
                    self.table_name(&key, &entity.0, &mut names, "entity");
                    entities.names.insert(entity.0.value.clone());
                }
            }
            self.dataset_later(&key, &raw);
            let mut check = DatasetCheck::new(self, key);
            all.push(check.dataset(name.value, raw, &mut entities));
        }
        self.shared_directories(&all, &names);
        all
    }

    fn table_name(&mut self, key: &str, name: &At<String>, names: &mut BTreeMap<String, (String, Place)>, what: &str) {
        if let Err(e) = TableName::parse(&name.value) {
            self.problem(name.place, key, e.message(), e.hint());
        }
        let entry = (name.value.clone(), name.place);
        if let Some((other, place)) = names.insert(name.value.to_lowercase(), entry) {
            let message = format!("the {what} {:?} would share a table with {other:?} of line {}", name.value, place.line);
            self.problem(name.place, key, message, "choose names that differ in more than case");
        }
    }

    fn dataset_later(&mut self, key: &str, raw: &RawDataset) {
        self.later(&join(key, "normalize"), raw.normalize.as_ref(), "normalised entities are");
    }

    fn requests(&mut self, RawRequests { source, max_attempts }: RawRequests) -> Requests {
        if let Some(attempts) = max_attempts.as_ref().filter(|a| a.value == 0) {
            self.problem(attempts.place, "requests.max_attempts", "0 attempts are none", "write 1 or more");
        }
        let source = source.and_then(|source| self.request_source(source));
        Requests::new(source, max_attempts.map(|a| a.value))
    }

    fn request_source(&mut self, At { place, value: source }: At<RawRequestSource>) -> Option<Source> {
        let formats = [
            ("requests.source.files.format", source.files.as_ref().and_then(|files| files.format.as_ref())),
            ("requests.source.kafka.format", source.kafka.as_ref().and_then(|kafka| kafka.value.format.as_ref())),
        ];
        for (key, format) in formats {
            if let Some(format) = format.filter(|format| format.value != FileFormat::Json) {
                self.problem(format.place, key, "requests are read as json only", "write json");
            }
        }
        self.one_of("requests.source", place, source.files.is_some(), source.kafka.is_some());
        match (source.kafka, source.files) {
            // The format was checked above.
            (Some(kafka), _) => {
                Some(Source::Kafka(self.kafka("requests.source.kafka", RawKafka { format: None, ..kafka.value })))
            }
            (None, Some(files)) => {
                self.directory("requests.source.files", &files.path, files.after.as_ref().map(|a| (a.place, &a.value.0)));
                Some(Source::Files(FileSource {
                    path: files.path.value,
                    format: FileFormat::Json,
                    after: files.after.map_or(TakenPolicy::Keep, |after| after.value.0),
                    ordered: files.ordered,
                }))
            }
            (None, None) => None,
        }
    }

    fn one_of(&mut self, key: &str, place: Place, files: bool, kafka: bool) {
        let below = |name: &str| self.broken.iter().any(|b| b.starts_with(&join(key, name)));
        if files && kafka {
            self.problem(place, key, "a source has files or kafka, not both", "keep the one the records come from");
        } else if !files && !kafka && !below("files") && !below("kafka") && !self.said.iter().any(|p| p.key == key) {
            let hint = "add files: { path: ./inbox/NAME, format: json }";
            self.problem(place, key, "a source needs files or kafka", hint);
        }
    }

    /// A directory that is read, and where its files go.
    fn directory(&mut self, key: &str, path: &At<String>, after: Option<(Place, &TakenPolicy)>) {
        if path.value.trim().is_empty() {
            self.problem(path.place, &join(key, "path"), "the path is empty", "write a directory, as in ./inbox/engagement");
        }
        let Some((place, TakenPolicy::Move(to))) = after else { return };
        let (from, to) = (parts(&path.value), parts(to));
        let inside = to.strip_prefix(from.as_slice());
        if inside.is_some_and(|rest| !rest.iter().any(|part| part.starts_with(['.', '_']))) {
            let message = "files would be moved to where they are read again";
            self.problem(place, &join(key, "after"), message, "move them to a directory outside of the source's");
        }
    }

    /// No record may be moved or deleted by one dataset before another has read it.
    fn shared_directories(&mut self, datasets: &[Dataset], names: &BTreeMap<String, (String, Place)>) {
        for (i, dataset) in datasets.iter().enumerate() {
            let Source::Files(files) = &dataset.source else { continue };
            let shared = datasets.iter().take(i).find_map(|other| match &other.source {
                Source::Files(o) if parts(&o.path) == parts(&files.path) => Some((&other.name.0, &o.after)),
                _ => None,
            });
            let Some((other, after)) = shared else { continue };
            if files.after != TakenPolicy::Keep || *after != TakenPolicy::Keep {
                let place = names.get(&dataset.name.0.to_lowercase()).map_or(Place::START, |(_, place)| *place);
                let message = format!("{other:?} reads the same directory, and one of them does not keep its files");
                self.problem(
                    place,
                    &join("datasets", &dataset.name.0),
                    message,
                    "give each dataset a directory, or write after: keep in both",
                );
            }
        }
    }
}

/// The entities of all datasets: one that several name must have the same columns in each.
#[derive(Default)]
struct Entities {
    names: BTreeSet<String>,
    columns: BTreeMap<(String, String), (String, String)>,
}

/// The parts of a path that matter when two are compared.
fn parts(path: &str) -> Vec<&str> {
    let absolute = path.starts_with('/').then_some("/");
    absolute.into_iter().chain(path.split('/').filter(|part| !part.is_empty() && *part != ".")).collect()
}
