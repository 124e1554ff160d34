//! D-10: a stored body is exactly what its sender sent, whatever other connections do.

use crate::cases_support::scale;
use crate::harness::{Fixture, TIMEOUT, pull_header, send_header};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, split_frame};
use bytes::{Bytes, BytesMut};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

const CONNECTIONS: u64 = 500;
const QUEUES: u64 = 4;
/// Largest body of the many, and of one in fifty.
const SIZES: [usize; 2] = [20_000, 300_000];

/// A body that tells by itself whether it is whole: a seed, and what follows from it.
fn body_of(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let largest = if seed.is_multiple_of(50) { SIZES[1] } else { SIZES[0] };
    let mut body = vec![0; random.usize(8..largest)];
    random.fill(&mut body);
    body[..8].copy_from_slice(&seed.to_be_bytes());
    body
}

fn frame(command: RemotingCommand, opaque: i32) -> Vec<u8> {
    let mut out = BytesMut::new();
    let mut command = command;
    command.opaque = opaque;
    command.encode_into(&mut out).unwrap();
    out.to_vec()
}

fn send_frame(seed: u64, opaque: i32) -> Vec<u8> {
    let header = send_header("Bodies", (seed % QUEUES) as i32, "");
    frame(
        RemotingCommand::request(RequestCode::SEND_MESSAGE_V2, &header).body(body_of(seed)),
        opaque,
    )
}

fn pull_frame(queue: i32, opaque: i32) -> Vec<u8> {
    let mut header = pull_header("CG", "Bodies", queue, 1 << 40);
    header.sys_flag |= 2;
    header.suspend_timeout_millis = 1_000;
    frame(RemotingCommand::request(RequestCode::PULL_MESSAGE, &header), opaque)
}

/// One connection's life; answers the seeds that were acknowledged.
async fn live(address: SocketAddr, seed: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(!seed);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let seeds: Vec<u64> = (0..3).map(|n| seed * 3 + n).collect();
    let mut bytes = Vec::new();
    for (n, seed) in seeds.iter().enumerate() {
        bytes.extend(send_frame(*seed, n as i32));
        bytes.extend(pull_frame(n as i32, 100 + n as i32));
    }
    match seed % 5 {
        // Half a frame, then gone, with or without good manners.
        0 | 1 => {
            bytes.truncate(random.usize(1..bytes.len()));
            stream.write_all(&bytes).await.unwrap();
            if seed.is_multiple_of(2) {
                stream.set_zero_linger().unwrap();
            }
            return Vec::new();
        }
        // Garbage behind good frames.
        2 => bytes.extend([0xFF, 0xFE, 0, 0, 9, 9, 9, 9]),
        // In pieces.
        3 => {
            let pieces: Vec<Vec<u8>> =
                bytes.chunks(random.usize(1000..9000)).map(<[u8]>::to_vec).collect();
            for piece in pieces {
                stream.write_all(&piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            bytes.clear();
        }
        _ => {}
    }
    // The broker may close first, over the garbage.
    let _ = stream.write_all(&bytes).await;
    acknowledged(&mut stream, &seeds).await
}

/// Reads until all sends are answered or the connection ends.
async fn acknowledged(stream: &mut TcpStream, seeds: &[u64]) -> Vec<u64> {
    let mut input = BytesMut::new();
    let mut stored = Vec::new();
    while stored.len() < seeds.len() {
        let read = tokio::time::timeout(TIMEOUT, stream.read_buf(&mut input)).await;
        if !matches!(read.expect("no answer"), Ok(1..)) {
            break;
        }
        while let Some(answer) = split_frame(&mut input, usize::MAX).unwrap() {
            let answer = RemotingCommand::decode(answer).unwrap();
            if let Some(seed) = seeds.get(answer.opaque as usize) {
                assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
                stored.push(*seed);
            }
        }
    }
    stored
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_bodies_are_their_senders_bytes_whatever_other_connections_do() {
    let fixture = Fixture::start_with(|_, store| store.mapped_file_size_commit_log = 8 << 20).await;
    fixture.connect().await.create_topic("Bodies", QUEUES as i32).await;
    let address = fixture.broker.address();
    // Not more at one time than an ordinary limit of open files lets a test have.
    let places = Arc::new(Semaphore::new(100));
    let mut lives = Vec::new();
    let connections = CONNECTIONS * scale();
    for seed in 0..connections {
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        lives.push(tokio::spawn(async move {
            let stored = live(address, seed).await;
            drop(place);
            stored
        }));
    }
    let mut wanted = HashSet::new();
    for life in lives {
        wanted.extend(life.await.unwrap());
    }
    assert!(wanted.len() as u64 >= connections, "{}", wanted.len());
    let reader = fixture.connect().await;
    for queue in 0..QUEUES as i32 {
        let end = fixture.broker.store().max_offset("Bodies", queue);
        let mut offset = 0;
        while offset < end {
            let pulled = reader.pull("Bodies", queue, offset).await;
            assert_eq!(pulled.code, ResponseCode::SUCCESS);
            for body in pulled.each(|record| Bytes::copy_from_slice(record.body())) {
                let seed = u64::from_be_bytes(body[..8].try_into().unwrap());
                assert!(body == body_of(seed), "the body of {seed} is damaged");
                wanted.remove(&seed);
            }
            offset = pulled.header.next_begin_offset;
        }
    }
    assert!(wanted.is_empty(), "acknowledged, but not there: {wanted:?}");
}
