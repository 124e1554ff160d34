//! Delay levels, send-backs, dead letters.

use crate::harness::{Fixture, Peer, send_header};
use apogee_broker::now_ms;
use apogee_model::id::OffsetId;
use apogee_protocol::headers::ConsumerSendMsgBackRequestHeader;
use apogee_protocol::{RequestCode, ResponseCode, Str};

async fn send_back(peer: &Peer, offset: i64, level: i32, max: Option<i32>) -> ResponseCode {
    let header = ConsumerSendMsgBackRequestHeader {
        offset,
        group: Str::from_static("CG"),
        delay_level: level,
        origin_topic: Some(Str::from_static("T")),
        max_reconsume_times: max,
        ..ConsumerSendMsgBackRequestHeader::default()
    };
    peer.ask(RequestCode::CONSUMER_SEND_MSG_BACK, &header).await.response_code()
}

fn offset_of(id: &str) -> i64 {
    OffsetId::parse(id).unwrap().physical_offset
}

#[tokio::test]
async fn a_delayed_message_comes_not_before_its_time_and_soon_after() {
    let fixture =
        Fixture::start_with(|_, store| store.message_delay_level = "1s 2s".to_owned()).await;
    let peer = fixture.connect().await;
    let sent_at = now_ms();
    let sent = peer.send_with("T", 1, "DELAY\u{1}1\u{2}", "late").await;
    assert_eq!(sent.queue_id, 1);
    peer.send("T", 0, "other queue").await;
    assert_eq!(peer.pull_all("T", 1, 0, 1).await, ["late"]);
    let waited = now_ms() - sent_at;
    assert!((1_000..3_000).contains(&waited), "{waited}");
    let stored = peer.pull("T", 1, 0).await.each(|record| record.store_timestamp() - sent_at);
    assert!(stored[0] >= 1_000, "{stored:?}");
}

#[tokio::test]
async fn a_level_beyond_the_last_one_means_the_last_one() {
    let fixture =
        Fixture::start_with(|_, store| store.message_delay_level = "1s 2s".to_owned()).await;
    let peer = fixture.connect().await;
    peer.send_with("T", 0, "DELAY\u{1}99\u{2}", "late").await;
    assert_eq!(fixture.broker.store().max_offset("SCHEDULE_TOPIC_XXXX", 1), 1);
}

#[tokio::test]
async fn a_message_sent_back_returns_on_the_retry_topic_with_its_history() {
    let fixture =
        Fixture::start_with(|_, store| store.message_delay_level = "1s 1s 1s 1s".to_owned()).await;
    let peer = fixture.connect().await;
    let sent = peer.send("T", 0, "again").await;
    assert_eq!(send_back(&peer, offset_of(&sent.msg_id), 0, None).await, ResponseCode::SUCCESS);
    assert_eq!(peer.pull_all("%RETRY%CG", 0, 0, 1).await, ["again"]);
    let seen = peer.pull("%RETRY%CG", 0, 0).await.each(|record| {
        let property = |name: &str| record.properties().get(name).map(str::to_owned);
        (
            record.reconsume_times(),
            property("RETRY_TOPIC"),
            property("ORIGIN_MESSAGE_ID"),
            property("DELAY"),
        )
    });
    let expected = (1, Some("T".to_owned()), Some(sent.msg_id.to_string()), Some("3".to_owned()));
    assert_eq!(seen, [expected]);
}

#[tokio::test]
async fn the_last_attempt_goes_to_the_dead_letters_at_once() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let sent = peer.send("T", 0, "dead").await;
    assert_eq!(send_back(&peer, offset_of(&sent.msg_id), 0, Some(0)).await, ResponseCode::SUCCESS);
    let pulled = peer.pull("%DLQ%CG", 0, 0).await;
    assert_eq!(pulled.bodies(), ["dead"]);
    let delays = pulled.each(|record| record.properties().get("DELAY").is_some());
    assert_eq!(delays, [false]);
}

#[tokio::test]
async fn a_negative_level_means_the_dead_letters() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let sent = peer.send("T", 0, "dead").await;
    assert_eq!(send_back(&peer, offset_of(&sent.msg_id), -1, None).await, ResponseCode::SUCCESS);
    assert_eq!(peer.pull("%DLQ%CG", 0, 0).await.bodies(), ["dead"]);
}

#[tokio::test]
async fn two_send_backs_of_one_message_make_one_copy() {
    let fixture = Fixture::start().await;
    let (one, two) = (fixture.connect().await, fixture.connect().await);
    let sent = one.send("T", 0, "dead").await;
    for peer in [&one, &two] {
        assert_eq!(send_back(peer, offset_of(&sent.msg_id), -1, None).await, ResponseCode::SUCCESS);
    }
    assert_eq!(one.pull("%DLQ%CG", 0, 0).await.bodies(), ["dead"]);
}

#[tokio::test]
async fn sending_back_what_is_not_there_is_refused() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "x").await;
    for offset in [-1, 3, 1 << 40] {
        assert_eq!(send_back(&peer, offset, 0, None).await, ResponseCode::SYSTEM_ERROR);
    }
}

#[tokio::test]
async fn a_retry_that_a_client_sends_itself_goes_to_the_dead_letters_past_its_limit() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let mut header = send_header("%RETRY%CG", 0, "DELAY\u{1}5\u{2}");
    header.reconsume_times = Some(3);
    header.max_reconsume_times = Some(2);
    let answer = peer.try_send(&header, b"dead").await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    assert_eq!(peer.pull("%DLQ%CG", 0, 0).await.bodies(), ["dead"]);
}
