//! A cluster asked through librdkafka.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use alluvium_core::{Error, KafkaSettings, Kind, Result};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::{Offset as RdOffset, TopicPartitionList};

use super::broker::{Broker, Offset, Reader, ReaderSettings, TopicFacts, Watermarks};
use super::reader::RdReader;

/// How long the cluster may take to answer a question, in tries: between them librdkafka tells whether it was refused.
const ANSWER_TIMEOUTS: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_millis(500), Duration::from_millis(1300), Duration::from_secs(3)];
/// How long a reader's client waits when it may fetch no more ahead. Its own default, a second, is longer than we take to read
/// what it may hold.
const FULL_BACKOFF_MS: &str = "10";
/// How often a reader's client says how far it has come, which is the only way to learn of ends without a record.
const STATISTICS_INTERVAL_MS: &str = "2000";
/// Settings that decide what is read, and are ours. The names of settings that carry the same under an alias are there too.
const OURS: [(&str, &str); 8] = [
    ("enable.auto.commit", "false"),
    ("auto.commit.enable", "false"),
    ("enable.auto.offset.store", "false"),
    ("auto.offset.reset", "error"),
    ("isolation.level", "read_committed"),
    ("enable.partition.eof", "true"),
    ("allow.auto.create.topics", "false"),
    ("check.crcs", "true"),
];

/// A cluster asked through librdkafka. Nothing is connected before the first question.
pub struct RdBroker {
    settings: KafkaSettings,
    asking: OnceLock<Asking>,
}

/// The client that questions are asked with; it reads nothing.
struct Asking {
    consumer: BaseConsumer<Listening>,
    listening: Listening,
}

/// Hears what librdkafka says by itself.
#[derive(Clone, Default)]
pub(super) struct Listening {
    heard: Arc<Mutex<Heard>>,
}

/// What was heard.
#[derive(Default)]
struct Heard {
    /// The last refusal: wrong credentials, a certificate that does not fit.
    refused: Option<RDKafkaErrorCode>,
    /// The ends of partitions that the client came to, and was not asked for yet: everything before them stood in its queue
    /// when it said so.
    ends: BTreeMap<(String, i32), i64>,
    /// How often something was heard.
    times: u64,
}

impl Listening {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster has answered since.
    fn forget(&self) {
        self.heard().refused = None;
    }

    pub(super) fn refusal(&self) -> Option<RDKafkaErrorCode> {
        self.heard().refused
    }

    /// How often something was heard: a poll that heard nothing and gave nothing found the client's queue empty.
    pub(super) fn times(&self) -> u64 {
        self.heard().times
    }

    /// The ends that were heard of since they were last taken.
    pub(super) fn take_ends(&self, topic: &str) -> Vec<(i32, Offset)> {
        let ends = std::mem::take(&mut self.heard().ends);
        ends.into_iter().filter(|((of, _), _)| of == topic).map(|((_, partition), end)| (partition, Offset(end))).collect()
    }
}

impl ClientContext for Listening {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.heard().times += 1;
        // Nothing here is an error of ours: what matters comes back from a question or a poll.
        match level {
            RDKafkaLogLevel::Debug => tracing::trace!(target: "librdkafka", facility, message),
            _ => tracing::debug!(target: "librdkafka", facility, message),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason);
        let mut heard = self.heard();
        heard.times += 1;
        if let Some(code) = error.rdkafka_error_code().filter(|c| is_refusal(*c)) {
            heard.refused = Some(code);
        }
    }

    fn stats(&self, statistics: Statistics) {
        let mut heard = self.heard();
        heard.times += 1;
        for (topic, about) in statistics.topics {
            let ends = about.partitions.into_values().filter(|p| p.eof_offset >= 0);
            heard.ends.extend(ends.map(|p| ((topic.clone(), p.partition), p.eof_offset)));
        }
    }
}

