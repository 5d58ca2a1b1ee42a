//! Projects on object stores: every command, what other readers see, faulty networks, wrong settings, and how many requests are made.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use alluvium_testkit::{Outcome, Proxy, Request, StoreKind, TestStore};
use futures::TryStreamExt;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;

use crate::site::{Site, block_on};

const SERVERS: [StoreKind; 2] = [StoreKind::S3, StoreKind::Azure];

/// One dataset, `edit`, read from a place in the same store.
fn yaml(store: &TestStore, more: &str) -> String {
    format!(
        "project: stores
storage: '{}'
datasets:
  edit:
    source: {{ files: {{ path: '{}/edit', format: json{more} }} }}
    org: org
    event_time: at
    fields: {{ org: string, at: timestamp, n: long }}
    layout: {{ partition_by: [org] }}
    batch: {{ max_rows: 50 }}
",
        store.storage(),
        store.beside("inbox")
    )
}

/// So many records; the last is refused.
fn lines(from: u64, records: u64) -> String {
    let last = from + records - 1;
    (from..=last)
        .map(|i| {
            let n = if i == last { "\"none\"".to_owned() } else { i.to_string() };
            format!("{{\"org\":\"o{}/ü\",\"at\":\"2026-01-02T03:04:05Z\",\"n\":{n}}}\n", i % 3)
        })
        .collect()
}

