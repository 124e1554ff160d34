//! Requests that are wrong in every way: each gets its code and a remark that names what is wrong, and
//! nobody else notices.

use crate::harness::{Fixture, TIMEOUT, pull_header, send_header};
use apogee_model::batch::{self, BatchMessage};
use apogee_protocol::headers::{NoHeader, UpdateConsumerOffsetRequestHeader};
use apogee_protocol::{ExtFields, RemotingCommand, RequestCode, ResponseCode, Str};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn illegal_topic_names_are_refused_by_every_request_and_leave_no_folder() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let long = "t".repeat(256);
    let bad = ["../../x", "a/b", "", " ", "a\0b", long.as_str(), "全角", "%RETRY%../x", "a.b"];
    for topic in bad {
        let sent = peer.try_send(&send_header(topic, 0, ""), b"x").await;
        assert_eq!(
            sent.response_code(),
            ResponseCode::INVALID_PARAMETER,
            "{topic:?}: {:?}",
            sent.remark
        );
        let pulled = peer.ask(RequestCode::PULL_MESSAGE, &pull_header("CG", topic, 0, 0)).await;
        assert_eq!(pulled.response_code(), ResponseCode::TOPIC_NOT_EXIST, "{topic:?}");
        let header = UpdateConsumerOffsetRequestHeader {
            consumer_group: Str::from_static("CG"),
            topic: Str::from(topic.to_owned()),
            ..UpdateConsumerOffsetRequestHeader::default()
        };
        let committed = peer.ask(RequestCode::UPDATE_CONSUMER_OFFSET, &header).await;
        assert_eq!(committed.response_code(), ResponseCode::INVALID_PARAMETER, "{topic:?}");
        let joined = peer.join("c1", "CG", vec![crate::harness::subscription(topic, "*", 1)]).await;
        assert_eq!(joined.response_code(), ResponseCode::INVALID_PARAMETER, "{topic:?}");
    }
    let root = fixture.folder.as_ref().unwrap().path();
    let queues = std::fs::read_dir(root.join("consumequeue")).unwrap().count();
    assert_eq!(queues, 0);
    assert_eq!(fixture.broker.store().max_physical_offset(), 0);
}

#[tokio::test]
async fn illegal_group_names_are_refused() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "x").await;
    for group in ["../x", "a b", "", "群"] {
        let joined = peer.join("c1", group, Vec::new()).await;
        assert_eq!(joined.response_code(), ResponseCode::INVALID_PARAMETER, "{group:?}");
        let pulled = peer.ask(RequestCode::PULL_MESSAGE, &pull_header(group, "T", 0, 0)).await;
        assert_eq!(pulled.response_code(), ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, "{group:?}");
    }
}

#[tokio::test]
async fn system_topics_take_no_messages_from_clients() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for topic in
        ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"]
    {
        let sent = peer.try_send(&send_header(topic, 0, ""), b"x").await;
        assert_eq!(sent.response_code(), ResponseCode::NO_PERMISSION, "{topic}");
    }
}

