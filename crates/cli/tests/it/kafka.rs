//! The program on a real broker. Where there is none, these tests say that they skip.

use std::collections::BTreeMap;
use std::process::Child;
use std::time::{Duration, Instant};

use alluvium_testkit::{KafkaServer, KafkaTools, Landed, Sent};

use crate::site::{Site, poll, wait_until};

fn yaml(bootstrap: &str, topic: &str, more: &str) -> String {
    format!(
        "project: kafka
storage: ./lake
durability: process
leases: {{ ttl: 2s }}
kafka: {{ bootstrap.servers: \"{bootstrap}\" }}
datasets:
  edit:
    source: {{ kafka: {{ topic: {topic}{more} }} }}
    org: org
    event_time: at
    fields: {{ org: string, at: timestamp, n: long }}
    batch: {{ max_rows: 500, max_delay: 200ms }}
"
    )
}

fn value(n: u64) -> String {
    format!(r#"{{"org":"o{}","at":"2026-01-01T00:00:00Z","n":{n}}}"#, n % 3)
}

fn values(numbers: std::ops::Range<u64>) -> Vec<String> {
    numbers.map(value).collect()
}

fn numbers(landed: &Landed) -> Vec<u64> {
    let mut all: Vec<u64> = landed.rows.iter().map(|r| r["n"].parse().unwrap()).collect();
    all.sort_unstable();
    all
}

/// Rows in the table now, while processes go on.
fn rows(site: &Site) -> usize {
    if site.path("lake/default/edit/_delta_log").exists() { site.rows("edit").len() } else { 0 }
}

fn signal(child: &Child, name: &str) {
    let sent = std::process::Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Ends a process politely, which must be done in five seconds and well.
fn terminate(mut child: Child) {
    signal(&child, "TERM");
    let status = wait_until(&mut child, Instant::now() + Duration::from_secs(5)).expect("it ends within five seconds");
    assert_eq!(status.code(), Some(0));
}

/// What `run` says on stderr, and its exit code.
fn fails(site: &Site, args: &[&str]) -> (Option<i32>, String) {
    let output = site.run(args);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn transactions_aborted_records_and_kills_while_following_land_each_offset_once() {
    let Some(server) = KafkaServer::start() else { return };
    let tools = server.tools();
    tools.create("edits", 3);
    let site = Site::new(&yaml(&server.bootstrap(), "edits", ""));
    let mut wanted = Vec::new();
    let mut next = 0;
    for round in 0..20_u64 {
        let mut follower = site.start(&["run", "ingest", "--follow"]);
        let partition = i32::try_from(round % 3).unwrap();
        let batch = values(next..next + 40);
        let records: Vec<Sent<'_>> = batch.iter().map(|v| Sent { partition, value: Some(v), ..Sent::default() }).collect();
        match round % 4 {
            0 => tools.transaction("edits", &records, false),
            1 => tools.transaction("edits", &records, true),
            _ => tools.send("edits", &records),
        }
        if round % 4 != 0 {
            wanted.extend(next..next + 40);
        }
        next += 40;
        // Some are killed as they begin, some in the middle of things.
        let deadline = Instant::now() + Duration::from_millis(100 + round * 67 % 900);
        assert_eq!(wait_until(&mut follower, deadline), None, "a follower goes on");
        follower.kill().unwrap();
        follower.wait().unwrap();
    }
    site.ok(&["run", "ingest"]);
    let landed = site.landed("edit", "org");
    assert_eq!(numbers(&landed), wanted);
    let says = site.ok(&["run", "ingest", "--output", "json"]);
    assert!(says.contains("\"batches\":0"), "a tail of control records counts as read: {says}");
    let status: Vec<serde_json::Value> =
        site.ok(&["status", "--output", "json"]).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let dataset = status.iter().find(|o| o["kind"] == "dataset").unwrap();
    assert_eq!(dataset["source"]["topic"], "edits");
    assert!(dataset["source"]["lag"].as_u64().unwrap() <= 3, "at most a control record of each partition: {dataset}");
}

#[test]
fn open_transaction_holds_back_what_follows_and_a_run_that_is_to_end_does_not_wait_for_it() {
    let Some(server) = KafkaServer::start() else { return };
    let tools = server.tools();
    tools.create("edits", 1);
    let site = Site::new(&yaml(&server.bootstrap(), "edits", ""));
    tools.send_values("edits", 0, &values(0..5));
    let open = tools.begin("edits", &[Sent { value: Some(&value(5)), ..Sent::default() }]);
    tools.send_values("edits", 0, &values(6..9));
    site.ok(&["run", "ingest"]);
    assert_eq!(numbers(&site.landed("edit", "org")), [0, 1, 2, 3, 4]);
    open.commit();
    site.ok(&["run", "ingest"]);
    assert_eq!(numbers(&site.landed("edit", "org")), (0..9).collect::<Vec<_>>());
}

/// A control record ends each transaction; the next batch of the shard moves behind it.
#[test]
fn follower_moves_behind_control_records_with_its_next_batch() {
    let Some(server) = KafkaServer::start() else { return };
    let tools = server.tools();
    tools.create("edits", 2);
    let site = Site::new(&yaml(&server.bootstrap(), "edits", ", shards: 1"));
    let follower = site.start(&["run", "ingest", "--follow"]);
    let values = values(0..5);
    let records: Vec<Sent<'_>> = values.iter().map(|v| Sent { value: Some(v), ..Sent::default() }).collect();
    tools.transaction("edits", &records, true);
    poll("the transaction lands", || rows(&site) == 5);
    let position = || {
        tools.send_values("edits", 1, &[value(9)]);
        let status = site.ok(&["status", "--output", "json"]);
        let source =
            status.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()).find(|o| o["kind"] == "dataset");
        source.unwrap()["source"]["partitions"][0]["position"].as_i64()
    };
    poll("the position is behind the control record", || position() == Some(6));
    terminate(follower);
    // Nothing behind position 6 was passed over.
    tools.send_values("edits", 0, &[value(7)]);
    site.ok(&["run", "ingest"]);
    assert_eq!(site.landed("edit", "org").rows.iter().filter(|r| r["n"] == "7").count(), 1);
}

#[test]
fn deleted_records_and_a_topic_made_anew_stop_the_job_and_status_shows_what_was_accepted() {
    let Some(server) = KafkaServer::start() else { return };
    let tools = server.tools();
    tools.create("edits", 1);
    let site = Site::new(&yaml(&server.bootstrap(), "edits", ""));
    tools.send_values("edits", 0, &values(0..10));
    site.ok(&["run", "ingest"]);
    tools.send_values("edits", 0, &values(10..20));
    tools.delete_records("edits", 0, 15);
    let (code, said) = fails(&site, &["run", "ingest"]);
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("partition 0: offsets 10 to 14 have expired"), "{said}");
    site.ok(&["run", "ingest", "--accept-loss"]);
    assert_eq!(numbers(&site.landed("edit", "org")), (0..10).chain(15..20).collect::<Vec<_>>());
    assert!(site.ok(&["status"]).contains("accepted as lost: partition 0: offsets 10 to 14 have expired"));
    tools.delete("edits");
    let (code, said) = fails(&site, &["run", "ingest"]);
    assert_eq!(code, Some(3), "a missing topic is told at once: {said}");
    tools.create("edits", 1);
    // As many as there were, and more: only the record at the last place taken tells.
    tools.send_values("edits", 0, &values(1000..1030));
    let (code, said) = fails(&site, &["run", "ingest"]);
    assert_eq!(code, Some(8), "{said}");
    assert!(said.contains("partition 0: offsets from 20 on (the topic was made anew"), "{said}");
}

#[test]
fn broker_that_goes_away_and_comes_back_is_waited_for_and_records_are_visible_within_two_seconds() {
    let Some(mut server) = KafkaServer::start() else { return };
    let tools = server.tools();
    tools.create("edits", 2);
    let site = Site::new(&yaml(&server.bootstrap(), "edits", ""));
    let follower = site.start(&["run", "ingest", "--follow"]);
    tools.send_values("edits", 0, &values(0..1));
    poll("the first record lands", || rows(&site) == 1);
    for n in 1..6 {
        tools.send_values("edits", i32::try_from(n % 2).unwrap(), &values(n..n + 1));
        let sent = Instant::now();
        poll("a record lands", || rows(&site) == usize::try_from(n).unwrap() + 1);
        assert!(sent.elapsed() < Duration::from_secs(2), "visible after {:?}", sent.elapsed());
    }
    server.stop();
    server.restart();
    tools.send_values("edits", 0, &values(6..10));
    poll("what was sent after the broker came back lands", || rows(&site) == 10);
    terminate(follower);
    assert_eq!(numbers(&site.landed("edit", "org")), (0..10).collect::<Vec<_>>());
}

/// How many leases of shards each living process of this machine holds, by its number.
fn held(site: &Site) -> BTreeMap<u64, usize> {
    let mut by_process = BTreeMap::new();
    for entry in std::fs::read_dir(site.path("lake/default/_alluvium/leases")).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.starts_with("ingest.edit.") || name.contains("seat") {
            continue;
        }
        let newest = std::fs::read_dir(&path)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "json"))
            .max();
        let Some(text) = newest.and_then(|p| std::fs::read_to_string(p).ok()) else { continue };
        let lease: serde_json::Value = serde_json::from_str(&text).unwrap();
        if lease["released"] == false {
            *by_process.entry(lease["process"]["pid"].as_u64().unwrap()).or_default() += 1;
        }
    }
    by_process
}

