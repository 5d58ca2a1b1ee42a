//! Consumers' records: by hand, and what two writers may do to each other.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use alluvium_core::{Namespace, ReadFrom};
use object_store::memory::InMemory;

use super::*;

fn life() -> Incarnation {
    Incarnation("0123456789abcdef0123456789abcdef".to_owned())
}

fn edit() -> DatasetName {
    DatasetName("edit".to_owned())
}

fn consumers() -> ConsumerStore {
    ConsumerStore::new(&Store::over(Arc::new(InMemory::new())), &Resolver::new(Namespace::default()), &life())
}

/// A token that the consumer `reports` was given when it stood at `record`.
fn given(kind: ReadKind, next: u64, record: u64) -> Token {
    given_to(kind, next, record, 1)
}

/// The same, given to one of several readers.
fn given_to(kind: ReadKind, next: u64, record: u64, reader: u64) -> Token {
    let from = ReadFrom::new("reports", record, ReaderId(reader));
    Token::new(kind, NextVersion(next), Some(from), Some(&life()), &edit())
}

/// A token that no consumer was given.
fn bare(next: u64) -> Token {
    Token::new(ReadKind::Rows, NextVersion(next), None, Some(&life()), &edit())
}

async fn moved(consumers: &ConsumerStore, token: &Token) -> Consumer {
    match consumers.advance("reports", &edit(), token, 2).await.unwrap() {
        Advanced::Moved(consumer) => consumer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_golden_file_reads_and_writes_as_it_is() {
    let golden = include_str!("../../tests/golden/consumer-v1.json").trim_end();
    let record: ConsumerRecord = read_versioned(golden.as_bytes(), CONSUMER_FORMAT, "consumer").unwrap();
    let at = Reached { next: NextVersion(12), set_by: 3, begun: true, token: Some("0170aa".to_owned()) };
    let beginning = Reached { set_by: 1, ..Reached::default() };
    assert_eq!((record.partitions.clone(), record.rows.clone(), record.removed), (at, beginning, false));
    assert_eq!((record.consumer.as_str(), &record.dataset, record.writer.as_str()), ("reports", &edit(), "6f1c0a"));
    assert_eq!(serde_json::to_string(&record).unwrap(), golden);
}

#[tokio::test]
async fn a_new_consumer_stands_at_the_beginning_and_is_registered_once() {
    let consumers = consumers();
    let first = consumers.register("reports", &edit(), 1).await.unwrap();
    assert_eq!((first.number, first.reached(ReadKind::Rows).next), (1, NextVersion(0)));
    assert_eq!(consumers.register("reports", &edit(), 2).await.unwrap(), first);
    assert_eq!(consumers.list().await.unwrap(), [first]);
    assert_eq!(consumers.find("other", &edit()).await.unwrap(), None);
}

#[tokio::test]
async fn the_two_positions_of_a_consumer_move_apart_from_each_other() {
    let consumers = consumers();
    consumers.register("reports", &edit(), 1).await.unwrap();
    moved(&consumers, &given(ReadKind::Rows, 5, 1)).await;
    // Read before the rows moved, and good all the same.
    let both = moved(&consumers, &given(ReadKind::Partitions, 3, 1)).await;
    assert_eq!((both.reached(ReadKind::Partitions).next, both.reached(ReadKind::Rows).next), (NextVersion(3), NextVersion(5)));
}

#[tokio::test]
async fn a_reader_that_read_before_another_one_acknowledged_is_stale() {
    let consumers = consumers();
    consumers.register("reports", &edit(), 1).await.unwrap();
    moved(&consumers, &given(ReadKind::Rows, 5, 1)).await;
    // Also one that read to the same place.
    for next in [5, 9] {
        let late = given_to(ReadKind::Rows, next, 1, 2);
        assert_eq!(consumers.advance("reports", &edit(), &late, 3).await.unwrap(), Advanced::Stale(NextVersion(5)));
    }
    moved(&consumers, &given_to(ReadKind::Rows, 9, 2, 2)).await;
    // Now the first one is late.
    let late = given(ReadKind::Rows, 9, 1);
    assert_eq!(consumers.advance("reports", &edit(), &late, 3).await.unwrap(), Advanced::Stale(NextVersion(9)));
}

#[tokio::test]
async fn one_reader_acknowledges_one_token_after_the_other_of_those_it_read_from_one_record() {
    let consumers = consumers();
    consumers.register("reports", &edit(), 1).await.unwrap();
    for next in [5, 6, 6, 9] {
        let token = given(ReadKind::Rows, next, 1);
        let advanced = consumers.advance("reports", &edit(), &token, 3).await.unwrap();
        assert!(matches!(advanced, Advanced::Moved(_) | Advanced::AlreadyThere(_)), "{advanced:?}");
    }
    assert_eq!(consumers.find("reports", &edit()).await.unwrap().unwrap().reached(ReadKind::Rows).next, NextVersion(9));
}

/// A token to `next` of a reader that went on with `since`.
fn gone_on(there: &Consumer, since: &Token, next: u64, reader: u64) -> Token {
    let from = there.read_from(since.kind, Some(since), ReaderId(reader));
    Token::new(since.kind, NextVersion(next), Some(from), Some(&life()), &edit())
}

async fn advanced(consumers: &ConsumerStore, token: &Token) -> Advanced {
    consumers.advance("reports", &edit(), token, 3).await.unwrap()
}

#[tokio::test]
async fn of_two_readers_that_go_on_with_one_token_one_advances() {
    let consumers = consumers();
    consumers.register("reports", &edit(), 1).await.unwrap();
    // Before and after it was acknowledged, and to the same or another place.
    for (acknowledged, nexts) in [(false, [9, 9]), (false, [7, 9]), (true, [12, 12]), (true, [14, 13])] {
        consumers.reset("reports", 2).await.unwrap();
        let there = consumers.find("reports", &edit()).await.unwrap().unwrap();
        let first = given(ReadKind::Rows, 5, there.number);
        let there = if acknowledged { moved(&consumers, &first).await } else { there };
        let [one, other] = [(nexts[0], 2), (nexts[1], 3)].map(|(next, reader)| gone_on(&there, &first, next, reader));
        moved(&consumers, &one).await;
        let late = advanced(&consumers, &other).await;
        assert!(matches!(late, Advanced::Stale(_) | Advanced::Older(_)), "{acknowledged}, {nexts:?}: {late:?}");
        // Who goes on with the late one's is late too.
        let there = consumers.find("reports", &edit()).await.unwrap().unwrap();
        let later = gone_on(&there, &other, 20, 4);
        assert_eq!(advanced(&consumers, &later).await, Advanced::Stale(NextVersion(nexts[0])), "{acknowledged}, {nexts:?}");
        moved(&consumers, &gone_on(&there, &one, 20, 5)).await;
    }
}

#[tokio::test]
async fn tokens_of_readers_that_go_on_with_each_others_are_acknowledged_in_their_order() {
    let consumers = consumers();
    let there = consumers.register("reports", &edit(), 1).await.unwrap();
    let first = given(ReadKind::Rows, 5, 1);
    let second = gone_on(&there, &first, 6, 2);
    let third = gone_on(&there, &second, 8, 3);
    for token in [&first, &second, &third] {
        moved(&consumers, token).await;
        assert!(matches!(advanced(&consumers, token).await, Advanced::AlreadyThere(_)));
    }
    // Left out: nobody else acknowledged anything since the first of these began.
    let there = consumers.find("reports", &edit()).await.unwrap().unwrap();
    let fourth = gone_on(&there, &third, 9, 4);
    let fifth = gone_on(&there, &fourth, 10, 5);
    moved(&consumers, &fifth).await;
}

#[tokio::test]
async fn a_reader_that_goes_on_with_a_token_of_one_that_went_further_itself_is_stale() {
    let consumers = consumers();
    let there = consumers.register("reports", &edit(), 1).await.unwrap();
    let on = gone_on(&there, &given(ReadKind::Rows, 5, 1), 9, 2);
    // As one that follows: the same reader.
    moved(&consumers, &given(ReadKind::Rows, 7, 1)).await;
    assert_eq!(advanced(&consumers, &on).await, Advanced::Stale(NextVersion(7)));
}

#[tokio::test]
async fn a_reading_begins_once_and_keeps_tokens_good_and_a_reset_begins_it_anew() {
    let consumers = consumers();
    assert_eq!(consumers.begin("reports", &edit(), ReadKind::Rows, 1).await.unwrap(), Begun::Unknown);
    consumers.register("reports", &edit(), 1).await.unwrap();
    assert_eq!(consumers.begin("reports", &edit(), ReadKind::Rows, 2).await.unwrap(), Begun::Now);
    assert_eq!(consumers.begin("reports", &edit(), ReadKind::Rows, 2).await.unwrap(), Begun::Before);
    assert_eq!(consumers.begin("reports", &edit(), ReadKind::Partitions, 2).await.unwrap(), Begun::Now);
    moved(&consumers, &given(ReadKind::Rows, 5, 1)).await;
    assert!(consumers.reset("reports", 3).await.unwrap());
    assert_eq!(consumers.begin("reports", &edit(), ReadKind::Rows, 4).await.unwrap(), Begun::Now);
}

#[tokio::test]
async fn the_same_token_again_changes_nothing_and_an_older_one_is_refused() {
    let consumers = consumers();
    consumers.register("reports", &edit(), 1).await.unwrap();
    let there = moved(&consumers, &bare(5)).await;
    assert_eq!(consumers.advance("reports", &edit(), &bare(5), 3).await.unwrap(), Advanced::AlreadyThere(there));
    assert_eq!(consumers.advance("reports", &edit(), &bare(4), 3).await.unwrap(), Advanced::Older(NextVersion(5)));
    assert_eq!(consumers.advance("nobody", &edit(), &bare(5), 3).await.unwrap(), Advanced::Unknown);
}

#[tokio::test]
async fn a_token_that_another_consumer_was_given_starts_this_one_there() {
    let consumers = consumers();
    consumers.register("reports", &edit(), 1).await.unwrap();
    let of_another =
        Token::new(ReadKind::Rows, NextVersion(8), Some(ReadFrom::new("audit", 1, ReaderId(1))), Some(&life()), &edit());
    moved(&consumers, &bare(5)).await;
    assert_eq!(moved(&consumers, &of_another).await.reached(ReadKind::Rows).next, NextVersion(8));
}

#[tokio::test]
async fn after_a_reset_tokens_read_before_it_are_stale() {
    let consumers = consumers();
    consumers.register("reports", &edit(), 1).await.unwrap();
    moved(&consumers, &given(ReadKind::Rows, 5, 1)).await;
    assert!(consumers.reset("reports", 3).await.unwrap());
    let at = consumers.find("reports", &edit()).await.unwrap().unwrap();
    assert_eq!((at.number, at.reached(ReadKind::Rows).next), (3, NextVersion(0)));
    let before = given(ReadKind::Rows, 9, 2);
    assert_eq!(consumers.advance("reports", &edit(), &before, 4).await.unwrap(), Advanced::Stale(NextVersion(0)));
    assert!(!consumers.reset("nobody", 3).await.unwrap());
}

#[tokio::test]
async fn a_removed_consumer_is_gone_and_its_name_starts_anew_without_reusing_a_number() {
    let consumers = consumers();
    consumers.register("reports", &edit(), 1).await.unwrap();
    assert!(consumers.remove("reports", 2).await.unwrap());
    assert!(!consumers.remove("reports", 2).await.unwrap());
    assert_eq!(consumers.list().await.unwrap(), []);
    assert_eq!(consumers.advance("reports", &edit(), &bare(5), 3).await.unwrap(), Advanced::Unknown);
    assert_eq!(consumers.register("reports", &edit(), 4).await.unwrap().number, 3);
    // What the removed one was given is not this one's.
    for kind in [ReadKind::Rows, ReadKind::Partitions] {
        let before = consumers.advance("reports", &edit(), &given(kind, 5, 1), 5).await.unwrap();
        assert_eq!(before, Advanced::Stale(NextVersion(0)));
        moved(&consumers, &given(kind, 5, 3)).await;
    }
}

#[tokio::test]
async fn a_writer_that_slept_while_old_records_were_deleted_writes_nothing_that_counts() {
    let consumers = consumers();
    let asleep = consumers.register("reports", &edit(), 1).await.unwrap();
    for next in 1..=30 {
        moved(&consumers, &bare(next)).await;
    }
    let directory = consumers.directory("reports", &edit()).unwrap();
    assert_eq!(consumers.numbers(&directory).await.unwrap(), (24..=31).collect::<Vec<_>>());
    let mut late = Consumer { number: asleep.number + 1, ..asleep };
    assert!(!consumers.write(&mut late).await.unwrap());
    assert_eq!(consumers.find("reports", &edit()).await.unwrap().unwrap().reached(ReadKind::Rows).next, NextVersion(30));
}

#[tokio::test]
async fn of_two_writers_of_one_record_one_wins() {
    let consumers = consumers();
    let first = consumers.register("reports", &edit(), 1).await.unwrap();
    let next = || Consumer { number: 2, ..first.clone() };
    let (mut one, mut other) = (next(), next());
    assert!(consumers.write(&mut one).await.unwrap());
    assert!(!consumers.write(&mut other).await.unwrap());
    // A record that follows at once does not make the one before it stale.
    moved(&consumers, &bare(5)).await;
    assert_eq!(consumers.find("reports", &edit()).await.unwrap().unwrap().number, 3);
}

#[tokio::test]
async fn records_of_a_former_life_of_the_namespace_do_not_count() {
    let store = Store::over(Arc::new(InMemory::new()));
    let names = Resolver::new(Namespace::default());
    let former = ConsumerStore::new(&store, &names, &Incarnation("f0".to_owned()));
    former.register("reports", &edit(), 1).await.unwrap();
    let now = ConsumerStore::new(&store, &names, &life());
    assert_eq!(now.find("reports", &edit()).await.unwrap(), None);
    assert_eq!(now.register("reports", &edit(), 2).await.unwrap().number, 2);
}

#[tokio::test]
async fn a_directory_whose_name_is_none_is_not_listed() {
    let consumers = consumers();
    let first = consumers.register("reports", &edit(), 1).await.unwrap();
    let stray = Path::from(consumers.resolver.consumers_dir()).join("no name").join("edit").join(format!("{:020}.json", 1));
    assert_eq!(consumers.store.put_new(&stray, Bytes::from_static(b"{}")).await.unwrap(), PutNew::Created);
    assert_eq!(consumers.list().await.unwrap(), [first]);
}

#[tokio::test]
async fn a_name_that_cannot_be_a_path_is_refused() {
    for name in ["", ".", "..", "a/b", "ü"] {
        assert_eq!(consumers().register(name, &edit(), 1).await.unwrap_err().kind(), Kind::Invalid, "{name:?}");
    }
    assert_eq!(consumers().remove("a/b", 1).await.unwrap_err().kind(), Kind::Invalid);
}
