//! Deleting files, refusing writes on a full disk, deleting topics.

use crate::support::*;
use apogee_store::cleaning::{CommittedOffsets, SpaceProbe};
use apogee_store::faults::DiskFaults;
use apogee_store::{AppendError, MessageStore};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

struct Percent(AtomicU32);

impl SpaceProbe for Percent {
    fn used_ratio(&self, _path: &Path) -> io::Result<f64> {
        Ok(f64::from(self.0.load(Ordering::Relaxed)) / 100.0)
    }
}

fn filled(root: &Path, percent: &Arc<Percent>) -> Arc<MessageStore> {
    let mut config = small(root);
    config.space_probe = Some(Arc::clone(percent) as Arc<dyn SpaceProbe>);
    let store = open(config);
    for n in 0..200 {
        let key = format!("key{n}");
        let pairs = [("KEYS", key.as_str())];
        try_send(&store, "T", 0, &[b'x'; 500], &pairs, NOW).unwrap();
    }
    store.flush_log().unwrap();
    store.flush_derived().unwrap();
    store
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

const FAR: i64 = NOW + 1_000 * 86_400_000;

#[test]
fn nothing_is_deleted_without_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), &Arc::new(Percent(AtomicU32::new(50))));
    store.measure_space().unwrap();
    // 16:00 UTC, deleteWhen is 04.
    let report = store.clean(FAR - FAR % 86_400_000 + 16 * 3_600_000).unwrap();
    assert_eq!((report.reason, report.commit_log_files), (None, 0));
}

#[test]
fn expired_files_go_at_their_hour_and_queues_and_index_follow() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), &Arc::new(Percent(AtomicU32::new(50))));
    let (logs, queues, indexes) = (
        files(&dir.path().join("commitlog")),
        files(&dir.path().join("consumequeue/T/0")),
        files(&dir.path().join("index")),
    );
    store.measure_space().unwrap();
    let four = FAR - FAR % 86_400_000 + 4 * 3_600_000 + 5;
    let report = store.clean(four).unwrap();
    assert!(report.commit_log_files > 0 && report.commit_log_files <= 10);
    assert_eq!(files(&dir.path().join("commitlog")), logs - report.commit_log_files);
    assert_eq!(files(&dir.path().join("consumequeue/T/0")), queues - report.queue_files);
    assert_eq!(files(&dir.path().join("index")), indexes - report.index_files);
    assert!(report.queue_files > 0 && report.index_files > 0);
    let min = store.min_offset("T", 0);
    assert!(min > 0);
    let read = read_all(&store, "T", 0);
    assert_eq!(read.first().unwrap().0, min);
    assert_eq!(read.len() as i64, 200 - min);
    store.shutdown().unwrap();
    drop(store);
    let again = open(small(dir.path()));
    assert_eq!(again.min_offset("T", 0), min);
    assert_eq!(again.max_offset("T", 0), 200);
}

#[test]
fn under_pressure_files_go_before_their_time_and_unread_ones_are_counted() {
    struct ReadTo(i64);
    impl CommittedOffsets for ReadTo {
        fn lowest_committed(&self, _topic: &str, _queue: i32) -> Option<i64> {
            Some(self.0)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), &Arc::new(Percent(AtomicU32::new(86))));
    store.set_committed_offsets(Arc::new(ReadTo(7)));
    assert_eq!(store.min_offset("T", 0), 0);
    store.measure_space().unwrap();
    let report = store.clean(NOW).unwrap();
    assert_eq!(report.reason, Some("the disk is nearly full"));
    assert!(report.commit_log_files > 0);
    assert_eq!(report.lost_unread.len(), 1);
    assert_eq!(report.lost_unread[0].count, store.min_offset("T", 0) - 7);
}

