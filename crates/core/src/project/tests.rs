//! Project files, good and bad.

#![allow(clippy::unwrap_used)]

mod bad;
mod good;
mod schema;

use super::Project;
use super::problem::ProjectErrors;

fn env(name: &str) -> Option<String> {
    match name {
        "KAFKA_PASSWORD" => Some("hunter2: {x}, \"y\"".to_owned()),
        "BAD" => Some("s3cr3t!".to_owned()),
        "ROWS" => Some("500".to_owned()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<Project, ProjectErrors> {
    Project::parse(text, &env)
}

/// A small project that is right; tests change parts of it.
const SMALL: &str = "\
project: p
storage: ./lake
datasets:
  edit:
    source: { files: { path: ./in, format: json } }
    org: org_id
    event_time: at
    fields:
      org_id: string
      at: timestamp
      name: string
";
