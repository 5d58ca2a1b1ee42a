//! What is wrong with a project file, and where.

use std::fmt;

/// A place in the project file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// Whether (a part of) the value was taken from the environment, and so is not shown.
    pub from_environment: bool,
}

impl Place {
    pub(super) const START: Self = Self { line: 1, column: 1, from_environment: false };
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The key, from the outside in, as in `datasets.engagement.batch`; empty for the file as a whole.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl Problem {
    pub(super) fn new(place: Place, key: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        let message =
            if place.from_environment { "the value taken from the environment is not right".to_owned() } else { message.into() };
        Self { place, key: key.to_owned(), message, hint: Some(hint).filter(|h| !h.is_empty()) }
    }

    fn write(&self, f: &mut dyn fmt::Write, file_name: &str) -> fmt::Result {
        write!(f, "{file_name}:{}:{}: ", self.place.line, self.place.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a project file, in its order; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectErrors(Vec<Problem>);

impl ProjectErrors {
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|p| p.place);
        problems.dedup();
        Self(problems)
    }

    /// The problems, in the order of the file.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }

    /// One block for each problem: `<file>:<line>:<column>: <key>: <message>`, and the hint on a line of its own.
    #[must_use]
    pub fn render(&self, file_name: &str) -> String {
        let mut text = String::new();
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                text.push('\n');
            }
            // Writing to a string cannot fail.
            let _ = problem.write(&mut text, file_name);
        }
        text
    }
}

impl fmt::Display for ProjectErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render("alluvium.yaml"))
    }
}

impl std::error::Error for ProjectErrors {}

/// A key that is accepted and has no effect yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where it stands.
    pub place: Place,
    /// The key, from the outside in.
    pub key: String,
    /// What it does not do.
    pub message: String,
}

impl Warning {
    /// `<file>:<line>:<column>: <key>: <message>`.
    #[must_use]
    pub fn render(&self, file_name: &str) -> String {
        format!("{file_name}:{}:{}: {}: {}", self.place.line, self.place.column, self.key, self.message)
    }
}

/// A hint for a word that is none of `known`: the nearest of them, or all.
pub(super) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, what: &str) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let near = known.iter().map(|k| (edits(&plain(word), &plain(k)), k)).min_by_key(|(distance, _)| *distance);
    match near {
        Some((distance, k)) if distance <= (word.chars().count().max(3) / 3).min(3) => format!("did you mean {k:?}?"),
        _ if known.is_empty() => String::new(),
        _ => format!("{what} {}", known.join(", ")),
    }
}

/// The least number of insertions, deletions, changes and swaps of neighbours that make `b` of `a` (optimal string alignment).
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_counts_insertions_deletions_changes_and_swaps() {
        for (a, b, distance) in
            [("", "abc", 3), ("abc", "abc", 0), ("datsets", "datasets", 1), ("form", "from", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!((edits(a, b), edits(b, a)), (distance, distance), "{a} {b}");
        }
    }

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["datasets", "storage", "event_time"];
        for (word, hint) in [
            ("dataset", "did you mean \"datasets\"?"),
            ("Storage", "did you mean \"storage\"?"),
            ("event-time", "did you mean \"event_time\"?"),
            ("tables", "the keys here are datasets, storage, event_time"),
        ] {
            assert_eq!(suggest(word, known, "the keys here are"), hint);
        }
    }
}
