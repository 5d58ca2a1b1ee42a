//! Messages of one partition, gathered to be decoded together.

use super::broker::Record;

/// Messages of one partition in the order of their offsets: their values one behind the other in one buffer.
#[derive(Debug, Clone)]
pub(crate) struct Messages {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    values: Vec<u8>,
    items: Vec<Item>,
    around: Vec<Around>,
    extra_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Item {
    offset: i64,
    /// Where its value ends in the buffer.
    end: usize,
    tombstone: bool,
}

/// What stands around a value; kept only where the declaration asks for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Around {
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

/// One of the messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'m> {
    pub(crate) offset: i64,
    /// `None`: a tombstone.
    pub(crate) value: Option<&'m [u8]>,
    pub(crate) around: Option<&'m Around>,
}

impl Messages {
    pub(crate) fn new(topic: &str, partition: i32) -> Self {
        Self { topic: topic.to_owned(), partition, values: Vec::new(), items: Vec::new(), around: Vec::new(), extra_bytes: 0 }
    }

    /// Adds a record; with `around`, also what stands around its value.
    pub(crate) fn push(&mut self, record: &Record<'_>, around: bool) {
        self.values.extend_from_slice(record.value.unwrap_or_default());
        self.items.push(Item { offset: record.offset.0, end: self.values.len(), tombstone: record.value.is_none() });
        if around {
            let headers = record.headers.iter().map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec)));
            let around =
                Around { timestamp_ms: record.timestamp_ms, key: record.key.map(<[u8]>::to_vec), headers: headers.collect() };
            self.extra_bytes += around.key.as_ref().map_or(0, Vec::len) + 32;
            self.extra_bytes += around.headers.iter().map(|(n, v)| n.len() + v.as_ref().map_or(0, Vec::len) + 64).sum::<usize>();
            self.around.push(around);
        }
    }

    /// One message that was kept with what stood around it.
    pub(crate) fn one(topic: &str, partition: i32, offset: i64, value: &[u8], around: Option<Around>) -> Self {
        Self {
            values: value.to_vec(),
            items: vec![Item { offset, end: value.len(), tombstone: false }],
            around: around.into_iter().collect(),
            ..Self::new(topic, partition)
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn first_offset(&self) -> u64 {
        self.items.first().map_or(0, |item| item.offset.cast_unsigned())
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.values.len() + self.items.len() * size_of::<Item>() + self.extra_bytes) as u64
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        let starts = std::iter::once(0).chain(self.items.iter().map(|item| item.end));
        self.items.iter().zip(starts).enumerate().map(|(at, (item, start))| Message {
            offset: item.offset,
            value: (!item.tombstone).then(|| &self.values[start..item.end]),
            around: self.around.get(at),
        })
    }
}
