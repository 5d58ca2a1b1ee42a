//! The resolver: names by hand, and that two different ones never become one.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::chain::{Attempt, Incarnation, Shard};
use crate::names::tests_support::{any_chain, any_dataset, any_job, any_key};

fn namespace(text: &str) -> Namespace {
    Namespace::parse(text).unwrap()
}

fn chain() -> ChainId {
    ChainId { incarnation: Incarnation("c0ffee".into()), job: Job::Ingest, dataset: DatasetName("edit".into()), shard: Shard(0) }
}

#[test]
fn every_name_is_spelled_as_documented() {
    let names = Resolver::new(namespace("dev"));
    let key = BatchKey { batch: BatchNumber(12), attempt: Attempt(3) };
    for (made, expected) in [
        (names.namespace_root(), "dev"),
        (names.namespace_file(), "dev/_alluvium/namespace.json"),
        (names.deleting_mark(), "dev/_alluvium/deleting.json"),
        (names.table(&TableName::DEAD_LETTERS), "dev/dead_letters"),
        (names.table(&TableName::from(&DatasetName("edit".into()))), "dev/edit"),
        (names.chain_dir(&chain()), "dev/_alluvium/chains/c0ffee/ingest/edit/0"),
        (names.record(&chain(), key), "dev/_alluvium/chains/c0ffee/ingest/edit/0/00000000000000000012.0003.json"),
        (names.done_mark(&chain(), key.batch), "dev/_alluvium/chains/c0ffee/ingest/edit/0/00000000000000000012.done.json"),
        (
            names.taken_segment(&chain(), BatchNumber(1), BatchNumber(64)),
            "dev/_alluvium/chains/c0ffee/ingest/edit/0/taken/00000000000000000001-00000000000000000064.taken",
        ),
        (names.lease("edit.optimize", 7).unwrap(), "dev/_alluvium/leases/edit.optimize/00000000000000000007.json"),
        (names.consumer_dir("reports", &DatasetName("edit".into())).unwrap(), "dev/_alluvium/consumers/reports/edit"),
        (names.floor_dir(&TableName::NOTIFICATIONS), "dev/_alluvium/floors/notifications"),
        (
            names.file_index(
                &TableName::from(&DatasetName("edit".into())),
                &IndexFile { chain: chain(), key, writer: "f00d".into() },
            ),
            "dev/_alluvium/indexes/edit/ingest-edit-0-00000000000000000012-0003-c0ffee-f00d.idx",
        ),
        (app_id(&chain()), "alluvium/c0ffee/ingest/edit/0"),
        (names.topic("engagements").unwrap(), "dev.engagements"),
        (names.topic("orders.created").unwrap(), "dev.orders.created"),
        (names.consumer_group("crm-lake").unwrap(), "dev.crm-lake"),
        (names.job_label(Job::Mutate, &DatasetName("edit".into())), "dev/mutate/edit"),
        (names.metric_label().to_owned(), "dev"),
    ] {
        assert_eq!(made, expected);
    }
    let default = Resolver::new(Namespace::default());
    assert_eq!(default.table(&TableName::NOTIFICATIONS), "default/notifications");
    assert_eq!(default.topic("engagements").unwrap(), "engagements");
    assert_eq!(default.consumer_group("crm-lake").unwrap(), "crm-lake");
    assert_eq!(default.job_label(Job::Mutate, &DatasetName("edit".into())), "mutate/edit");
}

#[test]
fn topics_that_kafka_refuses_are_refused() {
    let longest = "t".repeat(249);
    let default = Resolver::new(Namespace::default());
    assert_eq!(default.topic(&longest).unwrap(), longest);
    for name in ["", ".", "..", "a b", "a/b", "tópico", "a:b", "__consumer_offsets", &"t".repeat(250)] {
        assert!(default.topic(name).is_err(), "{name}");
    }
    let dev = Resolver::new(namespace("dev"));
    assert_eq!(dev.topic(&longest).unwrap_err().hint(), "245 are allowed in this namespace");
    assert_eq!(dev.topic(&longest[..245]).unwrap().len(), 249);
}

#[test]
fn a_topic_that_another_namespace_could_make_is_refused_in_default_unless_reserved() {
    let default = Resolver::new(Namespace::default());
    let error = default.topic("crm.events.v1").unwrap_err();
    assert_eq!(error.message(), "the topic \"crm.events.v1\" is also what the namespace \"crm\" makes of \"events.v1\"");
    assert!(error.hint().ends_with("list it in reserved_namespaces"));
    for name in ["CRM.events", "crm_eu.events", "crm-.events", "default.events", ".events"] {
        assert_eq!(default.topic(name).as_deref(), Ok(name), "no namespace can be spelled so");
    }
    let reserved = BTreeSet::from([namespace("crm")]);
    let promised = Resolver::with_reserved(Namespace::default(), reserved.clone()).unwrap();
    assert_eq!(promised.topic("crm.events.v1").as_deref(), Ok("crm.events.v1"));
    let broken = Resolver::with_reserved(namespace("crm"), reserved).unwrap_err();
    assert_eq!(broken.message(), "the project file promises never to use the namespace \"crm\"");
}