impl ConsumerContext for Listening {
    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        self.heard().times += 1;
        if let Err(error) = result {
            tracing::warn!(%error, "the cluster did not take the group's committed offsets; ours are what counts");
        }
    }
}

impl RdBroker {
    /// The cluster that the project's settings lead to.
    #[must_use]
    pub fn new(settings: &KafkaSettings) -> Self {
        Self { settings: settings.clone(), asking: OnceLock::new() }
    }

    /// A client of these settings and more; what decides what is read is ours.
    fn consumer(&self, more: &[(&str, String)]) -> Result<(BaseConsumer<Listening>, Listening)> {
        if self.settings.get("bootstrap.servers").is_none() && self.settings.get("metadata.broker.list").is_none() {
            return Err(Error::new(Kind::Invalid, "reading from Kafka: no broker is named")
                .hint("add to the project file: kafka: { bootstrap.servers: HOST:9092 }"));
        }
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Info);
        config.set("client.id", "alluvium");
        for (name, value) in more {
            config.set(*name, value);
        }
        for (name, value) in self.settings.iter().filter(|(name, _)| *name != "group.id") {
            config.set(name, value);
        }
        for (name, value) in OURS {
            config.set(name, value);
        }
        let listening = Listening::default();
        let consumer = config.create_with_context(listening.clone()).map_err(|e| config_error(&self.settings, e))?;
        Ok((consumer, listening))
    }

    fn asking(&self) -> Result<&Asking> {
        if let Some(asking) = self.asking.get() {
            return Ok(asking);
        }
        let (consumer, listening) = self.consumer(&[])?;
        Ok(self.asking.get_or_init(|| Asking { consumer, listening }))
    }
}

impl Asking {
    /// Asks, and finds out why there was no answer.
    fn ask<T>(&self, topic: &str, ask: impl Fn(&BaseConsumer<Listening>, Duration) -> KafkaResult<T>) -> Result<T> {
        let mut last = None;
        for timeout in ANSWER_TIMEOUTS {
            let answer = ask(&self.consumer, timeout);
            // What librdkafka has to say by itself is heard only by who polls.
            while self.consumer.poll(Duration::ZERO).is_some() {}
            let error = match answer {
                Ok(answer) => {
                    self.listening.forget();
                    return Ok(answer);
                }
                Err(error) => kafka_error(topic, &error, self.listening.refusal()),
            };
            if error.kind() != Kind::Unavailable {
                return Err(error);
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| Error::new(Kind::Internal, "a question was never asked")))
    }
}

impl Broker for RdBroker {
    fn topic(&self, topic: &str) -> Result<TopicFacts> {
        let asking = self.asking()?;
        let metadata = asking.ask(topic, |c, timeout| c.fetch_metadata(Some(topic), timeout))?;
        let found = metadata.topics().iter().find(|t| t.name() == topic);
        let found = found.ok_or_else(|| no_topic(topic))?;
        if let Some(code) = found.error() {
            return Err(code_error(topic, code.into(), None));
        }
        if found.partitions().is_empty() {
            return Err(no_topic(topic));
        }
        // Ids of topics are not within reach of the client library.
        Ok(TopicFacts { id: None, partitions: u32::try_from(found.partitions().len()).unwrap_or(u32::MAX) })
    }

    fn watermarks(&self, topic: &str, partition: i32) -> Result<Watermarks> {
        let (low, high) = self.asking()?.ask(topic, |c, timeout| c.fetch_watermarks(topic, partition, timeout))?;
        Ok(Watermarks { low: Offset(low), high: Offset(high) })
    }

