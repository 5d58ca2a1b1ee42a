//! One process measured from its start to its end: time, peak memory, what it printed.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a child's peak memory and CPU time are read. The kernel keeps both; only the last interval can be missed.
const POLL: Duration = Duration::from_millis(5);

/// What one run took.
#[derive(Debug, Clone)]
pub struct Measured {
    /// From before the start to after the end.
    pub wall: Duration,
    /// Peak resident memory of the process (not of processes it may start), in bytes.
    pub peak_bytes: u64,
    /// Time on all cores together, in user and kernel mode. Less disturbed by other work on the machine than `wall` is.
    pub cpu: Duration,
    /// Its standard output.
    pub stdout: String,
}

/// Runs `command` to its end; an error with its standard error when it fails.
pub fn run(mut command: Command, what: &str) -> io::Result<Measured> {
    // Dirty pages of the run before must not be written back at this one's expense.
    let _ = Command::new("sync").status();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let child = command.spawn().map_err(|e| io::Error::other(format!("cannot start {what}: {e}")))?;
    let proc = PathBuf::from(format!("/proc/{}", child.id()));
    let ended = AtomicBool::new(false);
    let (output, wall, (peak_bytes, cpu)) = std::thread::scope(|scope| {
        let poll = scope.spawn(|| {
            let (mut peak, mut cpu) = (0, Duration::ZERO);
            while !ended.load(Ordering::Acquire) {
                peak = peak.max(fs::read_to_string(proc.join("status")).map_or(0, |text| peak_in(&text)));
                cpu = cpu.max(fs::read_to_string(proc.join("stat")).map_or(Duration::ZERO, |text| cpu_in(&text)));
                std::thread::sleep(POLL);
            }
            (peak, cpu)
        });
        let output = child.wait_with_output();
        let wall = start.elapsed();
        ended.store(true, Ordering::Release);
        (output, wall, poll.join().unwrap_or_default())
    });
    let output = output?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{what} failed ({}):\n{stderr}", output.status)));
    }
    Ok(Measured { wall, peak_bytes, cpu, stdout: String::from_utf8_lossy(&output.stdout).into_owned() })
}

/// The peak resident memory in the text of a `/proc/<pid>/status`; 0 when there is none (any more).
fn peak_in(status: &str) -> u64 {
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// User and system time in the text of a `/proc/<pid>/stat`: fields 14 and 15, in hundredths of a second. The second field
/// is a name in parentheses that may hold anything.
fn cpu_in(stat: &str) -> Duration {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    Duration::from_millis(ticks * 10)
}

/// A non-negative integer field of a flat JSON object, taken from its text.
pub fn json_number(object: &str, field: &str) -> Option<u64> {
    let (_, rest) = object.split_once(&format!("\"{field}\":"))?;
    let rest = rest.trim_start();
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

/// Data files of tables under `dir` and their bytes: all Parquet files that are not part of a log.
pub fn data_files(dir: &Path) -> io::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                if entry.file_name() != "_delta_log" {
                    open.push(entry.path());
                }
            } else if entry.path().extension().is_some_and(|e| e == "parquet") {
                files += 1;
                bytes += entry.metadata()?.len();
            }
        }
    }
    Ok((files, bytes))
}

/// The least anybody can take on this machine: reading `input` and throwing it away, then writing `out_bytes`.
pub fn limit(input: &[PathBuf], out_bytes: u64, scratch: &Path) -> io::Result<(Duration, Duration)> {
    let mut buffer = vec![0_u8; 1 << 20];
    let start = Instant::now();
    for file in input {
        let mut file = File::open(file)?;
        while file.read(&mut buffer)? > 0 {}
    }
    let read = start.elapsed();
    let start = Instant::now();
    let mut out = File::create(scratch)?;
    let mut left = out_bytes;
    while left > 0 {
        let some = left.min(buffer.len() as u64) as usize;
        out.write_all(&buffer[..some])?;
        left -= some as u64;
    }
    drop(out);
    let written = start.elapsed();
    fs::remove_file(scratch)?;
    Ok((read, written))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn peak_is_read_from_a_status_file() {
        assert_eq!(peak_in("Name:\tcat\nVmHWM:\t    1824 kB\nVmRSS:\t 900 kB\n"), 1824 * 1024);
        assert_eq!(peak_in("Name:\tzombie\n"), 0);
    }

    #[test]
    fn cpu_time_is_read_behind_a_name_with_parentheses() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 31 0 0 20 0 4 0 9 1000 10";
        assert_eq!(cpu_in(stat), Duration::from_millis(2810));
        assert_eq!(cpu_in(""), Duration::ZERO);
    }

    #[test]
    fn number_is_found_in_an_object() {
        let object = "{\"summary\":true, \"inserted\": 12,\"dead_letters\":0}";
        assert_eq!(json_number(object, "inserted"), Some(12));
        assert_eq!(json_number(object, "dead_letters"), Some(0));
        assert_eq!(json_number(object, "updated"), None);
    }

    #[test]
    fn failing_process_is_an_error_with_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2; exit 3"]);
        let error = run(command, "sh").unwrap_err().to_string();
        assert!(error.contains("why") && error.contains('3'), "{error}");
    }

    #[test]
    fn output_and_memory_of_a_process_are_seen() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 0.1; echo done"]);
        let measured = run(command, "sh").unwrap();
        assert_eq!(measured.stdout, "done\n");
        assert!(measured.peak_bytes > 0 && measured.wall >= Duration::from_millis(100));
    }
}
