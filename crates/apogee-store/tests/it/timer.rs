//! Timer messages: the original's files read and continued.

use crate::golden;
use crate::support::*;
use apogee_model::PropertyMap;
use apogee_model::record::LogEntry;
use apogee_model::record::parse_entry;
use apogee_store::timer::{TIMER_TOPIC, Timers};
use apogee_store::{MessageStore, StoreConfig};
use std::path::Path;
use std::sync::Arc;

const LOG_FILE: usize = 65_536;
/// When the original was stopped.
const STOPPED: i64 = 1796054466942;
const TOPIC: &str = "TopicTimer";

fn timer_config(root: &Path) -> StoreConfig {
    let mut config = golden::config("clean", root);
    config.mapped_file_size_timer_log = LOG_FILE;
    config
}

/// The original's store with its timer files.
fn open_golden(root: &Path) -> Arc<MessageStore> {
    copy_dir(&golden::fixture("clean").join("root"), root);
    let timer = golden::fixture("timer");
    let mut log = std::fs::read(timer.join("timerlog-head.bin")).unwrap();
    log.resize(LOG_FILE, 0);
    let mut check = std::fs::read(timer.join("timercheck-head.bin")).unwrap();
    check.resize(4096, 0);
    for folder in ["timerlog", "config"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::write(root.join("timerlog/00000000000000000000"), log).unwrap();
    std::fs::write(root.join("config/timercheck"), check).unwrap();
    open(timer_config(root))
}

/// Second, first, last and count of the original's slots.
fn golden_slots() -> Vec<(i64, i64, i64, i32)> {
    let text = std::fs::read_to_string(golden::fixture("timer").join("slots.tsv")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let cells: Vec<i64> = line.split('\t').map(|cell| cell.parse().unwrap()).collect();
            (cells[0] * 1000, cells[1], cells[2], cells[3] as i32)
        })
        .collect()
}

fn set_read_time(root: &Path, time: i64) {
    let path = root.join("config/timercheck");
    let mut check = std::fs::read(&path).unwrap();
    check[..8].copy_from_slice(&time.to_be_bytes());
    std::fs::write(path, check).unwrap();
}

fn run(timers: &mut Timers, now: i64) -> usize {
    let mut delivered = 0;
    loop {
        let step = timers.step(now).unwrap();
        delivered += step.delivered;
        if step.wait_ms > 0 {
            return delivered;
        }
    }
}

fn properties_of(store: &MessageStore, topic: &str, queue_id: i32, offset: i64) -> PropertyMap {
    let unit = store.queue(topic, queue_id).unwrap().unit(offset).unwrap().unwrap();
    let bytes = store.get_by_physical_offset(unit.physical_offset, None).unwrap().unwrap();
    let Ok(LogEntry::Record(record)) = parse_entry(&bytes) else { panic!("no record") };
    PropertyMap::parse(record.properties().as_bytes())
}

#[test]
fn the_wheel_made_from_the_originals_log_equals_the_originals() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_golden(dir.path());
    let golden = golden_slots();
    set_read_time(dir.path(), golden[0].0);
    let timers = Timers::open(&store, STOPPED).unwrap();
    assert_eq!(timers.slots().collect::<Vec<_>>(), golden);
}

#[test]
fn the_wheel_file_holds_the_originals_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_golden(dir.path());
    let golden = golden_slots();
    set_read_time(dir.path(), golden[0].0);
    std::fs::write(dir.path().join("timerwheel"), []).unwrap();
    Timers::open(&store, STOPPED).unwrap();
    let wheel = std::fs::read(dir.path().join("timerwheel")).unwrap();
    assert_eq!(wheel.len(), 38_707_200);
    for (time, first, last, count) in golden {
        let tick = time / 1000;
        let at = (tick % 1_209_600) as usize * 32;
        let mut expected = Vec::new();
        for word in [tick, first, last] {
            expected.extend(word.to_be_bytes());
        }
        expected.extend(count.to_be_bytes());
        expected.extend([0; 4]);
        assert_eq!(wheel[at..at + 32], expected, "{tick}");
    }
}

