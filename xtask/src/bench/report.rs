//! The benchmark's table: medians, and ratios to the peer.

use std::fmt::Write as _;
use std::time::Duration;

use super::generate::Shape;
use super::measure::Measured;

/// The runs of one contender.
pub struct Line {
    name: String,
    walls: Vec<Duration>,
    cpus: Vec<Duration>,
    peaks: Vec<u64>,
    /// Data files and their bytes, of the last run.
    out: (u64, u64),
}

impl Line {
    pub fn new(name: String) -> Self {
        Self { name, walls: Vec::new(), cpus: Vec::new(), peaks: Vec::new(), out: (0, 0) }
    }

    pub fn add(&mut self, measured: &Measured, out: (u64, u64)) {
        self.walls.push(measured.wall);
        self.cpus.push(measured.cpu);
        self.peaks.push(measured.peak_bytes);
        self.out = out;
    }

    /// Bytes of the data files it wrote.
    pub fn bytes(&self) -> u64 {
        self.out.1
    }

    /// The median of its times.
    pub fn wall(&self) -> Duration {
        median(&self.walls)
    }

    fn seconds(&self) -> f64 {
        self.wall().as_secs_f64()
    }

    fn peak_mib(&self) -> f64 {
        median(&self.peaks) as f64 / f64::from(1 << 20)
    }
}

/// The middle value, the lower of two; the default of none.
pub fn median<T: Copy + Ord + Default>(values: &[T]) -> T {
    let mut sorted = values.to_vec();
    sorted.sort();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// The table as text. `speed` is how many times faster than the line `reference`, `memory` the share of its peak; `limit`
/// is how long reading the input and writing the output take when nothing is done with them.
pub fn table(shape: Shape, in_bytes: u64, lines: &[Line], reference: Option<usize>, limit: (Duration, Duration)) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let mut rows =
        vec![["", "s", "cpu s", "MB/s", "rows/s", "peak MiB", "files", "out MB", "speed", "memory"].map(str::to_owned)];
    for line in lines {
        let peer = reference.and_then(|at| lines.get(at));
        let seconds = line.seconds();
        rows.push([
            line.name.clone(),
            format!("{seconds:.2}"),
            format!("{:.2}", median(&line.cpus).as_secs_f64()),
            format!("{:.0}", mb(in_bytes) / seconds),
            format!("{:.0}", shape.rows as f64 / seconds),
            format!("{:.0}", line.peak_mib()),
            line.out.0.to_string(),
            format!("{:.0}", mb(line.out.1)),
            peer.map_or_else(String::new, |peer| format!("{:.2}x", peer.seconds() / seconds)),
            peer.map_or_else(String::new, |peer| format!("{:.2}x", line.peak_mib() / peer.peak_mib())),
        ]);
    }
    let runs = lines.first().map_or(0, |line| line.walls.len());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut text = format!(
        "ingest: {} rows, {:.0} MB, {} files, {} organisations; {cores} cores{}; medians of {runs} runs\n\n",
        shape.rows,
        mb(in_bytes),
        shape.files,
        shape.orgs,
        others_at_work()
    );
    let widths: Vec<usize> =
        (0..rows[0].len()).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    let (read, written) = (limit.0.as_secs_f64(), limit.1.as_secs_f64());
    let _ = writeln!(text, "\nlimit: reading the input takes {read:.2} s, writing the first line's output {written:.2} s");
    if let Some(peer) = reference.and_then(|at| lines.get(at)) {
        let _ = writeln!(text, "speed: times as fast as {}; memory: share of its peak", peer.name);
    }
    text
}

/// A warning when other processes want the cores too: the load of the last minutes is above what one run at a time makes.
fn others_at_work() -> String {
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    match load.split(' ').nth(1).and_then(|word| word.parse::<f64>().ok()) {
        Some(load) if load > cores + 0.5 => format!(" (busy with other work: load {load})"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, walls_ms: &[u64], peak_mib: u64) -> Line {
        let mut line = Line::new(name.to_owned());
        for ms in walls_ms {
            let wall = Duration::from_millis(*ms);
            let measured = Measured { wall, peak_bytes: peak_mib << 20, cpu: wall * 2, stdout: String::new() };
            line.add(&measured, (50, 2_000_000));
        }
        line
    }

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(&[9, 1, 5]), 5);
        assert_eq!(median(&[4, 2]), 2);
        assert_eq!(median::<u64>(&[]), 0);
    }

    #[test]
    fn ratios_are_to_the_peer() {
        let lines = [line("ours", &[900, 1000, 5000], 100), line("peer", &[2000], 400)];
        let shape = Shape::new(1000, 2, 1);
        let text = table(shape, 4_000_000, &lines, Some(1), (Duration::ZERO, Duration::ZERO));
        let ours: Vec<&str> =
            text.lines().find(|line| line.starts_with("ours")).map(|line| line.split_whitespace().collect()).unwrap_or_default();
        assert_eq!(ours, ["ours", "1.00", "2.00", "4", "1000", "100", "50", "2", "2.00x", "0.25x"]);
    }
}
