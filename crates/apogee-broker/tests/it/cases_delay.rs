//! Delay levels: never early, never lost, never twice, whatever stops, fails or fills up.

use crate::cases_support::{Disk, Usage, faults, probe, until};
use crate::harness::{Fixture, Peer, send_header};
use apogee_broker::now_ms;
use apogee_protocol::ResponseCode;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const LEVEL_1: &str = "DELAY\u{1}1\u{2}";

/// Sends delayed messages, all at once.
async fn send_delayed(peer: &Peer, range: std::ops::Range<i64>) {
    let mut waiting = Vec::new();
    for n in range {
        let mut header = send_header("T", 0, LEVEL_1);
        header.born_timestamp = now_ms();
        let connection = Arc::clone(&peer.connection);
        let command = apogee_protocol::RemotingCommand::request(
            apogee_protocol::RequestCode::SEND_MESSAGE_V2,
            &header,
        )
        .body(n.to_string().into_bytes());
        waiting.push(tokio::spawn(async move {
            connection.invoke(command, crate::harness::TIMEOUT).await.unwrap()
        }));
    }
    for answer in waiting {
        let answer = answer.await.unwrap();
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    }
}

fn short_levels(store: &mut apogee_store::StoreConfig) {
    store.message_delay_level = "1s 2s".to_owned();
}

/// T-01: an orderly stop in the middle of the delivery repeats nothing and loses nothing.
#[tokio::test]
async fn a_stop_in_the_middle_of_the_delivery_neither_repeats_nor_loses_a_message() {
    const ALL: i64 = 2_000;
    let fixture = Fixture::start_with(|_, store| short_levels(store)).await;
    let peer = fixture.connect().await;
    send_delayed(&peer, 0..ALL).await;
    let store = Arc::clone(fixture.broker.store());
    until("the delivery", || store.max_offset("T", 0) > 0).await;
    drop(store);
    let folder = fixture.stop_wholly().await.unwrap();
    let again = Fixture::open(folder.path(), |_, store| short_levels(store)).await;
    let bodies = again.connect().await.pull_all("T", 0, 0, ALL as usize).await;
    assert_eq!(bodies.iter().collect::<HashSet<_>>().len(), ALL as usize);
    again.stop_wholly().await;
    let third = Fixture::open(folder.path(), |_, store| short_levels(store)).await;
    assert_eq!(third.broker.store().max_offset("T", 0), ALL);
}

/// T-03: what the target refuses at its time comes when it is possible again, in order, once.
#[tokio::test]
async fn messages_that_are_due_while_the_disk_is_full_come_when_there_is_space() {
    let usage = Arc::new(Usage::default());
    let fixture = Fixture::start_with(|_, store| {
        short_levels(store);
        store.space_probe = probe(&usage);
    })
    .await;
    let peer = fixture.connect().await;
    send_delayed(&peer, 0..50).await;
    usage.set(95);
    let store = Arc::clone(fixture.broker.store());
    store.measure_space().unwrap();
    let due = now_ms() + 1_300;
    until("the time", || now_ms() > due).await;
    assert_eq!(store.max_offset("T", 0), 0);
    usage.set(10);
    assert_eq!(peer.pull_all("T", 0, 0, 50).await.len(), 50);
    peer.send_with("T", 0, LEVEL_1, "last").await;
    let bodies = peer.pull_all("T", 0, 0, 51).await;
    assert_eq!(bodies[50], "last");
    assert_eq!(bodies.iter().collect::<HashSet<_>>().len(), 51);
}

/// T-03: the same with a disk that fails while the broker tries.
#[tokio::test]
async fn messages_that_are_due_while_flushes_fail_are_not_lost() {
    let disk = Arc::new(Disk::default());
    let fixture = Fixture::start_with(|_, store| {
        short_levels(store);
        store.flush_disk_type = apogee_store::FlushDiskType::SyncFlush;
        store.disk_faults = faults(&disk);
    })
    .await;
    let peer = fixture.connect().await;
    send_delayed(&peer, 0..50).await;
    disk.sync_fails.store(true, Ordering::Relaxed);
    let due = now_ms() + 1_300;
    until("the time", || now_ms() > due).await;
    assert_eq!(
        peer.try_send(&send_header("T", 1, ""), b"x").await.response_code(),
        ResponseCode::SERVICE_NOT_AVAILABLE
    );
    disk.sync_fails.store(false, Ordering::Relaxed);
    let bodies = peer.pull_all("T", 0, 0, 50).await;
    assert_eq!(bodies.iter().collect::<HashSet<_>>().len(), 50);
}

/// T-01: progress that is on disk never runs ahead of the messages that are.
#[tokio::test]
async fn progress_of_deliveries_is_not_saved_before_the_delivered_messages_are_on_disk() {
    let disk = Arc::new(Disk::default());
    let fixture = Fixture::start_with(|config, store| {
        short_levels(store);
        config.flush_delay_offset_interval = 100;
        store.flush_interval_commit_log = 60_000;
        store.disk_faults = faults(&disk);
    })
    .await;
    let peer = fixture.connect().await;
    let document = fixture.folder.as_ref().unwrap().path().join("config/delayOffset.json");
    let saved = move || std::fs::read_to_string(&document).unwrap_or_default().contains("1:1");
    peer.send_with("T", 0, LEVEL_1, "late").await;
    disk.hold_syncs(true);
    assert_eq!(peer.pull_all("T", 0, 0, 1).await, ["late"]);
    let end = fixture.broker.store().max_physical_offset();
    let later = now_ms() + 400;
    until("some saves", || now_ms() > later).await;
    assert!(fixture.broker.store().flushed().get() < end);
    assert!(!saved());
    disk.hold_syncs(false);
    until("the progress on disk", saved).await;
    assert!(fixture.broker.store().flushed().get() >= end);
}

/// T-10: never before its time by the broker's clock, and soon after.
#[tokio::test]
async fn no_message_comes_before_its_time_and_none_long_after() {
    let fixture = Fixture::start_with(|_, store| short_levels(store)).await;
    let peer = fixture.connect().await;
    for n in 0..20 {
        send_delayed(&peer, n * 10..n * 10 + 10).await;
        let next = now_ms() + 17;
        until("the next moment", || now_ms() > next).await;
    }
    assert_eq!(peer.pull_all("T", 0, 0, 200).await.len(), 200);
    let mut offset = 0;
    while offset < 200 {
        let pulled = peer.pull("T", 0, offset).await;
        for waited in pulled.each(|record| record.store_timestamp() - record.born_timestamp()) {
            assert!((1_000..2_500).contains(&waited), "{waited} ms");
        }
        offset = pulled.header.next_begin_offset;
    }
}