    fn offset_at(&self, topic: &str, partition: i32, time_ms: i64) -> Result<Option<Offset>> {
        let mut times = TopicPartitionList::new();
        times.add_partition_offset(topic, partition, RdOffset::Offset(time_ms)).map_err(|e| kafka_error(topic, &e, None))?;
        let found = self.asking()?.ask(topic, |c, timeout| {
            let found = c.offsets_for_times(times.clone(), timeout)?;
            for element in found.elements() {
                element.error()?;
            }
            Ok(found)
        })?;
        Ok(found.find_partition(topic, partition).and_then(|e| match e.offset() {
            RdOffset::Offset(offset) => Some(Offset(offset)),
            _ => None,
        }))
    }

    fn reader(&self, settings: &ReaderSettings<'_>) -> Result<Box<dyn Reader>> {
        let kib = (settings.buffer_bytes >> 10).clamp(256, 1 << 20);
        let more = [
            ("group.id", settings.group.to_owned()),
            ("statistics.interval.ms", STATISTICS_INTERVAL_MS.to_owned()),
            ("queued.max.messages.kbytes", kib.to_string()),
            ("fetch.queue.backoff.ms", FULL_BACKOFF_MS.to_owned()),
            ("fetch.max.bytes", (kib << 9).clamp(1 << 17, 50 << 20).to_string()),
            ("max.partition.fetch.bytes", (kib << 8).clamp(1 << 17, 1 << 20).to_string()),
        ];
        let (consumer, listening) = self.consumer(&more)?;
        let refused = |e: KafkaError| kafka_error(settings.topic, &e, listening.refusal());
        let mut from = TopicPartitionList::with_capacity(settings.from.len());
        for (partition, offset) in settings.from {
            from.add_partition_offset(settings.topic, *partition, RdOffset::Offset(offset.0)).map_err(refused)?;
        }
        consumer.assign(&from).map_err(refused)?;
        Ok(Box::new(RdReader::new(consumer, settings)))
    }
}

/// Commits in the background.
pub(super) fn commit(consumer: &BaseConsumer<Listening>, topic: &str, next: &[(i32, Offset)]) -> Result<()> {
    let mut offsets = TopicPartitionList::with_capacity(next.len());
    for (partition, offset) in next {
        offsets.add_partition_offset(topic, *partition, RdOffset::Offset(offset.0)).map_err(|e| kafka_error(topic, &e, None))?;
    }
    consumer.commit(&offsets, CommitMode::Async).map_err(|e| kafka_error(topic, &e, None))
}

/// A setting that librdkafka refuses. Its value is never shown.
fn config_error(settings: &KafkaSettings, error: KafkaError) -> Error {
    let refused = match &error {
        KafkaError::ClientConfig(_, _, name, _) => format!("librdkafka refuses the setting kafka.{name}"),
        KafkaError::ClientCreation(said) => {
            format!("librdkafka refuses the settings of kafka: {}", without_values(settings, said))
        }
        _ => "making a Kafka client".to_owned(),
    };
    Error::new(Kind::Invalid, refused).hint("names and values are those of librdkafka's CONFIGURATION.md")
}

/// A text without any value of the settings that it quotes: each may be a secret.
fn without_values(settings: &KafkaSettings, text: &str) -> String {
    let mut values: Vec<&str> = settings.iter().map(|(_, value)| value).filter(|value| !value.is_empty()).collect();
    // The longest first: one value may be a part of another.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values.into_iter().fold(text.to_owned(), |text, value| text.replace(value, "***"))
}

/// Whether the cluster refuses us: asking again does not help.
const fn is_refusal(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SSL
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::UnsupportedSASLMechanism
            | RDKafkaErrorCode::IllegalSASLState
    )
}

/// What an error of the library means. `refusal` is what librdkafka has said by itself before.
pub(super) fn kafka_error(topic: &str, error: &KafkaError, refusal: Option<RDKafkaErrorCode>) -> Error {
    match error.rdkafka_error_code() {
        Some(code) => code_error(topic, code, refusal),
        None => Error::new(Kind::Internal, format!("reading the topic {topic}: {}", kind_of(error))),
    }
}

