//! What the server promises to all its peers, whatever one of them does.

use crate::support::{ECHO, HOLD, LARGE, LARGE_BYTES, Raw, Running, frame, within};
use apogee_net::Limits;
use apogee_protocol::{RemotingCommand, split_frame};
use bytes::BytesMut;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn all_frames_of_one_read_are_one_batch_whose_answers_leave_in_order_and_together() {
    let mut server = Running::start(Limits::default());
    let mut peer = Raw::connect(server.address).await;
    let frames: Vec<u8> = (0..8).flat_map(|n| frame(ECHO, 100 + n, &[b'a' + n as u8])).collect();
    peer.write(&frames).await;
    assert_eq!(within(server.batches.recv()).await, Some(8));
    // One write on their side is one read on ours.
    let mut answers = BytesMut::with_capacity(64 * 1024);
    within(peer.stream.read_buf(&mut answers)).await.unwrap();
    for n in 0..8 {
        let answer = split_frame(&mut answers, usize::MAX).unwrap().unwrap();
        let answer = RemotingCommand::decode(answer).unwrap();
        assert!(answer.is_response());
        assert_eq!((answer.opaque, &answer.body[..]), (100 + n, &[b'a' + n as u8][..]));
    }
    assert!(answers.is_empty());
}

#[tokio::test]
async fn answers_keep_the_order_of_their_requests_however_the_stream_is_cut() {
    let server = Running::start(Limits::default());
    let stream: Vec<u8> =
        (0..200).flat_map(|n| frame(ECHO, n, &vec![n as u8; (n as usize * 37) % 900])).collect();
    for piece in [1_usize, 7, 61, 997] {
        let mut peer = Raw::connect(server.address).await;
        let (mut reading, mut writing) = peer.stream.into_split();
        let bytes = stream.clone();
        let count = if piece == 1 { 20 } else { 200 };
        let writer = tokio::spawn(async move {
            let pieces = if piece == 1 { &bytes[..frame_len(&bytes, 20)] } else { &bytes[..] };
            for part in pieces.chunks(piece) {
                writing.write_all(part).await.unwrap();
            }
            writing
        });
        let mut input = BytesMut::new();
        let mut next = 0;
        while next < count {
            while let Some(answer) = split_frame(&mut input, usize::MAX).unwrap() {
                let answer = RemotingCommand::decode(answer).unwrap();
                assert_eq!(answer.opaque, next);
                assert_eq!(answer.body.len(), (next as usize * 37) % 900);
                assert!(answer.body.iter().all(|byte| *byte == next as u8));
                next += 1;
            }
            if next < count {
                assert_ne!(within(reading.read_buf(&mut input)).await.unwrap(), 0);
            }
        }
        peer = Raw::connect(server.address).await;
        assert!(peer.ask(1, b"x").await.is_some());
        drop(writer.await.unwrap());
    }
}

/// Bytes of the first `count` frames.
fn frame_len(bytes: &[u8], count: usize) -> usize {
    (0..count).fold(0, |at, _| {
        at + 4 + u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
    })
}

#[tokio::test]
async fn a_silent_connection_is_closed_after_the_idle_time_and_a_busy_one_stays() {
    let idle = Duration::from_millis(300);
    let mut server = Running::start(Limits { idle, ..Limits::default() });
    let mut busy = Raw::connect(server.address).await;
    assert!(busy.ask(0, b"x").await.is_some());
    let silent = Raw::connect(server.address).await;
    let (begin, address) = (std::time::Instant::now(), silent.stream.local_addr().unwrap());
    let mut opaque = 1;
    let ended = loop {
        assert!(busy.ask(opaque, b"x").await.is_some(), "a busy connection was closed");
        opaque += 1;
        if let Ok(ended) = server.closed.try_recv() {
            break ended;
        }
        assert!(begin.elapsed() < crate::support::PATIENCE);
    };
    assert_eq!(ended, address);
    // Counted from a little later than the server does.
    assert!(begin.elapsed() >= idle.mul_f64(0.8), "{:?}", begin.elapsed());
    assert!(busy.ask(opaque, b"x").await.is_some());
}

