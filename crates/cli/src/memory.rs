//! How much memory an operation may use.

use std::fs;

use alluvium_core::{Error, Kind, Result, parse_size};

/// With less, nothing works well.
const LEAST_BYTES: u64 = 64 << 20;
/// What is assumed where the machine does not say how much it has.
const UNKNOWN_MACHINE_BYTES: u64 = 4 << 30;

/// The budget that was asked for, or a quarter of the machine's (or the container's) memory.
pub fn budget(asked: Option<&str>) -> Result<u64> {
    let Some(asked) = asked else { return Ok((machine_bytes() / 4).max(LEAST_BYTES)) };
    let bytes = parse_size(asked)
        .map_err(|e| Error::new(Kind::Invalid, format!("--memory: {e}")).hint("for example: --memory 512MiB"))?;
    if bytes < LEAST_BYTES {
        return Err(Error::new(Kind::Invalid, format!("--memory: {asked} is too little")).hint("give it at least 64MiB"));
    }
    Ok(bytes)
}

fn machine_bytes() -> u64 {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
    });
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse::<u64>().ok());
    match (total, container) {
        (Some(total), Some(container)) => total.min(container),
        (Some(bytes), None) | (None, Some(bytes)) => bytes,
        (None, None) => UNKNOWN_MACHINE_BYTES,
    }
}