fn said(site: &Site, args: &[&str]) -> (i32, String, String) {
    let output = site.run(args);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn objects(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn keys(site: &Site, prefix: &str) -> Vec<String> {
    let store = site.test_store().lake();
    let listed = async { store.list(Some(&StorePath::from(prefix))).try_collect::<Vec<_>>().await };
    block_on(listed).unwrap().into_iter().map(|meta| meta.location.to_string()).collect()
}

#[test]
fn every_command_works_on_every_object_store_and_others_read_the_tables() {
    for kind in SERVERS {
        let Some(site) = Site::on(kind, |store| yaml(store, "")) else { continue };
        site.deliver("inbox/edit/a.json", lines(0, 100));
        site.deliver("inbox/edit/b 1%20ü.json", lines(100, 20));
        site.deliver("inbox/edit/_ignored.json", "not looked at");
        site.deliver("inbox/edit/empty.json", "");
        site.ok(&["run", "ingest"]);
        let landed = site.landed("edit", "org");
        assert_eq!((landed.rows.len(), landed.dead_letters.len()), (118, 2), "{kind:?}");

        let table = objects(&site.ok(&["tables", "edit", "--output", "json"])).remove(0);
        assert_eq!(table["rows"], 118);
        assert_eq!(table["path"], format!("{}/default/edit", site.test_store().storage()));
        let counted = site.ok(&["query", "SELECT count(*) AS rows, sum(n) AS sum FROM edit", "--format", "json"]);
        // 0 + 1 + ... + 119 without the two that were refused, 99 and 119.
        assert_eq!(objects(&counted)[0], serde_json::json!({ "rows": 118, "sum": 7140 - 99 - 119 }));
        let one = site.ok(&["query", "SELECT n FROM edit WHERE org = 'o1/ü' AND n < 6 ORDER BY n", "--format", "csv"]);
        assert_eq!(one.lines().collect::<Vec<_>>(), ["n", "1", "4"]);
        let status = objects(&site.ok(&["status", "--output", "json"]));
        assert!(status.iter().any(|s| s.to_string().contains("\"dead_letters\":2")), "{status:?}");
        assert_eq!(objects(&site.ok(&["dead-letters", "list", "--output", "json"])).len(), 2);
        assert_eq!(site.ok(&["run", "ingest", "--dry-run", "--output", "json"]).matches("\"waiting_files\":0").count(), 1);

        site.ok(&["run", "ingest", "--namespace", "other"]);
        assert_eq!(site.ok(&["namespace", "list"]).lines().collect::<Vec<_>>(), ["default", "other"], "{kind:?}");
        site.ok(&["namespace", "delete", "other", "--yes"]);
        assert_eq!(site.ok(&["namespace", "list"]).lines().collect::<Vec<_>>(), ["default"], "{kind:?}");
        assert_eq!(keys(&site, "other"), [""; 0], "{kind:?}");
        assert!(!keys(&site, "default").iter().any(|key| key.contains("probe")), "{kind:?}: a probe was left behind");

        if kind == StoreKind::S3
            && let Some(seen) = site.read_by_others(&["edit", "notifications", "dead_letters"], &[])
        {
            assert_eq!(seen.iter().map(|table| table["rows"].clone()).collect::<Vec<_>>(), [118, 9, 2]);
        }
    }
}

#[test]
fn a_consumer_that_comes_and_goes_over_three_batches_copies_the_table_from_every_object_store() {
    for kind in SERVERS {
        let Some(site) = Site::on(kind, |store| yaml(store, "")) else { continue };
        let given = |args: &[&str]| {
            let mut rows = objects(&site.ok(&[&["changes", "edit"], args].concat()));
            let next = rows.pop().unwrap()["next"].as_str().unwrap().to_owned();
            (rows, next)
        };
        let place = |row: &Value| (row["_source"].as_str().unwrap().to_owned(), row["_offset"].as_u64().unwrap());
        let (mut copy, mut told) = (BTreeMap::new(), 0);
        for batch in 0..3 {
            site.deliver(&format!("inbox/edit/{batch}.json"), lines(batch * 100, 40));
            site.ok(&["run", "ingest"]);
            // Partitions, acknowledged by itself: forty records, of which one is refused, of three organisations.
            let (partitions, _) = given(&["--consumer", "parts", "--commit"]);
            assert_eq!(partitions.len(), 3, "{kind:?}: {partitions:?}");
            told += partitions.iter().map(|p| p["inserted"].as_u64().unwrap()).sum::<u64>();
            if batch == 1 {
                continue;
            }
            // Rows: a reader that dies before it acknowledges is given the same again.
            let (rows, next) = given(&["--rows", "--consumer", "copy"]);
            assert_eq!(given(&["--rows", "--consumer", "copy"]).0, rows, "{kind:?}");
            for row in &rows {
                let twice = copy.insert(place(row), (row["org"].clone(), row["n"].clone()));
                assert_eq!(twice, None, "{kind:?}: given twice");
            }
            site.ok(&["consumers", "commit", "copy", &next]);
            let (late, _, _) = said(&site, &["consumers", "commit", "copy", &given(&["--rows"]).1]);
            assert_eq!(late, 0, "{kind:?}: a token of nobody's that is as far");
        }
        assert_eq!(told, 3 * 39, "{kind:?}");
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let copied: Vec<_> = copy.iter().map(|((_, offset), (org, n))| (text(org), text(n), offset.to_string())).collect();
        let landed = site.landed("edit", "org");
        let stored: Vec<_> = landed.rows.iter().map(|r| (r["org"].clone(), r["n"].clone(), r["_offset"].clone())).collect();
        let sorted = |mut rows: Vec<(String, String, String)>| {
            rows.sort();
            rows
        };
        assert_eq!(copied.len(), 3 * 39, "{kind:?}");
        assert_eq!(sorted(copied), sorted(stored), "{kind:?}");
        for args in [&["--consumer", "parts"][..], &["--rows", "--consumer", "copy"]] {
            assert_eq!(given(args).0, [Value::Null; 0], "{kind:?}: nothing is left");
        }
        let (code, _, stderr) = said(&site, &["consumers", "remove", "copy"]);
        assert_eq!(code, 0, "{kind:?}: {stderr}");
    }
}

#[test]
fn a_source_that_is_ordered_lists_only_what_sorts_after_what_was_taken() {
    let Some(mut site) = Site::on(StoreKind::S3, |store| yaml(store, ", ordered: true")) else { return };
    let server = site.test_store().address().unwrap();
    let proxy = Proxy::start(server, |_| Outcome::Pass);
    site.go_through(&proxy);
    for day in 1..=3 {
        site.deliver(&format!("inbox/edit/2026-01-{day:02}.json"), lines(day * 100, 10));
        proxy.forget();
        site.ok(&["run", "ingest"]);
        let listed: Vec<String> = proxy
            .seen()
            .into_iter()
            .map(|r| r.path)
            .filter(|path| path.contains("list-type=2") && path.contains("inbox"))
            .collect();
        let after = format!("2026-01-{:02}.json", day - 1);
        assert_eq!(listed.iter().any(|path| path.contains("start-after=") && path.contains(&after)), day > 1, "{listed:?}");
    }
    // Half of a file is taken with the batch that ends in it; the rest is found although nothing sorts after it.
    site.deliver("inbox/edit/2026-01-04.json", lines(400, 80));
    site.ok(&["run", "ingest", "--once"]);
    site.ok(&["run", "ingest"]);
    assert_eq!(site.landed("edit", "org").rows.len(), 27 + 79);
}

#[test]
fn taken_objects_are_moved_or_deleted_as_the_project_says() {
    for kind in SERVERS {
        for policy in ["move", "delete"] {
            let after = |store: &TestStore| match policy {
                "move" => format!(", after: 'move:{}'", store.beside("taken")),
                _ => ", after: delete".to_owned(),
            };
            let Some(site) = Site::on(kind, |store| yaml(store, &after(store))) else { continue };
            site.deliver("inbox/edit/a.json", lines(0, 70));
            site.deliver("inbox/edit/d/b.json", lines(100, 20));
            site.ok(&["run", "ingest"]);
            assert_eq!(site.delivered("inbox"), 0, "{kind:?}, {policy}");
            assert_eq!(site.delivered("taken"), if policy == "move" { 2 } else { 0 }, "{kind:?}, {policy}");
            assert_eq!(site.landed("edit", "org").rows.len(), 88);
            let (code, _, stderr) = said(&site, &["run", "ingest"]);
            assert_eq!((code, stderr.as_str()), (0, "nothing to do\n"), "{kind:?}: a source that was emptied is not missing");
        }
    }
}

#[test]
fn files_of_every_format_are_read_from_a_store_in_ranges() {
    let formats = |store: &TestStore| {
        let dataset = |name: &str, format: &str| {
            format!(
                "  {name}:
    source: {{ files: {{ path: '{}/{name}', format: {format} }} }}
    org: org
    event_time: at
    fields: {{ org: string, at: timestamp, n: long, note: string }}
",
                store.beside("inbox")
            )
        };
        let all: String = [("lines", "json"), ("zipped", "json"), ("sheet", "csv"), ("columns", "parquet")]
            .iter()
            .map(|(name, format)| dataset(name, format))
            .collect();
        format!("project: formats\nstorage: '{}'\ndatasets:\n{all}", store.storage())
    };
    let Some(site) = Site::on(StoreKind::S3, formats) else { return };
    // More than one range of each: the notes do not compress.
    const RECORDS: u64 = 60_000;
    let mut state = 1_u64;
    let mut note = || {
        let parts = (0..12).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:016x}", state ^ (state >> 29))
        });
        parts.collect::<String>()
    };
    let records: Vec<(u64, String)> = (0..RECORDS).map(|n| (n, note())).collect();
    let json: String = records
        .iter()
        .map(|(n, note)| format!("{{\"org\":\"o{}\",\"at\":\"2026-01-02\",\"n\":{n},\"note\":\"{note}\"}}\n", n % 3))
        .collect();
    site.deliver("inbox/lines/a.json", &json);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, json.as_bytes()).unwrap();
    site.deliver("inbox/zipped/a.json.gz", gzip.finish().unwrap());
    let csv = records.iter().map(|(n, note)| format!("o{},2026-01-02,{n},{note}\n", n % 3));
    site.deliver("inbox/sheet/a.csv", "org,at,n,note\n".to_owned() + &csv.collect::<String>());
    site.ok(&["run", "ingest", "lines", "zipped", "sheet"]);
    let columns = site.run(&["query", "SELECT org, at, n, note FROM lines", "--format", "parquet"]).stdout;
    site.deliver("inbox/columns/a.parquet", columns);
    site.ok(&["run", "ingest", "columns"]);
    let sums = "SELECT count(*) AS rows, sum(n) AS sum, count(DISTINCT note) AS notes FROM ";
    let wanted = serde_json::json!({ "rows": RECORDS, "sum": RECORDS * (RECORDS - 1) / 2, "notes": RECORDS });
    for dataset in ["lines", "zipped", "sheet", "columns"] {
        let found = objects(&site.ok(&["query", &format!("{sums}{dataset}"), "--format", "json"]));
        assert_eq!(found, std::slice::from_ref(&wanted), "{dataset}");
    }
}

