//! Before a topic's chains: how it is cut into shards, fixed once for good.

use alluvium_core::{Dataset, Error, KafkaSource, Kind, Result, SHARDS_FORMAT, Shard, SourceShards, default_shards};
use alluvium_lake::{fix_source_shards, in_place, source_shards};

use super::away::Away;
use super::intake::{KafkaIntake, Topic};
use crate::engine::Engine;
use crate::ingest::IngestOptions;

/// A dataset whose topic's shards are not known yet.
pub(in crate::ingest) struct Opening<'a> {
    engine: &'a Engine,
    dataset: &'a Dataset,
    source: &'a KafkaSource,
    options: IngestOptions,
    topic: String,
    group: String,
    away: Away,
}

impl<'a> Opening<'a> {
    pub(in crate::ingest) fn new(
        engine: &'a Engine,
        dataset: &'a Dataset,
        source: &'a KafkaSource,
        options: IngestOptions,
    ) -> Result<Self> {
        let topic = topic_name(engine, source)?;
        let group = group_name(engine, dataset)?;
        Ok(Self { engine, dataset, source, options, topic, group, away: Away::default() })
    }

    /// The shards of the topic; `None` while the broker does not answer.
    pub(in crate::ingest) async fn turn(&mut self) -> Result<Option<Vec<KafkaIntake>>> {
        let Engine { store, resolver, broker, .. } = self.engine;
        let cut = match source_shards(store, resolver, &self.dataset.name).await? {
            Some(cut) => cut,
            None => {
                let facts = in_place(|| broker.topic(&self.topic));
                let facts = match facts {
                    Ok(facts) => facts,
                    Err(e) if e.kind() == Kind::Unavailable => {
                        self.away.note(self.engine, &self.dataset.name.0, self.options.mode, e)?;
                        return Ok(None);
                    }
                    Err(e) => return Err(e.context(format!("dataset {}", self.dataset.name))),
                };
                self.away.over(self.engine, &self.dataset.name.0);
                let shards = self.source.shards.unwrap_or_else(|| default_shards(facts.partitions));
                let cut = SourceShards { format: SHARDS_FORMAT, topic: self.topic.clone(), shards };
                fix_source_shards(store, resolver, &self.dataset.name, &cut).await?
            }
        };
        if cut.topic != self.topic {
            return Err(Error::new(
                Kind::Conflict,
                format!(
                    "dataset {}: it has read the topic {}, and the project file says {}",
                    self.dataset.name, cut.topic, self.topic
                ),
            )
            .hint(
                "a dataset keeps its topic, as offsets of another mean nothing to it: give the other topic a dataset of its own",
            ));
        }
        if let Some(wanted) = self.source.shards.filter(|wanted| *wanted != cut.shards) {
            self.engine.observer.warning(&format!(
                "dataset {}: its topic is read in {} shards for good, not in the {wanted} of the project file",
                self.dataset.name, cut.shards
            ));
        }
        let topic = Topic {
            name: self.topic.clone(),
            group: self.group.clone(),
            shards: cut.shards,
            start: self.source.start,
            tombstones: self.source.tombstones,
        };
        Ok(Some((0..cut.shards).map(|shard| KafkaIntake::new(topic.clone(), Shard(shard), self.options)).collect()))
    }
}

/// The topic as the cluster knows it.
pub(super) fn topic_name(engine: &Engine, source: &KafkaSource) -> Result<String> {
    engine.resolver.topic(&source.topic).map_err(|e| Error::new(Kind::Invalid, e.message().to_owned()).hint(e.hint()))
}

/// The consumer group whose committed offsets tell other tools how far we are.
fn group_name(engine: &Engine, dataset: &Dataset) -> Result<String> {
    let name = match engine.project.kafka.get("group.id") {
        Some(group) => group.to_owned(),
        None => format!("alluvium_{}_{}", engine.project.name, dataset.name),
    };
    engine.resolver.consumer_group(&name).map_err(|e| Error::new(Kind::Invalid, e.message().to_owned()).hint(e.hint()))
}
