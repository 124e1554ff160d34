//! What was acknowledged is kept, what is not kept is not shown, and a full disk is no end.

use crate::cases_support::{Disk, Usage, faults, probe, scale, until};
use crate::harness::{Fixture, Peer, TIMEOUT, send_header};
use apogee_protocol::headers::DeleteTopicRequestHeader;
use apogee_protocol::{RequestCode, ResponseCode, Str};
use apogee_store::FlushDiskType;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// D-01: an offset that a consumer has seen must never name another message after a crash.
#[tokio::test]
async fn nobody_sees_a_message_before_it_is_on_disk_when_flushes_are_slow() {
    let disk = Arc::new(Disk::default());
    let fixture = Fixture::start_with(|_, store| {
        store.flush_disk_type = FlushDiskType::SyncFlush;
        store.disk_faults = faults(&disk);
    })
    .await;
    let (producer, consumer, reader) =
        (fixture.connect().await, fixture.connect().await, fixture.connect().await);
    producer.send("T", 0, "on disk").await;
    let waiting = tokio::spawn(async move { consumer.pull_waiting("CG", "T", 0, 1).await });
    until("the pull", || fixture.broker.waiting_pulls() == 1).await;
    disk.hold_syncs(true);
    let before = fixture.broker.store().max_physical_offset();
    let sending = tokio::spawn(async move { producer.send("T", 0, "not yet").await });
    until("the append", || fixture.broker.store().appended().get() > before).await;
    for offset in [0, 1] {
        let pulled = reader.pull("T", 0, offset).await;
        assert_eq!((pulled.header.max_offset, pulled.bodies().len() as i64), (1, 1 - offset));
    }
    assert!(!sending.is_finished(), "acknowledged before the flush");
    assert!(!waiting.is_finished(), "shown before the flush");
    disk.hold_syncs(false);
    assert_eq!(sending.await.unwrap().queue_offset, 1);
    assert_eq!(waiting.await.unwrap().bodies(), ["not yet"]);
}

/// D-02: an I/O error of the flush is told to the sender, and the broker mends itself.
#[tokio::test]
async fn a_send_whose_flush_fails_is_not_acknowledged_and_sending_goes_on_when_the_disk_does() {
    let disk = Arc::new(Disk::default());
    let fixture = Fixture::start_with(|_, store| {
        store.flush_disk_type = FlushDiskType::SyncFlush;
        store.disk_faults = faults(&disk);
    })
    .await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "first").await;
    disk.sync_fails.store(true, Ordering::Relaxed);
    let failed = peer.try_send(&send_header("T", 0, ""), b"unsure").await;
    assert_eq!(failed.response_code(), ResponseCode::FLUSH_DISK_TIMEOUT, "{:?}", failed.remark);
    let refused = peer.try_send(&send_header("T", 0, ""), b"refused").await;
    assert_eq!(
        refused.response_code(),
        ResponseCode::SERVICE_NOT_AVAILABLE,
        "{:?}",
        refused.remark
    );
    assert_eq!(peer.pull("T", 0, 0).await.bodies(), ["first"]);
    disk.sync_fails.store(false, Ordering::Relaxed);
    send_when_possible(&peer, b"last").await;
    let bodies = peer.pull("T", 0, 0).await.bodies();
    assert_eq!((bodies[0].as_str(), bodies[bodies.len() - 1].as_str()), ("first", "last"));
    // What was refused is nowhere; what was unsure is there once or not at all.
    let between = &bodies[1..bodies.len() - 1];
    assert!(between.is_empty() || between == ["unsure"], "{bodies:?}");
}

