//! Pulling, long polling, filters, offsets.

use crate::harness::{Fixture, Peer, pull_header, subscription};
use apogee_protocol::headers::{
    GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader, QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader, SearchOffsetRequestHeader, SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
};
use apogee_protocol::{RequestCode, ResponseCode, Str};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_waiting_pull_is_answered_as_soon_as_a_message_arrives() {
    let fixture = Fixture::start().await;
    let (consumer, producer) = (fixture.connect().await, fixture.connect().await);
    producer.send("T", 0, "first").await;
    let mut header = pull_header("CG", "T", 0, 1);
    header.sys_flag |= 2;
    header.suspend_timeout_millis = 15_000;
    let waiting = tokio::spawn(async move {
        let pulled = consumer.pull_with(&header).await;
        (pulled.bodies(), Instant::now())
    });
    while fixture.broker.waiting_pulls() == 0 {
        tokio::task::yield_now().await;
    }
    let sent_at = Instant::now();
    producer.send("T", 0, "second").await;
    let (bodies, answered_at) = waiting.await.unwrap();
    assert_eq!(bodies, ["second"]);
    assert!(answered_at.duration_since(sent_at) < Duration::from_secs(2));
}

#[tokio::test]
async fn a_waiting_pull_ends_with_not_found_when_its_time_is_up() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "x").await;
    let mut header = pull_header("CG", "T", 0, 1);
    header.sys_flag |= 2;
    header.suspend_timeout_millis = 50;
    let pulled = peer.pull_with(&header).await;
    assert_eq!(pulled.code, ResponseCode::PULL_NOT_FOUND);
    assert_eq!(pulled.header.next_begin_offset, 1);
}

#[tokio::test]
async fn offsets_outside_the_queue_are_corrected_to_its_ends_never_to_zero() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for n in 0..3 {
        peer.send("T", 0, &n.to_string()).await;
    }
    for beyond in [4, 1003] {
        let pulled = peer.pull("T", 0, beyond).await;
        assert_eq!(pulled.code, ResponseCode::PULL_OFFSET_MOVED);
        assert_eq!(pulled.header.next_begin_offset, 3);
    }
    let at_end = peer.pull("T", 0, 3).await;
    assert_eq!((at_end.code, at_end.header.next_begin_offset), (ResponseCode::PULL_NOT_FOUND, 3));
    let below = peer.pull("T", 0, -5).await;
    assert_eq!((below.code, below.header.next_begin_offset), (ResponseCode::PULL_OFFSET_MOVED, 0));
}

#[tokio::test]
async fn a_group_gets_only_its_tags_and_its_position_passes_the_others() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.join("c1", "CG_tag", vec![subscription("T", "A || C", 1)]).await;
    for (tag, body) in [("A", "1"), ("B", "2"), ("C", "3"), ("B", "4")] {
        peer.send_with("T", 0, &format!("TAGS\u{1}{tag}\u{2}"), body).await;
    }
    let mut header = pull_header("CG_tag", "T", 0, 0);
    header.sys_flag = 0;
    header.subscription = None;
    header.sub_version = 1;
    let pulled = peer.pull_with(&header).await;
    assert_eq!(pulled.bodies(), ["1", "3"]);
    assert_eq!(pulled.header.next_begin_offset, 4);
}

#[tokio::test]
async fn a_waiting_pull_sleeps_through_foreign_tags_and_wakes_for_its_own() {
    let fixture = Fixture::start().await;
    let (consumer, producer) = (fixture.connect().await, fixture.connect().await);
    consumer.join("c1", "CG_tag", vec![subscription("T", "Mine", 1)]).await;
    producer.send_with("T", 0, "TAGS\u{1}Other\u{2}", "0").await;
    let mut header = pull_header("CG_tag", "T", 0, 1);
    header.sys_flag = 2;
    header.subscription = None;
    header.suspend_timeout_millis = 15_000;
    let waiting = tokio::spawn(async move { consumer.pull_with(&header).await });
    while fixture.broker.waiting_pulls() == 0 {
        tokio::task::yield_now().await;
    }
    producer.send_with("T", 0, "TAGS\u{1}Other\u{2}", "1").await;
    producer.send_with("T", 0, "TAGS\u{1}Mine\u{2}", "2").await;
    let pulled = waiting.await.unwrap();
    assert_eq!(pulled.bodies(), ["2"]);
    assert_eq!(pulled.header.next_begin_offset, 3);
}

async fn query_offset(peer: &Peer, group: &str, zero: Option<bool>) -> (ResponseCode, Option<i64>) {
    let header = QueryConsumerOffsetRequestHeader {
        consumer_group: Str::from(group.to_owned()),
        topic: Str::from_static("T"),
        queue_id: 0,
        set_zero_if_not_found: zero,
        ..QueryConsumerOffsetRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::QUERY_CONSUMER_OFFSET, &header).await;
    let offset =
        answer.header::<QueryConsumerOffsetResponseHeader>().ok().map(|found| found.offset);
    (answer.response_code(), offset)
}

#[tokio::test]
async fn committed_offsets_are_answered_and_unknown_ones_start_a_fresh_queue_at_zero() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "x").await;
    assert_eq!(query_offset(&peer, "CG", None).await, (ResponseCode::SUCCESS, Some(0)));
    assert_eq!(query_offset(&peer, "CG", Some(false)).await, (ResponseCode::QUERY_NOT_FOUND, None));
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: Str::from_static("CG"),
        topic: Str::from_static("T"),
        queue_id: 0,
        commit_offset: 1,
        ..UpdateConsumerOffsetRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::UPDATE_CONSUMER_OFFSET, &header).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS);
    assert_eq!(query_offset(&peer, "CG", Some(false)).await, (ResponseCode::SUCCESS, Some(1)));
}

#[tokio::test]
async fn a_pull_may_commit_the_offset_that_its_header_names() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for n in 0..3 {
        peer.send("T", 0, &n.to_string()).await;
    }
    let mut header = pull_header("CG", "T", 0, 2);
    header.sys_flag |= 1;
    header.commit_offset = 2;
    peer.pull_with(&header).await;
    assert_eq!(query_offset(&peer, "CG", Some(false)).await, (ResponseCode::SUCCESS, Some(2)));
}

#[tokio::test]
async fn max_offset_and_offset_by_time_are_answered() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for n in 0..3 {
        peer.send("T", 0, &n.to_string()).await;
    }
    let header = GetMaxOffsetRequestHeader {
        topic: Str::from_static("T"),
        ..GetMaxOffsetRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::GET_MAX_OFFSET, &header).await;
    assert_eq!(answer.header::<GetMaxOffsetResponseHeader>().unwrap().offset, 3);
    for (timestamp, offset) in [(0, 0), (i64::MAX / 2, 3)] {
        let header = SearchOffsetRequestHeader {
            topic: Str::from_static("T"),
            timestamp,
            ..SearchOffsetRequestHeader::default()
        };
        let answer = peer.ask(RequestCode::SEARCH_OFFSET_BY_TIMESTAMP, &header).await;
        assert_eq!(answer.header::<SearchOffsetResponseHeader>().unwrap().offset, offset);
    }
}
