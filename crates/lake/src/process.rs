//! Which process of which machine, so that a dead one on this machine is known to be dead at once.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A process, told from every other of the same start of the same machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The machine's start.
    boot: String,
    /// The namespace in which `pid` counts: containers have their own.
    pid_namespace: String,
    pid: u32,
    /// When the process started, in the kernel's ticks since the machine's start: numbers of processes are used again.
    started: u64,
}

impl ProcessId {
    /// This process; `None` where the system does not tell.
    pub(crate) fn own() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { boot: boot()?, pid_namespace: pid_namespace()?, pid, started: started(pid)? })
    }

    /// Whether the process lives; `None` if it ran on another machine or out of our sight.
    pub(crate) fn is_alive(&self) -> Option<bool> {
        let here = boot().is_some_and(|b| b == self.boot) && pid_namespace().is_some_and(|n| n == self.pid_namespace);
        here.then(|| started(self.pid) == Some(self.started))
    }
}

fn boot() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

fn pid_namespace() -> Option<String> {
    fs::read_link("/proc/self/ns/pid").ok().map(|link| link.to_string_lossy().into_owned())
}

/// The 22nd field of `/proc/<pid>/stat`; the second, a name in parentheses, may hold anything. A zombie counts as ended.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_one_that_was_waited_for_is_dead() {
        let own = ProcessId::own().expect("Linux tells");
        assert_eq!(own.is_alive(), Some(true));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let other = ProcessId { pid: child.id(), started: started(child.id()).expect("it runs"), ..own.clone() };
        assert_eq!(other.is_alive(), Some(true));
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
        assert_eq!(other.is_alive(), Some(false));
        assert_eq!(ProcessId { boot: "another machine".to_owned(), ..other }.is_alive(), None);
    }
}
