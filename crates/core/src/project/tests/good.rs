//! Files that are right, and what they become.

use std::time::Duration;

use super::{SMALL, env, parse};
use crate::dataset::{
    BatchLimits, Durability, Field, FileFormat, FileSource, Identity, KafkaSource, Layout, OnErase, Source, TakenPolicy, TimeUnit,
};
use crate::names::Namespace;
use crate::project::{INIT_TEMPLATE, Project};
use crate::types::DataType;

/// The full example of the user's guide: every key.
const FULL: &str = r#"project: crm-lake
namespace: default
storage: ./lake                  # a path or a URL
durability: disk
kafka:
  bootstrap.servers: localhost:9092
  sasl.password: "${KAFKA_PASSWORD}"
  session.timeout.ms: 6000
datasets:
  engagement:
    source:
      kafka: { topic: engagements, format: json, start: earliest }
    key: engagement_id
    org: org_id
    event_time: occurred_at
    fields:
      engagement_id: string
      org_id: { type: string, nullable: false }
      occurred_at: { type: timestamp, from: meta.time }
      type: string
      lead_id: string
      user_id: string
      cadence_id: string
      cadence_name: string
      ip: string
    identities: [lead_id, { field: user_id, on_erase: clear, clear: [ip] }]
    normalize:
      cadence: { id: cadence_id, fields: [cadence_name] }
    retention: 730d
    retention_by_org: { 00D1: 30d, 0031: 7d }
    layout: { partition_by: [org_id], cluster_by: [occurred_at], target_file_size: 64MiB }
    change_data_feed: false
    batch: { max_rows: 1000000, max_bytes: 256MiB, max_delay: 1s }
requests:
  source:
    files: { path: ./inbox/requests, format: json }
  max_attempts: 10
erase: { purge_after: 0s, wait_for_consumers: 24h, deadline: 25d, remember: forever, key: lake, store_keeps: unknown, keep_receipts: 1095d }
maintenance: { vacuum_after: 7d, log_retention: 30d, optimize: auto }
leases: { ttl: 10s }
"#;

fn text(name: &str) -> Field {
    Field { name: name.into(), data_type: DataType::String, nullable: true, from: vec![name.into()], unit: None }
}

#[test]
fn the_full_example_warns_only_of_what_is_not_built_yet() {
    let project = parse(FULL).unwrap();
    let warnings: Vec<_> = project.warnings.iter().map(|w| (w.place.line, w.key.as_str())).collect();
    assert_eq!(
        warnings,
        [
            (27, "datasets.engagement.normalize"),
            (38, "erase.deadline"),
            (38, "erase.remember"),
            (38, "erase.store_keeps"),
            (38, "erase.keep_receipts"),
            (39, "maintenance.log_retention"),
            (39, "maintenance.optimize"),
        ]
    );
    assert_eq!(
        project.warnings[0].render("alluvium.yaml"),
        "alluvium.yaml:27:5: datasets.engagement.normalize: normalised entities are not built yet; this key is checked and has no effect"
    );
    assert_eq!(project.name, "crm-lake");
    assert_eq!(project.storage, "./lake");
    assert!(project.namespace.is_default());
    assert_eq!(project.kafka.get("session.timeout.ms"), Some("6000"));
    assert_eq!(project.kafka.get("sasl.password"), Some("hunter2: {x}, \"y\""));
    let dataset = project.dataset("engagement").unwrap();
    assert_eq!(dataset.source, Source::Kafka(KafkaSource::new("engagements")));
    assert_eq!(dataset.fields.len(), 9);
    assert_eq!(dataset.fields[1], Field { nullable: false, ..text("org_id") });
    let time = Field { data_type: DataType::Timestamp, from: vec!["meta".into(), "time".into()], ..text("occurred_at") };
    assert_eq!(dataset.fields[2], time);
    assert_eq!(
        dataset.identities,
        [
            Identity { field: "lead_id".into(), on_erase: OnErase::Delete },
            Identity { field: "user_id".into(), on_erase: OnErase::Clear(vec!["ip".into()]) },
            Identity { field: "cadence_id".into(), on_erase: OnErase::Delete },
        ]
    );
    assert_eq!(dataset.layout.cluster_by, ["occurred_at"]);
    assert_eq!(project.resolver(None).unwrap().topic("engagements").unwrap(), "engagements");
}

#[test]
fn what_is_left_out_has_its_default() {
    let project = parse(SMALL).unwrap();
    assert_eq!(project.warnings, []);
    assert_eq!(project.durability, Durability::Disk);
    assert_eq!(project.namespace, Namespace::default());
    let [dataset] = project.datasets.as_slice() else { panic!("one dataset") };
    assert_eq!(dataset.name.0, "edit");
    assert_eq!(dataset.key, None);
    assert_eq!(
        dataset.source,
        Source::Files(FileSource { path: "./in".into(), format: FileFormat::Json, after: TakenPolicy::Keep, ordered: false })
    );
    assert_eq!(dataset.fields, [text("org_id"), Field { data_type: DataType::Timestamp, ..text("at") }, text("name")]);
    assert_eq!(dataset.layout, Layout { partition_by: vec!["org_id".into()], cluster_by: vec![], target_file_bytes: 67_108_864 });
    let limits = BatchLimits { max_rows: 1_000_000, max_bytes: 268_435_456, max_delay: Duration::from_secs(1) };
    assert_eq!(dataset.batch, limits);
    assert!(!dataset.change_data_feed);
    assert!(dataset.identities.is_empty());
}

