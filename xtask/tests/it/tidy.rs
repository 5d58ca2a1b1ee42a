//! The house style, kept by a test: what a linter does not look at, over every file of the workspace.
//!
//! A rule is a pure function from a file's text to what is wrong with it; each has a test of its own that shows it
//! catching something. The words that rules look for are put together here, so that this file passes its own rules.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::root;

const MAX_LINES: usize = 600;
const README_COMMANDS: [&str; 2] = ["cargo run --release -- quickstart", "cargo xtask ci"];
/// The pure crate: these would bring I/O, async or Arrow into it.
const NOT_IN_CORE: [&str; 10] =
    ["arrow", "async-trait", "datafusion", "deltalake", "futures", "object_store", "parquet", "rayon", "rustix", "tokio"];

/// Every file under `dir` with one of `extensions`, but for build output and hidden directories.
fn files(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                if !name.starts_with('.') && name != "target" {
                    open.push(path);
                }
            } else if extensions.is_empty() || extensions.iter().any(|wanted| path.extension().is_some_and(|e| e == *wanted)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Applies `rule` to every file of `paths` and fails with all that it found.
fn check(paths: &[PathBuf], rule: impl Fn(&str) -> Vec<String>) {
    assert!(!paths.is_empty(), "no file to look at: the rule would hold by itself");
    let root = root();
    let mut wrong = Vec::new();
    for path in paths {
        let text = fs::read_to_string(path).unwrap();
        let shown = path.strip_prefix(&root).unwrap_or(path).display();
        wrong.extend(rule(&text).into_iter().map(|fault| format!("{shown}: {fault}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

// Rules.

fn lacks_module_doc(text: &str) -> Vec<String> {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!["));
    match first {
        Some(line) if line.trim_start_matches("//!").len() < line.len() => Vec::new(),
        _ => vec!["no module doc (//!) before the first item".to_owned()],
    }
}

fn unfinished_words(text: &str) -> Vec<String> {
    let words = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("db", "g!("),
        concat!("#[ig", "nore"),
        concat!("TO", "DO"),
    ];
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in words.iter().filter(|word| line.contains(**word)) {
            wrong.push(format!("line {}: {word}", number + 1));
        }
    }
    wrong
}

fn too_long(text: &str) -> Vec<String> {
    let lines = text.lines().count();
    if lines > MAX_LINES { vec![format!("{lines} lines: look for the seam (at most {MAX_LINES})")] } else { Vec::new() }
}

/// `matches!(..);` as a statement asserts nothing. One that is the value of a block, an argument or a binding is fine.
fn bare_matches(text: &str) -> Vec<String> {
    let word = concat!("matches", "!(");
    let lines: Vec<&str> = text.lines().collect();
    let mut wrong = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if !line.trim_start().starts_with(word) || !begins_statement(&lines[..index]) {
            continue;
        }
        let mut depth = 0_i64;
        let mut rest = lines[index..].iter().flat_map(|line| line.chars().chain(['\n']));
        let closed = rest.find(|c| {
            depth += i64::from(*c == '(') - i64::from(*c == ')');
            depth == 0 && *c == ')'
        });
        if closed.is_some() && rest.next() == Some(';') {
            wrong.push(format!("line {}: a bare {word}..) statement asserts nothing", index + 1));
        }
    }
    wrong
}

/// Whether what comes after `before` is the start of a statement.
fn begins_statement(before: &[&str]) -> bool {
    let last = before.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty() && !line.starts_with("//"));
    last.is_none_or(|line| line.ends_with(['{', '}', ';', ']']))
}

/// The lines of every fenced block of `language`.
fn blocks(text: &str, language: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut inside: Option<bool> = None;
    for line in text.lines() {
        match (line.trim().strip_prefix("```"), inside) {
            (Some(tag), None) => {
                inside = Some(tag.trim() == language);
                if inside == Some(true) {
                    found.push(Vec::new());
                }
            }
            (Some(_), Some(_)) => inside = None,
            (None, Some(true)) => found.last_mut().unwrap().push(line.to_owned()),
            (None, _) => {}
        }
    }
    found
}

fn readme_commands(text: &str) -> Vec<String> {
    match blocks(text, "sh").as_slice() {
        [only] if only.iter().eq(README_COMMANDS.iter()) => Vec::new(),
        other => vec![format!("wanted one sh block with the lines {README_COMMANDS:?}, found {other:?}")],
    }
}

/// Targets of `[text](target)`, without anchors and addresses outside.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        let target = rest.split([')', ' ']).next().unwrap_or_default();
        let path = target.split('#').next().unwrap_or_default();
        if !path.is_empty() && !path.contains(':') {
            found.push(path.to_owned());
        }
    }
    found
}

/// `base/target` with `.` and `..` taken out, by text alone.
fn resolved(base: &Path, target: &str) -> PathBuf {
    let mut path = base.to_path_buf();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// Dependencies (not those of tests) named in a `Cargo.toml` that `core` must not have.
fn impure_dependencies(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut section = "";
    for line in text.lines() {
        if line.starts_with('[') {
            section = line.trim();
        } else if section == "[dependencies]" {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if NOT_IN_CORE.iter().any(|no| name == *no || name.starts_with(&format!("{no}-"))) {
                wrong.push(format!("{name}: core knows no I/O, async or Arrow"));
            }
        }
    }
    wrong
}

// The workspace against the rules.

fn sources() -> Vec<PathBuf> {
    let mut all = files(&root().join("crates"), &["rs"]);
    all.extend(files(&root().join("xtask"), &["rs"]));
    all
}

fn documents() -> Vec<PathBuf> {
    let mut all = files(&root().join("docs"), &["md"]);
    all.extend(["README.md", "CHANGELOG.md"].map(|name| root().join(name)));
    all
}

#[test]
fn every_source_file_has_a_module_doc() {
    check(&sources(), lacks_module_doc);
}

#[test]
fn no_source_file_is_unfinished() {
    check(&sources(), unfinished_words);
}

#[test]
fn no_source_file_is_too_long() {
    check(&sources(), too_long);
}

#[test]
fn no_statement_matches_without_asserting() {
    check(&sources(), bare_matches);
}

#[test]
fn readme_names_exactly_the_two_commands() {
    check(&[root().join("README.md")], readme_commands);
}

#[test]
fn core_depends_on_nothing_that_does_io() {
    check(&[root().join("crates/core/Cargo.toml")], impure_dependencies);
}

#[test]
fn every_link_between_documents_resolves() {
    let mut broken = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for target in links(&text) {
            if !resolved(path.parent().unwrap(), &target).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links to nothing:\n{}", broken.join("\n"));
}

#[test]
fn every_stored_format_is_linked() {
    let docs = root().join("docs");
    let linked: Vec<PathBuf> = ["ARCHITECTURE.md", "formats/README.md"]
        .iter()
        .map(|name| docs.join(name))
        .filter(|path| path.exists())
        .flat_map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            links(&text).into_iter().map(move |target| resolved(path.parent().unwrap(), &target)).collect::<Vec<_>>()
        })
        .collect();
    let formats = docs.join("formats");
    let all = if formats.exists() { files(&formats, &[]) } else { Vec::new() };
    let alone: Vec<_> = all.iter().filter(|path| !path.ends_with("formats/README.md") && !linked.contains(path)).collect();
    assert!(alone.is_empty(), "not linked from docs/ARCHITECTURE.md or docs/formats/README.md: {alone:?}");
}

// The rules against texts that break them.

#[test]
fn file_without_module_doc_is_found() {
    assert!(lacks_module_doc("\n#![allow(x)]\n//! Doc.\nfn a() {}").is_empty());
    assert_eq!(lacks_module_doc("fn a() {}\n//! late").len(), 1);
    assert_eq!(lacks_module_doc("").len(), 1);
}

#[test]
fn unfinished_words_are_found_with_their_line() {
    let text = format!("fn a() {{\n    {}\n}}\n", concat!("to", "do!()"));
    assert_eq!(unfinished_words(&text), [format!("line 2: {}", concat!("to", "do!("))]);
    assert!(unfinished_words("fn undo() {}").is_empty());
}

#[test]
fn file_of_601_lines_is_too_long() {
    assert!(too_long(&"x\n".repeat(600)).is_empty());
    assert_eq!(too_long(&"x\n".repeat(601)).len(), 1);
}

#[test]
fn bare_matches_is_found_and_used_ones_are_not() {
    let word = concat!("matches", "!");
    assert_eq!(bare_matches(&format!("fn a() {{\n    {word}(x, Some(_));\n}}")).len(), 1);
    assert_eq!(bare_matches(&format!("    let a = 1;\n    {word}(\n        x,\n        Some((1, _))\n    );")).len(), 1);
    assert!(bare_matches(&format!("fn a() -> bool {{\n    {word}(x, Some(_))\n}}")).is_empty());
    assert!(bare_matches(&format!("    assert!(\n        {word}(x, Some(_))\n    );")).is_empty());
    assert!(bare_matches(&format!("    let is =\n        {word}(x, Some(_));")).is_empty());
}

#[test]
fn readme_with_another_command_is_found() {
    let fence = "```";
    let right = format!("{fence}sh\n{}\n{}\n{fence}\n{fence}yaml\na: 1\n{fence}\n", README_COMMANDS[0], README_COMMANDS[1]);
    assert!(readme_commands(&right).is_empty());
    assert_eq!(readme_commands(&format!("{right}{fence}sh\nls\n{fence}\n")).len(), 1);
    assert_eq!(readme_commands("no block").len(), 1);
}

#[test]
fn links_leave_out_anchors_and_addresses() {
    let text = "[a](b.md) [c](d/e.md#part) [f](#here) [g](https://example.com/x)";
    assert_eq!(links(text), ["b.md", "d/e.md"]);
    assert_eq!(resolved(Path::new("/docs/guide"), "../formats/./a.md"), Path::new("/docs/formats/a.md"));
}

#[test]
fn impure_dependency_of_core_is_found_and_one_of_its_tests_is_not() {
    let text = "[dependencies]\nserde.workspace = true\narrow-schema = \"59\"\n[dev-dependencies]\ntokio.workspace = true\n";
    assert_eq!(impure_dependencies(text).len(), 1);
}
