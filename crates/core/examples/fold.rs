//! How fast requests fold, and in what memory: 10 million over 1,000 organisations, one after the other, and a storm.
//!
//! `cargo run --release --manifest-path crates/core/Cargo.toml --example fold`. It prints; it asserts nothing. Requests are made up as
//! their stored JSON and read from it, as whoever rebuilds a folded ledger does; each fate is encoded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use alluvium_core::{BatchNumber, Fates, Id, LedgerBuilder, NodeKey, Op, OrgLedger, Project, Request, Shape, SourceRow};

const PROJECT: &str = "
project: fold
storage: ./lake
datasets:
  call:
    source: { files: { path: ./inbox/call, format: json } }
    org: org_id
    event_time: at
    fields: { org_id: string, at: timestamp, lead: string, user: string, ip: string, note: string }
    identities: [lead, { field: user, on_erase: clear, clear: [ip] }]
";

const ORGS: u64 = 1000;
const REQUESTS: u64 = 10_000_000;
const LINKS: u64 = 100_000;
const SECOND: i64 = 1_000_000;

struct Dice(u64);

impl Dice {
    /// xorshift64*.
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }
}

/// Seven converts in ten, two updates, one delete, over as many ids as requests.
fn stored(dice: &mut Dice, org: u64, number: u64, of: u64) -> String {
    let second = dice.below(30_000_000);
    let time = format!(
        "2025-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        1 + second / 2_500_000,
        1 + second / 90_000 % 28,
        second / 3600 % 24,
        second / 60 % 60,
        second % 60
    );
    let (a, b) = (dice.below(of), dice.below(of));
    let field = if dice.below(3) == 0 { "user" } else { "lead" };
    let op = match dice.below(10) {
        0..7 => format!(r#""op":"convert","field":"{field}","from":"00Q{a:012}","to":"003{b:012}""#),
        7..9 => format!(
            r#""op":"update","field":"{field}","id":"003{a:012}","set":{{"note":"a new note of some length, {}"}}"#,
            b % 100
        ),
        _ => format!(r#""op":"delete","scope":"subject","subjects":[{{"field":"{field}","id":"003{a:012}"}}],"privacy":true"#),
    };
    format!(r#"{{"format":1,"request_id":"req-{org}-{number}","org_id":"00D{org:012}","execution_time":"{time}",{op}}}"#)
}

#[derive(Default)]
struct Sums {
    requests: u64,
    fates: u64,
    bytes: u64,
    reading: Duration,
    folding: Duration,
    largest: u64,
}

fn fold_orgs(shape: &Arc<Shape>, size: impl Fn(u64) -> u64) -> Sums {
    let mut sums = Sums::default();
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for org in 0..ORGS {
        let of = size(org);
        let mut builder = LedgerBuilder::new(shape.clone());
        for number in 0..of {
            let json = stored(&mut dice, org, number, of);
            let start = Instant::now();
            let request = Request::from_json(&json).expect("it is of the stored form");
            // Each batch of intake brings what executed in any order: a tenth of the requests each.
            builder.push(&request, BatchNumber(1 + number * 10 / of));
            sums.reading += start.elapsed();
        }
        let start = Instant::now();
        let ledger = builder.build();
        let (mut bytes, name) = (Vec::new(), format!("00D{org:012}"));
        ledger.fold(BatchNumber(10), &mut |node, fate| {
            bytes.clear();
            fate.encode(&mut bytes);
            sums.fates += 1;
            sums.bytes += bytes.len() as u64 + NodeKey::of(&name, node).0.len() as u64;
        });
        sums.folding += start.elapsed();
        sums.requests += of;
        sums.largest = sums.largest.max(of);
    }
    sums
}

fn print(what: &str, sums: &Sums, before: u64) {
    println!(
        "{what}: {} requests in {ORGS} organisations, the largest {}: read {:.1} s, ordered, folded, encoded {:.1} s; {} fates, {} MB; peak {} MB ({before} MB before)",
        sums.requests,
        sums.largest,
        sums.reading.as_secs_f64(),
        sums.folding.as_secs_f64(),
        sums.fates,
        sums.bytes / 1_000_000,
        peak_mb(),
    );
}

/// The most memory the process has held, as Linux counts it.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1000
}

fn storm(shape: &Arc<Shape>, backwards: bool) -> OrgLedger {
    let mut builder = LedgerBuilder::new(shape.clone());
    for link in 0..LINKS {
        let op = Op::Convert {
            field: "lead".to_owned(),
            from: Id::new(&format!("lead-{link}")),
            to: Id::new(&format!("lead-{}", link + 1)),
        };
        let execution_time = link as i64 * SECOND;
        let request = Request { id: format!("r{link}"), org: "o".to_owned(), dataset: None, execution_time, op };
        builder.push(&request, BatchNumber(if backwards { 1 + (LINKS - link) / 1000 } else { 1 }));
    }
    builder.build()
}

fn main() {
    let datasets = Project::parse(PROJECT, &|_| None).expect("the project is right").datasets;
    let shape = Arc::new(Shape::of(&datasets[0]));

    let start = Instant::now();
    let ledger = storm(&shape, true);
    let built = start.elapsed();
    let start = Instant::now();
    let fates = Fates::fold(&ledger, BatchNumber(u64::MAX));
    println!(
        "storm: {LINKS} chained converts: gathered {:.3} s, folded {:.3} s, {} fates",
        built.as_secs_f64(),
        start.elapsed().as_secs_f64(),
        fates.len()
    );
    let start = Instant::now();
    let mut changes = 0_u64;
    ledger.changed(BatchNumber(50), BatchNumber(51), &mut |_| changes += 1);
    println!("storm: one batch of 1,000 more in its midst changes {changes} fates: {:.3} s", start.elapsed().as_secs_f64());

    let start = Instant::now();
    let mut hits = 0_u64;
    for row in 0..1_000_000_u64 {
        let id = format!("lead-{}", row * 7919 % (3 * LINKS));
        let ids = [Some(id.as_str()), None];
        let source = SourceRow { ids: &ids, key: None, event_time: 0 };
        hits += u64::from(fates.resolve(&source) != alluvium_core::Outcome::Unchanged);
    }
    println!("look-ups: 1,000,000 rows, {hits} with a fate: {:.3} s", start.elapsed().as_secs_f64());

    let before = peak_mb();
    print("even", &fold_orgs(&shape, |_| REQUESTS / ORGS), before);
    let harmonic: f64 = (1..=ORGS).map(|rank| 1.0 / rank as f64).sum();
    let before = peak_mb();
    print("skewed", &fold_orgs(&shape, |org| (REQUESTS as f64 / harmonic / (org + 1) as f64) as u64), before);
}
