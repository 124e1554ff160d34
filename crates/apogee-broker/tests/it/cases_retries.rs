//! O-11, A-10: retries do not multiply, and each message of a batch can be found.

use crate::harness::{Fixture, Peer, TIMEOUT, send_header, subscription};
use apogee_model::batch::{self, BatchMessage};
use apogee_model::id::OffsetId;
use apogee_protocol::headers::{
    ConsumerSendMsgBackRequestHeader, QueryMessageRequestHeader, SendMessageResponseHeader,
    ViewMessageRequestHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str};
use bytes::Bytes;

async fn send_back(peer: &Peer, offset: i64, max: i32) {
    let header = ConsumerSendMsgBackRequestHeader {
        offset,
        group: Str::from_static("CG"),
        delay_level: 0,
        origin_topic: Some(Str::from_static("T")),
        max_reconsume_times: Some(max),
        ..ConsumerSendMsgBackRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::CONSUMER_SEND_MSG_BACK, &header).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
}

/// O-11: two members under one id both get everything and both always fail.
#[tokio::test]
async fn a_message_that_always_fails_in_two_members_of_one_id_is_tried_at_most_its_number_of_times()
{
    const MAX: usize = 3;
    let fixture = Fixture::start_with(|_, store| store.message_delay_level = "1s".to_owned()).await;
    let (one, two) = (fixture.connect().await, fixture.connect().await);
    for peer in [&one, &two] {
        peer.join("same", "CG", vec![subscription("T", "*", 1)]).await;
    }
    let sent = one.send("T", 0, "bad").await;
    let mut failed = OffsetId::parse(&sent.msg_id).unwrap().physical_offset;
    for attempt in 0..MAX {
        send_back(&one, failed, MAX as i32).await;
        send_back(&two, failed, MAX as i32).await;
        let copies = one.pull_all("%RETRY%CG", 0, 0, attempt + 1).await;
        assert_eq!(copies.len(), attempt + 1);
        let pulled = one.pull("%RETRY%CG", 0, attempt as i64).await;
        failed = pulled.each(|record| record.physical_offset())[0];
    }
    send_back(&one, failed, MAX as i32).await;
    send_back(&two, failed, MAX as i32).await;
    assert_eq!(one.pull("%DLQ%CG", 0, 0).await.bodies(), ["bad"]);
    assert_eq!(fixture.broker.store().max_offset("%RETRY%CG", 0), MAX as i64);
}

/// by its own unique key, by its key, and by its place.
#[tokio::test]
async fn each_message_of_a_batch_is_found_by_its_own_ids() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let mut body = Vec::new();
    for n in 0..10 {
        let properties = format!("UNIQ_KEY\u{1}U{n}\u{2}KEYS\u{1}k{n} all\u{2}");
        let text = format!("body {n}");
        let message =
            BatchMessage { flag: 0, body: text.as_bytes(), properties: properties.as_bytes() };
        assert!(batch::append(&mut body, &message));
    }
    let mut header = send_header("T", 0, "");
    header.batch = Some(true);
    let answer = peer.ask_with(RequestCode::SEND_BATCH_MESSAGE, &header, Bytes::from(body)).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    let told: SendMessageResponseHeader = answer.header().unwrap();
    let places: Vec<&str> = told.msg_id.split(',').collect();
    assert_eq!(places.len(), 10);
    for (n, place) in places.iter().enumerate() {
        let offset = OffsetId::parse(place).unwrap().physical_offset;
        let view = ViewMessageRequestHeader { topic: None, offset };
        let viewed = peer.ask(RequestCode::VIEW_MESSAGE_BY_ID, &view).await;
        let wanted = format!("body {n}");
        let record = apogee_model::RecordView::parse(&viewed.body).unwrap();
        assert_eq!(record.body(), wanted.as_bytes());
        assert_eq!(query(&peer, &format!("U{n}"), true).await, [wanted.as_str()]);
        assert_eq!(query(&peer, &format!("k{n}"), false).await, [wanted.as_str()]);
    }
    assert_eq!(query(&peer, "all", false).await.len(), 10);
}

async fn query(peer: &Peer, key: &str, unique: bool) -> Vec<String> {
    let header = QueryMessageRequestHeader {
        topic: Str::from_static("T"),
        key: Str::from(key.to_owned()),
        max_num: 32,
        end_timestamp: i64::MAX,
        ..QueryMessageRequestHeader::default()
    };
    let mut command = RemotingCommand::request(RequestCode::QUERY_MESSAGE, &header);
    command.ext.set("_UNIQUE_KEY_QUERY", if unique { "true" } else { "false" });
    let answer = peer.connection.invoke(command, TIMEOUT).await.unwrap();
    let code = answer.response_code();
    crate::harness::Pulled { code, header: Default::default(), body: answer.body }.bodies()
}