#[test]
fn leases_whose_name_is_no_part_of_a_path_are_refused() {
    let names = Resolver::new(Namespace::default());
    for name in ["", "..", "a/b", "a\\b", "a b", &"x".repeat(256)] {
        assert!(names.lease(name, 1).is_err(), "{name}");
    }
}

#[test]
fn files_of_a_chain_read_back_and_others_do_not() {
    let key = BatchKey { batch: BatchNumber(12), attempt: Attempt(3) };
    assert_eq!(ChainFile::parse("00000000000000000012.0003.json"), Some(ChainFile::Record(key)));
    assert_eq!(ChainFile::parse("00000000000000000012.done.json"), Some(ChainFile::Done(key.batch)));
    let segment = ChainFile::Taken { from: BatchNumber(1), to: BatchNumber(64) };
    assert_eq!(ChainFile::parse("00000000000000000001-00000000000000000064.taken"), Some(segment));
    for name in ["12.0003.json", "00000000000000000012.3.json", "00000000000000000012.json", "x.done.json", "", "1-2.taken"] {
        assert_eq!(ChainFile::parse(name), None, "{name}");
    }
}

fn any_namespace() -> impl Strategy<Value = Namespace> {
    prop_oneof![Just("default".to_owned()), "[ab0]", "[ab][ab-]{0,2}[ab]", "[a-z0-9]{40}"].prop_map(|text| namespace(&text))
}

/// Names of few letters, dots and slashes, so that accidental meetings are common.
fn any_name() -> impl Strategy<Value = String> {
    prop_oneof!["[ab0.]{1,6}", "[ab./ -]{1,6}", "(default|a|b)\\.[ab.]{1,4}"]
}

/// Every decorated name of one (namespace, name) pair, by kind; a refused name is absent.
fn decorated(ns: &Namespace, name: &str) -> Vec<(&'static str, String)> {
    let names = Resolver::new(ns.clone());
    let mut all = Vec::new();
    all.extend(names.topic(name).ok().map(|t| ("topic", t)));
    all.extend(names.consumer_group(name).ok().map(|g| ("group", g)));
    all.extend(names.lease(name, 1).ok().map(|l| ("path", l)));
    if let Ok(table) = TableName::parse(name) {
        all.push(("path", names.table(&table)));
        all.push(("path", names.chain_dir(&ChainId { dataset: DatasetName(name.to_owned()), ..chain() })));
        all.push(("job", names.job_label(Job::Ingest, &DatasetName(name.to_owned()))));
    }
    all
}

proptest! {
    #[test]
    fn different_pairs_never_share_a_decorated_name(
        pairs in prop::collection::hash_set((any_namespace(), any_name()), 2..40),
    ) {
        let mut owners = HashMap::new();
        for pair in &pairs {
            for made in decorated(&pair.0, &pair.1) {
                if let Some(other) = owners.insert(made.clone(), pair) {
                    prop_assert!(false, "{made:?} is made of {pair:?} and of {other:?}");
                }
            }
        }
    }

    #[test]
    fn what_default_leaves_alone_no_other_namespace_makes(ns in any_namespace(), name in any_name()) {
        let other = Resolver::new(ns.clone()).topic(&name);
        if let (false, Ok(made)) = (ns.is_default(), other) {
            prop_assert!(Resolver::new(Namespace::default()).topic(&made).is_err(), "{made}");
        }
    }

    #[test]
    fn decorated_topics_are_legal_in_kafka(ns in any_namespace(), name in "[a-c._-]{1,260}") {
        if let Ok(made) = Resolver::new(ns).topic(&name) {
            prop_assert!(made.len() <= 249 && made != "." && made != "..");
        }
    }

    #[test]
    fn record_names_sort_as_their_keys_and_before_the_done_mark(a in any_key(), b in any_key()) {
        let names = Resolver::new(Namespace::default());
        let (first, second) = (names.record(&chain(), a), names.record(&chain(), b));
        prop_assert_eq!(first.cmp(&second), a.cmp(&b));
        let done = names.done_mark(&chain(), a.batch);
        prop_assert!(first < done);
        prop_assert_eq!(done < second, a.batch < b.batch);
    }

    #[test]
    fn chains_never_share_an_app_id_or_a_path(a in any_chain(), b in any_chain(), dataset in any_dataset(), job in any_job()) {
        let near = ChainId { dataset, job, ..a.clone() };
        for other in [b, near] {
            prop_assert_eq!(app_id(&a) == app_id(&other), a == other);
            let names = Resolver::new(Namespace::default());
            prop_assert_eq!(names.chain_dir(&a) == names.chain_dir(&other), a == other);
        }
    }
}

#[test]
fn ledgers_of_earlier_purges_and_other_lives_are_older() {
    let life = Incarnation("ab".to_owned());
    let older = |name: &str| Resolver::is_older_ledger(name, &life, 2);
    for name in ["ab", "ab-1", "cd", "cd-7", "abc", "ab-x", "ab_3"] {
        assert!(older(name), "{name}");
    }
    assert!(!older("ab-2") && !older("ab-10"));
    assert!(!Resolver::is_older_ledger("ab", &life, 0));
}
