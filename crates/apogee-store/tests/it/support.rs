//! What the tests share: small stores, messages, and reading everything back.

use apogee_model::record::{LogEntry, RecordFields, parse_entry};
use apogee_model::{PropertyMap, TagFilter};
use apogee_store::{
    AppendError, Appending, FlushDiskType, GetStatus, MessageStore, NoListener, Placed,
    ReadRequest, StoreConfig,
};
use std::path::Path;
use std::sync::Arc;

/// A point in time that tests start from (ms).
pub const NOW: i64 = 1_796_000_000_000;

/// A configuration with small files.
pub fn small(root: &Path) -> StoreConfig {
    let mut config = StoreConfig::new(root);
    config.mapped_file_size_commit_log = 16 * 1024;
    config.mapped_file_size_consume_queue = 200;
    config.max_hash_slot_num = 16;
    config.max_index_num = 64;
    config.max_message_size = 8 * 1024;
    config.physical_memory = 1 << 30;
    config
}

/// The same with SYNC_FLUSH.
pub fn small_sync(root: &Path) -> StoreConfig {
    let mut config = small(root);
    config.flush_disk_type = FlushDiskType::SyncFlush;
    config
}

/// Opens without a listener.
pub fn open(config: StoreConfig) -> Arc<MessageStore> {
    MessageStore::open(config, Arc::new(NoListener)).unwrap()
}

/// Properties as stored.
pub fn properties(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut map = PropertyMap::new();
    for (name, value) in pairs {
        map.set(*name, *value);
    }
    map.encode()
}

/// Fields of a plain message.
pub fn fields<'a>(
    topic: &'a str,
    queue_id: i32,
    body: &'a [u8],
    properties: &'a [u8],
) -> RecordFields<'a> {
    RecordFields {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp: NOW - 1,
        born_host: "127.0.0.1:1234".parse().unwrap(),
        store_host: "127.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties,
    }
}

/// Appends one message.
pub fn try_send(
    store: &MessageStore,
    topic: &str,
    queue_id: i32,
    body: &[u8],
    pairs: &[(&str, &str)],
    now: i64,
) -> Result<Placed, AppendError> {
    let properties = properties(pairs);
    let mut batch = [Appending::new(fields(topic, queue_id, body, &properties))];
    store.append(&mut batch, now);
    batch[0].outcome.clone().unwrap()
}

/// Appends one plain message that must be stored.
pub fn send(store: &MessageStore, topic: &str, queue_id: i32, body: &str) -> Placed {
    try_send(store, topic, queue_id, body.as_bytes(), &[], NOW).unwrap()
}

/// Bodies of a queue from its lowest offset on, each with its offset.
pub fn read_all(store: &MessageStore, topic: &str, queue_id: i32) -> Vec<(i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut offset = store.min_offset(topic, queue_id);
    loop {
        let plan = store.plan_read(&ReadRequest {
            topic,
            queue_id,
            offset,
            max_num: 32,
            max_bytes: usize::MAX,
            filter: &TagFilter::All,
        });
        if plan.status != GetStatus::Found && plan.next_begin_offset <= offset {
            return found;
        }
        for slice in &plan.slices {
            found.extend(records(slice).into_iter().map(|r| (r.0, r.2)));
        }
        offset = plan.next_begin_offset;
    }
}

/// Bodies alone.
pub fn bodies(store: &MessageStore, topic: &str, queue_id: i32) -> Vec<String> {
    read_all(store, topic, queue_id)
        .into_iter()
        .map(|(_, body)| String::from_utf8(body).unwrap())
        .collect()
}

/// (queue offset, physical offset, body) of the records in a slice.
pub fn records(mut bytes: &[u8]) -> Vec<(i64, i64, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let LogEntry::Record(record) = parse_entry(bytes).unwrap() else {
            panic!("no record");
        };
        assert!(record.check_crc());
        found.push((record.queue_offset(), record.physical_offset(), record.body().to_vec()));
        bytes = &bytes[record.total_size()..];
    }
    found
}

/// Copies a folder.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
