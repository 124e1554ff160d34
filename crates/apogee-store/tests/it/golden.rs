//! Stores written by the original, version 5.5.0, opened and compared with what it says itself.

use crate::support::*;
use apogee_model::record::{LogEntry, parse_entry};
use apogee_store::{Appending, Boundary, KeyKind, MessageStore, StoreConfig};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub fn config(name: &str, root: &Path) -> StoreConfig {
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

pub fn open_copy(name: &str, root: &Path) -> Arc<MessageStore> {
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

/// Files of a folder, sorted by name.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The records of a fixture's log with everything an append needs.
fn log_bytes(name: &str) -> Vec<u8> {
    let dir = fixture(name).join("root/commitlog");
    files(&dir).iter().flat_map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn the_originals_messages_appended_here_give_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(config("killed", dir.path()));
    let golden = log_bytes("killed");
    let mut at = 0;
    loop {
        match parse_entry(&golden[at..]).unwrap() {
            LogEntry::Record(record) => {
                let mut batch = [Appending::new(record.fields())];
                store.append(&mut batch, record.store_timestamp()).unwrap();
                let placed = batch[0].outcome.clone().unwrap().unwrap();
                assert_eq!(placed.physical_offset, at as i64);
                assert_eq!(placed.queue_offset, record.queue_offset());
                at += record.total_size();
            }
            LogEntry::Blank { size } => at += size,
            LogEntry::Empty => break,
        }
    }
    store.shutdown().unwrap();
    drop(store);
    let ours: Vec<u8> = files(&dir.path().join("commitlog"))
        .iter()
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect();
    assert_eq!(ours[..at], golden[..at]);
    assert!(ours[at..].iter().all(|byte| *byte == 0));
    same_queues(&fixture("killed").join("root/consumequeue"), &dir.path().join("consumequeue"));
    // The first index file is full and therefore whole on both sides.
    let index = |root: &Path| std::fs::read(&files(&root.join("index"))[0]).unwrap();
    assert_eq!(index(dir.path()), index(&fixture("killed").join("root")));
}

/// Each unit the original had written must stand at the same place; ours has more, because its
/// dispatch was stopped before the end.
fn same_queues(golden: &Path, ours: &Path) {
    for topic in files(golden) {
        for queue in files(&topic) {
            for file in files(&queue) {
                let wanted = std::fs::read(&file).unwrap();
                let found = std::fs::read(ours.join(file.strip_prefix(golden).unwrap())).unwrap();
                assert_eq!(found.len(), wanted.len(), "{}", file.display());
                for (found, wanted) in found.chunks(20).zip(wanted.chunks(20)) {
                    assert!(found == wanted || wanted == [0; 20], "{}", file.display());
                }
            }
        }
    }
}

#[test]
fn every_record_is_found_at_its_offset_with_the_originals_fields() {
    for name in ["clean", "killed", "ext"] {
        let dir = tempfile::tempdir().unwrap();
        let store = open_copy(name, dir.path());
        let text = std::fs::read_to_string(fixture(name).join("expected.jsonl")).unwrap();
        for line in text.lines() {
            let expected: Value = serde_json::from_str(line).unwrap();
            let number = |key: &str| expected[key].as_i64().unwrap();
            let at = number("commitLogOffset");
            let bytes = store.get_by_physical_offset(at, None).unwrap().unwrap();
            let LogEntry::Record(record) = parse_entry(&bytes).unwrap() else {
                panic!("no record at {at} of {name}");
            };
            assert_eq!(record.topic(), expected["topic"].as_str().unwrap());
            assert_eq!(i64::from(record.queue_id()), number("queueId"));
            assert_eq!(record.queue_offset(), number("queueOffset"));
            assert_eq!(record.physical_offset(), at);
            assert_eq!(record.total_size() as i64, number("storeSize"));
            assert_eq!(store.record_time(at), Some(number("storeTimestamp")));
            assert!(record.check_crc());
        }
    }
}
