//! Makes topics and records in a cluster, through librdkafka.

use std::time::Duration;

use futures::executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Makes topics and records; every method panics if the cluster refuses.
#[derive(Debug, Clone)]
pub struct KafkaTools {
    bootstrap: String,
}

/// A transaction with its records sent.
pub struct OpenTransaction {
    producer: BaseProducer,
}

impl OpenTransaction {
    /// Commits it.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn commit(self) {
        self.producer.commit_transaction(TIMEOUT).expect("the transaction is committed");
    }

    /// Aborts it.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn abort(self) {
        self.producer.abort_transaction(TIMEOUT).expect("the transaction is aborted");
    }
}

/// A record to be sent.
#[derive(Debug, Clone, Default)]
pub struct Sent<'a> {
    /// The partition.
    pub partition: i32,
    /// The key.
    pub key: Option<&'a str>,
    /// The value; `None`: a tombstone.
    pub value: Option<&'a str>,
    /// The headers.
    pub headers: &'a [(&'a str, &'a str)],
    /// The timestamp in milliseconds since 1970; now, if absent.
    pub timestamp_ms: Option<i64>,
}

impl KafkaTools {
    /// Tools for the cluster at `bootstrap`.
    #[must_use]
    pub fn new(bootstrap: &str) -> Self {
        Self { bootstrap: bootstrap.to_owned() }
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        config
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.config().create().expect("a client")
    }

    /// Whether the cluster answers.
    #[must_use]
    pub fn answers(&self) -> bool {
        let consumer: BaseConsumer = self.config().create().expect("a client");
        consumer.fetch_metadata(None, Duration::from_secs(2)).is_ok_and(|m| !m.brokers().is_empty())
    }

    /// Makes a topic and waits until it can be used.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn create(&self, topic: &str, partitions: i32) {
        let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        let made = block_on(self.admin().create_topics([&new], &options())).expect("the cluster answers");
        made.into_iter().for_each(|r| drop(r.expect("the topic is made")));
        self.wait_for_partitions(topic, usize::try_from(partitions).expect("a positive number"));
    }

    /// Adds partitions until there are so many.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn grow(&self, topic: &str, partitions: usize) {
        let new = NewPartitions::new(topic, partitions);
        let made = block_on(self.admin().create_partitions([&new], &options())).expect("the cluster answers");
        made.into_iter().for_each(|r| drop(r.expect("the partitions are made")));
        self.wait_for_partitions(topic, partitions);
    }

    /// Deletes a topic and waits until it is gone.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn delete(&self, topic: &str) {
        let gone = block_on(self.admin().delete_topics(&[topic], &options())).expect("the cluster answers");
        gone.into_iter().for_each(|r| drop(r.expect("the topic is deleted")));
        self.wait_for_partitions(topic, 0);
    }

    fn wait_for_partitions(&self, topic: &str, partitions: usize) {
        let deadline = std::time::Instant::now() + TIMEOUT;
        loop {
            let consumer: BaseConsumer = self.config().create().expect("a client");
            let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT).expect("the cluster answers");
            let found = metadata.topics().first().filter(|t| t.error().is_none());
            let ready = found.map_or(0, |t| t.partitions().iter().filter(|p| p.leader() >= 0).count());
            if ready == partitions {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "the topic {topic} does not come to {partitions} partitions");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Deletes the records of a partition before an offset.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) {
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(topic, partition, Offset::Offset(before)).expect("an offset");
        let gone = block_on(self.admin().delete_records(&offsets, &options())).expect("the cluster answers");
        gone.elements().iter().for_each(|e| e.error().expect("the records are deleted"));
    }

    /// Sends values to a partition, without keys.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn send_values(&self, topic: &str, partition: i32, values: &[String]) {
        let records: Vec<Sent<'_>> =
            values.iter().map(|value| Sent { partition, value: Some(value), ..Sent::default() }).collect();
        self.send(topic, &records);
    }

    /// Sends records.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn send(&self, topic: &str, records: &[Sent<'_>]) {
        let producer: BaseProducer = self.config().set("linger.ms", "5").create().expect("a client");
        send(&producer, topic, records);
        producer.flush(TIMEOUT).expect("the records are sent");
    }

    /// Sends records in one transaction, and commits or aborts it.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn transaction(&self, topic: &str, records: &[Sent<'_>], commit: bool) {
        let open = self.begin(topic, records);
        if commit { open.commit() } else { open.abort() }
    }

    /// Sends records in a transaction that is left open.
    ///
    /// # Panics
    /// If the cluster refuses.
    #[must_use]
    pub fn begin(&self, topic: &str, records: &[Sent<'_>]) -> OpenTransaction {
        let mut config = self.config();
        config.set("transactional.id", format!("tx-{topic}"));
        let producer: BaseProducer = config.create().expect("a client");
        producer.init_transactions(TIMEOUT).expect("transactions begin");
        producer.begin_transaction().expect("a transaction begins");
        send(&producer, topic, records);
        producer.flush(TIMEOUT).expect("the records are sent");
        OpenTransaction { producer }
    }

    /// The offset of a group for a partition, as tools that watch lag see it.
    ///
    /// # Panics
    /// If the cluster refuses.
    #[must_use]
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        let consumer: BaseConsumer = self.config().set("group.id", group).create().expect("a client");
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition(topic, partition);
        let found = consumer.committed_offsets(offsets, TIMEOUT).expect("the cluster answers");
        match found.find_partition(topic, partition)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(TIMEOUT)).operation_timeout(Some(TIMEOUT))
}

fn send(producer: &BaseProducer, topic: &str, records: &[Sent<'_>]) {
    for Sent { partition, key, value, headers, timestamp_ms } in records {
        let mut record: BaseRecord<'_, str, str> = BaseRecord::to(topic).partition(*partition);
        record.key = *key;
        record.payload = *value;
        record.timestamp = *timestamp_ms;
        if !headers.is_empty() {
            let add = |all: OwnedHeaders, (key, value): &(&str, &str)| all.insert(Header { key, value: Some(*value) });
            record.headers = Some(headers.iter().fold(OwnedHeaders::new(), add));
        }
        while let Err((error, again)) = producer.send(record) {
            let full = error.rdkafka_error_code() == Some(rdkafka::types::RDKafkaErrorCode::QueueFull);
            assert!(full, "{error}");
            record = again;
            producer.poll(Duration::from_millis(10));
        }
    }
}
