//! What survives a stop.

use crate::harness::Fixture;
use apogee_protocol::headers::{
    QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
};
use apogee_protocol::{RequestCode, Str};
use std::time::{Duration, Instant};

#[tokio::test]
async fn messages_topics_groups_and_offsets_survive_a_restart() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for n in 0..20 {
        peer.send("T", n % 4, &n.to_string()).await;
    }
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: Str::from_static("CG"),
        topic: Str::from_static("T"),
        queue_id: 1,
        commit_offset: 4,
        ..UpdateConsumerOffsetRequestHeader::default()
    };
    peer.ask(RequestCode::UPDATE_CONSUMER_OFFSET, &header).await;
    let folder = fixture.stop().await.unwrap();
    let again =
        Fixture::open(folder.path(), |config, _| config.auto_create_topic_enable = false).await;
    let peer = again.connect().await;
    assert_eq!(peer.pull("T", 1, 0).await.bodies(), ["1", "5", "9", "13", "17"]);
    let header = QueryConsumerOffsetRequestHeader {
        consumer_group: Str::from_static("CG"),
        topic: Str::from_static("T"),
        queue_id: 1,
        ..QueryConsumerOffsetRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::QUERY_CONSUMER_OFFSET, &header).await;
    assert_eq!(answer.header::<QueryConsumerOffsetResponseHeader>().unwrap().offset, 4);
    assert_eq!(peer.send("T", 1, "next").await.queue_offset, 5);
}

#[tokio::test]
async fn delayed_messages_wait_through_a_restart_and_come_once() {
    let levels =
        |store: &mut apogee_store::StoreConfig| store.message_delay_level = "1s".to_owned();
    let fixture = Fixture::start_with(|_, store| levels(store)).await;
    let peer = fixture.connect().await;
    for n in 0..5 {
        peer.send_with("T", 0, "DELAY\u{1}1\u{2}", &n.to_string()).await;
    }
    let folder = fixture.stop().await.unwrap();
    let again = Fixture::open(folder.path(), |_, store| levels(store)).await;
    let peer = again.connect().await;
    assert_eq!(peer.pull_all("T", 0, 0, 5).await, ["0", "1", "2", "3", "4"]);
    again.stop().await;
    let third = Fixture::open(folder.path(), |_, store| levels(store)).await;
    assert_eq!(third.broker.store().max_offset("T", 0), 5);
}

#[tokio::test]
async fn a_stop_answers_waiting_pulls_and_takes_less_than_two_seconds() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "x").await;
    let mut header = crate::harness::pull_header("CG", "T", 0, 1);
    header.sys_flag |= 2;
    header.suspend_timeout_millis = 30_000;
    let waiting = tokio::spawn(async move { peer.pull_with(&header).await.code });
    while fixture.broker.waiting_pulls() == 0 {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    let folder = fixture.stop().await;
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(waiting.await.unwrap(), apogee_protocol::ResponseCode::PULL_NOT_FOUND);
    drop(folder);
}
