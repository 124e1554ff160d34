//! What a process costs, and what its sudden death costs.
#![cfg(target_os = "linux")]

use crate::cases_support::{Peer, frame, memory_kib, scale, send_command};
use crate::process::{Serving, succeed};
use bytes::Bytes;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// name server and broker, at rest and after some work.
#[test]
fn an_idle_server_is_below_40_mb_and_little_more_after_ten_thousand_messages() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let idle = memory_kib(serving.pid(), "VmRSS");
    assert!(idle < 40 * 1024, "{idle} KiB at rest");
    let name_server = serving.address("namesrv");
    let sizes = ["--messages", "10000", "--size", "512"];
    let mut produce = vec!["bench", "produce", "--topic", "Work", "--json"];
    produce.extend(sizes);
    succeed(&name_server, &produce);
    succeed(&name_server, &["bench", "consume", "--topic", "Work", "--json"]);
    // Pages of files that are mapped are the system's to take back.
    let worked = memory_kib(serving.pid(), "RssAnon");
    assert!(worked < 80 * 1024, "{worked} KiB after 10,000 messages");
}

/// C-05: many connections that do nothing, and some that sent something large once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_cost_little_even_after_large_frames() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let address = serving.address("broker");
    let peer = Peer::connect(&address).await;
    peer.send_all("T", "", vec![Bytes::from_static(b"x")]).await;
    let before = memory_kib(serving.pid(), "RssAnon");
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(TcpStream::connect(&address).await.unwrap());
    }
    peer.send_all("T", "", vec![Bytes::from_static(b"x")]).await;
    let with_idle = memory_kib(serving.pid(), "RssAnon");
    let each = with_idle.saturating_sub(before) / 400;
    assert!(each <= 16, "{each} KiB for each of 400 idle connections");
    // 60 MB through 60 connections that then rest.
    let large = frame(&send_command("T", "", Bytes::from(vec![7; 1 << 20])));
    let small = frame(&send_command("T", "", Bytes::from_static(b"x")));
    for stream in idle.iter_mut().take(60) {
        for bytes in [&large, &small] {
            stream.write_all(bytes).await.unwrap();
            let length = stream.read_u32().await.unwrap();
            let mut answer = vec![0; length as usize];
            stream.read_exact(&mut answer).await.unwrap();
        }
    }
    let after = memory_kib(serving.pid(), "RssAnon").saturating_sub(with_idle);
    assert!(after < 24 * 1024, "{after} KiB are kept for 60 connections at rest");
}

/// what was deleted leaves neither files nor entries, and memory does not follow the number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_that_come_and_go_leave_nothing_behind() {
    let rounds = 90 * scale();
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let peer = Peer::connect(&serving.address("broker")).await;
    let mut warm = 0;
    for n in 0..rounds {
        let topic = format!("Churn{n}");
        peer.create_topic(&topic, 6).await;
        peer.send_all(&topic, "", vec![Bytes::from_static(b"x")]).await;
        assert_eq!(peer.pull(&topic, 0, 1_000).await.0.len(), 1);
        peer.delete_topic(&topic).await;
        if n == rounds / 3 {
            warm = memory_kib(serving.pid(), "RssAnon");
        }
    }
    let grown = memory_kib(serving.pid(), "RssAnon").saturating_sub(warm);
    assert!(grown < 4 * 1024, "{grown} KiB more after {rounds} topics");
    let data = folder.path().join("data");
    for file in ["config/topics.json", "config/consumerOffset.json"] {
        let text = std::fs::read_to_string(data.join(file)).unwrap_or_default();
        assert!(!text.contains("Churn"), "{file}: {text}");
    }
    let queues: Vec<_> = std::fs::read_dir(data.join("consumequeue"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("Churn"))
        .collect();
    assert!(queues.is_empty(), "{queues:?}");
    // A question does not bring a topic back.
    assert!(peer.pull("Churn1", 0, 0).await.0.is_empty());
    assert!(!data.join("consumequeue/Churn1").exists());
}

/// T-01: kill -9 in the middle of the delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_in_the_middle_of_a_delivery_loses_no_delayed_message_and_repeats_one_period() {
    const ALL: usize = 3_000;
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "--set",
        "messageDelayLevel=1s 2s",
        "--set",
        "flushDelayOffsetInterval=100",
        "--set",
        "flushDiskType=SYNC_FLUSH",
    ];
    let serving = Serving::start(folder.path(), &settings);
    let peer = Peer::connect(&serving.address("broker")).await;
    // Spread over more than a second, so that the delivery takes as long.
    for part in 0..15 {
        let begin = Instant::now();
        let bodies = (0..ALL / 15).map(|n| Bytes::from(format!("{part}-{n}"))).collect();
        peer.send_all("Late", "DELAY\u{1}1\u{2}", bodies).await;
        tokio::time::sleep(Duration::from_millis(80).saturating_sub(begin.elapsed())).await;
    }
    let begin = Instant::now();
    let seen = loop {
        let (_, next) = peer.pull("Late", 0, 0).await;
        let (_, end) = peer.pull("Late", i64::MAX / 2, 0).await;
        if next > 0 && end >= ALL as i64 / 3 && end < i64::MAX / 2 {
            break end;
        }
        assert!(begin.elapsed() < crate::cases_support::PATIENCE, "nothing is delivered");
    };
    serving.end_by("KILL");
    let serving = Serving::start(folder.path(), &settings);
    let peer = Peer::connect(&serving.address("broker")).await;
    let mut times: HashMap<Bytes, usize> = HashMap::new();
    let (mut offset, begin) = (0, Instant::now());
    while times.len() < ALL {
        let (bodies, next) = peer.pull("Late", offset, 1_000).await;
        for body in bodies {
            *times.entry(body).or_default() += 1;
        }
        offset = next;
        assert!(begin.elapsed() < crate::cases_support::PATIENCE, "{} of {ALL}", times.len());
    }
    let repeats: usize = times.values().map(|count| count - 1).sum();
    assert!(repeats <= seen as usize + ALL / 5, "{repeats} repeats, {seen} were delivered before");
    assert!(offset as usize <= ALL + repeats);
}
