//! The benchmark's input: JSON lines of activity, the same bytes for the same numbers on every machine.
//!
//! Thirteen columns, about 390 bytes a line. Organisations are skewed as real ones are: the n-th has 1/n of the rows of
//! the first (Zipf). Files are made once and found again by their directory's name.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// Part of the cache's key: raise it when lines are made otherwise.
const VERSION: u32 = 1;
/// Events spread evenly over this many days from 2026-01-01 on.
const DAYS: u64 = 30;
const TYPES: [&str; 8] = [
    "email_sent",
    "email_opened",
    "email_clicked",
    "call_logged",
    "meeting_booked",
    "page_viewed",
    "reply_received",
    "task_done",
];
const CHANNELS: [&str; 5] = ["email", "phone", "web", "chat", "event"];
const WORDS: [&str; 24] = [
    "quarterly",
    "review",
    "follow",
    "up",
    "on",
    "pricing",
    "your",
    "question",
    "about",
    "the",
    "pilot",
    "next",
    "steps",
    "for",
    "renewal",
    "demo",
    "with",
    "security",
    "team",
    "migration",
    "plan",
    "draft",
    "contract",
    "update",
];

/// What is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Lines in all.
    pub rows: u64,
    /// Organisations.
    pub orgs: u32,
    /// The number of the first of them.
    pub first_org: u32,
    /// Whether rows have [`WIDE_COLUMNS`] more columns, one of them 4 KiB of JSON.
    pub wide: bool,
    /// Files they are spread over, in equal parts.
    pub files: u32,
}

impl Shape {
    /// Narrow rows of organisations from the first on.
    pub const fn new(rows: u64, orgs: u32, files: u32) -> Self {
        Self { rows, orgs, first_org: 1, wide: false, files }
    }
}

/// Columns of wide rows beside those that all have: the last one is `payload`, the others are `c01` and on, every third a number.
pub const WIDE_COLUMNS: u32 = 47;

/// Generated files.
pub struct Input {
    /// The directory that holds nothing else.
    pub dir: PathBuf,
    /// The files, in the order of their names.
    pub files: Vec<PathBuf>,
    /// Their bytes.
    pub bytes: u64,
}

/// The input of `shape` under `cache`, made unless it is there.
pub fn input(cache: &Path, shape: Shape) -> io::Result<Input> {
    let Shape { rows, orgs, first_org, wide, files } = shape;
    let from = if first_org == 1 { String::new() } else { format!("-from-{first_org}") };
    let wide = if wide { "-wide" } else { "" };
    let dir = cache.join(format!("input-v{VERSION}-{rows}-rows-{orgs}-orgs{from}-{files}-files{wide}"));
    if !dir.exists() {
        // A directory that has its name is whole.
        let unfinished = cache.join(format!("unfinished-{}", std::process::id()));
        fs::create_dir_all(&unfinished)?;
        let zipf = Zipf::new(shape.orgs);
        std::thread::scope(|scope| {
            let halves = [0, 1].map(|half| {
                let (zipf, unfinished) = (&zipf, &unfinished);
                scope.spawn(move || (half..shape.files).step_by(2).try_for_each(|file| write_file(unfinished, shape, file, zipf)))
            });
            halves
                .into_iter()
                .try_for_each(|half| half.join().unwrap_or_else(|_| Err(io::Error::other("a generator thread died"))))
        })?;
        fs::rename(&unfinished, &dir)?;
    }
    let mut files: Vec<PathBuf> = fs::read_dir(&dir)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<_>>()?;
    files.sort();
    let bytes = files.iter().map(|file| fs::metadata(file).map(|m| m.len())).sum::<io::Result<u64>>()?;
    Ok(Input { dir, files, bytes })
}

fn write_file(dir: &Path, shape: Shape, file: u32, zipf: &Zipf) -> io::Result<()> {
    let first = shape.rows * u64::from(file) / u64::from(shape.files);
    let end = shape.rows * u64::from(file + 1) / u64::from(shape.files);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(dir.join(format!("part-{file:05}.json")))?);
    let mut line = String::with_capacity(512);
    for row in first..end {
        line.clear();
        append_line(&mut line, row, zipf, shape);
        out.write_all(line.as_bytes())?;
    }
    out.flush()
}

