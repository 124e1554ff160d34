//! Everything at once: senders, readers, flushes, checkpoints, cleaning, topic deletion.

use crate::support::*;
use apogee_model::TagFilter;
use apogee_store::cleaning::SpaceProbe;
use apogee_store::{
    Appending, Arrival, ArrivalListener, Clock, FlushDiskType, GetStatus, MessageStore,
    ReadRequest, StoreConfig,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

const QUEUES: i32 = 4;
const EACH: usize = 150;

struct Free;

impl SpaceProbe for Free {
    fn used_ratio(&self, _path: &Path) -> std::io::Result<f64> {
        Ok(0.5)
    }
}

/// Sums what it is told, as a long-polling service would.
#[derive(Default)]
struct Told([AtomicI64; QUEUES as usize]);

impl ArrivalListener for Told {
    fn arrived(&self, arrivals: &[Arrival]) {
        for arrival in arrivals.iter().filter(|arrival| &**arrival.queue.topic() == "Kept") {
            assert!(arrival.max_offset <= arrival.queue.max_offset());
            self.0[arrival.queue.queue_id() as usize]
                .fetch_max(arrival.max_offset, Ordering::Relaxed);
        }
    }
}

fn config(root: &Path, flush: FlushDiskType) -> StoreConfig {
    let mut config = small(root);
    config.mapped_file_size_commit_log = 64 * 1024;
    config.max_index_num = 4_000;
    config.flush_disk_type = flush;
    config.flush_interval_commit_log = 2;
    config.flush_commit_log_least_pages = 0;
    config.flush_interval_consume_queue = 2;
    config.flush_consume_queue_thorough_interval = 0;
    config.space_probe = Some(Arc::new(Free));
    config
}

/// One sender's life: batches of growing size to its own queue and to one that is deleted often.
fn sender(store: &MessageStore, queue: i32) {
    let sync = store.is_sync_flush();
    let mut sent = 0;
    while sent < EACH {
        let count = (sent % 7 + 1).min(EACH - sent);
        let texts: Vec<String> = (sent..sent + count).map(|n| format!("{queue}-{n}")).collect();
        let keys: Vec<Vec<u8>> = texts.iter().map(|text| properties(&[("KEYS", text)])).collect();
        let mut batch: Vec<_> = texts
            .iter()
            .zip(&keys)
            .map(|(text, keys)| Appending::new(fields("Kept", queue, text.as_bytes(), keys)))
            .chain([Appending::new(fields("Gone", queue, b"x", b""))])
            .collect();
        let end = store.append(&mut batch, NOW).unwrap();
        store.flushed().wait_blocking(end, Duration::from_secs(60)).unwrap();
        for (n, item) in batch.iter().take(count).enumerate() {
            let placed = item.outcome.clone().unwrap().unwrap();
            assert_eq!(placed.queue_offset, (sent + n) as i64);
        }
        // With SYNC_FLUSH what is acknowledged is readable; else a moment later.
        assert!(!sync || store.max_offset("Kept", queue) >= (sent + count) as i64);
        sent += count;
    }
}

/// Reads a queue to its end while it grows; every message comes once and in order.
fn reader(store: &MessageStore, queue: i32, failed: &AtomicBool) {
    let mut offset = 0;
    while offset < EACH as i64 && !failed.load(Ordering::Relaxed) {
        let plan = store.plan_read(&ReadRequest {
            topic: "Kept",
            queue_id: queue,
            offset,
            max_num: 5,
            max_bytes: usize::MAX,
            filter: &TagFilter::All,
        });
        if plan.status != GetStatus::Found {
            std::thread::yield_now();
            continue;
        }
        for slice in &plan.slices {
            for (at, _, body) in records(slice) {
                assert_eq!((at, body), (offset, format!("{queue}-{offset}").into_bytes()));
                offset += 1;
            }
        }
        assert_eq!(plan.next_begin_offset, offset);
    }
}

/// Runs a worker and tells the others when it fails.
fn telling(failed: &AtomicBool, work: impl FnOnce()) {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    if let Err(panic) = result {
        failed.store(true, Ordering::Relaxed);
        std::panic::resume_unwind(panic);
    }
}

fn everything_at_once(flush: FlushDiskType) {
    let dir = tempfile::tempdir().unwrap();
    let told = Arc::new(Told::default());
    let listener = Arc::clone(&told) as Arc<dyn ArrivalListener>;
    let store = MessageStore::open(config(dir.path(), flush), listener).unwrap();
    let clock: Clock = Arc::new(|| NOW);
    let threads = store.start_threads(&clock).unwrap();
    let (done, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (store, done, failed) = (&store, &done, &failed);
        let workers: Vec<_> = (0..QUEUES)
            .flat_map(|queue| {
                [
                    scope.spawn(move || telling(failed, || sender(store, queue))),
                    scope.spawn(move || telling(failed, || reader(store, queue, failed))),
                ]
            })
            .collect();
        let admin = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                store.delete_topic("Gone").unwrap();
                store.clean(NOW).unwrap();
                let _ = store.topics();
                std::thread::yield_now();
            }
        });
        let joined: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        admin.join().unwrap();
        assert!(joined.iter().all(Result::is_ok));
    });
    threads.stop();
    for (queue, max) in told.0.iter().enumerate() {
        assert_eq!(max.load(Ordering::Relaxed), EACH as i64, "arrivals of queue {queue}");
    }
    store.shutdown().unwrap();
    drop(store);
    let store = open(config(dir.path(), flush));
    for queue in 0..QUEUES {
        reader(&store, queue, &failed);
        let key = format!("{queue}-{}", EACH / 2);
        let hits = store.query("Kept", &key, apogee_store::KeyKind::Key, 10, 0, i64::MAX);
        assert_eq!(hits.unwrap().records.len(), 1);
    }
    let report = apogee_store::inspect::check(&config(dir.path(), flush)).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems.first());
}

#[test]
fn everything_at_once_with_sync_flush() {
    everything_at_once(FlushDiskType::SyncFlush);
}

#[test]
fn everything_at_once_with_async_flush() {
    everything_at_once(FlushDiskType::AsyncFlush);
}
