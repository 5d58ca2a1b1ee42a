//! JSON texts that give a key twice, made plain.

use std::collections::HashMap;

use super::scan::{MAX_DEPTH, Scanner, Syntax, unescape};
use super::value::another;

/// The record with only the last of each key in each of its objects.
pub(crate) fn last_of_each_key(text: &str) -> Result<String, Syntax> {
    let mut scanner = Scanner::new(text);
    let mut out = String::with_capacity(text.len());
    last_keys(&mut scanner, 0, &mut out)?;
    scanner.finish()?;
    Ok(out)
}

fn last_keys(scanner: &mut Scanner<'_>, depth: u32, out: &mut String) -> Result<(), Syntax> {
    let first = scanner.peek()?;
    let start = scanner.at();
    if first != b'{' && first != b'[' {
        scanner.skip(depth)?;
        out.push_str(scanner.since(start));
        return Ok(());
    }
    if depth >= MAX_DEPTH {
        return Err(scanner.error("values nested too deep"));
    }
    scanner.bump();
    out.push(char::from(first));
    if first == b'[' {
        if scanner.peek()? == b']' {
            scanner.bump();
        } else {
            loop {
                last_keys(scanner, depth + 1, out)?;
                if !another(scanner, b']')? {
                    break;
                }
                out.push(',');
            }
        }
        out.push(']');
        return Ok(());
    }
    let mut members = Vec::new();
    let mut last = HashMap::new();
    if scanner.peek()? == b'}' {
        scanner.bump();
    } else {
        loop {
            let key = scanner.key()?;
            let mut plain = String::new();
            unescape(key.raw, &mut plain)?;
            let mut member = String::new();
            last_keys(scanner, depth + 1, &mut member)?;
            last.insert(plain.clone(), members.len());
            members.push((plain, key.raw, member));
            if !another(scanner, b'}')? {
                break;
            }
        }
    }
    let kept = members.iter().enumerate().filter(|(i, (plain, ..))| last.get(plain) == Some(i));
    for (written, (_, (_, raw, member))) in kept.enumerate() {
        out.push_str(if written > 0 { ",\"" } else { "\"" });
        out.push_str(raw);
        out.push_str("\":");
        out.push_str(member);
    }
    out.push('}');
    Ok(())
}