#[tokio::test]
async fn a_frame_of_the_largest_size_is_served_and_one_byte_more_ends_its_connection() {
    let max_frame = 4096;
    let server = Running::start(Limits { max_frame, ..Limits::default() });
    let empty = frame(ECHO, 1, b"").len();
    let mut peer = Raw::connect(server.address).await;
    let mut neighbour = Raw::connect(server.address).await;
    let body = vec![1; max_frame - empty];
    assert_eq!(peer.ask(1, &body).await.unwrap().body, body);
    let body = vec![1; max_frame - empty + 1];
    assert!(peer.ask(1, &body).await.is_none());
    assert!(neighbour.ask(1, b"still served").await.is_some());
}

#[tokio::test]
async fn what_came_before_a_bad_frame_is_still_answered() {
    let server = Running::start(Limits::default());
    let mut peer = Raw::connect(server.address).await;
    let bytes = [frame(ECHO, 5, b"good"), vec![0xFF; 16]].concat();
    peer.write(&bytes).await;
    assert_eq!(peer.next().await.unwrap().opaque, 5);
    assert!(peer.next().await.is_none());
}

#[tokio::test]
async fn connections_above_the_limit_are_closed_at_once_and_a_freed_place_is_given_again() {
    let mut server = Running::start(Limits { max_connections: 2, ..Limits::default() });
    let mut one = Raw::connect(server.address).await;
    let mut two = Raw::connect(server.address).await;
    assert!(one.ask(1, b"x").await.is_some() && two.ask(1, b"x").await.is_some());
    let mut three = Raw::connect(server.address).await;
    assert!(three.next().await.is_none());
    drop(one);
    within(server.closed.recv()).await.unwrap();
    // The place is free a moment after the service heard of the end.
    within(async {
        loop {
            let mut again = Raw::connect(server.address).await;
            if again.ask(1, b"x").await.is_some() {
                break;
            }
        }
    })
    .await;
    assert!(two.ask(2, b"x").await.is_some());
}

#[tokio::test]
async fn a_peer_that_never_reads_is_cut_off_at_the_limit_and_others_are_served() {
    let mut server = Running::start(Limits { max_unsent: 1 << 20, ..Limits::default() });
    let mut deaf = Raw::connect(server.address).await;
    let mut neighbour = Raw::connect(server.address).await;
    deaf.write(&frame(HOLD, 1, b"")).await;
    let held = server.next_held().await;
    // Far more than the sockets' buffers take: what the peer does not read piles up here.
    let mut sent = 0_usize;
    while !held.connection.is_closed() {
        held.connection.send(&crate::support::request(9, 0, &[0; LARGE_BYTES]));
        sent += LARGE_BYTES;
        assert!(sent < 1 << 30, "nobody stops this");
        tokio::task::yield_now().await;
    }
    assert!(neighbour.ask(1, b"x").await.is_some());
    let ended = within(server.closed.recv()).await.unwrap();
    assert_eq!(ended, deaf.stream.local_addr().unwrap());
}

#[tokio::test]
async fn requests_of_a_peer_that_does_not_read_answers_are_not_read_either_and_none_is_lost() {
    let server = Running::start(Limits::default());
    let peer = Raw::connect(server.address).await;
    let mut neighbour = Raw::connect(server.address).await;
    let (mut reading, mut writing) = peer.stream.into_split();
    let total = 300_000;
    let writer = tokio::spawn(async move {
        let mut written = 0;
        while written < total {
            let next = (written + 100).min(total);
            let bytes: Vec<u8> = (written..next).flat_map(|n| frame(LARGE, n, b"")).collect();
            // The pipe is full when nothing moves for a while.
            if tokio::time::timeout(Duration::from_millis(500), writing.write_all(&bytes))
                .await
                .is_err()
            {
                return (writing, written);
            }
            written = next;
        }
        panic!("the server takes requests without end");
    });
    let (_writing, written) = writer.await.unwrap();
    let served = server.service.requests.load(Ordering::Relaxed);
    assert!(served < total as usize, "{served}");
    assert!(neighbour.ask(1, b"x").await.is_some());
    // Those that got through are all answered, in order.
    let mut input = BytesMut::new();
    let mut next = 0;
    while next < written.min(500) {
        while let Some(answer) = split_frame(&mut input, usize::MAX).unwrap() {
            let answer = RemotingCommand::decode(answer).unwrap();
            assert_eq!((answer.opaque, answer.body.len()), (next, LARGE_BYTES));
            next += 1;
        }
        within(reading.read_buf(&mut input)).await.unwrap();
    }
}

