//! Positions of groups: they never jump, whoever is cut off, deleted, reset or grown.

use crate::harness::{Fixture, Peer, subscription};
use apogee_protocol::headers::{DeleteTopicRequestHeader, ResetOffsetRequestHeader};
use apogee_protocol::{RequestCode, ResponseCode, Str};
use std::collections::HashMap;

/// O-02: connections that are cut cost repeats of what was in flight, never a position.
#[tokio::test]
async fn a_member_that_is_cut_off_again_and_again_goes_on_where_it_had_committed() {
    let fixture = Fixture::start().await;
    let producer = fixture.connect().await;
    let total = 200;
    for n in 0..total {
        producer.send("T", 0, &n.to_string()).await;
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    let (mut committed, mut cuts, mut in_flight) = (0, 0, 0);
    while committed < total {
        let member = fixture.connect().await;
        member.join("c1", "CG", vec![subscription("T", "*", 1)]).await;
        let start = member.position("CG", "T", 0).await.unwrap();
        assert_eq!(start, committed, "after {cuts} cuts");
        // Two pulls are worked off and committed, a third is not: then the line is cut.
        let mut offset = start;
        for round in 0..3 {
            let pulled = member.pull("T", 0, offset).await;
            let bodies = pulled.bodies();
            let count = bodies.len();
            for body in bodies {
                *seen.entry(body).or_default() += 1;
            }
            offset = pulled.header.next_begin_offset;
            if round < 2 {
                member.commit("CG", "T", 0, offset).await;
                committed = offset;
            } else {
                in_flight += count;
            }
        }
        member.connection.close();
        cuts += 1;
    }
    assert!(cuts > 2);
    assert_eq!(seen.len() as i64, total);
    let repeats: usize = seen.values().map(|times| times - 1).sum();
    assert!(repeats <= in_flight, "{repeats} repeats, {in_flight} were in flight");
    let folder = fixture.stop_wholly().await.unwrap();
    let again = Fixture::open(folder.path(), |_, _| {}).await;
    assert_eq!(again.connect().await.position("CG", "T", 0).await, Some(total));
}

/// O-06: the same for a member that is between two pulls, and commits what it had.
#[tokio::test]
async fn a_member_that_is_busy_while_its_topic_is_deleted_and_made_again_misses_nothing() {
    let fixture = Fixture::start().await;
    let (producer, member) = (fixture.connect().await, fixture.connect().await);
    for n in 0..10 {
        producer.send("T", 0, &format!("old {n}")).await;
    }
    member.join("c1", "CG", vec![subscription("T", "*", 1)]).await;
    member.commit("CG", "T", 0, 10).await;
    delete_topic(&producer, "T").await;
    for n in 0..5 {
        producer.send("T", 0, &format!("new {n}")).await;
    }
    member.commit("CG", "T", 0, 10).await;
    assert_eq!(producer.position("CG", "T", 0).await, Some(0));
    let bodies = read_until(&member, "T", 10, 5).await;
    assert_eq!(bodies, ["new 0", "new 1", "new 2", "new 3", "new 4"]);
}

async fn delete_topic(peer: &Peer, topic: &str) {
    let header =
        DeleteTopicRequestHeader { topic: Str::from(topic.to_owned()), ..Default::default() };
    let deleted = peer.ask(RequestCode::DELETE_TOPIC_IN_BROKER, &header).await;
    assert_eq!(deleted.response_code(), ResponseCode::SUCCESS, "{:?}", deleted.remark);
}

/// As an official client reads on: it goes where the broker sends it, and repeats what was refused.
async fn read_until(peer: &Peer, topic: &str, mut offset: i64, count: usize) -> Vec<String> {
    let begin = std::time::Instant::now();
    let mut bodies = Vec::new();
    while bodies.len() < count {
        assert!(begin.elapsed() < crate::harness::TIMEOUT, "only {bodies:?} came");
        let mut header = crate::harness::pull_header("CG", topic, 0, offset);
        header.sys_flag |= 2;
        header.suspend_timeout_millis = 200;
        let answer = peer.ask(RequestCode::PULL_MESSAGE, &header).await;
        let Ok(header) = answer.header::<apogee_protocol::headers::PullMessageResponseHeader>()
        else {
            continue;
        };
        offset = header.next_begin_offset;
        let code = answer.response_code();
        bodies.extend(crate::harness::Pulled { code, header, body: answer.body }.bodies());
    }
    bodies
}

/// O-06: a member that waited behind the end of the old topic gets every message of the new one.
#[tokio::test]
async fn a_member_that_waits_while_its_topic_is_deleted_and_made_again_misses_nothing() {
    let fixture = Fixture::start().await;
    let (producer, member) = (fixture.connect().await, fixture.connect().await);
    for n in 0..10 {
        producer.send("T", 0, &format!("old {n}")).await;
    }
    assert_eq!(member.pull("T", 0, 0).await.bodies().len(), 10);
    member.join("c1", "CG", vec![subscription("T", "*", 1)]).await;
    member.commit("CG", "T", 0, 10).await;
    let reading = tokio::spawn(async move { (read_until(&member, "T", 10, 5).await, member) });
    while fixture.broker.waiting_pulls() == 0 {
        tokio::task::yield_now().await;
    }
    delete_topic(&producer, "T").await;
    for n in 0..5 {
        producer.send("T", 0, &format!("new {n}")).await;
    }
    let (bodies, member) = reading.await.unwrap();
    assert_eq!(bodies, ["new 0", "new 1", "new 2", "new 3", "new 4"]);
    member.commit("CG", "T", 0, 5).await;
    assert_eq!(member.position("CG", "T", 0).await, Some(5));
}

async fn reset(peer: &Peer, timestamp: i64) -> ResponseCode {
    let header = ResetOffsetRequestHeader {
        group: Str::from_static("CG"),
        topic: Str::from_static("T"),
        queue_id: -1,
        timestamp,
        is_force: true,
        ..ResetOffsetRequestHeader::default()
    };
    peer.ask(RequestCode::INVOKE_BROKER_TO_RESET_OFFSET, &header).await.response_code()
}

/// O-07: "success" means that the group starts there, even if no member is there to be told.
#[tokio::test]
async fn a_reset_holds_for_a_group_that_is_offline_and_through_a_restart() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for n in 0..10 {
        peer.send("T", 0, &n.to_string()).await;
    }
    peer.commit("CG", "T", 0, 10).await;
    assert_eq!(reset(&peer, 0).await, ResponseCode::SUCCESS);
    assert_eq!(peer.position("CG", "T", 0).await, Some(0));
    assert_eq!(read_until(&peer, "T", 0, 10).await[0], "0");
    assert_eq!(reset(&peer, -1).await, ResponseCode::SUCCESS);
    assert_eq!(peer.position("CG", "T", 0).await, Some(10));
    assert_eq!(reset(&peer, 0).await, ResponseCode::SUCCESS);
    let folder = fixture.stop_wholly().await.unwrap();
    let again = Fixture::open(folder.path(), |_, _| {}).await;
    assert_eq!(again.connect().await.position("CG", "T", 0).await, Some(0));
}

