//! A dataset's declaration, compiled for decoding.

use std::collections::HashMap;

use alluvium_core::{DataType, Dataset, Field, MessagePart};

/// What a decoder needs to know of a dataset.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The declared columns.
    pub columns: Vec<Field>,
    /// The objects that keys are looked up in; the first is the record.
    pub nodes: Vec<Node>,
    /// How many cells a record has: one a column, and one an object that is only dug into.
    pub cells: usize,
    /// The column of the organisation.
    pub org: usize,
    /// The column of the event time.
    pub event_time: usize,
    /// The text columns that the table is partitioned by: Delta has no empty text there, it means null.
    pub partitions: Vec<usize>,
    /// The columns that are taken from the Kafka message around the value.
    pub message: Vec<(usize, MessagePart)>,
}

/// An object of the input and its keys that lead to columns.
#[derive(Debug, Default)]
pub(crate) struct Node {
    keys: HashMap<String, usize>,
    pub entries: Vec<Entry>,
}

/// What a key leads to.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The columns that take the value as it is; several may.
    pub columns: Vec<usize>,
    /// The object that columns are dug out of.
    pub node: Option<usize>,
    /// The cell that tells whether the key has been seen: the first column's, or its own.
    pub cell: usize,
}

impl Node {
    /// The entry of a key.
    pub(crate) fn entry(&self, key: &str) -> Option<usize> {
        self.keys.get(key).copied()
    }
}

impl Plan {
    pub(crate) fn new(dataset: &Dataset) -> Self {
        let columns = dataset.fields.clone();
        let position = |name: &str| {
            columns.iter().position(|f| f.name == name).expect("a loaded project declares its organisation and event time")
        };
        let (org, event_time) = (position(&dataset.org), position(&dataset.event_time));
        let partitions = (0..columns.len())
            .filter(|c| columns[*c].data_type == DataType::String && dataset.layout.partition_by.contains(&columns[*c].name))
            .collect();
        let parts = columns.iter().enumerate().filter_map(|(at, field)| Some((at, dataset.message_part(field)?)));
        let message = parts.collect();
        let mut plan = Self { cells: columns.len(), columns, nodes: vec![Node::default()], org, event_time, partitions, message };
        for column in 0..plan.columns.len() {
            if !plan.message.iter().any(|(at, _)| *at == column) {
                plan.add(column);
            }
        }
        for node in 0..plan.nodes.len() {
            for entry in 0..plan.nodes[node].entries.len() {
                let next = plan.cells;
                let entry = &mut plan.nodes[node].entries[entry];
                if let Some(&column) = entry.columns.first() {
                    entry.cell = column;
                } else {
                    entry.cell = next;
                    plan.cells += 1;
                }
            }
        }
        plan
    }

    fn add(&mut self, column: usize) {
        let from = self.columns[column].from.clone();
        let mut node = 0;
        for (depth, key) in from.iter().enumerate() {
            let entry = self.nodes[node].keys.get(key).copied().unwrap_or_else(|| {
                let entries = &mut self.nodes[node].entries;
                entries.push(Entry { columns: Vec::new(), node: None, cell: 0 });
                let at = entries.len() - 1;
                self.nodes[node].keys.insert(key.clone(), at);
                at
            });
            if depth + 1 == from.len() {
                self.nodes[node].entries[entry].columns.push(column);
            } else {
                node = self.nodes[node].entries[entry].node.unwrap_or_else(|| {
                    let at = self.nodes.len();
                    self.nodes.push(Node::default());
                    self.nodes[node].entries[entry].node = Some(at);
                    at
                });
            }
        }
    }

    /// Whether a record without a value in this column is refused.
    #[inline]
    pub(crate) fn required(&self, column: usize) -> bool {
        !self.columns[column].nullable || column == self.org || column == self.event_time
    }

    /// Whether the event time is a date, not an instant.
    pub(crate) fn event_time_is_date(&self) -> bool {
        self.columns[self.event_time].data_type == DataType::Date
    }
}
