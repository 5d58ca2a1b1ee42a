//! A process of a world that is not ours: another program that writes checkpoints and cleans up logs.

use std::collections::BTreeMap;

use alluvium_lake::{DeltaLog, Store};
use object_store::path::Path;

use super::dice::{Dice, hash};
use super::plan::Plan;
use super::world::{Inner, World};

/// The tables of a world.
const TABLES: [&str; 3] = ["edit", "dead_letters", "notifications"];
/// Those of a world where requests come.
const TABLES_AND_REQUESTS: [&str; 6] = ["edit", "dead_letters", "notifications", "requests", "retries", "_alluvium/outcomes"];

pub(super) fn tables(plan: &Plan) -> &'static [&'static str] {
    if plan.requests.is_some() { &TABLES_AND_REQUESTS } else { &TABLES }
}

/// One round of the other program: a checkpoint of a table's newest version, and a cleanup below it that keeps every version from
/// the base of any unfinished record on.
pub(super) async fn clean_up(world: &World, plan: &Plan, store: &Store, dice: &mut Dice) {
    let table = dice.one_of(tables(plan));
    let directory = Path::from(format!("default/{table}/_delta_log"));
    let Some(newest) = entries(&world.inner(), &directory).last_key_value().map(|(v, _)| *v) else { return };
    let log = DeltaLog::new(store, Path::from(format!("default/{table}")));
    if log.checkpoint(newest).await.is_err() {
        return;
    }
    let mut keep_from = if dice.thousandths(500) { newest } else { newest + 1 };
    let mut inner = world.inner();
    let now = inner.now;
    let all = entries(&inner, &directory);
    if let Some(recorded_at) = oldest_unfinished(&inner) {
        let base = all.iter().filter(|(_, (_, put_at))| *put_at < recorded_at).map(|(version, _)| *version).max();
        keep_from = keep_from.min(base.unwrap_or(0));
    }
    let removable: Vec<Path> = all.range(..keep_from).map(|(_, (path, _))| path.clone()).collect();
    for path in removable {
        if let Some(bytes) = inner.bucket.get(&path).map(|o| o.bytes.clone()) {
            // What was put into a name that had been free is no part of the history.
            inner.cleaned.entry(path.clone()).or_insert(bytes);
            inner.bucket.delete(&path, now);
        }
    }
    drop(inner);
    world.tell(
        || format!("another program writes a checkpoint of version {newest} of {table} and cleans up below"),
        hash(&(table, newest)),
    );
}

/// The entries of a log: their paths, and when they were put.
fn entries(inner: &Inner, directory: &Path) -> BTreeMap<u64, (Path, u64)> {
    let version = |path: &Path| path.filename()?.strip_suffix(".json").filter(|v| v.len() == 20)?.parse::<u64>().ok();
    let all = inner.bucket.list(Some(directory), inner.now);
    all.filter_map(|(path, object)| Some((version(path)?, (path.clone(), object.put_at)))).collect()
}

/// When the oldest record was put whose batch is not marked as done.
pub(super) fn oldest_unfinished(inner: &Inner) -> Option<u64> {
    let chains = Path::from("default/_alluvium/chains");
    let all: Vec<(String, u64)> =
        inner.bucket.list(Some(&chains), inner.now).map(|(path, o)| (path.to_string(), o.put_at)).collect();
    let batch = |path: &str| path.rsplit_once('/').and_then(|(dir, name)| Some(format!("{dir}/{}", name.split_once('.')?.0)));
    let done: Vec<String> = all.iter().filter(|(p, _)| p.ends_with(".done.json")).filter_map(|(p, _)| batch(p)).collect();
    let records = all.iter().filter(|(p, _)| p.ends_with(".json") && !p.ends_with(".done.json"));
    records.filter(|(p, _)| batch(p).is_some_and(|b| !done.contains(&b))).map(|(_, at)| *at).min()
}