async fn send_when_possible(peer: &Peer, body: &[u8]) {
    let begin = std::time::Instant::now();
    loop {
        let answer = peer.try_send(&send_header("T", 0, ""), body).await;
        if answer.response_code() == ResponseCode::SUCCESS {
            return;
        }
        assert!(begin.elapsed() < TIMEOUT, "{:?}", answer.remark);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// D-14 and R-05: refused with everything that an operator needs, readable, and mended by itself.
#[tokio::test]
async fn above_the_limit_of_the_disk_sends_are_refused_with_path_percentage_limit_and_key() {
    let usage = Arc::new(Usage::default());
    let fixture = Fixture::start_with(|_, store| store.space_probe = probe(&usage)).await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "first").await;
    usage.set(93);
    let begin = std::time::Instant::now();
    let refused = loop {
        let answer = peer.try_send(&send_header("T", 0, ""), b"more").await;
        if answer.response_code() != ResponseCode::SUCCESS {
            break answer;
        }
        assert!(begin.elapsed() < TIMEOUT, "a full disk is not noticed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(refused.response_code(), ResponseCode::SERVICE_NOT_AVAILABLE);
    let remark = refused.remark.unwrap();
    let path = fixture.broker.store().config().commit_log_dir();
    for part in [path.to_str().unwrap(), "93.0%", "90%", "diskSpaceWarningLevelRatio"] {
        assert!(remark.contains(part), "{part} is missing in {}", remark.as_str());
    }
    assert_eq!(peer.pull("T", 0, 0).await.bodies()[0], "first");
    assert_eq!(peer.commit("CG", "T", 0, 1).await.response_code(), ResponseCode::SUCCESS);
    usage.set(50);
    send_when_possible(&peer, b"again").await;
}

/// D-14: the space for a file is reserved before it is used, so that its lack is an answer.
#[tokio::test]
async fn a_disk_that_fills_up_under_load_gives_an_error_and_a_living_broker_that_goes_on() {
    let disk = Arc::new(Disk::default());
    let fixture = Fixture::start_with(|_, store| {
        store.disk_faults = faults(&disk);
        store.mapped_file_size_commit_log = 64 * 1024;
    })
    .await;
    let peer = fixture.connect().await;
    disk.no_space.store(true, Ordering::Relaxed);
    let mut stored = 0;
    let refused = loop {
        let answer = peer.try_send(&send_header("T", 0, ""), &[b'x'; 4000]).await;
        if answer.response_code() != ResponseCode::SUCCESS {
            break answer;
        }
        stored += 1;
        assert!(stored < 1000);
    };
    assert_eq!(refused.response_code(), ResponseCode::SERVICE_NOT_AVAILABLE);
    let remark = refused.remark.unwrap();
    assert!(remark.contains("commitlog"), "{}", remark.as_str());
    assert_eq!(peer.pull_all("T", 0, 0, stored).await.len(), stored);
    disk.no_space.store(false, Ordering::Relaxed);
    send_when_possible(&peer, b"again").await;
    let bodies = peer.pull_all("T", 0, 0, stored + 1).await;
    assert_eq!((bodies.len(), bodies[stored].as_str()), (stored + 1, "again"));
}

/// D-13: whatever an admin deletes, the broker lives, and other topics stay complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_deleted_and_made_again_under_load_harm_neither_the_broker_nor_other_topics() {
    let fixture = Fixture::start().await;
    fixture.connect().await.create_topic("Kept", 1).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut senders = Vec::new();
    for sender in 0..4 {
        let (peer, done) = (fixture.connect().await, Arc::clone(&done));
        senders.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                // It may be deleted between the check and the append; only no answer would be wrong.
                let answer = peer.try_send(&send_header("Gone", sender, ""), b"x").await;
                let code = answer.response_code();
                assert!(
                    code == ResponseCode::SUCCESS || code == ResponseCode::TOPIC_NOT_EXIST,
                    "{code:?} {:?}",
                    answer.remark
                );
                let _ = peer.pull("Kept", 0, 0).await;
            }
        }));
    }
    let (keeper, admin) = (fixture.connect().await, fixture.connect().await);
    let keeping = tokio::spawn(async move {
        for n in 0..400 {
            assert_eq!(keeper.send("Kept", 0, &n.to_string()).await.queue_offset, n);
        }
        keeper
    });
    keeping_busy(&admin).await;
    let keeper = keeping.await.unwrap();
    done.store(true, Ordering::Relaxed);
    for sender in senders {
        sender.await.unwrap();
    }
    let wanted: Vec<String> = (0..400).map(|n| n.to_string()).collect();
    assert_eq!(keeper.pull_all("Kept", 0, 0, 400).await, wanted);
    let folder = fixture.stop_wholly().await.unwrap();
    let again = Fixture::open(folder.path(), |_, _| {}).await;
    assert_eq!(again.connect().await.pull_all("Kept", 0, 0, 400).await, wanted);
}

/// Deletes and makes a topic again, many times.
async fn keeping_busy(admin: &Peer) {
    for _ in 0..30 * scale() {
        admin.create_topic("Gone", 4).await;
        let header =
            DeleteTopicRequestHeader { topic: Str::from_static("Gone"), ..Default::default() };
        let answer = admin.ask(RequestCode::DELETE_TOPIC_IN_BROKER, &header).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    }
}