fn send_some(tools: &KafkaTools, next: &mut u64) {
    for partition in 0..4 {
        tools.send_values("edits", partition, &values(*next..*next + 5));
        *next += 5;
    }
}

#[test]
fn processes_share_a_topic_take_over_from_one_that_dies_and_a_zombie_does_no_harm() {
    let Some(server) = KafkaServer::start() else { return };
    let tools = server.tools();
    tools.create("edits", 4);
    let site = Site::new(&yaml(&server.bootstrap(), "edits", ""));
    let ttl = Duration::from_secs(2);
    let mut next = 0;
    send_some(&tools, &mut next);
    let first = site.start(&["run", "ingest", "--follow"]);
    poll("the first process holds all", || held(&site).get(&first.id().into()) == Some(&4));
    let mut second = site.start(&["run", "ingest", "--follow"]);
    let since = Instant::now();
    poll("each holds half", || {
        let held = held(&site);
        held.get(&first.id().into()) == Some(&2) && held.get(&second.id().into()) == Some(&2)
    });
    assert!(since.elapsed() < ttl * 2, "adding a process moved shards after {:?}", since.elapsed());
    send_some(&tools, &mut next);
    poll("both take in", || rows(&site) as u64 == next);
    second.kill().unwrap();
    second.wait().unwrap();
    send_some(&tools, &mut next);
    let since = Instant::now();
    poll("the first takes over", || rows(&site) as u64 == next);
    assert!(since.elapsed() < ttl * 2, "killing a process moved shards after {:?}", since.elapsed());
    // A process that stands still is overtaken, too, and stops when it wakes.
    let third = site.start(&["run", "ingest", "--follow"]);
    poll("each holds half again", || held(&site).get(&third.id().into()) == Some(&2));
    signal(&first, "STOP");
    send_some(&tools, &mut next);
    let since = Instant::now();
    poll("the third takes over", || rows(&site) as u64 == next);
    assert!(since.elapsed() < ttl * 2, "a process that stands still was overtaken after {:?}", since.elapsed());
    signal(&first, "CONT");
    send_some(&tools, &mut next);
    poll("nothing is lost by the zombie", || rows(&site) as u64 == next);
    for mut child in [first, third] {
        signal(&child, "TERM");
        let status = wait_until(&mut child, Instant::now() + Duration::from_secs(10)).expect("it ends");
        assert!(matches!(status.code(), Some(0 | 5)), "{status}");
    }
    site.ok(&["run", "ingest"]);
    assert_eq!(numbers(&site.landed("edit", "org")), (0..next).collect::<Vec<_>>());
}