/// A proxy that does harm to a part of the requests, by their numbers.
fn harmful(server: std::net::SocketAddr, harm: impl Fn(&Request, u64) -> Outcome + Send + Sync + 'static) -> Proxy {
    // Splitmix64: well mixed, so that harm comes to requests of every kind.
    Proxy::start(server, move |request| {
        let mut z = request.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        harm(request, (z ^ (z >> 27)) % 100)
    })
}

#[test]
fn throttling_and_lost_answers_cost_time_and_no_record() {
    let Some(mut site) = Site::on(StoreKind::S3, |store| yaml(store, "")) else { return };
    let server = site.test_store().address().unwrap();
    let proxy = harmful(server, |request, chance| match chance {
        0..=5 => Outcome::Refuse(503),
        6..=8 => Outcome::Refuse(429),
        // What was carried out is reported as failed, or not at all: the next try meets its own work.
        9..=13 => Outcome::LieAfter(500),
        14..=18 if request.method == "PUT" || request.method == "GET" => Outcome::LoseAnswer,
        19..=21 if request.method == "PUT" || request.method == "GET" => Outcome::LoseRequest,
        _ => Outcome::Pass,
    });
    site.go_through(&proxy);
    let mut rows = 0;
    for i in 0..6 {
        site.deliver(&format!("inbox/edit/{i}.json"), lines(i * 100, 60));
        rows += 59;
        site.ok(&["run", "ingest"]);
    }
    let harmed = proxy.seen().len();
    assert!(harmed > 150, "only {harmed} requests");
    let landed = site.landed("edit", "org");
    assert_eq!((landed.rows.len(), landed.dead_letters.len()), (rows, 6));
}

