//! Partitions read through librdkafka.

use std::time::Duration;

use alluvium_core::Result;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Headers, Message};

use super::broker::{Offset, Polled, Reader, ReaderSettings, Record};
use super::client::{Listening, commit, kafka_error};

/// A consumer that was given its partitions.
pub(super) struct RdReader {
    consumer: BaseConsumer<Listening>,
    topic: String,
    headers: bool,
}

impl RdReader {
    pub(super) fn new(consumer: BaseConsumer<Listening>, settings: &ReaderSettings<'_>) -> Self {
        Self { consumer, topic: settings.topic.to_owned(), headers: settings.headers }
    }
}

impl Reader for RdReader {
    fn poll(&mut self, wait: Duration, take: &mut dyn FnMut(Polled<'_>)) -> Result<bool> {
        let heard = self.consumer.context().times();
        match self.consumer.poll(wait) {
            // Whatever stood in the queue when an end was heard of has been given since.
            None if self.consumer.context().times() == heard => {
                let ends = self.consumer.context().take_ends(&self.topic);
                for (partition, end) in &ends {
                    take(Polled::End { partition: *partition, upto: Some(*end) });
                }
                return Ok(!ends.is_empty());
            }
            None => return Ok(false),
            Some(Ok(message)) => {
                let headers: Vec<(&str, Option<&[u8]>)> = match message.headers() {
                    Some(headers) if self.headers => headers.iter().map(|h| (h.key, h.value)).collect(),
                    _ => Vec::new(),
                };
                take(Polled::Record(Record {
                    partition: message.partition(),
                    offset: Offset(message.offset()),
                    timestamp_ms: message.timestamp().to_millis(),
                    key: message.key(),
                    value: message.payload(),
                    headers: &headers,
                }));
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => take(Polled::End { partition, upto: None }),
            Some(Err(error)) => match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => take(Polled::OutOfRange),
                _ => return Err(kafka_error(&self.topic, &error, self.consumer.context().refusal())),
            },
        }
        Ok(true)
    }

    fn commit(&mut self, next: &[(i32, Offset)]) -> Result<()> {
        commit(&self.consumer, &self.topic, next)
    }
}
