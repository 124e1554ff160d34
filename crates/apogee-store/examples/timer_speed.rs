//! How long timers take: a million waiting, ten thousand due in one second, and a start with them all.
//!
//! `cargo run --release -p apogee-store --example timer_speed`

use apogee_model::PropertyMap;
use apogee_model::record::RecordFields;
use apogee_store::timer::{TIMER_TOPIC, Timers};
use apogee_store::{Appending, MessageStore, NoListener, StoreConfig};
use std::sync::Arc;
use std::time::Instant;

const WAITING: usize = 1_000_000;
const DUE: usize = 10_000;
const NOW: i64 = 1_796_000_000_000;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn send(store: &MessageStore, count: usize, out: impl Fn(usize) -> i64) {
    for first in (0..count).step_by(512) {
        let properties: Vec<Vec<u8>> = (first..count.min(first + 512))
            .map(|n| {
                let mut map = PropertyMap::new();
                map.set("UNIQ_KEY", format!("7F00000109A44E0E2F2A98BE{n:08X}"));
                map.set("TIMER_OUT_MS", out(n).to_string());
                map.set("REAL_TOPIC", "T");
                map.set("REAL_QID", "0");
                map.encode()
            })
            .collect();
        let mut items: Vec<Appending<'_>> = properties.iter().map(|one| item(one)).collect();
        let _ = store.append(&mut items, NOW);
    }
}

fn item(properties: &[u8]) -> Appending<'_> {
    let host = std::net::SocketAddr::from(([127, 0, 0, 1], 1234));
    Appending::new(RecordFields {
        topic: TIMER_TOPIC,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: NOW,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &[7; 100],
        properties,
    })
}

fn run(timers: &mut Timers, now: i64) -> Fallible<usize> {
    let mut delivered = 0;
    loop {
        let step = timers.step(now)?;
        delivered += step.delivered;
        if step.wait_ms > 0 {
            return Ok(delivered);
        }
    }
}

fn memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0)
        / 1024
}

#[allow(clippy::print_stdout, reason = "the numbers are what the example is for")]
fn main() -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let store: Arc<MessageStore> =
        MessageStore::open(StoreConfig::new(dir.path()), Arc::new(NoListener))?;
    let mut timers = Timers::open(&store, NOW)?;
    send(&store, WAITING, |n| NOW + 3_600_000 + (n as i64 % 86_400) * 1000);
    let begin = Instant::now();
    run(&mut timers, NOW)?;
    println!("taking in {WAITING}: {:?}, {} MiB of memory", begin.elapsed(), memory_mib());
    send(&store, DUE, |_| NOW + 5_000);
    run(&mut timers, NOW)?;
    let begin = Instant::now();
    let delivered = run(&mut timers, NOW + 6_000)?;
    println!("delivering {delivered} due in one second: {:?}", begin.elapsed());
    let begin = Instant::now();
    timers.save(NOW + 6_000)?;
    println!("save: {:?}", begin.elapsed());
    drop(timers);
    let begin = Instant::now();
    let timers = Timers::open(&store, NOW + 6_000)?;
    println!("start with {} waiting: {:?}", timers.waiting(), begin.elapsed());
    drop(timers);
    std::fs::remove_file(dir.path().join("config/timercheck"))?;
    let begin = Instant::now();
    let timers = Timers::open(&store, NOW + 6_000)?;
    println!("start without timercheck, {} looked at: {:?}", timers.waiting(), begin.elapsed());
    Ok(())
}
