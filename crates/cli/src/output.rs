//! What is printed, and where.

use std::error::Error as StdError;
use std::io::{self, IsTerminal, Write};

use alluvium_core::{Error, Kind, Result};
use serde_json::Value;
use tracing_subscriber::EnvFilter;

/// Logs go to stderr, as `RUST_LOG` says; without it only warnings and errors of our own.
pub fn init_logging() {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("off,alluvium=warn,alluvium_lake=warn,alluvium_engine=warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(color()).with_target(false).init();
}

fn color() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Prints an error with what is below it, and the hint.
pub fn print_error(error: &Error) {
    let (mark, plain) = if color() { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("", "") };
    eprintln!("{mark}error{plain}: {}", error.message());
    let mut below = StdError::source(error);
    let mut last = error.message().to_owned();
    while let Some(e) = below {
        let text = e.to_string();
        let first_line = text.lines().next().unwrap_or_default();
        if !last.contains(first_line) {
            eprintln!("  caused by: {first_line}");
        }
        last = text;
        below = e.source();
    }
    if let Some(hint) = error.hint_text() {
        eprintln!("  hint: {hint}");
    }
}

/// Prints a line to stdout. A reader that has closed its end is no error of ours, but an end of the work.
pub fn line(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(|e| Error::new(Kind::Unavailable, "writing to stdout").source(e)),
    }
}

/// Prints one JSON object.
pub fn json(value: &Value) -> Result<()> {
    line(&value.to_string())
}

/// Prints lines of cells as columns two spaces apart; those at `right` are aligned to the right.
pub fn columns<const N: usize>(lines: &[[String; N]], right: &[usize]) -> Result<()> {
    let width = |at: usize| lines.iter().map(|l| l[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for cells in lines {
        let mut text = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let space = " ".repeat(widths[at].saturating_sub(cell.chars().count()));
            let (before, after) = if right.contains(&at) { (space.as_str(), "") } else { ("", space.as_str()) };
            text.push_str(&format!("{}{before}{cell}{after}", if at == 0 { "" } else { "  " }));
        }
        line(text.trim_end())?;
    }
    Ok(())
}

/// A number with thousands set apart.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the largest unit that leaves a number of at least one.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_read_well() {
        assert_eq!([number(0), number(999), number(1000), number(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([bytes(0), bytes(1023), bytes(1024), bytes(5 << 20)], ["0 B", "1023 B", "1.0 KiB", "5.0 MiB"]);
    }
}
