//! Rough speeds of the store on this machine, for a person at a terminal.
//!
//! `cargo run --release -p apogee-store --example store_speed -- DIR [records, 0 = open only] [queues]`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a tool for developers that may stop with a panic"
)]

use apogee_model::record::RecordFields;
use apogee_model::{PropertyMap, TagFilter};
use apogee_store::{Appending, MessageStore, NoListener, ReadRequest, StoreConfig};
use std::sync::Arc;
use std::time::Instant;

const BATCH: usize = 256;
const NOW: i64 = 1_796_000_000_000;

/// CPU time of this thread in seconds: on a busy machine the wall clock says little.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos: f64 = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    nanos / 1e9
}

fn report(what: &str, count: usize, wall: f64, cpu: f64) {
    println!("{what:28} {wall:8.3} s wall {cpu:8.3} s cpu {:10.0}/s cpu", count as f64 / cpu);
}

fn timed<T>(what: &str, count: usize, work: impl FnOnce() -> T) -> T {
    let (start, before) = (Instant::now(), cpu());
    let result = work();
    report(what, count, start.elapsed().as_secs_f64(), cpu() - before);
    result
}

fn open(config: &StoreConfig) -> Arc<MessageStore> {
    MessageStore::open(config.clone(), Arc::new(NoListener)).expect("the store opens")
}

fn append(store: &MessageStore, records: usize, queues: usize, indexed: bool) {
    let body = [b'x'; 128];
    let topics: Vec<String> = (0..queues.div_ceil(8)).map(|n| format!("Topic{n}")).collect();
    let (mut sent, mut wall, mut spent) = (0, 0.0, 0.0);
    while sent < records {
        let properties: Vec<Vec<u8>> = (0..BATCH)
            .map(|n| {
                let mut map = PropertyMap::new();
                if indexed {
                    map.set("UNIQ_KEY", format!("7F00000109A44E0E2F2A98BE{:08X}", sent + n));
                }
                map.set("TAGS", "TagA");
                map.set("WAIT", "true");
                map.encode()
            })
            .collect();
        let mut batch: Vec<_> = (0..BATCH)
            .map(|n| {
                let queue = (sent / 16 + n / 16) % queues;
                Appending::new(RecordFields {
                    topic: &topics[queue / 8],
                    queue_id: (queue % 8) as i32,
                    flag: 0,
                    sys_flag: 0,
                    born_timestamp: NOW,
                    born_host: "127.0.0.1:1".parse().expect("an address"),
                    store_host: "127.0.0.1:2".parse().expect("an address"),
                    reconsume_times: 0,
                    prepared_transaction_offset: 0,
                    body: &body,
                    properties: &properties[n],
                })
            })
            .collect();
        let (start, before) = (Instant::now(), cpu());
        store.append(&mut batch, NOW + sent as i64 / 1000).expect("the batch is stored");
        wall += start.elapsed().as_secs_f64();
        spent += cpu() - before;
        sent += BATCH;
    }
    report(if indexed { "append, two keys each" } else { "append, no key" }, sent, wall, spent);
}

fn read(store: &MessageStore) -> usize {
    let mut count = 0;
    for topic in store.topics() {
        for queue in store.topic_queues(&topic) {
            let mut offset = 0;
            while offset < queue.max_offset() {
                let plan = store.plan_read(&ReadRequest {
                    topic: &topic,
                    queue_id: queue.queue_id(),
                    offset,
                    max_num: 32,
                    max_bytes: usize::MAX,
                    filter: &TagFilter::All,
                });
                count += plan.message_count;
                offset = plan.next_begin_offset;
            }
        }
    }
    count
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("a folder is named");
    let mut number = |default| arguments.next().map_or(default, |n| n.parse().expect("a number"));
    let (records, queues) = (number(2_000_000), number(64));
    let config = StoreConfig::new(dir);
    if records == 0 {
        let store = timed("open", 1, || open(&config));
        println!("{:?}", store.recovery());
        timed("shutdown", 1, || store.shutdown().expect("a clean stop"));
        return;
    }
    let mut plain = config.clone();
    plain.store_path_root_dir = plain.store_path_root_dir.join("plain");
    plain.message_index_enable = false;
    let store = open(&plain);
    append(&store, records, queues, false);
    timed("shutdown", 1, || store.shutdown().expect("a clean stop"));
    drop(store);

    let store = timed("open new", 1, || open(&config));
    append(&store, records, queues, true);
    timed("write out queues and index", 1, || store.flush_derived().expect("it is written"));
    timed("flush", 1, || store.flush_log().expect("it is flushed"));
    let count = timed("read all", records, || read(&store));
    assert!(count >= records);
    drop(store);
    let store = timed("open after a crash", records, || open(&config));
    assert!(store.recovery().crashed);
    timed("checkpoint", 1, || store.save_checkpoint().expect("it is written"));
    drop(store);
    let store = timed("open, checkpoint, crash", records, || open(&config));
    timed("shutdown", 1, || store.shutdown().expect("a clean stop"));
    drop(store);
    let store = timed("open after a clean stop", 1, || open(&config));
    println!("{:?}", store.recovery());
}