#[test]
fn on_request_unread_files_are_kept_under_pressure() {
    struct ReadTo(std::sync::atomic::AtomicI64);
    impl CommittedOffsets for ReadTo {
        fn lowest_committed(&self, _topic: &str, _queue: i32) -> Option<i64> {
            Some(self.0.load(Ordering::Relaxed))
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let percent = Arc::new(Percent(AtomicU32::new(86)));
    let mut config = small(dir.path());
    config.space_probe = Some(Arc::clone(&percent) as Arc<dyn SpaceProbe>);
    config.refuse_rather_than_delete_unread = true;
    let store = open(config);
    for _ in 0..100 {
        try_send(&store, "T", 0, &[b'x'; 500], &[], NOW).unwrap();
    }
    store.flush_log().unwrap();
    let read_to = Arc::new(ReadTo(30.into()));
    store.set_committed_offsets(Arc::clone(&read_to) as Arc<dyn CommittedOffsets>);
    store.measure_space().unwrap();
    let report = store.clean(NOW).unwrap();
    assert_eq!((report.commit_log_files, report.lost_unread.len()), (1, 0));
    assert!(store.min_offset("T", 0) <= 30);
    assert_eq!(store.clean(NOW).unwrap().commit_log_files, 0);
    read_to.0.store(100, Ordering::Relaxed);
    assert!(store.clean(NOW).unwrap().commit_log_files > 0);
}

#[test]
fn a_queue_rebuilt_after_its_first_messages_expired_keeps_its_offsets() {
    let dir = tempfile::tempdir().unwrap();
    let percent = Arc::new(Percent(AtomicU32::new(86)));
    let store = filled(dir.path(), &percent);
    send(&store, "Old", 3, "one");
    store.measure_space().unwrap();
    store.clean(NOW).unwrap();
    let (min, max) = (store.min_offset("T", 0), store.max_offset("T", 0));
    assert!(min > 0);
    let expected = read_all(&store, "T", 0);
    store.shutdown().unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    let store = open(small(dir.path()));
    assert!(store.recovery().rebuilt_queues >= 2);
    assert_eq!((store.min_offset("T", 0), store.max_offset("T", 0)), (min, max));
    assert_eq!(read_all(&store, "T", 0), expected);
    assert_eq!(send(&store, "T", 0, "next").queue_offset, max);
    assert_eq!(bodies(&store, "Old", 3), ["one"]);
}

#[test]
fn a_queue_whose_messages_all_expired_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let percent = Arc::new(Percent(AtomicU32::new(86)));
    let mut config = small(dir.path());
    config.space_probe = Some(Arc::clone(&percent) as Arc<dyn SpaceProbe>);
    let store = open(config);
    for _ in 0..25 {
        send(&store, "Old", 0, "x");
    }
    for _ in 0..200 {
        try_send(&store, "T", 0, &[b'x'; 500], &[], NOW).unwrap();
    }
    store.flush_log().unwrap();
    store.measure_space().unwrap();
    assert!(store.clean(NOW).unwrap().commit_log_files > 1);
    assert_eq!((store.min_offset("Old", 0), store.max_offset("Old", 0)), (25, 25));
    assert!(read_all(&store, "Old", 0).is_empty());
    store.shutdown().unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.path().join("consumequeue/Old")).unwrap();
    let store = open(small(dir.path()));
    assert_eq!((store.min_offset("Old", 0), store.max_offset("Old", 0)), (25, 25));
    assert_eq!(send(&store, "Old", 0, "next").queue_offset, 25);
    assert_eq!(bodies(&store, "Old", 0), ["next"]);
}

#[test]
fn a_deletion_that_broke_off_is_completed_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(small(dir.path()));
    send(&store, "T", 0, "old");
    store.flush_derived().unwrap();
    let end = store.appended().get();
    drop(store);
    // As if the process had died behind the first step of a deletion.
    std::fs::write(dir.path().join("deletedTopics"), format!("{end}\tT\n")).unwrap();
    let store = open(small(dir.path()));
    assert_eq!(store.max_offset("T", 0), 0);
    assert_eq!(send(&store, "T", 0, "new").queue_offset, 0);
    assert_eq!(bodies(&store, "T", 0), ["new"]);
}

#[test]
fn above_the_limit_writes_are_refused_with_everything_named_and_taken_again_below() {
    let dir = tempfile::tempdir().unwrap();
    let percent = Arc::new(Percent(AtomicU32::new(92)));
    let store = filled(dir.path(), &percent);
    store.measure_space().unwrap();
    let error = try_send(&store, "T", 0, b"a", &[], NOW).unwrap_err();
    let AppendError::DiskFull(text) = error else {
        panic!("{error:?}");
    };
    let path = dir.path().join("commitlog");
    for part in [path.to_str().unwrap(), "92.0%", "90%", "diskSpaceWarningLevelRatio"] {
        assert!(text.contains(part), "{text}");
    }
    percent.0.store(60, Ordering::Relaxed);
    store.measure_space().unwrap();
    send(&store, "T", 0, "b");
}

