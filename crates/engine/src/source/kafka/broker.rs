//! What is asked of a Kafka cluster.

use std::time::Duration;

pub use alluvium_core::Offset;
use alluvium_core::Result;

/// A Kafka cluster. All methods may block for some seconds, and are called from threads that may block.
///
/// Errors of all of them: [`alluvium_core::Kind::Unavailable`] if the cluster does not answer (it is asked again later),
/// [`alluvium_core::Kind::NotFound`] if there is no such topic, [`alluvium_core::Kind::Invalid`] if it refuses us or a setting is wrong.
pub trait Broker: Send + Sync {
    /// What the cluster says of a topic.
    ///
    /// # Errors
    /// See [`Broker`].
    fn topic(&self, topic: &str) -> Result<TopicFacts>;

    /// The readable part of a partition.
    ///
    /// # Errors
    /// See [`Broker`].
    fn watermarks(&self, topic: &str, partition: i32) -> Result<Watermarks>;

    /// The offset of the first record whose timestamp is not before `time_ms`; `None` if there is none.
    ///
    /// # Errors
    /// See [`Broker`].
    fn offset_at(&self, topic: &str, partition: i32, time_ms: i64) -> Result<Option<Offset>>;

    /// Begins to read partitions of a topic, each from its offset on. Only committed records are given.
    ///
    /// # Errors
    /// See [`Broker`].
    fn reader(&self, settings: &ReaderSettings<'_>) -> Result<Box<dyn Reader>>;

    /// The offset that a group has committed. Only a broken rule asks for it.
    #[cfg(feature = "plants")]
    fn committed(&self, _group: &str, _topic: &str, _partition: i32) -> Option<Offset> {
        None
    }
}

/// What is read, and from where on.
#[derive(Debug, Clone)]
pub struct ReaderSettings<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partitions, with the offset of the first record wanted.
    pub from: &'a [(i32, Offset)],
    /// The consumer group whose committed offsets are kept up to date, as a courtesy.
    pub group: &'a str,
    /// How many bytes may be fetched ahead.
    pub buffer_bytes: u64,
    /// Whether headers are wanted.
    pub headers: bool,
}

/// Partitions of a topic that are being read. Records of one partition come in the order of their offsets; some may come again.
pub trait Reader: Send + Sync {
    /// Waits at most `wait` for something, hands it to `take`, and says whether there was something.
    ///
    /// # Errors
    /// As [`Broker`]'s; [`alluvium_core::Kind::Unavailable`] may pass by itself: poll again.
    fn poll(&mut self, wait: Duration, take: &mut dyn FnMut(Polled<'_>)) -> Result<bool>;

    /// Tells the cluster how far the group has come: for each partition the offset it would read next. A courtesy: nobody of
    /// us reads it.
    ///
    /// # Errors
    /// The cluster refused at once; a later refusal is only logged.
    fn commit(&mut self, next: &[(i32, Offset)]) -> Result<()>;
}

/// What a reader gives.
#[derive(Debug, Clone, Copy)]
pub enum Polled<'a> {
    /// A record.
    Record(Record<'a>),
    /// All committed records that the partition held at some moment after reading began were given.
    End {
        /// The partition.
        partition: i32,
        /// A place up to which all were given, if that is known; offsets before it that were not given hold no record.
        upto: Option<Offset>,
    },
    /// Some partition has no record at the offset wanted, and none after it that one could go on with: look at the watermarks.
    OutOfRange,
}

/// One record of a partition.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The partition.
    pub partition: i32,
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp in milliseconds since 1970, if it has one.
    pub timestamp_ms: Option<i64>,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order, if they were wanted.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// What a cluster says of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicFacts {
    /// The id that tells it from another topic of the same name, where the client can find it out.
    pub id: Option<String>,
    /// How many partitions it has, numbered from 0.
    pub partitions: u32,
}

/// The readable part of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// The first offset that is still there, or would be.
    pub low: Offset,
    /// The last stable offset: behind the last record that is certainly committed.
    pub high: Offset,
}