#[tokio::test]
async fn a_missing_field_is_refused_by_its_name_for_every_request() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let with_required = [
        (RequestCode::SEND_MESSAGE_V2, "topic"),
        (RequestCode::SEND_MESSAGE, "topic"),
        (RequestCode::PULL_MESSAGE, "topic"),
        (RequestCode::QUERY_MESSAGE, "topic"),
        (RequestCode::QUERY_CONSUMER_OFFSET, "topic"),
        (RequestCode::UPDATE_CONSUMER_OFFSET, "topic"),
        (RequestCode::GET_MAX_OFFSET, "topic"),
        (RequestCode::GET_MIN_OFFSET, "topic"),
        (RequestCode::SEARCH_OFFSET_BY_TIMESTAMP, "topic"),
        (RequestCode::GET_EARLIEST_MSG_STORETIME, "topic"),
        (RequestCode::VIEW_MESSAGE_BY_ID, "offset"),
        (RequestCode::UNREGISTER_CLIENT, "clientID"),
        (RequestCode::CONSUMER_SEND_MSG_BACK, "group"),
        (RequestCode::GET_CONSUMER_LIST_BY_GROUP, "consumerGroup"),
        (RequestCode::UPDATE_AND_CREATE_TOPIC, "topic"),
        (RequestCode::DELETE_TOPIC_IN_BROKER, "topic"),
        (RequestCode::GET_CONSUME_STATS, "consumerGroup"),
        (RequestCode::INVOKE_BROKER_TO_RESET_OFFSET, "group"),
    ];
    for (code, field) in with_required {
        let mut command = RemotingCommand::with_ext(code.0, ExtFields::default());
        // Everything but the field in question.
        for (name, value) in [
            ("a", "PG"),
            ("producerGroup", "PG"),
            ("consumerGroup", "CG"),
            ("offset", "0"),
            ("queueId", "0"),
            ("delayLevel", "0"),
            ("c", "TBW102"),
            ("defaultTopic", "TBW102"),
            ("d", "4"),
            ("defaultTopicQueueNums", "4"),
            ("e", "0"),
            ("f", "0"),
            ("sysFlag", "0"),
            ("g", "0"),
            ("bornTimestamp", "0"),
            ("h", "0"),
            ("flag", "0"),
        ] {
            if name != field {
                command.ext.set(name, value);
            }
        }
        let answer = peer.connection.invoke(command, TIMEOUT).await.unwrap();
        assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR, "{code:?}");
        let remark = answer.remark.unwrap();
        assert!(
            remark.contains(field) && remark.contains("missing"),
            "{code:?}: {}",
            remark.as_str()
        );
        assert!(!remark.contains("Exception"), "{}", remark.as_str());
    }
}

#[tokio::test]
async fn wrong_types_and_wrong_bodies_are_refused_with_a_reason() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "x").await;
    let mut command =
        RemotingCommand::with_ext(RequestCode::GET_MAX_OFFSET.0, ExtFields::default());
    command.ext.set("topic", "T");
    command.ext.set("queueId", "notANumber");
    let answer = peer.connection.invoke(command, TIMEOUT).await.unwrap();
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
    assert!(answer.remark.unwrap().contains("notANumber"));
    for code in [
        RequestCode::HEART_BEAT,
        RequestCode::LOCK_BATCH_MQ,
        RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    ] {
        for body in [&b""[..], b"garbage", b"[1,2", b"\xff\xfe", b"{\"clientID\":{}}"] {
            let answer = peer.ask_with(code, &NoHeader, Bytes::copy_from_slice(body)).await;
            assert_ne!(answer.response_code(), ResponseCode::SUCCESS, "{code:?} {body:?}");
            assert!(answer.remark.is_some());
        }
    }
}

#[tokio::test]
async fn unknown_codes_are_not_supported_by_number() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for code in [99_999, -1, 0, 200_070] {
        let command = RemotingCommand::with_ext(code, ExtFields::default());
        let answer = peer.connection.invoke(command, TIMEOUT).await.unwrap();
        assert_eq!(answer.response_code(), ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
        assert!(answer.remark.unwrap().contains(&code.to_string()));
    }
}

