//! What `cargo xtask bench kafka` needs beside the program it measures, each a process of its own:
//!
//! - `kafka serve`: a broker until its input ends; prints what clients connect to;
//! - `kafka fill BOOTSTRAP TOPIC PARTITIONS FILE...`: a topic with the lines of files, spread evenly;
//! - `kafka drain BOOTSTRAP TOPIC`: a bare consumer that reads the topic to its end and does nothing with it.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::time::Duration;

use alluvium_core::{KafkaSettings, Kind, Offset};
use alluvium_engine::{Broker, Polled, RdBroker, ReaderSettings};
use alluvium_testkit::{KafkaServer, KafkaTools};

/// Lines sent at once.
const LINES: usize = 10_000;
/// What the bare consumer may fetch ahead: librdkafka's own default.
const BUFFER_BYTES: u64 = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve"] => serve(),
        ["fill", bootstrap, topic, partitions, files @ ..] => fill(bootstrap, topic, partitions.parse()?, files),
        ["drain", bootstrap, topic] => drain(bootstrap, topic),
        _ => Err("usage: kafka serve | fill BOOTSTRAP TOPIC PARTITIONS FILE... | drain BOOTSTRAP TOPIC".into()),
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let server = KafkaServer::start().ok_or("there is no broker to start")?;
    println!("{}", server.bootstrap());
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn fill(bootstrap: &str, topic: &str, partitions: i32, files: &[&str]) -> Result<(), Box<dyn Error>> {
    let tools = KafkaTools::new(bootstrap);
    tools.create(topic, partitions);
    let mut turn = 0;
    for file in files {
        let mut lines = BufReader::new(std::fs::File::open(file)?).lines();
        loop {
            let some: Vec<String> = lines.by_ref().take(LINES).collect::<Result<_, _>>()?;
            if some.is_empty() {
                break;
            }
            tools.send_values(topic, turn % partitions, &some);
            turn += 1;
        }
    }
    Ok(())
}

fn drain(bootstrap: &str, topic: &str) -> Result<(), Box<dyn Error>> {
    let broker = RdBroker::new(&KafkaSettings::from_iter([("bootstrap.servers", bootstrap)]));
    let partitions = i32::try_from(broker.topic(topic)?.partitions)?;
    let from: Vec<(i32, Offset)> = (0..partitions).map(|p| (p, Offset(0))).collect();
    let settings = ReaderSettings { topic, from: &from, group: "drain", buffer_bytes: BUFFER_BYTES, headers: false };
    let mut reader = broker.reader(&settings)?;
    let (mut records, mut bytes, mut ended) = (0_u64, 0_u64, 0);
    while ended < partitions {
        let polled = reader.poll(Duration::from_secs(10), &mut |polled| match polled {
            Polled::Record(record) => {
                records += 1;
                bytes += record.value.map_or(0, |v| v.len() as u64);
            }
            Polled::End { upto: None, .. } => ended += 1,
            Polled::End { .. } => {}
            Polled::OutOfRange => {}
        });
        match polled {
            Ok(true) => {}
            Ok(false) => return Err("the broker gives nothing".into()),
            Err(e) if e.kind() == Kind::Unavailable => {}
            Err(e) => return Err(e.into()),
        }
    }
    println!("{{\"records\":{records},\"bytes\":{bytes}}}");
    Ok(())
}