#[tokio::test]
async fn the_service_hears_once_of_every_end_whatever_ended_it() {
    let mut server = Running::start(Limits::default());
    let closing = Raw::connect(server.address).await;
    let mut bad = Raw::connect(server.address).await;
    let mut cut = Raw::connect(server.address).await;
    let mut asked = Raw::connect(server.address).await;
    let mut expected: Vec<_> =
        [&closing, &bad, &cut, &asked].map(|peer| peer.stream.local_addr().unwrap()).to_vec();
    cut.write(&frame(ECHO, 1, b"x")[..10]).await;
    bad.write(&[0xFF; 8]).await;
    asked.write(&frame(HOLD, 1, b"")).await;
    server.next_held().await.connection.close();
    cut.stream.set_zero_linger().unwrap();
    drop((closing, cut));
    let mut ended = Vec::new();
    for _ in 0..4 {
        ended.push(within(server.closed.recv()).await.unwrap());
    }
    expected.sort();
    ended.sort();
    assert_eq!(ended, expected);
    server.shutdown.cancel();
    server.tasks.close();
    within(server.tasks.wait()).await;
    assert!(server.closed.try_recv().is_err());
}

#[tokio::test]
async fn a_shutdown_lets_the_last_answers_out_and_ends_every_task() {
    let mut server = Running::start(Limits::default());
    let mut peer = Raw::connect(server.address).await;
    peer.write(&frame(HOLD, 77, b"")).await;
    let held = server.next_held().await;
    held.reply(b"goodbye");
    server.shutdown.cancel();
    let answer = peer.next().await.unwrap();
    assert_eq!((answer.opaque, &answer.body[..]), (77, &b"goodbye"[..]));
    assert!(peer.next().await.is_none());
    server.tasks.close();
    within(server.tasks.wait()).await;
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_shutdown_finishes_an_answer_that_is_being_written() {
    let server = Running::start(Limits::default());
    let mut peer = Raw::connect(server.address).await;
    let count = 200;
    let frames: Vec<u8> = (0..count).flat_map(|n| frame(LARGE, n, b"")).collect();
    peer.write(&frames).await;
    assert_eq!(peer.next().await.unwrap().opaque, 0);
    server.shutdown.cancel();
    let mut got = 1;
    while let Some(answer) = peer.next().await {
        assert_eq!((answer.opaque, answer.body.len()), (got, LARGE_BYTES));
        got += 1;
    }
    server.tasks.close();
    within(server.tasks.wait()).await;
    // All requests of a batch that was served are answered whole.
    assert_eq!(got as usize, server.service.requests.load(Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_requests_does_not_keep_the_server_from_stopping() {
    let server = Running::start(Limits::default());
    let peer = Raw::connect(server.address).await;
    let (mut reading, mut writing) = peer.stream.into_split();
    let flood = tokio::spawn(async move {
        let bytes: Vec<u8> = (0..1000).flat_map(|n| frame(ECHO, n, b"x")).collect();
        while writing.write_all(&bytes).await.is_ok() {}
    });
    let drain = tokio::spawn(async move {
        let mut input = vec![0; 1 << 20];
        while reading.read(&mut input).await.is_ok_and(|count| count > 0) {}
    });
    while server.service.requests.load(Ordering::Relaxed) < 10_000 {
        tokio::task::yield_now().await;
    }
    server.shutdown.cancel();
    server.tasks.close();
    tokio::time::timeout(Duration::from_secs(2), server.tasks.wait()).await.unwrap();
    flood.await.unwrap();
    drain.await.unwrap();
}
