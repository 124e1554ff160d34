//! Groups: many leave at once, members die or pause, queues are never left without an owner.

use crate::harness::{Fixture, Peer, TIMEOUT, subscription};
use apogee_protocol::bodies::{
    ConsumerData, GetConsumerListByGroupResponseBody, HeartbeatData, JsonBody,
    LockBatchRequestBody, LockBatchResponseBody, MessageQueue,
};
use apogee_protocol::headers::{GetConsumerListByGroupRequestHeader, NoHeader};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn members(peer: &Peer) -> Vec<String> {
    let header = GetConsumerListByGroupRequestHeader {
        consumer_group: Str::from_static("CG"),
        ..GetConsumerListByGroupRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::GET_CONSUMER_LIST_BY_GROUP, &header).await;
    GetConsumerListByGroupResponseBody::from_json(&answer.body)
        .map(|body| body.consumer_id_list)
        .unwrap_or_default()
}

fn lock_body(client: &str, queues: &[i32]) -> Bytes {
    let body = LockBatchRequestBody {
        client_id: Some(client.to_owned()),
        consumer_group: Some("CG".to_owned()),
        mq_set: queues.iter().map(|id| MessageQueue::new("T", "broker-a", *id)).collect(),
        ..LockBatchRequestBody::default()
    };
    Bytes::from(body.to_raw())
}

async fn lock(peer: &Peer, client: &str, queues: &[i32]) -> Vec<i32> {
    let answer =
        peer.ask_with(RequestCode::LOCK_BATCH_MQ, &NoHeader, lock_body(client, queues)).await;
    let held = LockBatchResponseBody::from_json(&answer.body).unwrap().lock_ok_mq_set;
    let mut ids: Vec<i32> = held.into_iter().map(|queue| queue.queue_id).collect();
    ids.sort_unstable();
    ids
}

/// O-14: most of a group leaves at once, in every way there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_most_of_a_group_leaves_at_once_the_rest_is_told_few_times_and_gets_every_queue() {
    const ALL: usize = 200;
    const REST: usize = 20;
    let fixture = Fixture::start().await;
    let admin = fixture.connect().await;
    admin.create_topic("T", ALL as i32).await;
    let mut peers = Vec::new();
    for n in 0..ALL {
        let peer = fixture.connect().await;
        let id = format!("c{n:03}");
        assert_eq!(
            peer.join(&id, "CG", vec![subscription("T", "*", 1)]).await.response_code(),
            ResponseCode::SUCCESS
        );
        assert_eq!(lock(&peer, &id, &[n as i32]).await, [n as i32]);
        peers.push((id, peer));
    }
    assert_eq!(members(&admin).await.len(), ALL);
    let mut rest = peers.split_off(ALL - REST);
    for (_, peer) in &mut rest {
        while peer.requests.try_recv().is_ok() {}
    }
    for (n, (id, peer)) in peers.into_iter().enumerate() {
        if n % 3 == 0 {
            let header = apogee_protocol::headers::UnregisterClientRequestHeader {
                client_id: Str::from(id),
                consumer_group: Some(Str::from_static("CG")),
                ..Default::default()
            };
            peer.ask(RequestCode::UNREGISTER_CLIENT, &header).await;
        }
        peer.connection.close();
    }
    let mut told = 0;
    for (_, peer) in &mut rest {
        while {
            let notice = peer.next_request().await;
            assert_eq!(notice.request_code(), RequestCode::NOTIFY_CONSUMER_IDS_CHANGED);
            told += 1;
            members(peer).await.len() > REST
        } {}
    }
    assert!(told / REST < 60, "{told} notices for {REST} members");
    let ids: Vec<String> = rest.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(members(&admin).await, ids);
    // Every queue has exactly one owner at once, not after a minute.
    for (n, (id, peer)) in rest.iter().enumerate() {
        let mine: Vec<i32> =
            (0..ALL - REST).filter(|queue| queue % REST == n).map(|queue| queue as i32).collect();
        assert_eq!(lock(peer, id, &mine).await, mine);
    }
    for (id, peer) in &rest {
        assert!(
            lock(peer, &format!("{id}x"), &(0..ALL as i32).collect::<Vec<_>>()).await.is_empty()
        );
    }
}

fn frame(mut command: RemotingCommand, opaque: i32) -> BytesMut {
    command.opaque = opaque;
    let mut out = BytesMut::new();
    command.encode_into(&mut out).unwrap();
    out
}

