//! C-04 and C-05: names that are paths, frames that lie, floods: only the sender notices.

use crate::cases_support::scale;
use crate::harness::{Fixture, Peer, TIMEOUT, pull_header, send_header};
use apogee_model::batch::{self, BatchMessage};
use apogee_protocol::bodies::{
    CreateTopicListRequestBody, JsonBody, LockBatchRequestBody, MessageQueue,
    SubscriptionGroupConfig, TopicConfig,
};
use apogee_protocol::headers::{
    CloneGroupOffsetRequestHeader, ConsumerSendMsgBackRequestHeader, CreateTopicRequestHeader,
    DeleteTopicRequestHeader, GetMaxOffsetRequestHeader, NoHeader,
    QueryConsumerOffsetRequestHeader, QueryMessageRequestHeader, ResetOffsetRequestHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str, split_frame};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn files_below(root: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        found.insert(path.to_string_lossy().into_owned());
        if path.is_dir() {
            files_below(&path, found);
        }
    }
}

/// C-04: the requests that `bad_input` does not try.
#[tokio::test]
async fn illegal_names_in_admin_and_batch_requests_are_refused_and_leave_nothing_behind() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("store");
    std::fs::create_dir(&root).unwrap();
    let fixture = Fixture::open(&root, |_, _| {}).await;
    let peer = fixture.connect().await;
    let stored = peer.send("T", 0, "x").await;
    fixture.broker.store().flush_derived().unwrap();
    let mut before = BTreeSet::new();
    files_below(outer.path(), &mut before);
    let long = "t".repeat(256);
    for name in
        ["../../x", "a/b", "", " ", "a\0b", long.as_str(), "全角", "%RETRY%../x", "..", "/etc/x"]
    {
        let refusals = by_topic(&peer, name).await;
        for (what, code) in refusals {
            assert_ne!(code, ResponseCode::SUCCESS, "{what} {name:?}");
        }
        for (what, code) in by_group(&peer, name, &stored.msg_id).await {
            assert_ne!(code, ResponseCode::SUCCESS, "{what} {name:?}");
        }
    }
    fixture.broker.store().flush_derived().unwrap();
    let mut after = BTreeSet::new();
    files_below(outer.path(), &mut after);
    let new: Vec<_> = after.difference(&before).filter(|path| !path.contains("/config/")).collect();
    assert!(new.is_empty(), "{new:?}");
    let listed = peer.ask(RequestCode::GET_ALL_TOPIC_CONFIG, &NoHeader).await;
    let text = String::from_utf8_lossy(&listed.body).into_owned();
    assert!(!text.contains("../") && !text.contains("全角"), "{text}");
}

async fn by_topic(peer: &Peer, name: &str) -> Vec<(&'static str, ResponseCode)> {
    let text = || Str::from(name.to_owned());
    let create = CreateTopicRequestHeader {
        topic: text(),
        default_topic: Str::from_static("TBW102"),
        read_queue_nums: 1,
        write_queue_nums: 1,
        perm: 6,
        topic_filter_type: Str::from_static("SINGLE_TAG"),
        ..CreateTopicRequestHeader::default()
    };
    let list = CreateTopicListRequestBody {
        topic_config_list: vec![TopicConfig {
            topic_name: name.to_owned(),
            ..TopicConfig::default()
        }],
    };
    let delete = DeleteTopicRequestHeader { topic: text(), ..Default::default() };
    let max = GetMaxOffsetRequestHeader { topic: text(), ..Default::default() };
    let query = QueryMessageRequestHeader {
        topic: text(),
        key: Str::from_static("k"),
        max_num: 1,
        ..Default::default()
    };
    let mut batch_body = Vec::new();
    assert!(batch::append(&mut batch_body, &BatchMessage { flag: 0, body: b"x", properties: b"" }));
    let mut batch_header = send_header(name, 0, "");
    batch_header.batch = Some(true);
    let reset = ResetOffsetRequestHeader {
        group: Str::from_static("CG"),
        topic: text(),
        queue_id: -1,
        timestamp: -1,
        ..Default::default()
    };
    let code = |answer: RemotingCommand| answer.response_code();
    vec![
        ("create", code(peer.ask(RequestCode::UPDATE_AND_CREATE_TOPIC, &create).await)),
        (
            "create list",
            code(
                peer.ask_with(
                    RequestCode::UPDATE_AND_CREATE_TOPIC_LIST,
                    &NoHeader,
                    list.to_raw().into(),
                )
                .await,
            ),
        ),
        ("delete", code(peer.ask(RequestCode::DELETE_TOPIC_IN_BROKER, &delete).await)),
        ("max offset", code(peer.ask(RequestCode::GET_MAX_OFFSET, &max).await)),
        ("query", code(peer.ask(RequestCode::QUERY_MESSAGE, &query).await)),
        (
            "batch",
            code(
                peer.ask_with(RequestCode::SEND_BATCH_MESSAGE, &batch_header, batch_body.into())
                    .await,
            ),
        ),
        ("reset", code(peer.ask(RequestCode::INVOKE_BROKER_TO_RESET_OFFSET, &reset).await)),
    ]
}