#[test]
fn slices_outlive_the_deletion_of_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let percent = Arc::new(Percent(AtomicU32::new(86)));
    let store = filled(dir.path(), &percent);
    let bytes = store.get_by_physical_offset(0, None).unwrap().unwrap();
    store.measure_space().unwrap();
    assert!(store.clean(NOW).unwrap().commit_log_files > 0);
    assert_eq!(records(&bytes)[0].2, [b'x'; 500]);
    assert!(store.get_by_physical_offset(0, None).unwrap().is_none());
}

#[test]
fn a_deleted_topic_begins_again_at_0_and_no_restart_brings_it_back() {
    for clean_stop in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(small(dir.path()));
        for n in 0..100 {
            send(&store, "T", 0, &format!("old{n}"));
            send(&store, "Other", 0, &format!("{n}"));
        }
        assert!(store.delete_topic("T").unwrap());
        assert!(!store.delete_topic("T").unwrap());
        assert!(!dir.path().join("consumequeue/T").exists());
        for n in 0..5 {
            assert_eq!(send(&store, "T", 0, &format!("new{n}")).queue_offset, n);
        }
        let check = |store: &MessageStore| {
            assert_eq!(bodies(store, "T", 0), ["new0", "new1", "new2", "new3", "new4"]);
            assert_eq!(bodies(store, "Other", 0).len(), 100);
        };
        check(&store);
        if clean_stop {
            store.shutdown().unwrap();
        }
        drop(store);
        let store = open(small(dir.path()));
        check(&store);
        store.delete_topic("T").unwrap();
        drop(store);
        // Even when all queues are rebuilt from the log.
        std::fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
        let store = open(small(dir.path()));
        assert_eq!(store.max_offset("T", 0), 0);
        assert_eq!(bodies(&store, "Other", 0).len(), 100);
    }
}

#[test]
fn topics_can_be_deleted_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small(dir.path());
    config.mapped_file_size_commit_log = 256 * 1024;
    let store = open(config);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..3)
            .map(|sender| {
                let store = &store;
                scope.spawn(move || {
                    for n in 0..600 {
                        send(store, "T", sender, "x");
                        send(store, "Kept", sender, &format!("{n}"));
                    }
                })
            })
            .collect();
        let (store, done) = (&store, &done);
        let deleter = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                store.delete_topic("T").unwrap();
                store.flush_derived().unwrap();
                let _ = read_all(store, "T", 0);
            }
        });
        for sender in senders {
            sender.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        deleter.join().unwrap();
    });
    for sender in 0..3 {
        let wanted: Vec<String> = (0..600).map(|n| n.to_string()).collect();
        assert_eq!(bodies(&store, "Kept", sender), wanted);
    }
}

/// Fails what it is told to fail.
#[derive(Default)]
struct Faults {
    write: AtomicBool,
    sync: AtomicBool,
    allocate: AtomicBool,
}

fn fail_if(flag: &AtomicBool, kind: io::ErrorKind) -> io::Result<()> {
    if flag.load(Ordering::Relaxed) {
        return Err(io::Error::from(kind));
    }
    Ok(())
}

impl DiskFaults for Faults {
    fn before_write(&self) -> io::Result<()> {
        fail_if(&self.write, io::ErrorKind::Other)
    }

    fn before_sync(&self) -> io::Result<()> {
        fail_if(&self.sync, io::ErrorKind::Other)
    }

    fn before_allocate(&self) -> io::Result<()> {
        fail_if(&self.allocate, io::ErrorKind::StorageFull)
    }
}

#[test]
fn a_failed_write_refuses_until_repaired_and_loses_no_offset() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let mut config = small(dir.path());
    config.disk_faults = Some(Arc::clone(&faults) as Arc<dyn DiskFaults>);
    let store = open(config);
    send(&store, "T", 0, "a");
    faults.write.store(true, Ordering::Relaxed);
    let error = try_send(&store, "T", 0, b"lost", &[], NOW).unwrap_err();
    assert!(matches!(error, AppendError::Poisoned(_)));
    faults.write.store(false, Ordering::Relaxed);
    let error = try_send(&store, "T", 0, b"lost", &[], NOW).unwrap_err();
    assert!(matches!(error, AppendError::Poisoned(_)));
    store.try_recover().unwrap();
    assert_eq!(send(&store, "T", 0, "b").queue_offset, 1);
    assert_eq!(bodies(&store, "T", 0), ["a", "b"]);
}

