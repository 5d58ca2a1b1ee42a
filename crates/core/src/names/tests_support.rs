//! Arbitrary names for property tests.

use proptest::prelude::*;

use crate::chain::{Attempt, BatchKey, BatchNumber, ChainId, Incarnation, Job, Shard};
use crate::dataset::DatasetName;

pub fn any_job() -> impl Strategy<Value = Job> {
    prop::sample::select(vec![Job::Ingest, Job::Mutate, Job::Retain, Job::Optimize, Job::Vacuum])
}

/// Names made to collide: few characters, dashes and digits in every place.
pub fn any_dataset() -> impl Strategy<Value = DatasetName> {
    prop_oneof!["[ab][ab0_-]{0,4}", "[A-Za-z][A-Za-z0-9_-]{95,99}"].prop_map(DatasetName)
}

pub fn any_chain() -> impl Strategy<Value = ChainId> {
    ("[0-9a-f]{32}", any_job(), any_dataset(), any::<u32>()).prop_map(|(incarnation, job, dataset, shard)| ChainId {
        incarnation: Incarnation(incarnation),
        job,
        dataset,
        shard: Shard(shard),
    })
}

pub fn any_key() -> impl Strategy<Value = BatchKey> {
    (prop_oneof![1u64..20, 1..=u64::MAX], 0u16..=1023)
        .prop_map(|(batch, attempt)| BatchKey { batch: BatchNumber(batch), attempt: Attempt(attempt) })
}
