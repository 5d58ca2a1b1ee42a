//! The project file: read, found right, and turned into what the program works with.
//!
//! Place in the flow: the command line reads `alluvium.yaml` and hands its text to [`Project::parse`]; nothing else knows
//! YAML. Text becomes nodes with places, nodes become declarations as written, and those are checked against each
//! other. All problems are reported at once, each with its line, key and a hint; keys whose feature is not built yet are
//! checked and give a warning. Invariant: a value that came from the environment is never printed.
//! Deliberately not here: files, the process environment, and whether anything the file names exists.

mod at;
mod check;
mod decode;
mod node;
mod problem;
mod raw;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

pub use problem::{Place, Problem, ProjectErrors, Warning};

use self::at::{At, Setting};
use self::decode::{Decoded, Notes};
use self::raw::RawProject;
use crate::dataset::{Dataset, Durability, Requests};
use crate::names::{Namespace, Resolver};

/// What `alluvium init` writes: a commented project file that runs as it is.
pub const INIT_TEMPLATE: &str = include_str!("project/init.yaml");

/// A project file that was found right.
#[derive(Debug, Clone, PartialEq)]
pub struct Project {
    /// The project's name.
    pub name: String,
    /// The namespace the file names; the command line and the environment go before it.
    pub namespace: Namespace,
    /// Namespaces that the project will never use.
    pub reserved_namespaces: BTreeSet<Namespace>,
    /// Where tables are kept: a path (absolute, or relative to the file's directory) or a URL.
    pub storage: String,
    /// What a finished write has survived on a local disk.
    pub durability: Durability,
    /// How long a process that died keeps others waiting.
    pub lease_ttl: Duration,
    /// The datasets in the order of the file; at least one.
    pub datasets: Vec<Dataset>,
    /// Requests to change or erase rows.
    pub requests: Requests,
    /// How erasures for privacy are carried out.
    pub erase: Erase,
    /// How tables are kept in shape.
    pub maintenance: Maintenance,
    /// Settings of librdkafka.
    pub kafka: KafkaSettings,
    /// Keys that have no effect yet, in the order of the file.
    pub warnings: Vec<Warning>,
    topics: Vec<Topic>,
}

/// How erasures for privacy are carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erase {
    /// How long after an erasure was applied its bytes are purged.
    pub purge_after: Duration,
    /// How long after that a purge waits for named readers of changes.
    pub wait_for_consumers: Duration,
    /// Where the key is kept that erased ids are hashed with.
    pub key: EraseKey,
}

impl Default for Erase {
    fn default() -> Self {
        Self { purge_after: Duration::ZERO, wait_for_consumers: Duration::from_secs(24 * 60 * 60), key: EraseKey::Lake }
    }
}

/// Where the key is kept that erased ids are hashed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EraseKey {
    /// Beside the tables, where whoever can read them can read it.
    Lake,
    /// In an environment variable.
    Env(String),
    /// In a file: absolute, or relative to the project file.
    File(String),
}

/// How tables are kept in shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maintenance {
    /// How long a file that is no longer part of a table is kept for those who still read an older version.
    pub vacuum_after: Duration,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self { vacuum_after: Duration::from_secs(7 * 24 * 60 * 60) }
    }
}

impl Project {
    /// Reads a project file. `env` looks up the variables that `${NAME}` stands for.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ProjectErrors> {
        let (mut problems, mut broken) = (Vec::new(), BTreeSet::new());
        let root = match node::read(text, env, &mut problems, &mut broken) {
            Ok(root) => root,
            Err(problem) => {
                problems.push(problem);
                return Err(ProjectErrors::new(problems));
            }
        };
        let notes = Notes::new(broken);
        let Decoded { value, problems: refused, broken } = decode::decode::<RawProject>(&root, &notes);
        problems.extend(refused);
        let Some(raw) = value else { return Err(ProjectErrors::new(problems)) };
        let checked = check::check(raw, &broken, &problems);
        problems.extend(checked.problems);
        if problems.is_empty() { Ok(checked.project) } else { Err(ProjectErrors::new(problems)) }
    }

    /// The resolver of `namespace`, or of the file's where the caller has none. Only through it do names reach a backend,
    /// so this is part of loading a project.
    ///
    /// # Errors
    /// The namespace is reserved, or a topic cannot be read in it.
    pub fn resolver(&self, namespace: Option<Namespace>) -> Result<Resolver, ProjectErrors> {
        let namespace = namespace.unwrap_or_else(|| self.namespace.clone());
        let resolver = Resolver::with_reserved(namespace, self.reserved_namespaces.clone())
            .map_err(|e| ProjectErrors::new(vec![Problem::new(Place::START, "reserved_namespaces", e.message(), e.hint())]))?;
        let refused = self.topics.iter().filter_map(|topic| {
            let e = resolver.topic(&topic.name).err()?;
            Some(Problem::new(topic.place, &topic.key, e.message(), e.hint()))
        });
        let problems: Vec<Problem> = refused.collect();
        if problems.is_empty() { Ok(resolver) } else { Err(ProjectErrors::new(problems)) }
    }

    /// The dataset of that name.
    #[must_use]
    pub fn dataset(&self, name: &str) -> Option<&Dataset> {
        self.datasets.iter().find(|d| d.name.0 == name)
    }
}

/// The JSON Schema (draft 2020-12) of the project file, for editors.
#[must_use]
pub fn project_schema() -> serde_json::Value {
    schemars::generate::SchemaSettings::draft2020_12()
        .for_deserialize()
        .into_generator()
        .into_root_schema_for::<RawProject>()
        .to_value()
}

/// Settings of librdkafka, as the file spells them. Debug output shows their names only: values may be passwords.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct KafkaSettings(BTreeMap<String, String>);

impl KafkaSettings {
    fn new(entries: Vec<(At<String>, Setting)>) -> Self {
        Self(entries.into_iter().map(|(name, setting)| (name.value, setting.0)).collect())
    }

    /// The value of one setting.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All settings, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for KafkaSettings {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(settings: I) -> Self {
        Self(settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A topic as the file spells it, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Topic {
    place: Place,
    key: String,
    name: String,
}

#[cfg(test)]
mod tests;
