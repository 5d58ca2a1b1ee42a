//! The JSON Schema knows every key and tells what it is for.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::project::project_schema;

/// The properties that the schema lists at `path`, following references.
fn keys(root: &Value, path: &[&str]) -> BTreeSet<String> {
    let mut at = root;
    for part in path {
        at = object(root, at)
            .get("properties")
            .and_then(|p| p.get(part))
            .or_else(|| object(root, at).get("additionalProperties"))
            .unwrap();
    }
    let object = object(root, at);
    assert_eq!(object["additionalProperties"], Value::Bool(false), "{path:?} refuses unknown keys");
    object["properties"].as_object().unwrap().keys().cloned().collect()
}

/// Follows references, and passes through "or null" and short forms to the mapping.
fn object<'a>(root: &'a Value, at: &'a Value) -> &'a Value {
    if let Some(reference) = at.get("$ref").and_then(Value::as_str) {
        return object(root, root.pointer(reference.trim_start_matches('#')).unwrap());
    }
    match at.get("anyOf").and_then(Value::as_array) {
        Some(any) => any.iter().map(|a| object(root, a)).find(|a| a.get("properties").is_some()).unwrap(),
        None => at,
    }
}

fn set(names: &str) -> BTreeSet<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_schema_lists_every_key_and_refuses_others() {
    let root = project_schema();
    for (path, names) in [
        (&[][..], "project namespace reserved_namespaces storage durability kafka datasets requests erase maintenance leases"),
        (
            &["datasets", "*"],
            "source key org event_time fields identities normalize retention retention_by_org layout change_data_feed batch",
        ),
        (&["datasets", "*", "source"], "files kafka"),
        (&["datasets", "*", "source", "files"], "path format after ordered"),
        (&["datasets", "*", "source", "kafka"], "topic format start tombstones shards"),
        (&["datasets", "*", "fields", "*"], "type nullable from unit"),
        (&["datasets", "*", "normalize", "*"], "id fields"),
        (&["datasets", "*", "layout"], "partition_by cluster_by target_file_size"),
        (&["datasets", "*", "batch"], "max_rows max_bytes max_delay"),
        (&["requests"], "source max_attempts"),
        (&["requests", "source", "files"], "path format after ordered"),
        (&["erase"], "purge_after wait_for_consumers deadline remember key store_keeps keep_receipts"),
        (&["maintenance"], "vacuum_after log_retention optimize"),
        (&["leases"], "ttl"),
    ] {
        assert_eq!(keys(&root, path), set(names), "{path:?}");
    }
}

#[test]
fn the_schema_says_what_is_required_and_describes_every_key() {
    let root = project_schema();
    assert_eq!(root["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(root["title"], "alluvium.yaml");
    let required = |schema: &Value| -> BTreeSet<String> {
        schema["required"].as_array().unwrap().iter().map(|r| r.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(required(&root), set("project storage datasets"));
    assert_eq!(required(&root["$defs"]["Dataset"]), set("source org event_time fields"));
    assert_eq!(required(&root["$defs"]["Files"]), set("path format"));
    let mut mappings = vec![&root];
    mappings.extend(root["$defs"].as_object().unwrap().values());
    for mapping in mappings {
        for (key, property) in mapping.get("properties").and_then(Value::as_object).into_iter().flatten() {
            assert!(property.get("description").is_some(), "{key} has no description");
        }
    }
}
