//! The project file as a tree of nodes with their places: what stands between YAML's events and our declarations.
//!
//! `${NAME}` is replaced here, in values and after YAML was parsed, so that what the environment holds cannot change the
//! file's structure. Plain scalars keep their spelling: `0031` is a number only where one is asked for.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span};

use super::problem::{Place, Problem};

const MAX_NODES: usize = 100_000;

/// A value in the file.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub place: Place,
    pub body: Body,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    /// Keys and values in order; a key is a scalar, and text however it is spelled.
    Mapping(Vec<(Node, Node)>),
}

impl Node {
    /// A scalar's text; empty for anything else.
    pub(super) fn text(&self) -> &str {
        match &self.body {
            Body::Scalar { text, .. } => text,
            _ => "",
        }
    }
}

/// Reads `text` into a tree. Duplicate keys and missing variables are added to `problems`, the keys of values that hold such
/// variables to `broken`; what is not one YAML document is the error.
pub(super) fn read(
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
    problems: &mut Vec<Problem>,
    broken: &mut BTreeSet<String>,
) -> Result<Node, Problem> {
    let mut reader = Reader {
        lines: text.lines().collect(),
        parser: Parser::new_from_str(text),
        env,
        problems,
        broken,
        anchors: BTreeMap::new(),
        nodes: 0,
    };
    loop {
        match reader.next()? {
            (Event::DocumentStart(..), _) => break,
            (Event::StreamEnd, _) => {
                return Err(Problem::new(Place::START, "", "the file is empty", "alluvium init writes one to begin with"));
            }
            _ => {}
        }
    }
    let (event, span) = reader.next()?;
    let root = reader.node(event, span, "")?;
    loop {
        match reader.next()? {
            (Event::DocumentStart(..), span) => {
                return Err(Problem::new(place(span), "", "a second document begins", "a project file is one document"));
            }
            (Event::StreamEnd, _) => return Ok(root),
            _ => {}
        }
    }
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    parser: Parser<'a, serde_saphyr::granit_parser::StrInput<'a>>,
    env: &'a dyn Fn(&str) -> Option<String>,
    problems: &'a mut Vec<Problem>,
    broken: &'a mut BTreeSet<String>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Problem> {
        let Some(event) = self.parser.next_event() else {
            return Err(Problem::new(Place::START, "", "the file ends too early", ""));
        };
        event.map_err(|error| {
            let mark = error.marker();
            let place = Place { line: number(mark.line()), column: number(mark.col() + 1), from_environment: false };
            let line = self.lines.get(mark.line().saturating_sub(1)).copied().unwrap_or_default();
            let hint = if line.contains("${") {
                "put values that hold ${..} in quotes"
            } else if line.trim_start_matches(' ').starts_with('\t') {
                "indent with spaces, not with tabs"
            } else {
                "put values that hold commas, colons or braces in quotes, and indent the keys of a mapping alike"
            };
            Problem::new(place, "", format!("this is not YAML: {}", error.info()), hint)
        })
    }

    fn node(&mut self, event: Event<'a>, span: Span, path: &str) -> Result<Node, Problem> {
        let place = place(span);
        self.count(1, place)?;
        let (anchor, node) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text_tag = tag.as_ref().is_some_and(|t| t.is_yaml_core_schema_tag("str"));
                if tag.is_some() && !text_tag {
                    return Err(Problem::new(place, path, "tags have no meaning here", "leave the tag out"));
                }
                let plain = style == ScalarStyle::Plain && !text_tag;
                (anchor, self.scalar(&text, plain, place, path))
            }
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => items.push(self.node(event, span, &format!("{path}[{}]", items.len()))?),
                    }
                }
                (anchor, Node { place, body: Body::List(items) })
            }
            Event::MappingStart(_, anchor, _) => (anchor, Node { place, body: Body::Mapping(self.mapping(path)?) }),
            Event::Alias(id) => {
                let node = self.anchors.get(&id).cloned();
                let node = node.ok_or_else(|| Problem::new(place, path, "an alias stands inside of what it names", ""))?;
                self.count(size(&node), place)?;
                return Ok(node);
            }
            _ => return Err(Problem::new(place, path, "a value is missing", "")),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn mapping(&mut self, path: &str) -> Result<Vec<(Node, Node)>, Problem> {
        let mut entries: Vec<(Node, Node)> = Vec::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(entries),
                (Event::Scalar(text, ..), span) => {
                    Node { place: place(span), body: Body::Scalar { text: text.into_owned(), plain: false } }
                }
                (_, span) => return Err(Problem::new(place(span), path, "a key must be text", "put ${..} in quotes")),
            };
            let inner = join(path, key.text());
            let (event, span) = self.next()?;
            let node = self.node(event, span, &inner)?;
            if key.text() == "<<" {
                let hint = "write the keys out, or give the whole value an anchor and an alias";
                self.problems.push(Problem::new(key.place, path, "merge keys (<<) are not supported", hint));
            } else if let Some((first, _)) = entries.iter().find(|(k, _)| k.text() == key.text()) {
                let message = format!("the key {:?} appears twice", key.text());
                self.problems.push(Problem::new(key.place, path, message, format!("the first is on line {}", first.place.line)));
            } else {
                entries.push((key, node));
            }
        }
    }

    fn scalar(&mut self, text: &str, plain: bool, mut place: Place, path: &str) -> Node {
        let text = match substitute(text, self.env) {
            Ok(None) => text.to_owned(),
            Ok(Some(replaced)) => {
                place.from_environment = true;
                replaced
            }
            Err((message, hint)) => {
                self.problems.push(Problem::new(place, path, message, hint));
                self.broken.insert(path.to_owned());
                String::new()
            }
        };
        Node { place, body: Body::Scalar { text, plain } }
    }

    fn count(&mut self, nodes: usize, place: Place) -> Result<(), Problem> {
        self.nodes += nodes;
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        Err(Problem::new(place, "", format!("the file holds more than {MAX_NODES} values, aliases written out"), ""))
    }
}

