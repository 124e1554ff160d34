//! Groups, their members, and queue locks.

use crate::harness::{Fixture, Peer, subscription};
use apogee_protocol::bodies::{
    ConsumerData, GetConsumerListByGroupResponseBody, HeartbeatData, JsonBody,
    LockBatchRequestBody, LockBatchResponseBody, MessageQueue,
};
use apogee_protocol::headers::{
    GetConsumerListByGroupRequestHeader, NoHeader, NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
};
use apogee_protocol::{RequestCode, ResponseCode, Str};
use bytes::Bytes;

async fn members(peer: &Peer) -> Vec<String> {
    let header = GetConsumerListByGroupRequestHeader {
        consumer_group: Str::from_static("CG"),
        ..GetConsumerListByGroupRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::GET_CONSUMER_LIST_BY_GROUP, &header).await;
    match answer.response_code() {
        ResponseCode::SUCCESS => {
            GetConsumerListByGroupResponseBody::from_json(&answer.body).unwrap().consumer_id_list
        }
        _ => Vec::new(),
    }
}

async fn lock(peer: &Peer, client: &str, queues: &[i32]) -> Vec<i32> {
    let body = LockBatchRequestBody {
        client_id: Some(client.to_owned()),
        consumer_group: Some("CG".to_owned()),
        mq_set: queues.iter().map(|id| MessageQueue::new("T", "broker-a", *id)).collect(),
        ..LockBatchRequestBody::default()
    };
    let answer =
        peer.ask_with(RequestCode::LOCK_BATCH_MQ, &NoHeader, Bytes::from(body.to_raw())).await;
    let held = LockBatchResponseBody::from_json(&answer.body).unwrap().lock_ok_mq_set;
    held.into_iter().map(|queue| queue.queue_id).collect()
}

#[tokio::test]
async fn members_are_told_when_one_joins_and_when_its_connection_ends() {
    let fixture = Fixture::start().await;
    let mut first = fixture.connect().await;
    first.join("c1", "CG", vec![subscription("T", "*", 1)]).await;
    assert_eq!(first.next_request().await.request_code(), RequestCode::NOTIFY_CONSUMER_IDS_CHANGED);
    let second = fixture.connect().await;
    second.join("c2", "CG", vec![subscription("T", "*", 1)]).await;
    let told = first.next_request().await;
    let header: NotifyConsumerIdsChangedRequestHeader = told.header().unwrap();
    assert_eq!((header.consumer_group.as_str(), told.is_oneway()), ("CG", true));
    assert_eq!(members(&first).await, ["c1", "c2"]);
    second.connection.close();
    first.next_request().await;
    assert_eq!(members(&first).await, ["c1"]);
}

#[tokio::test]
async fn a_member_that_says_good_bye_is_gone_at_once() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.join("c1", "CG", vec![subscription("T", "*", 1)]).await;
    let header = UnregisterClientRequestHeader {
        client_id: Str::from_static("c1"),
        consumer_group: Some(Str::from_static("CG")),
        ..UnregisterClientRequestHeader::default()
    };
    peer.ask(RequestCode::UNREGISTER_CLIENT, &header).await;
    assert_eq!(members(&peer).await, Vec::<String>::new());
}

#[tokio::test]
async fn locks_are_free_as_soon_as_the_owners_connection_ends() {
    let fixture = Fixture::start().await;
    let (first, mut second) = (fixture.connect().await, fixture.connect().await);
    first.send("T", 0, "x").await;
    second.join("c2", "CG", vec![subscription("T", "*", 1)]).await;
    second.next_request().await;
    first.join("c1", "CG", vec![subscription("T", "*", 1)]).await;
    second.next_request().await;
    assert_eq!(lock(&first, "c1", &[0, 1, 2]).await, [0, 1, 2]);
    assert_eq!(lock(&second, "c2", &[0, 1, 3]).await, [3]);
    first.connection.close();
    second.next_request().await;
    assert_eq!(lock(&second, "c2", &[0, 1, 2, 3]).await, [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_queue_that_is_not_there_cannot_be_locked() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "x").await;
    assert_eq!(lock(&peer, "c1", &[-1, 4, 99]).await, Vec::<i32>::new());
}

#[tokio::test]
async fn a_short_heartbeat_of_an_unknown_client_is_answered_with_the_wish_for_the_whole() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let mut data = HeartbeatData {
        client_id: "c1".to_owned(),
        consumer_data_set: vec![ConsumerData {
            group_name: "CG".to_owned(),
            subscription_data_set: vec![subscription("T", "*", 1)],
            ..ConsumerData::default()
        }],
        heartbeat_fingerprint: 77,
        without_sub: true,
        ..HeartbeatData::default()
    };
    let told = |answer: apogee_protocol::RemotingCommand| {
        assert_eq!(answer.ext.get("IS_SUPPORT_HEART_BEAT_V2"), Some("true"));
        answer.ext.get("IS_SUB_CHANGE").unwrap() == "true"
    };
    assert!(told(peer.heartbeat(&data).await));
    data.without_sub = false;
    assert!(!told(peer.heartbeat(&data).await));
    data.without_sub = true;
    assert!(!told(peer.heartbeat(&data).await));
    data.heartbeat_fingerprint = 78;
    assert!(told(peer.heartbeat(&data).await));
}