#[test]
fn a_store_that_lets_puts_replace_what_is_there_is_refused() {
    let Some(mut site) = Site::on(StoreKind::S3, |store| yaml(store, "")) else { return };
    // As a store that does not know the header: the proxy hides from the client that a put was refused.
    let server = site.test_store().address().unwrap();
    let proxy = Proxy::start(server, |request| match request.method.as_str() {
        "PUT" => Outcome::LieAfter(200),
        _ => Outcome::Pass,
    });
    site.go_through(&proxy);
    site.deliver("inbox/edit/a.json", lines(0, 10));
    let (code, stdout, stderr) = said(&site, &["run", "ingest"]);
    assert_eq!((code, stdout.as_str()), (7, ""), "{stderr}");
    assert!(stderr.contains("cannot be used") && stderr.contains("conditional puts"), "{stderr}");
    assert_eq!(keys(&site, "default"), [""; 0], "nothing is left behind");
}

#[test]
fn put_if_absent_is_proved_once_for_a_store() {
    let Some(mut site) = Site::on(StoreKind::S3, |store| yaml(store, "")) else { return };
    let proxy = Proxy::start(site.test_store().address().unwrap(), |_| Outcome::Pass);
    site.go_through(&proxy);
    let probes = |proxy: &Proxy| proxy.seen().iter().filter(|r| r.path.contains("/stores/probe-")).count();
    site.ok(&["run", "ingest"]);
    assert!(probes(&proxy) > 3, "two puts of one name, and what they left is read");
    proxy.forget();
    site.ok(&["run", "ingest"]);
    assert_eq!(probes(&proxy), 0);
    // A project that was copied to another store is proved there.
    let proof = keys(&site, "default/_alluvium/stores").remove(0);
    block_on(site.test_store().lake().delete(&StorePath::from(proof))).unwrap();
    site.ok(&["run", "ingest"]);
    assert!(probes(&proxy) > 3);
}