/// O-10: after a reset backwards each message comes again once, and late commits change nothing.
#[tokio::test]
async fn after_a_reset_backwards_an_online_member_gets_each_message_once_more_and_goes_on() {
    let fixture = Fixture::start().await;
    let (member, tool) = (fixture.connect().await, fixture.connect().await);
    for n in 0..100 {
        tool.send("T", 0, &n.to_string()).await;
    }
    member.join("c1", "CG", vec![subscription("T", "*", 1)]).await;
    assert_eq!(read_until(&member, "T", 0, 100).await.len(), 100);
    member.commit("CG", "T", 0, 100).await;
    assert_eq!(reset(&tool, 0).await, ResponseCode::SUCCESS);
    // The member has not heard of it and commits what it had.
    member.commit("CG", "T", 0, 100).await;
    assert_eq!(tool.position("CG", "T", 0).await, Some(0));
    let again = read_until(&member, "T", 100, 100).await;
    assert_eq!(again, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    member.commit("CG", "T", 0, 100).await;
    assert_eq!(tool.position("CG", "T", 0).await, Some(100));
    let end = member.pull("T", 0, 100).await;
    assert_eq!((end.code, end.header.next_begin_offset), (ResponseCode::PULL_NOT_FOUND, 100));
}

/// O-12: an existing group reads the queues that its topic gets later from their first message.
#[tokio::test]
async fn queues_that_a_topic_gets_later_are_read_from_their_first_message() {
    let fixture = Fixture::start().await;
    let (producer, member) = (fixture.connect().await, fixture.connect().await);
    producer.create_topic("T", 4).await;
    let (mut sent, mut received) = (0, 0);
    let mut positions: HashMap<i32, i64> = HashMap::new();
    for round in 0..8 {
        let queues = if round < 3 { 4 } else { 16 };
        if round == 3 {
            producer.create_topic("T", 16).await;
        }
        for queue in 0..queues {
            for _ in 0..3 {
                producer.send("T", queue, "x").await;
                sent += 1;
            }
        }
        // The member learns of new queues late: it looks only every other round.
        if round % 2 == 1 {
            for queue in 0..queues {
                let start = member.position("CG", "T", queue).await.expect("a place to start");
                if let Some(known) = positions.get(&queue) {
                    assert_eq!(start, *known);
                }
                let pulled = member.pull("T", queue, start).await;
                received += pulled.bodies().len();
                let next = pulled.header.next_begin_offset;
                member.commit("CG", "T", queue, next).await;
                positions.insert(queue, next);
            }
        }
    }
    assert_eq!(received, sent);
}

/// Bad input: an offset for a queue that does not exist is refused and takes no memory.
#[tokio::test]
async fn an_offset_for_a_queue_that_is_not_there_is_refused_by_its_number() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.create_topic("T", 4).await;
    for queue in [-1, 4, 1_000_000, i32::MAX] {
        let answer = peer.commit("CG", "T", queue, 1).await;
        assert_eq!(answer.response_code(), ResponseCode::INVALID_PARAMETER, "{queue}");
        assert!(answer.remark.unwrap().contains(&format!("[{queue}]")));
    }
    peer.send("T", 3, "x").await;
    assert_eq!(peer.commit("CG", "T", 3, 1).await.response_code(), ResponseCode::SUCCESS);
    // A queue that a smaller number of queues left behind is read to its end.
    peer.create_topic("T", 2).await;
    assert_eq!(peer.commit("CG", "T", 3, 1).await.response_code(), ResponseCode::SUCCESS);
}

/// H-07 for a single broker: a power cut takes the end of the log; who had read it misses nothing new.
#[tokio::test]
async fn positions_that_a_power_cut_left_behind_the_end_of_the_log_go_back_to_it() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for n in 0..10 {
        peer.send("T", 0, &n.to_string()).await;
    }
    peer.commit("CG", "T", 0, 10).await;
    peer.commit("Slow", "T", 0, 4).await;
    let folder = fixture.stop_wholly().await.unwrap();
    let document = folder.path().join("config/consumerOffset.json");
    let text = std::fs::read_to_string(&document).unwrap();
    assert!(text.contains("0:10"), "{text}");
    std::fs::write(&document, text.replace("0:10", "0:15")).unwrap();
    std::fs::write(folder.path().join("abort"), b"").unwrap();
    let again = Fixture::open(folder.path(), |_, _| {}).await;
    let peer = again.connect().await;
    assert_eq!(peer.position("CG", "T", 0).await, Some(10));
    assert_eq!(peer.position("Slow", "T", 0).await, Some(4));
    for n in 10..20 {
        peer.send("T", 0, &n.to_string()).await;
    }
    assert_eq!(peer.pull("T", 0, 10).await.bodies()[0], "10");
}