#[test]
fn a_failed_flush_is_told_and_nothing_becomes_visible_before_the_repair() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let mut config = small_sync(dir.path());
    config.disk_faults = Some(Arc::clone(&faults) as Arc<dyn DiskFaults>);
    let store = open(config);
    faults.sync.store(true, Ordering::Relaxed);
    let placed = send(&store, "T", 0, "a");
    assert!(store.flush_log().is_err());
    let waited = store.flushed().wait_blocking(placed.end(), std::time::Duration::from_secs(10));
    assert!(waited.unwrap_err().to_string().contains("flush"));
    assert!(!store.is_flushed(&placed));
    assert_eq!(store.max_offset("T", 0), 0);
    assert!(store.try_recover().is_err());
    faults.sync.store(false, Ordering::Relaxed);
    store.try_recover().unwrap();
    assert!(store.is_flushed(&placed));
    assert_eq!(bodies(&store, "T", 0), ["a"]);
}

#[test]
fn the_flush_thread_repairs_by_itself_when_the_disk_works_again() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let mut config = small_sync(dir.path());
    config.disk_faults = Some(Arc::clone(&faults) as Arc<dyn DiskFaults>);
    let store = open(config);
    let clock: apogee_store::Clock = Arc::new(|| NOW);
    let threads = store.start_threads(&clock).unwrap();
    faults.sync.store(true, Ordering::Relaxed);
    let placed = send(&store, "T", 0, "a");
    let wait = std::time::Duration::from_secs(30);
    assert!(store.flushed().wait_blocking(placed.end(), wait).is_err());
    assert_eq!(store.max_offset("T", 0), 0);
    faults.sync.store(false, Ordering::Relaxed);
    while store.refusal().is_some() {
        std::thread::yield_now();
    }
    let next = send(&store, "T", 0, "b");
    store.flushed().wait_blocking(next.end(), wait).unwrap();
    assert_eq!(bodies(&store, "T", 0), ["a", "b"]);
    threads.stop();
    store.shutdown().unwrap();
}

#[test]
fn a_store_on_a_full_disk_still_opens_and_reads() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let store = open(small(dir.path()));
    send(&store, "T", 0, "a");
    store.shutdown().unwrap();
    drop(store);
    let mut config = small(dir.path());
    config.disk_faults = Some(Arc::clone(&faults) as Arc<dyn DiskFaults>);
    faults.allocate.store(true, Ordering::Relaxed);
    let store = open(config.clone());
    assert_eq!(bodies(&store, "T", 0), ["a"]);
    drop(store);
    // A new store, where not even the first file can be made.
    let empty = tempfile::tempdir().unwrap();
    config.store_path_root_dir = empty.path().to_path_buf();
    let store = open(config);
    let error = try_send(&store, "T", 0, b"a", &[], NOW).unwrap_err();
    assert!(matches!(error, AppendError::DiskFull(_)));
    faults.allocate.store(false, Ordering::Relaxed);
    send(&store, "T", 0, "b");
}

#[test]
fn a_full_disk_at_a_roll_refuses_and_goes_on_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let mut config = small(dir.path());
    config.disk_faults = Some(Arc::clone(&faults) as Arc<dyn DiskFaults>);
    let store = open(config);
    faults.allocate.store(true, Ordering::Relaxed);
    let mut stored = 0;
    let error = loop {
        match try_send(&store, "T", 0, &[1; 900], &[], NOW) {
            Ok(placed) => assert_eq!(placed.queue_offset, stored),
            Err(error) => break error,
        }
        stored += 1;
    };
    let AppendError::DiskFull(text) = error else {
        panic!("{error:?}");
    };
    assert!(text.contains("commitlog/00000000000000016384"), "{text}");
    faults.allocate.store(false, Ordering::Relaxed);
    assert_eq!(send(&store, "T", 0, "z").queue_offset, stored);
    assert_eq!(read_all(&store, "T", 0).len() as i64, stored + 1);
    drop(store);
    let again = open(small(dir.path()));
    assert_eq!(read_all(&again, "T", 0).len() as i64, stored + 1);
}