#[test]
fn wrong_settings_are_told_with_what_to_do_and_no_secret() {
    let Some(mut site) = Site::on(StoreKind::S3, |store| yaml(store, "")) else { return };
    let right = site.test_store().env().to_vec();
    let with = |changes: &[(&str, &str)]| {
        let mut env: BTreeMap<String, String> = right.iter().cloned().collect();
        env.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        env.into_iter().collect::<Vec<_>>()
    };
    // A port at which nothing listens: it was free a moment ago.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases = [
        (with(&[("AWS_SECRET_ACCESS_KEY", "wr0ng-5ecret")]), 2, "credentials"),
        (with(&[("AWS_ACCESS_KEY_ID", "AKIAnobody")]), 2, "credentials"),
        (with(&[("AWS_ALLOW_HTTP", "false")]), 2, "AWS_ALLOW_HTTP=true"),
        (with(&[("AWS_ENDPOINT_URL", &format!("http://{nobody}"))]), 6, "cannot be reached"),
    ];
    for (env, wanted, hint) in cases {
        site.set_env(env);
        for args in [&["run", "ingest"][..], &["status"], &["tables"], &["namespace", "list"]] {
            let started = Instant::now();
            let (code, stdout, stderr) = said(&site, args);
            assert_eq!((code, stdout.as_str()), (wanted, ""), "{args:?}: {stderr}");
            assert!(stderr.contains(hint), "{args:?}: {stderr}");
            assert!(!stderr.contains("5ecret"), "{stderr}");
            assert!(started.elapsed() < Duration::from_secs(60), "{args:?} took {:?}", started.elapsed());
            if wanted == 6 {
                // It waits for the store to come back; once is enough.
                break;
            }
        }
    }
    site.set_env(right.clone());
    let elsewhere = std::fs::read_to_string(site.path("alluvium.yaml")).unwrap().replace("s3://lake/lake", "s3://nobucket/lake");
    site.write("alluvium.yaml", elsewhere);
    for args in [&["run", "ingest"][..], &["status"], &["tables"], &["namespace", "list"], &["query", "SELECT 1 FROM edit"]] {
        let (code, _, stderr) = said(&site, args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains("not there: make it"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_store_that_does_not_answer_is_told_of_and_given_up() {
    let Some(mut site) = Site::on(StoreKind::S3, |store| yaml(store, "")) else { return };
    // Takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let direct = site.test_store().address().unwrap().to_string();
    let address = silent.local_addr().unwrap().to_string();
    let mut env: Vec<_> =
        site.test_store().env().iter().map(|(name, value)| (name.clone(), value.replace(&direct, &address))).collect();
    env.push(("AWS_TIMEOUT".to_owned(), "7s".to_owned()));
    site.set_env(env);
    let started = Instant::now();
    let (code, _, stderr) = said(&site, &["namespace", "list"]);
    assert_eq!(code, 6, "{stderr}");
    assert!(stderr.contains("has not answered for 5 s"), "{stderr}");
    assert!(started.elapsed() < Duration::from_secs(90), "{:?}", started.elapsed());
}

/// Requests by kind: `LIST`, `GET`, `HEAD`, `PUT`, `DELETE`.
fn counted(requests: &[Request]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        let kind = match request.method.as_str() {
            "GET" if request.path.contains("list-type=2") => "LIST",
            "GET" => "GET",
            "HEAD" => "HEAD",
            "PUT" => "PUT",
            "POST" | "DELETE" => "DELETE",
            _ => "OTHER",
        };
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

#[test]
fn a_batch_and_an_idle_run_make_few_requests() {
    let Some(mut site) = Site::on(StoreKind::S3, |store| yaml(store, "")) else { return };
    let proxy = Proxy::start(site.test_store().address().unwrap(), |_| Outcome::Pass);
    site.go_through(&proxy);
    let run = |files: u64, from: u64| {
        for i in 0..files {
            // A file is a batch: 50 records, one organisation, none refused.
            let text: String = (0..50).map(|n| format!("{{\"org\":\"o\",\"at\":\"2026-01-02\",\"n\":{n}}}\n")).collect();
            site.deliver(&format!("inbox/edit/{:03}.json", from + i), text);
        }
        proxy.forget();
        site.ok(&["run", "ingest"]);
        counted(&proxy.seen())
    };
    run(1, 0);
    let one = run(1, 1);
    let eleven = run(11, 2);
    let idle = run(0, 0);
    eprintln!("requests: one batch {one:?}, eleven {eleven:?}, idle {idle:?}");
    // A batch: list the chain; put a data file, the record, the commit, a file of notifications, their commit and the mark; list the two
    // logs after the commits. Of gets that of the source file, and two that see whether the namespace still lives; those at a run's
    // start grow with what was done before. A slow machine renews the lease now and then.
    let grown = |kind: &str| eleven[kind] - one[kind];
    assert_eq!(grown("LIST"), 10 * 3, "{one:?} {eleven:?}");
    assert!((10 * 6..10 * 6 + 5).contains(&grown("PUT")), "{one:?} {eleven:?}");
    assert!((30..45).contains(&grown("GET")), "{one:?} {eleven:?}");
    // Thirteen records and fourteen entries of the table's log are read, and nothing is written but the lease.
    assert!((27..40).contains(&idle["GET"]) && idle["LIST"] <= 8, "{idle:?}");
    assert_eq!(idle["PUT"], 2);
}