#[test]
fn the_originals_timers_go_on_here_and_each_comes_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_golden(dir.path());
    let mut timers = Timers::open(&store, STOPPED).unwrap();
    let pending: Vec<i64> = timers.slots().map(|slot| slot.0).collect();
    assert_eq!(pending.len(), 3, "1 h, 2 h (taken back) and a roll");
    let before = store.max_offset(TOPIC, 0);
    assert_eq!(run(&mut timers, STOPPED), 0);
    assert_eq!(run(&mut timers, pending[0] + 999), 0, "not before its tick is over");
    assert_eq!(run(&mut timers, pending[0] + 1000), 1);
    let hour = properties_of(&store, TOPIC, 0, before);
    assert_eq!(hour.get("KEYS"), Some("timer-1h"));
    assert_eq!(hour.get("TIMER_ENQUEUE_MS"), Some("1796053820000"));
    assert_eq!(hour.get("TIMER_DEQUEUE_MS"), Some((pending[0] + 1000).to_string().as_str()));
    assert_eq!(run(&mut timers, pending[1] + 1000), 0, "it was taken back");
    assert_eq!(run(&mut timers, pending[2] + 1000), 1);
    let queue_end = store.max_offset(TIMER_TOPIC, 0);
    let rolled = properties_of(&store, TIMER_TOPIC, 0, queue_end - 1);
    assert_eq!(rolled.get("TIMER_ROLL_TIMES"), Some("1"));
    let out: i64 = rolled.get("TIMER_OUT_MS").unwrap().parse().unwrap();
    assert_eq!(run(&mut timers, out + 999), 0);
    assert_eq!(run(&mut timers, out + 1000), 1);
    assert_eq!(properties_of(&store, TOPIC, 0, before + 1).get("KEYS"), Some("timer-roll"));
    assert_eq!(store.max_offset(TOPIC, 0), before + 2);
}

#[test]
fn what_the_original_delivered_does_not_come_again_whichever_file_is_lost() {
    for lost in [&["config/timercheck"][..], &["timerlog"], &["config/timercheck", "timerlog"]] {
        let dir = tempfile::tempdir().unwrap();
        let store = open_golden(dir.path());
        for path in lost {
            let path = dir.path().join(path);
            if path.is_dir() {
                std::fs::remove_dir_all(path).unwrap();
            } else {
                std::fs::remove_file(path).unwrap();
            }
        }
        let end = store.max_physical_offset();
        let mut timers = Timers::open(&store, STOPPED).unwrap();
        assert_eq!(run(&mut timers, STOPPED), 0, "{lost:?}");
        assert_eq!(store.max_physical_offset(), end, "{lost:?}");
        let hour = 1_796_057_420_000;
        assert_eq!(run(&mut timers, hour + 1000), 1, "{lost:?}");
        assert_eq!(run(&mut timers, hour + 3_601_000), 0, "{lost:?}: taken back");
        timers.close(hour).unwrap();
        let mut again = Timers::open(&store, hour).unwrap();
        assert_eq!(run(&mut again, hour + 3_601_000), 0, "{lost:?}");
    }
}

#[test]
fn a_log_of_another_file_size_names_the_setting() {
    let dir = tempfile::tempdir().unwrap();
    drop(open_golden(dir.path()));
    let mut config = timer_config(dir.path());
    config.mapped_file_size_timer_log = LOG_FILE / 2;
    let error = Timers::open(&open(config), STOPPED).unwrap_err();
    assert!(error.to_string().contains("mappedFileSizeTimerLog"), "{error}");
}

#[test]
fn a_store_without_timer_messages_gets_no_timer_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small(dir.path()));
    let mut timers = Timers::open(&store, NOW).unwrap();
    send(&store, "T", 0, "x");
    run(&mut timers, NOW);
    timers.close(NOW).unwrap();
    assert!(!dir.path().join("timerwheel").exists());
    assert!(!dir.path().join("config/timercheck").exists());
}
