//! Appending, reading, rolling, restarting.

use crate::support::*;
use apogee_model::TagFilter;
use apogee_store::{Appending, GetStatus, ReadRequest};
use std::time::Duration;

fn request<'a>(topic: &'a str, offset: i64) -> ReadRequest<'a> {
    ReadRequest {
        topic,
        queue_id: 0,
        offset,
        max_num: 32,
        max_bytes: usize::MAX,
        filter: &TagFilter::All,
    }
}

#[test]
fn messages_are_readable_at_once_and_adjacent_ones_share_a_slice() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small(dir.path()));
    for n in 0..5 {
        assert_eq!(send(&store, "T", 0, &format!("m{n}")).queue_offset, n);
    }
    let plan = store.plan_read(&request("T", 1));
    assert_eq!(plan.status, GetStatus::Found);
    assert_eq!((plan.message_count, plan.next_begin_offset), (4, 5));
    assert_eq!(plan.slices.len(), 1);
    assert_eq!(records(&plan.slices[0])[3].2, b"m4");
}

#[test]
fn statuses_and_corrections_follow_the_original() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small(dir.path()));
    send(&store, "T", 0, "a");
    send(&store, "T", 0, "b");
    let look = |topic: &str, offset| {
        let plan = store.plan_read(&request(topic, offset));
        (plan.status, plan.next_begin_offset)
    };
    assert_eq!(look("None", 3), (GetStatus::NoMatchedLogicQueue, 0));
    assert_eq!(look("T", 2), (GetStatus::OffsetOverflowOne, 2));
    // O-01: one past the end, or far past it, goes to the end and never to 0.
    assert_eq!(look("T", 3), (GetStatus::OffsetOverflowBadly, 2));
    assert_eq!(look("T", 1003), (GetStatus::OffsetOverflowBadly, 2));
    assert_eq!(look("T", -1), (GetStatus::OffsetTooSmall, 0));
}

#[test]
fn a_filtered_read_moves_on_and_reports_no_match() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small(dir.path()));
    for tag in ["A", "B", "A"] {
        try_send(&store, "T", 0, tag.as_bytes(), &[("TAGS", tag)], NOW).unwrap();
    }
    let only = |tag: &str| TagFilter::parse(tag).unwrap();
    let read = |filter: &TagFilter| store.plan_read(&ReadRequest { filter, ..request("T", 0) });
    let plan = read(&only("A"));
    assert_eq!((plan.message_count, plan.slices.len()), (2, 2));
    let plan = read(&only("C"));
    assert_eq!(plan.status, GetStatus::NoMatchedMessage);
    assert_eq!(plan.next_begin_offset, 3);
}

#[test]
fn hot_reads_stop_at_32_messages_and_at_the_byte_limit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small(dir.path()));
    for n in 0..50 {
        send(&store, "T", 0, &format!("message {n}"));
    }
    let plan = store.plan_read(&ReadRequest { max_num: 1000, ..request("T", 0) });
    assert_eq!((plan.message_count, plan.next_begin_offset), (32, 32));
    let plan = store.plan_read(&ReadRequest { max_bytes: 1, ..request("T", 0) });
    assert_eq!(plan.message_count, 1, "the first message always fits");
}

#[test]
fn a_batch_over_several_files_leaves_blanks_and_reads_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small(dir.path()));
    let bodies: Vec<Vec<u8>> = (0..100_u8).map(|n| vec![n; 700]).collect();
    let mut batch: Vec<_> =
        bodies.iter().map(|body| Appending::new(fields("T", 0, body, b""))).collect();
    let end = store.append(&mut batch, NOW).unwrap();
    let placed: Vec<_> = batch.iter().map(|item| item.outcome.clone().unwrap().unwrap()).collect();
    assert_eq!(placed.last().unwrap().end(), end);
    assert!(end > 4 * 16 * 1024);
    assert_eq!(
        read_all(&store, "T", 0),
        bodies.into_iter().enumerate().map(|(n, body)| (n as i64, body)).collect::<Vec<_>>()
    );
}

#[test]
fn a_message_that_breaks_a_rule_does_not_stop_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small(dir.path()));
    let big = vec![0; 9000];
    let mut batch = [
        Appending::new(fields("T", 0, b"a", b"")),
        Appending::new(fields("T", 0, &big, b"")),
        Appending::new(fields("../../x", 0, b"b", b"")),
        Appending::new(fields("T", -1, b"b", b"")),
        Appending::new(fields("T", 0, b"c", b"")),
    ];
    assert!(store.append(&mut batch, NOW).is_some());
    let ok: Vec<bool> = batch.iter().map(|item| item.outcome.as_ref().unwrap().is_ok()).collect();
    assert_eq!(ok, [true, false, false, false, true]);
    assert_eq!(bodies(&store, "T", 0), ["a", "c"]);
}

#[test]
fn a_clean_restart_keeps_everything_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let store = open(small(dir.path()));
        assert!(!store.recovery().crashed);
        assert_eq!(bodies(&store, "T", 1).len(), round * 30);
        for n in 0..30 {
            send(&store, "T", 1, &format!("{round}-{n}"));
        }
        store.shutdown().unwrap();
        assert!(!dir.path().join("abort").exists());
    }
}

#[test]
fn a_store_dropped_without_shutdown_recovers_everything() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let store = open(small(dir.path()));
        assert_eq!(store.recovery().crashed, round > 0);
        assert_eq!(bodies(&store, "T", 1).len(), round * 30);
        for n in 0..30 {
            send(&store, "T", 1, &format!("{round}-{n}"));
        }
    }
}