async fn by_group(peer: &Peer, name: &str, stored: &str) -> Vec<(&'static str, ResponseCode)> {
    let text = || Str::from(name.to_owned());
    let config = SubscriptionGroupConfig { group_name: name.to_owned(), ..Default::default() };
    let place = apogee_model::id::OffsetId::parse(stored).unwrap().physical_offset;
    let back =
        ConsumerSendMsgBackRequestHeader { offset: place, group: text(), ..Default::default() };
    let clone = CloneGroupOffsetRequestHeader {
        src_group: Str::from_static("CG"),
        dest_group: text(),
        ..Default::default()
    };
    let code = |answer: RemotingCommand| answer.response_code();
    vec![
        (
            "create group",
            code(
                peer.ask_with(
                    RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                    &NoHeader,
                    config.to_raw().into(),
                )
                .await,
            ),
        ),
        ("send back", code(peer.ask(RequestCode::CONSUMER_SEND_MSG_BACK, &back).await)),
        ("clone", code(peer.ask(RequestCode::CLONE_GROUP_OFFSET, &clone).await)),
        ("commit", code(peer.commit(name, "T", 0, 1).await)),
    ]
}

/// C-04: locks are taken only under names that can exist.
#[tokio::test]
async fn a_group_with_an_illegal_name_gets_no_lock() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.create_topic("T", 1).await;
    for group in ["../x", "a b", "群", "a\0b"] {
        let body = LockBatchRequestBody {
            client_id: Some("c1".to_owned()),
            consumer_group: Some(group.to_owned()),
            mq_set: [MessageQueue::new("T", "broker-a", 0)].into_iter().collect(),
            ..LockBatchRequestBody::default()
        };
        let answer =
            peer.ask_with(RequestCode::LOCK_BATCH_MQ, &NoHeader, body.to_raw().into()).await;
        assert_eq!(answer.response_code(), ResponseCode::INVALID_PARAMETER, "{group:?}");
    }
}

fn good_frame() -> Vec<u8> {
    let header = send_header("T", 0, "TAGS\u{1}A\u{2}KEYS\u{1}k\u{2}");
    let mut out = BytesMut::new();
    RemotingCommand::request(RequestCode::SEND_MESSAGE_V2, &header)
        .body(&b"a body of some length"[..])
        .encode_into(&mut out)
        .unwrap();
    out.to_vec()
}

fn lie(random: &mut fastrand::Rng, frame: &mut Vec<u8>) {
    const LENGTHS: [u32; 8] =
        [0, 3, 4, 0x00FF_FFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x0100_0010];
    let length = if random.bool() { LENGTHS[random.usize(..8)] } else { random.u32(..) };
    match random.u8(..6) {
        0 => frame[..4].copy_from_slice(&length.to_be_bytes()),
        1 | 2 => frame[4..8].copy_from_slice(&length.to_be_bytes()),
        3 => frame.truncate(random.usize(1..frame.len())),
        4 => {
            for _ in 0..random.usize(1..8) {
                let at = random.usize(4..frame.len());
                frame[at] = random.u8(..);
            }
        }
        _ => {
            frame.clear();
            frame.resize(random.usize(1..300), 0);
            random.fill(frame);
        }
    }
}

