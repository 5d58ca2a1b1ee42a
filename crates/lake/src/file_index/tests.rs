//! File indexes against sets of ids, the golden file, damage, and the stager that makes them.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium_core::{
    Attempt, BatchKey, BatchNumber, ChainId, Column, DataType, DatasetName, Incarnation, IndexFile, Job, Kind, Namespace,
    Resolver, Shard, TableName, TableSpec, data_file,
};
use arrow::array::{ArrayRef, Int32Array, Int64Array, LargeStringArray, RecordBatch, StringArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType as ArrowType;
use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::log::DeltaLog;
use crate::stage::{StageIndex, StageSettings, Stager};
use crate::store::{PutNew, Store};

const GOLDEN: &[u8] = include_bytes!("../../tests/golden/file-index-v1.idx");
const FIELDS: [&str; 2] = ["lead_id", "user_id"];

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn memory() -> Store {
    Store::over(Arc::new(InMemory::new()))
}

fn resolver() -> Resolver {
    Resolver::new(Namespace::default())
}

fn table() -> TableName {
    TableName::parse("edit").unwrap()
}

fn reader(store: &Store) -> IndexReader {
    IndexReader::new(store, &resolver(), table())
}

fn index_file(batch: u64) -> IndexFile {
    let incarnation = Incarnation("c0ffee".to_owned());
    let chain = ChainId { incarnation, job: Job::Ingest, dataset: DatasetName("edit".to_owned()), shard: Shard(0) };
    IndexFile { chain, key: BatchKey { batch: BatchNumber(batch), attempt: Attempt::FIRST }, writer: "f00d".to_owned() }
}

fn live(batch: u64, seq: u32) -> String {
    let IndexFile { chain, key, writer } = index_file(batch);
    data_file(&chain, key, &writer, seq)
}

fn builder() -> IndexBuilder {
    IndexBuilder::new(FIELDS.map(str::to_owned).to_vec())
}

async fn put(store: &Store, batch: u64, bytes: Bytes) {
    let path = Path::from(resolver().file_index(&table(), &index_file(batch)));
    assert_eq!(store.put_new(&path, bytes).await.unwrap(), PutNew::Created);
}

fn maybe(field: &str, ids: &[&str]) -> MayHold {
    MayHold::Maybe(SortedHashes::of(field, ids).as_slice().to_vec())
}

#[test]
fn the_hash_of_an_id_is_what_another_program_makes_it() {
    // xxhash.xxh3_64_intdigest(b"lead_id\x0000Q1") >> 16, by Python's xxhash.
    assert_eq!(IdHash::of("lead_id", "00Q1"), IdHash(0x83ab_f1c0_ba3f));
    assert_ne!(IdHash::of("lead_id", "00Q1"), IdHash::of("user_id", "00Q1"));
}

#[tokio::test]
async fn the_golden_index_reads_and_writes_as_it_is() {
    let builder = builder();
    let (mut later, mut first) = (builder.file(), builder.file());
    later.add_column("user_id", &Int64Array::from(vec![Some(42), None, Some(i64::MAX), Some(42)])).unwrap();
    first.add_column("lead_id", &StringArray::from(vec![Some("00Q1"), Some("00Q2"), None, Some("00Q1")])).unwrap();
    first.add_originals(&StringArray::from(vec![None, Some(r#"{"lead_id":"0031","other":[1]}"#)])).unwrap();
    first.add_originals(&StringArray::from(vec![r#"{"user_id":-7,"lead_id":null}"#])).unwrap();
    first.add_texts("user_id", ["42"]);
    builder.add(3, later);
    builder.add(0, first);
    assert_eq!(Bytes::from(builder.finish().unwrap().unwrap()), GOLDEN);

    let store = memory();
    put(&store, 1, Bytes::from_static(GOLDEN)).await;
    let files = [live(1, 3), live(1, 0), live(1, 1), live(2, 0)];
    let asked = SortedHashes::of("lead_id", ["0031", "00Q9", "00Q1", "42"]);
    let answers = reader(&store).files_that_may_hold(&files, "lead_id", &asked).await.unwrap();
    assert_eq!(answers, [MayHold::No, maybe("lead_id", &["0031", "00Q1"]), MayHold::Unknown, MayHold::Unknown]);
    let asked = SortedHashes::of("user_id", ["-7", "9223372036854775807"]);
    let answers = reader(&store).files_that_may_hold(&files[..2], "user_id", &asked).await.unwrap();
    assert_eq!(answers, [maybe("user_id", &["9223372036854775807"]), maybe("user_id", &["-7"])]);
}

#[tokio::test]
async fn files_of_other_programs_and_fields_without_an_index_are_unknown() {
    let store = memory();
    put(&store, 1, Bytes::from_static(GOLDEN)).await;
    let asked = SortedHashes::of("lead_id", ["00Q1"]);
    let spark = "part-00000-67e55044-c000.snappy.parquet".to_owned();
    let answers = reader(&store).files_that_may_hold(&[spark, live(1, 0)], "lead_id", &asked).await.unwrap();
    assert_eq!(answers, [MayHold::Unknown, maybe("lead_id", &["00Q1"])]);
    let answers = reader(&store).files_that_may_hold(&[live(1, 0)], "contact_id", &asked).await.unwrap();
    assert_eq!(answers, [MayHold::Unknown]);
}

#[test]
fn the_same_ids_in_any_type_of_column_have_the_same_hashes() {
    let texts: Vec<Option<&str>> = vec![Some("7"), Some("-12"), Some("7"), None, Some("0")];
    let numbers: Vec<Option<i64>> = texts.iter().map(|text| text.map(|t| t.parse().unwrap())).collect();
    let dictionary = ArrowType::Dictionary(Box::new(ArrowType::Int32), Box::new(ArrowType::Utf8));
    let columns: [ArrayRef; 6] = [
        Arc::new(StringArray::from(texts.clone())),
        Arc::new(LargeStringArray::from(texts.clone())),
        Arc::new(StringViewArray::from(texts.clone())),
        Arc::new(Int64Array::from(numbers.clone())),
        Arc::new(numbers.iter().map(|n| n.map(|n| n as i32)).collect::<Int32Array>()),
        cast(&StringArray::from(texts), &dictionary).unwrap(),
    ];
    let indexes = columns.map(|column| {
        let builder = builder();
        let mut ids = builder.file();
        ids.add_column("lead_id", &column).unwrap();
        builder.add(0, ids);
        Bytes::from(builder.finish().unwrap().unwrap())
    });
    assert!(indexes.iter().all(|index| *index == indexes[0]));
    let mut ids = builder().file();
    let of_another_type = cast(&Int64Array::from(vec![1]), &ArrowType::Float64).unwrap();
    assert_eq!(ids.add_column("lead_id", &of_another_type).unwrap_err().kind(), Kind::Internal);
    for wrong in ["[]", "{", r#"{"lead_id":{}}"#] {
        assert_eq!(ids.add_originals(&StringArray::from(vec![wrong])).unwrap_err().kind(), Kind::Internal, "{wrong}");
    }
}

/// Ids by batch, file and field.
type Files = BTreeMap<(u64, u32), [BTreeSet<u16>; 2]>;

fn any_files() -> impl Strategy<Value = Files> {
    let ids = || proptest::collection::btree_set(0_u16..500, 0..80);
    proptest::collection::btree_map((1_u64..5, 0_u32..6), (ids(), ids()).prop_map(|(a, b)| [a, b]), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn answers_are_those_of_sets_of_ids(
        files in any_files(), asked in proptest::collection::btree_set(0_u16..600, 0..40), lost in 1_u64..6,
    ) {
        let hashes = FIELDS.map(|field| SortedHashes::of(field, asked.iter().map(u16::to_string)));
        let expected = FIELDS.iter().enumerate().map(|(number, field)| {
            let answer = |((batch, _), ids): (&(u64, u32), &[BTreeSet<u16>; 2])| {
                let hits: Vec<String> = ids[number].intersection(&asked).map(u16::to_string).collect();
                match hits.is_empty() {
                    _ if *batch == lost => MayHold::Unknown,
                    true => MayHold::No,
                    false => maybe(field, &hits.iter().map(String::as_str).collect::<Vec<_>>()),
                }
            };
            files.iter().map(answer).collect::<Vec<_>>()
        });
        let answers = runtime().block_on(async {
            let store = memory();
            for batch in (1..5).filter(|batch| *batch != lost) {
                let builder = builder();
                for ((_, seq), ids) in files.iter().filter(|((of, _), _)| *of == batch) {
                    let mut file = builder.file();
                    for (field, ids) in FIELDS.iter().zip(ids) {
                        file.add_column(field, &ids.iter().map(|id| Some(i64::from(*id))).collect::<Int64Array>()).unwrap();
                    }
                    builder.add(*seq, file);
                }
                if let Some(bytes) = builder.finish().unwrap().map(Bytes::from) {
                    put(&store, batch, bytes).await;
                }
            }
            let live: Vec<String> = files.keys().map(|(batch, seq)| live(*batch, *seq)).collect();
            // Each file is asked about one field more than the one before it, from none on.
            let asked: Vec<_> = FIELDS.into_iter().zip(&hashes).collect();
            let live: Vec<(&str, &[Question<'_>])> =
                live.iter().enumerate().map(|(at, file)| (file.as_str(), &asked[..at % (FIELDS.len() + 1)])).collect();
            reader(&store).files_that_may_hold_any(&live).await.unwrap()
        });
        let expected: Vec<Vec<MayHold>> = expected.collect();
        for (at, answers) in answers.into_iter().enumerate() {
            let of_file: Vec<MayHold> = expected.iter().map(|of_field| of_field[at].clone()).collect();
            prop_assert_eq!(&answers, &of_file[..at % (FIELDS.len() + 1)]);
        }
    }

    #[test]
    fn a_damaged_index_is_as_good_as_a_lost_one(at in any::<prop::sample::Index>(), flip in 1_u8..=255, cut in any::<prop::sample::Index>()) {
        let at = at.index(GOLDEN.len());
        let mut bytes = GOLDEN.to_vec();
        bytes[at] ^= flip;
        let newer = bytes[GOLDEN.len() - 12..GOLDEN.len() - 8] > [0, 0, 0, 1][..];
        let asked = FIELDS.map(|field| SortedHashes::of(field, ["00Q1", "42"]));
        for (bytes, refused) in [(bytes, newer), (GOLDEN[..cut.index(GOLDEN.len())].to_vec(), false)] {
            let answers = runtime().block_on(async {
                let store = memory();
                put(&store, 1, Bytes::from(bytes)).await;
                let asked: Vec<_> = FIELDS.into_iter().zip(&asked).collect();
                let live = [live(1, 0), live(1, 3)];
                reader(&store).files_that_may_hold_any(&[(&live[0], &asked), (&live[1], &asked)]).await
            });
            match answers {
                Err(e) => prop_assert_eq!((e.kind(), refused), (Kind::Unsupported, true)),
                Ok(answers) => prop_assert_eq!((answers, refused), (vec![vec![MayHold::Unknown; 2]; 2], false)),
            }
        }
    }
}

#[tokio::test]
async fn of_a_large_index_single_sections_are_read() {
    let (store, builder) = (memory(), builder());
    let ids_of = |seq: u32| (0..20_000).map(move |n| format!("{seq}/{n}"));
    for seq in 0..20 {
        let mut ids = builder.file();
        ids.add_column("lead_id", &ids_of(seq).map(Some).collect::<StringArray>()).unwrap();
        ids.add_column("user_id", &StringArray::from(vec!["everywhere"; 3])).unwrap();
        builder.add(seq, ids);
    }
    put(&store, 1, Bytes::from(builder.finish().unwrap().unwrap())).await;
    let files: Vec<String> = (0..20).map(|seq| live(1, seq)).collect();
    let asked = SortedHashes::of("lead_id", ["7/19999", "7/0", "13/5", "13/20000"]);
    let answers = reader(&store).files_that_may_hold(&files, "lead_id", &asked).await.unwrap();
    for (seq, answer) in answers.into_iter().enumerate() {
        let expected = match seq {
            7 => maybe("lead_id", &["7/0", "7/19999"]),
            13 => maybe("lead_id", &["13/5"]),
            _ => MayHold::No,
        };
        assert_eq!(answer, expected, "file {seq}");
    }
    let all = SortedHashes::of("lead_id", ids_of(3));
    let answers = reader(&store).files_that_may_hold(&files[2..4], "lead_id", &all).await.unwrap();
    assert_eq!(answers, [MayHold::No, MayHold::Maybe(all.as_slice().to_vec())]);
    let everywhere = SortedHashes::of("user_id", ["everywhere"]);
    let answers = reader(&store).files_that_may_hold(&files[..1], "user_id", &everywhere).await.unwrap();
    assert_eq!(answers, [maybe("user_id", &["everywhere"])]);
}

fn spec() -> TableSpec {
    let column = |name: &str, data_type| Column { name: name.to_owned(), data_type, nullable: true };
    let columns = vec![
        column("org_id", DataType::String),
        column("lead_id", DataType::String),
        column("user_id", DataType::Long),
        column("score", DataType::Double),
        column("_original", DataType::String),
    ];
    TableSpec {
        name: table(),
        columns,
        partition_by: vec!["org_id".to_owned()],
        target_file_bytes: 1 << 20,
        ..TableSpec::notifications()
    }
}

fn stager(store: &Store, fields: &[&str]) -> Stager {
    let fields = fields.iter().map(|field| (*field).to_owned()).collect();
    let IndexFile { chain, key, .. } = index_file(1);
    let index = Some(StageIndex { resolver: resolver(), fields });
    let log = DeltaLog::new(store, Path::from(resolver().table(&table())));
    Stager::new(&log, &spec(), StageSettings { chain, key, now_ms: 0, org: None, files_in_flight: 4, index })
}

/// Rows of three organisations: rows of the last had another lead before.
fn rows() -> RecordBatch {
    let columns: [(&str, ArrayRef); 5] = [
        ("org_id", Arc::new(StringArray::from(vec!["a", "b", "a", "c"]))),
        ("lead_id", Arc::new(StringArray::from(vec![Some("1"), Some("2"), None, Some("3")]))),
        ("user_id", Arc::new(Int64Array::from(vec![10, 20, 10, 30]))),
        ("score", Arc::new(arrow::array::Float64Array::from(vec![0.5; 4]))),
        ("_original", Arc::new(StringArray::from(vec![None, None, None, Some(r#"{"lead_id":"2"}"#)]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn staged_files_come_with_an_index_of_current_and_original_ids() {
    let store = memory();
    let stager = stager(&store, &["lead_id", "score", "user_id", "no_such_field"]);
    crate::blocking::in_place(|| stager.stage(vec![rows()])).unwrap();
    let (files, _) = stager.finish().await.unwrap();
    let live: Vec<String> = files.adds.iter().map(|a| a.path.clone()).collect();
    let orgs: Vec<&str> = files.adds.iter().map(|a| a.partition_values[0].1.as_deref().unwrap()).collect();
    for (field, id, holders) in [("lead_id", "2", vec!["b", "c"]), ("lead_id", "3", vec!["c"]), ("user_id", "10", vec!["a"])] {
        let hashes = SortedHashes::of(field, [id]);
        let answers = reader(&store).files_that_may_hold(&live, field, &hashes).await.unwrap();
        let expected = orgs.iter().map(|org| if holders.contains(org) { maybe(field, &[id]) } else { MayHold::No });
        assert_eq!(answers, expected.collect::<Vec<_>>(), "{field} {id}");
    }
    let of_score = reader(&store).files_that_may_hold(&live, "score", &SortedHashes::of("score", ["0.5"])).await.unwrap();
    assert_eq!(of_score, [MayHold::Unknown, MayHold::Unknown, MayHold::Unknown]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_swept_leaves_no_index_and_one_without_indexed_fields_has_none() {
    let store = memory();
    for fields in [&["lead_id"][..], &["score"]] {
        let stager = stager(&store, fields);
        let sweep = stager.sweep();
        crate::blocking::in_place(|| stager.stage(vec![rows()])).unwrap();
        stager.finish().await.unwrap();
        let indexes = store.list(&Path::from(resolver().file_index_dir(&table())), None).await.unwrap();
        assert_eq!(indexes.len(), usize::from(fields == ["lead_id"]));
        sweep.run().await;
        assert_eq!(store.list(&Path::from("default"), None).await.unwrap(), []);
    }
}