#[test]
fn a_second_process_is_told_who_holds_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let _store = open(small(dir.path()));
    let error = apogee_store::MessageStore::open(
        small(dir.path()),
        std::sync::Arc::new(apogee_store::NoListener),
    )
    .err()
    .unwrap();
    assert!(error.to_string().contains(&std::process::id().to_string()));
}

#[test]
fn with_sync_flush_nothing_is_visible_before_its_flush() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small_sync(dir.path()));
    let placed = send(&store, "T", 0, "a");
    assert_eq!(store.max_offset("T", 0), 0);
    assert!(store.get_by_physical_offset(placed.physical_offset, None).unwrap().is_none());
    assert_eq!(store.flush_log().unwrap(), placed.end());
    assert_eq!(store.max_offset("T", 0), 1);
    assert_eq!(bodies(&store, "T", 0), ["a"]);
}

#[test]
fn the_flush_thread_serves_sync_waiters() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small_sync(dir.path()));
    let clock: apogee_store::Clock = std::sync::Arc::new(|| NOW);
    let threads = store.start_threads(&clock).unwrap();
    for n in 0..20 {
        let placed = send(&store, "T", 0, &format!("{n}"));
        store.flushed().wait_blocking(placed.end(), Duration::from_secs(20)).unwrap();
        assert_eq!(store.max_offset("T", 0), n + 1);
    }
    threads.stop();
    store.shutdown().unwrap();
}

#[test]
fn many_queues_open_with_few_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small(dir.path());
    config.mapped_file_size_commit_log = 1 << 20;
    config.max_open_queue_files = 8;
    let handles = || {
        let own = std::fs::read_dir("/proc/self/fd").unwrap();
        own.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .filter(|target| target.starts_with(dir.path()))
            .count()
    };
    let store = open(config.clone());
    for n in 0..600 {
        send(&store, &format!("T{}", n % 60), n / 60, &n.to_string());
    }
    store.flush_derived().unwrap();
    store.shutdown().unwrap();
    drop(store);
    let store = open(config);
    for n in 0..600 {
        assert_eq!(bodies(&store, &format!("T{}", n % 60), n / 60), [n.to_string()]);
    }
    assert!(handles() < 20, "{} files are open", handles());
}

#[test]
fn cold_reads_have_the_disk_limits_and_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small(dir.path());
    config.physical_memory = 10_000;
    let store = open(config);
    for n in 0..100 {
        send(&store, "T", 0, &format!("message {n}"));
    }
    let plan = store.plan_read(&request("T", 0));
    assert!(plan.cold && plan.suggest_slave);
    assert_eq!(plan.message_count, 8);
    assert_eq!(records(&plan.slices[0])[7].2, b"message 7");
    let plan = store.plan_read(&request("T", 90));
    assert!(!plan.cold && !plan.suggest_slave);
    assert_eq!(plan.message_count, 10);
}

#[test]
fn an_arrival_is_told_once_per_queue_and_round() {
    use apogee_store::{Arrival, ArrivalListener};
    type Told = (String, i32, i64, Option<i64>);
    #[derive(Default)]
    struct Log(parking_lot::Mutex<Vec<Told>>);
    impl ArrivalListener for Log {
        fn arrived(&self, arrivals: &[Arrival]) {
            self.0.lock().extend(arrivals.iter().map(|a| {
                (a.queue.topic().to_string(), a.queue.queue_id(), a.max_offset, a.tags_code)
            }));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let log = std::sync::Arc::new(Log::default());
    let listener = std::sync::Arc::clone(&log) as std::sync::Arc<dyn ArrivalListener>;
    let store = apogee_store::MessageStore::open(small(dir.path()), listener).unwrap();
    let tagged = properties(&[("TAGS", "Aa")]);
    let mut batch = [
        Appending::new(fields("T", 0, b"a", &tagged)),
        Appending::new(fields("T", 1, b"b", &tagged)),
        Appending::new(fields("T", 0, b"c", &tagged)),
        Appending::new(fields("T", 1, b"d", b"")),
    ];
    store.append(&mut batch, NOW);
    assert_eq!(*log.0.lock(), [("T".to_owned(), 0, 2, Some(2112)), ("T".to_owned(), 1, 2, None)]);
}

#[test]
fn delay_topics_carry_the_delivery_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small(dir.path()));
    try_send(&store, "SCHEDULE_TOPIC_XXXX", 2, b"a", &[("DELAY", "3"), ("TAGS", "x")], NOW)
        .unwrap();
    let unit = store.queue("SCHEDULE_TOPIC_XXXX", 2).unwrap().unit(0).unwrap().unwrap();
    assert_eq!(unit.tags_code, NOW + 10_000);
}

#[test]
fn half_and_rollback_records_get_no_unit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small(dir.path()));
    for (sys_flag, queue_offset) in [(0x4, 0), (0x8, 0), (0xC, 0), (0x0, 1)] {
        let mut fields = fields("T", 0, b"a", b"");
        fields.sys_flag = sys_flag;
        let mut batch = [Appending::new(fields)];
        store.append(&mut batch, NOW);
        let placed = batch[0].outcome.clone().unwrap().unwrap();
        assert_eq!(placed.queue_offset, queue_offset, "{sys_flag}");
    }
    assert_eq!(store.max_offset("T", 0), 2);
}