/// `text` with every `${NAME}` replaced, or `None` where there is none. `$${` stands for `${` itself.
fn substitute(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, (String, String)> {
    if !text.contains("${") {
        return Ok(None);
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let (name, after) = rest[at + 2..].split_once('}').unwrap_or_default();
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || !name.bytes().all(good) || name.starts_with(|c: char| c.is_ascii_digit()) {
            let hint = "write ${NAME}, with letters, digits and _ in the name; $${ stands for ${ itself";
            return Err(("a ${ without the name of an environment variable and }".to_owned(), hint.to_owned()));
        }
        let value = env(name).ok_or_else(|| {
            let message = format!("the environment variable {name} is not set");
            (message, format!("set {name}, or write the value here if it is no secret"))
        })?;
        out.push_str(&value);
        rest = after;
    }
    out.push_str(rest);
    Ok(Some(out))
}

fn size(node: &Node) -> usize {
    match &node.body {
        Body::Scalar { .. } => 1,
        Body::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Body::Mapping(entries) => 1 + entries.iter().map(|(_, n)| size(n)).sum::<usize>(),
    }
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn place(span: Span) -> Place {
    Place { line: number(span.start.line()), column: number(span.start.col() + 1), from_environment: false }
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        (name == "HOST").then(|| "h: {1}".to_owned())
    }

    #[test]
    fn variables_are_replaced_and_escaped_ones_stay() {
        assert_eq!(substitute("plain $HOME", &env), Ok(None));
        assert_eq!(substitute("${HOST}", &env), Ok(Some("h: {1}".into())));
        assert_eq!(substitute("a${HOST}b${HOST}", &env), Ok(Some("ah: {1}bh: {1}".into())));
        assert_eq!(substitute("$${HOST}", &env), Ok(Some("${HOST}".into())));
    }

    #[test]
    fn unset_and_malformed_variables_are_refused() {
        let unset = substitute("${NOPE}", &env).map_err(|(message, _)| message);
        assert_eq!(unset, Err("the environment variable NOPE is not set".to_owned()));
        for text in ["${", "${}", "${1A}", "${HOST:-x}", "a ${HOST"] {
            assert!(substitute(text, &env).is_err(), "{text}");
        }
    }
}