#[tokio::test]
async fn oversize_bodies_and_properties_are_illegal_and_neighbours_stay_intact() {
    let fixture = Fixture::start_with(|config, store| {
        config.max_message_size = 10_000;
        store.max_message_size = 10_000;
    })
    .await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "before").await;
    let answer = peer.try_send(&send_header("T", 0, ""), &[7; 10_001]).await;
    assert_eq!(answer.response_code(), ResponseCode::MESSAGE_ILLEGAL);
    assert!(answer.remark.unwrap().contains("10000"));
    for size in [32_767, 32_768, 65_536] {
        let properties = format!("k\u{1}{}\u{2}", "v".repeat(size - 3));
        let answer = peer.try_send(&send_header("T", 0, &properties), b"x").await;
        assert_eq!(answer.response_code(), ResponseCode::MESSAGE_ILLEGAL, "{size}");
        assert!(answer.remark.unwrap().contains("32767"));
    }
    let mut body = Vec::new();
    assert!(batch::append(&mut body, &BatchMessage { flag: 0, body: b"ok", properties: b"" }));
    body.extend_from_slice(&[0, 0, 0, 90, 1, 2, 3]);
    let mut header = send_header("T", 0, "");
    header.batch = Some(true);
    let answer = peer.ask_with(RequestCode::SEND_BATCH_MESSAGE, &header, Bytes::from(body)).await;
    assert_eq!(answer.response_code(), ResponseCode::MESSAGE_ILLEGAL);
    assert!(answer.remark.unwrap().contains("message 1 of the batch"));
    assert_eq!(
        peer.try_send(&send_header("T", 0, ""), b"").await.response_code(),
        ResponseCode::SYSTEM_ERROR
    );
    peer.send("T", 0, "after").await;
    assert_eq!(peer.pull("T", 0, 0).await.bodies(), ["before", "after"]);
}

#[tokio::test]
async fn what_is_not_supported_yet_is_refused_and_not_stored() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let mut prepared = send_header("T", 0, "");
    prepared.sys_flag = 4;
    let timed = send_header("T", 0, "TRAN_MSG\u{1}true\u{2}TIMER_DELAY_SEC\u{1}5\u{2}");
    for header in [prepared, timed] {
        assert_eq!(
            peer.try_send(&header, b"x").await.response_code(),
            ResponseCode::MESSAGE_ILLEGAL
        );
    }
    assert_eq!(fixture.broker.store().max_physical_offset(), 0);
}

#[tokio::test]
async fn bad_frames_end_their_own_connection_only() {
    let fixture = Fixture::start().await;
    let good = fixture.connect().await;
    let bad: [&[u8]; 7] = [
        &[0, 0, 0, 3, 1, 2, 3],
        &[0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
        &[0x7F, 0xFF, 0xFF, 0xFF, 0, 0],
        &[0, 0, 0, 8, 0, 0, 0, 100, b'{', b'}', 0, 0],
        &[0, 0, 0, 6, 9, 0, 0, 2, b'{', b'}'],
        &[0, 0, 0, 6, 0, 0, 0, 2, b'{', b'{'],
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    for bytes in bad {
        let mut stream = TcpStream::connect(fixture.broker.address()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest)).await.unwrap().ok();
        assert!(rest.is_empty(), "{bytes:?}");
    }
    good.send("T", 0, "still here").await;
}

#[tokio::test]
async fn a_frame_that_comes_byte_by_byte_is_served_and_a_half_one_harms_nobody() {
    let fixture = Fixture::start().await;
    let mut frame = bytes::BytesMut::new();
    let header = send_header("T", 0, "");
    RemotingCommand::request(RequestCode::SEND_MESSAGE_V2, &header)
        .body(&b"slow"[..])
        .encode_into(&mut frame)
        .unwrap();
    let mut slow = TcpStream::connect(fixture.broker.address()).await.unwrap();
    for byte in &frame {
        slow.write_all(&[*byte]).await.unwrap();
        slow.flush().await.unwrap();
    }
    let mut length = [0; 4];
    tokio::time::timeout(TIMEOUT, slow.read_exact(&mut length)).await.unwrap().unwrap();
    let mut half = TcpStream::connect(fixture.broker.address()).await.unwrap();
    half.write_all(&frame[..frame.len() - 1]).await.unwrap();
    drop(half);
    let peer = fixture.connect().await;
    assert_eq!(peer.pull("T", 0, 0).await.bodies(), ["slow"]);
}
