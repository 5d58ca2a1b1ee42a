//! What a record holds and no declared column takes: the text of `_rescued`.
//!
//! Keys of the record, and of objects that columns are dug out of, keep their nesting: `{"meta":{"other":1}}`. A key that a
//! declared *struct* does not know has no object of its own left to stand in; it is kept under its dotted path:
//! `{"user.extra":1}`, in an array with the item's number, in a map with the entry's key.

use std::fmt::Write as _;

/// The undeclared fields of one record, as JSON text with the values as they are written.
#[derive(Debug, Default)]
pub(crate) struct Rescue {
    /// Members of the outermost object that keep their nesting, each followed by a comma; open objects are not closed yet.
    members: String,
    /// How many of the objects on the way are open in `members`.
    open: usize,
    /// Members under dotted paths, each followed by a comma.
    dotted: String,
}

/// A step to where a nested value stands; the steps before it are found through `parent`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'p> {
    pub parent: Option<&'p Path<'p>>,
    pub step: Step<'p>,
}

/// One step of a [`Path`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'p> {
    /// Into an object or map, by the inside of a JSON string.
    Key(&'p str),
    /// Into an object or map, by the key itself.
    Name(&'p str),
    /// Into an array.
    Item(usize),
    /// Into a column's value, by the column's keys.
    Column(&'p [String]),
}

impl Rescue {
    pub(crate) fn clear(&mut self) {
        self.members.clear();
        self.open = 0;
        self.dotted.clear();
    }

    /// Keeps a member of the object reached by `way`, keys as written between their quotes, outermost first.
    pub(crate) fn member(&mut self, way: &[&str], raw_key: &str, raw_value: &str) {
        for key in &way[self.open..] {
            self.key(key);
            self.members.push('{');
        }
        self.open = way.len();
        self.key(raw_key);
        self.members.push_str(raw_value);
        self.members.push(',');
    }

    fn key(&mut self, raw_key: &str) {
        self.members.push('"');
        self.members.push_str(raw_key);
        self.members.push_str("\":");
    }

    /// The object that `depth` keys led to has ended.
    #[inline]
    pub(crate) fn leave(&mut self, depth: usize) {
        if self.open == depth && depth > 0 {
            self.members.pop();
            self.members.push_str("},");
            self.open -= 1;
        }
    }

    /// Keeps a member of a declared struct that stands at `path`.
    pub(crate) fn dotted(&mut self, path: &Path<'_>, raw_key: &str, raw_value: &str) {
        self.dotted.push('"');
        push_path(&mut self.dotted, path);
        self.dotted.push_str(raw_key);
        self.dotted.push_str("\":");
        self.dotted.push_str(raw_value);
        self.dotted.push(',');
    }

    /// Keeps a member whose value is text, not JSON.
    pub(crate) fn text_member(&mut self, key: &str, value: &str) {
        push_json_string(&mut self.members, key);
        self.members.push(':');
        push_json_string(&mut self.members, value);
        self.members.push(',');
    }

    /// Whether nothing was kept.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.members.is_empty() && self.dotted.is_empty()
    }

    /// The whole object's parts, to be written one after another.
    pub(crate) fn parts(&self) -> [&str; 4] {
        let dotted = self.dotted.strip_suffix(',').unwrap_or(&self.dotted);
        let members = if dotted.is_empty() { self.members.strip_suffix(',').unwrap_or(&self.members) } else { &self.members };
        ["{", members, dotted, "}"]
    }
}

fn push_path(text: &mut String, path: &Path<'_>) {
    if let Some(parent) = path.parent {
        push_path(text, parent);
    }
    match path.step {
        Step::Key(raw) => text.push_str(raw),
        Step::Name(name) => push_json_text(text, name),
        Step::Item(at) => write!(text, "{at}").unwrap_or_default(),
        Step::Column(keys) => {
            for (i, key) in keys.iter().enumerate() {
                if i > 0 {
                    text.push('.');
                }
                push_json_text(text, key);
            }
        }
    }
    text.push('.');
}

/// Appends `value` as a JSON string.
pub(crate) fn push_json_string(to: &mut String, value: &str) {
    to.push('"');
    push_json_text(to, value);
    to.push('"');
}

/// Appends `value` as the inside of a JSON string.
pub(crate) fn push_json_text(to: &mut String, value: &str) {
    let mut rest = value;
    while let Some(at) = rest.find(|c: char| c < ' ' || c == '"' || c == '\\') {
        to.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => to.push_str("\\\""),
            b'\\' => to.push_str("\\\\"),
            control => write!(to, "\\u{control:04x}").unwrap_or_default(),
        }
        rest = &rest[at + 1..];
    }
    to.push_str(rest);
}
