//! What comes to a world from outside: files, records of a topic; and what goes there.

use std::time::Duration;

use super::asked::RequestsPlan;
use super::cluster::TOPIC;
use super::dice::hash;
use super::input::SourceFile;
use super::run::Stage;
use super::topic::{Expired, TopicPlan};

/// The ids of the topic, and of the one made in its place.
pub(super) const TOPIC_IDS: [&str; 2] = ["the topic", "another topic"];

impl Stage {
    pub(super) fn files_come(&self) {
        for (number, file) in self.files() {
            let (file, directory) = (file.clone(), self.directory.clone());
            self.world.later(Duration::from_millis(file.comes_ms), hash(&("file", number)), move |_| {
                let _a_file_that_did_not_come_is_missed_later = file.write(&directory);
            });
        }
    }

    pub(super) fn requests_come(&self, requests: &RequestsPlan) {
        for (number, bundle) in requests.bundles.iter().enumerate().filter(|_| requests.in_files) {
            let (bundle, directory) = (bundle.clone(), self.directory.clone());
            self.world.later(Duration::from_millis(bundle.comes_ms), hash(&("asked", number)), move |_| {
                let _a_file_that_did_not_come_is_missed_later = bundle.write(&directory);
            });
        }
    }

    pub(super) fn records_come(&self, topic: &TopicPlan) {
        let id = |life: usize| topic.tells_ids.then_some(TOPIC_IDS[life]);
        self.cluster.create(TOPIC, self.plan.files.len(), id(0));
        self.cluster.repeat_after(topic.repeat_after);
        let ends_ms = topic.anew.map_or(u64::MAX, |anew| anew.at_ms);
        for (partition, file) in self.files() {
            self.partition_comes(topic, partition, file, ends_ms);
        }
        if let Some((from, away)) = topic.away {
            for (at, gone) in [(from, true), (from + away, false)] {
                let cluster = self.cluster.clone();
                self.world.later(Duration::from_millis(at), hash(&("away", at)), move |_| cluster.set_away(gone));
            }
        }
        for expiry in topic.expiries.iter().filter(|e| !self.without.files.contains(&e.partition)) {
            let (stage, expiry) = (self.clone(), *expiry);
            // Behind all records that come at the same moment.
            self.world.later(Duration::from_millis(expiry.at_ms), u64::MAX, move |inner| {
                let Some((low, high)) = stage.cluster.bounds(TOPIC, expiry.partition) else { return };
                let low = low + (high - low) * expiry.part.cast_signed() / 1000;
                stage.cluster.expire(TOPIC, expiry.partition, low);
                let partition = i64::try_from(expiry.partition).unwrap_or(0);
                stage.expired().push(Expired { at: inner.now, partition, low });
                inner.tell(|| format!("partition {partition}: what stood before offset {low} expires"), hash(&(partition, low)));
            });
        }
        if let Some(anew) = topic.anew {
            let (cluster, partitions, id) = (self.cluster.clone(), self.plan.anew.len(), id(1));
            self.world.later(Duration::from_millis(anew.at_ms), 0, move |inner| {
                cluster.delete(TOPIC);
                inner.tell(|| "the topic is deleted".to_owned(), hash(&"deleted"));
            });
            let cluster_made = self.cluster.clone();
            self.world.later(Duration::from_millis(anew.at_ms + anew.missing_ms), 0, move |inner| {
                cluster_made.create(TOPIC, partitions, id);
                inner.tell(|| "the topic is made anew".to_owned(), hash(&"made anew"));
            });
            for (partition, file) in self.plan.anew.iter().enumerate().filter(|(i, _)| !self.without.files.contains(i)) {
                self.partition_comes(topic, partition, file, u64::MAX);
            }
        }
    }

    /// The records of a partition come, but for those that would come at `ends_ms` or later.
    fn partition_comes(&self, topic: &TopicPlan, partition: usize, file: &SourceFile, ends_ms: u64) {
        for i in 0..file.records.len() {
            let (cluster, line, gap_after) = (self.cluster.clone(), file.line(i), file.gap_after);
            let at_ms = file.comes_ms + topic.pace_ms * i as u64;
            if at_ms >= ends_ms {
                return;
            }
            // Records of one partition keep their order whatever comes at the same moment.
            let turn = ((partition as u64) << 32) + i as u64;
            self.world.later(Duration::from_millis(at_ms), turn, move |_| {
                cluster.send(TOPIC, partition, Some(&line));
                if gap_after > 0 && (i + 1) % gap_after == 0 {
                    cluster.gap(TOPIC, partition, 1);
                }
            });
        }
    }

    /// The files, or partitions, of the world that were not left out.
    pub(super) fn files(&self) -> impl Iterator<Item = (usize, &SourceFile)> {
        self.plan.files.iter().enumerate().filter(|(i, _)| !self.without.files.contains(i))
    }
}
