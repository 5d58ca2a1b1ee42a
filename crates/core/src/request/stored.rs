//! The stored form of a request, and the digest of its content. Described in `docs/formats/request.md`.

use sha2::{Digest as _, Sha256};

use super::json::push_string;
use super::parse::{self, Keys};
use super::{Delete, Op, Request, Scope};
use crate::error::{Error, Kind, Result};
use crate::time::push_time;

/// The version of the stored form that this program writes and the newest it reads.
pub const REQUEST_FORMAT: u32 = 1;

/// SHA-256 over a request's content: equal exactly for requests that say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestDigest(pub [u8; 32]);

impl Request {
    /// The request as one line of JSON: its keys in a fixed order, each value in one spelling.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.stored().0
    }

    /// A request from its stored form.
    ///
    /// # Errors
    /// `Unsupported` for a newer format, `Corrupt` for anything else that [`Self::to_json`] does not write.
    pub fn from_json(text: &str) -> Result<Self> {
        let corrupt = |reason: &str| {
            Error::new(Kind::Corrupt, format!("reading a stored request: {reason}"))
                .hint("the table of requests was changed by something else")
        };
        let mut keys = Keys::new(text).map_err(|refusal| corrupt(&refusal.reason))?;
        match keys.take("format").and_then(|format| format.get().parse::<u32>().ok()) {
            Some(REQUEST_FORMAT) => {}
            Some(newer) if newer > REQUEST_FORMAT => {
                let message = format!("reading a stored request of format {newer}; this program reads up to {REQUEST_FORMAT}");
                return Err(Error::new(Kind::Unsupported, message).hint("use the newer alluvium that wrote it"));
            }
            _ => return Err(corrupt("its format is missing or wrong")),
        }
        parse::request(keys).map_err(|refusal| corrupt(&refusal.reason))
    }

    /// The digest of the content: everything but the format's number counts.
    #[must_use]
    pub fn digest(&self) -> RequestDigest {
        self.stored().1
    }

    /// The request as one line of JSON, and its digest.
    #[must_use]
    pub fn stored(&self) -> (String, RequestDigest) {
        let mut to = Members(String::with_capacity(256));
        to.0.push_str("{\"format\":");
        to.0.push_str(&REQUEST_FORMAT.to_string());
        let content = to.0.len() + 1;
        self.push_content(&mut to);
        let digest = RequestDigest(Sha256::digest(&to.0.as_bytes()[content..]).into());
        to.0.push('}');
        (to.0, digest)
    }

    /// Adds the members of the stored form, but for the format.
    fn push_content(&self, to: &mut Members) {
        to.text("request_id", &self.id);
        to.text("org_id", &self.org);
        if let Some(dataset) = &self.dataset {
            to.text("dataset", &dataset.0);
        }
        to.time("execution_time", self.execution_time);
        match &self.op {
            Op::Convert { field, from, to: into } => {
                to.text("op", "convert");
                to.text("field", field);
                to.text("from", from.as_str());
                to.text("to", into.as_str());
            }
            Op::Update { field, id, set } => {
                to.text("op", "update");
                to.text("field", field);
                to.text("id", id.as_str());
                to.key("set");
                to.0.push('{');
                for (at, (column, value)) in set.iter().enumerate() {
                    if at > 0 {
                        to.0.push(',');
                    }
                    push_string(column, &mut to.0);
                    to.0.push(':');
                    to.0.push_str(value.as_str());
                }
                to.0.push('}');
            }
            Op::Delete(delete) => to.delete(delete),
        }
    }
}

/// Members of an object, as they are written after the first.
struct Members(String);

impl Members {
    fn key(&mut self, key: &str) {
        self.0.push(',');
        push_string(key, &mut self.0);
        self.0.push(':');
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        push_string(value, &mut self.0);
    }

    fn time(&mut self, key: &str, micros: i64) {
        self.key(key);
        self.0.push('"');
        push_time(&mut self.0, i128::from(micros) * 1000, false);
        self.0.push('"');
    }

    fn delete(&mut self, delete: &Delete) {
        self.text("op", "delete");
        match &delete.scope {
            Scope::Subject(subjects) => {
                self.text("scope", "subject");
                self.key("subjects");
                self.0.push('[');
                for (at, subject) in subjects.iter().enumerate() {
                    self.0.push_str(if at > 0 { ",{\"field\":" } else { "{\"field\":" });
                    push_string(&subject.field, &mut self.0);
                    self.0.push_str(",\"id\":");
                    push_string(subject.id.as_str(), &mut self.0);
                    self.0.push('}');
                }
                self.0.push(']');
            }
            Scope::Org => self.text("scope", "org"),
            Scope::Record(key) => {
                self.text("scope", "record");
                self.text("id", key.as_str());
            }
            Scope::Before(before) => {
                self.text("scope", "before");
                self.time("before", *before);
            }
        }
        if let Some(until) = delete.until {
            self.time("until", until);
        }
        self.key("privacy");
        self.0.push_str(if delete.privacy { "true" } else { "false" });
    }
}