fn kind_of(error: &KafkaError) -> &'static str {
    match error {
        KafkaError::Nul(_) => "a name holds a null character",
        KafkaError::Subscription(_) => "the partitions could not be assigned",
        _ => "librdkafka failed",
    }
}

fn code_error(topic: &str, code: RDKafkaErrorCode, refusal: Option<RDKafkaErrorCode>) -> Error {
    let refusal = if is_refusal(code) { Some(code) } else { refusal };
    if let Some(code) = refusal {
        return Error::new(Kind::Invalid, format!("reading the topic {topic}: the cluster refuses us: {}", words(code)))
            .hint("see the settings sasl.* and ssl.* below kafka in the project file, and the variables they name");
    }
    match code {
        RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition => no_topic(topic),
        RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::GroupAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed => {
            Error::new(Kind::Invalid, format!("reading the topic {topic}: {}", words(code)))
                .hint("let the cluster's access lists allow this user to read and describe the topic")
        }
        code => Error::new(Kind::Unavailable, format!("reading the topic {topic}: {}", words(code)))
            .hint("see whether the broker at bootstrap.servers is up and within reach, and run again"),
    }
}

/// What librdkafka says of a code, without the code's name and without who says it.
fn words(code: RDKafkaErrorCode) -> String {
    let text = code.to_string();
    let inside = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(&text);
    let said = inside.split_once(": ").map_or(inside, |(_, said)| said);
    let mut characters = said.chars();
    // An abbreviation stays as it is.
    if said.chars().nth(1).is_some_and(char::is_uppercase) {
        return said.to_owned();
    }
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

fn no_topic(topic: &str) -> Error {
    Error::new(Kind::NotFound, format!("the cluster has no topic {topic}"))
        .hint("make the topic, or correct its name; outside the namespace default the namespace and a dot stand before it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: RDKafkaErrorCode, refusal: Option<RDKafkaErrorCode>) -> (Kind, String) {
        let error = code_error("t", code, refusal);
        (error.kind(), error.message().to_owned())
    }

    #[test]
    fn codes_become_what_the_user_can_do() {
        let (away, said) = kind(RDKafkaErrorCode::BrokerTransportFailure, None);
        assert_eq!((away, said.as_str()), (Kind::Unavailable, "reading the topic t: broker transport failure"));
        assert_eq!(kind(RDKafkaErrorCode::UnknownTopicOrPartition, None).0, Kind::NotFound);
        assert_eq!(kind(RDKafkaErrorCode::TopicAuthorizationFailed, None).0, Kind::Invalid);
        // A question that was not answered because the cluster had refused us.
        let refused = kind(RDKafkaErrorCode::BrokerTransportFailure, Some(RDKafkaErrorCode::Authentication));
        assert_eq!(refused.0, Kind::Invalid);
        assert!(refused.1.contains("refuses us"), "{}", refused.1);
    }

    #[test]
    fn values_that_a_text_quotes_are_taken_out_the_longest_first() {
        let settings = KafkaSettings::from_iter([("a", "secret"), ("b", "secret-2"), ("c", "")]);
        assert_eq!(without_values(&settings, "no \"secret-2\" and no secret"), "no \"***\" and no ***");
    }

    #[test]
    fn refused_setting_is_named_and_its_value_is_not() {
        let settings = [("bootstrap.servers", "localhost:1"), ("security.protocol", "hunter2")];
        let broker = RdBroker::new(&KafkaSettings::from_iter(settings));
        let error = broker.topic("t").map(|_| ()).expect_err("the setting is wrong");
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(!error.chain_text().contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{error:?}");
        let unknown = RdBroker::new(&KafkaSettings::from_iter([("bootstrap.servers", "localhost:1"), ("no.such", "hunter2")]));
        let error = unknown.topic("t").map(|_| ()).expect_err("there is no such setting");
        assert!(error.message().contains("kafka.no.such") && !error.chain_text().contains("hunter2"), "{error:?}");
    }
}
