//! Checks of Kafka sources and of librdkafka's settings.

use super::super::Topic;
use super::super::at::{At, Entries, Setting};
use super::super::node::join;
use super::super::raw::RawKafka;
use super::Checker;
use crate::dataset::{FileFormat, KafkaSource, KafkaStart, Tombstones};

/// Settings that decide what is read and where: positions are ours, and only committed records count.
const OURS: [&str; 7] = [
    "enable.auto.commit",
    "auto.commit.enable",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "isolation.level",
    "enable.partition.eof",
    "allow.auto.create.topics",
];

impl Checker<'_> {
    /// Settings of librdkafka: only those that are ours are looked at. The rest is for librdkafka to refuse.
    pub(super) fn kafka_settings(&mut self, settings: &Entries<Setting>) {
        for (name, _) in &settings.0 {
            if OURS.contains(&name.value.as_str()) {
                let message = "this setting decides what is read, and is ours";
                self.problem(name.place, &join("kafka", &name.value), message, "leave it out");
            }
        }
    }

    /// A Kafka source.
    pub(super) fn kafka(&mut self, key: &str, kafka: RawKafka) -> KafkaSource {
        let topic = Topic { place: kafka.topic.place, key: join(key, "topic"), name: kafka.topic.value.clone() };
        self.topics.push(topic);
        if let Some(format) = kafka.format.filter(|format| format.value != FileFormat::Json) {
            self.problem(format.place, &join(key, "format"), "messages are read as json only", "write json");
        }
        if let Some(tombstones) = kafka.tombstones.as_ref().filter(|t| t.value == Tombstones::Delete) {
            self.problem(
                tombstones.place,
                &join(key, "tombstones"),
                "deleting by tombstones is not built yet",
                "write skip or dead_letter",
            );
        }
        let shards = kafka.shards.and_then(|shards| self.shards(key, &shards));
        KafkaSource {
            topic: kafka.topic.value,
            start: kafka.start.map_or(KafkaStart::Earliest, |start| self.start(key, &start)),
            tombstones: kafka.tombstones.map(|t| t.value).unwrap_or_default(),
            shards,
        }
    }

    fn shards(&mut self, key: &str, shards: &At<u64>) -> Option<u32> {
        let max = KafkaSource::MAX_SHARDS;
        let number = u32::try_from(shards.value).ok().filter(|n| (1..=max).contains(n));
        if number.is_none() {
            let message = format!("{} shards cannot be", shards.value);
            self.problem(shards.place, &join(key, "shards"), message, format!("write 1 to {max}"));
        }
        number
    }

    fn start(&mut self, key: &str, start: &At<String>) -> KafkaStart {
        let day = || Some(chrono::NaiveDate::parse_from_str(&start.value, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0)?.and_utc());
        let time = || chrono::DateTime::parse_from_rfc3339(&start.value).ok().map(|t| t.to_utc());
        match start.value.as_str() {
            "earliest" => KafkaStart::Earliest,
            "latest" => KafkaStart::Latest,
            _ => match time().or_else(day) {
                Some(time) => KafkaStart::At(time.timestamp_millis()),
                None => {
                    let message = format!("{:?} is not known here", start.value);
                    let hint = "write earliest, latest, or a time such as 2026-01-02T03:04:05Z";
                    self.problem(start.place, &join(key, "start"), message, hint);
                    KafkaStart::Earliest
                }
            },
        }
    }
}
