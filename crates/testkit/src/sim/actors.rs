//! Processes of a world that are not ours yet, or never will be: vacuum by the four steps of the protocol, and another program that
//! writes checkpoints and cleans up logs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use alluvium_core::{
    BatchRecord, DataFile, Kind, RECORD_FORMAT, RecordBody, Resolver, Result, TxnVersion, app_id, parse_data_file,
};
use alluvium_lake::{ChainStore, DeltaLog, Store};
use futures::TryStreamExt;
use object_store::ObjectStore;
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

/// One vacuum of all tables. `retain`: younger files are left alone.
pub(super) async fn vacuum(world: &World, plan: &Plan, store: &Store, resolver: &Resolver, retain: Duration) -> Result<()> {
    for table in tables(plan) {
        let log = DeltaLog::new(store, Path::from(format!("{}/{table}", resolver.namespace())));
        // 1: the files.
        let found: Vec<_> = match store.object_store().list(Some(log.root())).try_collect().await {
            Ok(found) => found,
            Err(_) => continue,
        };
        let now = super::store::time(world.now());
        let old = found.into_iter().filter(|m| (now - m.last_modified).to_std().is_ok_and(|age| age >= retain));
        let names: Vec<(String, DataFile)> = old
            .filter_map(|m| {
                let name = m.location.filename()?.to_owned();
                let parsed = parse_data_file(&name)?;
                Some((name, parsed))
            })
            .collect();
        if names.is_empty() || !log.exists().await? {
            continue;
        }
        let live = live(&log).await?;
        let mut dead = Vec::new();
        for (name, file) in names.into_iter().filter(|(name, _)| !live.contains(name)) {
            if *table == "notifications" {
                dead.push((name, file, None));
                continue;
            }
            // 2: its record; where there is none, void.
            let chain = ChainStore::new(store, resolver, file.chain.clone());
            let listed = loop {
                match chain.record(file.key).await? {
                    Some(BatchRecord { body: RecordBody::Void, .. }) => break false,
                    Some(BatchRecord { body: RecordBody::Intent(intent), .. }) => {
                        let all = [&intent.data, &intent.dead_letters, &intent.retries, &intent.outcomes];
                        break all.iter().flat_map(|files| &files.adds).any(|a| a.path == name);
                    }
                    None => {
                        let void = BatchRecord {
                            format: RECORD_FORMAT,
                            chain: file.chain.clone(),
                            batch: file.key.batch,
                            attempt: file.key.attempt,
                            body: RecordBody::Void,
                        };
                        let _what_stands_there_is_read = chain.write(&void).await?;
                    }
                }
            };
            dead.push((name, file, Some(listed)));
        }
        // 3: only now a fresh snapshot. What is settled is settled before it: what settles later may make its files live later.
        let mut settled = BTreeMap::new();
        for (_, file, _) in &dead {
            if let Entry::Vacant(of_chain) = settled.entry(app_id(&file.chain)) {
                let carried = log.state(of_chain.key()).await?.and_then(|s| s.txn()).and_then(TxnVersion::key);
                of_chain.insert(carried.map(|k| k.batch));
            }
        }
        let live = self::live(&log).await?;
        // 4: what is not live, and void, not listed, or settled.
        for (name, file, listed) in dead {
            let settled = settled.get(&app_id(&file.chain)).is_some_and(|batch| *batch >= Some(file.key.batch));
            if !live.contains(&name) && (listed == Some(false) || settled) {
                store.delete(&log.data_path(&name)).await?;
            }
        }
    }
    Ok(())
}

async fn live(log: &DeltaLog) -> Result<Vec<String>> {
    match log.live_files(None).await {
        Ok(files) => Ok(files.into_iter().map(|f| f.path).collect()),
        Err(e) if e.kind() == Kind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
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