/// S-03: what the kernel does to the connections of a process that is killed.
#[tokio::test]
async fn a_killed_members_queues_go_to_another_at_once_in_order() {
    let fixture = Fixture::start().await;
    let mut other = fixture.connect().await;
    other.create_topic("T", 4).await;
    for n in 0..40 {
        other.send("T", 0, &n.to_string()).await;
    }
    other.join("c2", "CG", vec![subscription("T", "*", 1)]).await;
    other.next_request().await;
    let mut killed = TcpStream::connect(fixture.broker.address()).await.unwrap();
    let data = HeartbeatData {
        client_id: "c1".to_owned(),
        consumer_data_set: vec![ConsumerData {
            group_name: "CG".to_owned(),
            subscription_data_set: vec![subscription("T", "*", 1)],
            ..ConsumerData::default()
        }],
        ..HeartbeatData::default()
    };
    let beat = RemotingCommand::request(RequestCode::HEART_BEAT, &NoHeader).body(data.to_raw());
    let locking = RemotingCommand::request(RequestCode::LOCK_BATCH_MQ, &NoHeader)
        .body(lock_body("c1", &[0, 1, 2, 3]));
    killed.write_all(&[frame(beat, 1), frame(locking, 2)].concat()).await.unwrap();
    other.next_request().await;
    let mut byte = [0];
    killed.read_exact(&mut byte).await.unwrap();
    assert!(lock(&other, "c2", &[0, 1, 2, 3]).await.is_empty());
    assert_eq!(other.commit("CG", "T", 0, 7).await.response_code(), ResponseCode::SUCCESS);
    killed.set_zero_linger().unwrap();
    drop(killed);
    other.next_request().await;
    assert_eq!(lock(&other, "c2", &[0, 1, 2, 3]).await, [0, 1, 2, 3]);
    let start = other.position("CG", "T", 0).await.unwrap();
    let bodies = other.pull_all("T", 0, start, 33).await;
    assert_eq!(bodies, (7..40).map(|n| n.to_string()).collect::<Vec<_>>());
}

/// S-01, as far as it is the broker's: a member that pauses keeps its queue and its place.
#[tokio::test]
async fn a_member_that_pauses_keeps_its_queue_while_it_renews_and_reads_on_where_it_was() {
    let fixture = Fixture::start().await;
    let (owner, other) = (fixture.connect().await, fixture.connect().await);
    owner.create_topic("T", 1).await;
    for n in 0..10 {
        owner.send("T", 0, &n.to_string()).await;
    }
    owner.join("c1", "CG", vec![subscription("T", "*", 1)]).await;
    other.join("c2", "CG", vec![subscription("T", "*", 1)]).await;
    assert_eq!(lock(&owner, "c1", &[0]).await, [0]);
    assert_eq!(owner.pull("T", 0, 0).await.bodies().len(), 10);
    owner.commit("CG", "T", 0, 3).await;
    // Its handler asks for a pause: the client only renews and sends heartbeats meanwhile.
    for _ in 0..30 {
        assert_eq!(lock(&owner, "c1", &[0]).await, [0]);
        assert!(lock(&other, "c2", &[0]).await.is_empty());
        owner.join("c1", "CG", vec![subscription("T", "*", 1)]).await;
    }
    assert_eq!(owner.position("CG", "T", 0).await, Some(3));
    let rest = owner.pull("T", 0, 3).await.bodies();
    assert_eq!(rest, (3..10).map(|n| n.to_string()).collect::<Vec<_>>());
}

/// A member that joins in the moment in which the last one leaves is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_joins_while_others_leave_is_in_the_group() {
    let fixture = Fixture::start().await;
    let admin = fixture.connect().await;
    for round in 0..100 {
        let (leaving, joining) = (fixture.connect().await, fixture.connect().await);
        leaving.join("old", "CG", vec![subscription("T", "*", 1)]).await;
        let leave = tokio::spawn(async move { leaving.connection.close() });
        joining.join("new", "CG", vec![subscription("T", "*", 1)]).await;
        leave.await.unwrap();
        assert!(members(&admin).await.contains(&"new".to_owned()), "round {round}");
        joining.connection.close();
        let begin = std::time::Instant::now();
        while !members(&admin).await.is_empty() {
            assert!(begin.elapsed() < TIMEOUT);
        }
    }
}
