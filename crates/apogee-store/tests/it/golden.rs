//! Stores written by the original, version 5.5.0, opened and compared with what it says itself.

use crate::support::*;
use apogee_store::{Boundary, KeyKind, MessageStore, StoreConfig};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn config(name: &str, root: &Path) -> StoreConfig {
    let meta = json(&fixture(name).join("meta.json"));
    let size = |key: &str| meta[key].as_u64().unwrap() as usize;
    let mut config = StoreConfig::new(root);
    config.mapped_file_size_commit_log = size("mappedFileSizeCommitLog");
    config.mapped_file_size_consume_queue = size("mappedFileSizeConsumeQueue");
    config.mapped_file_size_consume_queue_ext = size("mappedFileSizeConsumeQueueExt");
    config.max_hash_slot_num = size("maxHashSlotNum");
    config.max_index_num = size("maxIndexNum");
    config.max_message_size = size("maxMessageSize");
    config
}

fn open_copy(name: &str, root: &Path) -> Arc<MessageStore> {
    copy_dir(&fixture(name).join("root"), root);
    open(config(name, root))
}

fn check_queues(name: &str, store: &MessageStore) {
    let expected = json(&fixture(name).join("expected-queues.json"));
    assert_eq!(store.max_physical_offset(), expected["maxPhyOffset"].as_i64().unwrap());
    let mut queues = 0;
    for queue in expected["queues"].as_array().unwrap() {
        if queue["type"] != "SimpleCQ" {
            continue;
        }
        queues += 1;
        let topic = queue["topic"].as_str().unwrap();
        let id = queue["queueId"].as_i64().unwrap() as i32;
        let handle = store.queue(topic, id).unwrap_or_else(|| panic!("{topic}@{id}"));
        let at = format!("{name} {topic}@{id}");
        assert_eq!(handle.max_offset(), queue["maxOffset"].as_i64().unwrap(), "{at}");
        assert_eq!(store.min_offset(topic, id), queue["minOffset"].as_i64().unwrap(), "{at}");
        for unit in queue["units"].as_array().unwrap() {
            let offset = unit["queueOffset"].as_i64().unwrap();
            let found = handle.unit(offset).unwrap().unwrap();
            assert_eq!(found.physical_offset, unit["commitLogOffset"].as_i64().unwrap(), "{at}");
            assert_eq!(i64::from(found.size), unit["size"].as_i64().unwrap(), "{at}");
            assert_eq!(
                store.tags_code_of(&handle, &found),
                unit["tagsCode"].as_i64().unwrap(),
                "{at} {offset}"
            );
            assert_eq!(
                store.message_time(topic, id, offset),
                unit["storeTimestamp"].as_i64(),
                "{at}"
            );
        }
        for search in queue["searchOffset"].as_array().unwrap() {
            let time = search["timestamp"].as_i64().unwrap();
            for (boundary, key) in [(Boundary::Lower, "lower"), (Boundary::Upper, "upper")] {
                assert_eq!(
                    store.offset_by_time(topic, id, time, boundary),
                    search[key].as_i64().unwrap(),
                    "{at} {key} {time}"
                );
            }
        }
    }
    assert_eq!(
        store.topics().iter().map(|topic| store.topic_queues(topic).len()).sum::<usize>(),
        queues,
        "{name}: no queue more than the original has"
    );
}

fn check_queries(name: &str, store: &MessageStore) {
    let expected = json(&fixture(name).join("expected-queues.json"));
    for query in expected["queryMessage"].as_array().unwrap() {
        let topic = query["topic"].as_str().unwrap();
        let key = query["key"].as_str().unwrap();
        let kind = match query["indexType"].as_str() {
            Some("T") => KeyKind::Tag,
            _ => KeyKind::Key,
        };
        let found = store.query(topic, key, kind, 64, 0, i64::MAX).unwrap();
        let offsets: Vec<i64> = found.records.iter().map(|record| records(record)[0].1).collect();
        let mut wanted: Vec<i64> = query["commitLogOffsets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|offset| offset.as_i64().unwrap())
            .collect();
        // The original indexes the record at which its recovery began a second time.
        wanted.dedup();
        assert_eq!(offsets, wanted, "{name} {topic} {key} {kind:?}");
    }
}

#[test]
fn queries_by_key_and_tag_equal_the_originals() {
    for name in ["clean", "killed", "killed-torn", "ext"] {
        let dir = tempfile::tempdir().unwrap();
        let store = open_copy(name, dir.path());
        check_queries(name, &store);
        store.shutdown().unwrap();
        drop(store);
        check_queries(name, &open(config(name, dir.path())));
    }
}

#[test]
fn queues_and_times_equal_the_originals() {
    for name in ["clean", "killed", "killed-torn", "ext"] {
        let dir = tempfile::tempdir().unwrap();
        let store = open_copy(name, dir.path());
        check_queues(name, &store);
        store.shutdown().unwrap();
        drop(store);
        let again = open(config(name, dir.path()));
        assert!(!again.recovery().crashed);
        check_queues(name, &again);
    }
}