#[test]
fn requests_need_no_source() {
    let without = parse(SMALL).unwrap().requests;
    let project = parse(&format!("{SMALL}\nrequests: {{ max_attempts: 3 }}\n")).unwrap();
    assert_eq!(project.warnings, []);
    assert_eq!((without.max_attempts, project.requests.max_attempts), (10, 3));
    assert_eq!(project.requests.intake.source, without.intake.source);
}

#[test]
fn every_key_of_a_dataset_is_taken() {
    let project = parse(
        r#"
project: p
namespace: dev
reserved_namespaces: [crm]
storage: s3://bucket/lake
durability: process
datasets:
  web-2:
    source:
      files:
        path: /data/in
        format: csv
        after: move:/data/done
        ordered: true
    org: tenant
    event_time: day
    fields:
      tenant: long
      day: date
      sent: { type: timestamp, unit: ms, nullable: true }
      price: "decimal(10,2)"
      tags: array<string>
      extra: { type: "struct<a: string, b: map<string, long>>", from: x.y.z }
    layout:
      partition_by: [tenant, event_date]
      cluster_by: [day, price]
      target_file_size: 1GiB
    batch: { max_rows: "${ROWS}", max_bytes: 1048576, max_delay: 250ms }
    change_data_feed: true
"#,
    )
    .unwrap();
    assert_eq!(project.warnings, []);
    assert_eq!((project.durability, project.namespace.as_str()), (Durability::Process, "dev"));
    assert_eq!(project.reserved_namespaces.iter().map(Namespace::as_str).collect::<Vec<_>>(), ["crm"]);
    let dataset = &project.datasets[0];
    assert!(dataset.change_data_feed);
    let after = TakenPolicy::Move("/data/done".into());
    let source = FileSource { path: "/data/in".into(), format: FileFormat::Csv, after, ordered: true };
    assert_eq!(dataset.source, Source::Files(source));
    assert_eq!(dataset.fields[2].unit, Some(TimeUnit::Milliseconds));
    assert_eq!(dataset.fields[3].data_type, DataType::Decimal { precision: 10, scale: 2 });
    assert_eq!(dataset.fields[5].from, ["x", "y", "z"]);
    assert_eq!(dataset.layout.partition_by, ["tenant", "event_date"]);
    assert_eq!(dataset.layout.target_file_bytes, 1_073_741_824);
    let limits = BatchLimits { max_rows: 500, max_bytes: 1_048_576, max_delay: Duration::from_millis(250) };
    assert_eq!(dataset.batch, limits);
}

#[test]
fn the_template_runs_as_it_is_and_its_comments_are_right_too() {
    let project = parse(INIT_TEMPLATE).unwrap();
    assert_eq!(project.warnings, []);
    assert_eq!(project.datasets[0].name.0, "engagement");
    let Source::Files(files) = &project.datasets[0].source else { panic!("files") };
    assert_eq!((files.path.as_str(), files.format), ("./inbox/engagement", FileFormat::Json));

    // With every commented-out key switched on, only what the fields do not fit to may be wrong.
    let uncommented: String = INIT_TEMPLATE.lines().fold(String::new(), |all, line| {
        let body = line.trim_start();
        let key = body.strip_prefix("# ").filter(|b| {
            let word: String = b.trim_start().chars().take_while(|c| !c.is_whitespace()).collect();
            let is_key = word.ends_with(':') && b.trim_start().starts_with(|c: char| c.is_ascii_lowercase());
            is_key
                && !["path:", "from:", "example:", "disk:", "process:", "nullable:", "on_erase:"].contains(&word.as_str())
                && !b.starts_with("kafka: {")
        });
        let indent = &line[..line.len() - body.len()];
        all + &key.map_or_else(|| line.to_owned(), |k| format!("{indent}{k}")) + "\n"
    });
    let uncommented =
        uncommented.replace("      ip: string\n", "      ip: string\n      cadence_id: string\n      cadence_name: string\n");
    let all = parse(&uncommented).unwrap_or_else(|e| panic!("{e}\n{uncommented}"));
    let keys: Vec<_> = all.warnings.iter().map(|w| w.key.as_str()).collect();
    let dataset = |key: &str| format!("datasets.engagement.{key}");
    assert_eq!(keys[..1], [&dataset("normalize")]);
    let erase = ["erase.deadline", "erase.remember", "erase.store_keeps", "erase.keep_receipts"];
    assert_eq!(keys[1..], [&erase[..], &["maintenance.log_retention", "maintenance.optimize"]].concat());
}

#[test]
fn secrets_do_not_show_in_debug_output() {
    let project = parse(FULL).unwrap();
    let shown = format!("{project:?}");
    assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn topics_are_checked_in_the_namespace_that_is_used() {
    let dotted = FULL.replace("topic: engagements", "topic: crm.engagements");
    let project = parse(&dotted).unwrap();
    let error = project.resolver(None).unwrap_err();
    assert_eq!(
        error.render("alluvium.yaml"),
        "alluvium.yaml:12:23: datasets.engagement.source.kafka.topic: the topic \"crm.engagements\" is also what the namespace \
         \"crm\" makes of \"engagements\"\n  hint: if the part before the dot will never be a namespace of this project, list it \
         in reserved_namespaces"
    );
    assert!(project.resolver(Some(Namespace::parse("dev").unwrap())).is_ok());
    let reserved = Project::parse(&dotted.replace("namespace: default", "reserved_namespaces: [crm]"), &env).unwrap();
    assert!(reserved.resolver(None).is_ok());
    assert!(reserved.resolver(Some(Namespace::parse("crm").unwrap())).is_err());
}

#[test]
fn aliases_stand_for_what_they_name() {
    let text = SMALL.replace("org_id: string", "org_id: &t string").replace("name: string", "name: *t");
    assert_eq!(parse(&text).unwrap().datasets, parse(SMALL).unwrap().datasets);
}