#[test]
fn wrong_password_is_told_at_once_and_no_secret_is_printed() {
    let login = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alluvium=\"right\";";
    let more = format!(
        "listeners=PLAINTEXT://127.0.0.1:{{PORT}},CONTROLLER://127.0.0.1:{{CONTROLLER}},SASL://127.0.0.1:{{SECOND}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{PORT}},SASL://127.0.0.1:{{SECOND}}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={login}"
    );
    let Some(server) = KafkaServer::start_with(&more) else { return };
    server.tools().create("edits", 1);
    server.tools().send_values("edits", 0, &values(0..3));
    let settings = format!(
        "{{ bootstrap.servers: \"{}\", security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.username: alluvium, \
         sasl.password: \"${{SECRET}}\" }}",
        server.second()
    );
    let text = yaml("", "edits", "").replace("{ bootstrap.servers: \"\" }", &settings);
    let view = "  view:
    source: { files: { path: ./inbox, format: json } }
    org: org
    event_time: at
    fields: { org: string, at: timestamp }
";
    let site = Site::new(&format!("{text}{view}"));
    site.write("inbox/a.json", r#"{"org":"a","at":"2026-01-01T00:00:00Z"}"#);
    let run = |secret: &str| {
        let began = Instant::now();
        let output = site.command(&["run", "ingest"]).env("SECRET", secret).env("RUST_LOG", "trace").output().unwrap();
        (output, began.elapsed())
    };
    let (output, took) = run("hunter2-hunter2");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the cluster refuses us"), "{said}");
    assert!(!said.contains("hunter2"), "a secret was printed");
    assert!(took < Duration::from_secs(15), "told after {took:?}");
    assert_eq!(site.rows("view").len(), 1, "the other dataset goes on");
    let (output, _) = run("right");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(numbers(&site.landed("edit", "org")), [0, 1, 2]);
}

#[test]
fn keys_headers_and_timestamps_become_columns_and_dead_letters_are_replayed_with_them() {
    let Some(server) = KafkaServer::start() else { return };
    let tools = server.tools();
    tools.create("edits", 1);
    let fields = "fields: { org: string, at: { type: timestamp, from: kafka.timestamp }, n: long, who: { type: string, from: kafka.key }, \
                  trace: { type: string, from: kafka.headers.trace.id }, part: { type: integer, from: kafka.partition }, \
                  place: { type: long, from: kafka.offset }, topic: { type: string, from: kafka.topic } }";
    let text = yaml(&server.bootstrap(), "edits", "").replace("fields: { org: string, at: timestamp, n: long }", fields);
    let site = Site::new(&text);
    let sent = |value: &'static str| Sent {
        key: Some("k1"),
        value: Some(value),
        headers: &[("trace.id", "old"), ("other", "x"), ("trace.id", "t1")],
        timestamp_ms: Some(1_767_225_600_123),
        ..Sent::default()
    };
    tools.send("edits", &[sent(r#"{"org":"a","n":1}"#), sent(r#"{"org":"a","n":"many"}"#)]);
    site.ok(&["run", "ingest"]);
    // The table has n as long: a field of another name takes the text.
    site.write("alluvium.yaml", text.replace("n: long", "n: { type: long, from: count }, m: { type: string, from: n }"));
    site.ok(&["dead-letters", "replay"]);
    let landed = site.landed("edit", "org");
    assert_eq!(landed.rows.len(), 2);
    for (row, offset) in landed.rows.iter().zip(["0", "1"]) {
        let column = |name: &str| row.get(name).map_or("", String::as_str);
        assert_eq!(
            ["at", "who", "trace", "part", "place", "topic", "_source", "_offset"].map(column),
            ["2026-01-01T00:00:00.123000Z", "k1", "t1", "0", offset, "edits", "edits/0", offset]
        );
    }
    assert_eq!(landed.rows[1]["m"], "many");
}
