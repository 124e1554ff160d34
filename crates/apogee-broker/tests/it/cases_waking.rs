//! Waiting and being refused: waking is immediate, and a refusal tells what is slow.

use crate::cases_support::{Disk, faults};
use crate::harness::{Fixture, send_header, subscription};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode};
use apogee_store::FlushDiskType;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// E-03: single messages at random times, each waits for nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_messages_at_random_times_reach_a_waiting_consumer_at_once() {
    let fixture = Fixture::start().await;
    let (consumer, producer) = (fixture.connect().await, fixture.connect().await);
    producer.create_topic("T", 1).await;
    consumer.join("c1", "CG", vec![subscription("T", "*", 1)]).await;
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        let mut offset = 0;
        while offset < 50 {
            let pulled = consumer.pull_waiting("CG", "T", 0, offset).await;
            let now = Instant::now();
            offset = pulled.header.next_begin_offset;
            for body in pulled.bodies() {
                let _ = arrived.send((body, now));
            }
        }
    });
    let mut random = fastrand::Rng::with_seed(3);
    let mut latencies = Vec::new();
    for n in 0..50 {
        tokio::time::sleep(Duration::from_millis(random.u64(0..40))).await;
        let sent = Instant::now();
        producer.send("T", 0, &n.to_string()).await;
        let (body, at) = arrivals.recv().await.unwrap();
        assert_eq!(body, n.to_string());
        latencies.push(at.saturating_duration_since(sent));
    }
    reading.await.unwrap();
    latencies.sort_unstable();
    // Far above what it takes, far below any poll interval.
    assert!(latencies[25] < Duration::from_millis(50), "{latencies:?}");
    assert!(latencies[49] < Duration::from_secs(1), "{latencies:?}");
}

/// E-01: rolls of the log, deletions and synchronous flushes are no reason to refuse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moderate_load_is_never_refused() {
    let fixture = Fixture::start_with(|_, store| {
        store.flush_disk_type = FlushDiskType::SyncFlush;
        store.mapped_file_size_commit_log = 64 * 1024;
    })
    .await;
    let mut senders = Vec::new();
    for sender in 0..8 {
        let peer = fixture.connect().await;
        senders.push(tokio::spawn(async move {
            for _ in 0..60 {
                let answer = peer.try_send(&send_header("T", sender % 4, ""), &[7; 2_000]).await;
                assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
            }
        }));
    }
    for sender in senders {
        sender.await.unwrap();
    }
}

/// E-01: a refusal by overload has the original's code and names the slow stage and its limit.
#[tokio::test]
async fn sends_that_pile_up_before_a_slow_disk_are_refused_with_stage_and_limit() {
    let disk = Arc::new(Disk::default());
    let fixture = Fixture::start_with(|config, store| {
        config.send_thread_pool_queue_capacity = 4;
        store.flush_disk_type = FlushDiskType::SyncFlush;
        store.disk_faults = faults(&disk);
    })
    .await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "first").await;
    disk.hold_syncs(true);
    let mut waiting = Vec::new();
    let refused = loop {
        let header = send_header("T", 0, "");
        let command =
            RemotingCommand::request(RequestCode::SEND_MESSAGE_V2, &header).body(&b"x"[..]);
        let connection = Arc::clone(&peer.connection);
        let mut sending = tokio::spawn(async move {
            connection.invoke(command, crate::harness::TIMEOUT).await.unwrap()
        });
        // Only a refusal is answered while the disk waits.
        match tokio::time::timeout(Duration::from_millis(100), &mut sending).await {
            Ok(answer) => break answer.unwrap(),
            Err(_) => waiting.push(sending),
        }
        assert!(waiting.len() <= 4, "nothing is refused");
    };
    assert_eq!(refused.response_code(), ResponseCode::SYSTEM_BUSY);
    let remark = refused.remark.unwrap();
    assert!(
        remark.contains("disk") && remark.contains("sendThreadPoolQueueCapacity is 4"),
        "{}",
        remark.as_str()
    );
    disk.hold_syncs(false);
    for answer in waiting {
        assert_eq!(answer.await.unwrap().response_code(), ResponseCode::SUCCESS);
    }
    peer.send("T", 0, "taken again").await;
}
