//! Checking, dumping and repairing stores that are not open.

use crate::golden;
use crate::support::*;
use apogee_store::StoreError;
use apogee_store::inspect;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

#[test]
fn stores_of_the_original_are_sound() {
    for (name, records) in [("clean", 160), ("ext", 23)] {
        let dir = tempfile::tempdir().unwrap();
        copy_dir(&golden::fixture(name).join("root"), dir.path());
        let report = inspect::check(&golden::config(name, dir.path())).unwrap();
        assert!(report.is_sound(), "{name}: {:?}", report.problems);
        assert_eq!(report.records, records);
        assert!(report.units > 0 && report.index_entries > 0);
    }
}

#[test]
fn a_crashed_store_shows_what_recovery_will_mend() {
    let dir = tempfile::tempdir().unwrap();
    copy_dir(&golden::fixture("killed-torn").join("root"), dir.path());
    let config = golden::config("killed-torn", dir.path());
    let before = inspect::check(&config).unwrap();
    let missing = |what: &str| before.problems.iter().filter(|p| p.what.contains(what)).count();
    assert_eq!(missing("has no unit"), 7, "{:?}", before.problems);
    assert_eq!(before.problem_count, 8, "and the torn record");
    let store = open(config.clone());
    store.shutdown().unwrap();
    drop(store);
    let after = inspect::check(&config).unwrap();
    assert!(after.is_sound(), "{:?}", after.problems);
    assert_eq!(after.records, before.records);
}

fn filled(root: &Path) {
    let store = open(small(root));
    for n in 0..60 {
        let key = format!("k{n}");
        try_send(&store, "T", 0, &[b'x'; 800], &[("KEYS", &key)], NOW).unwrap();
    }
    store.shutdown().unwrap();
}

#[test]
fn records_are_dumped_from_any_offset() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let config = small(dir.path());
    let mut offsets = Vec::new();
    let end = inspect::dump(&config, None, |offset, _| {
        offsets.push(offset);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(offsets.len(), 60);
    assert!(end > *offsets.last().unwrap());
    let mut first = None;
    inspect::dump(&config, Some(offsets[30]), |offset, record| {
        first = Some((offset, record.queue_offset()));
        ControlFlow::Break(())
    })
    .unwrap();
    assert_eq!(first, Some((offsets[30], 30)));
}

#[test]
fn damage_before_flushed_messages_stops_the_start_and_is_repaired_on_request() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let config = small(dir.path());
    let first = dir.path().join("commitlog/00000000000000000000");
    let intact = std::fs::read(&first).unwrap();
    let mut bytes = intact.clone();
    bytes[5_000..5_400].fill(0xEE);
    std::fs::write(&first, &bytes).unwrap();
    // Something makes recovery read the whole log.
    std::fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    std::fs::write(dir.path().join("abort"), "1").unwrap();
    std::fs::remove_file(dir.path().join("derived.manifest")).unwrap();
    let checked = inspect::check(&config).unwrap();
    assert!(!checked.is_sound());
    let open =
        || apogee_store::MessageStore::open(config.clone(), Arc::new(apogee_store::NoListener));
    let error = open().err().unwrap();
    assert!(matches!(error, StoreError::DamagedLog { .. }), "{error}");
    assert_eq!(std::fs::read(&first).unwrap(), bytes, "nothing was changed");
    let report = inspect::repair(&config).unwrap();
    assert_eq!(report.damaged.len(), 1);
    assert_eq!(std::fs::read(&report.damaged[0].1).unwrap(), bytes);
    let store = open().unwrap();
    let read = read_all(&store, "T", 0);
    assert!(read.len() > 35 && read.len() < 60);
    assert_eq!(read.last().unwrap().0, 59, "later messages keep their offsets");
    assert_eq!(store.max_offset("T", 0), 60);
    assert_eq!(send(&store, "T", 0, "next").queue_offset, 60);
    let error = inspect::repair(&config).err().unwrap();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
}