/// Appends line number `row` with its end. It depends on `row` and the shape only.
fn append_line(line: &mut String, row: u64, zipf: &Zipf, shape: Shape) {
    let mut random = Random::new(row);
    let org = zipf.pick(random.unit()) + shape.first_org as usize - 1;
    let (high, low) = (random.next(), random.next());
    let time = random.below(DAYS * 86_400_000);
    let (day, ms) = (time / 86_400_000 + 1, time % 86_400_000);
    let kind = TYPES[random.index(TYPES.len())];
    let lead = random.below(200_000);
    let user = random.below(400);
    let cadence = random.below(60);
    // Writing to a String cannot fail.
    let _ = write!(
        line,
        "{{\"event_id\":\"{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}\",\"org_id\":\"00D{:06}\"",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0xfff,
        low & 0xffff_ffff_ffff,
        org
    );
    let _ = write!(
        line,
        ",\"occurred_at\":\"2026-01-{day:02}T{:02}:{:02}:{:02}.{:03}Z\",\"type\":\"{kind}\"",
        ms / 3_600_000,
        ms / 60_000 % 60,
        ms / 1000 % 60,
        ms % 1000
    );
    let _ = write!(line, ",\"lead_id\":\"00Q{org:04}{lead:06}\",\"user_id\":\"005{org:04}{user:06}\"");
    let _ = write!(line, ",\"cadence_id\":\"a0C{org:04}{cadence:06}\",\"cadence_name\":\"Play {cadence}\",\"subject\":\"");
    for index in 0..3 {
        line.push_str(if index == 0 { "" } else { " " });
        line.push_str(WORDS[random.index(WORDS.len())]);
    }
    let ip = random.next().to_le_bytes();
    let _ = write!(
        line,
        "\",\"url\":\"https://example.com/leads/{lead}\",\"ip\":\"10.{}.{}.{}\",\"duration_ms\":{}",
        ip[0],
        ip[1],
        ip[2],
        random.below(600_000)
    );
    let channel = CHANNELS[random.index(CHANNELS.len())];
    let _ = write!(line, ",\"meta\":{{\"channel\":\"{channel}\",\"score\":0.{:03}}}", random.below(1000));
    if shape.wide {
        append_wide(line, &mut random);
    }
    line.push_str("}\n");
}

/// The further columns of wide rows.
fn append_wide(line: &mut String, random: &mut Random) {
    for column in 1..WIDE_COLUMNS {
        let _ = if column.is_multiple_of(3) {
            write!(line, ",\"c{column:02}\":{}", random.below(1_000_000))
        } else {
            write!(line, ",\"c{column:02}\":\"{} {}\"", WORDS[random.index(WORDS.len())], random.below(10_000))
        };
    }
    line.push_str(",\"payload\":\"{");
    let start = line.len();
    while line.len() - start < 4096 {
        let comma = if line.len() == start { "" } else { "," };
        let word = WORDS[random.index(WORDS.len())];
        let _ = write!(line, "{comma}\\\"{word}_{}\\\":\\\"{}\\\"", random.below(1000), WORDS[random.index(WORDS.len())]);
    }
    line.push_str("}\"");
}

/// SplitMix64 (Steele, Lea, Flood, 2014): one state word, any seed is good.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(1))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, near enough to uniform for a benchmark.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Organisations 1..=n with weights 1/1, 1/2, ... 1/n.
pub struct Zipf {
    upto: Vec<f64>,
}

impl Zipf {
    pub fn new(orgs: u32) -> Self {
        let mut sum = 0.0;
        let upto = (1..=orgs)
            .map(|org| {
                sum += 1.0 / f64::from(org);
                sum
            })
            .collect();
        Self { upto }
    }

    pub fn pick(&self, unit: f64) -> usize {
        let at = unit * self.upto.last().copied().unwrap_or(1.0);
        self.upto.partition_point(|upto| *upto <= at).min(self.upto.len().saturating_sub(1)) + 1
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn splitmix_gives_the_published_numbers() {
        // The first outputs for state 1234567, from the reference implementation in C.
        let mut random = Random(1_234_567);
        assert_eq!([random.next(), random.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn first_organisation_has_its_share() {
        let zipf = Zipf::new(50);
        let mut random = Random::new(7);
        let first = (0..100_000).filter(|_| zipf.pick(random.unit()) == 1).count();
        // 1 / (1 + 1/2 + ... + 1/50) = 1 / 4.4992 = 22.2 %.
        assert!((21_700..22_800).contains(&first), "{first}");
    }

    #[test]
    fn lines_are_close_to_390_bytes() {
        let zipf = Zipf::new(50);
        let mut text = String::new();
        for row in 0..1000 {
            append_line(&mut text, row, &zipf, Shape::new(1000, 50, 1));
        }
        assert_eq!(text.lines().count(), 1000);
        assert!((380..400).contains(&(text.len() / 1000)), "{}", text.len() / 1000);
    }
}