/// C-05: lengths, types and headers at random, hundreds of connections: a neighbour is served all along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_lie_about_themselves_end_at_most_their_own_connection() {
    let fixture = Fixture::start().await;
    let good = fixture.connect().await;
    good.send("Good", 0, "0").await;
    let address = fixture.broker.address();
    // Always the same frames, unless many are wanted.
    let mut random =
        if scale() == 1 { fastrand::Rng::with_seed(20_240_601) } else { fastrand::Rng::new() };
    let served = 1 + 8 * scale() as usize;
    for round in 0..400 * scale() {
        let mut frame = good_frame();
        lie(&mut random, &mut frame);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&frame).await.unwrap();
        // The broker has read it all when it answers, closes, or has answered a neighbour's request.
        stream.shutdown().await.ok();
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "round {round}: the connection hangs after {frame:02x?}");
        let mut answer = BytesMut::from(&answer[..]);
        while let Ok(Some(bytes)) = split_frame(&mut answer, usize::MAX) {
            RemotingCommand::decode(bytes).unwrap();
        }
        if round % 50 == 0 {
            good.send("Good", 0, "still served").await;
        }
    }
    assert_eq!(good.pull_all("Good", 0, 0, served).await.len(), served);
}

/// C-05: requests by the thousand in one go are all answered, and a neighbour does not wait for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_on_one_connection_is_answered_in_order_and_does_not_hold_up_another() {
    const FLOOD: i32 = 5_000;
    let fixture = Fixture::start().await;
    let neighbour = fixture.connect().await;
    neighbour.send("T", 0, "x").await;
    let stream = TcpStream::connect(fixture.broker.address()).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let writer = tokio::spawn(async move {
        let mut bytes = BytesMut::new();
        for opaque in 0..FLOOD {
            let mut command = if opaque % 2 == 0 {
                RemotingCommand::request(RequestCode::SEND_MESSAGE_V2, &send_header("T", 0, ""))
                    .body(&b"x"[..])
            } else {
                RemotingCommand::request(RequestCode::PULL_MESSAGE, &pull_header("CG", "T", 0, 0))
            };
            command.opaque = opaque;
            command.encode_into(&mut bytes).unwrap();
        }
        writing.write_all(&bytes).await.unwrap();
        writing
    });
    let (mut input, mut next, mut slowest) = (BytesMut::new(), 0, Duration::ZERO);
    while next < FLOOD {
        while let Some(frame) = split_frame(&mut input, usize::MAX).unwrap() {
            let answer = RemotingCommand::decode(frame).unwrap();
            assert_eq!((answer.opaque, answer.response_code()), (next, ResponseCode::SUCCESS));
            next += 1;
            if next % 1_000 == 0 {
                let begin = Instant::now();
                neighbour.send("Other", 0, "y").await;
                slowest = slowest.max(begin.elapsed());
            }
        }
        if next < FLOOD {
            let read = tokio::time::timeout(TIMEOUT, reading.read_buf(&mut input)).await;
            assert_ne!(read.unwrap().unwrap(), 0);
        }
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    drop(writer.await.unwrap());
}

/// C-05: a reader that asks for much and takes nothing is not served without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_pulls_and_never_reads_harms_nobody() {
    let fixture = Fixture::start_with(|_, store| store.mapped_file_size_commit_log = 4 << 20).await;
    let neighbour = fixture.connect().await;
    for _ in 0..16 {
        let header = send_header("T", 0, "");
        let answer = neighbour.try_send(&header, &[7; 100_000]).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS);
    }
    let mut deaf = TcpStream::connect(fixture.broker.address()).await.unwrap();
    let mut bytes = BytesMut::new();
    for opaque in 0..2_000 {
        let mut command =
            RemotingCommand::request(RequestCode::PULL_MESSAGE, &pull_header("CG", "T", 0, 0));
        command.opaque = opaque;
        command.encode_into(&mut bytes).unwrap();
    }
    // 400 MB of answers that nobody takes.
    let _ = tokio::time::timeout(Duration::from_millis(500), deaf.write_all(&bytes)).await;
    for n in 0..50 {
        neighbour.send("Other", 0, &n.to_string()).await;
    }
    assert_eq!(neighbour.pull_all("Other", 0, 0, 50).await.len(), 50);
    let queried = QueryConsumerOffsetRequestHeader {
        consumer_group: Str::from_static("CG"),
        topic: Str::from_static("T"),
        ..Default::default()
    };
    neighbour.ask(RequestCode::QUERY_CONSUMER_OFFSET, &queried).await;
    drop(deaf);
    let _: Bytes = bytes.freeze();
}
